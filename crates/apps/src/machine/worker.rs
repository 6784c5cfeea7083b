//! Workers: their sessions, signs of life, and the events that wait for them.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Effect, Holder, Machine, Reason, WorkerError};
use crate::task::TaskId;

pub(super) type WorkerName = Arc<str>;

/// Events that wait for a worker, at most, beside four for each of the app's tasks. A worker that does not
/// fetch more than these is treated as gone.
const EVENTS_MAX: usize = 1000;

/// Wishes of a worker that joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoinSpec {
    pub weight: u32,
    pub tasks_max: Option<u32>,
    /// False for a worker that reads by itself.
    pub deliver: bool,
    /// True for a worker that reads the state of a task before a planned move brings it.
    pub eager: bool,
}

/// Answer to a worker that joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Number of the session, which later commands repeat.
    pub session: u64,
    pub target: u32,
    /// Claims that an earlier session of the worker had.
    pub resumed: Vec<(TaskId, u64)>,
}

/// Event for a worker. Numbers of a worker's events grow by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub number: u64,
    pub kind: EventKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    Claimed {
        task: TaskId,
        epoch: u64,
        reason: Reason,
        from: Option<Arc<str>>,
    },
    /// The task is about to come from another worker, which has it under this epoch: its state may be read.
    Prepare {
        task: TaskId,
        epoch: u64,
        from: Arc<str>,
    },
    /// The worker is to commit and release the task in this time.
    Revoke {
        task: TaskId,
        epoch: u64,
        deadline_ms: u64,
    },
    Lost {
        task: TaskId,
        epoch: u64,
        reason: &'static str,
    },
}

/// A worker of this moment.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) spec: JoinSpec,
    session: u64,
    seen_ms: i64,
    events: VecDeque<Event>,
    event_count: u64,
}

/// A drain: the time of the next hand-over, and the time between two.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drain {
    pub(super) next_ms: i64,
    pub(super) step_ms: i64,
    /// Steady time at which it ends if the worker is not back by then, after a start.
    pub(super) absent_until: i64,
}

/// A worker as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerView {
    pub name: Arc<str>,
    pub weight: u32,
    pub tasks_max: Option<u32>,
    pub tasks: u32,
    pub target: u32,
    pub load: u64,
    /// Steady time of the last sign of life.
    pub seen_ms: i64,
    pub draining: bool,
    pub events_waiting: usize,
}

impl Drain {
    pub(super) fn deadline_ms(&self, is_there: bool) -> i64 {
        if is_there { self.next_ms } else { self.absent_until }
    }
}

impl Machine {
    /// Adds a worker. Of two sessions with one name the later one stays, and keeps the claims.
    pub fn join(
        &mut self,
        name: &str,
        spec: JoinSpec,
        now_ms: i64,
        effects: &mut Vec<Effect>,
    ) -> Result<Joined, WorkerError> {
        let max = self.rules.workers_max;
        if !self.workers.contains_key(name) && self.workers.len() >= max {
            return Err(WorkerError::TooManyWorkers { max });
        }
        self.sessions = self.sessions.wrapping_add(1);
        let name: WorkerName = name.into();
        let before = self.workers.insert(
            Arc::clone(&name),
            Worker {
                spec,
                session: self.sessions,
                seen_ms: now_ms,
                events: VecDeque::new(),
                event_count: 0,
            },
        );
        if before.is_some() {
            // A poll of the earlier session ends.
            effects.push(Effect::Wake(Arc::clone(&name)));
        } else {
            self.spread = true;
        }
        let mut resumed = Vec::new();
        let mut revoked = Vec::new();
        for (id, task) in &self.tasks {
            match &task.holder {
                Holder::Held(holder) if *holder == name => resumed.push((*id, task.epoch)),
                Holder::Revoking {
                    worker, deadline_ms, ..
                } if *worker == name => {
                    resumed.push((*id, task.epoch));
                    revoked.push((*id, task.epoch, *deadline_ms));
                }
                Holder::Free | Holder::Claiming(_) | Holder::Held(_) | Holder::Revoking { .. } => {}
            }
        }
        for (task, epoch, deadline_ms) in revoked {
            let deadline_ms = u64::try_from(deadline_ms.saturating_sub(now_ms)).unwrap_or(0);
            let kind = EventKind::Revoke {
                task,
                epoch,
                deadline_ms,
            };
            self.tell(&name, kind, effects);
        }
        self.balance(now_ms, effects);
        Ok(Joined {
            session: self.sessions,
            target: self.target(&name),
            resumed,
        })
    }

