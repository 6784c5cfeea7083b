//! Sends batches: each topic's messages fill one partition's batch, then the next one's; several requests are on their
//! way at once, and answers come in their order.
//!
//! Nothing is sent again: what fails is counted, and the connection is given up. With acknowledgements the producer is
//! idempotent, as the clients that people use are by default, so that the broker does the same work.

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stafett_kafka_client::{Answer, Client, ClientError, Connection, ErrorCode, Topic};
use stafett_kafka_wire::messages::produce::{PartitionProduceData, ProduceResponse, TopicProduceData};
use stafett_kafka_wire::messages::{InitProducerIdRequest, ProduceRequest};
use stafett_model::{BatchBuilder, Codec, ProducerId, Record};
use tokio::time::{Instant, sleep_until};

use super::{ONE_BY_ONE_MAX, failed, look_up};
use crate::drivers::{DriverError, Seat, Sender, Task};
use crate::experiment::{self, Delivery};
use crate::workload::content::Contents;
use crate::workload::recorder::Parcel;
use crate::workload::{Message, Reports};

/// What a record takes besides its value: lengths and deltas, at most.
const RECORD_OVERHEAD: usize = 24;
/// Memory that a sender takes for all its batches beforehand, and for one at least.
const BATCHES_BYTES: usize = 1 << 20;
const BATCH_BYTES_FIRST: usize = 256;
/// How long the broker may take to store a batch.
const STORE_WITHIN_MS: i32 = 30_000;
const TIMESTAMP_NONE: i64 = -1;

/// A connection that sends.
pub struct LeanSender {
    client: Client,
    reports: Reports,
    settings: Settings,
    names: Arc<crate::drivers::Destinations>,
    topics: BTreeMap<u32, Used>,
    /// Batches that wait for others, by topic.
    making: BTreeMap<u32, Making>,
    flights: VecDeque<Flight>,
    connection: Arc<Connection>,
    version: i16,
    identity: Option<(ProducerId, i16)>,
    contents: Contents,
    scratch: Vec<u8>,
    client_number: usize,
}

struct Settings {
    acks: i16,
    codec: Codec,
    batch_bytes: usize,
    linger: Duration,
    in_flight_max: usize,
}

/// A topic that was sent to.
struct Used {
    topic: Topic,
    /// Whose turn it is, by place.
    turn: usize,
    sequences: Vec<i32>,
}

struct Making {
    builder: BatchBuilder,
    parcel: Parcel,
    partition: usize,
    due: Instant,
}

struct Flight {
    parcel: Parcel,
    answer: Answer<ProduceRequest>,
}

impl LeanSender {
    pub async fn open(client: Client, seat: &Seat, reports: Reports) -> Result<Self, DriverError> {
        let role = &seat.role;
        let acks = if role.delivery == Delivery::AtMostOnce {
            0
        } else {
            -1
        };
        // The first topic tells who leads; all are on the same broker, or another connection is taken then.
        let first = seat.destinations.names.first().map_or("", String::as_str);
        let topic = client.topic(first).await.map_err(failed)?;
        let leader = topic.partitions.first().and_then(|partition| partition.leader);
        let connection = client.broker(leader.unwrap_or(-1)).await.map_err(failed)?;
        let version = connection.version::<ProduceRequest>(i16::MAX).map_err(failed)?;
        let identity = if acks == 0 {
            None
        } else {
            Some(identity(&client).await?)
        };
        Ok(Self {
            client,
            reports,
            settings: Settings {
                acks,
                codec: codec(role.compression),
                batch_bytes: usize::try_from(role.batch.0).unwrap_or(usize::MAX),
                linger: role.linger.0,
                in_flight_max: usize::try_from(role.in_flight).unwrap_or(1),
            },
            names: Arc::clone(&seat.destinations),
            topics: BTreeMap::new(),
            making: BTreeMap::new(),
            flights: VecDeque::new(),
            connection,
            version,
            identity,
            contents: seat.contents.clone(),
            scratch: Vec::new(),
            client_number: usize::try_from(seat.client).unwrap_or(0),
        })
    }

    /// Takes messages over. Those that it cannot take any more are reported as failed, so that none is forgotten.
    async fn push_all(&mut self, messages: &[Message]) -> Result<(), DriverError> {
        for (place, message) in messages.iter().enumerate() {
            if let Err(error) = self.push(message).await {
                let mut parcel = Parcel::default();
                messages
                    .iter()
                    .skip(place)
                    .for_each(|message| parcel.push(message));
                self.reports.failed(&parcel, &error.to_string());
                return Err(error);
            }
        }
        if self.settings.linger.is_zero() {
            self.dispatch_due(None).await?;
        }
        Ok(())
    }

