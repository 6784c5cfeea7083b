//! The partitions of a fetch, and which of them are worth a look.
//!
//! A fetch without a session lives for one request; one in a session is kept between requests, and a request then
//! costs what changed, not what the session holds:
//!
//! ```text
//!            read: nothing there                answered
//!   Active ─────────────────────▶ Quiet ─────────────────────▶ Idle
//!     ▲  │ read: records or an error: stays, and is read again next time     │
//!     └──┴──────────────── the log grew, or the client asked again ◀─────────┘
//! ```
//!
//! Invariant: a partition that is not active is watched, and was watched before it was read last. So nothing that
//! became visible is missed.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hashbrown::HashTable;
use stafett_broker::{Bounds, Broker, ReadFrom, ReadRequest, Run, TopicId, Watch};
use stafett_kafka_wire::messages::fetch::FetchPartition;
use stafett_kafka_wire::{ErrorCode, Str, Uuid};
use stafett_model::{LogId, Offset};

use crate::error;
use crate::kafka::Shared;

/// An offset that nobody has been told.
const UNTOLD: i64 = -1;
/// Forgotten partitions that a session carries along beyond as many as it has live ones.
const FORGOTTEN_SLACK: usize = 64;

/// How a client names a topic: by its name, or by its id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TopicKey {
    pub name: Str,
    pub id: Uuid,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Forgotten by the client; its place is kept because its log is still watched under its number.
    Forgotten,
    Idle,
    /// Read in this fetch without finding anything.
    Quiet,
    /// In the queue of those to be read.
    Active,
}

#[derive(Debug)]
pub(crate) struct Partition {
    pub topic: TopicKey,
    pub number: i32,
    stage: Stage,
    log: Result<LogId, ErrorCode>,
    watched: Option<LogId>,
    fetch_offset: i64,
    bytes_max: usize,
    leader_epoch: i32,
    /// What the last read said.
    bounds: Option<Bounds>,
    /// End and start as the client was told last.
    told: (i64, i64),
}

#[derive(Debug)]
pub(crate) struct FetchState {
    /// By number: what a watch calls them.
    partitions: Vec<Partition>,
    /// Numbers by name; only in a session.
    by_name: HashTable<u32>,
    hash: RandomState,
    live: usize,
    active: VecDeque<u32>,
    quiet: Vec<u32>,
    watch: Option<Watch>,
    /// Deletions of topics that have been noticed.
    deletions: u64,
}

/// What one look at the active partitions brought.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub results: Vec<(u32, Result<Run, ErrorCode>)>,
    pub bytes: usize,
    pub has_error: bool,
}

/// What a client is told of a partition.
#[derive(Debug)]
pub(crate) struct Told<'a> {
    pub partition: &'a Partition,
    pub end: i64,
    pub start: i64,
    pub records: Result<Option<Run>, ErrorCode>,
}

impl FetchState {
    pub(crate) fn new(shared: &Shared) -> Self {
        Self {
            partitions: Vec::new(),
            by_name: HashTable::new(),
            hash: RandomState::new(),
            live: 0,
            active: VecDeque::new(),
            quiet: Vec::new(),
            watch: None,
            deletions: shared.deletions(),
        }
    }

    /// Partitions that the client has not forgotten.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Makes room for so many partitions.
    pub(crate) fn reserve(&mut self, partitions: usize) {
        self.partitions.reserve_exact(partitions);
        self.active.reserve_exact(partitions);
    }

    /// Adds a partition to a fetch that ends with its request.
    pub(crate) fn add(&mut self, shared: &Shared, topic: &TopicKey, asked: &FetchPartition) {
        let number = u32::try_from(self.partitions.len()).unwrap_or(u32::MAX);
        let mut partition = Partition {
            topic: topic.clone(),
            number: asked.partition,
            stage: Stage::Active,
            log: Err(ErrorCode::UnknownTopicOrPartition),
            watched: None,
            fetch_offset: asked.fetch_offset,
            bytes_max: usize::try_from(asked.partition_max_bytes).unwrap_or(0),
            leader_epoch: asked.current_leader_epoch,
            bounds: None,
            told: (UNTOLD, UNTOLD),
        };
        partition.resolve(shared);
        self.partitions.push(partition);
        self.active.push_back(number);
        self.live += 1;
    }

