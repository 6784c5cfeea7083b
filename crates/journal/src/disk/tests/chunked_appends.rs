//! Tests of batches that are cut into chunks, with writer and syncer run step by step.

use smallvec::smallvec;
use stafett_model::checksum::crc32c;
use stafett_model::{Durability, LogId, Offset};

use super::stepwise_journal::{Bench, base_of, body_of, numbered_of, try_open};
use crate::contract::{
    Append, BatchFrame, Change, Frame, Journal, ReadFrom, ReadRequest, Refusal, Selection, StateChange,
    StateSpace, StateWait, Target, Visibility,
};
use crate::disk::frame::{FrameKind, HEAD_BYTES};
use crate::disk::scan::{Chain, ScannedFrame, scan};
use crate::disk::segment::{FORMAT_VERSION, FileRole, SEGMENT_HEAD_BYTES, SegmentHead, SegmentKind};
use crate::disk::{OpenError, scrub, writer};
use crate::ticket::Ticket;

/// Size that makes many chunks in segments of 64 KiB.
const LARGE: usize = 40_000;

fn large(bench: &Bench, log: LogId) -> Ticket {
    bench.append(Append::batch(log, body_of(LARGE)))
}

fn small(bench: &Bench, log: LogId) -> Ticket {
    bench.append(Append::batch(log, body_of(10)))
}

/// Reads the batches of a log and joins them.
fn read(bench: &Bench, log: LogId) -> Result<Vec<u8>, crate::contract::ReadError> {
    let logs = vec![ReadFrom {
        log,
        offset: bench.journal.bounds(log).unwrap().start,
        bytes_max: 1 << 20,
        visibility: Visibility::Stored,
    }];
    let request = ReadRequest {
        logs,
        bytes_max: 1 << 20,
        first_batch_whole: true,
    };
    let mut runs = bench.journal.read(request).wait().unwrap();
    Ok(runs.remove(0)?.pieces.concat())
}

/// Returns the frames of all segments, with their segments.
fn frames(bench: &Bench) -> Vec<(FileRole, ScannedFrame)> {
    let mut frames = Vec::new();
    for name in bench.disk.names() {
        let Some(role @ FileRole::Segment(_, id)) = FileRole::of(&name) else {
            continue;
        };
        let file = bench.disk.storage().open(&name).unwrap();
        let mut block = vec![0; SEGMENT_HEAD_BYTES];
        file.read_at(&mut block, 0).unwrap();
        if let crate::disk::segment::HeadBlock::Head(head) = SegmentHead::decode(&block)
            && head.segment == id
        {
            let chain = Chain {
                sequence: head.first_sequence - 1,
                checksum: head.previous,
            };
            scan(&*file, id, 0, chain, |group| {
                frames.extend(group.frames.into_iter().map(|frame| (role, frame)));
            })
            .unwrap();
        }
    }
    frames
}

fn count(bench: &Bench, kind: FrameKind) -> usize {
    frames(bench)
        .iter()
        .filter(|(_, frame)| frame.head.kind == kind)
        .count()
}

#[test]
fn a_small_append_to_another_log_does_not_wait_behind_a_large_one() {
    let bench = Bench::new();
    let [one, two] = bench.logs();
    let (mut slow, mut quick) = (large(&bench, one), small(&bench, two));
    writer::pump(&bench.journal.core);
    assert_eq!((base_of(&mut slow), base_of(&mut quick)), (None, Some(1)));
    assert_eq!(bench.end(one), 1);
    bench.write();
    assert_eq!(base_of(&mut slow), Some(1));
    assert_eq!(bench.end(one), 2);
    assert_eq!(
        (count(&bench, FrameKind::Chunk), count(&bench, FrameKind::Cut)),
        (10, 1)
    );
}

#[test]
fn a_small_append_to_the_same_log_does() {
    let bench = Bench::new();
    let [log] = bench.logs();
    let (mut first, mut second) = (large(&bench, log), small(&bench, log));
    writer::pump(&bench.journal.core);
    assert_eq!((base_of(&mut first), base_of(&mut second)), (None, None));
    bench.write();
    assert_eq!((base_of(&mut first), base_of(&mut second)), (Some(1), Some(2)));
}

