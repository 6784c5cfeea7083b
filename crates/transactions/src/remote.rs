//! Transactions whose coordinator is in another cell: batches of theirs in the logs of this one.
//!
//! A batch is appended once the coordinator has said that its log is part of the transaction, and no control
//! batch has come since the question. So none is appended behind the end of its transaction, where nothing
//! would ever end it. The coordinator's answers are not stored: after a start it is asked again.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use stafett_journal::{Append, Journal, OpenTransaction, Outcome, Refusal, Ticket};
use stafett_model::{Lock, LogId, ProducerId, TransactionEnd, end_marker};
use stafett_store::{NotStored, only_outcome, wall_ms};
use stafett_topics::TopicCatalog;

use crate::error::TransactionError;
use crate::producer::Instance;

/// Looks after which a transaction that its coordinator does not know is aborted. A former coordinator, which
/// does not know of later transactions, has ended by then.
const ABANDONED_LOOKS: u32 = 3;

/// Connection of a coordinator: epoch of its cell, and number of the connection there. Messages of
/// earlier ones are late.
pub type Coordinator = (i32, u64);

/// Transactions of other coordinators with batches in a broker's logs.
#[derive(Debug)]
pub struct RemoteTransactions {
    journal: Arc<dyn Journal>,
    catalog: Arc<TopicCatalog>,
    /// Batches and control batches are staged under it.
    known: Lock<Known>,
    /// Open transactions that the coordinator did not know, and the number of looks.
    abandoned: Lock<HashMap<(LogId, ProducerId, u64), u32>>,
}

#[derive(Debug, Default)]
struct Known {
    producers: HashMap<ProducerId, Remote>,
    coordinator: Coordinator,
}

/// State of a producer.
#[derive(Debug, Default)]
struct Remote {
    epoch: i16,
    /// Logs that its transaction may append to.
    logs: BTreeSet<LogId>,
    /// Number of questions to the coordinator that are not answered.
    asked: usize,
    /// Number of control batches that came while there were any.
    ends: u64,
}

/// End of a transaction, for its logs here.
#[derive(Debug, Clone)]
pub struct RemoteMarker {
    /// Producer and epoch of the control batch.
    pub by: Instance,
    pub end: TransactionEnd,
    pub logs: Vec<LogId>,
}

/// A question to the coordinator, until it is answered.
struct Question<'a> {
    remote: &'a RemoteTransactions,
    producer: ProducerId,
    ends: u64,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        let mut known = self.remote.known.lock();
        if let Some(producer) = known.producers.get_mut(&self.producer) {
            producer.asked -= 1;
            if producer.asked == 0 && producer.logs.is_empty() {
                known.producers.remove(&self.producer);
            }
        }
    }
}

impl RemoteTransactions {
    pub fn new(journal: Arc<dyn Journal>, catalog: Arc<TopicCatalog>) -> Self {
        Self {
            journal,
            catalog,
            known: Lock::default(),
            abandoned: Lock::default(),
        }
    }

    /// Appends batches of a transaction, one to each of `logs`, if the coordinator need not be asked. Returns
    /// them otherwise.
    pub fn append_known(
        &self,
        given: Instance,
        logs: &[LogId],
        appends: Vec<Append>,
    ) -> Result<Ticket, Vec<Append>> {
        let known = self.known.lock();
        if !known.has(given, logs) {
            return Err(appends);
        }
        self.catalog.topics().traffic().count_appends(&appends);
        Ok(self.journal.append(appends))
    }

    /// Appends batches of a transaction, one to each of `logs`, once `ask` has asked the coordinator whether
    /// these are part of it.
    pub async fn append<E: From<TransactionError>>(
        &self,
        given: Instance,
        logs: &[LogId],
        appends: Vec<Append>,
        ask: impl Future<Output = Result<(), E>>,
    ) -> Result<Ticket, E> {
        let question = self.ask(given.producer);
        ask.await?;
        let mut known = self.known.lock();
        let producer = known.producers.entry(given.producer).or_default();
        let appended = if producer.ends == question.ends {
            if producer.epoch != given.epoch {
                producer.logs.clear();
            }
            producer.epoch = given.epoch;
            producer.logs.extend(logs);
            self.catalog.topics().traffic().count_appends(&appends);
            Ok(self.journal.append(appends))
        } else {
            Err(TransactionError::NotAdded.into())
        };
        drop(known);
        drop(question);
        appended
    }

