//! Reads: whole batches, within bounds.

use smallvec::smallvec;
use stafett_journal::{
    Append, BatchFrame, Frame, Journal, LogSlice, Outcome, ReadError, ReadFrom, ReadRequest, Selection,
    Target, Visibility,
};
use stafett_model::{BatchHeader, Durability, LogId, Offset};

use super::bench::Bench;
use crate::support::{append, batch, batches, create, listed, put, read, read_all, seen};

/// Batches of three records each; returns the bytes of one.
fn fill(journal: &dyn Journal, log: LogId, count: usize) -> usize {
    for n in 0..count {
        put(
            journal,
            log,
            batch(&[&format!("{n:04} a"), &format!("{n:04} b"), &format!("{n:04} c")]),
        );
    }
    batch(&["0000 a", "0000 b", "0000 c"]).len()
}

fn read_bounded(
    journal: &dyn Journal,
    from: &[(LogId, u64, usize)],
    bytes_max: usize,
    whole: bool,
) -> Vec<LogSlice> {
    let logs = from
        .iter()
        .map(|(log, offset, bytes_max)| ReadFrom {
            log: *log,
            offset: Offset(*offset),
            bytes_max: *bytes_max,
            visibility: Visibility::Stored,
        })
        .collect();
    let request = ReadRequest {
        logs,
        bytes_max,
        first_batch_whole: whole,
    };
    journal
        .read(request)
        .wait()
        .unwrap()
        .into_iter()
        .map(Result::unwrap)
        .collect()
}

pub fn a_read_returns_the_whole_batch_that_holds_the_offset(bench: &mut Bench) {
    let log = create(bench.journal(), Durability::Sync);
    let bytes = fill(bench.journal(), log, 100);
    for _ in 0..2 {
        let journal = bench.journal();
        for offset in 0..300 {
            let run = read(journal, log, offset, bytes + 7).unwrap();
            let first = offset / 3 * 3;
            let offsets: Vec<_> = seen(&run).into_iter().map(|(at, _)| at).collect();
            assert_eq!(offsets, [first, first + 1, first + 2], "read at {offset}");
            assert_eq!(run.next, Offset(first + 3));
            assert_eq!(run.bounds.unwrap().end, Offset(300));
        }
        bench.reopen();
    }
}

pub fn a_read_takes_as_many_batches_as_fit(bench: &mut Bench) {
    let log = create(bench.journal(), Durability::Sync);
    let bytes = fill(bench.journal(), log, 50);
    for _ in 0..2 {
        let journal = bench.journal();
        for fit in 1..20 {
            // A provider may count a few bytes of padding with each batch.
            let run = read(journal, log, 30, fit * (bytes + 7)).unwrap();
            let got = batches(&run).len();
            assert!(
                got >= fit && run.bytes <= fit * (bytes + 7),
                "{got} of {fit} batches"
            );
            let short = read(journal, log, 30, (fit + 1) * bytes - 1).unwrap();
            assert!((1..=fit).contains(&batches(&short).len()));
        }
        bench.reopen();
    }
}

pub fn the_first_batch_is_whole_however_large_it_is_if_so_wanted(bench: &mut Bench) {
    let (one, two) = (
        create(bench.journal(), Durability::Sync),
        create(bench.journal(), Durability::Sync),
    );
    let bytes = fill(bench.journal(), one, 5);
    fill(bench.journal(), two, 5);
    for _ in 0..2 {
        let journal = bench.journal();
        let runs = read_bounded(journal, &[(one, 15, 1), (two, 4, 1)], 1, true);
        assert_eq!((runs[0].bytes, runs[0].next), (0, Offset(15)));
        assert_eq!((runs[1].bytes, runs[1].next), (bytes, Offset(6)));
        let runs = read_bounded(journal, &[(one, 0, 1), (two, 0, 1000)], 1000, true);
        assert_eq!(runs[0].bytes, bytes);
        assert!(runs[1].bytes > 0 && runs[1].bytes <= 1000 - bytes);
        let runs = read_bounded(journal, &[(one, 3, bytes - 1), (two, 3, 0)], 1000, false);
        assert!(runs.iter().all(|run| run.bytes == 0 && run.next == Offset(3)));
        bench.reopen();
    }
}

pub fn bytes_are_shared_by_the_logs_of_a_read(bench: &mut Bench) {
    let logs = [(); 4].map(|()| create(bench.journal(), Durability::Sync));
    let bytes = logs.map(|log| fill(bench.journal(), log, 10))[0];
    for _ in 0..2 {
        let from = logs.map(|log| (log, 0, 100 * bytes));
        let runs = read_bounded(bench.journal(), &from, 25 * (bytes + 7), true);
        let counts: Vec<_> = runs.iter().map(|run| batches(run).len()).collect();
        assert_eq!(counts[..2], [10, 10]);
        assert!((5..=6).contains(&counts[2]), "{counts:?}");
        assert!(runs.iter().map(|run| run.bytes).sum::<usize>() <= 25 * (bytes + 7));
        bench.reopen();
    }
}