    /// Adds a partition to a session, or changes where it is to be read from.
    pub(crate) fn put(&mut self, shared: &Shared, topic: &TopicKey, asked: &FetchPartition) {
        let Some(number) = self.find(topic, asked.partition) else {
            let number = u32::try_from(self.partitions.len()).unwrap_or(u32::MAX);
            self.add(shared, topic, asked);
            let Self {
                by_name,
                partitions,
                hash,
                ..
            } = self;
            by_name.insert_unique(name_hash(hash, topic, asked.partition), number, |other| {
                partitions
                    .get(index(*other))
                    .map_or(0, |partition| name_hash(hash, &partition.topic, partition.number))
            });
            self.watch_one(&shared.broker, number);
            return;
        };
        let Some(partition) = self.partitions.get_mut(index(number)) else {
            return;
        };
        if partition.stage == Stage::Forgotten {
            partition.stage = Stage::Idle;
            partition.told = (UNTOLD, UNTOLD);
            self.live += 1;
        }
        partition.fetch_offset = asked.fetch_offset;
        partition.bytes_max = usize::try_from(asked.partition_max_bytes).unwrap_or(0);
        partition.leader_epoch = asked.current_leader_epoch;
        self.activate(number);
    }

    /// Removes a partition from a session.
    pub(crate) fn forget(&mut self, topic: &TopicKey, partition: i32) {
        let Some(number) = self.find(topic, partition) else {
            return;
        };
        let Some(partition) = self.partitions.get_mut(index(number)) else {
            return;
        };
        if partition.stage != Stage::Forgotten {
            partition.stage = Stage::Forgotten;
            self.live -= 1;
        }
    }

    /// Ends the changes that a request makes to a session.
    pub(crate) fn changed(&mut self, shared: &Shared) {
        if self.partitions.len() > 2 * self.live + FORGOTTEN_SLACK {
            self.renumber(shared);
        }
        let deletions = shared.deletions();
        if deletions != self.deletions {
            self.deletions = deletions;
            self.activate_all();
        }
    }

    /// Watches all logs, if that has not begun. True if it has begun now: what was read before may have grown since.
    pub(crate) fn start_watching(&mut self, broker: &Broker) -> bool {
        if self.watch.is_some() {
            return false;
        }
        self.watch = Some(broker.watch());
        for number in 0..self.partitions.len() {
            self.watch_one(broker, u32::try_from(number).unwrap_or(u32::MAX));
        }
        true
    }

    pub(crate) fn watch(&self) -> Option<&Watch> {
        self.watch.as_ref()
    }

    /// Has the partitions that grew looked at.
    pub(crate) fn notice_growth(&mut self) {
        let grown = self.watch.as_ref().map(Watch::take).unwrap_or_default();
        for number in grown {
            self.activate(number);
        }
    }

    /// What to read now, and of which partitions: every active one.
    fn request(&mut self, shared: &Shared, bytes_max: usize) -> (ReadRequest, Vec<(u32, Option<ErrorCode>)>) {
        let mut logs = Vec::with_capacity(self.active.len());
        let mut tried = Vec::with_capacity(self.active.len());
        for number in std::mem::take(&mut self.active) {
            let Some(partition) = self.partitions.get_mut(index(number)) else {
                continue;
            };
            if partition.stage != Stage::Active {
                continue;
            }
            if partition.log.is_err() {
                partition.resolve(shared);
                self.watch_one(&shared.broker, number);
            }
            let Some(partition) = self.partitions.get(index(number)) else {
                continue;
            };
            match partition.readable(shared) {
                Ok(from) => {
                    logs.push(from);
                    tried.push((number, None));
                }
                Err(code) => tried.push((number, Some(code))),
            }
        }
        (
            ReadRequest {
                logs,
                bytes_max,
                first_batch_whole: true,
            },
            tried,
        )
    }

