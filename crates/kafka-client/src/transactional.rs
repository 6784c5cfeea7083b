//! Transactions of one's own: batches, and one committed offset, that count together or not at all.
//!
//! ```text
//! open (earlier producers of the id are fenced) ─▶ send … ─▶ commit_offset ─▶ end ─▶ send …
//! ```
//!
//! After an error the transaction has no known outcome: open again, and read the committed offset. Opening
//! ends a transaction that was left, so the offset then tells if the last transaction counts.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stafett_kafka_wire::messages::add_partitions_to_txn::AddPartitionsToTxnTopic;
use stafett_kafka_wire::messages::produce::{PartitionProduceData, TopicProduceData};
use stafett_kafka_wire::messages::txn_offset_commit::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use stafett_kafka_wire::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest, ProduceRequest,
    TxnOffsetCommitRequest,
};
use stafett_kafka_wire::{ApiKey, Request, Str};
use stafett_model::{BatchBuilder, Codec, ProducerId};

use crate::client::Client;
use crate::connection::Connection;
use crate::error::ClientError;
use crate::producer::Acks;
use crate::refusal;
use crate::topic::Topic;

// Later versions end transactions in another way (KIP-890), and name topics by id.
const ADD_PARTITIONS: i16 = 3;
const PRODUCE: i16 = 11;
const COMMIT_OFFSET: i16 = 4;
const END: i16 = 4;
const INIT: i16 = 5;
/// Time that the broker may take to store a batch.
const STORE_WITHIN_MS: i32 = 30_000;

/// A complete batch of a partition.
#[derive(Debug)]
pub struct SealedBatch {
    pub partition: i32,
    pub records: usize,
    pub bytes: Bytes,
}

/// The producer of a transactional id.
#[derive(Debug)]
pub struct Transactional {
    client: Client,
    id: Str,
    coordinator: Arc<Connection>,
    producer: (ProducerId, i16),
    /// Sequence number of the next record, by topic and partition.
    sequences: HashMap<(Str, i32), i32>,
    /// Partitions of the open transaction.
    added: BTreeSet<(Str, i32)>,
    is_open: bool,
}

impl Transactional {
    /// Takes a transactional id over: its earlier producers are refused, and their transaction ends.
    /// `timeout` is the time after which the broker aborts a transaction that was left.
    pub async fn open(client: &Client, id: &str, timeout: Duration) -> Result<Self, ClientError> {
        let id = Str::copy_from(id);
        let coordinator = client.coordinator_of_transactions(&id).await?;
        let request = InitProducerIdRequest {
            transactional_id: Some(id.clone()),
            transaction_timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
            ..InitProducerIdRequest::default()
        };
        let answer = client
            .retrying(|| async {
                let answer = call(&coordinator, &request, INIT).await?;
                let api = ApiKey::InitProducerId;
                refusal::check(coordinator.broker(), api, answer.error_code, None, || about(&id))?;
                Ok(answer)
            })
            .await?;
        Ok(Self {
            client: client.clone(),
            coordinator,
            producer: (ProducerId(answer.producer_id), answer.producer_epoch),
            id,
            sequences: HashMap::new(),
            added: BTreeSet::new(),
            is_open: false,
        })
    }

    /// Returns the epoch under which the id is held.
    pub fn epoch(&self) -> i16 {
        self.producer.1
    }

    /// Begins a batch. It has to be sent before the next one of its partition is begun.
    pub fn builder(&self, topic: &Topic, partition: i32, codec: Codec, bytes: usize) -> BatchBuilder {
        let place = (topic.name.clone(), partition);
        let sequence = self.sequences.get(&place).copied().unwrap_or(0);
        let (id, epoch) = self.producer;
        BatchBuilder::with_capacity(codec, bytes)
            .producer(id, epoch, sequence)
            .transactional()
    }

    /// Sends at most one batch of each partition, as part of the open transaction. They are stored when this
    /// returns, and seen once it is committed.
    pub async fn send(&mut self, topic: &Topic, batches: Vec<SealedBatch>) -> Result<(), ClientError> {
        self.add(topic, &batches).await?;
        let mut answers = Vec::with_capacity(batches.len());
        for batch in batches {
            let row = topic.partitions.iter().find(|row| row.index == batch.partition);
            let connection = self
                .client
                .broker(row.and_then(|row| row.leader).unwrap_or(-1))
                .await?;
            let request = ProduceRequest {
                transactional_id: Some(self.id.clone()),
                acks: Acks::All.number(),
                timeout_ms: STORE_WITHIN_MS,
                topic_data: vec![TopicProduceData {
                    name: topic.name.clone(),
                    topic_id: topic.id,
                    partition_data: vec![PartitionProduceData {
                        index: batch.partition,
                        records: Some(batch.bytes),
                    }],
                }],
            };
            let version = connection.version::<ProduceRequest>(PRODUCE)?;
            let wait = Duration::from_millis(u64::try_from(STORE_WITHIN_MS).unwrap_or(0));
            let answer = connection.send(&request, version, wait).await?;
            answers.push((connection, answer));
            let place = (topic.name.clone(), batch.partition);
            let sequence = self.sequences.entry(place).or_default();
            // Sequence numbers wrap as in the Java client (`DefaultRecordBatch.incrementSequence`).
            *sequence = sequence.wrapping_add(i32::try_from(batch.records).unwrap_or(0)) & i32::MAX;
        }
        for (connection, answer) in answers {
            let answer = answer.await?;
            for row in answer
                .responses
                .iter()
                .flat_map(|topic| &topic.partition_responses)
            {
                let message = row.error_message.as_ref();
                refusal::check(
                    connection.broker(),
                    ApiKey::Produce,
                    row.error_code,
                    message,
                    || crate::offsets::name(&topic.name, row.index),
                )?;
            }
        }
        Ok(())
    }

