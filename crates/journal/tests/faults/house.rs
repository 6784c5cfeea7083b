//! Retention and what it counts.

use bytes::Bytes;
use stafett_journal::simulated::SimulatedDisk;
use stafett_journal::{Append, DiskJournal, Frame, Journal, LogSpec, Outcome, Retention, StateWait};
use stafett_model::{LogId, Offset};

use crate::run::open;
use crate::support::batch;

fn append(journal: &DiskJournal, append: Append) {
    let ticket = journal.append(vec![append]);
    journal.pump();
    let outcomes = ticket.wait();
    assert!(
        matches!(outcomes.as_slice(), [Outcome::Committed(_)]),
        "{outcomes:?}"
    );
}

/// A log with a bound and batches of about 1,000 bytes.
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
