//! Balance, claims and their end.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::worker::WorkerName;
use super::{Absent, Balance, Effect, EventKind, Holder, Machine, Prepare, Reason, WorkerError};
use crate::balance::{Candidate, Place, assign, move_by_load, shares};
use crate::task::TaskId;

/// Time between two moves by load.
const LOAD_STEP_MS: i64 = 10_000;

/// Time after which a claim that could not be stored is tried again.
const RETRY_MS: i64 = 1000;

/// Workers that can be given tasks, and all tasks that can be given.
struct Plan {
    workers: Vec<WorkerName>,
    candidates: Vec<Candidate>,
    places: Vec<Place>,
}

impl Machine {
    /// Gives free tasks to workers, and begins to move held ones if the rules say so.
    pub(super) fn balance(&mut self, now_ms: i64, effects: &mut Vec<Effect>) {
        let spread = std::mem::take(&mut self.spread);
        if self.rules.balance == Balance::Manual {
            self.give_pinned(effects);
            return;
        }
        let moves = self.rules.auto && (self.rules.balance != Balance::Load || spread);
        self.rebalance(moves, now_ms, effects);
    }

    /// Gives each free task to its worker, and begins the moves of others if `moves` says so. Returns the
    /// moves.
    pub(super) fn rebalance(
        &mut self,
        moves: bool,
        now_ms: i64,
        effects: &mut Vec<Effect>,
    ) -> Vec<(TaskId, Arc<str>, Arc<str>)> {
        let plan = self.plan();
        let assigned = assign(&plan.candidates, &plan.places);
        let mut begun = Vec::new();
        for (place, wanted) in plan.places.iter().zip(assigned) {
            let Some(wanted) = wanted.and_then(|wanted| plan.workers.get(wanted)) else {
                continue;
            };
            let Some(task) = self.tasks.get_mut(&place.task) else {
                continue;
            };
            let (holder, is_pin) = (task.holder.clone(), task.pin.is_some());
            if holder.worker() == Some(wanted) {
                // It stays after all.
                task.prepare = None;
            }
            match holder {
                Holder::Free => {
                    let by_load = task.goes_to.take().filter(|to| plan.workers.contains(to));
                    let to = by_load.filter(|_| place.pin.is_none());
                    self.begin_claim(place.task, to.as_ref().unwrap_or(wanted), None, effects);
                }
                // A drain takes its time.
                Holder::Held(holder)
                    if holder != *wanted && !self.is_draining(&holder) && (moves || is_pin) =>
                {
                    let reason = if is_pin { Reason::Assigned } else { Reason::Balance };
                    begun.push((place.task, Arc::clone(&holder), Arc::clone(wanted)));
                    self.hand_over(place.task, wanted, reason, now_ms, effects);
                }
                Holder::Held(_) | Holder::Claiming(_) | Holder::Revoking { .. } => {}
            }
        }
        begun
    }

    /// Returns the moves that a balancing would begin now.
    pub fn planned_moves(&self) -> Vec<(TaskId, Arc<str>, Arc<str>)> {
        let plan = self.plan();
        let assigned = assign(&plan.candidates, &plan.places);
        let moves = plan.places.iter().zip(assigned).filter_map(|(place, wanted)| {
            let to = plan.workers.get(wanted?)?;
            let from = self.tasks.get(&place.task)?.holder.worker()?;
            (from != to).then(|| (place.task, Arc::clone(from), Arc::clone(to)))
        });
        moves.collect()
    }

    fn is_draining(&self, name: &WorkerName) -> bool {
        self.drains.contains_key(name)
    }

    fn give_pinned(&mut self, effects: &mut Vec<Effect>) {
        let free = self.tasks.iter().filter(|(_, task)| task.holder == Holder::Free);
        let pinned = free.filter_map(|(id, task)| Some((*id, Arc::clone(&task.pin.as_ref()?.0))));
        for (task, worker) in pinned.collect::<Vec<_>>() {
            if self.workers.contains_key(&worker) && !self.is_draining(&worker) {
                self.begin_claim(task, &worker, Some(Reason::Assigned), effects);
            }
        }
    }

