//! Appends: offsets, atomicity, preconditions.

use std::time::Duration;

use smallvec::smallvec;
use stafett_journal::{Append, BatchFrame, Frame, Outcome, Precondition, Refusal, Selection, Target};
use stafett_model::{Durability, LogId, Offset};

use super::bench::Bench;
use crate::support::{append, batch, create, create_logs, listed, numbered, placed, put, read_all};

/// Builds a frame that stores a whole batch in one log.
pub fn whole(log: LogId, values: &[&str]) -> Frame {
    Frame::Batch(BatchFrame {
        body: batch(values),
        targets: smallvec![Target {
            log,
            records: Selection::All
        }],
    })
}

pub fn batches_get_the_offsets_behind_each_other(bench: &mut Bench) {
    let journal = bench.journal();
    let log = create(journal, Durability::Sync);
    assert_eq!(put(journal, log, batch(&["a", "b", "c"])), 0);
    assert_eq!(put(journal, log, batch(&["d"])), 3);
    assert_eq!(put(journal, log, batch(&["e", "f"])), 4);
    let bounds = journal.bounds(log).unwrap();
    assert_eq!((bounds.start, bounds.end), (Offset(0), Offset(6)));
    assert!(bounds.bytes > 0);
    assert_eq!(
        read_all(journal, log, 100).unwrap(),
        listed(["a", "b", "c", "d", "e", "f"])
    );
}

pub fn appends_of_one_call_have_outcomes_of_their_own(bench: &mut Bench) {
    let journal = bench.journal();
    let first = create_logs(journal, 3, Durability::Sync);
    let log = |n| LogId(first.0 + n);
    let unknown = journal.allocate(1);
    let outcomes = journal
        .append(vec![
            Append::batch(log(0), batch(&["a"])),
            Append::batch(unknown, batch(&["lost"])),
            Append::batch(log(2), batch(&["b", "c"])),
            Append::batch(log(0), batch(&["d"])),
        ])
        .wait();
    assert_eq!(outcomes.len(), 4);
    assert_eq!(placed(outcomes[0].clone()).base, Offset(0));
    assert_eq!(outcomes[1], Outcome::Refused(Refusal::NoSuchLog(unknown)));
    assert_eq!(placed(outcomes[2].clone()).base, Offset(0));
    assert_eq!(placed(outcomes[3].clone()).base, Offset(1));
    assert_eq!(read_all(journal, log(0), 100).unwrap(), listed(["a", "d"]));
    assert_eq!(read_all(journal, log(1), 100).unwrap(), []);
    assert_eq!(read_all(journal, log(2), 100).unwrap(), listed(["b", "c"]));
}

pub fn an_append_of_several_batches_is_stored_together(bench: &mut Bench) {
    let journal = bench.journal();
    let (one, two) = (
        create(journal, Durability::Sync),
        create(journal, Durability::Sync),
    );
    let frames = smallvec![whole(one, &["a"]), whole(two, &["b", "c"]), whole(one, &["d"])];
    let outcome = append(
        journal,
        Append {
            frames,
            ..Append::default()
        },
    );
    let Outcome::Committed(placed) = outcome else {
        panic!("{outcome:?}")
    };
    let bases: Vec<_> = placed.iter().map(|placed| (placed.log, placed.base.0)).collect();
    assert_eq!(bases, [(one, 0), (two, 0), (one, 1)]);
    assert_eq!(read_all(journal, one, 100).unwrap(), listed(["a", "d"]));
    assert_eq!(read_all(journal, two, 100).unwrap(), listed(["b", "c"]));
}

pub fn an_append_with_one_bad_frame_is_refused_as_a_whole(bench: &mut Bench) {
    let journal = bench.journal();
    let log = create(journal, Durability::Sync);
    let unknown = journal.allocate(1);
    let frames = smallvec![whole(log, &["a"]), whole(unknown, &["b"])];
    let outcome = append(
        journal,
        Append {
            frames,
            ..Append::default()
        },
    );
    assert_eq!(outcome, Outcome::Refused(Refusal::NoSuchLog(unknown)));
    assert_eq!(journal.bounds(log).unwrap().end, Offset(0));
    assert_eq!(put(journal, log, batch(&["c"])), 0);
    bench.reopen();
    assert_eq!(read_all(bench.journal(), log, 100).unwrap(), listed(["c"]));
}

pub fn every_level_is_acknowledged_and_can_be_read(bench: &mut Bench) {
    let journal = bench.journal();
    let logs = LEVELS.map(|level| create(journal, level));
    for (log, level) in logs.iter().zip(LEVELS) {
        for n in 0..20 {
            assert_eq!(put(journal, *log, batch(&[&format!("{n} at {level}")])), n);
        }
        bench.wait_until_visible(*log, 20);
    }
    bench.reopen();
    for (log, level) in logs.iter().zip(LEVELS) {
        let expected: Vec<_> = (0..20).map(|n| (n, format!("{n} at {level}"))).collect();
        assert_eq!(read_all(bench.journal(), *log, 100).unwrap(), expected);
    }
}

const LEVELS: [Durability; 4] = [
    Durability::Memory,
    Durability::Os,
    Durability::Interval {
        records: 2,
        every: Duration::from_millis(5),
    },
    Durability::Sync,
];