#[test]
fn what_shares_a_log_with_something_that_waits_waits_as_well() {
    let bench = Bench::new();
    let [one, two, three] = bench.logs();
    let mut slow = large(&bench, one);
    let target = |log| Target {
        log,
        records: Selection::All,
    };
    let both = Frame::Batch(BatchFrame {
        body: body_of(10),
        targets: smallvec![target(one), target(two)],
    });
    let mut both = bench.append(Append {
        frames: smallvec![both],
        ..Append::default()
    });
    let (mut behind, mut beside) = (small(&bench, two), small(&bench, three));
    writer::pump(&bench.journal.core);
    let waits = [&mut slow, &mut both, &mut behind].map(base_of);
    assert_eq!((waits, base_of(&mut beside)), ([None; 3], Some(1)));
    bench.write();
    assert_eq!(
        [&mut slow, &mut both, &mut behind].map(base_of),
        [Some(1), Some(2), Some(2)]
    );
}

#[test]
fn what_changes_a_log_keeps_its_place_behind_a_large_append_to_it() {
    let bench = Bench::new();
    let [one, two] = bench.logs();
    drop(large(&bench, one));
    let truncate = Frame::Truncate {
        log: one,
        before: Offset(2),
    };
    drop(bench.append(Append::state([truncate], StateWait::Written)));
    // Changes keep their order among each other.
    let mut behind = small(&bench, two);
    writer::pump(&bench.journal.core);
    assert_eq!(base_of(&mut behind), None);
    bench.journal.pump();
    let bench = bench.restart(false);
    let bounds = bench.journal.bounds(one).unwrap();
    assert_eq!((bounds.start, bounds.end), (Offset(2), Offset(2)));
}

#[test]
fn two_large_appends_go_one_behind_the_other_and_small_ones_between() {
    let bench = Bench::new();
    let [one, two, three] = bench.logs();
    let (mut first, mut second) = (large(&bench, one), large(&bench, two));
    let mut groups = 1;
    while base_of(&mut second).is_none() {
        let mut quick = small(&bench, three);
        writer::pump(&bench.journal.core);
        assert_eq!(base_of(&mut quick), Some(groups), "a small append waits");
        groups += 1;
        assert!(groups < 30);
    }
    assert_eq!(base_of(&mut first), Some(1));
    bench.journal.pump();
    assert_eq!(read(&bench, one).unwrap().len(), body_of(LARGE).len());
    assert_eq!(read(&bench, one).unwrap()[61..], read(&bench, two).unwrap()[61..]);
}

#[test]
fn chunks_without_their_end_are_nothing_after_a_kill() {
    let bench = Bench::new();
    let [one, two] = bench.logs();
    drop(large(&bench, one));
    drop(small(&bench, two));
    writer::pump(&bench.journal.core);
    let bench = bench.restart(false);
    assert_eq!((bench.end(one), bench.end(two)), (1, 2));
    assert!(!bench.journal.report().is_damaged());
    assert_eq!(count(&bench, FrameKind::Chunk), 1);
    let mut next = large(&bench, one);
    bench.journal.pump();
    assert_eq!(base_of(&mut next), Some(1));
}

#[test]
fn a_large_batch_is_found_again_by_its_producer_after_a_kill() {
    let bench = Bench::new();
    let [log] = bench.logs();
    let sent = || Append::batch(log, numbered_of(LARGE, 7, 0));
    drop(bench.append(sent()));
    bench.journal.pump();
    let bench = bench.restart(false);
    let outcomes = bench.append(sent());
    bench.journal.pump();
    let outcomes = outcomes.wait();
    let crate::contract::Outcome::Committed(placed) = &outcomes[0] else {
        panic!("{outcomes:?}")
    };
    assert!(placed[0].duplicate);
    assert_eq!(bench.end(log), 2);
}

/// Builds an append that moves a message: it stores a copy in one log and records in the state that the
/// message left another.
fn moving(log: LogId, bytes: usize) -> Append {
    let state = StateChange {
        space: StateSpace(9),
        key: "moved".into(),
        change: Change::Put("yes".into()),
    };
    let batch = BatchFrame {
        targets: smallvec![Target {
            log,
            records: Selection::All,
        }],
        body: body_of(bytes),
    };
    Append {
        frames: smallvec![Frame::State(state), Frame::Batch(batch)],
        ..Append::default()
    }
}

