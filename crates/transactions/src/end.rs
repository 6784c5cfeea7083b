//! The end of a transaction: one append. Other cells hear of it afterwards (`cells`).

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::sync::Arc;

use smallvec::SmallVec;
use stafett_groups::PendingCommits;
use stafett_journal::{Append, BatchFrame, Frame, Outcome, Refusal, Selection, Target, Ticket};
use stafett_model::{LogId, ProducerId, TransactionEnd, end_marker};
use stafett_store::{NotStored, only_outcome, spaces};

use crate::cells::{Owed, StoredEnd};
use crate::error::TransactionError;
use crate::producer::{Instance, Producer, Status};
use crate::registry::{Entry, Transactions, outcome_now};
use crate::stored;

/// Most logs of one control batch.
const TARGETS_MAX: usize = 1000;

/// State of a producer once the end of its transaction is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Next {
    pub(crate) end: TransactionEnd,
    pub(crate) instance: Instance,
    /// Instance whose client asked for another epoch, and may have to ask again.
    pub(crate) before: Option<Instance>,
    pub(crate) status: Status,
    pub(crate) timeout_ms: u32,
    /// Instance whose transaction took too long.
    pub(crate) overdue: Option<Instance>,
}

impl Transactions {
    /// Stages the end of a transaction, if there is one, and the next state of its producer. The task that
    /// waits for it goes on if the future is dropped. A refused end leaves everything as it was.
    pub(crate) fn store_end(
        &self,
        id: &str,
        entry: &Entry,
        producer: &mut Producer,
        next: Next,
    ) -> impl Future<Output = Result<StoredEnd, TransactionError>> + use<> {
        let before = producer.status;
        let by = marked_by(producer.instance, next);
        let owed = producer.owes(by, next, self.catalog.topics());
        let mut ticket = self.stage_end(id, producer, next, owed.as_ref());
        let refused = outcome_now(&mut ticket);
        let marked = owed.as_ref().map(|owed| owed.done.clone());
        let waiting = if refused.is_none() {
            producer.status = Status::Ending(next.end);
            let (id, entry, this) = (Arc::<str>::from(id), Arc::clone(entry), self.this.clone());
            Some(self.tasks.spawn(async move {
                let outcome = ticket.await.into_iter().next();
                let stored = only_outcome(outcome.as_ref());
                if let Some(transactions) = this.upgrade() {
                    transactions.on_end(&(id, entry), before, (next, owed), stored);
                }
                stored
            }))
        } else {
            None
        };
        async move {
            match (refused, waiting) {
                (Some(outcome), _) => only_outcome(Some(&outcome))?,
                (None, Some(task)) => task.await.unwrap_or(Err(NotStored::Unknown))?,
                (None, None) => {}
            }
            Ok(StoredEnd {
                instance: next.instance,
                marked,
            })
        }
    }

    fn on_end(
        &self,
        of: &(Arc<str>, Entry),
        before: Status,
        (next, owed): (Next, Option<Owed>),
        stored: Result<(), NotStored>,
    ) {
        let mut producer = of.1.lock();
        match stored {
            Ok(()) => {
                if before == Status::Ongoing && owed.is_none() {
                    self.on_ended(&of.0, next.end);
                }
                let has_owed = owed.as_ref().is_some_and(|owed| !owed.commits.is_empty());
                if producer.pending_count() > 0 && !has_owed {
                    self.commits_ended();
                }
                producer.timeout_ms = next.timeout_ms;
                producer.stored((next.instance, next.before), next.status, self.clock.wall_ms());
                producer.overdue = next.overdue;
                if let Some(owed) = owed {
                    self.owe(of, &mut producer, owed);
                }
            }
            Err(NotStored::Refused(_)) => producer.status = before,
            // The journal has failed. The next start says how it ended.
            Err(NotStored::Unknown) => {}
        }
    }

