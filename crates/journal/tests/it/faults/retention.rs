//! Retention, and the counts that it uses.

use bytes::Bytes;
use stafett_journal::disk::RewritePolicy;
use stafett_journal::simulated::SimulatedDisk;
use stafett_journal::{
    Append, DiskJournal, Frame, Journal, LogSpec, Metrics, Outcome, Refusal, Retention, Settings, StateWait,
};
use stafett_model::{LogId, Offset};

use super::ledger::Holding;
use super::run::{SEGMENT_BYTES, open, put, settings};
use crate::support::{batch, listed, read_all};

fn append(journal: &DiskJournal, append: Append) {
    let ticket = journal.append(vec![append]);
    journal.pump();
    let outcomes = ticket.wait();
    assert!(
        matches!(outcomes.as_slice(), [Outcome::Committed(_)]),
        "{outcomes:?}"
    );
}

/// Creates a log with a bound and batches of about 1,000 bytes.
fn filled(journal: &DiskJournal, bytes: u64, batches: usize) -> LogId {
    let first = journal.allocate(1);
    let retention = Retention {
        age: None,
        bytes: Some(bytes),
    };
    let spec = LogSpec {
        retention,
        ..LogSpec::default()
    };
    append(
        journal,
        Append::state(
            [Frame::CreateLogs {
                first,
                count: 1,
                spec,
            }],
            StateWait::Synced,
        ),
    );
    let body: Bytes = batch(&[&"x".repeat(900)]);
    for _ in 0..batches {
        append(journal, Append::batch(first, body.clone()));
    }
    first
}

#[test]
fn what_retention_freed_stays_freed_behind_a_checkpoint() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk, 1).unwrap();
    let log = filled(&journal, 30_000, 100);
    journal.checkpoint();
    journal.enforce_retention();
    journal.pump();
    let bounds = journal.bounds(log).unwrap();
    assert!(bounds.start > Offset(50) && bounds.bytes >= 30_000, "{bounds:?}");
    journal.checkpoint();
    disk.kill();
    drop(journal);
    let journal = open(&disk, 1).unwrap();
    assert_eq!(journal.bounds(log).unwrap(), bounds);
}

/// The sealed segments of a quiet log are freed just as a batch arrives.
#[test]
fn a_batch_that_is_not_written_yet_is_not_freed_with_those_before_it() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk, 1).unwrap();
    let log = filled(&journal, 0, 3);
    filled(&journal, u64::MAX, 100);
    journal.checkpoint();
    let arriving = journal.append(vec![Append::batch(log, batch(&["new"]))]);
    journal.enforce_retention();
    journal.pump();
    assert!(matches!(arriving.wait()[..], [Outcome::Committed(_)]));
    assert_eq!(journal.bounds(log).unwrap().start, Offset(3));
    let read = read_all(&journal, log, 5000).unwrap();
    assert_eq!(read, [(3, "new".to_owned())]);
}

#[test]
fn what_was_truncated_does_not_count_for_retention() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk, 1).unwrap();
    let log = filled(&journal, 50_000, 100);
    let truncate = Frame::Truncate {
        log,
        before: Offset(60),
    };
    append(&journal, Append::state([truncate], StateWait::Synced));
    journal.enforce_retention();
    let bounds = journal.bounds(log).unwrap();
    assert_eq!(bounds.start, Offset(60), "{bounds:?}");
    assert!(bounds.bytes >= 35_000 && bounds.bytes < 60_000, "{bounds:?}");
}

/// A segment in the middle is mostly dead and is rewritten alone; later its neighbours are rewritten
/// together.
#[test]
fn a_log_stays_in_order_when_segments_are_rewritten_out_of_order() {
    let disk = SimulatedDisk::new();
    let policy = |merge_bytes| RewritePolicy {
        young: std::time::Duration::ZERO,
        merge_bytes,
        dead_bytes_tolerated: 0,
        ..RewritePolicy::default()
    };
    let open = |rewrite| {
        let settings = Settings {
            rewrite,
            rewrite_bytes_per_second: u64::MAX,
            ..settings(1)
        };
        DiskJournal::open_on(disk.storage(), settings, Metrics::new()).unwrap()
    };
    let journal = open(policy(u64::MAX));
    let [kept, gone] = [0, 0].map(|_| filled(&journal, u64::MAX, 0));
    let mut expected = Vec::new();
    for n in 0..90 {
        let value = format!("{n} {}", "x".repeat(900));
        let log = if (20..60).contains(&n) && n % 8 != 0 {
            gone
        } else {
            kept
        };
        append(&journal, Append::batch(log, batch(&[&value])));
        if log == kept {
            expected.push(value);
        }
    }
    append(
        &journal,
        Append::state(
            [Frame::DeleteLogs {
                first: gone,
                count: 1,
            }],
            StateWait::Synced,
        ),
    );
    let check = |journal: &DiskJournal| {
        let read = read_all(journal, kept, 5000).unwrap();
        assert_eq!(read, listed(expected.iter().map(String::as_str)));
    };
    journal.checkpoint();
    journal.rewrite();
    check(&journal);
    journal.close();
    drop(journal);
    let journal = open(policy(40_000));
    assert!(journal.rewrite() > 0);
    check(&journal);
}

#[test]
fn state_that_fits_into_no_segment_is_refused_and_nothing_of_its_append_is_stored() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk, 1).unwrap();
    let log = filled(&journal, u64::MAX, 1);
    for bytes in [SEGMENT_BYTES as usize, 10 * SEGMENT_BYTES as usize] {
        let large = Frame::State(put(3, "large", &"x".repeat(bytes)));
        let small = Frame::State(put(3, "small", "x"));
        let mut with_batch = Append::batch(log, batch(&["x"]));
        with_batch.frames.push(large.clone());
        for append in [Append::state([small, large], StateWait::Synced), with_batch] {
            let outcomes = journal.append(vec![append]).wait();
            assert!(
                matches!(outcomes.as_slice(), [Outcome::Refused(Refusal::TooLarge { .. })]),
                "{outcomes:?}"
            );
        }
    }
    // State that takes most of a segment does fit, regardless of the data before it.
    for n in 0..5 {
        let most = put(3, &n.to_string(), &"x".repeat(SEGMENT_BYTES as usize - 5000));
        append(&journal, Append::state([Frame::State(most)], StateWait::Synced));
    }
    assert_eq!(journal.bounds(log).unwrap().end, Offset(1));
    disk.kill();
    let state = Holding::state_of(&open(&disk, 1).unwrap()).unwrap();
    let keys: Vec<_> = state.keys().map(|(_, key)| key.as_str()).collect();
    assert_eq!(keys, ["0", "1", "2", "3", "4"]);
}

/// The names of replaced segments may reappear after a loss of power, but their contents are ignored.
#[test]
fn a_replaced_segment_does_not_come_back_with_the_power() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk, 1).unwrap();
    let log = filled(&journal, 1 << 40, 80);
    journal.checkpoint();
    assert!(journal.rewrite() > 0);
    journal.checkpoint();
    let held = read_all(&journal, log, 10_000).unwrap();
    disk.kill();
    drop(journal);
    let in_force = open(&disk.fork(), 1).unwrap().report().segments;
    for seed in 0..200 {
        let disk = disk.fork();
        disk.lose_power(seed);
        let journal = open(&disk, 2).unwrap();
        assert_eq!(journal.report().segments, in_force, "with seed {seed}");
        assert_eq!(read_all(&journal, log, 10_000).unwrap(), held);
    }
}