    fn plan(&self) -> Plan {
        let able = self.workers.iter().filter(|(name, _)| !self.is_draining(name));
        let (workers, candidates): (Vec<_>, Vec<_>) = able
            .map(|(name, worker)| {
                let weight = match self.rules.balance {
                    Balance::Weight | Balance::Load => worker.spec.weight,
                    Balance::Count | Balance::Manual => 1,
                };
                let tasks_max = worker.spec.tasks_max;
                (Arc::clone(name), Candidate { weight, tasks_max })
            })
            .unzip();
        let index = |name: &WorkerName| workers.binary_search(name).ok();
        let mut places = Vec::with_capacity(self.tasks.len());
        for (id, task) in &self.tasks {
            let pin = match &task.pin {
                Some((worker, absent)) => match (index(worker), absent) {
                    (None, Absent::Wait) => continue,
                    (pin, _) => pin,
                },
                None => None,
            };
            // A task on its way from a worker is as good as free.
            let holder = match &task.holder {
                Holder::Claiming(worker) | Holder::Held(worker) => index(worker),
                Holder::Free | Holder::Revoking { .. } => None,
            };
            places.push(Place {
                task: *id,
                holder,
                pin,
            });
        }
        Plan {
            workers,
            candidates,
            places,
        }
    }

    /// Returns the share of each worker that can be given tasks.
    pub(super) fn targets(&self) -> BTreeMap<WorkerName, u32> {
        let plan = self.plan();
        let shares = shares(&plan.candidates, &plan.places);
        plan.workers.into_iter().zip(shares).collect()
    }

    pub(super) fn begin_claim(
        &mut self,
        id: TaskId,
        worker: &WorkerName,
        reason: Option<Reason>,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(task) = self.tasks.get_mut(&id) {
            task.epoch += 1;
            task.holder = Holder::Claiming(Arc::clone(worker));
            task.last.0 = reason.unwrap_or(task.last.0);
            let (epoch, died) = (task.epoch, task.died.take());
            effects.push(Effect::Claim {
                task: id,
                epoch,
                died,
            });
        }
    }

    /// Takes the outcome of [`Effect::Claim`]. An epoch that could not be stored frees the task.
    pub fn on_claimed(
        &mut self,
        id: TaskId,
        epoch: u64,
        is_stored: bool,
        now_ms: i64,
        effects: &mut Vec<Effect>,
    ) {
        let task = self.tasks.get_mut(&id).filter(|task| task.epoch == epoch);
        let Some(task) = task else { return };
        let Holder::Claiming(worker) = task.holder.clone() else {
            return;
        };
        if !is_stored {
            task.holder = Holder::Free;
            self.retry_ms = Some(now_ms.saturating_add(RETRY_MS));
            return;
        }
        task.holder = Holder::Held(Arc::clone(&worker));
        task.moves += 1;
        let (reason, from) = std::mem::replace(&mut task.last, (Reason::Balance, None));
        if let Some(count) = self.moved.get_mut(reason as usize) {
            *count += 1;
        }
        let gap_ms = now_ms.saturating_sub(task.free_ms);
        effects.push(Effect::Claimed { reason, gap_ms });
        let kind = EventKind::Claimed {
            task: id,
            epoch,
            reason,
            from,
        };
        self.tell(&worker, kind, effects);
        self.drain_later_claim(&worker, now_ms, effects);
        // Workers may have come and gone meanwhile.
        self.balance(now_ms, effects);
    }

    /// Begins to move a held task. A worker that reads states ahead is told first, and then the holder.
    pub(super) fn hand_over(
        &mut self,
        id: TaskId,
        to: &WorkerName,
        reason: Reason,
        now_ms: i64,
        effects: &mut Vec<Effect>,
    ) {
        let is_eager = self.workers.get(to).is_some_and(|worker| worker.spec.eager);
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let Holder::Held(from) = &task.holder else {
            return;
        };
        if !is_eager {
            self.revoke(id, reason, now_ms, effects);
            return;
        }
        if task.prepare.as_ref().is_some_and(|prepare| prepare.to == *to) {
            return;
        }
        let (from, epoch) = (Arc::clone(from), task.epoch);
        task.prepare = Some(Prepare {
            to: Arc::clone(to),
            reason,
            deadline_ms: now_ms.saturating_add_unsigned(self.rules.revoke_ms),
        });
        let task = id;
        self.tell(to, EventKind::Prepare { task, epoch, from }, effects);
    }

