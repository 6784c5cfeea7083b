//! Producer: batches per partition, in order, several in flight, retried until they are stored.
//!
//! ```text
//! push ──▶ batch of its partition ──full──▶ lane (a task per partition) ──▶ leader
//!                                            seal, compress, send, retry ──▶ `Delivery`
//! ```
//!
//! By default the producer is idempotent: the broker drops duplicates, so retries neither double nor reorder.
//! Memory is bounded: complete batches share [`ProducerSettings::buffer_bytes`], and `push` waits for room.
//! Records are written into their batch at once; nothing is kept per record.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use stafett_kafka_wire::messages::{InitProducerIdRequest, MetadataRequest};
use stafett_kafka_wire::{ApiKey, ErrorCode};
use stafett_model::{BatchBuilder, BatchError, Codec, ProducerId, Record};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::task::TaskTracker;

use crate::client::Client;
use crate::error::ClientError;
use crate::lane::{Batch, Lane};
use crate::refusal;
use crate::topic::Topic;

/// Initial capacity of a batch builder; it grows to the batch size.
const BATCH_BYTES_FIRST: usize = 4096;
/// Estimated bytes of a record or header besides its content.
const RECORD_OVERHEAD: usize = 24;
const BUFFER_UNIT: usize = 1024;

/// Condition under which the broker answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// No answer.
    None,
    /// The leader has the batch.
    Leader,
    /// All in-sync replicas have the batch.
    All,
}

impl Acks {
    pub(crate) fn number(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Leader => 1,
            Self::All => -1,
        }
    }
}

/// Settings of a producer.
#[derive(Debug, Clone)]
pub struct ProducerSettings {
    pub acks: Acks,
    pub codec: Codec,
    /// Maximum bytes of a batch before compression; a larger record gets a batch of its own.
    pub batch_bytes: usize,
    /// Maximum batches of a partition in flight. Set to 1 if not idempotent, else retries would reorder.
    pub in_flight_max: usize,
    /// Only with [`Acks::All`]; ignored otherwise.
    pub idempotent: bool,
    /// Time that a broker may take to store a batch.
    pub timeout: Duration,
    /// Memory for batches that are complete and not yet acknowledged.
    pub buffer_bytes: usize,
}

impl Default for ProducerSettings {
    fn default() -> Self {
        Self {
            acks: Acks::All,
            codec: Codec::None,
            batch_bytes: 256 << 10,
            in_flight_max: 5,
            idempotent: true,
            timeout: Duration::from_secs(30),
            buffer_bytes: 32 << 20,
        }
    }
}

/// Outcome of a batch.
#[derive(Debug)]
pub struct Delivery {
    pub partition: i32,
    /// The marks of its records, as runs `(first, count)`.
    pub marks: Marks,
    pub records: u64,
    /// Bytes as sent.
    pub bytes: usize,
    /// Offset of its first record; -1 if the broker does not tell.
    pub result: Result<i64, ClientError>,
    /// The records that the broker refused, by mark, with its message.
    pub culprits: Vec<(u64, Option<Box<str>>)>,
}

/// Numbers that the caller gave to the records of a batch, in order, as runs.
#[derive(Debug, Default, Clone)]
pub struct Marks(Vec<(u64, u64)>);

impl Marks {
    fn push(&mut self, mark: u64) {
        match self.0.last_mut() {
            Some((first, count)) if *first + *count == mark => *count += 1,
            _ => self.0.push((mark, 1)),
        }
    }

    /// Returns runs of consecutive marks as `(first, count)`.
    pub fn runs(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// Returns the mark of the record at `index`.
    pub fn at(&self, index: usize) -> Option<u64> {
        let mut left = u64::try_from(index).ok()?;
        for (first, count) in &self.0 {
            if left < *count {
                return Some(first + left);
            }
            left -= count;
        }
        None
    }
}

/// Receiver of the outcome of each batch. Called by the sending tasks; it must not block.
pub trait OnDelivery: Send + Sync + 'static {
    fn on_delivery(&self, delivery: Delivery);
}

impl<F: Fn(Delivery) + Send + Sync + 'static> OnDelivery for F {
    fn on_delivery(&self, delivery: Delivery) {
        self(delivery);
    }
}

/// State shared by all lanes.
pub(crate) struct LaneShared {
    pub(crate) client: Client,
    pub(crate) topic: Topic,
    pub(crate) settings: ProducerSettings,
    pub(crate) on_delivery: Box<dyn OnDelivery>,
}

/// Producer for one topic. [`Producer::finish`] waits for the last record; dropping it earlier discards
/// batches that are not complete.
pub struct Producer {
    shared: Arc<LaneShared>,
    identity: Option<(ProducerId, i16)>,
    room: Arc<Semaphore>,
    lanes: Vec<LaneEnd>,
    tasks: TaskTracker,
}

/// The producer's end of one partition's lane.
#[derive(Default)]
struct LaneEnd {
    making: Option<(BatchBuilder, Marks)>,
    next_sequence: i32,
    batches: Option<mpsc::Sender<Batch>>,
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer")
            .field("topic", &self.shared.topic.name)
            .field("settings", &self.shared.settings)
            .finish_non_exhaustive()
    }
}