pub fn an_append_may_lower_the_level_of_its_logs_and_keeps_its_place(bench: &mut Bench) {
    let journal = bench.journal();
    let logs = LEVELS.map(|level| create(journal, level));
    let mut expected = Vec::new();
    for log in logs {
        expected.clear();
        for n in 0..40 {
            let (level, value) = (LEVELS[n % 4], format!("{n}"));
            let outcome = append(journal, Append::batch(log, batch(&[&value])).at(level));
            assert_eq!(placed(outcome).base, Offset(n as u64));
            expected.push((n as u64, value));
        }
        bench.wait_until_visible(log, 40);
        assert_eq!(read_all(journal, log, 100).unwrap(), expected);
    }
    bench.reopen();
    for log in logs {
        assert_eq!(read_all(bench.journal(), log, 100).unwrap(), expected);
        assert_eq!(put(bench.journal(), log, batch(&["next"])), 40);
    }
}

pub fn a_lowered_append_sent_again_is_the_one_that_is_there(bench: &mut Bench) {
    let journal = bench.journal();
    let log = create(journal, Durability::Sync);
    for (sequence, level) in (0..).zip(LEVELS) {
        let sent = || Append::batch(log, numbered(&["a"], 7, 0, sequence)).at(level);
        let first = placed(append(journal, sent()));
        let again = placed(append(journal, sent()));
        assert_eq!((first.duplicate, again.duplicate), (false, true));
        assert_eq!(first.base, again.base);
    }
    bench.wait_until_visible(log, 4);
}

pub fn a_ticket_that_nobody_keeps_changes_nothing(bench: &mut Bench) {
    let journal = bench.journal();
    let log = create(journal, Durability::Sync);
    for n in 0..10 {
        drop(journal.append(vec![Append::batch(log, batch(&[&n.to_string()]))]));
    }
    assert_eq!(put(journal, log, batch(&["last"])), 10);
    assert_eq!(read_all(journal, log, 100).unwrap().len(), 11);
}

fn at(log: LogId, offset: u64, value: &str) -> Append {
    let require = smallvec![Precondition::NextOffset {
        log,
        offset: Offset(offset)
    }];
    Append {
        require,
        ..Append::batch(log, batch(&[value]))
    }
}

pub fn a_next_offset_that_holds_lets_an_append_in_and_one_that_does_not_keeps_it_out(bench: &mut Bench) {
    let journal = bench.journal();
    let log = create(journal, Durability::Sync);
    assert_eq!(placed(append(journal, at(log, 0, "a"))).base, Offset(0));
    for wrong in [0, 2] {
        let refusal = Refusal::NotAtOffset {
            log,
            next: Offset(1),
            expected: Offset(wrong),
        };
        assert_eq!(append(journal, at(log, wrong, "no")), Outcome::Refused(refusal));
    }
    assert_eq!(placed(append(journal, at(log, 1, "b"))).base, Offset(1));
    assert_eq!(read_all(journal, log, 100).unwrap(), listed(["a", "b"]));
    let unknown = journal.allocate(1);
    let require = smallvec![Precondition::NextOffset {
        log: unknown,
        offset: Offset(0)
    }];
    let elsewhere = Append {
        require,
        ..Append::batch(log, batch(&["no"]))
    };
    assert_eq!(
        append(journal, elsewhere),
        Outcome::Refused(Refusal::NoSuchLog(unknown))
    );
}

pub fn of_two_that_require_the_same_offset_one_gets_it(bench: &mut Bench) {
    let journal = bench.journal();
    let log = create(journal, Durability::Sync);
    let outcomes = journal
        .append(vec![at(log, 0, "first"), at(log, 0, "second")])
        .wait();
    assert_eq!(placed(outcomes[0].clone()).base, Offset(0));
    assert!(
        matches!(outcomes[1], Outcome::Refused(Refusal::NotAtOffset { .. })),
        "{:?}",
        outcomes[1]
    );
    assert_eq!(read_all(journal, log, 100).unwrap(), listed(["first"]));
}

pub fn appends_behind_a_large_one_keep_their_order(bench: &mut Bench) {
    let journal = bench.journal();
    let (one, two) = (create(journal, Durability::Sync), create(journal, Durability::Os));
    let large = ["a", "b"].map(|letter| letter.repeat(bench.batch_bytes_max() / 2));
    let mut expected: [Vec<(u64, String)>; 2] = [Vec::new(), Vec::new()];
    let mut appends = Vec::new();
    for n in 0..6 {
        for (log, values) in [one, two].into_iter().zip(&mut expected) {
            let value = if n % 3 == 0 {
                large[n / 3].clone()
            } else {
                n.to_string()
            };
            appends.push(Append::batch(log, batch(&[&value])));
            values.push((n as u64, value));
        }
    }
    for outcome in journal.append(appends).wait() {
        placed(outcome);
    }
    for _ in 0..2 {
        for (log, values) in [one, two].into_iter().zip(&expected) {
            assert_eq!(&read_all(bench.journal(), log, 100).unwrap(), values);
        }
        bench.reopen();
    }
}

pub fn an_append_of_nothing_is_committed(bench: &mut Bench) {
    assert!(bench.journal().append(Vec::new()).wait().is_empty());
    let outcome = append(bench.journal(), Append::default());
    assert_eq!(outcome, Outcome::Committed(smallvec![]));
}