    async fn push(&mut self, message: &Message) -> Result<(), DriverError> {
        let needed = usize::try_from(message.size).unwrap_or(0) + RECORD_OVERHEAD;
        let making = self.making.get(&message.topic);
        let is_full =
            making.is_some_and(|making| making.builder.bytes() + needed > self.settings.batch_bytes);
        if is_full {
            self.dispatch(message.topic).await?;
        }
        if !self.making.contains_key(&message.topic) {
            self.start(message.topic).await?;
        }
        self.contents.write(message, &mut self.scratch);
        let Some(making) = self.making.get_mut(&message.topic) else {
            return Err(DriverError::Failed("the topic is not there".to_owned()));
        };
        let record = Record {
            key: None,
            value: Some(&self.scratch),
            headers: &[],
            timestamp: TIMESTAMP_NONE,
        };
        let pushed = making.builder.push(&record);
        pushed.map_err(|error| DriverError::Refused(error.to_string()))?;
        making.parcel.push(message);
        Ok(())
    }

    /// Begins a batch.
    async fn start(&mut self, topic: u32) -> Result<(), DriverError> {
        if !self.topics.contains_key(&topic) {
            // Of many, all are found out at once.
            let is_many = self.names.names.len() > ONE_BY_ONE_MAX;
            for (place, found) in
                look_up(&self.client, &self.names.names, |place| is_many || place == topic).await?
            {
                let used = Used {
                    turn: self.client_number,
                    sequences: vec![0; found.partitions.len()],
                    topic: found,
                };
                self.topics.entry(place).or_insert(used);
            }
        }
        let Some(used) = self.topics.get_mut(&topic) else {
            return Ok(());
        };
        let partition = used.turn.checked_rem(used.sequences.len()).unwrap_or(0);
        used.turn += 1;
        // A batch that fills does not grow on the way; of many topics' batches most do not.
        let room = (BATCHES_BYTES / self.names.names.len().max(1)).max(BATCH_BYTES_FIRST);
        let mut builder =
            BatchBuilder::with_capacity(self.settings.codec, self.settings.batch_bytes.min(room));
        if let (Some((id, epoch)), Some(sequence)) = (self.identity, used.sequences.get(partition)) {
            builder = builder.producer(id, epoch, *sequence);
        }
        let making = Making {
            builder,
            parcel: Parcel::default(),
            partition,
            due: Instant::now() + self.settings.linger,
        };
        self.making.insert(topic, making);
        Ok(())
    }

    /// Sends a topic's batch, after waiting until there is room on the way.
    async fn dispatch(&mut self, topic: u32) -> Result<(), DriverError> {
        while self.flights.len() >= self.settings.in_flight_max {
            self.take_answer().await?;
        }
        let Some(making) = self.making.remove(&topic) else {
            return Ok(());
        };
        let Some(used) = self.topics.get_mut(&topic) else {
            return Ok(());
        };
        let records = i32::try_from(making.builder.len()).unwrap_or(i32::MAX);
        if let Some(sequence) = used.sequences.get_mut(making.partition) {
            *sequence = sequence.wrapping_add(records) & i32::MAX;
        }
        let partition = used
            .topic
            .partitions
            .get(making.partition)
            .map_or(-1, |row| row.index);
        let bytes = making.builder.finish().map_err(|error| {
            self.reports.failed(&making.parcel, &error.to_string());
            DriverError::Refused(error.to_string())
        })?;
        let request = request(&self.settings, &used.topic, partition, bytes);
        if self.settings.acks == 0 {
            let sent = self.connection.send_unanswered(&request, self.version).await;
            return self.told(sent, &making.parcel);
        }
        match self.connection.send(&request, self.version, Duration::ZERO).await {
            Ok(answer) => {
                self.flights.push_back(Flight {
                    parcel: making.parcel,
                    answer,
                });
                Ok(())
            }
            Err(error) => self.told(Err(error), &making.parcel),
        }
    }

    fn told(&self, sent: Result<(), ClientError>, parcel: &Parcel) -> Result<(), DriverError> {
        match sent {
            Ok(()) => {
                self.reports.unanswered(parcel);
                Ok(())
            }
            Err(error) => {
                self.reports.failed(parcel, &error.to_string());
                Err(failed(error))
            }
        }
    }

    /// Sends the batches that have waited long enough, or all.
    async fn dispatch_due(&mut self, now: Option<Instant>) -> Result<(), DriverError> {
        let due: Vec<u32> = self
            .making
            .iter()
            .filter(|(_, making)| now.is_none_or(|now| making.due <= now))
            .map(|(topic, _)| *topic)
            .collect();
        for topic in due {
            self.dispatch(topic).await?;
        }
        Ok(())
    }