    /// Reads every active partition, as far as the bytes go.
    pub(crate) async fn read(&mut self, shared: &Shared, bytes_max: usize) -> Round {
        let (request, tried) = self.request(shared, bytes_max);
        let read = if request.logs.is_empty() {
            Vec::new()
        } else {
            shared.broker.read(request).finish().await.unwrap_or_default()
        };
        let mut read = read.into_iter();
        let mut round = Round {
            results: Vec::with_capacity(tried.len()),
            ..Round::default()
        };
        for (number, failed) in tried {
            let result = match failed {
                Some(code) => Err(code),
                None => match read.next() {
                    Some(Ok(run)) => Ok(run),
                    Some(Err(error)) => Err(error::read(&error)),
                    None => Err(ErrorCode::KafkaStorageError),
                },
            };
            self.on_read(number, result, &mut round);
        }
        round
    }

    fn on_read(&mut self, number: u32, result: Result<Run, ErrorCode>, round: &mut Round) {
        let is_watching = self.watch.is_some();
        let Some(partition) = self.partitions.get_mut(index(number)) else {
            return;
        };
        match &result {
            Ok(run) => {
                partition.bounds = run.bounds;
                let is_at_end = run.bounds.is_none_or(|bounds| run.next >= bounds.end);
                if is_watching && run.bytes == 0 && is_at_end {
                    partition.stage = Stage::Quiet;
                    self.quiet.push(number);
                    return;
                }
                round.bytes += run.bytes;
            }
            Err(code) => {
                partition.bounds = None;
                if *code == ErrorCode::UnknownTopicOrPartition {
                    partition.log = Err(partition.topic.unknown());
                }
                round.has_error = true;
            }
        }
        self.active.push_back(number);
        round.results.push((number, result));
    }

