//! Owners of partitions in groups whose partitions the broker assigns: no partition has two, and in the end
//! each has one.

use std::collections::{BTreeMap, BTreeSet};

use super::consumers::{Consumer, Owned};
use super::groups::CLASSIC_GROUPS;
use super::{Kafka, Known};
use crate::server::Server;
use crate::steps::PARTITIONS;
use crate::world::{Broken, Finding, World};

/// Milliseconds after which all partitions have owners.
const QUIET_MS: u32 = 40_000;

impl Kafka {
    /// Lets the members report, and checks that no partition has two owners.
    pub(super) fn turn_consumers(
        &mut self,
        may_refuse: bool,
        now_ms: i64,
        notes: &mut Vec<String>,
    ) -> Result<(), Finding> {
        for consumer in &mut self.consumers {
            consumer.turn(&mut self.commits, may_refuse, now_ms, notes)?;
        }
        let mut owners: BTreeMap<(u8, Owned), u8> = BTreeMap::new();
        for consumer in self.consumers.iter().filter(|consumer| consumer.is_heard(now_ms)) {
            for owned in consumer.owned.keys() {
                let place = (consumer.group(), *owned);
                if let Some(other) = owners.insert(place, consumer.number) {
                    let number = consumer.number;
                    return Err(Finding(format!(
                        "consumers {other} and {number} both own {place:?}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Lets members connect that are in their groups.
    pub(super) fn connect_consumers(&mut self, server: &mut Server) -> Result<(), Finding> {
        for consumer in self.consumers.iter_mut().filter(|consumer| consumer.is_in) {
            consumer.connect(server)?;
        }
        Ok(())
    }

    /// Returns the partitions that living members own, by group.
    pub(super) fn owned(&self) -> BTreeSet<(u8, Owned)> {
        let owned = |consumer: &Consumer| {
            let group = consumer.group();
            let owned = consumer.owned.keys().map(move |owned| (group, *owned));
            owned.collect::<Vec<_>>()
        };
        self.consumers.iter().flat_map(owned).collect()
    }

    /// True if every partition has an owner in each group that has members, and nothing is being given back.
    fn is_all_owned(&self) -> bool {
        let owned = self.owned();
        let ids = self.topics.iter().filter_map(|topic| match topic.known {
            Known::There(id) => Some(id),
            Known::Missing | Known::Creating | Known::Deleting(_) => None,
        });
        let all: BTreeSet<Owned> = ids
            .flat_map(|id| (0..i32::from(PARTITIONS)).map(move |index| (id, index)))
            .collect();
        (CLASSIC_GROUPS..CLASSIC_GROUPS + 2).all(|group| {
            let mine = owned.iter().filter(|(of, _)| *of == group);
            let is_in = |consumer: &Consumer| consumer.group() == group && consumer.is_in;
            !self.consumers.iter().any(is_in) || mine.map(|(_, owned)| *owned).eq(all.iter().copied())
        })
    }
}

impl World {
    /// Waits until all partitions have owners.
    pub(super) async fn check_owners(&mut self, server: &mut Server) -> Result<(), Broken> {
        self.kafka.connect_consumers(server)?;
        for _ in 0..QUIET_MS / 100 {
            self.rest(server, 100).await?;
            if self.kafka.is_all_owned() || self.has_failed() {
                return Ok(());
            }
        }
        if self.may_refuse {
            return Ok(());
        }
        let (owned, topics) = (self.kafka.owned(), &self.kafka.topics);
        Err(Finding(format!("partitions have no owner: {owned:?} of {topics:?}")).into())
    }
}
