//! Tests of appends that are sent again after a failure, with writer and syncer run step by step.

use stafett_model::{Durability, LogId};

use super::stepwise_journal::{Bench, base_of, body_of, numbered_of};
use crate::contract::{Append, OwnerEpoch, RequestId};
use crate::ticket::Ticket;

fn send(bench: &Bench, log: LogId) -> Ticket {
    bench.append(Append {
        request: Some(RequestId([7; 16])),
        owner: Some(OwnerEpoch(3)),
        ..Append::batch(log, body_of(10))
    })
}

#[test]
fn what_comes_again_waits_for_what_the_first_waits_for() {
    let bench = Bench::new();
    let log = bench.log(Durability::Sync);
    let (mut first, mut again) = (send(&bench, log), send(&bench, log));
    bench.write();
    assert_eq!((base_of(&mut first), base_of(&mut again)), (None, None));
    bench.sync();
    assert_eq!((base_of(&mut first), base_of(&mut again)), (Some(0), Some(0)));
    assert_eq!(bench.end(log), 1);
}

#[test]
fn what_survived_is_known_and_what_did_not_is_stored() {
    for (power, synced) in [(false, false), (false, true), (true, false), (true, true)] {
        let bench = Bench::new();
        let [log] = bench.logs();
        drop(send(&bench, log));
        bench.write();
        if synced {
            bench.sync();
        }
        let bench = bench.restart(power);
        let was_there = !power || synced;
        let owner = crate::contract::Journal::owner(&bench.journal, log);
        let mut again = send(&bench, log);
        bench.journal.pump();
        let base = base_of(&mut again).unwrap();
        // A loss of power takes the offset back, and it is not reused.
        assert_eq!(base == 1, was_there, "power {power}, synced {synced}");
        assert_eq!(owner, Some(OwnerEpoch(if was_there { 3 } else { 0 })));
        let mut twice = send(&bench, log);
        bench.journal.pump();
        assert_eq!(base_of(&mut twice), Some(base));
    }
}

#[test]
fn a_duplicate_waits_until_the_offsets_of_the_first_are_reserved() {
    for level in [Durability::Memory, Durability::Os] {
        let bench = Bench::new();
        let log = bench.log(level);
        let send = || bench.append(Append::batch(log, numbered_of(10, 7, 0)));
        let (mut first, mut again) = (send(), send());
        bench.write();
        assert_eq!(
            (base_of(&mut first), base_of(&mut again)),
            (None, None),
            "{level:?}"
        );
        bench.sync();
        assert_eq!((base_of(&mut first), base_of(&mut again)), (Some(0), Some(0)));
        let mut shown = send();
        assert_eq!(base_of(&mut shown), Some(0), "there is nothing to wait for");
    }
}
