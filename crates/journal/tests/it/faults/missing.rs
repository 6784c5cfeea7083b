//! Files of a stopped journal are deleted. The next start reports the losses, and everything else is
//! unchanged.

use std::collections::BTreeSet;
use std::io::IoSlice;

use stafett_journal::simulated::{Effect, Fault, SimulatedDisk};
use stafett_journal::{DiskJournal, Journal};
use stafett_model::{Durability, LogId};

use super::flips::{self, End, goes_on, salvaged};
use super::ledger::{Holding, Ledger};
use super::run::{Run, delta, open};
use crate::support::{batch, read_all};

/// Names the file when a check fails.
struct Place<'a>(&'a [String], End);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("without {:?}, {:?}", self.0, self.1);
        }
    }
}

/// Fills logs through ten segments or more, with a checkpoint on the way: none is rewritten.
fn played(end: End, checkpoint: usize) -> (SimulatedDisk, Ledger) {
    let disk = SimulatedDisk::new();
    let mut run = Run::start(&disk).unwrap();
    let logs = [Durability::Sync, Durability::Os, Durability::Sync].map(|level| run.create(level));
    run.pump();
    for round in 0..60 {
        run.append(logs[round % 3], 2, 700);
        run.together(&logs[..2], 300, vec![delta(4, "both", &round.to_string())]);
        run.append(logs[2], 1, 4600);
        run.pump();
        if round == checkpoint {
            run.journal.checkpoint();
        }
    }
    match end {
        End::Closed => super::script::end(&mut run),
        End::Killed => disk.kill(),
    }
    let ledger = run.into_ledger();
    disk.kill();
    (disk, ledger)
}

pub(super) fn arrivals(disk: &SimulatedDisk) -> Vec<String> {
    let is_arrival = |name: &String| name.starts_with("arrival") && !name.contains(".idx");
    let used = |name: &String| disk.contents(name).unwrap().starts_with(b"STAFSEG");
    let names = disk.names().into_iter();
    names.filter(|name| is_arrival(name) && used(name)).collect()
}

/// Checks that every record is unchanged, or in a reported range, or in a log that is fenced or gone.
fn check_records(journal: &DiskJournal, ledger: &Ledger) {
    let report = journal.report();
    for (id, mine) in &ledger.now().logs {
        let Some((_, seen)) = salvaged(journal, *id) else {
            assert!(report.is_damaged(), "{id} is gone");
            continue;
        };
        for record in &seen.records {
            assert!(mine.records.contains(record), "{id} has {record:.20?}");
        }
        for record in &mine.records {
            let is_named = |(log, from, to): &(LogId, _, _)| {
                log == id && (*from..*to).contains(&stafett_model::Offset(record.0))
            };
            let is_excused = report.damaged.iter().any(is_named) || report.fenced.contains(id);
            assert!(
                seen.records.contains(record) || is_excused,
                "{id} misses {record:.20?}: {report:?}"
            );
        }
    }
}

/// Opens a journal twice without some of its files; returns true if the first start reported a loss.
fn opened_without(disk: &SimulatedDisk, gone: &[String], ledger: &Ledger, end: End) -> bool {
    let _place = Place(gone, end);
    let disk = disk.fork();
    for name in gone {
        assert!(disk.delete(name));
    }
    let journal = open(&disk, 1).unwrap();
    let named = journal.report().is_damaged();
    if named {
        check_records(&journal, ledger);
    }
    disk.kill();
    drop(journal);
    let journal = open(&disk, 1).unwrap();
    if named {
        check_records(&journal, ledger);
    }
    goes_on(&journal, ledger);
    named
}