    /// Waits for the oldest answer.
    async fn take_answer(&mut self) -> Result<(), DriverError> {
        let answered = front(&mut self.flights).await;
        self.settle(answered)
    }

    fn settle(&mut self, answered: Result<ProduceResponse, ClientError>) -> Result<(), DriverError> {
        let Some(flight) = self.flights.pop_front() else {
            return Ok(());
        };
        let stored = answered.map_err(failed).and_then(|answer| check(&answer));
        match &stored {
            Ok(()) => self.reports.acknowledged(&flight.parcel),
            Err(error) => self.reports.failed(&flight.parcel, &error.to_string()),
        }
        stored
    }

    /// Until an answer came or a batch has waited long enough. Safe to drop while it waits for that.
    async fn happen(&mut self) -> Result<(), DriverError> {
        let has_room = self.flights.len() < self.settings.in_flight_max;
        let due = self.making.values().map(|making| making.due).min();
        let has_waited = tokio::select! {
            biased;
            answered = front(&mut self.flights) => return self.settle(answered),
            now = moment(due), if has_room => now,
        };
        self.dispatch_due(Some(has_waited)).await
    }
}

/// The answer to the oldest request. Safe to drop.
async fn front(flights: &mut VecDeque<Flight>) -> Result<ProduceResponse, ClientError> {
    match flights.front_mut() {
        Some(flight) => (&mut flight.answer).await,
        None => pending().await,
    }
}

async fn moment(due: Option<Instant>) -> Instant {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
    Instant::now()
}

impl Sender for LeanSender {
    fn send<'a>(&'a mut self, messages: &'a [Message]) -> Task<'a, ()> {
        Box::pin(self.push_all(messages))
    }

    fn flush(&mut self) -> Task<'_, ()> {
        Box::pin(self.dispatch_due(None))
    }

    fn tick(&mut self) -> Task<'_, ()> {
        Box::pin(self.happen())
    }

    fn finish(&mut self) -> Task<'_, ()> {
        Box::pin(async {
            self.dispatch_due(None).await?;
            while !self.flights.is_empty() {
                self.take_answer().await?;
            }
            Ok(())
        })
    }
}

impl Drop for LeanSender {
    /// Whatever has no answer by now will have none.
    fn drop(&mut self) {
        let reason = "the connection was given up before the answer came";
        for flight in &self.flights {
            self.reports.failed(&flight.parcel, reason);
        }
        for making in self.making.values() {
            self.reports.failed(&making.parcel, reason);
        }
    }
}

fn request(settings: &Settings, topic: &Topic, partition: i32, batch: Bytes) -> ProduceRequest {
    ProduceRequest {
        transactional_id: None,
        acks: settings.acks,
        timeout_ms: STORE_WITHIN_MS,
        topic_data: vec![TopicProduceData {
            name: topic.name.clone(),
            topic_id: topic.id,
            partition_data: vec![PartitionProduceData {
                index: partition,
                records: Some(batch),
            }],
        }],
    }
}

fn check(answer: &ProduceResponse) -> Result<(), DriverError> {
    for row in answer
        .responses
        .iter()
        .flat_map(|topic| &topic.partition_responses)
    {
        if row.error_code != 0 {
            let name = ErrorCode::try_from(row.error_code).map_or("an unknown error", ErrorCode::name);
            return Err(DriverError::Failed(format!("a batch was not stored: {name}")));
        }
    }
    Ok(())
}

async fn identity(client: &Client) -> Result<(ProducerId, i16), DriverError> {
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: 60_000,
        producer_id: -1,
        producer_epoch: -1,
    };
    let (_, answer) = client.call(&request).await.map_err(failed)?;
    if answer.error_code != 0 {
        let name = ErrorCode::try_from(answer.error_code).map_or("an unknown error", ErrorCode::name);
        return Err(DriverError::Failed(format!("no producer id was given: {name}")));
    }
    Ok((ProducerId(answer.producer_id), answer.producer_epoch))
}

fn codec(codec: experiment::Codec) -> Codec {
    match codec {
        experiment::Codec::None => Codec::None,
        experiment::Codec::Gzip => Codec::Gzip,
        experiment::Codec::Snappy => Codec::Snappy,
        experiment::Codec::Lz4 => Codec::Lz4,
        experiment::Codec::Zstd => Codec::Zstd,
    }
}

impl std::fmt::Debug for LeanSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeanSender").finish_non_exhaustive()
    }
}
