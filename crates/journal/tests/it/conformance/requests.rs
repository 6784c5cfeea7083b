//! Appends with an id.

use bytes::Bytes;
use smallvec::smallvec;
use stafett_journal::{
    Append, Change, Frame, Outcome, PlacedBatch, Precondition, Refusal, RequestId, StateWait,
};
use stafett_model::{Durability, Offset};

use super::bench::Bench;
use super::state::{change, load};
use crate::support::{append, batch, create, listed, placed, read_all};

const SPACE: u16 = 40;

fn under(id: u8, append: Append) -> Append {
    Append {
        request: Some(RequestId([id; 16])),
        ..append
    }
}

/// Builds an append of a batch and a delta, stored atomically.
fn both(log: stafett_model::LogId, value: &str) -> Append {
    let delta = Change::Delta(Bytes::copy_from_slice(value.as_bytes()));
    let mut append = Append::batch(log, batch(&[value]));
    append.frames.push(change(SPACE, "key", delta));
    append
}

pub fn an_append_sent_again_under_its_id_is_the_one_that_is_there(bench: &mut Bench) {
    let journal = bench.journal();
    for level in [Durability::Memory, Durability::Os, Durability::Sync] {
        let log = create(journal, level);
        let first = placed(append(journal, under(1 + level_number(level), both(log, "a"))));
        let again = placed(append(journal, under(1 + level_number(level), both(log, "a"))));
        let duplicate = PlacedBatch {
            duplicate: true,
            ..first
        };
        assert_eq!((first.duplicate, again), (false, duplicate));
        let other = placed(append(journal, under(100 + level_number(level), both(log, "b"))));
        assert_eq!(other.base, Offset(1));
        bench.wait_until_visible(log, 2);
        assert_eq!(read_all(journal, log, 100).unwrap(), listed(["a", "b"]));
    }
}

fn level_number(level: Durability) -> u8 {
    match level {
        Durability::Memory => 0,
        Durability::Os => 1,
        Durability::Interval { .. } => 2,
        Durability::Sync => 3,
    }
}

pub fn an_id_is_known_to_the_next_start(bench: &mut Bench) {
    let log = create(bench.journal(), Durability::Os);
    let put = |value: &'static str| {
        let put = change(SPACE, "other", Change::Put(Bytes::from_static(value.as_bytes())));
        Append::state([put], StateWait::Written)
    };
    placed(append(bench.journal(), under(1, both(log, "a"))));
    let first = append(bench.journal(), under(2, put("first")));
    assert_eq!(first, Outcome::Committed(smallvec![]));
    for _ in 0..2 {
        bench.reopen();
        let again = placed(append(bench.journal(), under(1, both(log, "not again"))));
        assert_eq!((again.base, again.duplicate), (Offset(0), true));
        append(bench.journal(), under(2, put("second")));
    }
    bench.reopen();
    assert_eq!(read_all(bench.journal(), log, 100).unwrap(), listed(["a"]));
    let state = load(bench.journal(), SPACE);
    assert_eq!(state["key"].1, ["a"]);
    assert_eq!(state["other"].0.as_deref(), Some("first"));
}

pub fn what_was_refused_can_be_tried_again_under_its_id(bench: &mut Bench) {
    let journal = bench.journal();
    let log = create(journal, Durability::Sync);
    let unknown = journal.allocate(1);
    let refused = append(journal, under(1, Append::batch(unknown, batch(&["a"]))));
    assert_eq!(refused, Outcome::Refused(Refusal::NoSuchLog(unknown)));
    let stored = placed(append(journal, under(1, Append::batch(log, batch(&["a"])))));
    assert_eq!((stored.base, stored.duplicate), (Offset(0), false));
}

pub fn an_id_counts_before_what_is_required(bench: &mut Bench) {
    let journal = bench.journal();
    let log = create(journal, Durability::Sync);
    let at_the_start = || {
        let require = smallvec![Precondition::NextOffset {
            log,
            offset: Offset(0)
        }];
        let append = Append::batch(log, batch(&["a"]));
        under(1, Append { require, ..append })
    };
    assert!(!placed(append(journal, at_the_start())).duplicate);
    assert!(placed(append(journal, at_the_start())).duplicate);
}

pub fn of_many_at_once_under_one_id_one_is_stored(bench: &mut Bench) {
    let journal = bench.journal();
    let log = create(journal, Durability::Sync);
    let sent = || under(1, Append::batch(log, batch(&["a"])));
    let duplicates: Vec<bool> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| journal.append(vec![sent(), sent()]).wait()))
            .collect();
        let outcomes = threads.into_iter().flat_map(|thread| thread.join().unwrap());
        outcomes.map(|outcome| placed(outcome).duplicate).collect()
    });
    assert_eq!(duplicates.iter().filter(|duplicate| !**duplicate).count(), 1);
    assert_eq!(read_all(journal, log, 100).unwrap(), listed(["a"]));
    assert!(journal.bounds(log).unwrap().end == Offset(1));
    let other = Frame::Truncate {
        log,
        before: Offset(1),
    };
    let outcome = append(journal, Append::state([other], StateWait::Synced));
    assert_eq!(outcome, Outcome::Committed(smallvec![]));
}
