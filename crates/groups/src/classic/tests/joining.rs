//! Joining members, and the conditions of a new generation.

use super::script::{after_two, run};

#[test]
fn the_first_generation_waits_a_moment_for_more_members() {
    let group = after_two("beat a 1\n> ok\nbeat b 1\n> ok\n");
    assert_eq!((group.generation(), group.members.len()), (1, 2));
    assert!(group.is_stable());
}

#[test]
fn a_member_that_comes_starts_a_generation_that_waits_for_all() {
    after_two(
        "join c
        beat a 1
        > Rebalancing
        join a as a
        join b as b
        > a joined 2 range led by a [a b c]
        > b joined 2 range led by a
        > c joined 2 range led by a
        beat a 2
        > ok
        commit a 2
        > Rebalancing
        commit-in-transaction a 2
        > ok
        commit-in-transaction - -1
        > ok
        commit-in-transaction a 1
        > OtherGeneration
        sync a 2 a=1 b=2 c=3
        > a gets `1`
        > stored
        sync c 2
        > c gets `3`
        commit a 2
        > ok
        commit b 1
        > OtherGeneration",
    );
}

#[test]
fn a_dynamic_member_comes_twice_and_is_counted_once() {
    run("join a v4
        > a not joined as `a`: MemberIdRequired
        join a as a v4
        +50
        > a joined 1 range led by a [a]
        sync a 1 a=x
        > a gets `x`
        > stored");
}

#[test]
fn an_id_that_nobody_comes_with_is_forgotten() {
    let group = run("join a v4
        > a not joined as `a`: MemberIdRequired
        +10000
        join a as a
        > a not joined as `a`: UnknownMember");
    assert!(group.is_empty() && group.pending_members() == 0);
}

#[test]
fn a_generation_waits_for_ids_that_were_given_out_but_not_for_ever() {
    after_two(
        "join c v4
        > c not joined as `c`: MemberIdRequired
        join a as a
        join b as b
        +10000
        > a joined 2 range led by a [a b]
        > b joined 2 range led by a",
    );
}

#[test]
fn members_who_have_no_strategy_in_common_do_not_meet() {
    after_two(
        "join c knows roundrobin
        > c not joined as ``: NoCommonStrategy
        join c for connect
        > c not joined as ``: NoCommonStrategy
        join a as a knows roundrobin
        > a not joined as `a`: NoCommonStrategy
        beat a 1
        > ok",
    );
    run("join a knows ,
        > a not joined as ``: NoCommonStrategy");
}

#[test]
fn the_strategy_that_most_like_best_wins() {
    run("join a knows x,y,z
        join b knows y,x
        join c knows y,z,x
        +150
        > a joined 1 y led by a [a b c]
        > b joined 1 y led by a
        > c joined 1 y led by a
        sync a 1 believes x
        > a gets nothing: NoCommonStrategy");
}

#[test]
fn a_member_that_missed_its_answer_gets_it_again() {
    after_two(
        "join b as b
        > b joined 1 range led by a
        sync b 1
        > b gets `y`
        join a as a
        join b as b
        > a joined 2 range led by a [a b]
        > b joined 2 range led by a
        join a as a
        > a joined 2 range led by a [a b]",
    );
}

#[test]
fn a_member_that_asks_twice_is_answered_twice() {
    run("join a
        join b
        join a as a
        > a not joined as `a`: Rebalancing
        +100
        > a joined 1 range led by a [a b]
        > b joined 1 range led by a
        sync b 1
        sync b 1
        > b gets nothing: Rebalancing
        sync a 1 b=y
        > a gets ``
        > b gets `y`
        > stored");
}

#[test]
fn members_that_wait_for_the_leader_hear_that_the_group_changes() {
    run("join a
        join b
        +100
        > a joined 1 range led by a [a b]
        > b joined 1 range led by a
        sync b 1
        join c
        > b gets nothing: Rebalancing
        sync a 1 a=x
        > a gets nothing: Rebalancing
        join a as a
        join b as b
        > a joined 2 range led by a [a b c]
        > b joined 2 range led by a
        > c joined 2 range led by a");
}

#[test]
fn a_full_group_takes_nobody_and_says_so() {
    after_two(
        "join c
        join d
        join a as a
        join b as b
        > b not joined as ``: Full
        > a joined 2 range led by a [a c d]
        > c joined 2 range led by a
        > d joined 2 range led by a
        join e
        > e not joined as ``: Full
        join e v4
        > e not joined as ``: Full
        join a as a
        > a joined 2 range led by a [a c d]",
    );
    run("join a v4
        > a not joined as `a`: MemberIdRequired
        join b v4
        > b not joined as `b`: MemberIdRequired
        join c v4
        > c not joined as `c`: MemberIdRequired
        join d v4
        > d not joined as ``: Full
        join a as a v4");
}