#[test]
fn a_missing_arrival_segment_is_named_and_so_is_what_it_held() {
    for end in [End::Closed, End::Killed] {
        let (disk, ledger) = played(end, 25);
        let names = arrivals(&disk);
        assert!(names.len() > 9, "{names:?}");
        for (index, name) in names.iter().enumerate() {
            let sidecar = name.replace(".seg", ".idx");
            let named = opened_without(&disk, std::slice::from_ref(name), &ledger, end);
            // Only the very last segment of a killed journal can disappear unnoticed.
            assert!(
                named || (end == End::Killed && index + 1 == names.len()),
                "{name}"
            );
            if disk.names().contains(&sidecar) {
                let both = [name.clone(), sidecar];
                let named = opened_without(&disk, &both, &ledger, end);
                assert!(
                    named || (end == End::Killed && index + 1 == names.len()),
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn a_segment_of_zeros_without_a_sidecar_is_named_as_a_missing_one_is() {
    let (disk, ledger) = played(End::Closed, 25);
    let names = arrivals(&disk);
    for name in &names {
        let disk = disk.fork();
        let storage = disk.storage();
        let file = storage.open(name).unwrap();
        let zeros = vec![0; disk.contents(name).unwrap().len()];
        file.write_at(&mut [IoSlice::new(&zeros)], 0).unwrap();
        file.sync().unwrap();
        disk.delete(&name.replace(".seg", ".idx"));
        let journal = open(&disk, 1).unwrap();
        let report = journal.report();
        assert!(report.missing_segments.contains(name), "{name}: {report:?}");
        check_records(&journal, &ledger);
        goes_on(&journal, &ledger);
    }
}

#[test]
fn two_missing_segments_in_a_row_are_named() {
    for end in [End::Closed, End::Killed] {
        let (disk, ledger) = played(end, 40);
        for pair in arrivals(&disk).windows(2).rev().skip(1) {
            assert!(opened_without(&disk, pair, &ledger, end), "{pair:?}");
        }
    }
}

#[test]
fn a_segment_that_only_its_sidecar_remembers_costs_nobody_else_anything() {
    let (disk, ledger) = played(End::Killed, 10);
    let names = arrivals(&disk);
    let has_sidecar = |name: &&String| disk.names().contains(&name.replace(".seg", ".idx"));
    let with: Vec<_> = names.iter().filter(has_sidecar).collect();
    assert!(with.len() > 9, "{with:?}");
    // The first segment defines the topics.
    for name in with.iter().skip(1) {
        let disk = disk.fork();
        disk.delete(name);
        let journal = open(&disk, 1).unwrap();
        let report = journal.report();
        assert_eq!(report.missing_segments, [(*name).clone()]);
        assert_eq!(report.fenced, []);
        check_records(&journal, &ledger);
    }
}

#[test]
fn a_lost_checkpoint_is_made_good_by_a_journal_that_is_all_there() {
    let disk = SimulatedDisk::new();
    let mut run = Run::start(&disk).unwrap();
    let log = run.create(Durability::Sync);
    for _ in 0..40 {
        run.append(log, 2, 500);
        run.pump();
    }
    run.journal.close();
    let ledger = run.into_ledger();
    disk.delete("checkpoint.redb");
    let journal = open(&disk, 1).unwrap();
    assert!(journal.report().checkpoint_lost);
    assert!(!journal.report().is_damaged(), "{:?}", journal.report());
    let held = Holding::logs_of(&journal, ledger.logs(), ledger.now()).unwrap();
    assert_eq!(held.logs[&log].records, ledger.now().logs[&log].records);
}

#[test]
fn ids_are_not_used_again_when_the_checkpoint_is_lost() {
    for end in [End::Closed, End::Killed] {
        let (disk, ledger) = flips::played(end);
        disk.delete("checkpoint.redb");
        let journal = open(&disk, 1).unwrap();
        let report = journal.report();
        assert!(report.checkpoint_lost && report.is_damaged(), "{report:?}");
        let set_aside: BTreeSet<_> = report
            .set_aside
            .iter()
            .map(|name| format!("{name}.lost"))
            .collect();
        let there: BTreeSet<_> = disk.names().into_iter().collect();
        assert!(set_aside.is_subset(&there));
        let fresh = create(&journal);
        assert!(
            ledger.logs().iter().all(|id| *id < fresh),
            "{fresh} was given out before"
        );
        assert_eq!(put_pumped(&journal, fresh), 0);
        assert_eq!(read_all(&journal, fresh, 1000).unwrap().len(), 1);
        disk.kill();
        drop(journal);
        let journal = open(&disk, 1).unwrap();
        assert!(!journal.report().checkpoint_lost);
        assert_eq!(read_all(&journal, fresh, 1000).unwrap().len(), 1);
    }
}

/// A rewrite replaced a sorted segment, and the record of it is gone with the checkpoint.
#[test]
fn without_the_checkpoint_a_missing_sorted_segment_is_reported() {
    let (disk, ledger) = flips::played(End::Killed);
    disk.delete("checkpoint.redb");
    let is_sorted = |name: &String| name.starts_with("sorted") && !name.contains(".idx");
    let names = disk.names().into_iter().filter(is_sorted);
    let mut reported = 0;
    for name in names {
        let (disk, whole) = (disk.fork(), disk.fork());
        disk.delete(&name);
        disk.delete(&name.replace(".seg", ".idx"));
        let journal = open(&disk, 1).unwrap();
        // One that nothing left in the journal says is in force is set aside where it is there.
        let is_in_force = !open(&whole, 1).unwrap().report().set_aside.contains(&name);
        let report = journal.report();
        assert!(report.checkpoint_lost);
        assert_eq!(report.missing_segments.contains(&name), is_in_force, "{report:?}");
        check_records(&journal, &ledger);
        reported += usize::from(is_in_force);
        disk.kill();
        drop(journal);
        assert!(!open(&disk, 1).unwrap().report().checkpoint_lost);
    }
    assert!(reported > 0);
}

fn create(journal: &DiskJournal) -> LogId {
    let first = journal.allocate(1);
    let frame = stafett_journal::Frame::CreateLogs {
        first,
        count: 1,
        spec: stafett_journal::LogSpec::default(),
    };
    let append = stafett_journal::Append::state([frame], stafett_journal::StateWait::Synced);
    let ticket = journal.append(vec![append]);
    journal.pump();
    assert!(matches!(
        ticket.wait()[..],
        [stafett_journal::Outcome::Committed(_)]
    ));
    first
}

fn put_pumped(journal: &DiskJournal, log: LogId) -> u64 {
    let ticket = journal.append(vec![stafett_journal::Append::batch(log, batch(&["fresh"]))]);
    journal.pump();
    crate::support::placed(ticket.wait().remove(0)).base.0
}

#[test]
fn a_start_without_the_checkpoint_that_is_killed_is_followed_by_one_that_says_it_is_lost() {
    let (disk, ledger) = flips::played(End::Killed);
    disk.delete("checkpoint.redb");
    let is_sorted = |name: &String| name.starts_with("sorted") && !name.contains(".idx");
    let sorted: Vec<String> = disk.names().into_iter().filter(is_sorted).collect();
    assert!(!sorted.is_empty());
    let before = disk.changes();
    let mut is_stored = false;
    for after in (0..).step_by(3) {
        let disk = disk.fork();
        disk.set_fault(Some(Fault {
            change: before + 1 + after,
            effect: Effect::Kill { seed: after },
        }));
        drop(open(&disk, 1));
        let was_killed = disk.changes() > before + after;
        disk.kill();
        let journal = open(&disk, 1).unwrap();
        let fresh = create(&journal);
        assert!(
            ledger.logs().iter().all(|id| *id < fresh),
            "killed at change {after}: {fresh} was given out before"
        );
        let names = disk.names();
        for name in &sorted {
            let is_there = names.contains(name) || names.contains(&format!("{name}.lost"));
            assert!(is_there, "killed at change {after}: {name} was removed");
        }
        let is_told = journal.report().checkpoint_lost;
        // A start stores a checkpoint near its end: later ones have nothing to tell.
        is_stored |= !is_told;
        assert!(!(is_told && is_stored), "killed at change {after}");
        if !was_killed {
            assert!(is_stored);
            return;
        }
    }
}
