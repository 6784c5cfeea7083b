//! Raw producer, for load generators: each batch is built and written once, and nothing is sent again.
//!
//! Each topic's records fill one partition's batch, then the next one's; several requests are on their way at
//! once, and answers come in their order. A batch that is not full leaves after its linger: due batches are
//! looked for with [`RawProducer::send_due`], and while there is nothing to send ([`RawProducer::tick`]).
//!
//! A batch carries a note of the caller's own about its records. Every note comes back once, with its
//! outcome; notes of batches that have no outcome when the producer is dropped are given up. After an error
//! the producer is of no use any more.

use std::collections::{BTreeMap, VecDeque};
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stafett_kafka_wire::ErrorCode;
use stafett_kafka_wire::messages::ProduceRequest;
use stafett_kafka_wire::messages::produce::{PartitionProduceData, ProduceResponse, TopicProduceData};
use stafett_model::{BatchBuilder, BatchError, Codec, ProducerId, Record};
use tokio::time::{Instant, sleep_until};

use crate::client::Client;
use crate::connection::{Answer, Connection};
use crate::error::ClientError;
use crate::producer::{Acks, identity};
use crate::topic::{ONE_BY_ONE_MAX, Topic};

/// Bytes of a record besides its value, at most: lengths and deltas.
const RECORD_OVERHEAD: usize = 24;
/// Memory that a producer takes for all its batches beforehand, and for one at least.
const BATCHES_BYTES: usize = 1 << 20;
const BATCH_BYTES_FIRST: usize = 256;
/// Time that the broker may take to store a batch.
const STORE_WITHIN_MS: i32 = 30_000;
const TIMESTAMP_NONE: i64 = -1;

/// Settings of a raw producer. With [`Acks::All`] it is idempotent, as clients are by default.
#[derive(Debug, Clone)]
pub struct RawSettings {
    pub acks: Acks,
    pub codec: Codec,
    /// Maximum bytes of a batch before compression; a larger record gets a batch of its own.
    pub batch_bytes: usize,
    /// Time that a batch waits for more records.
    pub linger: Duration,
    /// Maximum requests without an answer.
    pub in_flight_max: usize,
    /// Index of the partition of each topic that is filled first, modulo their number.
    pub first_partition: usize,
}

/// A record's key, and its partition, modulo their number.
#[derive(Debug, Clone, Copy)]
pub struct RawPlace<'a> {
    pub key: &'a [u8],
    pub partition: usize,
}

/// Outcome of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RawOutcome {
    /// The broker has it, as the acks say.
    Stored,
    /// It is written; no answer is expected.
    Written,
    /// It was refused, or cannot have been stored.
    Failed(String),
    /// It had no answer when the producer was dropped.
    GivenUp,
}

/// Reason why nothing more is sent.
#[derive(Debug, thiserror::Error)]
pub enum RawError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error("a batch was not stored: {0}")]
    NotStored(&'static str),
    #[error("the topic is not there")]
    NoTopic,
}

type OnOutcome<N> = Box<dyn Fn(&N, RawOutcome) + Send>;

/// Producer for several topics over one connection. `N` is the note that goes with a batch.
pub struct RawProducer<N> {
    client: Client,
    settings: RawSettings,
    names: Vec<String>,
    topics: BTreeMap<u32, Used>,
    /// Batches that wait for more records, by topic.
    making: BTreeMap<u32, Making<N>>,
    /// Ends of their lingers, the first one first; some of them have left already.
    dues: VecDeque<(Instant, u32)>,
    /// Batch that is handed to the connection.
    leaving: Option<Unsent<N>>,
    flights: VecDeque<Flight<N>>,
    connection: Arc<Connection>,
    version: i16,
    identity: Option<(ProducerId, i16)>,
    on_outcome: OnOutcome<N>,
}

/// A topic that was sent to.
struct Used {
    topic: Topic,
    /// Index of the partition whose batch is next.
    turn: usize,
    sequences: Vec<i32>,
}

struct Making<N> {
    builder: BatchBuilder,
    note: N,
    partition: usize,
    due: Instant,
}

/// A batch that is complete, and not with the connection yet.
struct Unsent<N> {
    note: N,
    request: ProduceRequest,
}

struct Flight<N> {
    note: N,
    answer: Answer<ProduceRequest>,
}