    /// Goes on with a move whose worker has read the state.
    pub fn prepared(
        &mut self,
        name: &str,
        id: TaskId,
        now_ms: i64,
        effects: &mut Vec<Effect>,
    ) -> Result<(), WorkerError> {
        let task = self.tasks.get_mut(&id).ok_or(WorkerError::NoSuchTask(id))?;
        let prepare = task.prepare.take_if(|prepare| *prepare.to == *name);
        let Some(prepare) = prepare else {
            return Err(WorkerError::LostClaim {
                task: id,
                epoch: task.epoch,
                holder: task.holder.worker().cloned(),
            });
        };
        task.goes_to = Some(prepare.to);
        self.revoke(id, prepare.reason, now_ms, effects);
        Ok(())
    }

    /// Returns the worker that would be given a task now.
    pub(super) fn wanted(&self, id: TaskId) -> Option<WorkerName> {
        let plan = self.plan();
        let assigned = assign(&plan.candidates, &plan.places);
        let mut wanted = plan.places.iter().zip(assigned);
        let (_, wanted) = wanted.find(|(place, _)| place.task == id)?;
        plan.workers.get(wanted?).cloned()
    }

    /// Begins to take a held task from its worker.
    pub(super) fn revoke(&mut self, id: TaskId, reason: Reason, now_ms: i64, effects: &mut Vec<Effect>) {
        let revoke_ms = self.rules.revoke_ms;
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let Holder::Held(worker) = task.holder.clone() else {
            return;
        };
        task.prepare = None;
        task.holder = Holder::Revoking {
            worker: Arc::clone(&worker),
            deadline_ms: now_ms.saturating_add_unsigned(revoke_ms),
            reason,
        };
        let kind = EventKind::Revoke {
            task: id,
            epoch: task.epoch,
            deadline_ms: revoke_ms,
        };
        self.tell(&worker, kind, effects);
    }

    /// Frees a task that its worker gives back.
    pub fn release(
        &mut self,
        name: &str,
        id: TaskId,
        epoch: u64,
        now_ms: i64,
        effects: &mut Vec<Effect>,
    ) -> Result<(), WorkerError> {
        self.check_claim(name, id, epoch)?;
        self.free(id, Reason::Handover, now_ms);
        self.balance(now_ms, effects);
        Ok(())
    }

    fn free(&mut self, id: TaskId, otherwise: Reason, now_ms: i64) {
        if let Some(task) = self.tasks.get_mut(&id) {
            let reason = match task.holder {
                Holder::Revoking { reason, .. } => reason,
                Holder::Free | Holder::Claiming(_) | Holder::Held(_) => otherwise,
            };
            let from = task.holder.worker().cloned();
            task.holder = Holder::Free;
            task.prepare = None;
            task.last = (reason, from);
            task.free_ms = now_ms;
        }
    }

    /// Ends a claim of which the journal says that a later one has followed, or that cannot be served.
    pub fn lose(
        &mut self,
        id: TaskId,
        epoch: u64,
        reason: &'static str,
        now_ms: i64,
        effects: &mut Vec<Effect>,
    ) {
        let known = self.tasks.get(&id).filter(|task| task.epoch == epoch);
        let Some(worker) = known.and_then(|task| task.holder.worker().cloned()) else {
            return;
        };
        self.free(id, Reason::Takeover, now_ms);
        self.tell(
            &worker,
            EventKind::Lost {
                task: id,
                epoch,
                reason,
            },
            effects,
        );
    }

    /// Goes on behind an epoch that the journal knows and the machine does not, once the task is free.
    pub fn skip_epochs(&mut self, id: TaskId, later: u64) {
        let task = self.tasks.get_mut(&id);
        if let Some(task) = task.filter(|task| task.holder == Holder::Free) {
            task.epoch = task.epoch.max(later);
        }
    }

