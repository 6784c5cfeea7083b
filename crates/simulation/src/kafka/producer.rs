//! A producer: sent batches, answers, and resends.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use stafett_kafka_wire::messages::produce::{PartitionProduceData, TopicProduceData};
use stafett_kafka_wire::messages::{InitProducerIdRequest, ProduceRequest};
use stafett_model::{BatchBuilder, BatchHeader, Codec, Header, ProducerId, Record};

use super::connection::Connection;
use super::reading::ID;
use crate::host;
use crate::ledger::compaction::{is_tombstone, key_of, policy};
use crate::ledger::{Batch, Ledger, LogKey, State};
use crate::server::Server;
use crate::steps::Age;
use crate::trace::Trace;
use crate::world::{Broken, Finding, World};

mod repeat;

/// Maximum batches in flight: the broker remembers this many of a producer's last batches.
const IN_FLIGHT_MAX: usize = 5;
/// Default of `message.timestamp.after.max.ms`.
const LATER_MS_MAX: i64 = 3_600_000;

#[derive(Debug, Clone)]
pub struct Producer {
    pub number: u8,
    /// True if it numbers its batches, so that it can resend them.
    is_idempotent: bool,
    connection: Option<Connection>,
    id: Option<i64>,
    group: u64,
    next: BTreeMap<LogKey, i32>,
    /// Data of each batch until it is answered.
    kept: BTreeMap<usize, Kept>,
    waiting: VecDeque<Waiting>,
    /// Its last acknowledged batches, as sent.
    done: VecDeque<repeat::Done>,
    /// Unanswered batches of a lost connection.
    pub again: VecDeque<usize>,
    /// True if one of its batches was lost or refused, so that later ones may be out of sequence.
    is_disturbed: bool,
}

#[derive(Debug, Clone)]
struct Kept {
    bytes: Bytes,
    id: Option<i64>,
}

impl Kept {
    /// True if the batch has a record more than an hour later than the wall clock: the clock was set back.
    fn is_too_late(&self) -> bool {
        let header = BatchHeader::parse(&self.bytes);
        header.is_ok_and(|header| header.max_timestamp > host::wall_ms() + LATER_MS_MAX)
    }
}

#[derive(Debug, Clone)]
enum Waiting {
    Id,
    Batch(usize),
}

/// Error codes of Kafka.
mod code {
    pub(super) const TOO_LARGE: i16 = 10;
    pub(super) const INVALID_TIMESTAMP: i16 = 32;
    pub(super) const OUT_OF_ORDER: i16 = 45;
    pub(super) const STORAGE: i16 = 56;
}

impl Producer {
    pub fn new(number: u8) -> Self {
        Self {
            number,
            is_idempotent: number.is_multiple_of(2),
            connection: None,
            id: None,
            group: 0,
            next: BTreeMap::new(),
            kept: BTreeMap::new(),
            waiting: VecDeque::new(),
            done: VecDeque::new(),
            again: VecDeque::new(),
            is_disturbed: false,
        }
    }

    /// Handles the end of its connection.
    pub fn leave(&mut self, ledger: &mut Ledger) {
        self.connection = None;
        for waiting in std::mem::take(&mut self.waiting) {
            if let Waiting::Batch(number) = waiting
                && ledger
                    .batches
                    .get(number)
                    .is_some_and(|batch| batch.state == State::Unknown)
                && self.is_idempotent
                && self.kept.get(&number).is_some_and(|kept| kept.id == self.id)
            {
                self.again.push_back(number);
            }
        }
    }

    pub fn is_waiting_for(&self, topic: u8, ledger: &Ledger) -> bool {
        let waits = self.waiting.iter().filter_map(|waiting| match waiting {
            Waiting::Batch(number) => Some(number),
            Waiting::Id => None,
        });
        waits.chain(&self.again).any(|number| {
            ledger
                .batches
                .get(*number)
                .is_some_and(|batch| batch.log.topic == topic)
        })
    }

    /// Records the deletion of a topic: sequences in it start again.
    pub fn forget_topic(&mut self, topic: u8) {
        self.next.retain(|log, _| log.topic != topic);
        self.done.retain(|done| done.log.topic != topic);
    }

    /// Drops its producer id. Batches sent under it are not resent.
    fn begin_anew(&mut self) {
        self.id = None;
        self.done.clear();
        self.next.clear();
        self.again.clear();
        self.is_disturbed = false;
    }

    /// Records that one of its batches was lost: its sequence has a gap.
    pub fn on_lost(&mut self) {
        self.is_disturbed = true;
    }

