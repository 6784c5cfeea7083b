//! Stored state, and the members that continue after a restart.

use super::super::*;
use super::script::after_two;

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
fn an_assignment_is_given_once_it_is_stored() {
    let group = after_two(
        "
        join a as a
        join b as b
        > a joined 2 range led by a [a b]
        > b joined 2 range led by a
        slow
        sync a 2 a=p b=q
        > stored
        beat b 2
        > ok
        commit b 2
        > Rebalancing
        sync b 2
        written
        > a gets `p`
        > b gets `q`
        commit b 2
        > ok
        ",
    );
    assert!(group.is_stable());
}

#[test]
fn an_assignment_that_is_not_stored_is_given_to_no_member() {
    after_two(
        "
        join a as a
        join b as b
        > a joined 2 range led by a [a b]
        > b joined 2 range led by a
        slow
        sync a 2 a=p b=q
        > stored
        lost
        > a gets nothing: NotStored(Unknown)
        sync b 2
        > b gets nothing: Rebalancing
        beat b 2
        > Rebalancing
        join a as a
        join b as b
        > a joined 3 range led by a [a b]
        > b joined 3 range led by a
        ",
    );
}
