//! Readers beside the load: they fetch partitions from any offset on, committed records or all, go on where
//! they were after a failure, and remember everything that they saw.
//!
//! - No reader passes a record that is there: one that is read later, at an offset which a reader has passed
//!   without it, was skipped.
//! - Offsets grow, and an offset has one content for all readers.
//! - Every record was produced, and a reader of committed records sees none of an aborted transaction.

mod steps;

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use stafett_kafka_wire::Uuid;
use stafett_kafka_wire::messages::fetch::{FetchPartition, FetchTopic, PartitionData};
use stafett_kafka_wire::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use stafett_kafka_wire::messages::{FetchRequest, ListOffsetsRequest};
use stafett_model::TransactionEnd;

pub use self::steps::ReaderStep;
use super::connection::Connection;
use super::reading::Reading;
use super::{Kafka, Known};
use crate::ledger::{Ledger, LogKey, RecordId, Seen};
use crate::server::Server;
use crate::trace::Trace;
use crate::world::{Death, Finding};

/// Number of readers. Those with odd numbers read committed records only.
const READERS: u8 = 4;
/// Milliseconds that a fetch waits for records.
const WAIT_MS: i32 = 30;
const VERSION: i16 = 13;
const LIST_VERSION: i16 = 7;
/// Timestamp that asks for the beginning of a log.
const EARLIEST: i64 = -2;

/// Error codes of Kafka.
mod code {
    pub(super) const OFFSET_OUT_OF_RANGE: i16 = 1;
    /// The topic was deleted while the fetch waited.
    pub(super) const UNKNOWN_TOPIC: i16 = 3;
    pub(super) const UNKNOWN_TOPIC_ID: i16 = 100;
}

/// A reader, and everything that it saw.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    number: u8,
    connection: Option<Connection>,
    place: Option<Place>,
    waiting: Option<Asked>,
    /// Where it was when it was told that the topic is gone.
    gone: Option<Place>,
    histories: BTreeMap<LogKey, History>,
}

/// A pending request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Fetch,
    /// The beginning of the log.
    Start,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    log: LogKey,
    id: Uuid,
    next: u64,
    bytes_max: i32,
    /// High watermark and log start that this connection was told.
    ends: (i64, i64),
}

/// Records of a log that a reader saw.
#[derive(Debug, Clone, Default)]
struct History {
    /// Ranges of offsets that it has passed.
    passed: Vec<Range<u64>>,
    seen: BTreeMap<u64, RecordId>,
}

impl History {
    /// Begins another range at an offset.
    fn begin(&mut self, at: u64) {
        if self.passed.last().is_none_or(|last| last.end != at) {
            self.passed.push(at..at);
        }
    }

    fn pass(&mut self, to: u64) {
        if let Some(last) = self.passed.last_mut() {
            last.end = to.max(last.end);
        }
    }

    fn has_skipped(&self, offset: u64) -> bool {
        self.passed.iter().any(|range| range.contains(&offset)) && !self.seen.contains_key(&offset)
    }
}

pub(super) fn readers() -> Vec<Reader> {
    (0..READERS).map(Reader::new).collect()
}

impl Reader {
    fn new(number: u8) -> Self {
        Self {
            number,
            connection: None,
            place: None,
            waiting: None,
            gone: None,
            histories: BTreeMap::new(),
        }
    }

    fn is_committed(&self) -> bool {
        !self.number.is_multiple_of(2)
    }

    /// Handles the end of its connection: it goes on later, where it was.
    pub(super) fn leave(&mut self) {
        self.connection = None;
        self.waiting = None;
    }

    /// Forgets everything: topics are new.
    pub(super) fn forget_all(&mut self) {
        *self = Self::new(self.number);
    }

    /// Applies the way in which the program ended. After a loss of power, ends of transactions may be gone
    /// that a reader has seen, if their logs are not synced.
    pub(super) fn on_death(&mut self, death: Option<Death>, is_synced: impl Fn(u8) -> bool) {
        let is_lost = |log: &LogKey| matches!(death, Some(Death::Power(_))) && !is_synced(log.topic);
        if self.is_committed() {
            self.histories.retain(|log, _| !is_lost(log));
        }
    }

    /// Begins to read a log at an offset.
    fn begin(&mut self, (log, id): (LogKey, Uuid), next: u64, bytes_max: i32) {
        self.histories.entry(log).or_default().begin(next);
        self.place = Some(Place {
            log,
            id,
            next,
            bytes_max,
            ends: (0, 0),
        });
    }