    pub fn turn(
        &mut self,
        ledger: &mut Ledger,
        may_refuse: bool,
        notes: &mut Vec<String>,
    ) -> Result<(), Finding> {
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        connection.turn();
        while let Some(answer) = self.connection.as_mut().and_then(Connection::answer) {
            self.on_answer(answer, ledger, may_refuse, notes)?;
        }
        if Connection::is_cut(self.connection.as_ref()) {
            notes.push(format!("producer {} was cut off", self.number));
            self.leave(ledger);
        }
        Ok(())
    }

    fn on_answer(
        &mut self,
        answer: Bytes,
        ledger: &mut Ledger,
        may_refuse: bool,
        notes: &mut Vec<String>,
    ) -> Result<(), Finding> {
        let (Some(connection), Some(waiting)) = (&mut self.connection, self.waiting.pop_front()) else {
            return Err(Finding("an answer that nothing was asked for".to_owned()));
        };
        let number = match waiting {
            Waiting::Id => {
                let answer = connection.read::<InitProducerIdRequest>(4, answer)?;
                notes.push(format!("producer {} has id {answer:?}", self.number));
                return match answer.error_code {
                    0 => {
                        self.id = Some(answer.producer_id);
                        Ok(())
                    }
                    _ if may_refuse => Ok(()),
                    code => Err(Finding(format!("there is no id for a producer: {code}"))),
                };
            }
            Waiting::Batch(number) => number,
        };
        let answer = connection.read::<ProduceRequest>(9, answer)?;
        let partition = answer
            .responses
            .first()
            .and_then(|topic| topic.partition_responses.first())
            .ok_or_else(|| Finding("an answer without partitions".to_owned()))?;
        notes.push(format!(
            "batch {number} is answered with {} at {}",
            partition.error_code, partition.base_offset
        ));
        if partition.error_code == 0 {
            if let Some(kept) = self.kept.remove(&number).filter(|_| self.is_idempotent) {
                self.remember(number, kept, ledger);
            }
            let base = u64::try_from(partition.base_offset).unwrap_or(u64::MAX);
            return ledger.acknowledge(number, base);
        }
        self.on_refusal(number, partition.error_code, ledger, may_refuse)
    }

    fn on_refusal(
        &mut self,
        number: usize,
        code: i16,
        ledger: &mut Ledger,
        may_refuse: bool,
    ) -> Result<(), Finding> {
        let Some(batch) = ledger.batches.get_mut(number) else {
            return Ok(());
        };
        let Some(kept) = self.kept.remove(&number) else {
            // It was acknowledged before, and resent.
            return self.on_refused_repetition(number, code, may_refuse);
        };
        let kept = Some(kept);
        let is_old = kept.as_ref().is_none_or(|kept| kept.id != self.id);
        let is_expected = match code {
            code::OUT_OF_ORDER => is_old || self.is_disturbed,
            code::STORAGE => may_refuse,
            code::INVALID_TIMESTAMP => kept.is_some_and(|kept| kept.is_too_late()),
            code::TOO_LARGE => kept.is_some_and(|kept| kept.bytes.len() > 15_000),
            _ => false,
        };
        if !is_expected {
            return Err(Finding(format!(
                "batch {number} was refused with code {code}: {batch:?}"
            )));
        }
        if let State::Acknowledged { .. } = batch.state {
            // It is stored and was seen.
        } else if batch.sent == 1 {
            batch.state = State::Never;
        }
        if self.is_idempotent && !is_old {
            self.begin_anew();
        }
        Ok(())
    }
}

impl Producer {
    /// Returns its connection, opened if there is none.
    fn connect(&mut self, server: &mut Server, group: u64) -> Result<&mut Connection, Finding> {
        match &mut self.connection {
            Some(_) => {}
            none => {
                let socket = server
                    .connect_kafka()
                    .map_err(|error| Finding(error.to_string()))?;
                *none = Some(Connection::new(socket));
                if !self.is_idempotent {
                    self.group = group;
                }
            }
        }
        self.connection
            .as_mut()
            .ok_or_else(|| Finding("there is no connection".to_owned()))
    }

    /// Requests a producer id if necessary. Returns true if it has to wait for one.
    fn needs_id(&mut self, group: u64) -> bool {
        if !self.is_idempotent || self.id.is_some() {
            return false;
        }
        let is_asked = self.waiting.iter().any(|waiting| matches!(waiting, Waiting::Id));
        if let Some(connection) = self.connection.as_mut().filter(|_| !is_asked) {
            self.group = group;
            let request = InitProducerIdRequest {
                transactional_id: None,
                producer_id: -1,
                producer_epoch: -1,
                transaction_timeout_ms: 1000,
            };
            connection.send(4, &request);
            self.waiting.push_back(Waiting::Id);
        }
        true
    }