    /// Stages the append. Logs that are gone, or take nothing any more, are left out. A log that knows a
    /// later epoch of the producer, by a batch outside of any transaction, gets the control batch with that
    /// epoch.
    fn stage_end(&self, id: &str, producer: &mut Producer, next: Next, owed: Option<&Owed>) -> Ticket {
        let mut later: BTreeMap<LogId, i16> = BTreeMap::new();
        loop {
            let at = self.clock.wall_ms();
            let instances = (next.instance, next.before);
            let row = stored::encode(instances, next.timeout_ms, next.status, at, owed);
            let mut frames = markers(producer, next, &later, at);
            frames.push(spaces::TRANSACTIONS.put(id.as_bytes().to_vec(), row));
            let is_here = |pending: &&PendingCommits| next.end == TransactionEnd::Commit && pending.cell == 0;
            let commits: Vec<_> = producer.pending.iter().filter(is_here).collect();
            let mut ticket = self.groups.commit_together(&commits, |commits| {
                frames.extend(commits);
                let append = Append {
                    state: self.settings.wait,
                    waits_for_state: true,
                    frames: std::mem::take(&mut frames).into(),
                    ..Append::default()
                };
                self.journal.append(vec![append])
            });
            let gone = match outcome_now(&mut ticket) {
                None => return ticket,
                Some(Outcome::Refused(Refusal::NoSuchLog(log))) => log,
                Some(Outcome::Refused(Refusal::StaleProducer { log, current, .. }))
                    if later.get(&log).is_none_or(|known| *known < current) =>
                {
                    later.insert(log, current);
                    continue;
                }
                Some(Outcome::Refused(Refusal::Fenced { log })) => {
                    tracing::error!(id, %log, "a transaction ends without a part that is damaged");
                    log
                }
                Some(outcome) => return Ticket::decided(outcome),
            };
            later.remove(&gone);
            if !producer.logs.remove(&gone) {
                return Ticket::decided(Outcome::Refused(Refusal::NoSuchLog(gone)));
            }
        }
    }

    /// Aborts transactions of producers that no transactional id has: their ids were lost. False if some
    /// could not be aborted.
    pub(crate) async fn abort_unknown(&self) -> bool {
        // Before the ids: a producer that begins now has one.
        let open = self.journal.open_transactions();
        let known: HashSet<ProducerId> = self
            .entries()
            .iter()
            .map(|(_, entry)| entry.lock().instance.producer)
            .collect();
        let at = self.clock.wall_ms();
        let unknown = open.iter().filter(|open| !known.contains(&open.producer));
        let aborts: Vec<Append> = unknown
            .map(|open| {
                let (log, producer) = (open.log, open.producer.0);
                tracing::warn!(%log, producer, "an open transaction without a transactional id is aborted");
                let body = end_marker(open.producer, open.epoch, TransactionEnd::Abort, at);
                Append::batch(log, body)
            })
            .collect();
        let outcomes = self.journal.append(aborts).await;
        outcomes
            .iter()
            .all(|outcome| matches!(outcome, Outcome::Committed(_)))
    }
}

/// Returns producer and epoch of the control batches of an end: the next epoch if it fences.
fn marked_by(Instance { producer, epoch }: Instance, next: Next) -> Instance {
    let epoch = if next.instance.producer == producer {
        next.instance.epoch
    } else {
        // The epochs of the producer are used up: the last one is for this.
        epoch.saturating_add(1)
    };
    Instance { producer, epoch }
}

/// Returns the control batches of the logs of the transaction: one for all, except for those with an epoch of
/// their own.
fn markers(producer: &Producer, next: Next, later: &BTreeMap<LogId, i16>, at: i64) -> Vec<Frame> {
    let Instance { producer: id, epoch } = marked_by(producer.instance, next);
    let frame = |epoch: i16, logs: &[LogId]| {
        let targets = logs.iter().map(|log| Target {
            log: *log,
            records: Selection::All,
        });
        let targets: SmallVec<[Target; 1]> = targets.collect();
        let body = end_marker(id, epoch, next.end, at);
        Frame::Batch(BatchFrame { body, targets })
    };
    let logs: Vec<LogId> = producer
        .logs
        .iter()
        .copied()
        .filter(|log| !later.contains_key(log))
        .collect();
    let alone = later.iter().map(|(log, epoch)| frame(*epoch, &[*log]));
    logs.chunks(TARGETS_MAX)
        .map(|logs| frame(epoch, logs))
        .chain(alone)
        .collect()
}
