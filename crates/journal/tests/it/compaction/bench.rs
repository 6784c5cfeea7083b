//! A journal with compacted logs, a clock that tests set, and a naive model of the records that stay.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use stafett_journal::disk::{Clock, CompactionSettings};
use stafett_journal::simulated::SimulatedDisk;
use stafett_journal::{
    Append, BatchFrame, Compaction, DiskJournal, Frame, Journal, LogSpec, Metrics, OpenError, Outcome,
    PlacedBatch, Selection, Settings, StateWait, Target,
};
use stafett_model::{BatchBuilder, Codec, LogId, Offset, ProducerId, Record, StoredRecord};

use crate::support;

/// Time for which tombstones are kept, in ms.
pub const KEPT_MS: i64 = 10_000;
/// Time at which tests begin, in ms since 1970.
pub const BEGIN_MS: i64 = 1_800_000_000_000;

pub type KeyValue = (Option<String>, Option<String>);

/// Compaction that begins as soon as anything is dirty.
pub fn eager() -> Compaction {
    Compaction {
        tombstones_kept: Duration::from_millis(KEPT_MS.unsigned_abs()),
        dirty_share_min: 0,
        ..Compaction::default()
    }
}

pub struct Bench {
    pub disk: SimulatedDisk,
    pub journal: Arc<DiskJournal>,
    pub now: Arc<AtomicI64>,
    pub map_bytes: usize,
    metrics: Registry,
}

impl Bench {
    pub fn new(map_bytes: usize) -> Self {
        Self::on(
            SimulatedDisk::new(),
            Arc::new(AtomicI64::new(BEGIN_MS)),
            map_bytes,
        )
    }

    pub fn on(disk: SimulatedDisk, now: Arc<AtomicI64>, map_bytes: usize) -> Self {
        Self::booted(disk, now, map_bytes, 1)
    }

    /// Starts after this many boots of the machine.
    pub fn booted(disk: SimulatedDisk, now: Arc<AtomicI64>, map_bytes: usize, boots: u8) -> Self {
        let (metrics, mut registry) = (Metrics::new(), Registry::default());
        metrics.register(&mut registry);
        let opened = DiskJournal::open_on(disk.storage(), settings(&now, map_bytes, boots), metrics);
        Self {
            journal: Arc::new(opened.unwrap()),
            disk,
            now,
            map_bytes,
            metrics: registry,
        }
    }

    /// Returns the value of a metric without labels.
    pub fn metric(&self, name: &str) -> i64 {
        let mut said = String::new();
        encode(&mut said, &self.metrics).unwrap();
        let mut values = said
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        values.next().unwrap()
    }

    /// Rewrites, and has what that leaves to do done: sidecars, and a checkpoint.
    pub fn rewrite(&self) {
        self.journal.rewrite();
        self.journal.pump();
        self.journal.checkpoint();
    }

    /// Restarts the program, after a kill or a clean stop.
    pub fn restart(self, is_killed: bool) -> Self {
        if is_killed {
            self.disk.kill();
        } else {
            self.journal.close();
        }
        let Self {
            disk,
            journal,
            now,
            map_bytes,
            ..
        } = self;
        drop(journal);
        Self::on(disk, now, map_bytes)
    }

    pub fn create(&self, spec: LogSpec) -> LogId {
        let first = self.journal.allocate(1);
        let create = Frame::CreateLogs {
            first,
            count: 1,
            spec,
        };
        self.store(Append::state([create], StateWait::Synced));
        first
    }

    pub fn compacted(&self, compaction: Compaction) -> LogId {
        self.create(LogSpec {
            compaction: Some(compaction),
            ..LogSpec::default()
        })
    }

    pub fn store(&self, append: Append) -> Outcome {
        let ticket = self.journal.append(vec![append]);
        self.journal.pump();
        ticket.wait().remove(0)
    }

    pub fn put(&self, log: LogId, batch: Bytes) -> PlacedBatch {
        support::placed(self.store(Append::batch(log, batch)))
    }

    /// Appends a batch to a log, and its records from index 1 on to another.
    pub fn put_shared(&self, log: LogId, other: LogId, batch: Bytes, records: u32) -> (Offset, Offset) {
        let all = Target {
            log,
            records: Selection::All,
        };
        let part = Target {
            log: other,
            records: Selection::Range {
                first: 1,
                count: records - 1,
            },
        };
        let frame = Frame::Batch(BatchFrame {
            body: batch,
            targets: [all, part].into_iter().collect(),
        });
        let append = Append {
            frames: [frame].into_iter().collect(),
            ..Append::default()
        };
        let Outcome::Committed(placed) = self.store(append) else {
            panic!("a shared batch is stored");
        };
        (placed[0].base, placed[1].base)
    }

    /// Seals everything by a restart, and compacts and merges until nothing is left to do.
    pub fn settle(self) -> Self {
        let bench = self.restart(false);
        bench.journal.checkpoint();
        bench.journal.rewrite();
        bench
    }

    pub fn advance(&self, ms: i64) {
        self.now.fetch_add(ms, Ordering::Relaxed);
    }

    pub fn now_ms(&self) -> i64 {
        self.now.load(Ordering::Relaxed)
    }

    pub fn read(&self, log: LogId) -> Vec<StoredRecord> {
        records(&self.journal, log)
    }
}

