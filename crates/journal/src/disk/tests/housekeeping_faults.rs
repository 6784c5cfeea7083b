//! Tests of housekeeping on a disk that fails once: nothing is left behind, and no failure is reported as
//! success.

use bytes::Bytes;
use stafett_model::{Durability, LogId};

use super::stepwise_journal::{Bench, body_of};
use crate::contract::{Append, Change, Frame, Journal, Outcome, StateChange, StateSpace, StateWait};
use crate::disk::fsck::check_on;
use crate::disk::housekeeping;
use crate::disk::pool::{Pool, SpareError};
use crate::disk::position::SegmentId;
use crate::disk::rewrite::Rewriter;
use crate::disk::segment::{FileRole, SegmentKind};
use crate::simulated::{Effect, Fault, SimulatedDisk};

/// Spares with the default settings.
const SPARES: usize = 4;

fn fill(bench: &Bench, log: LogId, batches: usize) {
    for _ in 0..batches {
        drop(bench.append(Append::batch(log, body_of(9000))));
        bench.journal.pump();
    }
}

fn fail_once(bench: &Bench, changes_from_now: u64) {
    let change = bench.disk.changes() + changes_from_now;
    let effect = Effect::Error;
    bench.disk.set_fault(Some(Fault { change, effect }));
}

#[test]
fn a_backup_waits_for_indexes_and_fails_without_them() {
    let (mut good, mut bad) = (0, 0);
    for changes in 1..40 {
        let bench = Bench::new();
        let log = bench.log(Durability::Os);
        fill(&bench, log, 3);
        drop(bench.append(Append::batch(log, body_of(9000))));
        fail_once(&bench, changes);
        let core = &bench.journal.core;
        let _turn = core.checkpoint.turn();
        if housekeeping::seal_and_checkpoint(core).is_err() {
            bad += 1;
            continue;
        }
        good += 1;
        let active = core.writer.lock().active.as_ref().map(|active| active.id);
        let sealed = core.segments.all().into_iter();
        for segment in sealed.filter(|segment| Some(segment.id) != active) {
            let name = segment.sidecar_role().name();
            assert!(
                bench.disk.names().contains(&name),
                "{name} with a fault at change {changes}"
            );
        }
    }
    assert!(good > 5 && bad > 5, "{good} good ones, {bad} bad ones");
}

/// Sealing the segment for a backup would waste space that is promised, and leave no spare to write to.
#[test]
fn a_backup_on_a_full_disk_does_not_end_the_journal() {
    let bench = Bench::new();
    bench.log(Durability::Os);
    bench.disk.set_capacity_bytes(bench.disk.used_bytes());
    let settle = |bytes: usize| {
        let change = StateChange {
            space: StateSpace(1),
            key: Bytes::from_static(b"settled"),
            change: Change::Put(vec![0; bytes].into()),
        };
        let append = Append {
            frees_space: true,
            ..Append::state([Frame::State(change)], StateWait::Synced)
        };
        let ticket = bench.append(append);
        bench.journal.pump();
        matches!(ticket.wait()[..], [Outcome::Committed(_)])
    };
    while settle(4 << 10) {}
    while settle(16) {}
    let report = bench.journal.backup_into(&bench.disk.begin_backup());
    bench.journal.pump();
    settle(16);
    assert_eq!(bench.journal.failure(), None, "{report:?}");
}

#[test]
fn a_dead_segment_that_could_not_be_removed_is_removed_later() {
    for changes in 1..60 {
        let bench = Bench::new();
        let log = bench.log(Durability::Os);
        fill(&bench, log, 80);
        let delete = Frame::DeleteLogs { first: log, count: 1 };
        drop(bench.append(Append::state([delete], StateWait::Synced)));
        bench.journal.pump();
        bench.journal.checkpoint();
        let core = &bench.journal.core;
        let mut rewriter = Rewriter::default();
        fail_once(&bench, changes);
        for _ in 0..10 {
            rewriter.step(core);
            bench.journal.pump();
        }
        if bench.journal.failure().is_some() {
            continue;
        }
        let roles = bench.disk.names();
        let roles = roles.iter().filter_map(|name| FileRole::of(name));
        let (segments, sidecars): (Vec<_>, Vec<_>) =
            roles.partition(|role| matches!(role, FileRole::Segment(SegmentKind::Arrival, _)));
        let known = core.segments.all().len();
        assert_eq!(segments.len(), known + SPARES, "with a fault at change {changes}");
        assert!(sidecars.len() <= known, "with a fault at change {changes}");
    }
}

