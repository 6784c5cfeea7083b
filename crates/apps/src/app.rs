//! One app: its machine, its tasks, and the commands of workers.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use stafett_journal::{Frame, Journal, StateWait};
use stafett_model::{Durability, Lock, SharedLock};
use stafett_store::{Changes, Changing, Clock, spaces, store_synced};
use stafett_topics::TopicCatalog;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::deadlines::Deadlines;
use crate::definition::StoredApp;
use crate::delivery::Delivery;
use crate::entry::Position;
use crate::error::AppError;
use crate::machine::{Effect, Event, JoinSpec, Joined, Machine, WorkerError};
use crate::metrics::Counts;
use crate::queues::QueueResults;
use crate::slot::Slot;
use crate::state::StateTotals;
use crate::task::TaskId;

/// Time after which idle tasks are looked at again of which one was still storing something.
const IDLE_AGAIN_MS: i64 = 1000;

/// Parts of the broker that apps use.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) catalog: Arc<TopicCatalog>,
    pub(crate) queues: OnceLock<Arc<dyn QueueResults>>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) changes: Changes,
    pub(crate) deadlines: Arc<Deadlines>,
}

/// An app.
#[derive(Debug)]
pub struct App {
    pub name: Box<str>,
    pub(crate) this: Weak<Self>,
    pub(crate) parts: Arc<Parts>,
    stored: SharedLock<Arc<StoredApp>>,
    /// Changes of the stored definition follow each other.
    row: Semaphore,
    /// Topics that were made again are taken by one at a time.
    pub(crate) taking_topics: Semaphore,
    machine: Lock<Machine>,
    pub(crate) slots: SharedLock<BTreeMap<TaskId, Arc<Slot>>>,
    /// Polls that wait, by worker.
    wakes: Lock<HashMap<Arc<str>, Arc<Notify>>>,
    /// Earliest deadline in the queue.
    scheduled_ms: AtomicI64,
    /// Steady time at which expired entries are to be removed.
    pub(crate) sweep_ms: AtomicI64,
    pub(crate) is_deleted: AtomicBool,
    pub(crate) counts: Counts,
}

/// Caller of a worker's command.
#[derive(Debug, Clone, Copy)]
pub struct Session<'a> {
    pub worker: &'a str,
    pub number: u64,
    /// True if the call is not the worker's own, and so no sign of life.
    is_quiet: bool,
}

impl<'a> Session<'a> {
    pub fn new(worker: &'a str, number: u64) -> Self {
        Self {
            worker,
            number,
            is_quiet: false,
        }
    }

    /// Returns the session for calls that are made in the name of the worker.
    #[must_use]
    pub fn quietly(self) -> Self {
        Self {
            is_quiet: true,
            ..self
        }
    }
}

/// A claim as its worker names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    pub task: TaskId,
    pub epoch: u64,
}

/// Position and state of a claimed task, for its worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimView {
    pub position: Position,
    /// Finished keys with the offset behind their last record, 0 for none, per input.
    pub done: Vec<(bytes::Bytes, Box<[u64]>)>,
    pub totals: StateTotals,
}

impl App {
    pub(crate) fn new(name: Box<str>, stored: StoredApp, machine: Machine, parts: &Arc<Parts>) -> Arc<Self> {
        let slots = stored.tasks.iter().map(|(id, task)| (*id, Slot::new(*id, task)));
        let slots = slots.collect();
        Arc::new_cyclic(|this| Self {
            name,
            this: this.clone(),
            parts: Arc::clone(parts),
            stored: SharedLock::new(Arc::new(stored)),
            row: Semaphore::new(1),
            taking_topics: Semaphore::new(1),
            machine: Lock::new(machine),
            slots: SharedLock::new(slots),
            wakes: Lock::default(),
            scheduled_ms: AtomicI64::new(i64::MAX),
            sweep_ms: AtomicI64::new(i64::MAX),
            is_deleted: AtomicBool::new(false),
            counts: Counts::default(),
        })
    }

    /// Returns the definition and the logs of the tasks.
    pub fn stored(&self) -> Arc<StoredApp> {
        Arc::clone(&self.stored.read())
    }