pub fn try_open(
    disk: &SimulatedDisk,
    now: &Arc<AtomicI64>,
    map_bytes: usize,
    boots: u8,
) -> Result<DiskJournal, OpenError> {
    DiskJournal::open_on(disk.storage(), settings(now, map_bytes, boots), Metrics::new())
}

fn settings(now: &Arc<AtomicI64>, map_bytes: usize, boots: u8) -> Settings {
    let now = Arc::clone(now);
    Settings {
        segment_bytes: 16 << 10,
        clock: Clock::new(move || now.load(Ordering::Relaxed)),
        boot: [boots; 16],
        compaction: CompactionSettings {
            map_bytes,
            ..CompactionSettings::default()
        },
        ..support::rewriting(40 << 10)
    }
}

/// Reads all records of a log, in small steps.
pub fn records(journal: &DiskJournal, log: LogId) -> Vec<StoredRecord> {
    let start = journal.bounds(log).unwrap().start;
    let (mut offset, mut all) = (start.0, Vec::new());
    loop {
        let run = support::read(journal, log, offset, 2000).unwrap();
        if run.pieces.is_empty() {
            assert_eq!(
                run.next,
                journal.bounds(log).unwrap().end,
                "a read stops short of the end"
            );
            return all;
        }
        assert!(run.next.0 > offset, "a read has to get further");
        for batch in support::batches(&run) {
            let read = stafett_model::records(&batch, 1 << 24)
                .unwrap()
                .map(Result::unwrap);
            all.extend(read.filter(|record| record.offset >= start));
        }
        offset = run.next.0;
    }
}

/// Builds a batch; each record has its own timestamp, from `timestamp` on.
pub fn batch(codec: Codec, records: &[KeyValue], timestamp: i64, producer: Option<(i64, i32)>) -> Bytes {
    let mut builder = BatchBuilder::new(codec);
    if let Some((id, sequence)) = producer {
        builder = builder.producer(ProducerId(id), 0, sequence);
    }
    for (timestamp, (key, value)) in (timestamp..).zip(records) {
        let record = Record {
            key: key.as_deref().map(str::as_bytes),
            value: value.as_deref().map(str::as_bytes),
            headers: &[],
            timestamp,
        };
        builder.push(&record).unwrap();
    }
    builder.finish().unwrap()
}

pub fn pair(key: &str, value: &str) -> KeyValue {
    (Some(key.to_owned()), Some(value.to_owned()))
}

pub fn tombstone(key: &str) -> KeyValue {
    (Some(key.to_owned()), None)
}

/// Records appended to a log, by offset.
#[derive(Debug, Clone, Default)]
pub struct Model {
    appended: BTreeMap<u64, (KeyValue, i64)>,
    /// Time of the first complete compaction behind a tombstone.
    cleaned: HashMap<u64, i64>,
    start: u64,
}

impl Model {
    pub fn append(&mut self, base: Offset, records: &[KeyValue], timestamp: i64) {
        for ((offset, timestamp), record) in (base.0..).zip(timestamp..).zip(records) {
            self.appended.insert(offset, (record.clone(), timestamp));
        }
    }

    pub fn truncate(&mut self, before: u64) {
        self.start = self.start.max(before);
        self.appended = self.appended.split_off(&self.start);
    }

    fn newest(&self) -> HashMap<&str, u64> {
        let keyed = self
            .appended
            .iter()
            .filter_map(|(at, ((key, _), _))| Some((key.as_deref()?, *at)));
        keyed.collect()
    }

    fn is_tombstone(&self, at: u64) -> bool {
        self.appended[&at].0.1.is_none()
    }

    /// Checks what holds at any time: nothing is changed or moved, and the newest of each key is there.
    pub fn check(&self, read: &[StoredRecord], now: i64) {
        let text = |bytes: &Option<Bytes>| bytes.as_ref().map(|it| String::from_utf8(it.to_vec()).unwrap());
        assert!(read.is_sorted_by(|one, next| one.offset < next.offset));
        for record in read {
            let stored = ((text(&record.key), text(&record.value)), record.timestamp);
            assert_eq!(
                self.appended.get(&record.offset.0),
                Some(&stored),
                "{}",
                record.offset
            );
        }
        let read: Vec<u64> = read.iter().map(|record| record.offset.0).collect();
        for (key, at) in self.newest() {
            let is_expired = self.is_tombstone(at) && self.appended[&at].1 + KEPT_MS <= now;
            assert!(
                is_expired || read.binary_search(&at).is_ok(),
                "the newest {key}, at {at}, is gone"
            );
        }
    }

    /// Checks what holds after everything was compacted: nothing else is there.
    pub fn check_settled(&mut self, read: &[StoredRecord], now: i64) {
        self.check(read, now);
        let read: Vec<u64> = read.iter().map(|record| record.offset.0).collect();
        let mut wanted: Vec<u64> = self.newest().into_values().collect();
        let is_due = |at: &u64| {
            self.cleaned
                .get(at)
                .is_some_and(|cleaned| cleaned + KEPT_MS <= now)
        };
        // Earlier passes may have made a tombstone's time begin earlier; then it is gone.
        let may_go = |at: &u64| self.is_tombstone(*at) && self.appended[at].1 + KEPT_MS <= now;
        wanted.retain(|at| !is_due(at) && (!may_go(at) || read.binary_search(at).is_ok()));
        wanted.sort_unstable();
        assert_eq!(read, wanted);
        for at in wanted {
            if self.is_tombstone(at) {
                self.cleaned.entry(at).or_insert(now);
            }
        }
    }
}
