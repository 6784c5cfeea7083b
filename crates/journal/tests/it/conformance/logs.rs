//! Logs are created, changed, truncated and deleted.

use std::collections::HashSet;

use stafett_journal::{
    Append, Change, Frame, Journal, LogSpec, Outcome, ReadError, Refusal, StateChange, StateSpace, StateWait,
};
use stafett_model::{Durability, LogId, Offset};

use super::bench::{Bench, block_on};
use crate::support::{append, batch, control, create, create_logs, listed, put, read, read_all};

fn truncate(journal: &dyn Journal, log: LogId, before: u64) {
    control(
        journal,
        [Frame::Truncate {
            log,
            before: Offset(before),
        }],
    );
}

fn range_of(journal: &dyn Journal, log: LogId) -> (u64, u64) {
    let bounds = journal.bounds(log).unwrap();
    (bounds.start.0, bounds.end.0)
}

pub fn ids_are_given_out_once(bench: &mut Bench) {
    let journal = bench.journal();
    let first = journal.allocate(10);
    let second = journal.allocate(1);
    assert!(first.0 > 0 && second.0 >= first.0 + 10);
    let created = create_logs(journal, 5, Durability::Sync);
    control(
        journal,
        [Frame::DeleteLogs {
            first: created,
            count: 5,
        }],
    );
    bench.reopen();
    let after = bench.journal().allocate(1);
    assert!(after.0 >= created.0 + 5, "{after} may have been used before");
}

pub fn a_truncated_log_starts_where_it_was_cut(bench: &mut Bench) {
    let log = create(bench.journal(), Durability::Sync);
    for n in 0..30 {
        let values = [0, 1, 2].map(|i| format!("{} {}", 3 * n + i, "x".repeat(1000)));
        put(bench.journal(), log, batch(&[&values[0], &values[1], &values[2]]));
    }
    let mut last_bytes = bench.journal().bounds(log).unwrap().bytes;
    for cut in [3, 4, 50, 89] {
        truncate(bench.journal(), log, cut);
        for _ in 0..2 {
            let journal = bench.journal();
            assert_eq!(range_of(journal, log), (cut, 90));
            let offsets: Vec<_> = read_all(journal, log, 5000)
                .unwrap()
                .into_iter()
                .map(|(at, _)| at)
                .collect();
            assert_eq!(offsets, (cut..90).collect::<Vec<_>>());
            let error = ReadError::OutOfRange {
                log,
                wanted: Offset(cut - 1),
                start: Offset(cut),
                end: Offset(90),
            };
            assert_eq!(read(journal, log, cut - 1, 100), Err(error));
            bench.reopen();
        }
        let bytes = bench.journal().bounds(log).unwrap().bytes;
        assert!(bytes <= last_bytes);
        last_bytes = bytes;
    }
}

pub fn truncation_never_goes_back_or_beyond_the_end(bench: &mut Bench) {
    let log = create(bench.journal(), Durability::Sync);
    put(bench.journal(), log, batch(&["a", "b", "c", "d"]));
    truncate(bench.journal(), log, 2);
    truncate(bench.journal(), log, 1);
    assert_eq!(range_of(bench.journal(), log), (2, 4));
    truncate(bench.journal(), log, 1_000_000);
    assert_eq!(range_of(bench.journal(), log), (4, 4));
    bench.reopen();
    assert_eq!(range_of(bench.journal(), log), (4, 4));
    assert_eq!(put(bench.journal(), log, batch(&["e"])), 4);
    assert_eq!(
        read_all(bench.journal(), log, 100).unwrap(),
        [(4, "e".to_owned())]
    );
}

