//! Starts without the checkpoint, after kills and after a segment between two others was recycled: the end of
//! the segment before is no damage, and real damage in it is still found.

use stafett_model::{Durability, LogId};

use super::stepwise_journal::{Bench, body_of};
use crate::contract::{Append, Frame, StateWait};
use crate::disk::RecoveryReport;
use crate::disk::position::SegmentId;
use crate::disk::rewrite::Rewriter;
use crate::disk::segment::{FileRole, SegmentKind};
use crate::simulated::{Effect, Fault, SimulatedDisk};

const FIRST: SegmentId = SegmentId(1);

fn fill(bench: &Bench, log: LogId, batches: usize) {
    for _ in 0..batches {
        drop(bench.append(Append::batch(log, body_of(9000))));
        bench.journal.pump();
    }
}

/// Kills the program in the middle of a write and starts it again: the segment ends at a torn group.
fn restart_torn(bench: Bench, log: LogId) -> Bench {
    let effect = Effect::Kill { seed: 3 };
    let change = bench.disk.changes() + 1;
    bench.disk.set_fault(Some(Fault { change, effect }));
    fill(&bench, log, 1);
    let bench = bench.restart(false);
    assert!(bench.journal.report().torn, "{:?}", bench.journal.report());
    bench
}

/// Leaves a killed journal whose first segment is kept and whose next ones were recycled. `is_torn` says
/// whether the first segment ends at a torn group, and otherwise at its last whole one.
fn with_recycled_segments(is_torn: bool) -> (Bench, LogId) {
    let mut bench = Bench::new();
    let (kept, dead) = (bench.log(Durability::Os), bench.log(Durability::Os));
    fill(&bench, kept, 4);
    bench = if is_torn {
        restart_torn(bench, kept)
    } else {
        bench.restart(false)
    };
    fill(&bench, dead, 20);
    bench = bench.restart(false);
    fill(&bench, kept, 3);
    let delete = Frame::DeleteLogs {
        first: dead,
        count: 1,
    };
    drop(bench.append(Append::state([delete], StateWait::Synced)));
    bench.journal.pump();
    bench.journal.checkpoint();
    let before = bench.journal.core.segments.all().len();
    // One step: the dead segments go, and nothing is merged yet.
    let mut rewriter = Rewriter::default();
    rewriter.step(&bench.journal.core);
    bench.journal.pump();
    let left = bench.journal.core.segments.all();
    assert!(left.len() + 2 < before, "{} of {before} are left", left.len());
    assert!(left.iter().all(|it| it.kind == SegmentKind::Arrival));
    assert!(left.iter().any(|it| it.id == FIRST));
    bench.disk.kill();
    (bench, kept)
}

fn start_without_checkpoint(bench: Bench) -> (Bench, RecoveryReport) {
    assert!(bench.disk.delete("checkpoint.redb"));
    let bench = bench.restart(false);
    let report = bench.journal.report().clone();
    assert!(report.checkpoint_lost, "{report:?}");
    (bench, report)
}

fn first_segment(disk: &SimulatedDisk) -> (String, Vec<u8>) {
    let name = FileRole::Segment(SegmentKind::Arrival, FIRST).name();
    let contents = disk.contents(&name).unwrap();
    (name, contents)
}

#[test]
fn the_end_of_a_segment_before_recycled_ones_is_not_damage() {
    for is_torn in [false, true] {
        let (bench, kept) = with_recycled_segments(is_torn);
        let (bench, report) = start_without_checkpoint(bench);
        assert_eq!(report.damaged_groups, 0, "torn {is_torn}: {report:?}");
        assert_eq!(report.missing_segments, ["a segment behind segment 1"]);
        assert_eq!(report.damaged, [], "torn {is_torn}");
        assert_eq!(bench.end(kept), 7, "torn {is_torn}");
    }
}

#[test]
fn damage_in_a_segment_before_recycled_ones_is_found() {
    for is_torn in [false, true] {
        for batch in [1, 3] {
            let (bench, _) = with_recycled_segments(is_torn);
            let (name, contents) = first_segment(&bench.disk);
            let value: Vec<u8> = (0..=250).cycle().take(9000).collect();
            let starts = (0..contents.len()).filter(|at| contents[*at..].starts_with(&value));
            let at = starts.collect::<Vec<_>>()[batch];
            assert!(bench.disk.flip_bit(&name, (at as u64 + 40) * 8));
            let (_, report) = start_without_checkpoint(bench);
            assert_eq!(report.damaged_groups, 1, "torn {is_torn}: {report:?}");
            assert_eq!(report.damaged.len(), 1, "torn {is_torn}: {report:?}");
        }
    }
}

#[test]
fn the_id_of_a_deleted_log_whose_definition_is_lost_is_not_given_out_again() {
    let bench = Bench::new();
    let log = bench.log(Durability::Os);
    // The next segment has batches of the log, and its deletion.
    let bench = bench.restart(false);
    fill(&bench, log, 2);
    let delete = Frame::DeleteLogs { first: log, count: 1 };
    drop(bench.append(Append::state([delete], StateWait::Synced)));
    bench.journal.pump();
    bench.disk.kill();
    let (first, _) = first_segment(&bench.disk);
    assert!(bench.disk.delete(&first));
    let (bench, report) = start_without_checkpoint(bench);
    assert_eq!(report.logs, 0, "{report:?}");
    let new = bench.log(Durability::Os);
    assert!(new > log, "{new:?} is not behind {log:?}");
    let bench = bench.restart(false);
    assert_eq!(bench.end(new), 0);
}