#[test]
fn a_check_finds_a_segment_without_its_header_as_a_start_does() {
    let bench = Bench::new();
    let log = bench.log(Durability::Sync);
    fill(&bench, log, 3);
    bench.journal.checkpoint();
    let bench = bench.restart(false);
    bench.disk.kill();
    let first = FileRole::Segment(SegmentKind::Arrival, SegmentId(1)).name();
    assert!(bench.disk.flip_bit(&first, 0));
    let report = check_on(&bench.disk.storage()).unwrap();
    assert!(report.is_sound(), "{report}");
    let bench = bench.restart(false);
    assert!(!bench.journal.report().is_damaged());
    assert_eq!(bench.end(log), 3);
}

/// A sync fails while a group is being written: the appends in it are in neither queue then.
#[test]
fn a_group_that_is_written_as_the_journal_fails_is_answered() {
    let bench = Bench::new();
    let log = bench.log(Durability::Sync);
    let ticket = bench.append(Append::batch(log, body_of(100)));
    bench.journal.core.sync.fail();
    bench.write();
    assert_eq!(ticket.glance().committed(), Some(false));
    assert_eq!(ticket.wait().as_slice(), [Outcome::Unknown]);
}

#[test]
fn a_spare_with_holes_is_not_written_to_on_a_full_disk() {
    let bench = Bench::new();
    let log = bench.log(Durability::Os);
    fill(&bench, log, 1);
    let names = bench.disk.names().into_iter();
    let is_arrival = |name: &String| {
        matches!(
            FileRole::of(name),
            Some(FileRole::Segment(SegmentKind::Arrival, _))
        )
    };
    let mut spares: Vec<String> = names.filter(is_arrival).collect();
    spares.sort_unstable();
    let storage = bench.disk.storage();
    for spare in spares.iter().skip(1) {
        storage.remove(spare).unwrap();
        let file = storage.create(spare).unwrap();
        file.set_bytes(64 << 10).unwrap();
        file.sync().unwrap();
    }
    storage.sync_names().unwrap();
    bench.disk.set_capacity_bytes(bench.disk.used_bytes());
    let bench = bench.restart(false);
    fill(&bench, log, 100);
    assert_eq!(bench.journal.failure(), None);
    assert_eq!(bench.end(log), 1, "there is no space");
}

#[test]
fn a_spare_that_cannot_be_made_leaves_no_file() {
    type Refill = fn(&Pool) -> Result<(), SpareError>;
    let ways: [Refill; 2] = [Pool::refill, |pool| pool.refill_written(|| false)];
    for refill in ways {
        for change in 1.. {
            let disk = SimulatedDisk::new();
            let effect = Effect::Error;
            disk.set_fault(Some(Fault { change, effect }));
            let pool = Pool::new(disk.storage(), 64 << 10, 2, 0, 1);
            let is_made = refill(&pool).is_ok();
            refill(&pool).unwrap();
            assert_eq!(disk.names().len(), SPARES, "with a fault at change {change}");
            if is_made {
                break;
            }
        }
    }
}

#[test]
fn unknown_damage_below_the_checkpoint_fences_no_log() {
    let bench = Bench::new();
    let (log, other) = (bench.log(Durability::Sync), bench.log(Durability::Sync));
    drop(bench.append(Append::batch(other, body_of(1000))));
    for _ in 0..3 {
        drop(bench.append(Append::batch(log, body_of(1000))));
        bench.journal.pump();
    }
    housekeeping::seal_and_checkpoint(&bench.journal.core).unwrap();
    drop(bench.append(Append::batch(log, body_of(1000))));
    bench.journal.pump();
    bench.disk.kill();
    let (kind, first) = (SegmentKind::Arrival, SegmentId(1));
    let name = FileRole::Segment(kind, first).name();
    let contents = bench.disk.contents(&name).unwrap();
    let value: Vec<u8> = (0..=250).collect();
    let last = contents.windows(value.len()).rposition(|window| window == value);
    // The frame's head lies before the batch's.
    assert!(
        bench
            .disk
            .flip_bit(&name, (last.unwrap() as u64 - 2 * 251 - 90) * 8)
    );
    assert!(bench.disk.delete(&FileRole::Sidecar(kind, first).name()));
    let bench = bench.restart(false);
    let report = bench.journal.report();
    assert!(report.is_damaged() && report.damaged_groups == 1, "{report:?}");
    assert_eq!(
        (&report.fenced[..], report.damaged.len()),
        (&[][..], 1),
        "{report:?}"
    );
    assert_eq!((bench.end(log), bench.end(other)), (4, 1));
    let mut ticket = bench.append(Append::batch(other, body_of(10)));
    bench.journal.pump();
    assert_eq!(super::stepwise_journal::base_of(&mut ticket), Some(1));
}
