//! One partition of a producer: its batches in order, several of them in flight, and retries.
//!
//! Answers arrive in the order of the requests, so waiting for the oldest batch is enough. If it fails with a
//! retriable error, the lane takes no new batches, looks up the leader, and resends all batches in flight,
//! one by one and in order; the broker recognises duplicates. After a lasting error of an idempotent
//! producer, later batches would leave a gap in the sequence, so they fail too.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use stafett_kafka_wire::messages::ProduceRequest;
use stafett_kafka_wire::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceResponse, TopicProduceData,
};
use stafett_kafka_wire::{ApiKey, ErrorCode, Uuid};
use stafett_model::BatchBuilder;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::client::Backoff;
use crate::connection::Answer;
use crate::error::ClientError;
use crate::offsets::name;
use crate::producer::{Acks, Delivery, LaneShared, Marks};
use crate::refusal;

/// A complete batch that is not sealed.
pub(crate) struct Batch {
    pub(crate) builder: BatchBuilder,
    pub(crate) marks: Marks,
    /// Its share of the producer's buffer.
    pub(crate) room: OwnedSemaphorePermit,
}

/// A batch as bytes, kept until its delivery is reported.
struct Sealed {
    bytes: Bytes,
    records: u64,
    marks: Marks,
    _room: OwnedSemaphorePermit,
}

struct Flight {
    sealed: Sealed,
    answer: Result<Option<Answer<ProduceRequest>>, ClientError>,
}

/// Error of a batch that was not stored, with the refused records.
type Failed = (ClientError, Vec<(i32, Option<Box<str>>)>);

pub(crate) struct Lane {
    shared: Arc<LaneShared>,
    partition: i32,
    leader: Option<i32>,
    topic_id: Uuid,
    /// Broker of the last request.
    broker: Arc<str>,
    /// True after a failure that leaves a gap in the sequence.
    broken: bool,
}

impl Lane {
    pub(crate) fn new(shared: Arc<LaneShared>, place: usize) -> Self {
        let row = shared.topic.partitions.get(place).copied();
        Self {
            partition: row.map_or(-1, |row| row.index),
            leader: row.and_then(|row| row.leader),
            topic_id: shared.topic.id,
            broker: "the leader".into(),
            shared,
            broken: false,
        }
    }

    /// Sends batches until the channel is closed.
    pub(crate) async fn run(mut self, mut batches: mpsc::Receiver<Batch>) {
        let window = self.shared.settings.in_flight_max.max(1);
        let mut flights: VecDeque<Flight> = VecDeque::new();
        let mut open = true;
        while open || !flights.is_empty() {
            tokio::select! {
                biased;
                next = batches.recv(), if open && flights.len() < window => match next {
                    None => open = false,
                    Some(batch) => self.start(batch, &mut flights).await,
                },
                result = oldest(&mut flights), if !flights.is_empty() => {
                    self.settle(result, &mut flights).await;
                }
            }
        }
    }

    async fn start(&mut self, batch: Batch, flights: &mut VecDeque<Flight>) {
        let records = u64::try_from(batch.builder.len()).unwrap_or(0);
        let (marks, room) = (batch.marks, batch.room);
        let sealed = |bytes| Sealed {
            bytes,
            records,
            marks,
            _room: room,
        };
        match batch.builder.finish() {
            Err(error) => {
                let about = name(&self.shared.topic.name, self.partition).into();
                self.broken = self.shared.settings.idempotent;
                self.deliver(
                    sealed(Bytes::new()),
                    Err((ClientError::Batch { about, error }, Vec::new())),
                );
            }
            Ok(_) if self.broken => self.deliver_behind(sealed(Bytes::new())),
            Ok(bytes) => {
                let sealed = sealed(bytes);
                let answer = self.send(&sealed.bytes).await;
                flights.push_back(Flight { sealed, answer });
            }
        }
    }

    async fn settle(
        &mut self,
        result: Result<Option<ProduceResponse>, ClientError>,
        flights: &mut VecDeque<Flight>,
    ) {
        let Some(flight) = flights.pop_front() else { return };
        match self.outcome(result) {
            Ok(offset) => self.deliver(flight.sealed, Ok(offset)),
            Err((error, _)) if self.may_pass(&error) => {
                let mut again: VecDeque<Sealed> = flights.drain(..).map(|flight| flight.sealed).collect();
                again.push_front(flight.sealed);
                for sealed in again {
                    self.insist(sealed).await;
                }
            }
            Err(failed) => self.fail(flight.sealed, failed),
        }
    }

    /// Resends one batch until it is stored or fails with a lasting error.
    async fn insist(&mut self, sealed: Sealed) {
        if self.broken {
            return self.deliver_behind(sealed);
        }
        let mut backoff = Backoff::new(self.shared.client.options().retry_for);
        loop {
            self.find_leader().await;
            let result = match self.send(&sealed.bytes).await {
                Ok(Some(answer)) => answer.await.map(Some),
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            };
            match self.outcome(result) {
                Ok(offset) => return self.deliver(sealed, Ok(offset)),
                Err((error, _)) if self.may_pass(&error) && backoff.wait().await => {}
                Err(failed) => return self.fail(sealed, failed),
            }
        }
    }

