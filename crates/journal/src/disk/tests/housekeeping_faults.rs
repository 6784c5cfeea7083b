//! Tests of housekeeping on a disk that fails once: nothing is left behind, and no failure is reported as
//! success.

use stafett_model::{Durability, LogId};

use super::stepwise_journal::{Bench, body_of};
use crate::contract::{Append, Frame, Journal, StateWait};
use crate::disk::housekeeping;
use crate::disk::rewrite::Rewriter;
use crate::disk::segment::{FileRole, SegmentKind};
use crate::simulated::{Effect, Fault};

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
