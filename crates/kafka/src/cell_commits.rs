//! Commits with transactions. Those of groups that another cell than the first one has are checked there, and
//! kept by the coordinator in the first one until the end of the transaction, with which they come back.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use stafett_broker::Broker;
use stafett_groups::{CommitSender, NewCommit, PendingCommits};
use stafett_kafka_wire::{ErrorCode, Str};
use stafett_model::ProducerId;
use stafett_store::{all_outcomes, wall_ms};
use stafett_topics::{Ticket, TopicId};
use stafett_transactions::{COMMITS_ELSEWHERE_BYTES_MAX, Instance, Place, TransactionError};
use tokio::time::timeout;

use crate::call::Close;
use crate::cell_transactions::{Message, Partition, ToCoordinators};
use crate::context::{KafkaContext, RequestContext};
use crate::error;

/// Time for the answer about commits that wait: answers to other requests of the client wait behind it, and
/// clients ask again.
const PENDING_MAX: Duration = Duration::from_secs(3);

/// Commits of a group, between cells.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Commits {
    group: String,
    cell: u32,
    at: i64,
    order: u64,
    entries: Vec<Commit>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Commit {
    of: Partition,
    offset: i64,
    leader_epoch: i32,
    text: Option<String>,
}

impl From<&PendingCommits> for Commits {
    fn from(pending: &PendingCommits) -> Self {
        let commits = pending.commits.iter().map(|commit| Commit {
            of: (commit.topic.0, commit.partition),
            offset: commit.offset,
            leader_epoch: commit.leader_epoch,
            text: commit.text.as_deref().map(Into::into),
        });
        Self {
            group: pending.group.to_string(),
            cell: pending.cell,
            at: pending.at,
            order: pending.order,
            entries: commits.collect(),
        }
    }
}

impl From<Commits> for PendingCommits {
    fn from(commits: Commits) -> Self {
        let commit = |commit: Commit| NewCommit {
            topic: TopicId(commit.of.0),
            partition: commit.of.1,
            offset: commit.offset,
            leader_epoch: commit.leader_epoch,
            text: commit.text.map(Into::into),
        };
        Self {
            group: commits.group.into(),
            cell: commits.cell,
            commits: commits.entries.into_iter().map(commit).collect(),
            at: commits.at,
            order: commits.order,
        }
    }
}

/// Commits of a member that are to count with the end of a transaction.
pub(crate) struct CommittedWith {
    pub id: Str,
    pub by: Instance,
    /// True if the group is added to the transaction.
    pub adds: bool,
    pub group: Str,
    pub member: Str,
    pub instance: Option<Str>,
    pub generation: i32,
    pub commits: Vec<NewCommit>,
    /// Version of the request, for the code of the answer.
    pub version: i16,
}

impl CommittedWith {
    fn sender(&self) -> CommitSender<'_> {
        CommitSender {
            member: &self.member,
            instance: self.instance.as_deref(),
            epoch: self.generation,
            is_transactional: true,
        }
    }

    /// Checks that the sender may commit to the group of this cell.
    fn check(&self, broker: &Broker) -> Result<(), TransactionError> {
        let groups = broker.groups();
        Ok(groups.check_commit(&self.group, &self.sender(), &self.commits)?)
    }

    /// Has the coordinator keep the commits until the end. Returns the code of the answer.
    pub(crate) async fn store(mut self, context: &RequestContext) -> Result<ErrorCode, Close> {
        let shared = &*context.shared;
        if shared.is_further_cell() {
            return shared.commit_elsewhere(self).await;
        }
        let commits = std::mem::take(&mut self.commits);
        let transactions = shared.broker.transactions();
        let group = (&*self.group, &self.sender());
        let stored = transactions
            .commit_offsets(&self.id, self.by, self.adds, group, commits)
            .await;
        match stored {
            Ok(()) => {
                if shared.needs_offsets_topic() {
                    shared.offsets_topic.topic().create(&shared.broker).await;
                }
                Ok(ErrorCode::None)
            }
            Err(why) => {
                context.log_refused_transaction(&self.id, &why);
                error::transactional_commit(&why, self.version)
            }
        }
    }
}

