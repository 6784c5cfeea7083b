//! Metadata of topics: partitions and their leaders.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use stafett_kafka_wire::messages::metadata::{MetadataRequestTopic, MetadataResponseTopic};
use stafett_kafka_wire::messages::{MetadataRequest, MetadataResponse};
use stafett_kafka_wire::{ApiKey, ErrorCode, Str, Uuid};

use crate::client::{Backoff, Client};
use crate::error::ClientError;
use crate::refusal;

/// Of more names than this all topics are looked up at once.
pub(crate) const ONE_BY_ONE_MAX: usize = 64;

/// A topic as a broker described it.
#[derive(Debug, Clone)]
pub struct Topic {
    pub name: Str,
    pub id: Uuid,
    /// True for the broker's internal topics.
    pub is_internal: bool,
    /// Sorted by number.
    pub partitions: Vec<Partition>,
}

/// A partition and its leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    pub index: i32,
    /// Id of the leading broker, if there is one.
    pub leader: Option<i32>,
}

impl Client {
    /// Returns all topics, sorted by name.
    pub async fn topics(&self) -> Result<Vec<Topic>, ClientError> {
        let (_, answer) = self.metadata(None).await?;
        let mut topics: Vec<_> = answer.topics.into_iter().map(Topic::from).collect();
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(topics)
    }

    /// Looks up one topic. From Metadata version 4 on this never creates it. Fails at once if it does not
    /// exist; waits while some of its partitions have no leader.
    pub async fn topic(&self, name: &str) -> Result<Topic, ClientError> {
        // A plain loop: tasks await this, and futures of async closures are not known to be `Send`.
        let mut backoff = Backoff::new(self.options().retry_for);
        loop {
            let found = self.find_topic(name).await.and_then(|topic| {
                if topic.partitions.iter().all(|row| row.leader.is_some()) {
                    return Ok(topic);
                }
                let about = format!("a partition of topic `{name}`").into();
                Err(ClientError::NoLeader { about })
            });
            let error = match found {
                Ok(topic) => return Ok(topic),
                Err(error) => error,
            };
            let is_unknown = error.code() == Some(ErrorCode::UnknownTopicOrPartition);
            if is_unknown || !error.is_retriable() || !backoff.wait().await {
                return Err(error);
            }
        }
    }

    /// Looks up those of `names` whose index `is_wanted`: one by one, or out of all topics where there are
    /// more than 64 names. Returns them with their indexes; of many, missing ones are left out.
    pub async fn look_up(
        &self,
        names: &[String],
        is_wanted: impl Fn(u32) -> bool,
    ) -> Result<Vec<(u32, Topic)>, ClientError> {
        let places = names.iter().zip(0..).filter(|(_, place)| is_wanted(*place));
        let mut found = Vec::new();
        if names.len() <= ONE_BY_ONE_MAX {
            for (name, place) in places {
                found.push((place, self.topic(name).await?));
            }
            return Ok(found);
        }
        let wanted: HashMap<&str, u32> = places.map(|(name, place)| (name.as_str(), place)).collect();
        for topic in self.topics().await? {
            if let Some(place) = wanted.get(topic.name.as_str()) {
                found.push((*place, topic));
            }
        }
        found.sort_unstable_by_key(|(place, _)| *place);
        Ok(found)
    }

    async fn find_topic(&self, name: &str) -> Result<Topic, ClientError> {
        let (broker, answer) = self.metadata(Some(&[name])).await?;
        let topic = answer.topics.into_iter().next();
        let topic = topic.ok_or_else(|| ClientError::Missing {
            broker: Arc::clone(&broker),
            api: ApiKey::Metadata,
            what: format!("topic `{name}`").into(),
        })?;
        refusal::check(&broker, ApiKey::Metadata, topic.error_code, None, || {
            format!("topic `{name}`")
        })?;
        Ok(topic.into())
    }

    async fn metadata(&self, names: Option<&[&str]>) -> Result<(Arc<str>, MetadataResponse), ClientError> {
        let connection = self.any().await?;
        // Version 1 is the first in which an empty list means no topics.
        let version = connection.version::<MetadataRequest>(i16::MAX)?.max(1);
        let topic = |name: &&str| MetadataRequestTopic {
            topic_id: Uuid::ZERO,
            name: Some(Str::copy_from(name)),
        };
        let request = MetadataRequest {
            topics: names.map(|names| names.iter().map(topic).collect()),
            allow_auto_topic_creation: version < 4,
            ..MetadataRequest::default()
        };
        let answer = connection.send(&request, version, Duration::ZERO).await?.await?;
        self.learn(&answer.brokers);
        Ok((Arc::clone(connection.broker()), answer))
    }
}

impl From<MetadataResponseTopic> for Topic {
    fn from(topic: MetadataResponseTopic) -> Self {
        let mut partitions: Vec<_> = topic
            .partitions
            .iter()
            .map(|row| Partition {
                index: row.partition_index,
                leader: (row.leader_id >= 0).then_some(row.leader_id),
            })
            .collect();
        partitions.sort_by_key(|partition| partition.index);
        Self {
            name: topic.name.unwrap_or_default().detach(),
            id: topic.topic_id,
            is_internal: topic.is_internal,
            partitions,
        }
    }
}
