//! Steps of group members, and the check that no commit is lost.

use std::collections::BTreeSet;

use stafett_kafka_wire::messages::OffsetFetchRequest;
use stafett_kafka_wire::messages::offset_fetch::OffsetFetchRequestTopic;

use super::consumers::CONSUMERS;
use super::groups::{Asked, CLASSIC_GROUPS, LONER, MEMBERS, commit_request};
use crate::ledger::LogKey;
use crate::random::Random;
use crate::server::Server;
use crate::steps::{PARTITIONS, TOPICS};
use crate::world::{Broken, Finding, World};

const GROUPS: u8 = CLASSIC_GROUPS + 2;
/// One in this many commits uses the previous generation.
pub(super) const STALE_EVERY: u8 = 16;
/// One in this many commits of a static member that came back is one of its former self.
const GHOST_EVERY: u8 = 3;
/// Commits that are sent together.
pub(super) const COMMITS: u8 = 3;

/// Step of a member or of a reader of commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupStep {
    /// A member joins, or rejoins.
    Join {
        member: u8,
    },
    /// A member commits in one of its partitions, selected by `chosen`.
    Commit {
        member: u8,
        chosen: u8,
    },
    Leave {
        member: u8,
    },
    /// A member's connection ends without a leave request.
    Cut {
        member: u8,
    },
    /// All commits of a group are read.
    Fetch {
        group: u8,
    },
    /// Waits until all partitions are assigned, in groups that the broker assigns.
    Quiet,
    /// Time passes, in which a group can rebalance and silent members time out.
    Wait {
        ms: u32,
    },
}

impl GroupStep {
    pub fn draw(random: &mut Random) -> Self {
        let mut small = |bound: u8| u8::try_from(random.below(bound.into())).unwrap_or(0);
        let (kind, member, chosen) = (small(21), small(MEMBERS + CONSUMERS), small(u8::MAX));
        match kind {
            0..=3 => Self::Join { member },
            4 => Self::Leave { member },
            5 => Self::Cut { member },
            6 => Self::Wait {
                ms: if chosen < 200 { 30 } else { 11_000 },
            },
            20 => Self::Quiet,
            7 | 8 => Self::Fetch {
                group: chosen % GROUPS,
            },
            _ => Self::Commit { member, chosen },
        }
    }
}

impl World {
    pub async fn group_step(&mut self, server: &mut Server, step: GroupStep) -> Result<(), Broken> {
        let number = match step {
            GroupStep::Fetch { group } => return self.check_group(server, group).await.map(drop),
            GroupStep::Wait { ms } => return self.rest(server, ms.into()).await,
            GroupStep::Quiet => return self.check_owners(server).await,
            GroupStep::Join { member }
            | GroupStep::Commit { member, .. }
            | GroupStep::Leave { member }
            | GroupStep::Cut { member } => member,
        };
        if let Some(number) = number.checked_sub(MEMBERS) {
            return Ok(self.consumer_step(server, number, step)?);
        }
        let Some(member) = self.kafka.members.get_mut(usize::from(number)) else {
            return Ok(());
        };
        member.connect(server)?;
        match step {
            GroupStep::Join { .. } => member.join(&self.kafka.commits),
            // Static members come back rather than leave.
            GroupStep::Leave { .. } | GroupStep::Cut { .. } if member.instance().is_some() => {
                member.cut();
                member.connect(server)?;
                member.join(&self.kafka.commits);
            }
            GroupStep::Leave { .. } => member.leave(),
            GroupStep::Cut { .. } => member.cut(),
            GroupStep::Commit { chosen, .. } => {
                for more in 0..COMMITS {
                    self.commit(number, chosen.wrapping_add(more));
                }
            }
            GroupStep::Fetch { .. } | GroupStep::Quiet | GroupStep::Wait { .. } => {}
        }
        Ok(())
    }