fn has_moved(bench: &Bench) -> bool {
    let mut moved = false;
    bench
        .journal
        .load_state(StateSpace(9), &mut |_| moved = true)
        .unwrap();
    moved
}

#[test]
fn an_append_that_lost_a_part_to_damage_is_lost_as_a_whole() {
    for (bytes, damaged) in [
        (50, FrameKind::Batch),
        (LARGE, FrameKind::Chunk),
        (LARGE, FrameKind::Cut),
    ] {
        let bench = Bench::new();
        let [one, two] = [(); 2].map(|()| bench.log(Durability::Sync));
        drop(bench.append(moving(one, bytes)));
        drop(small(&bench, two));
        bench.journal.pump();
        drop(small(&bench, two));
        bench.journal.pump();
        let of_one = |frame: &ScannedFrame| frame.head.entries.iter().any(|entry| entry.log == one);
        let (role, frame) = frames(&bench)
            .into_iter()
            .find(|(_, frame)| frame.head.kind == damaged && (damaged == FrameKind::Chunk || of_one(frame)))
            .unwrap();
        let body = u64::from(frame.byte) + frame.head.bytes() as u64;
        assert!(bench.disk.flip_bit(&role.name(), 8 * (body + 30)));
        let bench = bench.restart(false);
        assert!(!has_moved(&bench), "{damaged:?}");
        assert_eq!(
            bench.journal.report().damaged,
            [(one, Offset(0), Offset(1))],
            "{damaged:?}"
        );
        assert_eq!((bench.end(one), bench.end(two)), (1, 2));
    }
}

#[test]
fn a_damaged_chunk_costs_the_batch_that_it_is_of_and_nothing_else() {
    let bench = Bench::new();
    let [one, two] = [(); 2].map(|()| bench.log(Durability::Sync));
    drop(small(&bench, one));
    drop(large(&bench, one));
    drop(small(&bench, two));
    drop(small(&bench, one));
    bench.journal.pump();
    let (role, chunk) = frames(&bench)
        .into_iter()
        .find(|(_, frame)| frame.head.kind == FrameKind::Chunk)
        .unwrap();
    let bit = 8 * (u64::from(chunk.byte) + HEAD_BYTES as u64 + 100);
    assert!(bench.disk.flip_bit(&role.name(), bit));
    let bench = bench.restart(false);
    assert_eq!(bench.journal.report().damaged, [(one, Offset(1), Offset(2))]);
    assert!(bench.journal.report().fenced.is_empty());
    assert_eq!((bench.end(one), bench.end(two)), (3, 1));
    assert_eq!(read(&bench, one).unwrap().len(), body_of(10).len());
    assert_eq!(read(&bench, two).unwrap().len(), body_of(10).len());
}

#[test]
fn rewriting_puts_the_pieces_together() {
    let bench = Bench::new();
    let [one, two, three] = [(); 3].map(|()| bench.log(Durability::Sync));
    let target = |log, records| Target { log, records };
    let shared = || {
        let frame = Frame::Batch(BatchFrame {
            body: body_of(20_000),
            targets: smallvec![target(two, Selection::All), target(three, Selection::All)],
        });
        Append {
            frames: smallvec![frame],
            ..Append::default()
        }
    };
    for _ in 0..4 {
        drop(large(&bench, one));
        drop(bench.append(shared()));
        drop(small(&bench, two));
        bench.journal.pump();
    }
    let before = [one, two, three].map(|log| read(&bench, log).unwrap());
    bench.journal.checkpoint();
    assert!(bench.journal.rewrite() > 0);
    let sorted = |frames: Vec<(FileRole, ScannedFrame)>| {
        let is_sorted = |role: &FileRole| matches!(role, FileRole::Segment(SegmentKind::Sorted, _));
        frames.into_iter().filter(move |(role, _)| is_sorted(role))
    };
    let kinds: Vec<_> = sorted(frames(&bench)).map(|(_, frame)| frame.head.kind).collect();
    assert!(
        !kinds.is_empty() && kinds.iter().all(|kind| *kind == FrameKind::Batch),
        "{kinds:?}"
    );
    assert_eq!([one, two, three].map(|log| read(&bench, log).unwrap()), before);
    for segment in bench.journal.core.segments.all() {
        assert!(scrub::scrub(&bench.journal.core, &segment));
    }
    let bench = bench.restart(false);
    assert_eq!([one, two, three].map(|log| read(&bench, log).unwrap()), before);
}