impl ToCoordinators {
    /// Has the coordinator keep commits until the end of their transaction. Returns the code of the answer.
    pub(crate) async fn commit(&self, broker: &Broker, asked: CommittedWith) -> Result<ErrorCode, Close> {
        if let Err(why) = asked.check(broker) {
            return error::transactional_commit(&why, asked.version);
        }
        let pending = PendingCommits {
            group: (&*asked.group).into(),
            cell: broker.catalog().cells().own,
            commits: asked.commits,
            at: wall_ms(),
            order: broker.groups().next_order(),
        };
        if pending.bytes() > COMMITS_ELSEWHERE_BYTES_MAX {
            return Ok(ErrorCode::InvalidCommitOffsetSize);
        }
        let message = Message::Commit {
            id: asked.id.to_string(),
            by: (asked.by.producer.0, asked.by.epoch),
            adds: asked.adds,
            version: asked.version,
            commits: (&pending).into(),
        };
        Ok(match self.ask::<(i32, i16)>(&message).await {
            Ok((_, code)) => ErrorCode::try_from(code).unwrap_or(ErrorCode::UnknownServerError),
            Err(why) => {
                tracing::debug!(%why, "the coordinator of a transaction takes no commits");
                // Clients try it again.
                ErrorCode::CoordinatorLoadInProgress
            }
        })
    }

    /// Returns the partitions of groups whose commits wait for the end of a transaction. `None` if the
    /// coordinator does not answer.
    pub(crate) async fn pending(&self, groups: &[Str]) -> Option<Vec<Vec<Place>>> {
        let names = groups.iter().map(ToString::to_string).collect();
        let message = Message::Pending(names);
        let asking = timeout(PENDING_MAX, self.ask::<Vec<Vec<Partition>>>(&message));
        let answered = asking.await.ok()?;
        let pending = answered.ok().filter(|pending| pending.len() == groups.len())?;
        let places = |places: Vec<Partition>| {
            let places = places.into_iter();
            places
                .map(|(topic, partition)| (TopicId(topic), partition))
                .collect()
        };
        Some(pending.into_iter().map(places).collect())
    }
}

impl KafkaContext {
    /// Has the coordinator keep commits until the end of their transaction. Returns the code of the answer.
    pub(crate) async fn commit_elsewhere(&self, asked: CommittedWith) -> Result<ErrorCode, Close> {
        match &self.coordinators {
            Some(coordinators) => coordinators.commit(&self.broker, asked).await,
            None => Ok(ErrorCode::CoordinatorLoadInProgress),
        }
    }

    /// Returns the partitions of groups whose commits wait for the end of a transaction. `None` if the
    /// coordinator does not answer.
    pub(crate) async fn pending_elsewhere(&self, groups: &[Str]) -> Option<Vec<Vec<Place>>> {
        self.coordinators.as_ref()?.pending(groups).await
    }
}

/// At the first cell: keeps commits that another cell has checked.
pub(crate) async fn keep(
    broker: &Broker,
    id: &str,
    (producer, epoch): (i64, i16),
    (adds, version): (bool, i16),
    commits: Commits,
) -> Result<ErrorCode, Close> {
    let given = Instance {
        producer: ProducerId(producer),
        epoch,
    };
    let is_of_cell = (1..broker.catalog().cells().count).contains(&commits.cell);
    if commits.entries.is_empty() || !is_of_cell {
        return Ok(ErrorCode::InvalidRequest);
    }
    let transactions = broker.transactions();
    match transactions
        .commit_elsewhere(id, given, adds, commits.into())
        .await
    {
        Ok(()) => Ok(ErrorCode::None),
        Err(why) => error::transactional_commit(&why, version),
    }
}

/// Stores commits of transactions that have ended in the first cell. Returns for each transaction whether all
/// of them are stored.
pub(crate) async fn store_ended(
    broker: &Broker,
    of_transactions: impl Iterator<Item = Vec<Commits>>,
) -> Vec<bool> {
    // In their order: of two commits, the later one counts.
    let groups = broker.groups();
    let stage = |of: Vec<Commits>| -> Vec<Ticket> {
        let commits = of.into_iter();
        commits.map(|of| groups.stage_ended(&of.into())).collect()
    };
    let staged: Vec<_> = of_transactions.map(stage).collect();
    let mut stored = Vec::with_capacity(staged.len());
    for tickets in staged {
        let mut is_stored = true;
        for ticket in tickets {
            is_stored &= all_outcomes(&ticket.await).is_ok();
        }
        stored.push(is_stored);
    }
    stored
}

/// At the first cell: returns the partitions of groups whose commits wait.
pub(crate) fn waiting(broker: &Broker, groups: &[String]) -> Vec<Vec<Partition>> {
    let of_group = |group: &String| {
        let places = broker.transactions().pending_commits(group);
        places
            .into_iter()
            .map(|(topic, partition)| (topic.0, partition))
            .collect()
    };
    groups.iter().map(of_group).collect()
}