    /// What to tell the client of a round: of all partitions, or of those of which there is something new. Partitions
    /// that had records are read after all others next time.
    pub(crate) fn tell(&mut self, round: Round, all: bool, mut tell: impl FnMut(Told<'_>)) {
        let mut results = round.results;
        let has_records = |result: &Result<Run, ErrorCode>| result.as_ref().is_ok_and(|run| run.bytes > 0);
        self.active.clear();
        self.active.extend(
            results
                .iter()
                .filter(|(_, result)| !has_records(result))
                .map(|(number, _)| number),
        );
        self.active.extend(
            results
                .iter()
                .filter(|(_, result)| has_records(result))
                .map(|(number, _)| number),
        );
        let mut quiet = std::mem::take(&mut self.quiet);
        quiet.retain(|number| {
            let partition = self.partitions.get_mut(index(*number));
            partition.is_some_and(|partition| {
                let is_quiet = partition.stage == Stage::Quiet;
                if is_quiet {
                    partition.stage = Stage::Idle;
                }
                is_quiet
            })
        });
        // In the order of the request, so that the partitions of a topic are told together.
        results.extend(quiet.into_iter().map(|number| (number, Ok(Run::default()))));
        results.sort_unstable_by_key(|(number, _)| *number);
        for (number, result) in results {
            let Some(partition) = self.partitions.get_mut(index(number)) else {
                continue;
            };
            let bounds = partition.bounds;
            let now = bounds.map_or((UNTOLD, UNTOLD), |bounds| (wire(bounds.end), wire(bounds.start)));
            let records = result.map(|run| Some(run).filter(|run| run.bytes > 0));
            if !all && matches!(records, Ok(None)) && now == partition.told {
                continue;
            }
            partition.told = now;
            tell(Told {
                partition,
                end: now.0,
                start: now.1,
                records,
            });
        }
    }

    fn activate(&mut self, number: u32) {
        let Some(partition) = self.partitions.get_mut(index(number)) else {
            return;
        };
        if matches!(partition.stage, Stage::Idle | Stage::Quiet) {
            partition.stage = Stage::Active;
            self.active.push_back(number);
        }
    }

    fn activate_all(&mut self) {
        for number in 0..self.partitions.len() {
            self.activate(u32::try_from(number).unwrap_or(u32::MAX));
        }
    }

    fn watch_one(&mut self, broker: &Broker, number: u32) {
        let (Some(watch), Some(partition)) = (&self.watch, self.partitions.get_mut(index(number))) else {
            return;
        };
        if let Ok(log) = partition.log
            && partition.watched != Some(log)
            && broker.watch_log(watch, log, number)
        {
            partition.watched = Some(log);
        }
    }

    fn find(&self, topic: &TopicKey, partition: i32) -> Option<u32> {
        let is_it = |number: &u32| {
            self.partitions
                .get(index(*number))
                .is_some_and(|known| known.number == partition && known.topic == *topic)
        };
        self.by_name
            .find(name_hash(&self.hash, topic, partition), is_it)
            .copied()
    }

    /// Leaves the forgotten partitions out. Nothing is missed: the new watch begins before the old one ends.
    fn renumber(&mut self, shared: &Shared) {
        let old_watch = self.watch.take();
        let mut old_numbers = Vec::with_capacity(self.partitions.len());
        let partitions = std::mem::take(&mut self.partitions);
        for (number, mut partition) in partitions.into_iter().enumerate() {
            if partition.stage != Stage::Forgotten {
                partition.watched = None;
                old_numbers.push(u32::try_from(number).unwrap_or(u32::MAX));
                self.partitions.push(partition);
            }
        }
        let new_number = |old: u32| {
            old_numbers
                .binary_search(&old)
                .ok()
                .and_then(|new| u32::try_from(new).ok())
        };
        self.active = self.active.iter().filter_map(|old| new_number(*old)).collect();
        self.quiet = self.quiet.iter().filter_map(|old| new_number(*old)).collect();
        let grown: Vec<u32> = {
            self.start_watching(&shared.broker);
            old_watch
                .map(|watch| watch.take())
                .unwrap_or_default()
                .into_iter()
                .filter_map(new_number)
                .collect()
        };
        for number in grown {
            self.activate(number);
        }
        let Self {
            by_name,
            partitions,
            hash,
            ..
        } = self;
        let hash_of = |number: &u32| {
            partitions
                .get(index(*number))
                .map_or(0, |partition| name_hash(hash, &partition.topic, partition.number))
        };
        by_name.clear();
        for number in 0..u32::try_from(partitions.len()).unwrap_or(u32::MAX) {
            by_name.insert_unique(hash_of(&number), number, hash_of);
        }
    }
}

impl TopicKey {
    /// The error for a topic that is not there.
    fn unknown(&self) -> ErrorCode {
        if self.id.is_zero() {
            ErrorCode::UnknownTopicOrPartition
        } else {
            ErrorCode::UnknownTopicId
        }
    }
}

impl Partition {
    pub(crate) fn fetch_offset(&self) -> i64 {
        self.fetch_offset
    }

    fn resolve(&mut self, shared: &Shared) {
        let topics = shared.broker.topics();
        let topic = if self.topic.id.is_zero() {
            topics.named(&self.topic.name)
        } else {
            topics.with_id(TopicId(self.topic.id.into()))
        };
        self.log = topic
            .ok_or_else(|| self.topic.unknown())
            .and_then(|topic: Arc<_>| {
                let number = u32::try_from(self.number).ok();
                number
                    .and_then(|number| topic.log(number))
                    .ok_or(ErrorCode::UnknownTopicOrPartition)
            });
    }

    fn readable(&self, shared: &Shared) -> Result<ReadFrom, ErrorCode> {
        let log = self.log?;
        shared.check_leader_epoch(self.leader_epoch)?;
        let offset = u64::try_from(self.fetch_offset).map_err(|_| ErrorCode::OffsetOutOfRange)?;
        Ok(ReadFrom {
            log,
            offset: Offset(offset),
            bytes_max: self.bytes_max,
        })
    }
}

fn name_hash(hash: &RandomState, topic: &TopicKey, partition: i32) -> u64 {
    hash.hash_one((topic, partition))
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn wire(offset: Offset) -> i64 {
    i64::try_from(offset.0).unwrap_or(i64::MAX)
}
