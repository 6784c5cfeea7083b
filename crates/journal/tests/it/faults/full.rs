//! The disk is full: appends are refused, and everything that frees space goes on.

use bytes::Bytes;
use stafett_journal::disk::RewritePolicy;
use stafett_journal::simulated::SimulatedDisk;
use stafett_journal::{
    Append, DiskJournal, Frame, Journal, LogSpec, Metrics, Outcome, Refusal, Settings, StateWait,
};
use stafett_model::{Durability, LogId, Offset};

use super::ledger::Holding;
use super::run::{put, settings};
use crate::support::{batch, read_all};

const SEGMENT_BYTES: u32 = 64 << 10;
/// What stays free for sidecars, checkpoints and rewriting.
const FREE_BYTES: u64 = 512 << 10;
const CAPACITY_BYTES: u64 = FREE_BYTES + (4 << 20);

fn open(disk: &SimulatedDisk, boots: u8) -> DiskJournal {
    let rewrite = RewritePolicy {
        young: std::time::Duration::ZERO,
        merge_bytes: 64 << 10,
        dead_bytes_tolerated: 0,
        ..RewritePolicy::default()
    };
    let settings = Settings {
        segment_bytes: SEGMENT_BYTES,
        disk_free_bytes_min: FREE_BYTES,
        rewrite,
        rewrite_bytes_per_second: u64::MAX,
        ..settings(boots)
    };
    DiskJournal::open_on(disk.storage(), settings, Metrics::new()).unwrap()
}

fn append(journal: &DiskJournal, append: Append) -> Outcome {
    let ticket = journal.append(vec![append]);
    journal.pump();
    ticket.wait().remove(0)
}

fn committed(journal: &DiskJournal, frame: Frame) {
    let outcome = append(journal, Append::state([frame], StateWait::Synced));
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    assert_eq!(journal.failure(), None);
}

fn create(journal: &DiskJournal, durability: Durability) -> LogId {
    let first = journal.allocate(1);
    let spec = LogSpec {
        durability,
        ..LogSpec::default()
    };
    committed(
        journal,
        Frame::CreateLogs {
            first,
            count: 1,
            spec,
        },
    );
    first
}

fn body(bytes: usize) -> Bytes {
    batch(&[&"x".repeat(bytes)])
}

/// Appends until that is refused; returns how often it was not.
fn fill(journal: &DiskJournal, log: LogId, bytes: usize) -> u64 {
    for count in 0.. {
        match append(journal, Append::batch(log, body(bytes))) {
            Outcome::Committed(_) => {}
            Outcome::Refused(Refusal::DiskFull) => return count,
            other => panic!("{other:?} {:?}", journal.failure()),
        }
        assert!(count < 10_000, "the disk never fills up");
    }
    0
}

#[test]
fn appends_are_refused_reads_go_on_and_space_makes_it_work_again() {
    for (level, bytes) in [
        (Durability::Sync, 900),
        (Durability::Os, 40_000),
        (Durability::Memory, 3000),
    ] {
        let disk = SimulatedDisk::new();
        disk.set_capacity_bytes(CAPACITY_BYTES);
        let journal = open(&disk, 1);
        let log = create(&journal, level);
        let count = fill(&journal, log, bytes);
        assert!(
            count * bytes as u64 > 600 << 10,
            "{count} batches of {bytes} bytes fill the disk"
        );
        assert_eq!(read_all(&journal, log, 50_000).unwrap().len() as u64, count);
        // Those that were refused took no offset, and their number does not matter.
        for _ in 0..100 {
            let refused = append(&journal, Append::batch(log, body(bytes)));
            assert_eq!(refused, Outcome::Refused(Refusal::DiskFull));
        }
        for n in 0..50 {
            committed(&journal, Frame::State(put(3, "key", &n.to_string())));
        }
        disk.set_capacity_bytes(2 * CAPACITY_BYTES);
        let Outcome::Committed(placed) = append(&journal, Append::batch(log, body(bytes))) else {
            panic!("there is space again");
        };
        assert_eq!(placed[0].base, Offset(count));
        journal.close();
        assert_eq!(journal.failure(), None);
        drop(journal);
        disk.kill();
        let journal = open(&disk, 1);
        assert_eq!(read_all(&journal, log, 50_000).unwrap().len() as u64, count + 1);
        let state = Holding::state_of(&journal).unwrap();
        assert_eq!(state[&(3, "key".to_owned())].0.as_deref(), Some("49"));
    }
}

