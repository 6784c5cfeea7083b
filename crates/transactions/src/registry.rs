//! All transactional ids: look-up, locks, steps.

mod requests;

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use prometheus_client::registry::Registry;
use stafett_groups::Groups;
use stafett_journal::{Append, Frame, Journal, Outcome, StateItem, StateUnreadable, StateWait, Ticket};
use stafett_model::{Lock, LogId, ProducerId, TransactionEnd};
use stafett_store::{Clock, spaces};
use stafett_topics::TopicCatalog;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cells::OwedByCell;
use crate::end::Next;
use crate::error::TransactionError;
use crate::metrics::TransactionMetrics;
use crate::producer::{Instance, Place, Producer, Status};
use crate::stored::{self, Delta};

/// Most bytes of a transactional id.
const ID_BYTES_MAX: usize = 1024;
/// Most commits of a transaction: its end is one append.
const COMMITS_MAX: usize = 10_000;
/// Most partitions in other cells that a transaction appends to: its end is one append.
const PLACES_MAX: usize = 10_000;

/// Settings of transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionSettings {
    /// Longest time that a producer may give its transactions.
    pub timeout_max: Duration,
    /// Time without use after which a transactional id is forgotten.
    pub id_kept: Duration,
    /// Most transactional ids.
    pub ids_max: usize,
    /// Durability wait of appends without batches.
    pub wait: StateWait,
}

impl Default for TransactionSettings {
    fn default() -> Self {
        Self {
            timeout_max: Duration::from_mins(15),
            id_kept: Duration::from_hours(7 * 24),
            ids_max: 1_000_000,
            wait: StateWait::Synced,
        }
    }
}

/// All transactional ids of a broker.
#[derive(Debug)]
pub struct Transactions {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) catalog: Arc<TopicCatalog>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) settings: TransactionSettings,
    pub(crate) metrics: TransactionMetrics,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    pub(crate) this: Weak<Self>,
    ids: Lock<HashMap<Arc<str>, Entry>>,
    /// Those with a transaction, until its end is stored: a look at all of them does not depend on the number
    /// of ids. Taken under the lock of a producer.
    open: Lock<HashMap<Arc<str>, Entry>>,
    /// Producers whose control batches cells do not have yet, by cell.
    pub(crate) owed: watch::Sender<OwedByCell>,
    /// Number of transactions with commits that wait.
    pending: AtomicUsize,
}

/// A transactional producer under its lock. Its appends are staged under the lock, so that none of a
/// transaction is staged behind its end.
pub(crate) type Entry = Arc<Lock<Producer>>;

/// State of a transactional id, for those who look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    pub id: Arc<str>,
    pub instance: Instance,
    pub status: Status,
    pub timeout_ms: u32,
    /// Begin of the open transaction, in ms since 1970.
    pub began_at: Option<i64>,
    /// Logs of this cell.
    pub logs: BTreeSet<LogId>,
    /// Partitions in other cells.
    pub elsewhere: BTreeSet<Place>,
    /// Groups whose commits wait for the end, each once.
    pub groups: BTreeSet<Box<str>>,
}

impl Transactions {
    /// Loads the transactional ids, and begins to end transactions that take too long. Must be called within
    /// a Tokio runtime, before the first append.
    pub fn open(
        journal: &Arc<dyn Journal>,
        catalog: &Arc<TopicCatalog>,
        groups: &Arc<Groups>,
        clock: &Arc<Clock>,
        settings: TransactionSettings,
    ) -> Result<Arc<Self>, StateUnreadable> {
        let ids = load(&**journal, groups, clock.elapsed_ms())?;
        for entry in ids.values() {
            catalog.pass_producer_id(entry.lock().instance.producer);
        }
        let pending = ids
            .values()
            .filter(|entry| entry.lock().has_waiting_commits())
            .count();
        let transactions = Arc::new_cyclic(|this| Self {
            journal: Arc::clone(journal),
            catalog: Arc::clone(catalog),
            groups: Arc::clone(groups),
            clock: Arc::clone(clock),
            settings,
            metrics: TransactionMetrics::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            this: Weak::clone(this),
            ids: Lock::new(ids),
            open: Lock::default(),
            owed: watch::Sender::default(),
            pending: AtomicUsize::new(pending),
        });
        transactions.owe_again();
        transactions.count();
        let keeper = crate::timeouts::run(Arc::downgrade(&transactions), transactions.stop.clone());
        transactions.tasks.spawn(keeper);
        Ok(transactions)
    }

