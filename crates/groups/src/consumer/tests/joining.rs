//! Joining members.

use super::script::play;
use super::world::{Client, World};
use crate::consumer::*;

#[test]
fn the_first_member_gets_everything_at_once() {
    play(
        "topic t 3
         a joins t => 1: t0 t1 t2
         state => Stable 1/1
         a acks => 1
         a beats => 1",
    );
}

#[test]
fn a_member_gives_back_before_another_one_gets() {
    play(
        "topic t 4
         a joins t => 1: t0 t1 t2 t3
         a acks => 1
         b joins t => 2:
         state => Reconciling 2/2
         b beats => 2
         # Told what to give back; until it has, its epoch stays.
         a beats => 1: t0 t1
         b beats => 2
         a says t0 t1 t2 => 1
         b beats => 2
         a acks => 2
         state => Reconciling 2/2
         b beats => 2: t2 t3
         state => Stable 2/2",
    );
}

#[test]
fn who_gives_back_with_the_very_heartbeat_that_tells_it_is_not_told_again() {
    play(
        "topic t 2
         a joins t => 1: t0 t1
         b joins t => 2:
         # It never took its assignment.
         a says t0 => 2: t0
         b beats => 2: t1",
    );
}

#[test]
fn a_topic_that_is_not_there_yet_is_waited_for() {
    play(
        "a joins t => 1:
         state => Stable 1/1
         topic u 2
         a beats => 1
         topic t 2
         a beats => 2: t0 t1",
    );
}

#[test]
fn topics_that_grow_and_go_change_what_members_have() {
    play(
        "topic t 1
         topic u 1
         a joins t,u => 1: t0 u0
         a acks => 1
         topic t 2
         a beats => 2: t0 t1 u0
         a acks => 2
         delete u
         # A partition that is gone cannot be given back in a hurry, and does not have to be.
         a beats => 2: t0 t1
         a acks => 3
         state => Stable 3/3",
    );
}

#[test]
fn a_pattern_takes_topics_as_they_come_and_go() {
    play(
        "topic log-a 1
         topic other 1
         a joins ~log-.* => 1: log-a0
         topic log-b 2
         a acks => 2: log-a0 log-b0 log-b1
         topic xlog-c 1
         a acks => 2
         a wants ~other|log-b => 2: log-b0 log-b1
         a acks => 3: log-b0 log-b1 other0
         a wants other => 3: other0
         a acks => 4",
    );
}

#[test]
fn a_wrong_pattern_changes_nothing() {
    play(
        "topic t 1
         a joins ~( => Pattern
         state => Empty 0/0
         a joins t => 1: t0
         a wants ~( => Pattern
         a beats => 1
         state => Stable 1/1",
    );
}

#[test]
fn names_and_pattern_add_up() {
    play(
        "topic t 1
         topic x1 1
         a joins t,~x. => 1: t0 x10",
    );
}

#[test]
fn most_members_choose_the_assignor() {
    play(
        "topic t 3
         topic u 3
         a joins t,u => 1: t0 t1 t2 u0 u1 u2
         a prefers range => 1
         b joins t,u => 2:
         a beats => 1: t0 t1 u0 u1
         a acks => 2
         b beats => 2: t2 u2",
    );
}

#[test]
fn a_full_group_takes_nobody_new() {
    play(
        "topic t 1
         limit 1
         a joins t => 1: t0
         b joins t => Full
         a joins t => 1: t0
         state => Stable 1/1",
    );
}

#[test]
fn who_joins_again_goes_on_as_who_it_is() {
    play(
        "topic t 4
         a joins t => 1: t0 t1 t2 t3
         b joins t => 2:
         a beats => 1: t0 t1
         # It lost everything, so there is nothing to give back.
         a joins t => 2: t0 t1
         b beats => 2: t2 t3",
    );
}

#[test]
fn an_answer_that_was_lost_with_its_connection_is_given_again() {
    let mut world = World::default();
    world.topics.set("t", 4);
    let client = || Client {
        names: vec!["t".into()],
        ..Client::default()
    };
    let first = world.join("a", client()).unwrap();
    let beat = |id: &str, epoch, owned: Option<&Partitions>, connection| Heartbeat {
        member: id.into(),
        epoch,
        owned: owned.cloned(),
        connection: Some(connection),
        ..Heartbeat::default()
    };
    let all = first.assignment.unwrap();
    // The member reports the partitions that it owns.
    let told = world.beat(beat("a", 1, Some(&all), 1)).unwrap();
    assert_eq!(told.assignment, None);
    world.join("b", client()).unwrap();
    let half = world.beat(beat("a", 1, None, 1)).unwrap();
    let half = half.assignment.expect("it has to give some back");
    assert_eq!(half.as_slice().len(), 2);
    // The client has the answer, or will have it on this connection.
    let on = |world: &mut World, connection| world.beat(beat("a", 1, None, connection)).unwrap();
    assert_eq!(on(&mut world, 1).assignment, None);
    assert_eq!(on(&mut world, 2).assignment, Some(half.clone()));
    assert_eq!(on(&mut world, 2).assignment, None);
    assert_eq!(on(&mut world, 3).assignment, Some(half.clone()));
    let done = world.beat(beat("a", 1, Some(&half), 3)).unwrap();
    assert_eq!((done.epoch, done.assignment), (2, None));
    // Nothing is told again that the member is known to have.
    let known = world.beat(beat("a", 2, Some(&half), 3)).unwrap();
    assert_eq!(known.assignment, None);
    assert_eq!(world.beat(beat("a", 2, None, 4)).unwrap().assignment, None);

    // One that waited for partitions gets them without a new epoch.
    let rest = world.beat(beat("b", 2, None, 7)).unwrap().assignment.unwrap();
    assert_eq!(rest.as_slice().len(), 2);
    assert_eq!(
        world.beat(beat("b", 2, None, 8)).unwrap().assignment,
        Some(rest.clone())
    );
    assert_eq!(world.beat(beat("b", 2, Some(&rest), 8)).unwrap().assignment, None);
    assert_eq!(world.beat(beat("b", 2, None, 9)).unwrap().assignment, None);
}