    /// Gives a worker the tasks that it asks for.
    pub fn claim(
        &mut self,
        name: &str,
        wanted: &[TaskId],
        effects: &mut Vec<Effect>,
    ) -> Result<(), WorkerError> {
        let (name, worker) = self
            .workers
            .get_key_value(name)
            .ok_or(WorkerError::NoSuchWorker)?;
        if self.is_draining(name) {
            return Err(WorkerError::Draining);
        }
        let (name, tasks_max) = (Arc::clone(name), worker.spec.tasks_max);
        let target = match self.rules.balance {
            Balance::Manual => tasks_max.unwrap_or(u32::MAX),
            Balance::Count | Balance::Weight | Balance::Load => {
                self.targets().get(&name).copied().unwrap_or(0)
            }
        };
        let held = self
            .tasks
            .values()
            .filter(|task| task.holder.worker() == Some(&name))
            .count();
        let mut held = u32::try_from(held).unwrap_or(u32::MAX);
        for id in wanted {
            let task = self.tasks.get(id).ok_or(WorkerError::NoSuchTask(*id))?;
            match (&task.pin, task.holder.worker()) {
                (_, Some(by)) if *by == name => continue,
                (_, Some(by)) => {
                    return Err(WorkerError::Taken {
                        task: *id,
                        by: Arc::clone(by),
                        epoch: task.epoch,
                    });
                }
                (Some((to, _)), None) if *to != name => {
                    let to = Arc::clone(to);
                    return Err(WorkerError::Pinned { task: *id, to });
                }
                (_, None) => held += 1,
            }
            if held > target {
                return Err(WorkerError::OverShare { target });
            }
        }
        for id in wanted {
            if self.tasks.get(id).is_some_and(|task| task.holder == Holder::Free) {
                self.begin_claim(*id, &name, None, effects);
            }
        }
        Ok(())
    }

    /// Returns up to `count` free tasks that the worker may have.
    pub fn free_tasks(&self, name: &str, count: usize) -> Vec<TaskId> {
        let may = |pin: &Option<(WorkerName, Absent)>| pin.as_ref().is_none_or(|(to, _)| **to == *name);
        let free = self
            .tasks
            .iter()
            .filter(|(_, task)| task.holder == Holder::Free && may(&task.pin));
        free.map(|(id, _)| *id).take(count).collect()
    }

    /// Does due work: workers that were silent for too long are gone, claims that were not released are
    /// taken, drains and moves by load take a step.
    pub fn on_time(&mut self, now_ms: i64, effects: &mut Vec<Effect>) {
        self.retry_ms = self.retry_ms.filter(|at| *at > now_ms);
        let silent = self
            .workers
            .iter()
            .filter(|(_, worker)| self.silent_at(worker) <= now_ms);
        for name in silent.map(|(name, _)| Arc::clone(name)).collect::<Vec<_>>() {
            self.remove_worker(&name, Reason::Takeover, now_ms, effects);
            effects.push(Effect::Wake(name));
        }
        let overdue = self.tasks.iter().filter_map(|(id, task)| match &task.holder {
            Holder::Revoking {
                worker, deadline_ms, ..
            } if *deadline_ms <= now_ms => Some((*id, Arc::clone(worker), task.epoch)),
            Holder::Free | Holder::Claiming(_) | Holder::Held(_) | Holder::Revoking { .. } => None,
        });
        for (task, worker, epoch) in overdue.collect::<Vec<_>>() {
            self.free(task, Reason::Handover, now_ms);
            effects.push(Effect::Overdue);
            let reason = "overdue";
            self.tell(&worker, EventKind::Lost { task, epoch, reason }, effects);
        }
        let late = self.tasks.iter().filter_map(|(id, task)| {
            let prepare = task.prepare.as_ref()?;
            (prepare.deadline_ms <= now_ms).then(|| (*id, Arc::clone(&prepare.to)))
        });
        for (task, to) in late.collect::<Vec<_>>() {
            // Its worker reads on when it has the task.
            let _moved = self.prepared(&to, task, now_ms, effects);
        }
        self.end_absent_drains(now_ms, effects);
        self.drain_due(now_ms, effects);
        if self.rules.balance == Balance::Load && self.rules.auto && self.load_from_ms <= now_ms {
            self.load_from_ms = now_ms.saturating_add(LOAD_STEP_MS);
            self.move_by_load(now_ms, effects);
        }
        self.balance(now_ms, effects);
    }

    fn move_by_load(&mut self, now_ms: i64, effects: &mut Vec<Effect>) {
        let plan = self.plan();
        let loads: Vec<u64> = plan
            .places
            .iter()
            .map(|place| self.tasks.get(&place.task).map_or(0, |task| task.load))
            .collect();
        let Some((at, to)) = move_by_load(&plan.candidates, &plan.places, &loads) else {
            return;
        };
        if let (Some(place), Some(to)) = (plan.places.get(at), plan.workers.get(to))
            && let Some(task) = self.tasks.get_mut(&place.task)
        {
            task.goes_to = Some(Arc::clone(to));
            self.hand_over(place.task, to, Reason::Balance, now_ms, effects);
        }
    }
}