    /// Waits until every end that is being stored is stored. Nothing may begin afterwards.
    pub async fn finish(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    pub fn register_metrics(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    /// Gives a transactional id to a new instance of its producer: earlier ones are fenced, and an open
    /// transaction is aborted. `given` names the instance that goes on with another epoch.
    pub async fn begin_producer(
        &self,
        id: &str,
        timeout_ms: i32,
        given: Option<Instance>,
    ) -> Result<Instance, TransactionError> {
        check_id(id)?;
        let max_ms = u32::try_from(self.settings.timeout_max.as_millis()).unwrap_or(u32::MAX);
        let timeout_ms = u32::try_from(timeout_ms)
            .ok()
            .filter(|ms| (1..=max_ms).contains(ms));
        let timeout_ms = timeout_ms.ok_or(TransactionError::Timeout { max_ms })?;
        let entry = match self.find(id) {
            Some(entry) => entry,
            None => self.insert(id).await?,
        };
        // A new id is given to any producer.
        let given = given.filter(|_| entry.lock().instance.epoch >= 0);
        let fresh = self.fresh(&entry).await?;
        let stored = {
            let mut producer = entry.lock();
            producer.check_takeover(given)?;
            if producer.has_begun_after(given) {
                return Ok(producer.instance);
            }
            let next = Next {
                end: TransactionEnd::Abort,
                instance: producer.instance.next().or(fresh).ok_or(TransactionError::Busy)?,
                before: given,
                status: Status::Empty,
                timeout_ms,
                overdue: None,
            };
            self.store_end(id, &entry, &mut producer, next)
        };
        Ok(stored.await?.answerable().await)
    }

    /// Returns the partitions of a group whose commits wait for the end of a transaction.
    pub fn pending_commits(&self, group: &str) -> BTreeSet<Place> {
        if !self.has_pending() {
            return BTreeSet::new();
        }
        let entries = self.open_entries();
        let places = |(_, entry): &(Arc<str>, Entry)| entry.lock().places_of(group);
        entries.iter().flat_map(places).collect()
    }

    /// True if commits wait for the end of any transaction.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0
    }

    /// Describes a transactional id; `None` if it is unknown.
    pub fn describe(&self, id: &str) -> Option<Description> {
        let entry = self.find(id)?;
        let producer = entry.lock();
        Some(self.description(id.into(), &producer))
    }

    /// Describes all transactional ids, by id.
    pub fn list(&self) -> Vec<Description> {
        let mut all: Vec<_> = self
            .entries()
            .into_iter()
            .map(|(id, entry)| self.description(id, &entry.lock()))
            .collect();
        all.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        all
    }

    fn description(&self, id: Arc<str>, producer: &Producer) -> Description {
        let is_open = matches!(producer.status, Status::Ongoing | Status::Ending(_));
        let open_ms = self.clock.elapsed_ms().saturating_sub(producer.began);
        Description {
            id,
            instance: producer.instance,
            status: producer.status,
            timeout_ms: producer.timeout_ms,
            began_at: is_open.then(|| self.clock.wall_ms().saturating_sub_unsigned(open_ms)),
            logs: producer.logs.clone(),
            elsewhere: match &producer.owed {
                Some(owed) => owed.places.clone(),
                None => producer.elsewhere.keys().copied().collect(),
            },
            groups: producer
                .pending
                .iter()
                .map(|pending| pending.group.clone())
                .collect(),
        }
    }

    fn begin(
        &self,
        (id, entry): &(Arc<str>, Entry),
        producer: &mut Producer,
        given: Instance,
    ) -> Result<(), TransactionError> {
        let was = producer.status;
        producer.begin(given, self.clock.elapsed_ms())?;
        if was != producer.status {
            self.open.lock().insert(Arc::clone(id), Arc::clone(entry));
            self.metrics.open.inc();
        }
        Ok(())
    }

    /// A transaction has ended, and that is stored.
    pub(crate) fn on_ended(&self, id: &str, end: TransactionEnd) {
        self.open.lock().remove(id);
        self.metrics.open.dec();
        self.metrics.on_end(end);
    }

    /// Adds a transactional id whose producer has no epoch yet.
    async fn insert(&self, id: &str) -> Result<Entry, TransactionError> {
        let max = self.settings.ids_max;
        if self.ids.lock().len() >= max {
            return Err(TransactionError::TooManyIds { max });
        }
        let instance = Instance {
            producer: self.catalog.new_producer_id().await?,
            epoch: -1,
        };
        let mut ids = self.ids.lock();
        // Another request may have added it meanwhile.
        let entry = ids
            .entry(id.into())
            .or_insert_with(|| Arc::new(Lock::new(Producer::new(instance, 0))));
        let entry = Arc::clone(entry);
        self.metrics.ids.set(i64::try_from(ids.len()).unwrap_or(i64::MAX));
        Ok(entry)
    }

    /// Returns the first instance of another producer id if the epochs of the present one are used up.
    pub(crate) async fn fresh(&self, entry: &Entry) -> Result<Option<Instance>, TransactionError> {
        if entry.lock().instance.next().is_some() {
            return Ok(None);
        }
        let producer = self.catalog.new_producer_id().await?;
        Ok(Some(Instance { producer, epoch: 0 }))
    }

    pub(crate) fn find(&self, id: &str) -> Option<Entry> {
        self.ids.lock().get(id).map(Arc::clone)
    }

    fn known(&self, id: &str) -> Result<(Arc<str>, Entry), TransactionError> {
        check_id(id)?;
        let ids = self.ids.lock();
        let known = ids.get_key_value(id).ok_or(TransactionError::UnknownProducer)?;
        Ok((Arc::clone(known.0), Arc::clone(known.1)))
    }

    pub(crate) fn entries(&self) -> Vec<(Arc<str>, Entry)> {
        copied(&self.ids.lock())
    }

    /// Returns the producers with a transaction whose end is not stored.
    pub(crate) fn open_entries(&self) -> Vec<(Arc<str>, Entry)> {
        copied(&self.open.lock())
    }

    /// Removes a transactional id whose deletion is stored.
    pub(crate) fn forget(&self, id: &str) {
        let mut ids = self.ids.lock();
        ids.remove(id);
        self.metrics.ids.set(i64::try_from(ids.len()).unwrap_or(i64::MAX));
    }

    /// Commits of a transaction wait no more.
    pub(crate) fn commits_ended(&self) {
        self.pending.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn append_state(&self, frames: impl IntoIterator<Item = Frame>) -> Ticket {
        self.journal
            .append(vec![Append::state(frames, self.settings.wait)])
    }

    fn count(&self) {
        let entries = self.entries();
        self.metrics
            .ids
            .set(i64::try_from(entries.len()).unwrap_or(i64::MAX));
        let open = entries
            .into_iter()
            .filter(|(_, entry)| matches!(entry.lock().status, Status::Ongoing | Status::Ending(_)));
        let open: HashMap<_, _> = open.collect();
        self.metrics
            .open
            .set(i64::try_from(open.len()).unwrap_or(i64::MAX));
        *self.open.lock() = open;
    }
}

fn copied(entries: &HashMap<Arc<str>, Entry>) -> Vec<(Arc<str>, Entry)> {
    let copy = |(id, entry): (&Arc<str>, &Entry)| (Arc::clone(id), Arc::clone(entry));
    entries.iter().map(copy).collect()
}

fn check_id(id: &str) -> Result<(), TransactionError> {
    let max = ID_BYTES_MAX;
    if id.is_empty() || id.len() > max {
        return Err(TransactionError::Id { max });
    }
    Ok(())
}

/// Returns the outcome of a single append if it is decided; the ticket is then used up.
pub(crate) fn outcome_now(ticket: &mut Ticket) -> Option<Outcome> {
    if ticket.glance().committed() != Some(false) {
        return None;
    }
    match Pin::new(ticket).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcomes) => Some(outcomes.into_iter().next().unwrap_or(Outcome::Unknown)),
        Poll::Pending => None,
    }
}

