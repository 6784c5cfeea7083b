//! Several appending and several reading threads.

use std::collections::{HashMap, HashSet};

use stafett_journal::{Append, Journal, Outcome};
use stafett_model::{Durability, LogId};

use super::bench::{Bench, block_on};
use crate::support::{Seen, batch, create, read, seen};

const APPENDERS: usize = 4;
/// Appends that a thread has in flight.
const UNDER_WAY: usize = 16;

fn rounds() -> usize {
    crate::support::more(300, 20_000)
}

pub fn what_many_threads_append_is_there_in_order_and_once(bench: &mut Bench) {
    let levels = [Durability::Memory, Durability::Os, Durability::Sync];
    let logs = levels.map(|level| create(bench.journal(), level));
    let journal = bench.journal();
    std::thread::scope(|scope| {
        let followers: Vec<_> = (0..2).map(|_| scope.spawn(|| follow(journal, &logs))).collect();
        let appenders: Vec<_> = (0..APPENDERS)
            .map(|thread| scope.spawn(move || append_all(journal, &logs, thread)))
            .collect();
        let mut acknowledged = HashMap::new();
        for appender in appenders {
            acknowledged.extend(appender.join().unwrap());
        }
        for follower in followers {
            for (log, followed) in logs.iter().zip(follower.join().unwrap()) {
                check(*log, &followed, &acknowledged);
            }
        }
    });
    bench.reopen();
    for log in logs {
        let all = crate::support::read_all(bench.journal(), log, 100_000).unwrap();
        assert_eq!(all.len(), APPENDERS * rounds());
    }
}

/// Appends to all logs in turn; returns the values by place.
fn append_all(journal: &dyn Journal, logs: &[LogId], thread: usize) -> HashMap<(LogId, u64), String> {
    let mut by_offset = HashMap::new();
    let mut under_way = std::collections::VecDeque::new();
    for round in 0..rounds() {
        let value = format!("{thread} {round} {}", "x".repeat(round * 7 % 700));
        let appends = logs
            .iter()
            .map(|log| Append::batch(*log, batch(&[&value])))
            .collect();
        under_way.push_back((journal.append(appends), value));
        while under_way.len() >= if round + 1 == rounds() { 1 } else { UNDER_WAY } {
            let (ticket, value) = under_way.pop_front().unwrap();
            for outcome in ticket.wait() {
                let Outcome::Committed(placed) = outcome else {
                    panic!("{outcome:?}")
                };
                let before = by_offset.insert((placed[0].log, placed[0].base.0), value.clone());
                assert_eq!(before, None, "an offset was given out twice");
            }
        }
    }
    by_offset
}

/// Reads all logs as they grow until they are complete.
fn follow(journal: &dyn Journal, logs: &[LogId]) -> Vec<Vec<Seen>> {
    let watch = journal.watch();
    for (token, log) in (0..).zip(logs) {
        assert!(journal.watch_log(&watch, *log, token));
    }
    let mut followed = vec![Vec::new(); logs.len()];
    // Appenders may have begun, and even ended, before the watch did.
    let mut grown: HashSet<u32> = (0..).zip(logs).map(|(token, _)| token).collect();
    loop {
        for token in grown {
            let (log, all) = (logs[token as usize], &mut followed[token as usize]);
            loop {
                let run = read(journal, log, all.len() as u64, 30_000).unwrap();
                if run.pieces.is_empty() {
                    break;
                }
                all.extend(seen(&run));
            }
        }
        if followed.iter().all(|all| all.len() == APPENDERS * rounds()) {
            return followed;
        }
        block_on(watch.grown());
        grown = watch.take();
    }
}

/// Checks that offsets have no gaps, that each has its acknowledged value, and that each thread's are in
/// order.
fn check(log: LogId, followed: &[Seen], acknowledged: &HashMap<(LogId, u64), String>) {
    let mut next = [0; APPENDERS];
    assert_eq!(followed.len(), APPENDERS * rounds());
    for (expected, (offset, value)) in (0..).zip(followed) {
        assert_eq!(*offset, expected);
        assert_eq!(acknowledged.get(&(log, *offset)), Some(value));
        let mut words = value.split(' ');
        let (thread, round): (usize, usize) = (
            words.next().unwrap().parse().unwrap(),
            words.next().unwrap().parse().unwrap(),
        );
        assert_eq!(next[thread], round);
        next[thread] += 1;
    }
}
