//! Transactions whose coordinator is in another cell: batches of theirs in the logs of this one.
//!
//! A batch is appended once the coordinator has said that its log is part of the transaction, and no control
//! batch has come since the question. So none is appended behind the end of its transaction, where nothing
//! would ever end it. The coordinator's answers are not stored: after a start it is asked again.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use stafett_journal::{Append, Journal, OpenTransaction, Outcome, Refusal, Ticket};
use stafett_model::{Lock, LogId, ProducerId, TransactionEnd, end_marker};
use stafett_store::{NotStored, await_stored, only_outcome, wall_ms};
use stafett_topics::TopicCatalog;

use crate::error::TransactionError;
use crate::producer::{Instance, Place};

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
    /// Open transactions that the coordinator did not know, by log, producer and first offset, and the number
    /// of looks.
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
    /// Transactional id that the coordinator knows it by.
    id: Box<str>,
    epoch: i16,
    /// Logs that its transaction may append to.
    logs: BTreeSet<LogId>,
    /// Number of questions to the coordinator that are not answered.
    asked: usize,
    /// Number of its transactions that ended while there were such questions.
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
        id: &str,
        given: Instance,
        logs: &[LogId],
        appends: Vec<Append>,
    ) -> Result<Ticket, Vec<Append>> {
        let known = self.known.lock();
        if !known.has(id, given, logs) {
            return Err(appends);
        }
        self.catalog.topics().traffic().count_appends(&appends);
        Ok(self.journal.append(appends))
    }

    /// Appends batches of a transaction, one to each of `logs`, once `ask` has asked the coordinator whether
    /// these are part of it. It returns the epoch of the coordinator's cell: a former one does not know of
    /// later transactions.
    pub async fn append<E: From<TransactionError>>(
        &self,
        id: &str,
        given: Instance,
        logs: &[LogId],
        appends: Vec<Append>,
        ask: impl Future<Output = Result<i32, E>>,
    ) -> Result<Ticket, E> {
        let question = self.ask(given.producer);
        let epoch = ask.await?;
        let mut known = self.known.lock();
        let is_former = epoch < known.coordinator.0;
        let producer = known.producers.entry(given.producer).or_default();
        let appended = if producer.ends == question.ends && !is_former {
            if producer.epoch != given.epoch || *producer.id != *id {
                producer.logs.clear();
                producer.id = id.into();
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

    /// Stores control batches. Logs that are gone, or damaged, get none. Returns which markers are stored:
    /// others have to come again. None is stored of a former connection of the coordinator.
    pub async fn mark(&self, from: Coordinator, markers: &[RemoteMarker]) -> Vec<bool> {
        let now = wall_ms();
        let ticket = {
            let mut known = self.known.lock();
            if from < known.coordinator {
                return vec![false; markers.len()];
            }
            known.coordinator = from;
            let mut appends = Vec::new();
            for RemoteMarker { by, end, logs } in markers {
                known.end(by.producer);
                // The coordinator forgets the end once it is stored here: it has to be as durable as there,
                // in logs of any level.
                let batch = |log: &LogId| Append {
                    waits_for_state: true,
                    ..Append::batch(*log, end_marker(by.producer, by.epoch, *end, now))
                };
                appends.extend(logs.iter().map(batch));
            }
            self.journal.append(appends)
        };
        let mut outcomes = ticket.await.into_iter();
        let is_stored = |marker: &RemoteMarker| {
            let of_logs: Vec<Outcome> = outcomes.by_ref().take(marker.logs.len()).collect();
            of_logs.iter().all(has_ended)
        };
        let stored: Vec<bool> = markers.iter().map(is_stored).collect();
        // A former owner of this cell does not know all logs, and cannot store this.
        if markers.iter().any(|marker| marker.logs.is_empty()) && await_stored(&*self.journal).await.is_err()
        {
            return vec![false; markers.len()];
        }
        stored
    }

    /// Aborts open transactions whose coordinator does not know them. `ask` returns which of some partitions
    /// are part of an open transaction of a producer; `None` if the coordinator does not answer. To be called
    /// now and then, at least a lease apart.
    pub async fn abort_abandoned(&self, ask: impl AsyncFnOnce(&[(ProducerId, Place)]) -> Option<Vec<bool>>) {
        self.forget_gone();
        let open = self.open_here();
        if open.is_empty() {
            self.abandoned.lock().clear();
            return;
        }
        let asked: Vec<_> = open.iter().map(|(open, place)| (open.producer, *place)).collect();
        let Some(known) = ask(&asked).await else { return };
        let unknown = open.iter().zip(known).filter(|(_, is_known)| !is_known);
        let unknown: Vec<_> = unknown.map(|((open, _), _)| *open).collect();
        let outcomes = self.abort_if_seen(&unknown).await;
        for outcome in outcomes {
            if let Err(NotStored::Refused(why)) = only_outcome(Some(&outcome)) {
                tracing::warn!(?why, "an abandoned transaction is not aborted yet");
            }
        }
    }

    /// Aborts transactions that were unknown in enough looks. Staged with a look whether they are open still:
    /// another one may have begun.
    fn abort_if_seen(&self, unknown: &[OpenTransaction]) -> Ticket {
        let place = |open: &OpenTransaction| (open.log, open.producer, open.first.0);
        let mut known = self.known.lock();
        let still: HashSet<_> = self.journal.open_transactions().iter().map(place).collect();
        let mut abandoned = self.abandoned.lock();
        let before = std::mem::take(&mut *abandoned);
        let mut appends = Vec::new();
        for open in unknown.iter().filter(|open| still.contains(&place(open))) {
            let looks = before.get(&place(open)).copied().unwrap_or_default() + 1;
            if looks < ABANDONED_LOOKS {
                abandoned.insert(place(open), looks);
                continue;
            }
            let (log, producer) = (open.log, open.producer.0);
            tracing::warn!(%log, producer, "an open transaction that its coordinator does not know is aborted");
            known.end(open.producer);
            let marker = end_marker(open.producer, open.epoch, TransactionEnd::Abort, wall_ms());
            appends.push(Append::batch(log, marker));
        }
        self.journal.append(appends)
    }

    /// Returns the open transactions, by partition.
    fn open_here(&self) -> Vec<(OpenTransaction, Place)> {
        let open = self.journal.open_transactions();
        let logs: BTreeSet<LogId> = open.iter().map(|open| open.log).collect();
        let mut places: HashMap<LogId, Place> = HashMap::new();
        for (topic, numbers) in self.catalog.topics().partitions_of(&logs) {
            let place = |number: u32| Some((topic.log(number)?, (topic.id, number)));
            places.extend(numbers.into_iter().filter_map(place));
        }
        let place = |open: OpenTransaction| Some((open, *places.get(&open.log)?));
        open.into_iter().filter_map(place).collect()
    }

    /// Forgets logs that are gone: no end of their transactions comes.
    fn forget_gone(&self) {
        let mut known = self.known.lock();
        known.producers.retain(|_, producer| {
            producer.logs.retain(|log| self.journal.bounds(*log).is_some());
            producer.asked > 0 || !producer.logs.is_empty()
        });
    }
}

/// Returns true if nothing is missing for the end of a transaction in a log.
fn has_ended(outcome: &Outcome) -> bool {
    match outcome {
        // Without an open transaction, a batch outside of any may have had a later epoch.
        Outcome::Committed(_) | Outcome::Refused(Refusal::NoSuchLog(_) | Refusal::StaleProducer { .. }) => {
            true
        }
        Outcome::Refused(Refusal::Fenced { log }) => {
            tracing::error!(%log, "a transaction ends without a part that is damaged");
            true
        }
        Outcome::Refused(_) | Outcome::Unknown => false,
    }
}

impl Known {
    fn has(&self, id: &str, given: Instance, logs: &[LogId]) -> bool {
        let producer = self.producers.get(&given.producer);
        producer.is_some_and(|producer| {
            (&*producer.id, producer.epoch) == (id, given.epoch)
                && logs.iter().all(|log| producer.logs.contains(log))
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
