//! Consumer in a group. A thread of its own polls librdkafka, so it takes part in the group even while its
//! caller does not wait for messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::config::FromClientConfigAndContext as _;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};
use stafett_lab::drivers::{DriverError, Reads, Receiver, Seat};
use stafett_lab::workload::Received;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::ears::Ears;
use super::{config, failed};

/// Maximum time until the group has assigned partitions to the member.
const ASSIGNED_WITHIN: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(100);
/// Maximum messages per batch.
const BATCH_MESSAGES: usize = 1000;
/// Maximum batches that wait for the caller.
const BATCHES_WAITING: usize = 4;

type Consumer = BaseConsumer<Ears>;

/// A receiving client.
pub(super) struct KafkaReceiver {
    consumer: Arc<Consumer>,
    batches: mpsc::Receiver<Result<Batch, DriverError>>,
    stop: Arc<AtomicBool>,
    /// Positions of the caller.
    positions: Vec<Position>,
}

#[derive(Default)]
struct Batch {
    messages: Vec<Received>,
    positions: Vec<Position>,
}

/// Offset of the next message in a partition.
struct Position {
    topic: String,
    partition: i32,
    offset: i64,
}

impl KafkaReceiver {
    pub(super) async fn open(server: &str, seat: &Seat) -> Result<Self, DriverError> {
        let config = config::of_receiver(server, seat);
        let consumer = Consumer::from_config_and_context(&config, Ears::default());
        let consumer = Arc::new(consumer.map_err(|error| failed(&error))?);
        let topics: Vec<&str> = match seat.reads {
            Reads::One(place) => {
                let place = usize::try_from(place).unwrap_or(0);
                let names = &seat.destinations.names;
                let one = names.get(place.checked_rem(names.len()).unwrap_or(0));
                one.map(String::as_str).into_iter().collect()
            }
            Reads::All | Reads::Share => seat.destinations.names.iter().map(String::as_str).collect(),
        };
        consumer.subscribe(&topics).map_err(|error| failed(&error))?;
        let (give, batches) = mpsc::channel(BATCHES_WAITING);
        let receiver = Self {
            consumer: Arc::clone(&consumer),
            batches,
            stop: Arc::default(),
            positions: Vec::new(),
        };
        let reading = Reading {
            consumer,
            give,
            stop: Arc::clone(&receiver.stop),
            keeps_positions: seat.role.commit.is_some(),
        };
        let named = std::thread::Builder::new().name("lab-poll".to_owned());
        let spawned = named.spawn(move || reading.run());
        spawned.map_err(|error| DriverError::Failed(format!("no thread for a consumer: {error}")))?;
        let assigned = receiver.consumer.context().assigned.notified();
        timeout(ASSIGNED_WITHIN, assigned).await.map_err(|_| {
            let seconds = ASSIGNED_WITHIN.as_secs();
            DriverError::Failed(format!("the group gave its member nothing within {seconds} s"))
        })?;
        Ok(receiver)
    }

    /// Commits the caller's positions without waiting for the answer, as a user's loop does.
    fn commit(&mut self) -> Result<(), DriverError> {
        if self.positions.is_empty() {
            return Ok(());
        }
        let mut list = TopicPartitionList::with_capacity(self.positions.len());
        for position in self.positions.drain(..) {
            list.add_partition_offset(
                &position.topic,
                position.partition,
                Offset::Offset(position.offset),
            )
            .map_err(|error| failed(&error))?;
        }
        self.consumer
            .commit(&list, CommitMode::Async)
            .map_err(|error| failed(&error))
    }
}

/// Sets the next offset of a partition.
fn advance(positions: &mut Vec<Position>, topic: &str, partition: i32, offset: i64) {
    // The last one is the most likely.
    let mut known = positions.iter_mut().rev();
    let found = known.find(|known| known.partition == partition && known.topic == topic);
    if let Some(known) = found {
        known.offset = offset;
    } else {
        positions.push(Position {
            topic: topic.to_owned(),
            partition,
            offset,
        });
    }
}

/// State of the polling thread.
struct Reading {
    consumer: Arc<Consumer>,
    give: mpsc::Sender<Result<Batch, DriverError>>,
    stop: Arc<AtomicBool>,
    keeps_positions: bool,
}

impl Reading {
    /// Polls until the receiver is dropped or a fatal error occurs.
    fn run(self) {
        while !self.stop.load(Ordering::Relaxed) {
            let read = self.batch();
            let is_last = read.is_err();
            let is_empty = read.as_ref().is_ok_and(|batch| batch.messages.is_empty());
            if !is_empty && (self.give.blocking_send(read).is_err() || is_last) {
                return;
            }
        }
    }

    /// Returns the available messages; waits up to [`POLL`] for the first one.
    fn batch(&self) -> Result<Batch, DriverError> {
        let mut batch = Batch::default();
        let mut patience = POLL;
        while batch.messages.len() < BATCH_MESSAGES {
            match self.consumer.poll(patience) {
                None => break,
                Some(Ok(message)) => self.take(&message, &mut batch),
                Some(Err(error)) if is_final(&error) => return Err(failed(&error)),
                // librdkafka recovers by itself: it reconnects, rejoins, retries.
                Some(Err(_)) => {}
            }
            patience = Duration::ZERO;
        }
        Ok(batch)
    }

    fn take(&self, message: &BorrowedMessage<'_>, batch: &mut Batch) {
        batch.messages.extend(message.payload().and_then(Received::read));
        if self.keeps_positions {
            advance(
                &mut batch.positions,
                message.topic(),
                message.partition(),
                message.offset() + 1,
            );
        }
    }
}

fn is_final(error: &KafkaError) -> bool {
    let is_refusal = error.rdkafka_error_code().is_some_and(|code| {
        matches!(
            code,
            RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::GroupAuthorizationFailed
        )
    });
    is_refusal || matches!(error, KafkaError::MessageConsumptionFatal(_))
}

#[async_trait]
impl Receiver for KafkaReceiver {
    async fn receive(&mut self, into: &mut Vec<Received>) -> Result<(), DriverError> {
        let Some(batch) = self.batches.recv().await else {
            return Err(DriverError::Failed("the consumer has ended".to_owned()));
        };
        let batch = batch?;
        into.extend_from_slice(&batch.messages);
        for position in batch.positions {
            advance(
                &mut self.positions,
                &position.topic,
                position.partition,
                position.offset,
            );
        }
        Ok(())
    }

    async fn settle(&mut self) -> Result<(), DriverError> {
        self.commit()
    }
}

impl Drop for KafkaReceiver {
    /// Stops the thread, which leaves the group.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.batches.close();
    }
}
