//! Batches of several logs are stored once, also when segments are rewritten.

use std::collections::BTreeMap;

use proptest::prelude::*;
use stafett_journal::simulated::SimulatedDisk;
use stafett_journal::{
    Append, BatchFrame, DiskJournal, Frame, Journal, LogSpec, Metrics, Outcome, Selection, StateWait, Target,
};
use stafett_model::{LogId, Offset};

use crate::support::{SEGMENT_BYTES, Seen, batch, more, read_all, rewriting};

/// A journal, and the expected contents of its logs.
struct Bench {
    disk: SimulatedDisk,
    journal: DiskJournal,
    logs: Vec<LogId>,
    expected: BTreeMap<LogId, Vec<Seen>>,
    /// Next offset of each log.
    next: BTreeMap<LogId, u64>,
    count: u32,
}

fn open(disk: &SimulatedDisk) -> DiskJournal {
    DiskJournal::open_on(disk.storage(), rewriting(100 << 10), Metrics::new()).unwrap()
}

impl Bench {
    fn new(logs: u32) -> Self {
        let disk = SimulatedDisk::new();
        let journal = open(&disk);
        let first = journal.allocate(logs);
        let mut bench = Self {
            disk,
            journal,
            logs: (first.0..first.0 + u64::from(logs)).map(LogId).collect(),
            expected: BTreeMap::new(),
            next: BTreeMap::new(),
            count: 0,
        };
        bench
            .expected
            .extend(bench.logs.iter().map(|log| (*log, Vec::new())));
        bench.next.extend(bench.logs.iter().map(|log| (*log, 0)));
        let (count, spec) = (logs, LogSpec::default());
        bench.control(Frame::CreateLogs { first, count, spec });
        bench
    }

    fn control(&self, frame: Frame) {
        let append = Append::state([frame], StateWait::Synced);
        self.append(append);
    }

    fn append(&self, append: Append) {
        let ticket = self.journal.append(vec![append]);
        self.journal.pump();
        let outcomes = ticket.wait();
        assert!(
            matches!(outcomes.as_slice(), [Outcome::Committed(_)]),
            "{outcomes:?}"
        );
    }

    /// Appends a batch of three records to some logs, each of which gets all of it or a part.
    fn put(&mut self, targets: &[(usize, Selection)], bytes: usize) {
        let values: Vec<String> = (0..3)
            .map(|_| {
                self.count += 1;
                format!("{} {}", self.count, "v".repeat(bytes / 3))
            })
            .collect();
        let mut frame = BatchFrame {
            body: batch(&values.iter().map(String::as_str).collect::<Vec<_>>()),
            targets: Vec::new().into(),
        };
        for (log, records) in targets {
            let log = self.logs[*log];
            let Some(held) = self.expected.get_mut(&log) else {
                continue;
            };
            let part = match records {
                Selection::All => &values[..],
                Selection::Range { first, count } => &values[*first as usize..(first + count) as usize],
            };
            let next = self.next.get_mut(&log).unwrap();
            held.extend((*next..).zip(part.iter().cloned()));
            *next += part.len() as u64;
            let records = *records;
            frame.targets.push(Target { log, records });
        }
        if !frame.targets.is_empty() {
            self.append(Append {
                frames: [Frame::Batch(frame)].into_iter().collect(),
                ..Append::default()
            });
        }
    }

    fn truncate(&mut self, log: usize, percent: u64) {
        let log = self.logs[log];
        let Some(held) = self.expected.get_mut(&log) else {
            return;
        };
        let before = self.next[&log] * percent / 100;
        held.retain(|(at, _)| *at >= before);
        let before = Offset(before);
        self.control(Frame::Truncate { log, before });
    }

    fn delete(&mut self, log: usize) {
        let log = self.logs[log];
        if self.expected.remove(&log).is_some() {
            self.control(Frame::DeleteLogs { first: log, count: 1 });
        }
    }

    fn rewrite(&self) -> usize {
        self.journal.checkpoint();
        self.journal.rewrite()
    }

    /// Restarts the journal, optionally without the sidecars of its rewritten segments, which are then
    /// rebuilt.
    fn reopen(&mut self, without_sidecars: bool) {
        self.journal.close();
        self.disk.kill();
        if without_sidecars {
            for name in self.files("sorted-", ".idx") {
                self.disk.storage().remove(&name).unwrap();
            }
        }
        self.journal = open(&self.disk);
        assert!(self.journal.report().clean);
    }

    fn files(&self, start: &str, end: &str) -> Vec<String> {
        let names = self.disk.names().into_iter();
        names
            .filter(|name| name.starts_with(start) && name.ends_with(end))
            .collect()
    }

    fn bytes(&self, start: &str) -> usize {
        let files = self.files(start, ".seg").into_iter();
        files.map(|name| self.disk.contents(&name).unwrap().len()).sum()
    }

    fn check(&self) {
        for (log, expected) in &self.expected {
            let read = read_all(&self.journal, *log, 5000).unwrap();
            let differ = read.iter().zip(expected).position(|(read, held)| read != held);
            assert_eq!(differ, None, "{log} differs");
            assert_eq!(read.len(), expected.len(), "{log}");
        }
        assert_eq!(self.journal.scrub(), 0);
    }
}

