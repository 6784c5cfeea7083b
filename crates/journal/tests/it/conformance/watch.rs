//! Notification of growth.

use std::collections::HashSet;

use stafett_model::Durability;

use super::bench::{Bench, block_on};
use crate::support::{batch, create, put};

pub fn growth_is_told_once_with_its_bytes(bench: &mut Bench) {
    let journal = bench.journal();
    let log = create(journal, Durability::Sync);
    put(journal, log, batch(&["before"]));
    let watch = journal.watch();
    assert!(journal.watch_log(&watch, log, 5));
    assert_eq!((watch.bytes(), watch.take()), (0, HashSet::new()));
    let body = batch(&["x", "y"]);
    for _ in 0..3 {
        put(journal, log, body.clone());
    }
    block_on(watch.grown());
    assert!(watch.bytes() >= 3 * body.len() as u64);
    assert_eq!(watch.take(), HashSet::from([5]));
    assert_eq!((watch.bytes(), watch.take()), (0, HashSet::new()));
}

pub fn a_watch_hears_of_each_log_by_its_token(bench: &mut Bench) {
    let journal = bench.journal();
    let logs: Vec<_> = (0..5).map(|_| create(journal, Durability::Os)).collect();
    let (watch, other) = (journal.watch(), journal.watch());
    for (token, log) in (0..).zip(&logs) {
        assert!(journal.watch_log(&watch, *log, token));
    }
    assert!(journal.watch_log(&other, logs[3], 77));
    put(journal, logs[1], batch(&["x"]));
    put(journal, logs[3], batch(&["x"]));
    block_on(watch.grown());
    assert_eq!(watch.take(), HashSet::from([1, 3]));
    block_on(other.grown());
    assert_eq!(other.take(), HashSet::from([77]));
    drop(other);
    put(journal, logs[3], batch(&["x"]));
    block_on(watch.grown());
    assert_eq!(watch.take(), HashSet::from([3]));
}

pub fn a_part_of_a_watch_reports_to_it_until_it_is_dropped(bench: &mut Bench) {
    let journal = bench.journal();
    let logs: Vec<_> = (0..2).map(|_| create(journal, Durability::Os)).collect();
    let watch = journal.watch();
    let part = watch.part();
    assert!(journal.watch_log(&watch, logs[0], 1));
    assert!(journal.watch_log(&part, logs[1], 2));
    let put_both = || {
        for log in &logs {
            put(journal, *log, batch(&["x"]));
        }
    };
    put_both();
    block_on(watch.grown());
    assert_eq!(watch.take(), HashSet::from([1, 2]));
    drop(part);
    put_both();
    block_on(watch.grown());
    assert_eq!(watch.take(), HashSet::from([1]));
}

pub fn an_unknown_log_cannot_be_watched(bench: &mut Bench) {
    let unknown = bench.journal().allocate(1);
    assert!(!bench.journal().watch_log(&bench.journal().watch(), unknown, 0));
}