    /// Takes a sign of life of a session. Every command of a worker is one.
    pub fn beat(&mut self, name: &str, session: u64, now_ms: i64) -> Result<(), WorkerError> {
        let worker = self.workers.get_mut(name).ok_or(WorkerError::NoSuchWorker)?;
        if worker.session != session {
            return Err(WorkerError::TakenOver);
        }
        worker.seen_ms = worker.seen_ms.max(now_ms);
        Ok(())
    }

    /// Notes the reported load of a worker's tasks, in thousandths of a core.
    pub fn report_load(&mut self, name: &str, loads: &[(TaskId, u64)]) {
        for (task, load) in loads {
            let known = self.tasks.get_mut(task);
            if let Some(task) = known.filter(|task| task.holder.worker().is_some_and(|it| **it == *name)) {
                task.load = *load;
            }
        }
    }

    /// Removes a worker that leaves, and frees its tasks.
    pub fn leave(&mut self, name: &str, now_ms: i64, effects: &mut Vec<Effect>) {
        self.remove_worker(name, Reason::Handover, now_ms, effects);
        self.balance(now_ms, effects);
    }

    /// Returns the events of a worker behind `after`, and forgets those up to it.
    pub fn events(&mut self, name: &str, after: u64, max: usize) -> Vec<Event> {
        let Some(worker) = self.workers.get_mut(name) else {
            return Vec::new();
        };
        while worker.events.front().is_some_and(|event| event.number <= after) {
            worker.events.pop_front();
        }
        worker.events.iter().take(max).cloned().collect()
    }

    pub(super) fn tell(&mut self, name: &WorkerName, kind: EventKind, effects: &mut Vec<Effect>) {
        let max = EVENTS_MAX + 4 * self.tasks.len();
        let Some(worker) = self.workers.get_mut(name) else {
            return;
        };
        if worker.events.len() >= max {
            worker.seen_ms = i64::MIN;
            return;
        }
        worker.event_count += 1;
        let number = worker.event_count;
        worker.events.push_back(Event { number, kind });
        effects.push(Effect::Wake(Arc::clone(name)));
    }

    /// Steady time at which a worker counts as gone.
    pub(super) fn silent_at(&self, worker: &Worker) -> i64 {
        worker
            .seen_ms
            .saturating_add_unsigned(self.rules.worker_timeout_ms)
    }

    /// Removes a worker and frees its tasks for others.
    pub(super) fn remove_worker(
        &mut self,
        name: &str,
        reason: Reason,
        now_ms: i64,
        effects: &mut Vec<Effect>,
    ) {
        let Some((name, worker)) = self.workers.remove_entry(name) else {
            return;
        };
        if self.drains.remove(&name).is_some() {
            effects.push(Effect::Marks);
        }
        let is_silent = reason == Reason::Takeover && worker.seen_ms > i64::MIN;
        let free_ms = if is_silent { worker.seen_ms } else { now_ms };
        for task in self.tasks.values_mut() {
            if task.prepare.take_if(|prepare| prepare.to == name).is_some()
                && let Some(drain) = task.holder.worker().and_then(|it| self.drains.get_mut(it))
            {
                // It goes to another one.
                drain.next_ms = now_ms;
            }
            if task.holder.worker() == Some(&name) {
                task.prepare = None;
                if is_silent && !matches!(task.holder, Holder::Claiming(_)) {
                    task.died = Some(Arc::clone(&name));
                }
                task.holder = Holder::Free;
                task.last = (reason, Some(Arc::clone(&name)));
                task.free_ms = free_ms;
            }
        }
    }

    /// Returns the workers in the order of their names.
    pub fn workers(&self) -> Vec<WorkerView> {
        let targets = self.targets();
        let of = |(name, worker): (&WorkerName, &Worker)| {
            let own = self
                .tasks
                .values()
                .filter(|task| task.holder.worker() == Some(name));
            let (count, load) = own.fold((0, 0), |(count, load), task| (count + 1, load + task.load));
            WorkerView {
                name: Arc::clone(name),
                weight: worker.spec.weight,
                tasks_max: worker.spec.tasks_max,
                tasks: count,
                target: targets.get(name).copied().unwrap_or(0),
                load,
                seen_ms: worker.seen_ms,
                draining: self.drains.contains_key(name),
                events_waiting: worker.events.len(),
            }
        };
        self.workers.iter().map(of).collect()
    }

    fn target(&self, name: &str) -> u32 {
        self.targets().get(name).copied().unwrap_or(0)
    }
}