const ALL: Selection = Selection::All;

fn part(first: u32, count: u32) -> Selection {
    Selection::Range { first, count }
}

#[test]
fn what_logs_share_lies_once_in_what_a_merge_writes() {
    let mut bench = Bench::new(30);
    for round in 0..60 {
        // Two sets of logs that share everything, in parts or whole; between them logs that share next to
        // nothing.
        let half = [(0, ALL), (9, part(1, 2)), (20, ALL), (28, part(0, 1))];
        bench.put(&half, 3000);
        bench.put(&[(4, ALL), (15, ALL), (29, ALL)], 3000);
        bench.put(&[(5, ALL)], 1500);
        bench.put(&[(27, ALL)], 1500);
        if round % 20 == 3 {
            bench.put(&[(5, ALL), (27, ALL), (0, ALL)], 300);
        }
    }
    bench.check();
    let sealed = bench.files("arrival-", ".idx").len();
    assert!(bench.rewrite() > 0);
    let merged = (sealed - bench.files("arrival-", ".idx").len()) * SEGMENT_BYTES as usize;
    let sorted = bench.bytes("sorted-");
    assert!(merged > 200 << 10, "{merged} bytes were rewritten");
    assert!(sorted < merged * 21 / 20, "{sorted} bytes for {merged}");
    bench.check();
    for without_sidecars in [false, true] {
        bench.reopen(without_sidecars);
        bench.check();
    }
}

#[test]
fn a_shared_batch_is_dead_when_all_of_its_logs_are_done_with_it() {
    let mut bench = Bench::new(8);
    let targets: Vec<_> = (0..8).map(|log| (log, ALL)).collect();
    for _ in 0..80 {
        bench.put(&targets, 3000);
    }
    bench.put(&[(0, ALL)], 10);
    bench.rewrite();
    let before = bench.bytes("sorted-");
    assert!(before > 100 << 10, "{before}");
    (0..7).for_each(|log| bench.truncate(log, 100));
    assert_eq!(bench.rewrite(), 0, "one log still has it all");
    bench.check();
    bench.truncate(7, 90);
    assert!(bench.rewrite() > 0);
    bench.check();
    let after = bench.bytes("sorted-");
    assert!(after < before / 2, "{after} of {before} bytes are left");
    bench.reopen(true);
    bench.check();
}

#[test]
fn rewriting_ends_where_a_large_batch_is_truncated_in_its_middle() {
    let mut bench = Bench::new(2);
    for _ in 0..6 {
        bench.put(&[(0, ALL)], 50_000);
        bench.put(&[(1, ALL)], 1_000);
    }
    // The last batch of log 0 stays whole for the sake of its last record, though most of it is dead.
    let last = bench.next[&bench.logs[0]] - 1;
    bench.truncate(0, last * 100 / (last + 1) + 1);
    bench.rewrite();
    assert_eq!(bench.rewrite(), 0);
    bench.check();
    bench.reopen(true);
    bench.rewrite();
    bench.check();
}

#[derive(Debug, Clone)]
enum Op {
    Put {
        targets: Vec<(usize, Selection)>,
        bytes: usize,
    },
    Truncate {
        log: usize,
        percent: u64,
    },
    Delete {
        log: usize,
    },
    Rewrite,
    Reopen {
        without_sidecars: bool,
    },
}

const LOGS: usize = 7;

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let records = prop_oneof![
        3 => Just(ALL),
        1 => (0..3_u32).prop_flat_map(|first| (Just(first), 1..4 - first)).prop_map(|(first, count)| part(first, count)),
    ];
    let targets = prop_oneof![
        2 => prop::collection::vec((0..LOGS, records.clone()), 1..2),
        3 => prop::collection::vec((0..LOGS, records), 2..5),
    ];
    let bytes = prop_oneof![6 => 0..9000_usize, 1 => 17_000..30_000_usize];
    let op = prop_oneof![
        24 => (targets, bytes).prop_map(|(targets, bytes)| Op::Put { targets, bytes }),
        2 => (0..LOGS, 0..101_u64).prop_map(|(log, percent)| Op::Truncate { log, percent }),
        1 => (0..LOGS).prop_map(|log| Op::Delete { log }),
        2 => Just(Op::Rewrite),
        1 => any::<bool>().prop_map(|without_sidecars| Op::Reopen { without_sidecars }),
    ];
    prop::collection::vec(op, 20..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: more(60, 2000), ..ProptestConfig::default() })]

    #[test]
    fn rewriting_never_changes_what_is_read(ops in ops()) {
        let mut bench = Bench::new(u32::try_from(LOGS).unwrap());
        for op in ops {
            match op {
                Op::Put { targets, bytes } => bench.put(&targets, bytes),
                Op::Truncate { log, percent } => bench.truncate(log, percent),
                Op::Delete { log } => bench.delete(log),
                Op::Rewrite => drop(bench.rewrite()),
                Op::Reopen { without_sidecars } => bench.reopen(without_sidecars),
            }
        }
        bench.check();
        bench.rewrite();
        bench.check();
        bench.reopen(true);
        bench.check();
    }
}
