//! Requests of producers: a transaction's logs and groups, its appends and commits, and its end.

use std::sync::atomic::Ordering;

use stafett_groups::{CommitSender, NewCommit, PendingCommits};
use stafett_journal::{Append, Change, Ticket};
use stafett_model::{LogId, TransactionEnd};
use stafett_store::{only_outcome, spaces};

use super::{COMMITS_MAX, PLACES_MAX, Transactions, outcome_now};
use crate::cells::{COMMITS_ELSEWHERE_BYTES_MAX, Parts};
use crate::end::Next;
use crate::error::TransactionError;
use crate::producer::{EndStep, Instance, Place, Status};
use crate::stored;

impl Transactions {
    /// Adds partitions to the transaction, which begins if it is not open. Those in other cells are stored:
    /// their logs do not tell here that it is open.
    pub async fn add_parts(&self, id: &str, given: Instance, parts: Parts) -> Result<(), TransactionError> {
        let known = self.known(id)?;
        let (number, fresh, ticket) = {
            let mut producer = known.1.lock();
            let is_stored = |place: &Place| producer.elsewhere.get(place) == Some(&true);
            let mut fresh = parts.elsewhere;
            fresh.retain(|place| !is_stored(place));
            self.begin(&known, &mut producer, given)?;
            let more = fresh
                .iter()
                .filter(|place| !producer.elsewhere.contains_key(place));
            if producer.elsewhere.len() + more.count() > PLACES_MAX {
                return Err(TransactionError::TooManyPartitions { max: PLACES_MAX });
            }
            producer.logs.extend(parts.logs);
            if fresh.is_empty() {
                return Ok(());
            }
            let change = Change::Delta(stored::encode_elsewhere(&fresh));
            let mut ticket = self.append_state([spaces::TRANSACTIONS.change(id.as_bytes().to_vec(), change)]);
            if let Some(outcome) = outcome_now(&mut ticket) {
                only_outcome(Some(&outcome))?;
            }
            producer
                .elsewhere
                .extend(fresh.iter().map(|place| (*place, false)));
            (producer.number, fresh, ticket)
        };
        only_outcome(ticket.await.first())?;
        let mut producer = known.1.lock();
        if (producer.number, producer.status) == (number, Status::Ongoing) {
            producer
                .elsewhere
                .extend(fresh.into_iter().map(|place| (place, true)));
        }
        Ok(())
    }

    /// Begins the transaction if it is not open, for a group whose commits follow.
    pub fn add_group(&self, id: &str, given: Instance, group: &str) -> Result<(), TransactionError> {
        let known = self.known(id)?;
        let mut producer = known.1.lock();
        self.begin(&known, &mut producer, given)?;
        // Groups without commits are of no use.
        if producer.groups.len() >= COMMITS_MAX && !producer.groups.contains(group) {
            return Err(TransactionError::TooManyCommits { max: COMMITS_MAX });
        }
        producer.groups.insert(group.into());
        Ok(())
    }

    /// Checks that partitions are part of the transaction.
    pub fn check_parts(&self, id: &str, given: Instance, parts: &Parts) -> Result<(), TransactionError> {
        let (_, entry) = self.known(id)?;
        let producer = entry.lock();
        producer.check(given)?;
        if let Status::Ending(_) = producer.status {
            return Err(TransactionError::Busy);
        }
        let is_stored = |place: &Place| producer.elsewhere.get(place) == Some(&true);
        let is_part = producer.status == Status::Ongoing
            && parts.logs.iter().all(|log| producer.logs.contains(log))
            && parts.elsewhere.iter().all(is_stored);
        is_part.then_some(()).ok_or(TransactionError::NotAdded)
    }

    /// Appends batches of the transaction, one to each of `logs`. `adds`: the logs are added, and the
    /// transaction begins if it is not open; else they have to be part of it.
    pub fn append(
        &self,
        id: &str,
        given: Instance,
        adds: bool,
        logs: &[LogId],
        appends: Vec<Append>,
    ) -> Result<Ticket, TransactionError> {
        let known = self.known(id)?;
        let mut producer = known.1.lock();
        producer.check(given)?;
        if let Status::Ending(_) = producer.status {
            return Err(TransactionError::Busy);
        }
        let is_part =
            producer.status == Status::Ongoing && logs.iter().all(|log| producer.logs.contains(log));
        if !is_part {
            if !adds && !producer.is_recovered {
                return Err(TransactionError::NotAdded);
            }
            self.begin(&known, &mut producer, given)?;
            producer.logs.extend(logs);
        }
        self.catalog.topics().traffic().count_appends(&appends);
        Ok(self.journal.append(appends))
    }

