//! Start and end offsets of partitions, and offsets by time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use stafett_kafka_wire::messages::ListOffsetsRequest;
use stafett_kafka_wire::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use stafett_kafka_wire::{ApiKey, Str};

use crate::client::Client;
use crate::error::ClientError;
use crate::refusal;
use crate::topic::Topic;

/// Maximum partitions per request.
const PARTITIONS_MAX: usize = 5000;

/// A position in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// First available offset.
    Start,
    /// Offset of the next record to be written.
    End,
    /// Offset of the first record of an open transaction, or that of the next record.
    CommittedEnd,
    /// First record with this timestamp (milliseconds since 1970) or a later one.
    Time(i64),
}

impl Place {
    fn timestamp(self) -> i64 {
        match self {
            Self::Start => -2,
            Self::End | Self::CommittedEnd => -1,
            Self::Time(time) => time,
        }
    }
}

/// A requested partition and the place of its answer.
struct Question {
    /// Index in the result.
    at: usize,
    topic: Str,
    partition: i32,
}

impl Client {
    /// Returns the offsets at `place` in all partitions of `topics`, in their order. `None` if no record is
    /// late enough.
    pub async fn offsets(
        &self,
        topics: &[&Topic],
        place: Place,
    ) -> Result<Vec<Vec<Option<i64>>>, ClientError> {
        let mut by_leader: BTreeMap<i32, Vec<Question>> = BTreeMap::new();
        let mut count = 0;
        for topic in topics {
            for partition in &topic.partitions {
                let leader = partition.leader.ok_or_else(|| ClientError::NoLeader {
                    about: name(&topic.name, partition.index).into(),
                })?;
                by_leader.entry(leader).or_default().push(Question {
                    at: count,
                    topic: topic.name.clone(),
                    partition: partition.index,
                });
                count += 1;
            }
        }
        let mut flat = vec![None; count];
        for (leader, questions) in by_leader {
            for chunk in questions.chunks(PARTITIONS_MAX) {
                let found = self.retrying(|| self.ask(leader, chunk, place)).await?;
                for (question, offset) in chunk.iter().zip(found) {
                    if let Some(slot) = flat.get_mut(question.at) {
                        *slot = offset;
                    }
                }
            }
        }
        let mut flat = flat.into_iter();
        Ok(topics
            .iter()
            .map(|topic| flat.by_ref().take(topic.partitions.len()).collect())
            .collect())
    }

    async fn ask(
        &self,
        leader: i32,
        questions: &[Question],
        place: Place,
    ) -> Result<Vec<Option<i64>>, ClientError> {
        let connection = self.broker(leader).await?;
        let version = connection.version::<ListOffsetsRequest>(i16::MAX)?;
        let mut topics: Vec<ListOffsetsTopic> = Vec::new();
        for question in questions {
            let partition = ListOffsetsPartition {
                partition_index: question.partition,
                timestamp: place.timestamp(),
                ..ListOffsetsPartition::default()
            };
            match topics.last_mut().filter(|last| last.name == question.topic) {
                Some(last) => last.partitions.push(partition),
                None => topics.push(ListOffsetsTopic {
                    name: question.topic.clone(),
                    partitions: vec![partition],
                }),
            }
        }
        let request = ListOffsetsRequest {
            replica_id: -1,
            isolation_level: (place == Place::CommittedEnd).into(),
            topics,
            timeout_ms: 0,
        };
        let answer = connection.send(&request, version, Duration::ZERO).await?.await?;
        let mut offsets: BTreeMap<(&str, i32), i64> = BTreeMap::new();
        for topic in &answer.topics {
            for row in &topic.partitions {
                refusal::check(
                    connection.broker(),
                    ApiKey::ListOffsets,
                    row.error_code,
                    None,
                    || name(&topic.name, row.partition_index),
                )?;
                offsets.insert((&topic.name, row.partition_index), row.offset);
            }
        }
        let found = |question: &Question| {
            let offset = offsets.get(&(question.topic.as_str(), question.partition));
            let offset = offset.ok_or_else(|| ClientError::Missing {
                broker: Arc::clone(connection.broker()),
                api: ApiKey::ListOffsets,
                what: name(&question.topic, question.partition).into(),
            })?;
            Ok((*offset >= 0).then_some(*offset))
        };
        questions.iter().map(found).collect()
    }
}

/// Formats a partition's name for errors.
pub(crate) fn name(topic: &str, partition: i32) -> String {
    format!("partition {partition} of topic `{topic}`")
}
