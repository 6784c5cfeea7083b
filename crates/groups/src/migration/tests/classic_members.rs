//! Members of the classic protocol in a group whose partitions the broker assigns.

use crate::consumer::tests::restart::restart;
use crate::consumer::tests::world::{Client, World};
use crate::consumer::*;
use crate::error::GroupError;
use crate::migration::ClassicMember;
use crate::strategy::Strategy;

fn member(id: &str, world: &World, owned: &[&str]) -> ClassicMember {
    ClassicMember {
        id: id.into(),
        instance: None,
        client_id: "client".into(),
        host: "host".into(),
        rebalance_ms: 60_000,
        classic: Classic {
            purpose: "consumer".into(),
            session_ms: 10_000,
            strategies: vec![Strategy {
                name: "range".into(),
                metadata: bytes::Bytes::from_static(b"about"),
            }],
        },
        names: vec!["t".into()],
        owned: owned.iter().map(|text| world.topics.partition(text)).collect(),
    }
}

/// Returns a group of two classic members in generation 7 and one of the new protocol that has just joined.
fn moved() -> World {
    let mut world = World::default();
    world.topics.set("t", 6);
    let members = vec![
        member("a", &world, &["t0", "t1", "t2"]),
        member("b", &world, &["t3", "t4", "t5"]),
    ];
    world.group.take_over(7, members, &world.topics, &world.rules, 0);
    let client = Client {
        names: vec!["t".into()],
        ..Client::default()
    };
    let answer = world.join("new", client).unwrap();
    assert_eq!(answer.epoch, 8);
    assert!(answer.assignment.unwrap().is_empty());
    world
}

fn beat(world: &mut World, id: &str, generation: i32) -> Result<(), GroupError> {
    world
        .group
        .heartbeat_classic(id, None, generation, &world.rules, world.now_ms)
}

/// Joins with the partitions that it has, then syncs.
fn rejoin(world: &mut World, id: &str, owned: &[&str]) -> (i32, usize) {
    let member = member(id, world, owned);
    let generation = world
        .group
        .join_classic(member, &world.topics, &world.rules, world.now_ms)
        .unwrap();
    let gets = world.group.sync_classic(id, None, generation).unwrap();
    world.check();
    (generation, gets.len())
}

#[test]
fn a_member_that_joins_with_nothing_has_given_everything_back() {
    let mut world = moved();
    assert_eq!(beat(&mut world, "a", 7), Err(GroupError::Rebalancing));
    assert_eq!(rejoin(&mut world, "a", &[]), (8, 2));
    assert_eq!(rejoin(&mut world, "b", &[]), (8, 2));
    assert_eq!(world.report("new", false).unwrap().assignment.unwrap().len(), 2);
    assert_eq!(beat(&mut world, "a", 8), Ok(()));
    assert_eq!(world.group.state(), ConsumerGroupState::Stable);
}

#[test]
fn a_member_that_keeps_what_it_has_is_told_to_give_back_and_to_join_again() {
    let mut world = moved();
    assert_eq!(rejoin(&mut world, "a", &["t0", "t1", "t2"]), (7, 2));
    assert_eq!(world.report("new", false).unwrap().assignment, None);
    assert_eq!(beat(&mut world, "a", 7), Err(GroupError::Rebalancing));
    assert_eq!(rejoin(&mut world, "a", &["t0", "t1"]), (8, 2));
    assert_eq!(world.report("new", false).unwrap().assignment.unwrap().len(), 1);
}

#[test]
fn a_member_that_waits_is_told_to_join_once_what_it_waits_for_is_free() {
    let mut world = moved();
    rejoin(&mut world, "a", &[]);
    let (generation, gets) = rejoin(&mut world, "c", &[]);
    assert_eq!((generation, gets), (9, 0));
    assert_eq!(beat(&mut world, "c", 9), Ok(()), "others still have it");
    rejoin(&mut world, "a", &[]);
    rejoin(&mut world, "b", &[]);
    assert_eq!(beat(&mut world, "c", 9), Err(GroupError::Rebalancing));
    assert!(rejoin(&mut world, "c", &[]).1 >= 1);
}

#[test]
fn another_generation_and_a_stranger_are_refused() {
    let mut world = moved();
    assert_eq!(beat(&mut world, "a", 6), Err(GroupError::OtherGeneration));
    assert_eq!(beat(&mut world, "x", 7), Err(GroupError::UnknownMember));
    assert_eq!(beat(&mut world, "new", 8), Err(GroupError::UnknownMember));
    let sync = world.group.sync_classic("a", None, 7);
    assert_eq!(sync, Err(GroupError::Rebalancing));
    let commit = |id, epoch| world.group.check_commit(id, epoch, []);
    assert_eq!(commit("a", 7), Ok(()));
    assert_eq!(commit("a", 9), Err(CommitError::OtherGeneration));
}

#[test]
fn a_member_has_its_own_session_and_time_to_join_again() {
    let mut world = moved();
    world.now_ms = 9_000;
    assert_eq!(beat(&mut world, "a", 7), Err(GroupError::Rebalancing));
    world.now_ms = 10_000;
    let expired = world.group.on_tick(&world.rules, world.now_ms);
    assert_eq!(expired.len(), 1, "b was silent");
    for _ in 0..7 {
        world.now_ms += 8_500;
        let _told_again = beat(&mut world, "a", 7);
        world.report("new", false).unwrap();
        world.group.on_tick(&world.rules, world.now_ms);
    }
    assert_eq!(beat(&mut world, "a", 7), Err(GroupError::UnknownMember));
}

#[test]
fn members_of_the_classic_protocol_are_the_same_after_a_restart() {
    let mut world = moved();
    rejoin(&mut world, "a", &["t0", "t1", "t2"]);
    restart(&mut world);
    assert_eq!(beat(&mut world, "a", 7), Err(GroupError::Rebalancing));
    assert_eq!(rejoin(&mut world, "a", &["t0", "t1"]), (8, 2));
    assert!(!world.group.is_all_classic());
    let leave = Heartbeat {
        member: "new".into(),
        epoch: EPOCH_LEAVE,
        ..Heartbeat::default()
    };
    world.beat(leave).unwrap();
    world.clients.remove("new");
    assert!(world.group.is_all_classic());
}

#[test]
fn a_member_that_learns_the_new_protocol_is_no_classic_one_any_more() {
    let mut world = moved();
    let client = Client {
        names: vec!["t".into()],
        ..Client::default()
    };
    world.join("a", client).unwrap();
    assert!(world.group.member("a").unwrap().classic.is_none());
    assert_eq!(beat(&mut world, "a", 8), Err(GroupError::UnknownMember));
}