fn load(
    journal: &dyn Journal,
    groups: &Groups,
    now: u64,
) -> Result<HashMap<Arc<str>, Entry>, StateUnreadable> {
    let mut producers: HashMap<Arc<str>, Producer> = HashMap::new();
    spaces::TRANSACTIONS.load(journal, |item| {
        match item {
            StateItem::Value { key, value } => {
                let id = Arc::from(std::str::from_utf8(key).ok()?);
                producers.insert(id, stored::decode(value)?);
            }
            StateItem::Delta { key, delta } => {
                let delta = stored::decode_delta(delta)?;
                // The row of a deleted id may leave one behind after damage.
                if let Some(producer) = producers.get_mut(std::str::from_utf8(key).ok()?) {
                    producer.status = Status::Ongoing;
                    match delta {
                        Delta::Pending(pending) => {
                            if pending.cell == 0 {
                                groups.order_after(pending.order);
                            }
                            producer.add_commits(pending);
                        }
                        Delta::Withdrawal(group, places) => {
                            producer.withdraw(&group, |place| places.contains(place));
                        }
                        Delta::Elsewhere(places) => {
                            producer
                                .elsewhere
                                .extend(places.into_iter().map(|place| (place, true)));
                        }
                    }
                }
            }
        }
        Some(())
    })?;
    let mut logs: HashMap<ProducerId, BTreeSet<LogId>> = HashMap::new();
    for open in journal.open_transactions() {
        logs.entry(open.producer).or_default().insert(open.log);
    }
    let entries = producers.into_iter().map(|(id, mut producer)| {
        producer.is_recovered = true;
        producer.logs = logs.remove(&producer.instance.producer).unwrap_or_default();
        if !producer.logs.is_empty() {
            producer.status = Status::Ongoing;
        }
        if producer.status == Status::Ongoing {
            producer.before = None;
            producer.began = now;
        }
        (id, Arc::new(Lock::new(producer)))
    });
    Ok(entries.collect())
}
