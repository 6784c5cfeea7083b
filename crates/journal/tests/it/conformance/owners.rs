//! Owners: a later one locks out earlier ones.

use smallvec::smallvec;
use stafett_journal::{
    Append, BatchFrame, Frame, Outcome, OwnerEpoch, Refusal, Selection, StateWait, Target,
};
use stafett_model::{Durability, LogId, Offset};

use super::bench::Bench;
use crate::support::{append, batch, create, listed, placed, put, read_all};

fn by(owner: u64, append: Append) -> Append {
    Append {
        owner: Some(OwnerEpoch(owner)),
        ..append
    }
}

fn stale(log: LogId, given: u64, current: u64) -> Outcome {
    Outcome::Refused(Refusal::StaleOwner {
        log,
        given: OwnerEpoch(given),
        current: OwnerEpoch(current),
    })
}

fn claim(log: LogId, owner: u64) -> Append {
    let frame = Frame::Claim {
        log,
        owner: OwnerEpoch(owner),
    };
    Append::state([frame], StateWait::Synced)
}

pub fn a_later_owner_keeps_earlier_ones_out(bench: &mut Bench) {
    let log = create(bench.journal(), Durability::Sync);
    let value = |value: &str| Append::batch(log, batch(&[value]));
    let journal = bench.journal();
    assert_eq!(journal.owner(log), Some(OwnerEpoch(0)));
    assert_eq!(placed(append(journal, by(3, value("a")))).base, Offset(0));
    assert_eq!(placed(append(journal, by(3, value("b")))).base, Offset(1));
    assert_eq!(append(journal, by(2, value("no"))), stale(log, 2, 3));
    assert_eq!(placed(append(journal, by(7, value("c")))).base, Offset(2));
    assert_eq!(append(journal, by(3, value("no"))), stale(log, 3, 7));
    let truncate = Frame::Truncate {
        log,
        before: Offset(3),
    };
    let truncate = Append::state([truncate], StateWait::Synced);
    assert_eq!(append(journal, by(6, truncate)), stale(log, 6, 7));
    for _ in 0..2 {
        bench.reopen();
        assert_eq!(bench.journal().owner(log), Some(OwnerEpoch(7)));
        assert_eq!(append(bench.journal(), by(6, value("no"))), stale(log, 6, 7));
    }
    assert_eq!(
        read_all(bench.journal(), log, 100).unwrap(),
        listed(["a", "b", "c"])
    );
}

pub fn a_log_is_claimed_without_appending_to_it(bench: &mut Bench) {
    let log = create(bench.journal(), Durability::Sync);
    for owner in [4, 4, 5] {
        assert_eq!(
            append(bench.journal(), claim(log, owner)),
            Outcome::Committed(smallvec![])
        );
    }
    assert_eq!(append(bench.journal(), claim(log, 4)), stale(log, 4, 5));
    let old = by(4, Append::batch(log, batch(&["no"])));
    assert_eq!(append(bench.journal(), old), stale(log, 4, 5));
    bench.reopen();
    assert_eq!(append(bench.journal(), claim(log, 4)), stale(log, 4, 5));
    let unknown = bench.journal().allocate(1);
    let refused = append(bench.journal(), claim(unknown, 9));
    assert_eq!(refused, Outcome::Refused(Refusal::NoSuchLog(unknown)));
    assert_eq!(bench.journal().owner(unknown), None);
}

pub fn owners_are_of_one_log_each(bench: &mut Bench) {
    let journal = bench.journal();
    let (one, two) = (create(journal, Durability::Sync), create(journal, Durability::Os));
    append(journal, claim(one, 5));
    let target = |log| Target {
        log,
        records: Selection::All,
    };
    let frame = Frame::Batch(BatchFrame {
        body: batch(&["a"]),
        targets: smallvec![target(two), target(one)],
    });
    let to_both = Append {
        frames: smallvec![frame],
        ..Append::default()
    };
    assert_eq!(append(journal, by(4, to_both.clone())), stale(one, 4, 5));
    assert_eq!(journal.owner(two), Some(OwnerEpoch(0)));
    let outcome = append(journal, by(6, to_both));
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    let owners = [one, two].map(|log| journal.owner(log));
    assert_eq!(owners, [Some(OwnerEpoch(6)); 2]);
}

pub fn an_append_without_an_owner_is_not_asked_for_one(bench: &mut Bench) {
    let journal = bench.journal();
    let log = create(journal, Durability::Sync);
    append(journal, claim(log, 5));
    assert_eq!(put(journal, log, batch(&["a"])), 0);
    assert_eq!(journal.owner(log), Some(OwnerEpoch(5)));
}
