//! Large groups: assignments end, and heartbeats without changes cost no look-ups.

use std::cell::Cell;

use stafett_topics::{TopicShape, TopicSource};

use super::world::{Client, Topics, World};
use crate::consumer::*;

#[test]
fn a_member_takes_a_hundred_thousand_topics() {
    let mut world = World::default();
    let names: Vec<Box<str>> = (0..100_000)
        .map(|number| format!("topic-{number}").into())
        .collect();
    for name in &names {
        world.topics.set(name, 1);
    }
    let client = Client {
        names,
        ..Client::default()
    };
    let answer = world.join("a", client).unwrap();
    assert_eq!(answer.assignment.unwrap().len(), 100_000);
    world.obey("a");
    let answer = world.report("a", true).unwrap();
    assert_eq!(
        answer,
        HeartbeatReply {
            epoch: 1,
            assignment: None,
            waits: false,
        }
    );
    assert!(world.group.has_changes());
    assert!(world.group.take_changes().len() < 9_000_000);
    world.report("a", false).unwrap();
    assert!(!world.group.has_changes());
}

/// Topics that count look-ups.
struct Counted<'a>(&'a Topics, Cell<usize>);

impl TopicSource for Counted<'_> {
    fn version(&self) -> u64 {
        self.0.version()
    }

    fn named(&self, name: &str) -> Option<TopicShape> {
        self.1.set(self.1.get() + 1);
        self.0.named(name)
    }

    fn each(&self, visit: &mut dyn FnMut(&str, TopicShape)) {
        self.1.set(self.1.get() + 1_000_000);
        self.0.each(visit);
    }

    fn each_changed(&self, version: u64, visit: &mut dyn FnMut(&str)) -> bool {
        self.0.each_changed(version, visit)
    }
}

#[test]
fn topics_are_looked_up_only_when_they_change() {
    let mut world = World::default();
    for number in 0..1000 {
        world.topics.set(&format!("topic-{number}"), 1);
    }
    let client = Client {
        names: (0..1000).map(|number| format!("topic-{number}").into()).collect(),
        ..Client::default()
    };
    world.join("a", client).unwrap();
    let lookups = |world: &mut World| {
        let source = Counted(&world.topics, Cell::new(0));
        let beat = Heartbeat {
            member: "a".into(),
            epoch: world.group.epoch(),
            ..Heartbeat::default()
        };
        world.group.heartbeat(beat, &source, &world.rules, 0).unwrap();
        source.1.get()
    };
    assert_eq!(lookups(&mut world), 0);
    world.topics.set("another", 1);
    assert_eq!(lookups(&mut world), 0);
    world.topics.set("topic-7", 1);
    assert_eq!(lookups(&mut world), 1);
    // Many changes of other topics cost no more than resolving the group's own.
    for number in 0..5000 {
        world.topics.set(&format!("noise-{number}"), 1);
    }
    assert_eq!(lookups(&mut world), 1000);
}
