//! Random events: no partition is consumed twice, every run settles, the result is even, and the stored state
//! equals the group.

use std::collections::BTreeSet;

use proptest::prelude::*;
use stafett_topics::TopicSource;

use super::restart;
use super::world::{Client, World};
use crate::consumer::*;

#[derive(Debug, Clone)]
enum Event {
    Join { member: u8, names: u8, pattern: bool },
    Report { member: u8, owned: bool },
    Obey { member: u8 },
    Wants { member: u8, names: u8 },
    Leave { member: u8 },
    Topic { name: u8, partitions: u32 },
    Delete { name: u8 },
    Pass { ms: u64 },
    Lost { member: u8 },
    Restart,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let member = 0..6u8;
    let event = prop_oneof![
        4 => (member.clone(), 1..16u8, prop::bool::weighted(0.2))
            .prop_map(|(member, names, pattern)| Event::Join { member, names, pattern }),
        12 => (member.clone(), any::<bool>()).prop_map(|(member, owned)| Event::Report { member, owned }),
        12 => member.clone().prop_map(|member| Event::Obey { member }),
        1 => (member.clone(), 1..16u8).prop_map(|(member, names)| Event::Wants { member, names }),
        1 => member.clone().prop_map(|member| Event::Leave { member }),
        2 => (0..4u8, 1..9u32).prop_map(|(name, partitions)| Event::Topic { name, partitions }),
        1 => (0..4u8).prop_map(|name| Event::Delete { name }),
        1 => (0..50_000u64).prop_map(|ms| Event::Pass { ms }),
        2 => member.prop_map(|member| Event::Lost { member }),
        1 => Just(Event::Restart),
    ];
    prop::collection::vec(event, 1..80)
}

fn names(bits: u8) -> Vec<Box<str>> {
    let all = (0..4).filter(|bit| bits & (1 << bit) != 0);
    all.map(|bit| format!("t{bit}-").into()).collect()
}

fn perform(world: &mut World, event: &Event) {
    match *event {
        Event::Lost { member } => lose(world, member),
        Event::Wants { member, names } => want(world, member, names),
        Event::Join { .. }
        | Event::Report { .. }
        | Event::Obey { .. }
        | Event::Leave { .. }
        | Event::Topic { .. }
        | Event::Delete { .. }
        | Event::Pass { .. }
        | Event::Restart => perform_plain(world, event),
    }
}

fn perform_plain(world: &mut World, event: &Event) {
    match *event {
        Event::Join {
            member,
            names: bits,
            pattern,
        } => {
            let client = Client {
                names: if pattern { Vec::new() } else { names(bits) },
                pattern: pattern.then(|| "t[02]-".into()),
                ..Client::default()
            };
            world.join(&format!("m{member}"), client).unwrap();
        }
        Event::Report { member, owned } => {
            let id = format!("m{member}");
            if world.clients.contains_key(&id) {
                world.report(&id, owned).unwrap();
            }
        }
        Event::Obey { member } => {
            let id = format!("m{member}");
            if world.clients.contains_key(&id) {
                world.obey(&id);
            }
        }
        Event::Leave { member } => {
            let id = format!("m{member}");
            if world.clients.remove(&id).is_some() {
                let beat = Heartbeat {
                    member: id.into(),
                    epoch: EPOCH_LEAVE,
                    ..Heartbeat::default()
                };
                world.beat(beat).unwrap();
            }
        }
        Event::Topic { name, partitions } => world.topics.set(&format!("t{name}-"), partitions),
        Event::Delete { name } => world.topics.delete(&format!("t{name}-")),
        Event::Pass { ms } => {
            world.now_ms += ms;
            // A removed member stops by itself: it cannot report either.
            for (id, _) in world.group.on_tick(&world.rules, world.now_ms) {
                world.clients.remove(&*id);
            }
        }
        Event::Restart => restart::restart(world),
        Event::Wants { .. } | Event::Lost { .. } => {}
    }
}

