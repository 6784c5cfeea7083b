//! The partitions of a fetch, and the subset that has to be read.
//!
//! Without a session a fetch lives for one request. A session's fetch is kept between requests, and a request
//! then costs the number of changes, not the size of the session:
//!
//! ```text
//!            read: nothing there                answered
//!   Active ─────────────────────▶ Quiet ─────────────────────▶ Idle
//!     ▲  │ read: records or an error: stays, and is read again next time     │
//!     └──┴──────────────── the log grew, or the client asked again ◀─────────┘
//! ```
//!
//! Invariant: a partition that is not active is watched, and the watch began before its last read. So no
//! visible record is missed.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use smallvec::SmallVec;
use stafett_access::Caller;
use stafett_broker::Broker;
use stafett_kafka_wire::ErrorCode;
use stafett_model::Offset;
use stafett_topics::{LogSlice, ReadError, ReadRequest, Visibility, Watch};

use crate::error;
use crate::fetch_partition::{
    Partition, PartitionReplies, PartitionReply, PartitionRequest, Stage, UNREPORTED,
};
use crate::request_reader::TopicKey;

/// Maximum forgotten partitions in a session on top of the number of its live ones.
const FORGOTTEN_SLACK: usize = 64;

#[derive(Debug)]
pub(crate) struct FetchState {
    /// Partitions by number; the watch uses these numbers.
    partitions: SmallVec<[Partition; 1]>,
    /// Numbers by name; only in a session.
    by_name: HashTable<u32>,
    hash: RandomState,
    live: usize,
    active: SmallVec<[u32; 4]>,
    quiet: Vec<u32>,
    watch: Option<Watch>,
    /// True if it reads `__consumer_offsets`, which is written when it is read.
    reads_commits: bool,
    /// Visibility of the last read.
    visibility: Visibility,
    /// Count of topic deletions seen so far.
    deletions: u64,
}

/// Result of one read of the active partitions.
#[derive(Debug, Default)]
pub(crate) struct ReadRound {
    results: PartitionReplies,
    pub bytes: usize,
    pub has_error: bool,
}

impl FetchState {
    pub(crate) fn new(deletions: u64) -> Self {
        Self {
            partitions: SmallVec::new(),
            by_name: HashTable::new(),
            hash: RandomState::new(),
            live: 0,
            active: SmallVec::new(),
            quiet: Vec::new(),
            watch: None,
            reads_commits: false,
            visibility: Visibility::Stored,
            deletions,
        }
    }

    /// Returns the number of partitions that are not forgotten.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Reserves memory for `partitions` more partitions.
    pub(crate) fn reserve(&mut self, partitions: usize) {
        self.partitions.reserve_exact(partitions);
        self.active.reserve_exact(partitions);
    }

    /// Adds a partition to a fetch without a session.
    pub(crate) fn add(&mut self, broker: &Broker, topic: &TopicKey, asked: &PartitionRequest) {
        let number = u32::try_from(self.partitions.len()).unwrap_or(u32::MAX);
        let mut partition = Partition::new(topic, asked);
        self.reads_commits |= partition.resolve(broker);
        self.partitions.push(partition);
        self.active.push(number);
        self.live += 1;
    }

