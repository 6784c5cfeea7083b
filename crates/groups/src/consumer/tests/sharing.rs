//! Groups whose members share partitions: every partition that any member wants has a member, every member has
//! a partition of those that it wants, and the stored state equals the group.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::world::World;
use crate::consumer::*;

fn world() -> World {
    World {
        group: ConsumerGroup::sharing(),
        ..World::default()
    }
}

fn join(id: &str, names: &[&str]) -> Heartbeat {
    Heartbeat {
        member: id.into(),
        names: Some(names.iter().map(|name| (*name).into()).collect()),
        ..Heartbeat::default()
    }
}

fn report(id: &str, epoch: i32) -> Heartbeat {
    Heartbeat {
        member: id.into(),
        epoch,
        ..Heartbeat::default()
    }
}

/// The indexes of a member's partitions, all of one topic.
fn told(reply: &HeartbeatReply) -> Option<Vec<u32>> {
    let assignment = reply.assignment.as_ref()?;
    Some(assignment.as_slice().iter().map(|one| one.index).collect())
}

#[test]
fn more_members_than_partitions_share_them() {
    let mut world = world();
    world.topics.set("t", 2);
    let mut epochs = Vec::new();
    for id in ["a", "b", "c", "d"] {
        epochs.push(world.beat(join(id, &["t"])).unwrap().epoch);
    }
    let all = ["a", "b", "c", "d"].iter().zip(epochs);
    let replies = all.map(|(id, epoch)| world.beat(report(id, epoch)).unwrap());
    let first: Vec<_> = replies.map(|reply| (reply.epoch, told(&reply))).collect();
    let epoch = world.group.epoch();
    assert!(first.iter().all(|(at, _)| *at == epoch), "at once");
    let of = |id: &str| world.group.member(id).unwrap().assigned.partitions();
    let counts = |index| {
        let all = ["a", "b", "c", "d"];
        let has = |id: &&str| of(id).as_slice().iter().any(|one| one.index == index);
        all.iter().filter(|id| has(id)).count()
    };
    assert_eq!((counts(0), counts(1)), (2, 2));
}

#[test]
fn a_partition_goes_on_at_once_without_being_given_back() {
    let mut world = world();
    world.topics.set("t", 2);
    let reply = world.beat(join("a", &["t"])).unwrap();
    assert_eq!(told(&reply).unwrap(), [0, 1]);
    let second = world.beat(join("b", &["t"])).unwrap();
    assert_eq!(told(&second).unwrap().len(), 1);
    assert!(!second.waits);
    let first = world.beat(report("a", reply.epoch)).unwrap();
    assert_eq!((told(&first).unwrap().len(), first.epoch), (1, second.epoch));
    assert_eq!(told(&world.beat(report("a", first.epoch)).unwrap()), None);
    // An answer was lost.
    assert_eq!(told(&world.beat(report("a", reply.epoch)).unwrap()), told(&first));
    let fenced = world.beat(report("a", first.epoch + 1)).unwrap_err();
    assert!(matches!(fenced, HeartbeatError::FencedEpoch { .. }));
    assert_eq!(world.group.state(), ConsumerGroupState::Stable);
}

#[derive(Debug, Clone)]
enum Event {
    Join(u8, u8),
    Report(u8),
    Leave(u8),
    Topic(u8, u32),
    Delete(u8),
    Pass(u64),
    Restart,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let member = 0..8_u8;
    let event = prop_oneof![
        6 => (member.clone(), 1..8_u8).prop_map(|(member, names)| Event::Join(member, names)),
        12 => member.clone().prop_map(Event::Report),
        2 => member.prop_map(Event::Leave),
        3 => (0..3_u8, 1..6_u32).prop_map(|(name, partitions)| Event::Topic(name, partitions)),
        1 => (0..3_u8).prop_map(Event::Delete),
        1 => (0..50_000_u64).prop_map(Event::Pass),
        2 => Just(Event::Restart),
    ];
    prop::collection::vec(event, 1..60)
}

fn names(bits: u8) -> Vec<String> {
    let all = (0..3).filter(|bit| bits & (1 << bit) != 0);
    all.map(|bit| format!("t{bit}")).collect()
}

fn perform(world: &mut World, event: &Event) {
    let epoch_of = |world: &World, id: &str| world.group.member(id).map(|member| member.epoch);
    match event {
        Event::Join(member, bits) => {
            let names = names(*bits);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            world.beat(join(&format!("m{member}"), &names)).unwrap();
        }
        Event::Report(member) => {
            let id = format!("m{member}");
            if let Some(epoch) = epoch_of(world, &id) {
                world.beat(report(&id, epoch)).unwrap();
            }
        }
        Event::Leave(member) => {
            let id = format!("m{member}");
            let is_known = epoch_of(world, &id).is_some();
            assert_eq!(world.beat(report(&id, EPOCH_LEAVE)).is_ok(), is_known);
        }
        Event::Topic(name, partitions) => world.topics.set(&format!("t{name}"), *partitions),
        Event::Delete(name) => world.topics.delete(&format!("t{name}")),
        Event::Pass(ms) => {
            world.now_ms += ms;
            world.group.on_tick(&world.rules, world.now_ms);
        }
        Event::Restart => {
            let stored = world.group.encode();
            let mut group = ConsumerGroup::sharing();
            group.restore(&stored, &world.rules, world.now_ms).unwrap();
            assert_eq!(group.encode(), stored);
            world.group = group;
        }
    }
}

/// Has every member report until nothing changes, and checks the assignment.
fn check(world: &mut World) {
    for _ in 0..3 {
        let members = world.group.members();
        let members: Vec<_> = members.map(|member| (member.id.clone(), member.epoch)).collect();
        for (id, epoch) in members {
            world.beat(report(&id, epoch)).unwrap();
        }
    }
    let mut wanted = BTreeSet::new();
    let mut assigned = BTreeSet::new();
    for member in world.group.members() {
        let names = world.group.subscription(member).unwrap().names();
        let mut wants = BTreeSet::new();
        for name in names {
            if let Some(shape) = stafett_topics::TopicSource::named(&world.topics, name) {
                wants.extend((0..shape.partitions).map(|index| (shape.id, index)));
            }
        }
        let has = member.assigned.partitions();
        let has: BTreeSet<_> = has.as_slice().iter().map(|one| (one.topic, one.index)).collect();
        assert!(has.is_subset(&wants));
        assert_eq!(has.is_empty(), wants.is_empty(), "{} has nothing", member.id);
        wanted.extend(wants);
        assigned.extend(has);
    }
    assert_eq!(assigned, wanted);
}

proptest! {
    #[test]
    fn every_partition_and_every_member_has_one_of_the_other(events in events()) {
        let mut world = world();
        for event in &events {
            perform(&mut world, event);
        }
        check(&mut world);
    }
}
