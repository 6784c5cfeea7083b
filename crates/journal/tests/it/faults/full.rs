//! The disk is full: appends are refused, and everything that frees space continues.

use std::collections::BTreeMap;

use bytes::Bytes;
use stafett_journal::disk::RewritePolicy;
use stafett_journal::simulated::SimulatedDisk;
use stafett_journal::{
    Append, DiskJournal, Frame, Journal, LogSpec, Metrics, Outcome, Refusal, Settings, StateWait,
};
use stafett_model::{Durability, LogId, Offset};

use super::ledger::{Holding, Kept};
use super::run::{batch as numbered, delta, put, remove, settings};
use crate::support::{Seen, batch, more, read_all};

const SEGMENT_BYTES: u32 = 64 << 10;
/// Space left for sidecars, checkpoints and rewriting.
const FREE_BYTES: u64 = 512 << 10;
pub(super) const CAPACITY_BYTES: u64 = FREE_BYTES + (4 << 20);

pub(super) fn open(disk: &SimulatedDisk, boots: u8) -> DiskJournal {
    let rewrite = RewritePolicy {
        young: std::time::Duration::ZERO,
        merge_bytes: 64 << 10,
        dead_bytes_tolerated: 0,
        ..RewritePolicy::default()
    };
    open_with(disk, boots, rewrite)
}