#[test]
fn space_is_short_before_anything_is_refused_and_there_is_enough_again() {
    let disk = SimulatedDisk::new();
    disk.set_capacity_bytes(CAPACITY_BYTES);
    let journal = open(&disk, 1);
    let space = journal.space();
    let log = create(&journal, Durability::Sync);
    assert!(!space.is_short());
    let mut taken_since = 0;
    loop {
        match append(&journal, Append::batch(log, body(900))) {
            Outcome::Committed(_) => taken_since += usize::from(space.is_short()),
            Outcome::Refused(Refusal::DiskFull) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(
        taken_since > 50,
        "only {taken_since} batches found room behind the warning"
    );
    assert!(space.is_short());
    disk.set_capacity_bytes(2 * CAPACITY_BYTES);
    journal.pump();
    assert!(!space.is_short());
}

#[test]
fn truncation_and_deletion_free_space_on_a_full_disk() {
    let disk = SimulatedDisk::new();
    disk.set_capacity_bytes(CAPACITY_BYTES);
    let journal = open(&disk, 1);
    let (kept, gone) = (
        create(&journal, Durability::Sync),
        create(&journal, Durability::Sync),
    );
    for _ in 0..20 {
        append(&journal, Append::batch(kept, body(500)));
    }
    let first = fill(&journal, gone, 2000);
    journal.checkpoint();
    for round in 0..6 {
        match round % 2 {
            0 => committed(
                &journal,
                Frame::Truncate {
                    log: gone,
                    before: Offset(first * (round + 1)),
                },
            ),
            _ => journal.enforce_retention(),
        }
        journal.checkpoint();
        assert!(journal.rewrite() > 0 || round > 0);
        journal.pump();
        let more = fill(&journal, gone, 2000);
        assert!(
            round % 2 == 1 || more > first / 2,
            "{more} batches found room of {first}"
        );
        assert_eq!(read_all(&journal, kept, 50_000).unwrap().len(), 20);
    }
    committed(
        &journal,
        Frame::DeleteLogs {
            first: gone,
            count: 1,
        },
    );
    journal.checkpoint();
    assert!(journal.rewrite() > 0);
    assert!(fill(&journal, kept, 2000) > first / 2);
}

#[test]
fn a_staged_append_never_meets_a_full_disk() {
    for bytes in [
        300, 2000, 14_000, 16_300, 16_500, 21_000, 29_000, 31_000, 45_000, 59_000,
    ] {
        let disk = SimulatedDisk::new();
        disk.set_capacity_bytes(CAPACITY_BYTES);
        let journal = open(&disk, 1);
        let log = create(&journal, Durability::Sync);
        let mut tickets = Vec::new();
        loop {
            let ticket = journal.append(vec![Append::batch(log, body(bytes))]);
            tickets.push(ticket);
            if tickets.len() as u64 * bytes as u64 > 6 << 20 {
                break;
            }
        }
        journal.pump();
        assert_eq!(journal.failure(), None, "with batches of {bytes} bytes");
        let mut committed = 0;
        for ticket in tickets {
            match &ticket.wait()[0] {
                Outcome::Committed(_) => committed += 1,
                Outcome::Refused(Refusal::DiskFull) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(read_all(&journal, log, 50_000).unwrap().len(), committed);
    }
}

#[test]
fn a_full_disk_can_be_opened_again_and_again() {
    let disk = SimulatedDisk::new();
    disk.set_capacity_bytes(CAPACITY_BYTES);
    let journal = open(&disk, 1);
    let log = create(&journal, Durability::Sync);
    let count = fill(&journal, log, 1500);
    drop(journal);
    disk.kill();
    // Others take what was kept free.
    disk.set_capacity_bytes(disk.used_bytes() + 200_000);
    for round in 0..12 {
        let journal = open(&disk, 1);
        committed(&journal, Frame::State(put(3, "round", &round.to_string())));
        // What earlier starts wrote is in the checkpoint: their segments can be used again.
        journal.checkpoint();
        journal.rewrite();
        assert_eq!(read_all(&journal, log, 50_000).unwrap().len() as u64, count);
        if round % 2 == 0 {
            journal.close();
        } else {
            disk.kill();
        }
        drop(journal);
        disk.kill();
    }
    assert!(disk.used_bytes() < CAPACITY_BYTES + u64::from(SEGMENT_BYTES));
}