    /// True if a retry may help. A batch behind a failed one is out of sequence until that one is resent.
    fn may_pass(&self, error: &ClientError) -> bool {
        error.is_retriable() && error.code() != Some(ErrorCode::UnknownTopicOrPartition)
            || self.shared.settings.idempotent && error.code() == Some(ErrorCode::OutOfOrderSequenceNumber)
    }

    async fn find_leader(&mut self) {
        // If this fails, sending fails too and reports the error.
        if let Ok(topic) = self.shared.client.topic(&self.shared.topic.name).await {
            self.topic_id = topic.id;
            self.leader = topic
                .partitions
                .iter()
                .find(|row| row.index == self.partition)
                .and_then(|row| row.leader);
        }
    }

    async fn send(&mut self, bytes: &Bytes) -> Result<Option<Answer<ProduceRequest>>, ClientError> {
        let shared = Arc::clone(&self.shared);
        let leader = self.leader.ok_or_else(|| ClientError::NoLeader {
            about: name(&shared.topic.name, self.partition).into(),
        })?;
        let connection = shared.client.broker(leader).await?;
        self.broker = Arc::clone(connection.broker());
        let version = connection.version::<ProduceRequest>(i16::MAX)?;
        let request = ProduceRequest {
            transactional_id: None,
            acks: shared.settings.acks.number(),
            timeout_ms: i32::try_from(shared.settings.timeout.as_millis()).unwrap_or(i32::MAX),
            topic_data: vec![TopicProduceData {
                name: shared.topic.name.clone(),
                topic_id: self.topic_id,
                partition_data: vec![PartitionProduceData {
                    index: self.partition,
                    records: Some(bytes.clone()),
                }],
            }],
        };
        if shared.settings.acks == Acks::None {
            connection.send_unanswered(&request, version).await?;
            return Ok(None);
        }
        connection
            .send(&request, version, shared.settings.timeout)
            .await
            .map(Some)
    }

    /// Returns the offset, or the reason why the batch is not stored.
    fn outcome(&self, result: Result<Option<ProduceResponse>, ClientError>) -> Result<i64, Failed> {
        let Some(answer) = result.map_err(|error| (error, Vec::new()))? else {
            return Ok(-1);
        };
        let row: Option<PartitionProduceResponse> = answer
            .responses
            .into_iter()
            .flat_map(|topic| topic.partition_responses)
            .find(|row| row.index == self.partition);
        let Some(row) = row else {
            let what = name(&self.shared.topic.name, self.partition).into();
            let api = ApiKey::Produce;
            return Err((
                ClientError::Missing {
                    broker: Arc::clone(&self.broker),
                    api,
                    what,
                },
                Vec::new(),
            ));
        };
        if row.error_code == ErrorCode::DuplicateSequenceNumber.code() {
            return Ok(row.base_offset);
        }
        let message = row.error_message.as_ref();
        let checked = refusal::check(&self.broker, ApiKey::Produce, row.error_code, message, || {
            name(&self.shared.topic.name, self.partition)
        });
        checked.map(|()| row.base_offset).map_err(|error| {
            let culprit = |record: stafett_kafka_wire::messages::produce::BatchIndexAndErrorMessage| {
                let message = record.batch_index_error_message;
                (record.batch_index, message.map(|text| Box::from(text.as_str())))
            };
            (error, row.record_errors.into_iter().map(culprit).collect())
        })
    }

    fn fail(&mut self, sealed: Sealed, failed: Failed) {
        self.broken = self.shared.settings.idempotent;
        self.deliver(sealed, Err(failed));
    }

    fn deliver_behind(&self, sealed: Sealed) {
        self.deliver(sealed, Err((ClientError::Behind, Vec::new())));
    }

    fn deliver(&self, sealed: Sealed, result: Result<i64, Failed>) {
        let (result, blamed) = match result {
            Ok(offset) => (Ok(offset), Vec::new()),
            Err((error, blamed)) => (Err(error), blamed),
        };
        let culprits = blamed
            .into_iter()
            .filter_map(|(index, message)| Some((sealed.marks.at(usize::try_from(index).ok()?)?, message)))
            .collect();
        self.shared.on_delivery.on_delivery(Delivery {
            partition: self.partition,
            bytes: sealed.bytes.len(),
            records: sealed.records,
            marks: sealed.marks,
            result,
            culprits,
        });
    }
}

/// Waits for the answer to the oldest batch. Safe to cancel.
async fn oldest(flights: &mut VecDeque<Flight>) -> Result<Option<ProduceResponse>, ClientError> {
    match flights.front_mut().map(|flight| &mut flight.answer) {
        None | Some(Ok(None)) => Ok(None),
        Some(Ok(Some(answer))) => answer.await.map(Some),
        Some(Err(error)) => Err(error.clone()),
    }
}
