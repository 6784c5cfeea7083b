//! Changes from outside: pins, drains, rebalancing on request, splits and merges.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::worker::Drain;
use super::{Effect, Holder, Machine, Reason, Task};
use crate::task::TaskId;

/// Fate of a pinned task while its worker is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    Wait,
    /// Others may have it.
    Balance,
    /// The pin is refused.
    Refuse,
}

/// Pins and drains: they are stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Marks {
    pub pins: BTreeMap<TaskId, (Box<str>, Absent)>,
    /// Milliseconds between two hand-overs, by worker.
    pub drains: BTreeMap<Box<str>, i64>,
}

/// Refusal of a pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AssignError {
    #[error("the app has no task {0}")]
    NoSuchTask(TaskId),
    #[error("the worker is not there now")]
    NoSuchWorker,
}

/// Refusal of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the worker is not there now")]
pub struct DrainError;

impl Machine {
    /// Pins a task to a worker, and moves it there.
    pub fn pin(
        &mut self,
        id: TaskId,
        worker: &str,
        absent: Absent,
        now_ms: i64,
        effects: &mut Vec<Effect>,
    ) -> Result<(), AssignError> {
        let is_there = self.workers.contains_key(worker);
        let task = self.tasks.get_mut(&id).ok_or(AssignError::NoSuchTask(id))?;
        if absent == Absent::Refuse && !is_there {
            return Err(AssignError::NoSuchWorker);
        }
        task.pin = Some((worker.into(), absent));
        let is_elsewhere = matches!(&task.holder, Holder::Held(holder) if **holder != *worker);
        if is_elsewhere && is_there {
            self.hand_over(id, &worker.into(), Reason::Assigned, now_ms, effects);
        } else if is_elsewhere && absent == Absent::Wait {
            self.revoke(id, Reason::Assigned, now_ms, effects);
        }
        self.balance(now_ms, effects);
        Ok(())
    }

    /// Ends a pin. Returns false if there was none.
    pub fn unpin(&mut self, id: TaskId, now_ms: i64, effects: &mut Vec<Effect>) -> Result<bool, AssignError> {
        let task = self.tasks.get_mut(&id).ok_or(AssignError::NoSuchTask(id))?;
        let was = task.pin.take().is_some();
        self.balance(now_ms, effects);
        Ok(was)
    }

    /// Begins to hand over the tasks of a worker, a task each step of the time; the worker is given nothing
    /// meanwhile.
    pub fn drain(
        &mut self,
        name: &str,
        over_ms: u64,
        now_ms: i64,
        effects: &mut Vec<Effect>,
    ) -> Result<(), DrainError> {
        let held = self.held(name).len().max(1) as u64;
        let (name, _) = self.workers.get_key_value(name).ok_or(DrainError)?;
        let drain = Drain {
            next_ms: now_ms,
            step_ms: i64::try_from(over_ms / held).unwrap_or(i64::MAX),
            absent_until: i64::MAX,
        };
        self.drains.insert(Arc::clone(name), drain);
        self.drain_due(now_ms, effects);
        self.balance(now_ms, effects);
        Ok(())
    }

    /// Ends a drain: the worker is given tasks again.
    pub fn cancel_drain(
        &mut self,
        name: &str,
        now_ms: i64,
        effects: &mut Vec<Effect>,
    ) -> Result<(), DrainError> {
        if self.drains.remove(name).is_none() && !self.workers.contains_key(name) {
            return Err(DrainError);
        }
        self.balance(now_ms, effects);
        Ok(())
    }

    /// Returns pins and drains, which are to be there again after a start.
    pub fn marks(&self) -> Marks {
        let pins = self.tasks.iter().filter_map(|(id, task)| {
            let (worker, absent) = task.pin.as_ref()?;
            Some((*id, (Box::from(&**worker), *absent)))
        });
        let drains = self.drains.iter();
        Marks {
            pins: pins.collect(),
            drains: drains
                .map(|(name, drain)| (Box::from(&**name), drain.step_ms))
                .collect(),
        }
    }

    /// Takes pins and drains of an earlier run. A drain ends if its worker is not back within its time-out.
    #[must_use]
    pub fn with_marks(mut self, marks: &Marks, now_ms: i64) -> Self {
        for (id, (worker, absent)) in &marks.pins {
            if let Some(task) = self.tasks.get_mut(id) {
                task.pin = Some((Arc::from(&**worker), *absent));
            }
        }
        let absent_until = now_ms.saturating_add_unsigned(self.rules.worker_timeout_ms);
        for (worker, step_ms) in &marks.drains {
            let drain = Drain {
                next_ms: now_ms,
                step_ms: *step_ms,
                absent_until,
            };
            self.drains.insert(Arc::from(&**worker), drain);
        }
        self
    }

