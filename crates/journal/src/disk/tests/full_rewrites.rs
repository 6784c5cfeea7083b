//! Tests of rewriting on a disk that has less space left than a segment, most of it dead.

use bytes::Bytes;
use stafett_model::{Durability, LogId, Offset};

use super::stepwise_journal::{Bench, body_of};
use crate::contract::{Append, Frame, Journal, ReadFrom, ReadRequest, StateWait, Visibility};
use crate::disk::rewrite::Rewriter;
use crate::disk::segment::{FileRole, SegmentKind};
use crate::simulated::{Change, Effect, Fault};

const SEGMENT_BYTES: u64 = 64 << 10;
/// Segments with little alive in them.
const SEGMENTS: usize = 30;
const LIVE_BYTES: usize = 3000;

/// Fills a segment with live batches, and then [`SEGMENTS`] with a log whose records are all deleted, and one
/// live batch each. Leaves `free` bytes on the disk. Returns the live log and the number of its batches.
fn full_disk(free: u64) -> (Bench, LogId, u64) {
    let bench = Bench::new();
    let (live, dead) = (bench.log(Durability::Os), bench.log(Durability::Os));
    let add = |log, bytes| {
        drop(bench.append(Append::batch(log, body_of(bytes))));
        bench.journal.pump();
    };
    (0..6).for_each(|_| add(live, 9000));
    for _ in 0..SEGMENTS {
        (0..5).for_each(|_| add(dead, 9000));
        add(live, LIVE_BYTES);
    }
    let before = Offset(bench.end(dead));
    let truncate = Frame::Truncate { log: dead, before };
    drop(bench.append(Append::state([truncate], StateWait::Synced)));
    bench.journal.pump();
    bench.journal.checkpoint();
    bench.disk.set_capacity_bytes(bench.disk.used_bytes() + free);
    bench.journal.core.pool.shortage().set_short(true);
    (bench, live, 6 + SEGMENTS as u64)
}

fn rewrite(bench: &Bench, steps: usize) {
    let mut rewriter = Rewriter::default();
    for _ in 0..steps {
        rewriter.step(&bench.journal.core);
        // Spares are wanted all the time.
        bench.journal.pump();
        bench.journal.checkpoint();
        bench.journal.core.pool.shortage().set_short(true);
    }
}

fn read(bench: &Bench, log: LogId) -> Vec<Bytes> {
    let request = ReadRequest {
        logs: vec![ReadFrom {
            log,
            offset: Offset(0),
            bytes_max: 1 << 20,
            visibility: Visibility::Stored,
        }],
        bytes_max: 1 << 20,
        first_batch_whole: false,
    };
    let slice = bench
        .journal
        .read(request)
        .wait()
        .unwrap()
        .pop()
        .unwrap()
        .unwrap();
    slice.pieces
}

fn assert_freed(bench: &Bench, live: LogId, batches: u64, before: u64, why: &str) {
    assert_eq!(bench.journal.failure(), None, "{why}");
    let freed = before.saturating_sub(bench.disk.used_bytes());
    assert!(
        freed > SEGMENT_BYTES * SEGMENTS as u64 / 2,
        "{freed} bytes freed {why}"
    );
    let known = bench.journal.core.segments.all();
    let known: Vec<_> = known.iter().map(|it| it.id).collect();
    let names = bench.disk.names();
    let roles = names.iter().filter_map(|name| FileRole::of(name));
    for role in roles {
        if let FileRole::Segment(SegmentKind::Sorted, id) | FileRole::Sidecar(_, id) = role {
            assert!(known.contains(&id), "{role:?} is left {why}");
        }
    }
    let bytes: usize = read(bench, live).iter().map(Bytes::len).sum();
    assert!(
        bytes > 6 * 9000 + SEGMENTS * LIVE_BYTES,
        "{bytes} bytes read {why}"
    );
    assert_eq!(bench.end(live), batches, "{why}");
}

#[test]
fn a_disk_with_less_space_than_a_segment_frees_what_is_dead() {
    for free in [40 << 10, 20 << 10, 4 << 10] {
        let (bench, live, batches) = full_disk(free);
        let before = bench.disk.used_bytes();
        rewrite(&bench, 3 * SEGMENTS);
        let why = format!("with {free} bytes left");
        assert_freed(&bench, live, batches, before, &why);
        let bench = bench.restart(false);
        assert!(!bench.journal.report().is_damaged(), "{why}");
        assert_eq!(bench.end(live), batches, "{why}");
    }
}

#[test]
fn a_rewrite_that_meets_a_full_disk_leaves_nothing_and_the_rest_goes_on() {
    for changes in 1..30 {
        let (bench, live, batches) = full_disk(40 << 10);
        let before = bench.disk.used_bytes();
        let change = bench.disk.changes() + changes;
        let effect = Effect::Full;
        bench.disk.set_fault(Some(Fault { change, effect }));
        rewrite(&bench, 3 * SEGMENTS);
        // What cannot even be removed is removed at the next start.
        let is_removal = matches!(bench.disk.change(change), Some((Change::Remove, _)));
        if bench.journal.failure().is_none() && !is_removal {
            assert_freed(
                &bench,
                live,
                batches,
                before,
                &format!("with a fault at {changes}"),
            );
        }
    }
}