fn want(world: &mut World, member: u8, bits: u8) {
    let id = format!("m{member}");
    if let Some(client) = world.clients.get_mut(&id) {
        client.names = names(bits);
        client.pattern = None;
        let beat = Heartbeat {
            member: id.as_str().into(),
            epoch: client.epoch,
            names: Some(client.names.clone()),
            pattern: Some("".into()),
            ..Heartbeat::default()
        };
        let answer = world.beat(beat).unwrap();
        world.hear(&id, &answer);
    }
}

fn lose(world: &mut World, member: u8) {
    // The answer is lost; the next report is complete.
    let id = format!("m{member}");
    if let Some(client) = world.clients.get(&id).cloned() {
        let _lost = world.beat(Heartbeat {
            member: id.as_str().into(),
            epoch: client.epoch,
            owned: Some(client.owned.clone()),
            ..Heartbeat::default()
        });
        let answer = world.beat(Heartbeat {
            member: id.as_str().into(),
            epoch: client.epoch,
            owned: Some(client.owned.clone()),
            names: Some(client.names.clone()),
            pattern: Some(client.pattern.unwrap_or_default()),
            rebalance_timeout_ms: Some(60_000),
            ..Heartbeat::default()
        });
        world.hear(&id, &answer.unwrap());
    }
}

/// Checks that every wanted partition is with a member that wants it.
fn check_complete(world: &World) {
    let mut wanted = BTreeSet::new();
    for member in world.group.members() {
        let subscription = world.group.subscription(member).unwrap();
        let pattern = subscription
            .pattern()
            .map(|_| ["t0-", "t2-"])
            .into_iter()
            .flatten();
        let names: BTreeSet<&str> = subscription
            .names()
            .iter()
            .map(|name| &**name)
            .chain(pattern)
            .collect();
        let mine: BTreeSet<_> = names
            .iter()
            .filter_map(|name| world.topics.named(name))
            .flat_map(|shape| {
                (0..shape.partitions).map(move |index| Partition {
                    topic: shape.id,
                    index,
                })
            })
            .collect();
        assert!(
            member
                .assigned
                .as_slice()
                .iter()
                .all(|held| mine.contains(&held.partition))
        );
        wanted.extend(mine);
    }
    let had: BTreeSet<_> = world
        .group
        .members()
        .flat_map(|member| member.assigned.as_slice())
        .map(|held| held.partition)
        .collect();
    assert_eq!(had, wanted);
}

/// Checks that no single move improves the balance.
fn check_even(world: &World) {
    let members: Vec<_> = world.group.members().collect();
    for giver in &members {
        for taker in &members {
            if giver.assigned.len() < taker.assigned.len() + 2 {
                continue;
            }
            let subscription = world.group.subscription(taker).unwrap();
            for held in giver.assigned.as_slice() {
                let name = world.topics.name(held.partition.topic);
                let pattern = subscription.pattern().is_some() && ["t0-", "t2-"].contains(&name);
                let named = subscription.names().iter().any(|known| **known == *name);
                assert!(!pattern && !named, "{} could have {:?}", taker.id, held.partition);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_partitions_have_one_owner_and_it_settles(events in events(), forgets in any::<bool>()) {
        let mut world = World::default();
        world.topics.forgets = forgets;
        let mut stored = Vec::new();
        for event in events {
            perform(&mut world, &event);
            world.check();
            let restored = restart::follow(&mut world.group, &mut stored, world.now_ms);
            prop_assert_eq!(restored.epoch(), world.group.epoch());
            prop_assert_eq!(restored.state(), world.group.state());
            prop_assert_eq!(
                format!("{:?}", restored.members().map(|m| (&m.id, m.epoch, m.state, &m.assigned, &m.revoking, &m.target)).collect::<Vec<_>>()),
                format!("{:?}", world.group.members().map(|m| (&m.id, m.epoch, m.state, &m.assigned, &m.revoking, &m.target)).collect::<Vec<_>>()),
            );
        }
        world.settle();
        if !world.group.is_empty() {
            check_complete(&world);
            check_even(&world);
        }
    }
}
