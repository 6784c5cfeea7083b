//! The end of a run, and the next one.

use stafett_journal::{Append, Outcome, Refusal};
use stafett_model::Durability;

use super::bench::Bench;
use crate::support::{append, batch, create, put, read_all};

pub fn a_closed_journal_refuses_appends_and_can_be_closed_again(bench: &mut Bench) {
    let journal = bench.journal();
    let log = create(journal, Durability::Sync);
    put(journal, log, batch(&["a"]));
    journal.close();
    journal.close();
    for log in [log, journal.allocate(1)] {
        let outcome = append(journal, Append::batch(log, batch(&["b"])));
        assert_eq!(outcome, Outcome::Refused(Refusal::Closed));
    }
    assert_eq!(bench.journal().failure(), None);
    assert_eq!(read_all(bench.journal(), log, 100).unwrap().len(), 1);
    bench.reopen();
    assert_eq!(read_all(bench.journal(), log, 100).unwrap().len(), 1);
}

pub fn what_was_staged_before_closing_is_there(bench: &mut Bench) {
    let journal = bench.journal();
    let logs = [Durability::Memory, Durability::Os, Durability::Sync].map(|level| create(journal, level));
    let mut tickets = Vec::new();
    for n in 0..100 {
        for log in logs {
            tickets.push(journal.append(vec![Append::batch(log, batch(&[&n.to_string()]))]));
        }
    }
    journal.close();
    for ticket in tickets {
        let outcomes = ticket.wait();
        assert!(
            matches!(outcomes.as_slice(), [Outcome::Committed(_)]),
            "{outcomes:?}"
        );
    }
    bench.reopen();
    for log in logs {
        let expected: Vec<_> = (0..100).map(|n| (n, n.to_string())).collect();
        assert_eq!(read_all(bench.journal(), log, 1000).unwrap(), expected);
    }
}

pub fn what_is_appended_while_it_closes_is_there_if_it_was_acknowledged(bench: &mut Bench) {
    let journal = bench.journal();
    let logs = [Durability::Os, Durability::Sync].map(|level| create(journal, level));
    let until_refused = |log| {
        let outcomes = (0..2000).map(|n| append(journal, Append::batch(log, batch(&[&n.to_string()]))));
        outcomes
            .take_while(|outcome| *outcome != Outcome::Refused(Refusal::Closed))
            .filter(|outcome| matches!(outcome, Outcome::Committed(_)))
            .count()
    };
    let acknowledged: Vec<usize> = std::thread::scope(|scope| {
        let appenders = logs.map(|log| scope.spawn(move || until_refused(log)));
        for log in logs {
            while journal
                .bounds(log)
                .is_none_or(|bounds| bounds.end == bounds.start)
            {
                std::thread::yield_now();
            }
        }
        journal.close();
        appenders.map(|appender| appender.join().unwrap()).into()
    });
    bench.reopen();
    for (log, acknowledged) in logs.into_iter().zip(acknowledged) {
        let found = read_all(bench.journal(), log, 1 << 20).unwrap().len();
        assert!(found >= acknowledged, "{found} of {acknowledged} are there");
    }
}

pub fn epochs_rise_with_every_start(bench: &mut Bench) {
    let mut last = bench.journal().epoch();
    assert!(last.0 > 0);
    for _ in 0..3 {
        bench.reopen();
        assert!(bench.journal().epoch() > last);
        last = bench.journal().epoch();
    }
}
