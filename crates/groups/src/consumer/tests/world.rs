//! Topics that can be changed, and members that follow their answers on request.

use std::collections::BTreeMap;

use stafett_topics::{TopicId, TopicShape, TopicSource};

use crate::consumer::*;

#[derive(Debug, Default)]
pub(crate) struct Topics {
    by_name: BTreeMap<String, TopicShape>,
    log: Vec<String>,
    next: u128,
    /// True if the source has forgotten earlier changes.
    pub forgets: bool,
}

impl Topics {
    pub(crate) fn set(&mut self, name: &str, partitions: u32) {
        let next = &mut self.next;
        let topic = self.by_name.entry(name.to_owned()).or_insert_with(|| {
            *next += 1;
            TopicShape {
                id: TopicId(*next),
                partitions,
            }
        });
        topic.partitions = partitions;
        self.log.push(name.to_owned());
    }

    pub(crate) fn delete(&mut self, name: &str) {
        self.by_name.remove(name);
        self.log.push(name.to_owned());
    }

    pub(crate) fn name(&self, id: TopicId) -> &str {
        let found = self.by_name.iter().find(|(_, shape)| shape.id == id);
        found.map_or("gone", |(name, _)| name)
    }

    pub(crate) fn partition(&self, text: &str) -> Partition {
        let at = text.find(|c: char| c.is_ascii_digit()).unwrap();
        Partition {
            topic: self.by_name[&text[..at]].id,
            index: text[at..].parse().unwrap(),
        }
    }
}

impl TopicSource for Topics {
    fn version(&self) -> u64 {
        self.log.len() as u64 + 1
    }

    fn named(&self, name: &str) -> Option<TopicShape> {
        self.by_name.get(name).copied()
    }

    fn each(&self, visit: &mut dyn FnMut(&str, TopicShape)) {
        for (name, shape) in &self.by_name {
            visit(name, *shape);
        }
    }

    fn each_changed(&self, version: u64, visit: &mut dyn FnMut(&str)) -> bool {
        if self.forgets {
            return false;
        }
        for name in &self.log[usize::try_from(version).unwrap() - 1..] {
            visit(name);
        }
        true
    }
}

/// A member's own view.
#[derive(Debug, Clone, Default)]
pub(crate) struct Client {
    pub epoch: i32,
    pub instance: Option<Box<str>>,
    /// Partitions that it consumes, exclusively.
    pub owned: Partitions,
    /// Last assignment that it got.
    pub told: Option<Partitions>,
    pub names: Vec<Box<str>>,
    pub pattern: Option<Box<str>>,
}

#[derive(Debug, Default)]
pub(crate) struct World {
    pub topics: Topics,
    pub group: ConsumerGroup,
    pub rules: Rules,
    pub now_ms: u64,
    pub clients: BTreeMap<String, Client>,
}

impl World {
    pub(crate) fn beat(&mut self, beat: Heartbeat) -> Result<HeartbeatReply, HeartbeatError> {
        self.group.heartbeat(beat, &self.topics, &self.rules, self.now_ms)
    }

    pub(crate) fn join(&mut self, id: &str, client: Client) -> Result<HeartbeatReply, HeartbeatError> {
        let answer = self.beat(Heartbeat {
            member: id.into(),
            instance: client.instance.clone(),
            rebalance_timeout_ms: Some(60_000),
            names: Some(client.names.clone()),
            pattern: client.pattern.clone(),
            owned: Some(Partitions::default()),
            ..Heartbeat::default()
        })?;
        self.clients.insert(id.to_owned(), client);
        self.hear(id, &answer);
        Ok(answer)
    }

    /// Sends a heartbeat, with the list of its partitions if `says_owned`.
    pub(crate) fn report(&mut self, id: &str, says_owned: bool) -> Result<HeartbeatReply, HeartbeatError> {
        let client = &self.clients[id];
        let answer = self.beat(Heartbeat {
            member: id.into(),
            epoch: client.epoch,
            instance: client.instance.clone(),
            owned: says_owned.then(|| client.owned.clone()),
            ..Heartbeat::default()
        })?;
        self.hear(id, &answer);
        Ok(answer)
    }

    pub(crate) fn hear(&mut self, id: &str, answer: &HeartbeatReply) {
        let client = self.clients.get_mut(id).unwrap();
        client.epoch = answer.epoch;
        if answer.assignment.is_some() {
            client.told.clone_from(&answer.assignment);
        }
    }

    /// Lets the member follow its last assignment: give partitions back, take others.
    pub(crate) fn obey(&mut self, id: &str) {
        let client = self.clients.get_mut(id).unwrap();
        if let Some(told) = client.told.take() {
            client.owned = told;
        }
    }

    /// Checks that no partition is consumed twice and that the group knows each consumer.
    pub(crate) fn check(&self) {
        let mut owners: BTreeMap<Partition, &str> = BTreeMap::new();
        for (id, client) in &self.clients {
            for partition in client.owned.as_slice() {
                let other = owners.insert(*partition, id);
                assert_eq!(other, None, "{partition:?} is with {id} too");
            }
        }
        let mut holders: BTreeMap<Partition, &str> = BTreeMap::new();
        for member in self.group.members() {
            let holding = member
                .assigned
                .as_slice()
                .iter()
                .chain(member.revoking.as_slice());
            for held in holding {
                let other = holders.insert(held.partition, &member.id);
                assert_eq!(other, None, "{:?} is held by {} too", held.partition, member.id);
            }
        }
    }

    /// Lets all members report and obey until nothing changes. Returns the number of rounds.
    pub(crate) fn settle(&mut self) -> usize {
        for round in 0..100 {
            let ids: Vec<_> = self.clients.keys().cloned().collect();
            for id in ids {
                self.report(&id, true).unwrap();
                self.check();
                self.obey(&id);
                self.check();
            }
            if matches!(
                self.group.state(),
                ConsumerGroupState::Stable | ConsumerGroupState::Empty
            ) {
                return round;
            }
        }
        panic!("it does not settle: {:?}", self.group);
    }
}
