//! Static members, whose names outlive their ids, and their unexpected returns.

use super::script::{after_two, run};

#[test]
fn a_static_member_comes_back_without_a_new_generation() {
    run("join a static one
        join b static two
        +100
        > a joined 1 range led by a [a b]
        > b joined 1 range led by a
        sync a 1 a=x b=y
        > a gets `x`
        > stored
        sync b 1
        > b gets `y`
        join b2 static two
        > b2 joined 1 range led by a
        > stored
        sync b2 1
        > b2 gets `y`
        beat b 1 static two
        > FencedInstance
        beat b 1
        > UnknownMember
        beat b2 1 static two
        > ok");
}

#[test]
fn a_static_leader_that_comes_back_is_told_not_to_decide() {
    run("join a static one v9
        join b static two v9
        +100
        > a joined 1 range led by a [a b]
        > b joined 1 range led by a
        sync a 1 a=x b=y
        > a gets `x`
        > stored
        sync b 1
        > b gets `y`
        join a2 static one v9
        > a2 joined 1 range led by a2 [a2 b] skips
        > stored
        join a3 static one v4
        > a3 joined 1 range led by a2
        > stored");
}

#[test]
fn a_static_member_that_comes_back_changed_starts_a_generation() {
    run("join a static one knows x,y
        join b static two knows x,y
        +100
        > a joined 1 x led by a [a b]
        > b joined 1 x led by a
        sync a 1 a=x b=y
        > a gets `x`
        > stored
        sync b 1
        > b gets `y`
        join b2 static two knows y
        beat a 1
        > Rebalancing
        join a as a static one knows x,y
        > a joined 2 y led by a [a b2]
        > b2 joined 2 y led by a");
}

#[test]
fn a_static_member_that_is_away_for_a_moment_stays() {
    run("join a static one rebalance 5000
        join b static two rebalance 5000
        +100
        > a joined 1 range led by a [a b]
        > b joined 1 range led by a
        sync a 1 a=x b=y
        > a gets `x`
        > stored
        sync b 1
        > b gets `y`
        join a as a static one rebalance 5000
        +5000
        > a joined 2 range led by a [a b]
        sync a 2 a=x b=z
        > a gets `x`
        > stored
        join b2 static two
        > b2 joined 2 range led by a
        > stored
        sync b2 2
        > b2 gets `z`");
}

#[test]
fn a_second_self_fences_the_first_while_it_waits() {
    run("join a static one
        +10
        join a2 static one
        > a not joined as `a`: FencedInstance
        +90
        > a2 joined 1 range led by a2 [a2]
        sync a 1 static one
        > a gets nothing: FencedInstance
        sync a2 1 a2=z static one
        > a2 gets `z`
        > stored
        leave static one
        > ok
        > stored
        leave static one
        > UnknownMember");
}

#[test]
fn a_zombie_of_an_old_generation_does_nothing() {
    after_two(
        "leave b
        > ok
        join a as a
        > a joined 2 range led by a [a]
        sync a 1 a=z
        > a gets nothing: OtherGeneration
        beat a 1
        > OtherGeneration
        sync b 1
        > b gets nothing: UnknownMember
        commit b 1
        > UnknownMember
        commit - -1
        > UnknownMember
        sync a 2 a=z
        > a gets `z`
        > stored",
    );
}