    fn connect(&mut self, server: &mut Server) -> Result<(), Finding> {
        if self.connection.is_none() {
            let socket = server
                .connect_kafka()
                .map_err(|error| Finding(error.to_string()))?;
            self.connection = Some(Connection::new(socket));
            if let Some(place) = &mut self.place {
                place.ends = (0, 0);
                self.histories.entry(place.log).or_default().begin(place.next);
            }
        }
        Ok(())
    }

    fn fetch(&mut self) {
        let Some((connection, place)) = self.connection.as_mut().zip(self.place) else {
            return;
        };
        let partition = FetchPartition {
            partition: place.log.partition.into(),
            fetch_offset: i64::try_from(place.next).unwrap_or(i64::MAX),
            partition_max_bytes: place.bytes_max,
            ..FetchPartition::default()
        };
        let request = FetchRequest {
            max_bytes: place.bytes_max,
            max_wait_ms: WAIT_MS,
            min_bytes: 1,
            isolation_level: (!self.number.is_multiple_of(2)).into(),
            topics: vec![FetchTopic {
                topic_id: place.id,
                partitions: vec![partition],
                ..FetchTopic::default()
            }],
            ..FetchRequest::default()
        };
        connection.send(VERSION, &request);
        self.waiting = Some(Asked::Fetch);
    }

