//! Stored state, and the members that continue after a restart.

use stafett_topics::Topics;

use super::super::*;
use super::script::after_two;
use crate::consumer::classic::{Classic, ClassicMember};
use crate::consumer::{self, Partitions, Rules};

#[test]
fn members_go_on_after_a_restart() {
    let group = after_two(
        "+5000
        restart
        +9999
        beat a 1
        > ok
        beat b 1
        > ok
        sync b 1
        > b gets `y`
        join b as b
        > b joined 1 range led by a
        commit a 1
        > ok",
    );
    assert!(group.is_stable());
}

#[test]
fn a_restart_within_a_rebalance_goes_back_to_the_last_generation() {
    after_two(
        "join c
        restart
        beat a 1
        > ok
        join c as c
        > c not joined as `c`: UnknownMember",
    );
}

#[test]
fn what_is_stored_reads_back_and_cut_ones_do_not() {
    let group = after_two("");
    let mut bytes = Vec::new();
    group.encode(&mut bytes);
    let again = ClassicGroup::decode(&bytes, Moment(0)).unwrap();
    let mut second = Vec::new();
    again.encode(&mut second);
    assert_eq!(bytes, second);
    for cut in 0..bytes.len() {
        assert!(
            ClassicGroup::decode(&bytes[..cut], Moment(0)).is_none(),
            "cut at {cut}"
        );
    }
}

#[test]
fn members_to_whom_a_group_was_given_back_are_asked_to_join_also_after_a_crash() {
    let member = ClassicMember {
        id: "a".into(),
        instance: None,
        client_id: "client".into(),
        host: "host".into(),
        rebalance_ms: 60_000,
        classic: Classic {
            purpose: "consumer".into(),
            session_ms: 10_000,
            strategies: vec![Strategy {
                name: "range".into(),
                metadata: Bytes::new(),
            }],
        },
        names: Vec::new(),
        has: Partitions::default(),
    };
    let mut assigned = consumer::Group::default();
    assigned.take_over(4, vec![member], &Topics::default(), &Rules::default(), 0);
    let given_back = ClassicGroup::revived(&assigned, Moment(0));
    let mut bytes = Vec::new();
    given_back.encode(&mut bytes);
    let mut after = ClassicGroup::decode(&bytes, Moment(0)).unwrap();
    let beat = after.heartbeat("a", None, 4, Moment(1));
    assert_eq!(beat, Err(GroupError::Rebalancing));
    assert!(after.deadline().is_some_and(|until| until <= Moment(60_000)));
}