impl<N> std::fmt::Debug for RawProducer<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawProducer")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl<N: Default> RawProducer<N> {
    /// Opens a producer for the topics of these names, which are called by their index. The leader of the
    /// first one's first partition gets all batches.
    pub async fn open(
        client: Client,
        names: Vec<String>,
        settings: RawSettings,
        on_outcome: impl Fn(&N, RawOutcome) + Send + 'static,
    ) -> Result<Self, ClientError> {
        let topic = client.topic(names.first().map_or("", String::as_str)).await?;
        let leader = topic.partitions.first().and_then(|partition| partition.leader);
        let connection = client.broker(leader.unwrap_or(-1)).await?;
        let version = connection.version::<ProduceRequest>(i16::MAX)?;
        let identity = match settings.acks {
            Acks::None | Acks::Leader => None,
            Acks::All => Some(identity(&client).await?),
        };
        Ok(Self {
            client,
            settings,
            names,
            topics: BTreeMap::new(),
            making: BTreeMap::new(),
            dues: VecDeque::new(),
            leaving: None,
            flights: VecDeque::new(),
            connection,
            version,
            identity,
            on_outcome: Box::new(on_outcome),
        })
    }

    /// Adds a record to its topic's batch, after a full one has been sent. Returns the batch's note, which
    /// the caller changes for the record. Safe to drop: then the record is not taken.
    pub async fn push(&mut self, topic: u32, value: &[u8]) -> Result<&mut N, RawError> {
        self.push_to(topic, None, value).await
    }

    /// Adds a record as [`Self::push`] does, if `place` is given under its key to its partition: another
    /// partition's batch is sent before.
    pub async fn push_to(
        &mut self,
        topic: u32,
        place: Option<RawPlace<'_>>,
        value: &[u8],
    ) -> Result<&mut N, RawError> {
        let key = place.map(|place| place.key);
        let wanted = place.map(|place| place.partition);
        let needed = value.len() + key.map_or(0, <[u8]>::len) + RECORD_OVERHEAD;
        let count = self.topics.get(&topic).map_or(0, |used| used.sequences.len());
        let wanted_here = wanted.and_then(|wanted| wanted.checked_rem(count));
        let is_over = self.making.get(&topic).is_some_and(|making| {
            making.builder.bytes() + needed > self.settings.batch_bytes
                || wanted_here.is_some_and(|wanted| wanted != making.partition)
        });
        if is_over {
            self.dispatch(topic).await?;
        }
        if !self.making.contains_key(&topic) {
            self.start(topic, wanted).await?;
        }
        let making = self.making.get_mut(&topic).ok_or(RawError::NoTopic)?;
        making.builder.push(&Record {
            key,
            value: Some(value),
            headers: &[],
            timestamp: TIMESTAMP_NONE,
        })?;
        Ok(&mut making.note)
    }

    /// Begins a batch, of the partition whose turn it is or of the one that is wanted.
    async fn start(&mut self, topic: u32, wanted: Option<usize>) -> Result<(), RawError> {
        if !self.topics.contains_key(&topic) {
            // Of many, all are found out at once.
            let is_many = self.names.len() > ONE_BY_ONE_MAX;
            let found = self
                .client
                .look_up(&self.names, |place| is_many || place == topic);
            for (place, found) in found.await? {
                let used = Used {
                    turn: self.settings.first_partition,
                    sequences: vec![0; found.partitions.len()],
                    topic: found,
                };
                self.topics.entry(place).or_insert(used);
            }
        }
        let Some(used) = self.topics.get_mut(&topic) else {
            return Ok(());
        };
        let partition = wanted.unwrap_or(used.turn);
        let partition = partition.checked_rem(used.sequences.len()).unwrap_or(0);
        used.turn += 1;
        // A batch that fills does not grow on the way; of many topics' batches most do not.
        let room = (BATCHES_BYTES / self.names.len().max(1)).max(BATCH_BYTES_FIRST);
        let mut builder =
            BatchBuilder::with_capacity(self.settings.codec, self.settings.batch_bytes.min(room));
        if let (Some((id, epoch)), Some(sequence)) = (self.identity, used.sequences.get(partition)) {
            builder = builder.producer(id, epoch, *sequence);
        }
        let due = Instant::now() + self.settings.linger;
        let making = Making {
            builder,
            note: N::default(),
            partition,
            due,
        };
        self.dues.push_back((due, topic));
        self.making.insert(topic, making);
        Ok(())
    }

    /// Sends a topic's batch, after waiting until there is room on the way. Safe to drop.
    async fn dispatch(&mut self, topic: u32) -> Result<(), RawError> {
        self.leave().await?;
        while self.flights.len() >= self.settings.in_flight_max {
            self.take_answer().await?;
        }
        self.complete(topic)?;
        self.leave().await
    }

    /// Makes a request of a topic's batch.
    fn complete(&mut self, topic: u32) -> Result<(), RawError> {
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
        let partition = used.topic.partitions.get(making.partition);
        let partition = partition.map_or(-1, |row| row.index);
        let bytes = making.builder.finish().inspect_err(|error| {
            (self.on_outcome)(&making.note, RawOutcome::Failed(error.to_string()));
        })?;
        self.leaving = Some(Unsent {
            note: making.note,
            request: request(self.settings.acks, &used.topic, partition, bytes),
        });
        Ok(())
    }

    /// Hands the complete batch to the connection. Safe to drop: a batch that it has not taken is still
    /// there.
    async fn leave(&mut self) -> Result<(), RawError> {
        let Some(leaving) = &self.leaving else {
            return Ok(());
        };
        let sent = if self.settings.acks == Acks::None {
            let sent = self.connection.send_unanswered(&leaving.request, self.version);
            sent.await.map(|()| None)
        } else {
            let sent = self
                .connection
                .send(&leaving.request, self.version, Duration::ZERO);
            sent.await.map(Some)
        };
        let Some(Unsent { note, .. }) = self.leaving.take() else {
            return Ok(());
        };
        match sent {
            Ok(Some(answer)) => self.flights.push_back(Flight { note, answer }),
            Ok(None) => (self.on_outcome)(&note, RawOutcome::Written),
            Err(error) => {
                (self.on_outcome)(&note, RawOutcome::Failed(error.to_string()));
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Sends the batches that have waited long enough. Safe to drop.
    pub async fn send_due(&mut self) -> Result<(), RawError> {
        // Without a linger all of them have.
        let now = (!self.settings.linger.is_zero()).then(Instant::now);
        self.dispatch_due(now).await
    }

    /// Sends all batches. Safe to drop.
    pub async fn flush(&mut self) -> Result<(), RawError> {
        self.dispatch_due(None).await
    }

    async fn dispatch_due(&mut self, now: Option<Instant>) -> Result<(), RawError> {
        self.leave().await?;
        while let Some((_, topic)) = self
            .next_due()
            .filter(|(due, _)| now.is_none_or(|now| *due <= now))
        {
            self.dispatch(topic).await?;
        }
        Ok(())
    }

    /// Returns the batch that has waited longest: until when it waits, and its topic.
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
    pub async fn take_answers(&mut self) -> Result<(), RawError> {
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
    async fn take_answer(&mut self) -> Result<(), RawError> {
        let answered = front(&mut self.flights).await;
        self.settle(answered)
    }

    fn settle(&mut self, answered: Result<ProduceResponse, ClientError>) -> Result<(), RawError> {
        let Some(flight) = self.flights.pop_front() else {
            return Ok(());
        };
        let stored = answered.map_err(RawError::from).and_then(|answer| check(&answer));
        let outcome = match &stored {
            Ok(()) => RawOutcome::Stored,
            Err(error) => RawOutcome::Failed(error.to_string()),
        };
        (self.on_outcome)(&flight.note, outcome);
        match stored {
            // The broker has too much to do. Nothing follows from the batches behind it.
            Err(RawError::NotStored(code))
                if self.identity.is_none() && code == ErrorCode::RequestTimedOut.name() =>
            {
                Ok(())
            }
            stored => stored,
        }
    }

    /// Waits until an answer came or a batch has waited long enough. Safe to drop.
    pub async fn tick(&mut self) -> Result<(), RawError> {
        if self.leaving.is_some() {
            return self.leave().await;
        }
        let has_room = self.flights.len() < self.settings.in_flight_max;
        let due = self.next_due().map(|(due, _)| due).filter(|_| has_room);
        let waited = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            answered = front(&mut self.flights) => return self.settle(answered),
            () = waited => {}
        }
        self.dispatch_due(Some(Instant::now())).await
    }

    /// Sends all batches and waits for all answers.
    pub async fn finish(&mut self) -> Result<(), RawError> {
        self.flush().await?;
        while !self.flights.is_empty() {
            self.take_answer().await?;
        }
        Ok(())
    }

    /// Returns the number of batches that wait for more records.
    pub fn waiting(&self) -> usize {
        self.making.len()
    }

    /// True if a complete batch is not with the connection yet.
    pub fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }
}

impl<N> Drop for RawProducer<N> {
    fn drop(&mut self) {
        let flights = self.flights.iter().map(|flight| &flight.note);
        let leaving = self.leaving.iter().map(|leaving| &leaving.note);
        let making = self.making.values().map(|making| &making.note);
        for note in flights.chain(leaving).chain(making) {
            (self.on_outcome)(note, RawOutcome::GivenUp);
        }
    }
}

/// Waits for the answer to the oldest request. Safe to drop.
async fn front<N>(flights: &mut VecDeque<Flight<N>>) -> Result<ProduceResponse, ClientError> {
    match flights.front_mut() {
        Some(flight) => (&mut flight.answer).await,
        None => pending().await,
    }
}

fn request(acks: Acks, topic: &Topic, partition: i32, batch: Bytes) -> ProduceRequest {
    ProduceRequest {
        transactional_id: None,
        acks: acks.number(),
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

fn check(answer: &ProduceResponse) -> Result<(), RawError> {
    let mut rows = answer
        .responses
        .iter()
        .flat_map(|topic| &topic.partition_responses);
    match rows.find(|row| row.error_code != 0) {
        Some(row) => Err(RawError::NotStored(
            ErrorCode::try_from(row.error_code).map_or("an unknown error", ErrorCode::name),
        )),
        None => Ok(()),
    }
}
