//! Sends batches: each topic's messages fill one partition's batch, then the next one's; several requests are
//! on their way at once, and answers come in their order. A batch that is not full leaves after its linger:
//! due batches are looked for with every hand-over, and while there is none.
//!
//! Nothing is sent again: failed messages are counted, and the connection is given up. With acknowledgements
//! the producer is idempotent, as the clients that people use are by default, so that the broker does the
//! same work.

use std::collections::{BTreeMap, VecDeque};
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stafett_kafka_client::{Answer, Client, ClientError, Connection, ErrorCode, Topic};
use stafett_kafka_wire::messages::produce::{PartitionProduceData, ProduceResponse, TopicProduceData};
use stafett_kafka_wire::messages::{InitProducerIdRequest, ProduceRequest};
use stafett_model::{BatchBuilder, Codec, ProducerId, Record};
use tokio::time::Instant;

use super::{ONE_BY_ONE_MAX, failed, look_up};
use crate::drivers::{DriverError, Seat, Sender, Task, moment};
use crate::experiment::{self, Acks};
use crate::workload::content::Contents;
use crate::workload::recorder::{Handover, Parcel};
use crate::workload::{Message, Reports};

/// Bytes of a record besides its value, at most: lengths and deltas.
const RECORD_OVERHEAD: usize = 24;
/// Memory that a sender takes for all its batches beforehand, and for one at least.
const BATCHES_BYTES: usize = 1 << 20;
const BATCH_BYTES_FIRST: usize = 256;
/// Time that the broker may take to store a batch.
const STORE_WITHIN_MS: i32 = 30_000;
const TIMESTAMP_NONE: i64 = -1;

/// A connection that sends.
pub(super) struct LeanSender {
    client: Client,
    reports: Reports,
    settings: Settings,
    names: Arc<crate::drivers::Destinations>,
    topics: BTreeMap<u32, Used>,
    /// Batches that wait for others, by topic.
    making: BTreeMap<u32, Making>,
    /// Ends of their lingers, the first one first; some of them have left already.
    dues: VecDeque<(Instant, u32)>,
    /// Batch that is handed to the connection.
    leaving: Option<UnsentBatch>,
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
    /// Place of the partition whose batch is next.
    turn: usize,
    sequences: Vec<i32>,
}

struct Making {
    builder: BatchBuilder,
    parcel: Parcel,
    partition: usize,
    due: Instant,
}

/// A batch that is complete, and not with the connection yet.
struct UnsentBatch {
    parcel: Parcel,
    request: ProduceRequest,
}

struct Flight {
    parcel: Parcel,
    answer: Answer<ProduceRequest>,
}

