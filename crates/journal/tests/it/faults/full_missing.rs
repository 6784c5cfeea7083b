//! A file is missing and the disk is full: the journal starts all the same, reports the losses and serves the
//! rest.

use std::collections::BTreeSet;

use stafett_journal::simulated::{Effect, Fault, SimulatedDisk};
use stafett_journal::{Append, DiskJournal, Journal, Outcome, RecoveryReport, Refusal};
use stafett_model::{Durability, LogId, Offset};

use super::flips::{self, End, salvaged};
use super::full::{CAPACITY_BYTES, Held, append, assert_held, body, create, killed_when_full, open};
use super::missing::arrivals;
use crate::support::more;

const CHECKPOINT: &str = "checkpoint.redb";

/// Damage reported by the starts so far.
#[derive(Debug, Default)]
struct Named {
    any: bool,
    fenced: BTreeSet<LogId>,
    ranges: Vec<(LogId, Offset, Offset)>,
}

impl Named {
    fn learn(&mut self, report: &RecoveryReport) {
        self.any |= report.is_damaged();
        self.fenced.extend(&report.fenced);
        self.ranges.extend(&report.damaged);
    }

    /// Checks that every record is unchanged, or covered by the reported damage.
    fn check(&self, journal: &DiskJournal, log: LogId, expected: &Held, what: &str) {
        let Some((_, held)) = salvaged(journal, log) else {
            assert!(self.any, "the log is gone: {what}");
            return;
        };
        let held: BTreeSet<(u64, &str)> = held.records.iter().map(|(at, value)| (*at, &**value)).collect();
        let known: BTreeSet<(u64, &str)> = expected.0.iter().map(|(at, value)| (*at, &**value)).collect();
        assert!(held.is_subset(&known), "records out of nowhere: {what}");
        for (offset, _) in known.difference(&held) {
            let has =
                |(of, from, to): &(LogId, Offset, Offset)| *of == log && (from.0..to.0).contains(offset);
            let is_named = self.fenced.contains(&log) || self.ranges.iter().any(has);
            assert!(is_named, "{offset} is missing: {what}, {self:?}");
        }
    }
}

/// Starts three times on a full disk and once with space, and continues.
fn starts_without(full: &SimulatedDisk, name: &str, log: LogId, expected: &Held) {
    let disk = full.fork();
    assert!(disk.delete(name));
    // The space of the missing file is taken as well.
    let left = disk.used_bytes();
    let mut named = Named::default();
    for start in 0..4 {
        let what = format!("without {name}, start {start}");
        disk.set_capacity_bytes(if start == 3 { 2 * CAPACITY_BYTES } else { left });
        let journal = open(&disk, 1);
        assert_eq!(journal.failure(), None, "{what}");
        let report = journal.report();
        named.learn(report);
        if start == 0 {
            assert_eq!(report.checkpoint_lost, name == CHECKPOINT, "{what}");
            assert!(
                report.checkpoint_lost || report.is_damaged(),
                "{what}: {report:?}"
            );
        }
        named.check(&journal, log, expected, &what);
        for _ in 0..3 {
            journal.pump();
            journal.checkpoint();
            journal.rewrite();
            journal.enforce_retention();
        }
        assert_eq!(journal.failure(), None, "{what}");
        named.check(&journal, log, expected, &what);
        if start < 3 {
            let refused = append(&journal, Append::batch(log, body(900)));
            assert!(
                matches!(
                    refused,
                    Outcome::Refused(Refusal::DiskFull | Refusal::Fenced { .. } | Refusal::NoSuchLog(_))
                ),
                "{refused:?}: {what}"
            );
        } else {
            let fresh = create(&journal, Durability::Sync);
            assert!(fresh > log, "{fresh} was given out before: {what}");
            let taken = append(&journal, Append::batch(fresh, body(900)));
            assert!(matches!(taken, Outcome::Committed(_)), "{taken:?}: {what}");
        }
        disk.kill();
    }
}