    /// Resends the unanswered batches.
    fn send_again(&mut self, ledger: &mut Ledger, trace: &mut Trace) {
        for again in std::mem::take(&mut self.again) {
            let kept = self.kept.get(&again).zip(self.connection.as_mut());
            if let (Some(batch), Some((kept, connection))) = (ledger.batches.get_mut(again), kept) {
                batch.sent += 1;
                connection.send(9, &request_of(batch.log, kept.bytes.clone()));
                self.waiting.push_back(Waiting::Batch(again));
                trace.note(|| format!("batch {again} is sent again"));
            }
        }
    }
}

impl World {
    /// Resends unanswered batches, then sends a new one.
    pub fn produce(
        &mut self,
        server: &mut Server,
        number: u8,
        to: (u8, u8),
        records: u16,
        bytes: u32,
        age: Age,
    ) -> Result<(), Broken> {
        let group = self.kafka.new_group();
        let topic = self.kafka.topic(to.0).filter(|topic| topic.is_there());
        let Some((log, level)) = self.kafka.log(to.0, to.1).zip(topic.map(|topic| topic.level)) else {
            return Ok(());
        };
        let Some(producer) = self.kafka.producers.get_mut(usize::from(number)) else {
            return Ok(());
        };
        producer.connect(server, group)?;
        if producer.needs_id(group) {
            return Ok(());
        }
        producer.send_again(&mut self.kafka.ledger, &mut self.trace);
        if producer.is_idempotent && producer.waiting.len() >= IN_FLIGHT_MAX {
            return Ok(());
        }
        let sequence = producer
            .is_idempotent
            .then(|| *producer.next.entry(log).or_insert(0));
        let batch = self.kafka.ledger.add(Batch {
            log,
            date_ms: date_of(age).unwrap_or_else(host::wall_ms) - 86_400_000,
            group: producer.group,
            records: records.into(),
            level,
            state: State::Unknown,
            sent: 1,
            transaction: None,
            is_message: false,
        });
        let numbering = producer.id.zip(sequence).map(|(id, sequence)| (id, 0, sequence));
        let body = batch_of((batch, log), records, bytes, age, numbering, false)
            .map_err(|error| Finding(format!("a batch cannot be built: {error}")))?;
        producer
            .connect(server, group)?
            .send(9, &request_of(log, body.clone()));
        producer.waiting.push_back(Waiting::Batch(batch));
        if let Some(next) = producer.next.get_mut(&log) {
            *next += i32::from(records);
        }
        let id = producer.id;
        producer.kept.insert(batch, Kept { bytes: body, id });
        self.trace
            .note(|| format!("producer {number} sends batch {batch} of {records} to {log:?}, {numbering:?}"));
        Ok(())
    }
}

pub(super) fn request_of(log: LogKey, records: Bytes) -> ProduceRequest {
    ProduceRequest {
        acks: -1,
        timeout_ms: 1000,
        topic_data: vec![TopicProduceData {
            name: format!("t{}", log.topic).into(),
            partition_data: vec![PartitionProduceData {
                index: log.partition.into(),
                records: Some(records),
            }],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    }
}

/// Returns the timestamp of records, if they have one.
fn date_of(age: Age) -> Option<i64> {
    match age {
        Age::Now => Some(host::wall_ms()),
        Age::Days(days) => Some(host::wall_ms() - i64::from(days) * 86_400_000),
        Age::Unknown => None,
    }
}

/// Builds a batch whose records contain their ids. Those of a compacted topic have keys, and some delete
/// theirs.
pub(super) fn batch_of(
    (number, log): (usize, LogKey),
    records: u16,
    bytes: u32,
    age: Age,
    numbering: Option<(i64, i16, i32)>,
    is_transactional: bool,
) -> Result<Bytes, stafett_model::BatchError> {
    let is_compacted = policy(log.topic).is_some();
    let codec = if is_compacted && number.is_multiple_of(3) {
        Codec::Lz4
    } else {
        Codec::None
    };
    let mut builder = BatchBuilder::new(codec);
    if let Some((id, epoch, sequence)) = numbering {
        builder = builder.producer(ProducerId(id), epoch, sequence);
    }
    if is_transactional {
        builder = builder.transactional();
    }
    let timestamp = date_of(age).unwrap_or(-1);
    let padding = "x".repeat(usize::try_from(bytes / u32::from(records)).unwrap_or(0));
    for index in 0..records {
        let id = (number, u32::from(index));
        let value = format!("{number}:{index}:{padding}");
        let key = format!("k{}", key_of(id));
        // A tombstone has no value to hold its id.
        let is_tombstone = is_compacted && is_tombstone(id);
        let name = format!("{number}:{index}");
        let header: Header<'_> = (ID.as_bytes(), Some(name.as_bytes()));
        builder.push(&Record {
            key: is_compacted.then_some(key.as_bytes()),
            value: (!is_tombstone).then_some(value.as_bytes()),
            headers: if is_tombstone {
                std::slice::from_ref(&header)
            } else {
                &[]
            },
            timestamp,
        })?;
    }
    builder.finish()
}