    pub(super) fn end_absent_drains(&mut self, now_ms: i64, effects: &mut Vec<Effect>) {
        let before = self.drains.len();
        let workers = &self.workers;
        self.drains
            .retain(|name, drain| workers.contains_key(name) || drain.absent_until > now_ms);
        if self.drains.len() < before {
            effects.push(Effect::Marks);
        }
    }

    /// Returns true once a drained worker, or one that is gone, has nothing left.
    pub fn is_drained(&self, name: &str) -> bool {
        self.tasks
            .values()
            .all(|task| task.holder.worker().is_none_or(|it| **it != *name))
    }

    /// Takes the due steps of all drains. A step hands over one task; without time between them, all.
    pub(super) fn drain_due(&mut self, now_ms: i64, effects: &mut Vec<Effect>) {
        let there = self.drains.keys().filter(|name| self.workers.contains_key(*name));
        for name in there.cloned().collect::<Vec<_>>() {
            while let Some(drain) = self.drains.get_mut(&name).filter(|drain| drain.next_ms <= now_ms) {
                drain.next_ms = drain.next_ms.saturating_add(drain.step_ms);
                let next = self.held(&name).into_iter().next();
                if let Some(task) = next {
                    match self.wanted(task) {
                        Some(to) => self.hand_over(task, &to, Reason::Handover, now_ms, effects),
                        None => self.revoke(task, Reason::Handover, now_ms, effects),
                    }
                } else if let Some(drain) = self.drains.get_mut(&name) {
                    // Nothing is due until the drain is ended or the worker leaves.
                    drain.next_ms = i64::MAX;
                }
            }
        }
    }

    /// Hands over a task that a drained worker had claimed, or got back from a split, when it had nothing
    /// else left.
    pub(super) fn drain_later_claim(&mut self, name: &Arc<str>, now_ms: i64, effects: &mut Vec<Effect>) {
        if let Some(drain) = self
            .drains
            .get_mut(name)
            .filter(|drain| drain.next_ms == i64::MAX)
        {
            drain.next_ms = now_ms;
            self.drain_due(now_ms, effects);
        }
    }

    /// Returns the tasks that a worker holds, and of which no move has begun.
    fn held(&self, name: &str) -> Vec<TaskId> {
        let holds = |task: &Task| {
            task.prepare.is_none() && matches!(&task.holder, Holder::Held(holder) if **holder == *name)
        };
        let held = self.tasks.iter().filter(|(_, task)| holds(task));
        held.map(|(id, _)| *id).collect()
    }

    /// Balances now, whatever the rules say. Returns the moves that began.
    pub fn rebalance_now(
        &mut self,
        now_ms: i64,
        effects: &mut Vec<Effect>,
    ) -> Vec<(TaskId, Arc<str>, Arc<str>)> {
        self.rebalance(true, now_ms, effects)
    }

    /// Replaces tasks by others that are stored already: a task by its halves, or halves by their parent.
    /// The new ones begin at an epoch behind those of the old ones, and are free.
    pub fn replace(
        &mut self,
        old: &[TaskId],
        new: &[(TaskId, u64)],
        reason: Reason,
        now_ms: i64,
        effects: &mut Vec<Effect>,
    ) {
        let (mut from, mut pin) = (None, None);
        for id in old {
            if let Some(task) = self.tasks.get(id)
                && let Some(worker) = task.holder.worker().cloned()
            {
                let epoch = task.epoch;
                self.lose(*id, epoch, reason.word(), now_ms, effects);
                from = Some(worker);
            }
            pin = self.tasks.remove(id).and_then(|task| task.pin).or(pin);
        }
        for (id, epoch) in new {
            let mut task = Task::new(*epoch, reason);
            task.last.1.clone_from(&from);
            task.free_ms = now_ms;
            task.pin.clone_from(&pin);
            self.tasks.insert(*id, task);
            // Its worker has the new ones until the next balancing.
            if let Some(worker) = from.clone().filter(|worker| self.workers.contains_key(worker)) {
                self.begin_claim(*id, &worker, None, effects);
            }
        }
        self.balance(now_ms, effects);
    }
}
