//! One batch, several logs.

use smallvec::SmallVec;
use stafett_journal::{Append, BatchFrame, Frame, Journal, Outcome, PlacedBatch, Refusal, Selection, Target};
use stafett_model::{Codec, Durability, LogId, Offset};

use super::bench::Bench;
use crate::support::{append, batch, compressed, create, create_logs, listed, put, read, read_all, seen};

fn fan_out(body: bytes::Bytes, targets: &[(LogId, Selection)]) -> Append {
    let targets = targets
        .iter()
        .map(|(log, records)| Target {
            log: *log,
            records: *records,
        })
        .collect();
    Append {
        frames: SmallVec::from_iter([Frame::Batch(BatchFrame { body, targets })]),
        ..Append::default()
    }
}

fn range(first: u32, count: u32) -> Selection {
    Selection::Range { first, count }
}

fn committed(outcome: Outcome) -> Vec<(LogId, u64)> {
    let Outcome::Committed(placed) = outcome else {
        panic!("{outcome:?}")
    };
    let place = |PlacedBatch { log, base, duplicate }: PlacedBatch| {
        assert!(!duplicate);
        (log, base.0)
    };
    placed.into_iter().map(place).collect()
}

pub fn one_batch_goes_to_several_logs(bench: &mut Bench) {
    let first = create_logs(bench.journal(), 40, Durability::Sync);
    let logs: Vec<_> = (first.0..first.0 + 40).map(LogId).collect();
    put(bench.journal(), logs[7], batch(&["before"]));
    let targets: Vec<_> = logs.iter().map(|log| (*log, Selection::All)).collect();
    let places = committed(append(bench.journal(), fan_out(batch(&["a", "b"]), &targets)));
    let expected: Vec<_> = logs
        .iter()
        .map(|log| (*log, u64::from(*log == logs[7])))
        .collect();
    assert_eq!(places, expected);
    put(bench.journal(), logs[0], batch(&["behind"]));
    for _ in 0..2 {
        let journal = bench.journal();
        assert_eq!(
            read_all(journal, logs[0], 1000).unwrap(),
            listed(["a", "b", "behind"])
        );
        assert_eq!(
            read_all(journal, logs[7], 1000).unwrap(),
            listed(["before", "a", "b"])
        );
        for log in &logs[8..] {
            assert_eq!(read_all(journal, *log, 1000).unwrap(), listed(["a", "b"]));
        }
        bench.reopen();
    }
}

pub fn a_part_of_a_batch_takes_as_many_offsets_as_it_has_records(bench: &mut Bench) {
    let logs = [(); 4].map(|()| create(bench.journal(), Durability::Sync));
    put(bench.journal(), logs[1], batch(&["x", "y"]));
    let targets = [
        (logs[0], range(0, 2)),
        (logs[1], range(1, 3)),
        (logs[2], range(4, 1)),
        (logs[3], Selection::All),
    ];
    let body = batch(&["0", "1", "2", "3", "4"]);
    let places = committed(append(bench.journal(), fan_out(body, &targets)));
    assert_eq!(places, [(logs[0], 0), (logs[1], 2), (logs[2], 0), (logs[3], 0)]);
    assert_eq!(put(bench.journal(), logs[1], batch(&["z"])), 5);
    for _ in 0..2 {
        let journal = bench.journal();
        assert_eq!(read_all(journal, logs[0], 1000).unwrap(), listed(["0", "1"]));
        assert_eq!(
            read_all(journal, logs[1], 1000).unwrap(),
            listed(["x", "y", "1", "2", "3", "z"])
        );
        assert_eq!(read_all(journal, logs[2], 1000).unwrap(), listed(["4"]));
        assert_eq!(
            read_all(journal, logs[3], 1000).unwrap(),
            listed(["0", "1", "2", "3", "4"])
        );
        let run = read(journal, logs[1], 3, 1).unwrap();
        let part: Vec<_> = seen(&run).into_iter().map(|(at, _)| at).collect();
        assert_eq!((part, run.next), (vec![2, 3, 4], Offset(5)));
        bench.reopen();
    }
}

pub fn parts_of_compressed_batches_can_be_read(bench: &mut Bench) {
    let values: Vec<String> = (0..50).map(|n| format!("value {n} {}", "z".repeat(50))).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4] {
        let (one, two) = (
            create(bench.journal(), Durability::Sync),
            create(bench.journal(), Durability::Sync),
        );
        let body = compressed(&values, codec);
        committed(append(
            bench.journal(),
            fan_out(body, &[(one, range(10, 20)), (two, Selection::All)]),
        ));
        for _ in 0..2 {
            let journal = bench.journal();
            assert_eq!(
                read_all(journal, one, 10_000).unwrap(),
                listed(values[10..30].iter().copied())
            );
            assert_eq!(
                read_all(journal, two, 10_000).unwrap(),
                listed(values.iter().copied())
            );
            bench.reopen();
        }
    }
}

pub fn a_log_may_be_a_target_twice(bench: &mut Bench) {
    let log = create(bench.journal(), Durability::Sync);
    let targets = [(log, range(0, 2)), (log, range(2, 1))];
    let places = committed(append(
        bench.journal(),
        fan_out(batch(&["a", "b", "c"]), &targets),
    ));
    assert_eq!(places, [(log, 0), (log, 2)]);
    for _ in 0..2 {
        assert_eq!(
            read_all(bench.journal(), log, 1000).unwrap(),
            listed(["a", "b", "c"])
        );
        bench.reopen();
    }
}

pub fn a_missing_target_keeps_the_batch_out_of_all(bench: &mut Bench) {
    let journal: &dyn Journal = bench.journal();
    let log = create(journal, Durability::Sync);
    let unknown = journal.allocate(1);
    let both = fan_out(batch(&["a"]), &[(log, Selection::All), (unknown, Selection::All)]);
    assert_eq!(
        append(journal, both),
        Outcome::Refused(Refusal::NoSuchLog(unknown))
    );
    assert_eq!(journal.bounds(log).unwrap().end, Offset(0));
}