#[test]
fn scrubbing_finds_a_chunk_that_is_damaged() {
    let bench = Bench::new();
    let log = bench.log(Durability::Sync);
    drop(large(&bench, log));
    drop(large(&bench, log));
    bench.journal.pump();
    assert_eq!(bench.journal.scrub(), 0);
    let (role, chunk) = frames(&bench)
        .into_iter()
        .find(|(_, frame)| frame.head.kind == FrameKind::Chunk)
        .unwrap();
    assert!(
        bench
            .disk
            .flip_bit(&role.name(), 8 * (u64::from(chunk.byte) + 200))
    );
    assert_eq!(bench.journal.scrub(), 1);
}

#[test]
fn what_does_not_fit_into_a_segment_is_refused() {
    let bench = Bench::new();
    let log = bench.log(Durability::Sync);
    let outcomes = bench.append(Append::batch(log, body_of(64 << 10))).wait();
    let refused = matches!(
        outcomes[0],
        crate::contract::Outcome::Refused(Refusal::TooLarge { .. })
    );
    assert!(refused, "{outcomes:?}");
}

#[test]
fn what_is_in_memory_is_read_without_putting_it_together() {
    let bench = Bench::new();
    let [log] = bench.logs();
    let body = body_of(LARGE);
    drop(bench.append(Append::batch(log, body.clone())));
    bench.journal.pump();
    let logs = vec![ReadFrom {
        log,
        offset: bench.journal.bounds(log).unwrap().start,
        bytes_max: 1 << 20,
        visibility: Visibility::Stored,
    }];
    let request = ReadRequest {
        logs,
        bytes_max: 1 << 20,
        first_batch_whole: true,
    };
    let run = bench.journal.read(request).wait().unwrap().remove(0).unwrap();
    assert!(run.pieces.len() > 5, "it was put together");
    assert_eq!(run.pieces.concat()[61..], body[61..]);
}

#[test]
fn a_journal_of_the_format_before_is_opened_and_a_newer_one_is_refused() {
    let bench = Bench::new();
    let log = bench.log(Durability::Sync);
    drop(small(&bench, log));
    bench.journal.pump();
    bench.journal.close();
    let with_version = |version: u32| {
        let disk = bench.disk.fork();
        for name in disk.names() {
            // Places of the version, of the bytes that its checksum covers, and of the checksum.
            let (at, covered, checksum_at) = match FileRole::of(&name) {
                Some(FileRole::Segment(..)) => (12, crate::disk::segment::COVERED, 8),
                Some(FileRole::Sidecar(..)) => (12, 4..crate::disk::sidecar::BLOCK_BYTES, 0),
                None => continue,
            };
            let file = disk.storage().open(&name).unwrap();
            let mut block = vec![0; SEGMENT_HEAD_BYTES];
            file.read_at(&mut block, 0).unwrap();
            if block[at..at + 4] == FORMAT_VERSION.to_le_bytes() {
                block[at..at + 4].copy_from_slice(&version.to_le_bytes());
                let checksum = crc32c(&block[covered]);
                block[checksum_at..checksum_at + 4].copy_from_slice(&checksum.to_le_bytes());
                file.write_at(&mut [std::io::IoSlice::new(&block)], 0).unwrap();
                file.sync().unwrap();
            }
        }
        try_open(&disk, 1)
    };
    let older = with_version(FORMAT_VERSION - 1).unwrap();
    assert_eq!(older.bounds(log).unwrap().end, Offset(1));
    assert!(!older.report().is_damaged());
    let newer = with_version(FORMAT_VERSION + 1);
    assert!(matches!(newer, Err(OpenError::Newer { .. })), "{newer:?}");
}