    /// Takes answers, and fetches on.
    pub(super) fn turn(
        &mut self,
        ledger: &mut Ledger,
        may_refuse: bool,
        notes: &mut Vec<String>,
    ) -> Result<(), Finding> {
        if let Some(connection) = &mut self.connection {
            connection.turn();
        }
        while let Some(answer) = self.connection.as_mut().and_then(Connection::answer) {
            self.on_answer(answer, ledger, may_refuse, notes)?;
        }
        if Connection::is_cut(self.connection.as_ref()) {
            self.leave();
        }
        if self.waiting.is_none() {
            self.fetch();
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
        let Some((connection, asked)) = self.connection.as_mut().zip(self.waiting.take()) else {
            return Err(Finding("an answer that nothing was asked for".to_owned()));
        };
        if asked == Asked::Start {
            let answer = connection.read::<ListOffsetsRequest>(LIST_VERSION, answer)?;
            let topic = answer.topics.first();
            let start = topic.and_then(|topic| topic.partitions.first());
            let start = start.filter(|start| start.error_code == 0);
            return self.reset(start.and_then(|start| u64::try_from(start.offset).ok()));
        }
        let answer = connection.read::<FetchRequest>(VERSION, answer)?;
        let topic = answer.responses.into_iter().next();
        let partition = topic.and_then(|topic| topic.partitions.into_iter().next());
        let Some((partition, place)) = partition.zip(self.place) else {
            return Err(Finding("a fetch without partitions".to_owned()));
        };
        match partition.error_code {
            0 => self.take(place, partition, ledger, notes),
            code::UNKNOWN_TOPIC_ID | code::UNKNOWN_TOPIC => {
                self.gone = self.place.take();
                Ok(())
            }
            code::OFFSET_OUT_OF_RANGE => {
                self.ask_for_start();
                Ok(())
            }
            _ if may_refuse => Ok(()),
            code => {
                let number = self.number;
                Err(Finding(format!(
                    "reader {number} is answered with {code}: {place:?}"
                )))
            }
        }
    }

    fn ask_for_start(&mut self) {
        let Some((connection, place)) = self.connection.as_mut().zip(self.place) else {
            return;
        };
        let partition = ListOffsetsPartition {
            partition_index: place.log.partition.into(),
            timestamp: EARLIEST,
            ..ListOffsetsPartition::default()
        };
        let request = ListOffsetsRequest {
            topics: vec![ListOffsetsTopic {
                name: format!("t{}", place.log.topic).into(),
                partitions: vec![partition],
            }],
            ..ListOffsetsRequest::default()
        };
        connection.send(LIST_VERSION, &request);
        self.waiting = Some(Asked::Start);
    }

    /// Goes on at the first record that is kept: its place has expired. Without one, the topic is gone.
    fn reset(&mut self, start: Option<u64>) -> Result<(), Finding> {
        match (self.place, start) {
            (Some(place), Some(start)) if start > place.next => {
                self.begin((place.log, place.id), start, place.bytes_max);
                Ok(())
            }
            (Some(place), Some(start)) => Err(Finding(format!(
                "reader {} at {place:?} is behind the end of a log that begins at {start}",
                self.number
            ))),
            _ => {
                self.place = None;
                Ok(())
            }
        }
    }

    /// Takes the records of an answer.
    fn take(
        &mut self,
        mut place: Place,
        partition: PartitionData,
        ledger: &mut Ledger,
        notes: &mut Vec<String>,
    ) -> Result<(), Finding> {
        let number = self.number;
        let wrong = |what: String| Finding(format!("reader {number} at {place:?}: {what}"));
        let ends = (partition.high_watermark, partition.log_start_offset);
        if ends.0 < place.ends.0 || ends.1 < place.ends.1 {
            return Err(wrong(format!("the log goes back to {ends:?}")));
        }
        let aborted = partition.aborted_transactions.iter().flatten();
        let aborted: Vec<_> = aborted.map(|it| (it.first_offset, it.producer_id)).collect();
        let mut reading = Reading::new(self.is_committed());
        let (mut at, log) = (place.next, place.log);
        let bytes = partition.records.unwrap_or_default().into_bytes();
        reading.add(log, &mut at, bytes, &aborted)?;
        let stable = u64::try_from(partition.last_stable_offset).unwrap_or(0);
        let mut next = place.next;
        ledger.saw_contents(log, &reading.sums)?;
        for seen in reading.seen {
            let owed = ledger.owed(log, next, self.is_committed());
            if seen.offset < next || owed.is_some_and(|owed| owed < seen.offset) {
                return Err(wrong(format!(
                    "{seen:?} comes in the place of {next}, and {owed:?} is there"
                )));
            }
            if self.is_committed() {
                if seen.offset >= stable {
                    return Err(wrong(format!("{seen:?} is not below the stable offset {stable}")));
                }
                ledger.saw_committed(log, seen)?;
            } else {
                ledger.saw(log, seen.offset, seen.id)?;
            }
            let history = self.histories.entry(log).or_default();
            history.seen.insert(seen.offset, seen.id);
            next = seen.offset + 1;
        }
        if at > place.next {
            notes.push(format!("reader {number} of {log:?} is at {at}"));
            self.histories.entry(log).or_default().pass(at);
        }
        (place.next, place.ends) = (at, ends);
        self.place = Some(place);
        Ok(())
    }

    /// Compares its history of a log with the complete content.
    fn check(&self, log: LogKey, all: &Reading, counts: impl Fn(&Seen) -> bool) -> Result<(), Finding> {
        let Some(history) = self.histories.get(&log) else {
            return Ok(());
        };
        let mut skipped = all.seen.iter().filter(|seen| history.has_skipped(seen.offset));
        match skipped.find(|seen| !self.is_committed() || counts(seen)) {
            None => Ok(()),
            Some(seen) => Err(Finding(format!(
                "reader {} of {log:?} has passed {seen:?} and did not get it: {:?}",
                self.number, history.passed
            ))),
        }
    }
}

impl Kafka {
    /// Lets readers fetch, and checks that a topic which they do not find is gone.
    pub(super) fn turn_readers(&mut self, may_refuse: bool, notes: &mut Vec<String>) -> Result<(), Finding> {
        for reader in &mut self.readers {
            reader.turn(&mut self.ledger, may_refuse, notes)?;
            let gone = reader.gone.take();
            let is_there = |place: &Place| {
                let topic = self.topics.get(usize::from(place.log.topic));
                topic.is_some_and(|topic| topic.known == Known::There(place.id))
            };
            if let Some(place) = gone.filter(is_there) {
                return Err(Finding(format!(
                    "reader {} does not find {place:?}",
                    reader.number
                )));
            }
        }
        Ok(())
    }

    /// Compares the readers' histories of a log with its complete content.
    pub(super) fn check_readers(&self, log: LogKey, all: &Reading) -> Result<(), Finding> {
        let transactions = &self.ledger.transactions.all;
        let counts = |seen: &Seen| {
            let batch = self.ledger.batches.get(seen.id.0);
            let number = batch.and_then(|batch| batch.transaction);
            let transaction = number.and_then(|number| transactions.get(number));
            transaction.is_none_or(|it| it.end == Some(TransactionEnd::Commit))
        };
        self.readers
            .iter()
            .try_for_each(|reader| reader.check(log, all, counts))
    }

    /// Lets readers go on after a start.
    pub fn resume_readers(&mut self, server: &mut Server, trace: &mut Trace) -> Result<(), Finding> {
        for reader in self.readers.iter_mut().filter(|reader| reader.place.is_some()) {
            trace.note(|| format!("reader {} goes on at {:?}", reader.number, reader.place));
            reader.connect(server)?;
        }
        Ok(())
    }

    fn id_of(&self, topic: u8) -> Option<Uuid> {
        match self.topic(topic)?.known {
            Known::There(id) => Some(id),
            Known::Missing | Known::Creating | Known::Deleting(_) => None,
        }
    }
}
