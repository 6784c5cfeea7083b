//! Tests of appends with a lower level than their log's, with writer and syncer run step by step.

use stafett_model::{Durability, LogId, Offset};

use super::stepwise_journal::{self, base_of, body_of};
use crate::contract::{Append, Journal};
use crate::ticket::Ticket;

/// A journal with one log.
struct Bench {
    steps: stepwise_journal::Bench,
    log: LogId,
}

impl Bench {
    fn new(level: Durability) -> Self {
        let steps = stepwise_journal::Bench::new();
        let log = steps.log(level);
        Self { steps, log }
    }

    /// Creates a log at `sync` that has reserved offsets for lower appends.
    fn reserved() -> Self {
        let bench = Self::new(Durability::Sync);
        drop(bench.append(Some(Durability::Os)));
        bench.steps.journal.pump();
        assert_eq!(bench.end(), 1);
        bench
    }

    fn append(&self, level: Option<Durability>) -> Ticket {
        let append = Append::batch(self.log, body_of(5));
        self.steps.append(Append { level, ..append })
    }

    fn end(&self) -> u64 {
        self.steps.end(self.log)
    }

    fn restart(self, power: bool) -> Self {
        Self {
            steps: self.steps.restart(power),
            log: self.log,
        }
    }
}

#[test]
fn a_lower_append_does_not_wait_for_a_sync() {
    let bench = Bench::reserved();
    let mut ticket = bench.append(Some(Durability::Os));
    assert_eq!(base_of(&mut ticket), None);
    bench.steps.write();
    assert_eq!(base_of(&mut ticket), Some(1));
    assert_eq!(bench.end(), 2);
}

#[test]
fn at_memory_it_waits_for_nothing() {
    let bench = Bench::reserved();
    assert_eq!(base_of(&mut bench.append(Some(Durability::Memory))), Some(1));
    assert_eq!(bench.end(), 1);
    bench.steps.write();
    assert_eq!(bench.end(), 2);
}

#[test]
fn behind_a_batch_that_waits_for_a_sync_it_is_acknowledged_at_once_and_read_with_that_one() {
    let bench = Bench::reserved();
    let mut strict = bench.append(None);
    bench.steps.write();
    let mut lower = [
        bench.append(Some(Durability::Os)),
        bench.append(Some(Durability::Os)),
    ];
    bench.steps.write();
    assert_eq!(base_of(&mut strict), None);
    assert_eq!(base_of(&mut lower[0]), Some(2));
    assert_eq!(base_of(&mut lower[1]), Some(3));
    assert_eq!(bench.end(), 1);
    bench.steps.sync();
    assert_eq!(base_of(&mut strict), Some(1));
    assert_eq!(bench.end(), 4);
}

#[test]
fn the_first_in_a_log_waits_until_its_offsets_are_reserved() {
    let bench = Bench::new(Durability::Sync);
    let mut first = bench.append(Some(Durability::Os));
    bench.steps.write();
    assert_eq!((base_of(&mut first), bench.end()), (None, 0));
    bench.steps.sync();
    assert_eq!((base_of(&mut first), bench.end()), (Some(0), 1));
}

#[test]
fn a_level_above_the_log_s_changes_nothing() {
    let bench = Bench::new(Durability::Os);
    drop(bench.append(None));
    bench.steps.journal.pump();
    let mut ticket = bench.append(Some(Durability::Sync));
    bench.steps.write();
    assert_eq!(base_of(&mut ticket), Some(1));
}

#[test]
fn reservations_go_on_so_that_later_lower_appends_do_not_wait_either() {
    let bench = Bench::reserved();
    for n in 1..10_000 {
        if n % 1000 == 0 {
            let mut lower = bench.append(Some(Durability::Os));
            bench.steps.write();
            assert_eq!(base_of(&mut lower), Some(n), "a lower append waits");
        } else {
            drop(bench.append(None));
            bench.steps.write();
        }
        bench.steps.sync();
        bench.steps.journal.pump();
    }
}

#[test]
fn offsets_that_a_kill_took_back_are_not_given_out_again() {
    let bench = Bench::reserved();
    let mut ticket = bench.append(Some(Durability::Memory));
    assert_eq!(base_of(&mut ticket), Some(1));
    let bench = bench.restart(false);
    let mut next = bench.append(None);
    bench.steps.journal.pump();
    assert!(base_of(&mut next).unwrap() > 1);
    let start = bench.steps.journal.bounds(bench.log).unwrap().start;
    assert_eq!(start, Offset(0));
}

#[test]
fn offsets_that_a_loss_of_power_took_back_are_not_given_out_again() {
    let bench = Bench::reserved();
    let mut ticket = bench.append(Some(Durability::Os));
    bench.steps.write();
    assert_eq!(base_of(&mut ticket), Some(1));
    let bench = bench.restart(true);
    let mut next = bench.append(None);
    bench.steps.journal.pump();
    assert!(base_of(&mut next).unwrap() > 1);
}

#[test]
fn in_a_log_at_os_memory_counts_as_os() {
    let bench = Bench::new(Durability::Os);
    drop(bench.append(None));
    bench.steps.journal.pump();
    let mut ticket = bench.append(Some(Durability::Memory));
    assert_eq!(base_of(&mut ticket), None);
    bench.steps.write();
    assert_eq!(base_of(&mut ticket), Some(1));
}