    pub(crate) async fn row(&self) -> SemaphorePermit<'_> {
        let row = self.row.acquire().await;
        row.expect("the turn is never closed")
    }

    /// Stores a change of the app's definition, together with other frames.
    pub(crate) async fn update(
        &self,
        mut frames: Vec<Frame>,
        change: impl FnOnce(&mut StoredApp),
    ) -> Result<(), AppError> {
        let _row = self.row().await;
        if self.is_deleted.load(Ordering::Acquire) {
            return Err(AppError::NoSuchApp);
        }
        let mut stored = (*self.stored()).clone();
        change(&mut stored);
        frames.push(spaces::APPS.put(self.name.as_bytes().to_vec(), stored.encode()));
        store_synced(&*self.parts.journal, frames).await?;
        *self.stored.write() = Arc::new(stored);
        Ok(())
    }

    /// Makes a change of pins or drains, and stores them as they are then.
    pub fn mark<E: Into<AppError> + Send + 'static>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Machine, i64, &mut Vec<Effect>) -> Result<(), E>,
    ) -> Changing<(), AppError> {
        let changed = self.step(change).map_err(Into::into);
        let app = Arc::clone(self);
        self.parts.changes.begin(async move {
            changed?;
            app.store_marks().await
        })
    }

    async fn store_marks(&self) -> Result<(), AppError> {
        let marks = |stored: &mut StoredApp| stored.marks = self.with_machine(Machine::marks);
        self.update(Vec::new(), marks).await
    }

    /// Looks at the machine.
    pub fn with_machine<T>(&self, look: impl FnOnce(&Machine) -> T) -> T {
        look(&self.machine.lock())
    }

    /// Changes the machine, and does the effects.
    pub fn step<T>(&self, change: impl FnOnce(&mut Machine, i64, &mut Vec<Effect>) -> T) -> T {
        let now_ms = self.parts.clock.now_ms();
        let mut effects = Vec::new();
        let mut machine = self.machine.lock();
        let result = change(&mut machine, now_ms, &mut effects);
        let deadline = machine.deadline_ms();
        drop(machine);
        if let Some(at_ms) = deadline {
            self.schedule(at_ms);
        }
        for effect in effects {
            match effect {
                Effect::Claim { task, epoch, died } => self.begin_claim(Claim { task, epoch }, died),
                Effect::Marks => self.end_marks(),
                Effect::Claimed { reason, gap_ms } => self.counts.on_claimed(reason, gap_ms),
                Effect::Overdue => self.counts.overdue.inc(),
                Effect::Wake(worker) => {
                    if let Some(wake) = self.wakes.lock().get(&worker) {
                        wake.notify_one();
                    }
                }
            }
        }
        result
    }

    /// Takes care that the deadline is looked at then, if not earlier.
    pub(crate) fn schedule(&self, at_ms: i64) {
        if at_ms < self.scheduled_ms.fetch_min(at_ms, Ordering::AcqRel) {
            self.parts.deadlines.push(at_ms, self.this.clone());
        }
    }

    /// Does due work. A deadline that an earlier one has replaced is none.
    pub(crate) fn on_time(&self, at_ms: i64) {
        let scheduled = &self.scheduled_ms;
        if scheduled
            .compare_exchange(at_ms, i64::MAX, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            return;
        }
        self.step(Machine::on_time);
        self.sweep_due();
        let workers = self.with_machine(Machine::workers);
        let is_there = |name: &Arc<str>| workers.iter().any(|worker| worker.name == *name);
        self.wakes
            .lock()
            .retain(|name, wake| is_there(name) || Arc::strong_count(wake) > 1);
        // A task without a worker takes no memory.
        let idle: Vec<TaskId> = self.with_machine(|machine| {
            let free = machine.tasks().filter(|task| task.worker.is_none());
            free.filter(|_| workers.is_empty())
                .map(|task| task.task)
                .collect()
        });
        let slots = idle.iter().filter_map(|task| self.slot(*task));
        if slots.filter(|slot| !slot.drop_state()).count() > 0 {
            self.schedule(self.parts.clock.now_ms() + IDLE_AGAIN_MS);
        }
    }

    /// Ends all polls and fetches of an app that was deleted.
    pub(crate) fn on_deleted(&self) {
        self.is_deleted.store(true, Ordering::Release);
        for wake in self.wakes.lock().values() {
            wake.notify_waiters();
            wake.notify_one();
        }
    }

    /// Stores that drains ended.
    fn end_marks(&self) {
        let Some(app) = self.this.upgrade() else { return };
        let storing = self.parts.changes.begin(async move {
            let stored = app.store_marks().await;
            if let Err(why) = &stored {
                tracing::warn!(app = &*app.name, "the end of a drain is not stored: {why}");
            }
            stored
        });
        drop(storing);
    }

    fn begin_claim(&self, claim: Claim, died: Option<Arc<str>>) {
        let Some(app) = self.this.upgrade() else { return };
        let Claim { task, epoch } = claim;
        let claiming = self.parts.changes.begin(async move {
            let claimed = app.claim_here(claim, died).await;
            if let Err(why) = &claimed {
                tracing::warn!(app = &*app.name, %task, "a claim could not be served: {why}");
            }
            app.step(|machine, now, effects| {
                machine.on_claimed(task, epoch, claimed.is_ok(), now, effects);
                if let Err(why) = &claimed {
                    machine.skip_epochs(task, why.later_epoch());
                }
            });
            claimed
        });
        drop(claiming);
    }

    async fn claim_here(&self, claim: Claim, died: Option<Arc<str>>) -> Result<(), AppError> {
        let slot = self.slot(claim.task).ok_or(AppError::NoSuchTask(claim.task))?;
        let _turn = slot.turn().await;
        slot.store_epoch(&self.parts.catalog, claim.epoch, self.wait())
            .await?;
        slot.load(&self.parts, &self.inputs()).await?;
        self.note_expiry(&slot);
        if let Some(worker) = died {
            self.note_death(&slot, claim, &worker).await?;
        }
        let starts = slot.starts(&self.parts.catalog, &self.inputs());
        let rules = self.stored().definition.time;
        let delivery = slot.with_state(|state| Ok(Delivery::begin(claim.epoch, state, &starts, rules)))?;
        *slot.delivery.lock() = delivery;
        Ok(())
    }

    /// Durability of commits.
    pub(crate) fn durability(&self) -> Durability {
        let own = self.stored.read().definition.durability;
        own.unwrap_or_else(|| self.parts.catalog.defaults().logs.durability)
    }

    pub(crate) fn wait(&self) -> StateWait {
        self.durability().into()
    }

    pub(crate) fn slot(&self, task: TaskId) -> Option<Arc<Slot>> {
        self.slots.read().get(&task).cloned()
    }

    /// False for a task that was split, merged or reset since it was found.
    pub(crate) fn is_current(&self, slot: &Arc<Slot>) -> bool {
        let known = self.slot(slot.task);
        known.is_some_and(|known| Arc::ptr_eq(&known, slot))
    }

    /// Adds a worker, or a later session of it. [`Self::settled`] has to follow before positions are read.
    pub fn join(&self, worker: &str, spec: JoinSpec) -> Result<Joined, AppError> {
        let joined = self.step(|machine, now, effects| {
            if !spec.deliver && machine.is_sliced() {
                let why = "tasks of the app are slices: a worker that reads by itself has whole partitions";
                let (field, why) = ("deliver", why.to_owned());
                return Err(AppError::Bad { field, why });
            }
            Ok(machine.join(worker, spec, now, effects)?)
        })?;
        for (task, _) in &joined.resumed {
            if let Some(slot) = self.slot(*task) {
                // The later session may lack the deliveries of the earlier one.
                let mut delivery = slot.delivery.lock();
                delivery.told.clear();
            }
        }
        Ok(joined)
    }

    /// Waits until commits of the earlier session that were under way are stored: claims that are resumed go
    /// on behind them.
    pub async fn settled(&self, joined: &Joined) {
        for (task, _) in &joined.resumed {
            if let Some(slot) = self.slot(*task) {
                drop(slot.turn().await);
            }
        }
    }

    /// Takes a sign of life. Every command of a worker begins with it.
    pub fn beat(&self, session: Session<'_>) -> Result<(), AppError> {
        if self.is_deleted.load(Ordering::Acquire) {
            return Err(AppError::NoSuchApp);
        }
        // The last sign of life is never moved back.
        let now_ms = if session.is_quiet {
            i64::MIN
        } else {
            self.parts.clock.now_ms()
        };
        Ok(self.machine.lock().beat(session.worker, session.number, now_ms)?)
    }

    /// Notes the load of a worker's tasks, in thousandths of a core.
    pub fn report_load(&self, session: Session<'_>, loads: &[(TaskId, u64)]) -> Result<(), AppError> {
        self.beat(session)?;
        self.step(|machine, _, _| machine.report_load(session.worker, loads));
        Ok(())
    }

    /// Returns the events behind `after`, those up to it are forgotten. Waits for one until the wait ends.
    pub async fn poll(
        &self,
        session: Session<'_>,
        after: u64,
        max: usize,
        wait: impl Future<Output = ()>,
    ) -> Result<Vec<Event>, AppError> {
        let mut wait = std::pin::pin!(wait);
        self.beat(session)?;
        let wake = {
            let mut wakes = self.wakes.lock();
            let known = wakes.entry(session.worker.into()).or_default();
            Arc::clone(known)
        };
        loop {
            self.beat(session)?;
            let events = self.step(|machine, _, _| machine.events(session.worker, after, max));
            if !events.is_empty() {
                return Ok(events);
            }
            tokio::select! {
                () = wake.notified() => {}
                () = &mut wait => {
                    // The worker was there until now.
                    self.beat(session)?;
                    return Ok(self.step(|machine, _, _| machine.events(session.worker, after, max)));
                }
            }
        }
    }

    /// Checks that a worker has a claim, and returns its task.
    pub(crate) fn claimed(&self, session: Session<'_>, claim: Claim) -> Result<Arc<Slot>, AppError> {
        self.beat(session)?;
        let machine = self.machine.lock();
        machine.check_claim(session.worker, claim.task, claim.epoch)?;
        drop(machine);
        self.slot(claim.task).ok_or(AppError::NoSuchTask(claim.task))
    }

    /// Checks that a worker has a claim. It is a sign of life.
    pub fn check(&self, session: Session<'_>, claim: Claim) -> Result<(), AppError> {
        self.claimed(session, claim).map(drop)
    }

    /// Checks that a worker has a claim, or that the task is about to come to it. It is a sign of life.
    pub fn check_read(&self, session: Session<'_>, claim: Claim) -> Result<(), AppError> {
        self.beat(session)?;
        let machine = self.machine.lock();
        Ok(machine.check_read(session.worker, claim.task, claim.epoch)?)
    }

    /// Goes on with a planned move whose worker has read the state.
    pub fn prepared(&self, session: Session<'_>, task: TaskId) -> Result<(), AppError> {
        self.beat(session)?;
        let worker = session.worker;
        Ok(self.step(|machine, now, effects| machine.prepared(worker, task, now, effects))?)
    }

    /// Returns the level of commits.
    pub fn level(&self) -> Durability {
        self.durability()
    }

    /// Returns the steady time, by which the last signs of life are noted.
    pub fn steady_ms(&self) -> i64 {
        self.parts.clock.now_ms()
    }

    /// Returns the time of the clock, ms since 1970.
    pub fn wall_ms(&self) -> i64 {
        self.parts.clock.wall_ms()
    }

    /// Claims certain tasks, or up to `count` free ones. Returns the tasks.
    pub fn claim(
        &self,
        session: Session<'_>,
        tasks: Vec<TaskId>,
        count: usize,
    ) -> Result<Vec<TaskId>, AppError> {
        self.beat(session)?;
        let claimed = self.step(|machine, _, effects| {
            let mut wanted = tasks;
            if wanted.is_empty() {
                wanted = machine.free_tasks(session.worker, count);
            }
            machine.claim(session.worker, &wanted, effects)?;
            Ok::<_, WorkerError>(wanted)
        });
        Ok(claimed?)
    }

    /// Gives a task back, once its commits are stored.
    pub async fn release(&self, session: Session<'_>, claim: Claim) -> Result<(), AppError> {
        let slot = self.claimed(session, claim)?;
        let _turn = slot.turn().await;
        let released = self.step(|machine, now, effects| {
            machine.release(session.worker, claim.task, claim.epoch, now, effects)
        });
        Ok(released?)
    }

    /// Removes a worker that leaves.
    pub fn leave(&self, session: Session<'_>) -> Result<(), AppError> {
        self.beat(session)?;
        self.step(|machine, now, effects| machine.leave(session.worker, now, effects));
        self.wakes.lock().remove(session.worker);
        Ok(())
    }
}