    /// Adds a partition to a session, or changes its fetch position.
    pub(crate) fn put(&mut self, broker: &Broker, topic: &TopicKey, asked: &PartitionRequest) {
        let Some(number) = self.find(topic, asked.partition) else {
            let number = u32::try_from(self.partitions.len()).unwrap_or(u32::MAX);
            self.add(broker, topic, asked);
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
            self.watch_one(broker, number);
            return;
        };
        let Some(partition) = self.partitions.get_mut(index(number)) else {
            return;
        };
        if partition.stage == Stage::Forgotten {
            partition.stage = Stage::Idle;
            partition.last_reported = (UNREPORTED, UNREPORTED);
            self.live += 1;
        }
        partition.fetch_offset = asked.fetch_offset;
        partition.bytes_max = usize::try_from(asked.bytes_max).unwrap_or(0);
        partition.leader_epoch = asked.leader_epoch;
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

    /// Completes the changes that a request made to a session.
    pub(crate) fn changed(&mut self, broker: &Broker, deletions: u64) {
        if self.partitions.len() > 2 * self.live + FORGOTTEN_SLACK {
            self.renumber(broker);
        }
        if deletions != self.deletions {
            self.deletions = deletions;
            self.activate_all();
        }
    }

    /// Starts to watch all logs. Returns true if the watch is new: logs may have grown since they were read.
    pub(crate) fn start_watching(&mut self, broker: &Broker) -> bool {
        if self.watch.is_some() {
            return false;
        }
        self.watch = Some(broker.catalog().watch());
        for number in 0..self.partitions.len() {
            self.watch_one(broker, u32::try_from(number).unwrap_or(u32::MAX));
        }
        true
    }

    /// Takes the watch out, to wait for it.
    pub(crate) fn take_watch(&mut self) -> Option<Watch> {
        self.watch.take()
    }

    pub(crate) fn set_watch(&mut self, watch: Option<Watch>) {
        self.watch = watch;
    }

    /// Activates the partitions whose logs have grown.
    pub(crate) fn notice_growth(&mut self) {
        let grown = self.watch.as_ref().map(Watch::take).unwrap_or_default();
        for number in grown {
            self.activate(number);
        }
    }

    /// Builds the read of all active partitions in order, without those that fail beforehand.
    pub(crate) fn request(
        &mut self,
        broker: &Broker,
        caller: &Caller,
        bytes_max: usize,
        visibility: Visibility,
    ) -> ReadRequest {
        self.visibility = visibility;
        let mut logs = Vec::with_capacity(self.active.len());
        let mut active = std::mem::take(&mut self.active);
        active.retain(|number| {
            let Some(partition) = self.partitions.get_mut(index(*number)) else {
                return false;
            };
            if partition.stage != Stage::Active {
                return false;
            }
            if partition.log.is_err() {
                self.reads_commits |= partition.resolve(broker);
                self.watch_one(broker, *number);
            }
            let Some(partition) = self.partitions.get_mut(index(*number)) else {
                return false;
            };
            let readable = partition.readable(broker, caller, visibility);
            partition.failed = readable.err();
            logs.extend(readable);
            true
        });
        self.active = active;
        ReadRequest {
            logs,
            bytes_max,
            first_batch_whole: true,
        }
    }

    /// True if pending commits must be written to `__consumer_offsets` before the read.
    pub(crate) fn reads_commits(&self) -> bool {
        self.reads_commits
    }

    /// Takes the results of the read of the active partitions.
    pub(crate) fn on_read(&mut self, read: Vec<Result<LogSlice, ReadError>>) -> ReadRound {
        let mut read = read.into_iter();
        let mut round = ReadRound {
            results: SmallVec::with_capacity(self.active.len()),
            ..ReadRound::default()
        };
        let mut active = std::mem::take(&mut self.active);
        active.retain(|number| {
            let failed = self
                .partitions
                .get(index(*number))
                .and_then(|partition| partition.failed);
            let result = match failed {
                Some(code) => Err(code),
                None => match read.next() {
                    Some(Ok(run)) => Ok(run),
                    Some(Err(error)) => Err(error::read(&error)),
                    None => Err(ErrorCode::KafkaStorageError),
                },
            };
            self.is_active_after(*number, result, &mut round)
        });
        self.active = active;
        round
    }

    /// Adds a result to the round and returns true. Returns false if a watched partition has nothing new: it
    /// becomes quiet until its log grows.
    fn is_active_after(
        &mut self,
        number: u32,
        result: Result<LogSlice, ErrorCode>,
        round: &mut ReadRound,
    ) -> bool {
        let is_watching = self.watch.is_some();
        let Some(partition) = self.partitions.get_mut(index(number)) else {
            return false;
        };
        match &result {
            Ok(run) => {
                partition.bounds = run.bounds;
                let is_at_end = run.bounds.is_none_or(|bounds| match self.visibility {
                    Visibility::Stored => run.next >= bounds.end,
                    // The end of a transaction is a batch, so the log grows as more becomes stable.
                    Visibility::Committed => run.next >= bounds.stable,
                });
                if is_watching && run.bytes == 0 && is_at_end {
                    partition.stage = Stage::Quiet;
                    self.quiet.push(number);
                    return false;
                }
                round.bytes += run.bytes;
            }
            Err(code) => {
                partition.bounds = None;
                if matches!(
                    code,
                    ErrorCode::UnknownTopicOrPartition | ErrorCode::NotLeaderOrFollower
                ) {
                    partition.log = Err(partition.topic.unknown());
                }
                round.has_error = true;
            }
        }
        round.results.push(PartitionReply::new(number, result));
        true
    }

    /// Returns the replies for a round: of all partitions, or of those with news. Partitions that had records
    /// are read last next time.
    pub(crate) fn replies(&mut self, round: ReadRound, all: bool) -> PartitionReplies {
        let mut results = round.results;
        let numbers = |with_records| {
            let wanted = results
                .iter()
                .filter(move |reply| reply.has_records() == with_records);
            wanted.map(|reply| reply.number)
        };
        self.active.clear();
        self.active.extend(numbers(false).chain(numbers(true)));
        for number in std::mem::take(&mut self.quiet) {
            let Some(partition) = self.partitions.get_mut(index(number)) else {
                continue;
            };
            if partition.stage == Stage::Quiet {
                partition.stage = Stage::Idle;
                let result = Ok(LogSlice::default());
                results.push(PartitionReply::new(number, result));
            }
        }
        // In the order of the request, so that the partitions of a topic are adjacent.
        results.sort_unstable_by_key(|reply| reply.number);
        results.retain(|reply| {
            let Some(partition) = self.partitions.get_mut(index(reply.number)) else {
                return false;
            };
            let now = partition.bounds.map_or((UNREPORTED, UNREPORTED), |bounds| {
                (wire(bounds.end), wire(bounds.start))
            });
            if !all && reply.result.is_ok() && !reply.has_records() && now == partition.last_reported {
                return false;
            }
            partition.last_reported = now;
            (reply.end, reply.start) = now;
            reply.stable = partition.bounds.map_or(UNREPORTED, |bounds| wire(bounds.stable));
            true
        });
        results
    }

    /// Returns the partition of a reply.
    pub(crate) fn partition(&self, reply: &PartitionReply) -> Option<&Partition> {
        self.partitions.get(index(reply.number))
    }

    fn activate(&mut self, number: u32) {
        let Some(partition) = self.partitions.get_mut(index(number)) else {
            return;
        };
        if matches!(partition.stage, Stage::Idle | Stage::Quiet) {
            partition.stage = Stage::Active;
            self.active.push(number);
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
            && broker.catalog().watch_log(watch, log, number)
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

    /// Drops forgotten partitions and renumbers the others. The new watch begins before the old one ends, so
    /// no growth is missed.
    fn renumber(&mut self, broker: &Broker) {
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
            self.start_watching(broker);
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

fn name_hash(hash: &RandomState, topic: &TopicKey, partition: i32) -> u64 {
    hash.hash_one((topic, partition))
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn wire(offset: Offset) -> i64 {
    i64::try_from(offset.0).unwrap_or(i64::MAX)
}