fn open_with(disk: &SimulatedDisk, boots: u8, rewrite: RewritePolicy) -> DiskJournal {
    let settings = Settings {
        segment_bytes: SEGMENT_BYTES,
        disk_free_bytes_min: FREE_BYTES,
        rewrite,
        rewrite_bytes_per_second: u64::MAX,
        ..settings(boots)
    };
    let opened = DiskJournal::open_on(disk.storage(), settings, Metrics::new());
    opened.unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn append(journal: &DiskJournal, append: Append) -> Outcome {
    let ticket = journal.append(vec![append]);
    journal.pump();
    ticket.wait().remove(0)
}

fn committed(journal: &DiskJournal, frame: Frame) {
    let outcome = append(journal, Append::state([frame], StateWait::Synced));
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    assert_eq!(journal.failure(), None);
}

pub(super) fn create(journal: &DiskJournal, durability: Durability) -> LogId {
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

pub(super) fn body(bytes: usize) -> Bytes {
    batch(&[&"x".repeat(bytes)])
}

/// Appends until an append is refused; returns the number of successful ones.
pub(super) fn fill(journal: &DiskJournal, log: LogId, bytes: usize) -> u64 {
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

/// The refusal "out of sequence" has a producer begin another epoch and send all batches in flight again, also
/// those that are stored.
#[test]
fn a_batch_behind_one_that_found_no_space_is_refused_for_space_too() {
    const BYTES: usize = 3000;
    let disk = SimulatedDisk::new();
    disk.set_capacity_bytes(CAPACITY_BYTES);
    let journal = open(&disk, 1);
    let log = create(&journal, Durability::Os);
    let send = |sequence| {
        append(
            &journal,
            Append::batch(log, numbered(&["x".repeat(BYTES).into()], Some(sequence))),
        )
    };
    assert!(matches!(send(0), Outcome::Committed(_)));
    fill(&journal, log, BYTES);
    for sequence in [1, 2, 3, 1, 2] {
        assert_eq!(send(sequence), Outcome::Refused(Refusal::DiskFull), "{sequence}");
    }
    disk.set_capacity_bytes(2 * CAPACITY_BYTES);
    assert!(matches!(send(3), Outcome::Refused(Refusal::OutOfSequence { .. })));
    for sequence in [1, 2, 3] {
        assert!(matches!(send(sequence), Outcome::Committed(_)), "{sequence}");
    }
    journal.close();
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
        // Refused appends take no offset, however many there are.
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

/// Every segment has live data, so none is dead as a whole, and the dead data stays below the tolerated
/// amount.
#[test]
fn a_disk_that_is_full_of_dead_bytes_is_freed_however_many_are_tolerated() {
    let disk = SimulatedDisk::new();
    disk.set_capacity_bytes(CAPACITY_BYTES);
    let journal = open_with(&disk, 1, RewritePolicy::default());
    let (kept, gone) = (
        create(&journal, Durability::Sync),
        create(&journal, Durability::Sync),
    );
    let mut first = 0;
    while append(&journal, Append::batch(gone, body(2000))) != Outcome::Refused(Refusal::DiskFull) {
        first += 1;
        if first % 10 == 0 {
            append(&journal, Append::batch(kept, body(500)));
        }
    }
    let kept_before = read_all(&journal, kept, 50_000).unwrap();
    let before = Offset(first);
    committed(&journal, Frame::Truncate { log: gone, before });
    journal.checkpoint();
    while journal.rewrite() > 0 {
        journal.pump();
        journal.checkpoint();
    }
    let more = fill(&journal, gone, 2000);
    assert!(more > first / 2, "{more} batches found room of {first}");
    assert_eq!(read_all(&journal, kept, 50_000).unwrap(), kept_before);
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
    // Other programs take the space kept free.
    disk.set_capacity_bytes(disk.used_bytes() + 200_000);
    for round in 0..12 {
        let journal = open(&disk, 1);
        committed(&journal, Frame::State(put(3, "round", &round.to_string())));
        // Data of earlier starts is in the checkpoint: its segments can be reused.
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

fn put_of(key: &str) -> Append {
    Append::state([Frame::State(put(3, key, &"c".repeat(200)))], StateWait::Synced)
}

fn settling() -> Append {
    Append {
        frees_space: true,
        ..Append::state(
            [Frame::State(delta(4, "queue", &"s".repeat(100)))],
            StateWait::Written,
        )
    }
}

fn truncating(log: LogId, before: u64) -> Append {
    let before = Offset(before);
    Append::state([Frame::Truncate { log, before }], StateWait::Synced)
}

/// Repeats an append until it is refused; returns the number of successful ones.
fn use_up(journal: &DiskJournal, next: impl Fn(usize) -> Append) -> usize {
    for count in 0..10_000 {
        match append(journal, next(count)) {
            Outcome::Committed(_) => {}
            Outcome::Refused(Refusal::DiskFull) => return count,
            other => panic!("{other:?} {:?}", journal.failure()),
        }
    }
    panic!("the disk never fills up");
}

#[test]
fn settlements_and_deletions_find_the_space_that_other_state_leaves_them() {
    let disk = SimulatedDisk::new();
    disk.set_capacity_bytes(CAPACITY_BYTES);
    let journal = open(&disk, 1);
    let log = create(&journal, Durability::Sync);
    let count = fill(&journal, log, 900);
    assert!(use_up(&journal, |n| put_of(&n.to_string())) > 50);
    let settled = use_up(&journal, |_| settling());
    assert!(settled > 150, "{settled} settlements found space");
    for before in 1..20 {
        let outcome = append(&journal, truncating(log, before));
        assert!(
            matches!(outcome, Outcome::Committed(_)),
            "{outcome:?} at {before}"
        );
    }
    let tombstone = Append::state([Frame::State(remove(3, "0"))], StateWait::Synced);
    assert!(matches!(append(&journal, tombstone), Outcome::Committed(_)));
    // Refused appends use up nothing, and one that frees the most is accepted.
    committed(&journal, Frame::DeleteLogs { first: log, count: 1 });
    journal.checkpoint();
    assert!(journal.rewrite() > 0);
    journal.pump();
    let again = create(&journal, Durability::Sync);
    assert!(fill(&journal, again, 900) > count / 2);
    assert_eq!(journal.failure(), None);
    let state = {
        drop(journal);
        disk.kill();
        Holding::state_of(&open(&disk, 1)).unwrap()
    };
    assert_eq!(state[&(4, "queue".to_owned())].1.len(), settled);
}

#[test]
fn what_is_left_of_the_segment_that_is_written_is_for_what_frees_space() {
    let disk = SimulatedDisk::new();
    disk.set_capacity_bytes(CAPACITY_BYTES);
    let journal = open(&disk, 1);
    let log = create(&journal, Durability::Sync);
    fill(&journal, log, 900);
    use_up(&journal, |n| put_of(&n.to_string()));
    use_up(&journal, |_| settling());
    let tickets: Vec<_> = (1..10_000)
        .map(|before| journal.append(vec![truncating(log, before)]))
        .collect();
    journal.pump();
    // Each append is either written or refused.
    assert_eq!(journal.failure(), None);
    let outcomes = tickets.into_iter().map(|ticket| ticket.wait().remove(0));
    let taken = outcomes.filter(|it| matches!(it, Outcome::Committed(_))).count();
    assert!((10..9999).contains(&taken), "{taken} truncations");
}

/// Contents of a log, and of all state.
pub(super) type Held = (Vec<Seen>, BTreeMap<(u16, String), Kept>);

/// Compares contents with a short message, as they are large.
pub(super) fn assert_held(journal: &DiskJournal, log: LogId, expected: &Held, what: &str) {
    let (records, state) = held(journal, log);
    assert!(
        records == expected.0,
        "{} of {} records: {what}",
        records.len(),
        expected.0.len()
    );
    let sizes = |state: &BTreeMap<_, Kept>| {
        (
            state.len(),
            state.values().map(|kept| kept.1.len()).sum::<usize>(),
        )
    };
    assert!(
        state == expected.1,
        "{:?} of {:?}: {what}",
        sizes(&state),
        sizes(&expected.1)
    );
}

fn held(journal: &DiskJournal, log: LogId) -> Held {
    (
        read_all(journal, log, 50_000).unwrap(),
        Holding::state_of(journal).unwrap(),
    )
}

/// Returns a disk on which a program was killed when no append found space any more, and the contents.
pub(super) fn killed_when_full(checkpoints: bool) -> (SimulatedDisk, LogId, Held) {
    let disk = SimulatedDisk::new();
    disk.set_capacity_bytes(CAPACITY_BYTES);
    let journal = open(&disk, 1);
    let log = create(&journal, Durability::Sync);
    fill(&journal, log, 900);
    if checkpoints {
        journal.checkpoint();
    }
    let commits = use_up(&journal, |n| put_of(&n.to_string()));
    let settled = use_up(&journal, |_| settling());
    let outcomes = [
        append(&journal, truncating(log, 5)),
        append(&journal, truncating(log, 6)),
    ];
    assert!(outcomes.iter().all(|it| matches!(it, Outcome::Committed(_))));
    let mut held = held(&journal, log);
    // State is loaded as of the start.
    held.1.clear();
    let value = || (Some("c".repeat(200).into()), Vec::new());
    held.1.extend((0..commits).map(|n| ((3, n.to_string()), value())));
    let deltas = vec!["s".repeat(100).into(); settled];
    held.1.insert((4, "queue".to_owned()), (None, deltas));
    disk.kill();
    (disk, log, held)
}

#[test]
fn a_journal_comes_up_and_serves_reads_however_full_the_disk_is() {
    let mut taken = [0; 2];
    for checkpoints in [false, true] {
        let (full, log, expected) = killed_when_full(checkpoints);
        let used = full.used_bytes();
        let most = FREE_BYTES + 16 * u64::from(SEGMENT_BYTES);
        for left in (0..most).step_by(more(40 << 10, 4 << 10)) {
            let disk = full.fork();
            disk.set_capacity_bytes(used + left);
            // The last start is one with space.
            for start in 0..4 {
                if start == 3 {
                    disk.set_capacity_bytes(2 * CAPACITY_BYTES);
                }
                let journal = open(&disk, 1);
                let what = format!("{left} bytes left, start {start}, checkpoint {checkpoints}");
                assert_eq!(journal.failure(), None, "{what}");
                assert_held(&journal, log, &expected, &what);
                for _ in 0..3 {
                    journal.pump();
                    journal.checkpoint();
                    journal.rewrite();
                    journal.enforce_retention();
                }
                assert!(held(&journal, log).0 == expected.0, "{what}");
                match append(&journal, Append::batch(log, body(900))) {
                    Outcome::Committed(_) if start == 3 => {}
                    Outcome::Refused(Refusal::DiskFull) if start < 3 => taken[0] += 1,
                    Outcome::Committed(_) => {
                        taken[1] += 1;
                        disk.kill();
                        break;
                    }
                    other => panic!("{other:?}: {what}, {:?}", journal.failure()),
                }
                assert_eq!(journal.failure(), None, "{what}");
                if start % 2 == 0 {
                    disk.kill();
                }
            }
        }
    }
    assert!(taken[0] > 10 && taken[1] > 10, "{taken:?}");
}

#[test]
fn space_that_comes_while_it_runs_brings_appends_back() {
    let (disk, log, expected) = killed_when_full(false);
    for _ in 0..8 {
        // Each start takes a spare, until there is none.
        disk.set_capacity_bytes(disk.used_bytes());
        drop(open(&disk, 1));
        disk.kill();
    }
    disk.set_capacity_bytes(disk.used_bytes());
    let journal = open(&disk, 1);
    assert!(journal.space().is_short());
    assert_held(&journal, log, &expected, "");
    for next in [
        Append::batch(log, body(900)),
        put_of("no"),
        settling(),
        truncating(log, 9),
    ] {
        let outcome = append(&journal, next);
        assert_eq!(outcome, Outcome::Refused(Refusal::DiskFull));
    }
    disk.set_capacity_bytes(2 * CAPACITY_BYTES);
    journal.pump();
    assert!(!journal.space().is_short());
    let Outcome::Committed(placed) = append(&journal, Append::batch(log, body(900))) else {
        panic!("there is space again");
    };
    journal.checkpoint();
    disk.kill();
    let journal = open(&disk, 1);
    let (records, state) = held(&journal, log);
    assert_eq!(records.last().unwrap().0, placed[0].base.0);
    assert_eq!(
        (&records[..records.len() - 1], state),
        (&expected.0[..], expected.1)
    );
}

#[test]
fn an_index_that_finds_no_space_keeps_none_from_being_freed() {
    for left in (0..200 << 10).step_by(8 << 10) {
        let disk = SimulatedDisk::new();
        let journal = open(&disk, 1);
        let log = create(&journal, Durability::Sync);
        // Other programs fill the disk.
        disk.set_capacity_bytes(disk.used_bytes() + left);
        let count = fill(&journal, log, 50);
        assert_eq!(read_all(&journal, log, 50_000).unwrap().len() as u64, count);
        let outcome = append(&journal, truncating(log, count));
        assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
        for _ in 0..3 {
            journal.checkpoint();
            journal.rewrite();
            journal.pump();
        }
        let again = fill(&journal, log, 50);
        assert!(again > count / 3, "{again} of {count} with {left} bytes left");
        assert_eq!(read_all(&journal, log, 50_000).unwrap().len() as u64, again);
        disk.kill();
        let journal = open(&disk, 1);
        assert_eq!(read_all(&journal, log, 50_000).unwrap().len() as u64, again);
    }
}