    /// Adds the partitions of batches to the transaction.
    async fn add(&mut self, topic: &Topic, batches: &[SealedBatch]) -> Result<(), ClientError> {
        let place = |batch: &SealedBatch| (topic.name.clone(), batch.partition);
        let new: Vec<_> = batches
            .iter()
            .map(place)
            .filter(|place| !self.added.contains(place))
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        let (ProducerId(id), epoch) = self.producer;
        let request = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: self.id.clone(),
            v3_and_below_producer_id: id,
            v3_and_below_producer_epoch: epoch,
            v3_and_below_topics: vec![AddPartitionsToTxnTopic {
                name: topic.name.clone(),
                partitions: new.iter().map(|(_, partition)| *partition).collect(),
            }],
            ..AddPartitionsToTxnRequest::default()
        };
        // The transaction before may not be at its end everywhere: the coordinator then says "concurrent".
        self.client
            .retrying(|| async {
                let answer = call(&self.coordinator, &request, ADD_PARTITIONS).await?;
                let rows = answer.results_by_topic_v3_and_below.iter();
                for row in rows.flat_map(|topic| &topic.results_by_partition) {
                    self.check(ApiKey::AddPartitionsToTxn, row.partition_error_code)?;
                }
                Ok(())
            })
            .await?;
        self.is_open = true;
        self.added.extend(new);
        Ok(())
    }

    /// Commits an offset of a group, with a text, as part of the transaction.
    pub async fn commit_offset(
        &mut self,
        group: &str,
        (topic, partition): (&str, i32),
        offset: i64,
        text: &str,
    ) -> Result<(), ClientError> {
        let (ProducerId(id), epoch) = self.producer;
        let group = Str::copy_from(group);
        let add = AddOffsetsToTxnRequest {
            transactional_id: self.id.clone(),
            producer_id: id,
            producer_epoch: epoch,
            group_id: group.clone(),
        };
        self.client
            .retrying(|| async {
                let answer = call(&self.coordinator, &add, i16::MAX).await?;
                self.check(ApiKey::AddOffsetsToTxn, answer.error_code)
            })
            .await?;
        self.is_open = true;
        let row = TxnOffsetCommitRequestPartition {
            partition_index: partition,
            committed_offset: offset,
            committed_leader_epoch: -1,
            committed_metadata: Some(Str::copy_from(text)),
        };
        let commit = TxnOffsetCommitRequest {
            transactional_id: self.id.clone(),
            group_id: group.clone(),
            producer_id: id,
            producer_epoch: epoch,
            topics: vec![TxnOffsetCommitRequestTopic {
                name: Str::copy_from(topic),
                partitions: vec![row],
            }],
            ..TxnOffsetCommitRequest::default()
        };
        self.client
            .retrying(|| async {
                let connection = self.client.coordinator(&group).await?;
                let answer = call(&connection, &commit, COMMIT_OFFSET).await?;
                for row in answer.topics.iter().flat_map(|topic| &topic.partitions) {
                    self.check(ApiKey::TxnOffsetCommit, row.error_code)?;
                }
                Ok(())
            })
            .await
    }

    /// Ends the transaction, if one is open.
    pub async fn end(&mut self, committed: bool) -> Result<(), ClientError> {
        if !std::mem::take(&mut self.is_open) {
            return Ok(());
        }
        self.added.clear();
        let (ProducerId(id), epoch) = self.producer;
        let request = EndTxnRequest {
            transactional_id: self.id.clone(),
            producer_id: id,
            producer_epoch: epoch,
            committed,
        };
        let answer = call(&self.coordinator, &request, END).await?;
        self.check(ApiKey::EndTxn, answer.error_code)
    }

    fn check(&self, api: ApiKey, code: i16) -> Result<(), ClientError> {
        refusal::check(self.coordinator.broker(), api, code, None, || about(&self.id))
    }
}

fn about(id: &Str) -> String {
    format!("transactional id `{id}`")
}

async fn call<R: Request>(
    connection: &Connection,
    request: &R,
    at_most: i16,
) -> Result<R::Response, ClientError> {
    let version = connection.version::<R>(at_most)?;
    connection.send(request, version, Duration::ZERO).await?.await
}