    /// Stores commits of a group that count with the end of the transaction. `adds` as in [`Self::append`].
    pub async fn commit_offsets(
        &self,
        id: &str,
        given: Instance,
        adds: bool,
        (group, by): (&str, &CommitSender<'_>),
        commits: Vec<NewCommit>,
    ) -> Result<(), TransactionError> {
        let check = || {
            self.groups.check_commit(group, by, &commits)?;
            Ok(PendingCommits {
                group: group.into(),
                cell: 0,
                commits,
                at: self.clock.wall_ms(),
                order: self.groups.next_order(),
            })
        };
        self.store_commits(id, given, adds, group, check).await
    }

    /// Stores commits of a group of another cell, which has checked them. They go there with the end of the
    /// transaction. `adds` as in [`Self::append`].
    pub async fn commit_elsewhere(
        &self,
        id: &str,
        given: Instance,
        adds: bool,
        commits: PendingCommits,
    ) -> Result<(), TransactionError> {
        let group = commits.group.clone();
        self.store_commits(id, given, adds, &group, || Ok(commits)).await
    }

    async fn store_commits(
        &self,
        id: &str,
        given: Instance,
        adds: bool,
        group: &str,
        checked: impl FnOnce() -> Result<PendingCommits, TransactionError>,
    ) -> Result<(), TransactionError> {
        let known = self.known(id)?;
        let ticket = {
            let mut producer = known.1.lock();
            producer.check(given)?;
            let is_part = producer.status == Status::Ongoing && producer.groups.contains(group);
            if !is_part && !adds && !producer.is_recovered {
                return Err(TransactionError::NotAdded);
            }
            let pending = checked()?;
            self.begin(&known, &mut producer, given)?;
            producer.groups.insert(group.into());
            let had = producer.pending_count();
            let added = &pending.commits;
            if had + added.len() > COMMITS_MAX && !producer.has_room(group, added, COMMITS_MAX) {
                return Err(TransactionError::TooManyCommits { max: COMMITS_MAX });
            }
            let elsewhere = producer.elsewhere_bytes() + pending.bytes();
            if pending.cell != 0 && elsewhere > COMMITS_ELSEWHERE_BYTES_MAX {
                return Err(TransactionError::TooManyCommits { max: COMMITS_MAX });
            }
            // The end is one append: it leaves as much space again for the control batches.
            if producer.pending_bytes() + pending.bytes() > self.journal.batch_bytes() {
                return Err(TransactionError::TooManyCommits { max: COMMITS_MAX });
            }
            let change = Change::Delta(stored::encode_pending(&pending));
            let mut ticket = self.append_state([spaces::TRANSACTIONS.change(id.as_bytes().to_vec(), change)]);
            if let Some(outcome) = outcome_now(&mut ticket) {
                only_outcome(Some(&outcome))?;
            }
            if had == 0 {
                self.pending.fetch_add(1, Ordering::Relaxed);
            }
            producer.add_commits(pending);
            ticket
        };
        if ticket.glance().committed() == Some(true) {
            return Ok(());
        }
        only_outcome(ticket.await.first())?;
        Ok(())
    }

    /// Ends a transaction. Returns the instance as which the producer goes on: with another epoch if `bumps`.
    pub async fn end(
        &self,
        id: &str,
        given: Instance,
        end: TransactionEnd,
        bumps: bool,
    ) -> Result<Instance, TransactionError> {
        let (_, entry) = self.known(id)?;
        let fresh = if bumps { self.fresh(&entry).await? } else { None };
        let stored = {
            let mut producer = entry.lock();
            match producer.end(given, end, bumps, fresh)? {
                EndStep::Done(instance) => return Ok(instance),
                EndStep::Store(instance) => {
                    let next = Next {
                        end,
                        instance,
                        before: (instance != producer.instance).then_some(producer.instance),
                        status: Status::Ended(end),
                        timeout_ms: producer.timeout_ms,
                        overdue: None,
                    };
                    self.store_end(id, &entry, &mut producer, next)
                }
            }
        };
        Ok(stored.await?.answerable().await)
    }
}