pub fn a_read_at_the_end_is_empty_and_beyond_it_is_refused(bench: &mut Bench) {
    let log = create(bench.journal(), Durability::Sync);
    assert_eq!(read(bench.journal(), log, 0, 100).unwrap().next, Offset(0));
    fill(bench.journal(), log, 4);
    for _ in 0..2 {
        let journal = bench.journal();
        let run = read(journal, log, 12, 100).unwrap();
        assert_eq!((run.bytes, run.next, run.pieces.len()), (0, Offset(12), 0));
        for wanted in [13, u64::MAX] {
            let error = ReadError::OutOfRange {
                log,
                wanted: Offset(wanted),
                start: Offset(0),
                end: Offset(12),
            };
            assert_eq!(read(journal, log, wanted, 100), Err(error));
        }
        bench.reopen();
    }
}

pub fn an_unknown_log_is_named_and_the_others_are_read(bench: &mut Bench) {
    let journal = bench.journal();
    let log = create(journal, Durability::Sync);
    let unknown = journal.allocate(1);
    fill(journal, log, 1);
    assert_eq!(journal.bounds(unknown), None);
    let logs = [unknown, log].map(|log| ReadFrom {
        log,
        offset: Offset(0),
        bytes_max: 1000,
        visibility: Visibility::Stored,
    });
    let request = ReadRequest {
        logs: logs.to_vec(),
        bytes_max: 1000,
        first_batch_whole: false,
    };
    let results = journal.read(request).wait().unwrap();
    assert_eq!(results[0], Err(ReadError::NoSuchLog(unknown)));
    assert_eq!(results[1].as_ref().unwrap().next, Offset(3));
}

pub fn batches_carry_their_place_and_the_epoch_of_their_start(bench: &mut Bench) {
    let log = create(bench.journal(), Durability::Sync);
    let mut epochs = Vec::new();
    for _ in 0..3 {
        epochs.push(bench.journal().epoch());
        put(bench.journal(), log, batch(&["x", "y"]));
        bench.reopen();
    }
    let run = read(bench.journal(), log, 0, 10_000).unwrap();
    let headers: Vec<_> = batches(&run)
        .iter()
        .map(|batch| BatchHeader::verify(batch).unwrap())
        .collect();
    let bases: Vec<_> = headers.iter().map(|header| header.base_offset).collect();
    assert_eq!(bases, [0, 2, 4]);
    let stored: Vec<_> = headers
        .iter()
        .map(|header| header.leader_epoch.cast_unsigned())
        .collect();
    assert_eq!(stored, epochs.iter().map(|epoch| epoch.0).collect::<Vec<_>>());
}

pub fn large_batches_come_back_as_they_went_in(bench: &mut Bench) {
    let log = create(bench.journal(), Durability::Sync);
    let max = bench.batch_bytes_max();
    let sizes = [max, 1, 15_900, 16_000, 16_384, 17_000, 3, max - 1, 40_000];
    let values = sizes.map(|size| "v".repeat(size.min(max)));
    for value in &values {
        put(bench.journal(), log, batch(&[value]));
    }
    for _ in 0..2 {
        assert_eq!(
            read_all(bench.journal(), log, 50_000).unwrap(),
            listed_owned(&values)
        );
        bench.reopen();
    }
}

pub fn large_batches_come_back_to_every_log_that_gets_them(bench: &mut Bench) {
    let journal = bench.journal();
    let [whole, parts, twice] = [(); 3].map(|()| create(journal, Durability::Sync));
    let bytes = bench.batch_bytes_max() / 3;
    let values = ["a", "b", "c"].map(|letter| letter.repeat(bytes));
    let body = batch(&[&values[0], &values[1], &values[2]]);
    let target = |log, records| Target { log, records };
    let part = |first, count| Selection::Range { first, count };
    let frame = Frame::Batch(BatchFrame {
        body,
        targets: smallvec![
            target(whole, Selection::All),
            target(parts, part(2, 1)),
            target(twice, part(0, 2)),
            target(twice, Selection::All),
        ],
    });
    let outcome = append(
        journal,
        Append {
            frames: smallvec![frame],
            ..Append::default()
        },
    );
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    let [a, b, c] = values.each_ref().map(String::as_str);
    for _ in 0..2 {
        for (log, expected) in [
            (whole, vec![a, b, c]),
            (parts, vec![c]),
            (twice, vec![a, b, a, b, c]),
        ] {
            assert_eq!(read_all(bench.journal(), log, 100).unwrap(), listed(expected));
        }
        bench.reopen();
    }
}

fn listed_owned(values: &[String]) -> Vec<(u64, String)> {
    listed(values.iter().map(String::as_str))
}