#[test]
fn without_a_segment_or_the_checkpoint_a_full_journal_comes_up_and_names_what_is_gone() {
    for checkpoints in [false, true] {
        let (full, log, expected) = killed_when_full(checkpoints);
        let segments = arrivals(&full);
        assert!(segments.len() > 9, "{segments:?}");
        // The last segment may disappear unnoticed: a kill left nothing behind it.
        let (_, segments) = segments.split_last().unwrap();
        for name in segments
            .iter()
            .map(String::as_str)
            .step_by(more(7, 1))
            .chain([CHECKPOINT])
        {
            starts_without(&full, name, log, &expected);
        }
    }
}

/// The checkpoint's file is repaired after a kill, which may need space.
#[test]
fn a_checkpoint_that_cannot_be_repaired_on_a_full_disk_is_read_and_repaired_later() {
    let (full, log, expected) = killed_when_full(true);
    let dry = full.fork();
    drop(open(&dry, 1));
    let mut hits = 0;
    for change in full.changes() + 1..=dry.changes() {
        if dry.change(change).is_none_or(|(_, file)| file != CHECKPOINT) {
            continue;
        }
        let disk = full.fork();
        disk.set_fault(Some(Fault {
            change,
            effect: Effect::Full,
        }));
        let journal = open(&disk, 1);
        hits += 1;
        let what = format!("change {change}");
        assert!(!journal.report().checkpoint_lost, "{what}");
        assert_held(&journal, log, &expected, &what);
        disk.set_capacity_bytes(2 * CAPACITY_BYTES);
        journal.checkpoint();
        disk.kill();
        drop(journal);
        assert_held(&open(&disk, 1), log, &expected, &what);
    }
    assert!(hits > 0, "the file is not repaired");
}

#[test]
fn without_the_checkpoint_and_a_free_byte_everything_is_read_and_a_later_start_stores_one() {
    for checkpoints in [false, true] {
        let (disk, log, expected) = killed_when_full(checkpoints);
        assert!(disk.delete(CHECKPOINT));
        for start in 0..4 {
            let has_space = start == 3;
            // Other programs take the freed space.
            disk.set_capacity_bytes(if has_space { 2 * CAPACITY_BYTES } else { 0 });
            let journal = open(&disk, 1);
            let what = format!("start {start}, checkpoint {checkpoints}");
            assert!(journal.report().checkpoint_lost, "{what}");
            assert_held(&journal, log, &expected, &what);
            for _ in 0..3 {
                journal.pump();
                journal.checkpoint();
                journal.rewrite();
            }
            assert_eq!(journal.failure(), None, "{what}");
            assert_eq!(disk.names().contains(&CHECKPOINT.to_owned()), has_space, "{what}");
            disk.kill();
        }
        let journal = open(&disk, 1);
        assert!(!journal.report().checkpoint_lost);
        assert_held(&journal, log, &expected, "with a checkpoint again");
    }
}

#[test]
fn ids_in_segments_that_are_set_aside_are_not_used_again_by_the_start_that_has_space() {
    let (disk, ledger) = flips::played(End::Killed);
    let last = *ledger.logs().iter().max().unwrap();
    assert!(disk.delete(CHECKPOINT));
    for start in 0..3 {
        // Without space, nothing is remembered from one start to the next.
        disk.set_capacity_bytes(0);
        let journal = open(&disk, 1);
        let report = journal.report();
        assert!(report.checkpoint_lost, "start {start}");
        assert!(!report.set_aside.is_empty(), "start {start}: {report:?}");
        assert!(!disk.names().contains(&CHECKPOINT.to_owned()), "start {start}");
        assert!(journal.allocate(1) > last, "start {start}");
        disk.kill();
    }
    disk.set_capacity_bytes(2 * CAPACITY_BYTES);
    let journal = open(&disk, 1);
    let fresh = create(&journal, Durability::Sync);
    assert!(fresh > last, "{fresh} was given out before");
}