    fn ask(&self, producer: ProducerId) -> Question<'_> {
        let mut known = self.known.lock();
        let remote = known.producers.entry(producer).or_default();
        remote.asked += 1;
        Question {
            remote: self,
            producer,
            ends: remote.ends,
        }
    }

    /// Stores control batches. Logs that are gone, or damaged, get none. False if some are not stored: all of
    /// them have to come again. Refuses those of a former connection of the coordinator.
    pub async fn mark(&self, from: Coordinator, markers: &[RemoteMarker]) -> bool {
        let now = wall_ms();
        let batch = |by: Instance, end, log| Append::batch(log, end_marker(by.producer, by.epoch, end, now));
        let all: Vec<_> = markers
            .iter()
            .flat_map(|marker| marker.logs.iter().map(|log| (marker.by, marker.end, *log)))
            .collect();
        let ticket = {
            let mut known = self.known.lock();
            if from < known.coordinator {
                return false;
            }
            known.coordinator = from;
            for marker in markers {
                known.end(marker.by.producer);
            }
            let appends = all.iter().map(|(by, end, log)| batch(*by, *end, *log));
            self.journal.append(appends.collect())
        };
        let mut late = Vec::new();
        for ((by, end, log), outcome) in all.iter().zip(ticket.await) {
            match outcome {
                Outcome::Committed(_) | Outcome::Refused(Refusal::NoSuchLog(_)) => {}
                Outcome::Refused(Refusal::Fenced { log }) => {
                    tracing::error!(%log, "a transaction ends without a part that is damaged");
                }
                // A batch outside of any transaction had a later epoch.
                Outcome::Refused(Refusal::StaleProducer { current, .. }) => {
                    let by = Instance {
                        epoch: current,
                        ..*by
                    };
                    late.push(batch(by, *end, *log));
                }
                Outcome::Refused(_) | Outcome::Unknown => return false,
            }
        }
        let outcomes = self.journal.append(late).await;
        outcomes
            .iter()
            .all(|outcome| matches!(outcome, Outcome::Committed(_)))
    }

    /// Aborts transactions of producers that their coordinator does not know, or not as open. `ask` returns
    /// those of some that are open; `None` if the coordinator does not answer. To be called now and then, at
    /// least a lease apart.
    pub async fn abort_abandoned(&self, ask: impl AsyncFnOnce(Vec<ProducerId>) -> Option<Vec<ProducerId>>) {
        let open = self.journal.open_transactions();
        let producers: BTreeSet<_> = open.iter().map(|open| open.producer.0).collect();
        if producers.is_empty() {
            self.abandoned.lock().clear();
            return;
        }
        let Some(open_there) = ask(producers.into_iter().map(ProducerId).collect()).await else {
            return;
        };
        let place = |open: &OpenTransaction| (open.log, open.producer, open.first.0);
        let mut appends = Vec::new();
        {
            // It may have ended meanwhile, and another have begun.
            let still: BTreeSet<_> = self.journal.open_transactions().iter().map(place).collect();
            let mut abandoned = self.abandoned.lock();
            let before = std::mem::take(&mut *abandoned);
            for open in open.iter().filter(|open| !open_there.contains(&open.producer)) {
                let place = place(open);
                if !still.contains(&place) {
                    continue;
                }
                let looks = before.get(&place).copied().unwrap_or_default() + 1;
                if looks < ABANDONED_LOOKS {
                    abandoned.insert(place, looks);
                    continue;
                }
                let (log, producer) = (open.log, open.producer.0);
                tracing::warn!(%log, producer, "an open transaction that its coordinator does not know is aborted");
                let marker = end_marker(open.producer, open.epoch, TransactionEnd::Abort, wall_ms());
                appends.push(Append::batch(log, marker));
            }
        }
        let outcomes = self.journal.append(appends).await;
        for outcome in outcomes {
            if let Err(why) = only_outcome(Some(&outcome))
                && why != NotStored::Unknown
            {
                tracing::warn!(%why, "an abandoned transaction is not aborted yet");
            }
        }
    }
}

impl Known {
    fn has(&self, given: Instance, logs: &[LogId]) -> bool {
        let producer = self.producers.get(&given.producer);
        producer.is_some_and(|producer| {
            producer.epoch == given.epoch && logs.iter().all(|log| producer.logs.contains(log))
        })
    }

    /// A transaction of the producer has ended. Questions that are on their way were about that.
    fn end(&mut self, producer: ProducerId) {
        let Some(remote) = self.producers.get_mut(&producer) else {
            return;
        };
        remote.logs.clear();
        remote.ends += 1;
        if remote.asked == 0 {
            self.producers.remove(&producer);
        }
    }
}
