//! Searches by time.

use stafett_journal::{Frame, Journal, ReadError, TimeQuery};
use stafett_model::{Durability, LogId, Offset};

use super::bench::Bench;
use crate::support::{batch_at, control, create, put, records};

fn find(journal: &dyn Journal, log: LogId, query: TimeQuery) -> Option<u64> {
    let found = journal.find_time(log, query).wait().unwrap().unwrap();
    found.map(|batch| records(&batch)[0].0)
}

fn fill(journal: &dyn Journal, log: LogId, times: &[i64]) {
    for time in times {
        put(journal, log, batch_at(&[&"x".repeat(5000), "y"], *time));
    }
}

const TIMES: [i64; 16] = [10, 20, 15, 40, 40, 30, 5, 50, 60, 90, 70, 80, 90, 85, 1, 2];

pub fn the_first_batch_at_or_after_a_time_is_found(bench: &mut Bench) {
    let (log, empty) = (
        create(bench.journal(), Durability::Sync),
        create(bench.journal(), Durability::Sync),
    );
    fill(bench.journal(), log, &TIMES);
    for _ in 0..2 {
        for time in 0..100 {
            let expected = TIMES
                .iter()
                .position(|at| *at >= time)
                .map(|index| 2 * index as u64);
            assert_eq!(
                find(bench.journal(), log, TimeQuery::AtOrAfter(time)),
                expected,
                "time {time}"
            );
        }
        assert_eq!(find(bench.journal(), empty, TimeQuery::AtOrAfter(0)), None);
        bench.reopen();
    }
    let unknown = bench.journal().allocate(1);
    let result = bench
        .journal()
        .find_time(unknown, TimeQuery::Latest)
        .wait()
        .unwrap();
    assert_eq!(result, Err(ReadError::NoSuchLog(unknown)));
}

pub fn the_latest_is_the_first_of_the_latest(bench: &mut Bench) {
    let log = create(bench.journal(), Durability::Sync);
    assert_eq!(find(bench.journal(), log, TimeQuery::Latest), None);
    for end in 1..=TIMES.len() {
        fill(bench.journal(), log, &TIMES[end - 1..end]);
        let latest = TIMES[..end].iter().max().unwrap();
        let first = TIMES.iter().position(|time| time == latest).unwrap();
        assert_eq!(
            find(bench.journal(), log, TimeQuery::Latest),
            Some(2 * first as u64)
        );
    }
    bench.reopen();
    assert_eq!(find(bench.journal(), log, TimeQuery::Latest), Some(18));
}

pub fn times_before_the_start_of_a_log_are_not_found(bench: &mut Bench) {
    let log = create(bench.journal(), Durability::Sync);
    fill(bench.journal(), log, &TIMES);
    control(
        bench.journal(),
        [Frame::Truncate {
            log,
            before: Offset(21),
        }],
    );
    for _ in 0..2 {
        assert_eq!(find(bench.journal(), log, TimeQuery::AtOrAfter(5)), Some(20));
        assert_eq!(find(bench.journal(), log, TimeQuery::Latest), Some(24));
        bench.reopen();
    }
}