impl LeanSender {
    pub(super) async fn open(client: Client, seat: &Seat, reports: Reports) -> Result<Self, DriverError> {
        let role = &seat.role;
        let acks = match role.acks() {
            Acks::None => 0,
            Acks::Leader => 1,
            Acks::All => -1,
        };
        // The first topic names the leader; all are on the same broker, or another connection is taken then.
        let first = seat.destinations.names.first().map_or("", String::as_str);
        let topic = client.topic(first).await.map_err(failed)?;
        let leader = topic.partitions.first().and_then(|partition| partition.leader);
        let connection = client.broker(leader.unwrap_or(-1)).await.map_err(failed)?;
        let version = connection.version::<ProduceRequest>(i16::MAX).map_err(failed)?;
        let identity = match role.acks() {
            Acks::None | Acks::Leader => None,
            Acks::All => Some(identity(&client).await?),
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
            dues: VecDeque::new(),
            leaving: None,
            flights: VecDeque::new(),
            connection,
            version,
            identity,
            contents: seat.contents.clone(),
            scratch: Vec::new(),
            client_number: usize::try_from(seat.client).unwrap_or(0),
        })
    }

    /// Takes messages over. Those that it cannot take any more are reported as failed, so that none is
    /// forgotten.
    async fn push_all(&mut self, messages: &[Message]) -> Result<(), DriverError> {
        let mut handover = Handover::new(&self.reports, messages);
        while let Some(message) = handover.turn() {
            if let Err(error) = self.push(message).await {
                handover.failed(&error);
                return Err(error);
            }
            handover.taken(1);
        }
        drop(handover);
        // A sender that always has messages does not wait for a tick.
        let due = (!self.settings.linger.is_zero()).then(Instant::now);
        self.dispatch_due(due).await?;
        self.take_what_came().await
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
        let due = Instant::now() + self.settings.linger;
        let making = Making {
            builder,
            parcel: Parcel::default(),
            partition,
            due,
        };
        self.dues.push_back((due, topic));
        self.making.insert(topic, making);
        Ok(())
    }

    /// Sends a topic's batch, after waiting until there is room on the way. Safe to drop.
    async fn dispatch(&mut self, topic: u32) -> Result<(), DriverError> {
        self.leave().await?;
        while self.flights.len() >= self.settings.in_flight_max {
            self.take_answer().await?;
        }
        self.complete(topic)?;
        self.leave().await
    }

    /// Makes a request of a topic's batch.
    fn complete(&mut self, topic: u32) -> Result<(), DriverError> {
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
        self.leaving = Some(UnsentBatch {
            parcel: making.parcel,
            request: request(&self.settings, &used.topic, partition, bytes),
        });
        Ok(())
    }

    /// Hands the complete batch to the connection. Safe to drop: a batch that it has not taken is still
    /// there.
    async fn leave(&mut self) -> Result<(), DriverError> {
        let Some(leaving) = &self.leaving else {
            return Ok(());
        };
        if self.settings.acks == 0 {
            let sent = self.connection.send_unanswered(&leaving.request, self.version);
            let sent = sent.await;
            let leaving = self.leaving.take();
            return self.told(sent, &leaving.map(|leaving| leaving.parcel).unwrap_or_default());
        }
        let sent = self
            .connection
            .send(&leaving.request, self.version, Duration::ZERO);
        let sent = sent.await;
        let leaving = self.leaving.take();
        let parcel = leaving.map(|leaving| leaving.parcel).unwrap_or_default();
        match sent {
            Ok(answer) => {
                self.flights.push_back(Flight { parcel, answer });
                Ok(())
            }
            Err(error) => self.told(Err(error), &parcel),
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

    /// Sends the batches that have waited long enough, or all. Safe to drop.
    async fn dispatch_due(&mut self, now: Option<Instant>) -> Result<(), DriverError> {
        self.leave().await?;
        while let Some((_, topic)) = self
            .next_due()
            .filter(|(due, _)| now.is_none_or(|now| *due <= now))
        {
            self.dispatch(topic).await?;
        }
        Ok(())
    }

    /// The batch that has waited longest: until when it waits, and its topic.
    fn next_due(&mut self) -> Option<(Instant, u32)> {
        loop {
            let (due, topic) = self.dues.front().copied()?;
            if self.making.get(&topic).is_some_and(|making| making.due == due) {
                return Some((due, topic));
            }
            // It was full before.
            self.dues.pop_front();
        }
    }

    /// Takes the answers that are there, so that none looks later than it was.
    async fn take_what_came(&mut self) -> Result<(), DriverError> {
        loop {
            let answered = tokio::select! {
                biased;
                answered = front(&mut self.flights) => answered,
                () = ready(()) => return Ok(()),
            };
            self.settle(answered)?;
        }
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

    /// Until an answer came or a batch has waited long enough. Safe to drop.
    async fn happen(&mut self) -> Result<(), DriverError> {
        if self.leaving.is_some() {
            return self.leave().await;
        }
        let has_room = self.flights.len() < self.settings.in_flight_max;
        let due = self.next_due().map(|(due, _)| due);
        let has_waited = tokio::select! {
            biased;
            answered = front(&mut self.flights) => return self.settle(answered),
            () = moment(due), if has_room => Instant::now(),
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
        let flights = self.flights.iter().map(|flight| &flight.parcel);
        let leaving = self.leaving.iter().map(|leaving| &leaving.parcel);
        let making = self.making.values().map(|making| &making.parcel);
        for parcel in flights.chain(leaving).chain(making) {
            self.reports.given_up(parcel, reason);
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

#[cfg(test)]
mod tests;
