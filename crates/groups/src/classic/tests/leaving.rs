//! Members that leave, are silent, or come too late.

use super::script::{after_two, run};

#[test]
fn a_silent_member_is_sent_away() {
    let group = after_two(
        "+5000
        beat a 1
        > ok
        +5000
        beat a 1
        > Rebalancing
        join a as a
        > a joined 2 range led by a [a]
        beat b 1
        > UnknownMember",
    );
    assert_eq!(group.members.len(), 1);
}

#[test]
fn a_group_whose_members_are_all_silent_is_empty() {
    let group = after_two("+10000\n> stored\ncommit - -1\n> ok");
    assert!(group.is_empty());
    assert_eq!((group.generation(), group.strategy()), (2, None));
    assert_eq!(group.purpose(), Some("consumer"));
}

#[test]
fn who_does_not_join_in_time_is_left_behind() {
    run("join a rebalance 5000
        join b rebalance 5000
        +100
        > a joined 1 range led by a [a b]
        > b joined 1 range led by a
        sync a 1
        > a gets ``
        > stored
        sync b 1
        > b gets ``
        join a as a rebalance 5000
        +4000
        beat b 1
        > Rebalancing
        +1000
        > a joined 2 range led by a [a]
        beat b 2
        > UnknownMember");
}

#[test]
fn a_member_that_leaves_is_gone_at_once() {
    after_two(
        "leave b
        > ok
        leave b
        > UnknownMember
        join a as a
        > a joined 2 range led by a [a]
        leave a
        > ok
        > stored",
    );
}

#[test]
fn when_the_leader_leaves_another_leads() {
    after_two(
        "leave a
        > ok
        join b as b
        > b joined 2 range led by b [b]",
    );
}

#[test]
fn a_leader_that_never_decides_is_sent_away() {
    run("join a rebalance 5000 session 6000
        join b rebalance 5000 session 6000
        +100
        > a joined 1 range led by a [a b]
        > b joined 1 range led by a
        sync b 1
        +3000
        beat a 1
        > ok
        +2000
        > b gets nothing: Rebalancing
        join b as b
        > b joined 2 range led by b [b]");
}