    fn commit(&mut self, number: u8, chosen: u8) {
        let Some(member) = self.kafka.members.get(usize::from(number)) else {
            return;
        };
        let of_ghost = chosen.is_multiple_of(GHOST_EVERY);
        let ghost = member.ghost.clone().filter(|_| of_ghost);
        let partitions = ghost
            .as_ref()
            .map_or(&member.partitions, |ghost| &ghost.partitions);
        let place = if number == LONER {
            Some((chosen % TOPICS, chosen / TOPICS % PARTITIONS))
        } else {
            let count = partitions.len().max(1);
            partitions.get(usize::from(chosen) % count).copied()
        };
        let Some((topic, partition)) = place else { return };
        let is_there = self.kafka.topic(topic).is_some_and(super::Topic::is_there);
        let Some(log) = self.kafka.log(topic, partition).filter(|_| is_there) else {
            return;
        };
        let commits = &mut self.kafka.commits;
        let Some(member) = self.kafka.members.get_mut(usize::from(number)) else {
            return;
        };
        let mut generation = member.generation.unwrap_or(-1);
        if let Some(ghost) = &ghost {
            generation = ghost.generation;
        }
        if number != LONER && generation < 0 {
            return;
        }
        if number != LONER && ghost.is_none() && chosen.is_multiple_of(STALE_EVERY) {
            // Like a member that missed the last rebalance.
            generation -= 1;
        }
        let key = (member.group(), log);
        let offset = commits.send(key);
        let id = ghost.as_ref().map_or(&member.id, |ghost| &ghost.id);
        let mut request = commit_request(key, id, generation, offset);
        request.group_instance_id = member.instance();
        if let Some(connection) = &mut member.connection {
            connection.send(8, &request);
            member.waiting.push_back(Asked::Commit {
                key,
                offset,
                is_fenced: number != LONER
                    && (generation < commits.given(key.0) || ghost.as_ref().is_some_and(|it| it.is_fenced)),
                is_of_ghost: ghost.is_some(),
            });
        }
        self.trace
            .note(|| format!("member {number} of generation {generation} commits {offset} for {key:?}"));
    }

    /// Checks the commits of all groups after a start.
    pub async fn check_groups(&mut self, server: &mut Server) -> Result<(), Broken> {
        for group in 0..GROUPS {
            if !self.check_group(server, group).await? {
                self.kafka.commits.forget_group(group);
            }
        }
        self.kafka.commits.forget();
        // Members reconnect.
        self.kafka.connect_consumers(server)?;
        for member in &mut self.kafka.members {
            if let Some(ghost) = &mut member.ghost {
                ghost.is_fenced &= ghost.is_for_good;
            }
            if !member.id.is_empty() {
                member.connect(server)?;
            }
        }
        Ok(())
    }

    /// Checks the commits of a group. Returns false if there are none.
    async fn check_group(&mut self, server: &mut Server, group: u8) -> Result<bool, Broken> {
        let mut is_there = false;
        let topics = (0..TOPICS).filter(|topic| self.kafka.topic(*topic).is_some_and(super::Topic::is_there));
        let logs: BTreeSet<LogKey> = topics
            .flat_map(|topic| (0..PARTITIONS).map(move |partition| (topic, partition)))
            .filter_map(|(topic, partition)| self.kafka.log(topic, partition))
            .collect();
        let floors = logs.iter().map(|log| self.kafka.commits.floor((group, *log)));
        let floors: Vec<u64> = floors.collect();
        let asked = |log: &LogKey| OffsetFetchRequestTopic {
            name: format!("t{}", log.topic).into(),
            partition_indexes: vec![log.partition.into()],
        };
        let request = OffsetFetchRequest {
            group_id: format!("g{group}").into(),
            topics: Some(logs.iter().map(asked).collect()),
            ..OffsetFetchRequest::default()
        };
        let answer = self.ask(server, 7, &request).await?;
        for (index, (log, floor)) in logs.into_iter().zip(floors).enumerate() {
            let topic = answer.topics.get(index);
            let partition = topic
                .and_then(|topic| topic.partitions.first())
                .filter(|partition| partition.error_code == 0 && answer.error_code == 0)
                .ok_or_else(|| Finding(format!("commits cannot be read: {answer:?}")))?;
            let offset = u64::try_from(partition.committed_offset).ok();
            let text = offset.map_or_else(String::new, |offset| format!("commit {offset}"));
            if partition.metadata.as_deref().unwrap_or_default() != text {
                return Err(Finding(format!("a commit is not whole: {partition:?}")).into());
            }
            self.kafka.commits.check((group, log), floor, offset)?;
            is_there |= offset.is_some();
        }
        Ok(is_there)
    }
}