impl Producer {
    pub async fn open(
        client: Client,
        topic: Topic,
        mut settings: ProducerSettings,
        on_delivery: impl OnDelivery,
    ) -> Result<Self, ClientError> {
        settings.idempotent &= settings.acks == Acks::All;
        if !settings.idempotent {
            settings.in_flight_max = 1;
        }
        let identity = if settings.idempotent {
            Some(client.retrying(|| identity(&client)).await?)
        } else {
            None
        };
        let lanes = topic.partitions.iter().map(|_| LaneEnd::default()).collect();
        let room = settings.buffer_bytes.max(settings.batch_bytes) / BUFFER_UNIT;
        Ok(Self {
            room: Arc::new(Semaphore::new(room.max(1))),
            shared: Arc::new(LaneShared {
                client,
                topic,
                settings,
                on_delivery: Box::new(on_delivery),
            }),
            identity,
            lanes,
            tasks: TaskTracker::new(),
        })
    }

    /// Returns the number of partitions.
    pub fn partitions(&self) -> usize {
        self.lanes.len()
    }

    /// True if a record of `content` bytes (key, value, headers) fits the current batch of a partition.
    pub fn fits(&self, partition: usize, content: usize) -> bool {
        self.lanes
            .get(partition)
            .and_then(|lane| lane.making.as_ref())
            .is_some_and(|(making, _)| {
                making.bytes() + content + RECORD_OVERHEAD <= self.shared.settings.batch_bytes
            })
    }

    /// Adds a record to the batch of the partition at index `partition`. A batch that has no room for it is
    /// sent first. `mark` comes back in the delivery.
    pub async fn push(&mut self, partition: usize, record: &Record<'_>, mark: u64) -> Result<(), BatchError> {
        let content = content(record);
        let has_batch = self
            .lanes
            .get(partition)
            .is_some_and(|lane| lane.making.is_some());
        if has_batch && !self.fits(partition, content) {
            self.dispatch(partition).await;
        }
        let Some(lane) = self.lanes.get_mut(partition) else {
            return Ok(());
        };
        let (making, marks) = lane.making.get_or_insert_with(|| {
            let batch_bytes = self.shared.settings.batch_bytes;
            let builder = BatchBuilder::with_capacity(
                self.shared.settings.codec,
                content.max(BATCH_BYTES_FIRST).min(batch_bytes),
            );
            let builder = match self.identity {
                Some((id, epoch)) => builder.producer(id, epoch, lane.next_sequence),
                None => builder,
            };
            (builder, Marks::default())
        });
        making.push(record)?;
        marks.push(mark);
        // Sequence numbers wrap as in the Java client (`DefaultRecordBatch.incrementSequence`).
        lane.next_sequence = if lane.next_sequence == i32::MAX {
            0
        } else {
            lane.next_sequence + 1
        };
        Ok(())
    }

    /// Sends all incomplete batches.
    pub async fn flush(&mut self) {
        for partition in 0..self.lanes.len() {
            self.dispatch(partition).await;
        }
    }

    /// Sends everything and waits until each batch is delivered or has failed.
    pub async fn finish(mut self) {
        self.flush().await;
        self.lanes.clear();
        self.tasks.close();
        self.tasks.wait().await;
        if self.shared.settings.acks == Acks::None {
            self.await_unanswered().await;
        }
    }

    /// Waits until the leaders have read batches without acks. These have no answer; the answer to a request
    /// behind them proves that they were read.
    async fn await_unanswered(&self) {
        let partitions = &self.shared.topic.partitions;
        let leaders: BTreeSet<i32> = partitions.iter().filter_map(|row| row.leader).collect();
        let request = MetadataRequest {
            topics: Some(Vec::new()),
            ..MetadataRequest::default()
        };
        for leader in leaders {
            if let Ok(connection) = self.shared.client.broker(leader).await {
                // If this fails, batches may be lost: acks 0 allows that.
                let _ = connection.call(&request).await;
            }
        }
    }

    async fn dispatch(&mut self, partition: usize) {
        let Some(lane) = self.lanes.get_mut(partition) else {
            return;
        };
        let Some((builder, marks)) = lane.making.take() else {
            return;
        };
        if builder.is_empty() {
            return;
        }
        let most = self
            .shared
            .settings
            .buffer_bytes
            .max(self.shared.settings.batch_bytes)
            / BUFFER_UNIT;
        let units = (builder.bytes() / BUFFER_UNIT).clamp(1, most.max(1));
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(units).await else {
            return;
        };
        let sender = lane.batches.get_or_insert_with(|| {
            let (sender, receiver) = mpsc::channel(2);
            let lane = Lane::new(Arc::clone(&self.shared), partition);
            self.tasks.spawn(lane.run(receiver));
            sender
        });
        // A lane takes batches until its sender is dropped.
        let _ = sender.send(Batch { builder, marks, room }).await;
    }
}

fn content(record: &Record<'_>) -> usize {
    let headers: usize = record
        .headers
        .iter()
        .map(|(key, value)| key.len() + value.map_or(0, <[u8]>::len) + RECORD_OVERHEAD)
        .sum();
    record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len) + headers
}

/// Requests a new producer id and epoch.
pub(crate) async fn identity(client: &Client) -> Result<(ProducerId, i16), ClientError> {
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: i32::MAX,
        ..InitProducerIdRequest::default()
    };
    let (connection, answer) = client.call(&request).await?;
    refusal::check(
        connection.broker(),
        ApiKey::InitProducerId,
        answer.error_code,
        None,
        || "an id for the producer".to_owned(),
    )?;
    debug_assert_eq!(answer.error_code, ErrorCode::None.code());
    Ok((ProducerId(answer.producer_id), answer.producer_epoch))
}