pub fn a_deleted_log_is_gone_and_its_id_with_it(bench: &mut Bench) {
    let (gone, kept) = (
        create_logs(bench.journal(), 2, Durability::Sync),
        create(bench.journal(), Durability::Sync),
    );
    put(bench.journal(), gone, batch(&["a"]));
    put(bench.journal(), kept, batch(&["b"]));
    let watch = bench.journal().watch();
    assert!(bench.journal().watch_log(&watch, gone, 5));
    control(
        bench.journal(),
        [Frame::DeleteLogs {
            first: gone,
            count: 2,
        }],
    );
    block_on(watch.grown());
    assert_eq!((watch.bytes(), watch.take()), (0, HashSet::from([5])));
    for _ in 0..3 {
        let journal = bench.journal();
        assert_eq!(journal.bounds(gone), None);
        assert_eq!(read(journal, gone, 0, 100), Err(ReadError::NoSuchLog(gone)));
        assert!(!journal.watch_log(&journal.watch(), gone, 1));
        let outcome = append(journal, Append::batch(gone, batch(&["c"])));
        assert_eq!(outcome, Outcome::Refused(Refusal::NoSuchLog(gone)));
        assert!(create(journal, Durability::Sync).0 > kept.0);
        assert_eq!(read_all(journal, kept, 100).unwrap(), listed(["b"]));
        bench.reopen();
    }
}

pub fn a_changed_level_holds_from_then_on(bench: &mut Bench) {
    let log = create(bench.journal(), Durability::Memory);
    let mut expected = Vec::new();
    for level in [
        Durability::Sync,
        Durability::Os,
        Durability::Memory,
        Durability::Sync,
    ] {
        let spec = LogSpec {
            durability: level,
            ..LogSpec::default()
        };
        control(
            bench.journal(),
            [Frame::ChangeLogs {
                first: log,
                count: 1,
                spec,
            }],
        );
        for n in 0..3 {
            let value = format!("{n} at {level}");
            put(bench.journal(), log, batch(&[&value]));
            expected.push(value);
        }
        bench.wait_until_visible(log, expected.len() as u64);
        bench.reopen();
        let all = read_all(bench.journal(), log, 1000).unwrap();
        assert_eq!(all, listed(expected.iter().map(String::as_str)));
    }
}

pub fn what_is_asked_of_unknown_logs_is_refused(bench: &mut Bench) {
    let journal = bench.journal();
    let known = create(journal, Durability::Sync);
    let unknown = journal.allocate(1);
    assert_eq!(unknown.0, known.0 + 1);
    let state = StateChange {
        space: StateSpace(1),
        key: bytes::Bytes::from_static(b"key"),
        change: Change::Put(bytes::Bytes::new()),
    };
    for frame in [
        Frame::Truncate {
            log: unknown,
            before: Offset(0),
        },
        Frame::DeleteLogs {
            first: known,
            count: 2,
        },
        Frame::ChangeLogs {
            first: known,
            count: 2,
            spec: LogSpec::default(),
        },
    ] {
        let both = Append::state([Frame::State(state.clone()), frame], StateWait::Synced);
        assert_eq!(
            append(journal, both),
            Outcome::Refused(Refusal::NoSuchLog(unknown))
        );
    }
    assert!(journal.bounds(known).is_some());
    bench.reopen();
    let mut items = 0;
    bench
        .journal()
        .load_state(StateSpace(1), &mut |_| items += 1)
        .unwrap();
    assert_eq!(items, 0);
}

pub fn logs_come_back_as_they_were(bench: &mut Bench) {
    let first = create_logs(bench.journal(), 200, Durability::Os);
    for round in 0..3 {
        for n in (0..200).step_by(7) {
            put(
                bench.journal(),
                LogId(first.0 + n),
                batch(&[&format!("{round} of {n}")]),
            );
        }
        bench.reopen();
    }
    for n in 0..200 {
        let expected: Vec<_> = (0..3)
            .filter(|_| n % 7 == 0)
            .map(|round| (round, format!("{round} of {n}")))
            .collect();
        assert_eq!(
            read_all(bench.journal(), LogId(first.0 + n), 1000).unwrap(),
            expected
        );
    }
}
