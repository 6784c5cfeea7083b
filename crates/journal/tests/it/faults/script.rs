//! The script: everything that a journal does, through many segments.

use std::time::Duration;

use stafett_journal::{Journal, StateWait};
use stafett_model::Durability;

use super::named::Asked;
use super::run::{Run, delta, put, remove};

const ROUNDS: i32 = 7;

/// Runs until the end or until the journal fails.
pub fn play(run: &mut Run) {
    let levels = [
        Durability::Memory,
        Durability::Os,
        Durability::Interval {
            records: 5,
            every: Duration::from_millis(1),
        },
        Durability::Sync,
        Durability::Sync,
        Durability::Sync,
        Durability::Sync,
    ];
    let logs = levels.map(|level| run.create(level));
    let [memory, os, interval, sync, numbered, doomed, mixed] = logs;
    run.pump();
    for round in 0..ROUNDS {
        if run.is_over() {
            return;
        }
        // In even rounds, each append has a write group of its own.
        let between = |run: &mut Run| {
            if round % 2 == 0 {
                run.pump();
            }
        };
        run.append(sync, 2, 600);
        between(run);
        run.append(os, 3, 200);
        run.append(memory, 1, 500);
        between(run);
        run.lowered(mixed, Durability::Os, 100);
        run.append(mixed, 1, 120);
        run.lowered(mixed, Durability::Os, 100);
        between(run);
        run.lowered(mixed, Durability::Memory, 100);
        run.append(interval, 2, 300);
        run.numbered(numbered, round, if round == 4 { 4300 } else { 100 });
        between(run);
        run.fan_out(
            &[(sync, None), (os, Some((1, 2))), (numbered, Some((0, 1)))],
            3,
            150,
        );
        run.state(put(3, "round", &round.to_string()), StateWait::Written);
        run.state(delta(3, "rounds", &round.to_string()), StateWait::Written);
        between(run);
        run.together(&[os, sync], 250, vec![delta(4, "both", &round.to_string())]);
        if round < 4 {
            run.append(doomed, 1, 900);
        }
        run.pump();
        large(run, round, logs);
        named(run, round, logs);
        run.pump();
        special(run, round, logs);
        run.pump();
    }
}

/// Batches in chunks, and appends that may or may not overtake them.
fn large(run: &mut Run, round: i32, logs: [stafett_model::LogId; 7]) {
    let [_, os, interval, sync, numbered, _, mixed] = logs;
    match round {
        0 => {
            run.append(sync, 1, 4600);
            run.append(os, 1, 100);
            run.append(sync, 1, 60);
            run.lowered(mixed, Durability::Os, 80);
            run.state(put(4, "passed", "by"), StateWait::Written);
        }
        2 => {
            run.fan_out(&[(mixed, None), (os, Some((1, 1)))], 2, 2200);
            run.append(interval, 1, 100);
            run.append(sync, 2, 2200);
            run.append(os, 1, 70);
            run.fan_out(&[(numbered, None), (sync, None)], 1, 90);
            run.append(numbered, 1, 50);
        }
        5 => {
            run.lowered(mixed, Durability::Memory, 4300);
            run.together(&[os, mixed], 100, vec![delta(4, "held", "back")]);
            run.append(sync, 1, 90);
            run.state(delta(4, "held", "too"), StateWait::Synced);
        }
        _ => {}
    }
}

/// Appends under ids and from owners, sent again while they are pending and after they are done.
fn named(run: &mut Run, round: i32, logs: [stafett_model::LogId; 7]) {
    let [_, os, interval, sync, numbered, _, mixed] = logs;
    match round {
        0 => {
            run.asked(Asked::named(0).by(2), &[sync, os], 100, Vec::new());
            run.again(0);
        }
        1 => {
            run.claim(numbered, 3);
            run.asked(Asked::named(1).at(Durability::Memory), &[mixed], 80, Vec::new());
            run.again(1);
            run.again(0);
        }
        2 => {
            // It is written in chunks, behind others that share its log.
            run.asked(Asked::named(2).by(3), &[sync], 4500, Vec::new());
            run.again(2);
        }
        3 => {
            run.stale(sync);
            run.asked(Asked::default().by(5), &[interval], 60, Vec::new());
        }
        4 => {
            run.asked(Asked::named(4), &[os], 70, vec![put(4, "named", "4")]);
            run.again(4);
        }
        5 => {
            run.asked(Asked::named(5).by(4), &[numbered, mixed], 60, Vec::new());
            run.stale(numbered);
            run.again(5);
        }
        _ => {
            run.claim(os, 9);
            run.stale(os);
            run.again(2);
            run.again(5);
        }
    }
}

/// Ends a run cleanly, unless it failed.
pub fn end(run: &mut Run) {
    if !run.is_over() {
        run.journal.close();
        run.ledger.poll();
    }
}

/// Actions that happen once.
fn special(run: &mut Run, round: i32, logs: [stafett_model::LogId; 7]) {
    let [memory, os, _, sync, numbered, doomed, _] = logs;
    match round {
        1 => {
            run.journal.checkpoint();
            run.truncate(sync, 3);
            run.append(sync, 1, 6000);
        }
        2 => {
            run.state(remove(3, "rounds"), StateWait::Synced);
            run.truncate(os, 1_000);
            run.journal.enforce_retention();
        }
        3 => {
            run.append(doomed, 1, 10);
            run.delete(doomed);
            run.change_level(os, Durability::Sync);
        }
        4 => {
            let late = run.create(Durability::Os);
            run.pump();
            run.fan_out(&[(late, None), (memory, Some((0, 1)))], 2, 100);
            run.journal.checkpoint();
            run.journal.rewrite();
        }
        5 => {
            run.change_level(os, Durability::Os);
            run.append(os, 1, 9000);
            run.truncate(numbered, 2);
            run.pump();
            run.journal.rewrite();
        }
        6 => {
            run.journal.checkpoint();
            run.truncate(sync, 30);
            run.pump();
            run.journal.rewrite();
        }
        _ => {}
    }
}
