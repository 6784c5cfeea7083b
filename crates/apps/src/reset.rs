//! Positions set by an operator, and settings changed.
//!
//! A reset is refused unless the app is paused. Claims end: workers claim the tasks again, at their new
//! positions. With its state, a task gets a commit of the broker's own; without, it gets a new log.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use stafett_journal::Frame;
use stafett_model::LogId;
use stafett_store::{Changing, NotStored};
use stafett_topics::Topic;

use crate::app::App;
use crate::commit::{Build, Prepared};
use crate::definition::Definition;
use crate::done::without;
use crate::entry::{POSITION, Position, done_key, offsets_value};
use crate::error::AppError;
use crate::lost_topics::reach;
use crate::registry::{Apps, Start, check_names, deletions, log_spec, rules};
use crate::slot::Slot;
use crate::state::Applied;
use crate::task::TaskId;

/// Bytes of one append that removes finished keys.
const STEP_BYTES: usize = 1 << 20;

/// A reset of positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reset {
    pub to: ResetTo,
    /// The only task to reset.
    pub task: Option<TaskId>,
    /// True if tables and timers are dropped, too.
    pub drops_state: bool,
}

/// Place of a reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResetTo {
    Place(Start),
    /// Offsets per input; absent ones stay.
    Offsets(Vec<Option<u64>>),
}

/// Positions of a task before and after, per input. Before is 0 where the log of the task is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskReset {
    pub task: TaskId,
    pub from: Vec<u64>,
    pub to: Vec<u64>,
}

impl Reset {
    /// True if no place stays as it is.
    fn names_all(&self, inputs: usize) -> bool {
        match &self.to {
            ResetTo::Place(_) => true,
            ResetTo::Offsets(offsets) => offsets.len() >= inputs && offsets.iter().all(Option::is_some),
        }
    }
}

impl Apps {
    /// Returns the positions that a reset would set.
    pub async fn planned_reset(&self, name: &str, reset: &Reset) -> Result<Vec<TaskReset>, AppError> {
        let app = self.named(name)?;
        let topics = app.topics()?;
        let tasks: Vec<TaskId> = match reset.task {
            Some(task) => vec![task],
            None => app.stored().tasks.keys().copied().collect(),
        };
        let mut plan = Vec::with_capacity(tasks.len());
        for task in tasks {
            let from = match app.position(task).await {
                // It begins anew, wherever it was.
                Err(why @ AppError::Unreadable { .. }) if reset.drops_state => {
                    let known = app.known(task).map(|known| known.position.next);
                    let of_any = || reset.names_all(topics.len()).then(|| vec![0; topics.len()]);
                    known.or_else(of_any).ok_or(why)?
                }
                found => found?.next,
            };
            let to = match &reset.to {
                ResetTo::Offsets(offsets) => {
                    let given = |(at, was): (usize, &u64)| offsets.get(at).copied().flatten().unwrap_or(*was);
                    from.iter().enumerate().map(given).collect()
                }
                ResetTo::Place(start) => self.places(&topics, task.partition, *start).await?,
            };
            reach(&self.parts.catalog, topics.iter(), task.partition).await?;
            self.check_places(&topics, task, &to)?;
            plan.push(TaskReset { task, from, to });
        }
        Ok(plan)
    }

    async fn places(
        &self,
        topics: &[Arc<Topic>],
        partition: u32,
        start: Start,
    ) -> Result<Vec<u64>, AppError> {
        let starts = self.starts(topics, partition, start).await?;
        if !starts.is_empty() {
            return Ok(starts);
        }
        let first = |topic: &Arc<Topic>| Some(self.journal.bounds(topic.log(partition)?)?.start.0);
        Ok(topics.iter().map(|topic| first(topic).unwrap_or(0)).collect())
    }

    fn check_places(&self, topics: &[Arc<Topic>], task: TaskId, places: &[u64]) -> Result<(), AppError> {
        for (topic, given) in topics.iter().zip(places) {
            let bounds = topic.log(task.partition).and_then(|log| self.journal.bounds(log));
            let (from, to) = bounds.map_or((0, 0), |bounds| (bounds.start.0, bounds.stable.0));
            if !(from..=to).contains(given) {
                return Err(AppError::BadOffset {
                    field: "to",
                    topic: topic.name.clone(),
                    given: *given,
                    from,
                    to,
                });
            }
        }
        Ok(())
    }

    /// Sets the positions of a paused app. Returns them.
    pub fn reset(&self, name: &str, reset: Reset) -> Changing<Vec<TaskReset>, AppError> {
        let (this, name) = (self.this.clone(), Box::<str>::from(name));
        self.parts.changes.begin(async move {
            let apps = this.upgrade().ok_or(NotStored::Unknown)?;
            let _turn = apps.turn().await;
            let app = apps.named(&name)?;
            if !app.stored().paused {
                return Err(AppError::NotPaused);
            }
            let plan = apps.planned_reset(&name, &reset).await?;
            if reset.drops_state {
                apps.drop_state(&app, &plan).await?;
            } else {
                for task in &plan {
                    let slot = app.slot(task.task).ok_or(AppError::NoSuchTask(task.task))?;
                    let to: Vec<_> = task.to.iter().copied().map(Some).collect();
                    app.move_task(&slot, &to, "reset").await?;
                }
            }
            Ok(plan)
        })
    }

    /// Gives tasks new logs that begin at the new places.
    async fn drop_state(&self, app: &App, plan: &[TaskReset]) -> Result<(), AppError> {
        let slots: Vec<Arc<Slot>> = plan.iter().filter_map(|reset| app.slot(reset.task)).collect();
        let mut turns = Vec::with_capacity(slots.len());
        for slot in &slots {
            turns.push(slot.turn().await);
        }
        let mut stored = (*app.stored()).clone();
        let count = u32::try_from(plan.len()).unwrap_or(u32::MAX);
        let first = self.journal.allocate(count);
        let mut old = BTreeMap::new();
        for (reset, log) in plan.iter().zip(first.0..) {
            if let Some(task) = stored.tasks.get_mut(&reset.task) {
                old.insert(reset.task, task.clone());
                (task.log, task.starts) = (LogId(log), reset.to.clone());
            }
        }
        let spec = log_spec(app.durability());
        let logs = Frame::CreateLogs { first, count, spec };
        let frames = [logs].into_iter().chain(deletions(&old)).collect();
        let tasks = stored.tasks.clone();
        app.update(frames, |stored| stored.tasks = tasks).await?;
        for reset in plan {
            let Some(task) = stored.tasks.get(&reset.task) else {
                continue;
            };
            // Nothing is stored in the new log under the claim that ends.
            let slot = Slot::new(reset.task, task);
            let _turn = slot.turn().await;
            app.slots.write().insert(reset.task, Arc::clone(&slot));
            app.end_claim(reset.task, "reset");
            // Epochs go on, also after a restart before the next claim.
            let epoch = app.with_machine(|machine| machine.task(reset.task).map_or(0, |task| task.epoch));
            let kept = slot.store_epoch(&app.parts.catalog, epoch, app.wait()).await;
            if let Err(why) = kept {
                tracing::warn!(app = &*app.name, task = %reset.task, "the epoch of a task is not stored: {why}");
            }
        }
        Ok(())
    }

    /// Changes settings of an app, one change after the other.
    pub fn change(
        &self,
        name: &str,
        change: impl FnOnce(&mut Definition) + Send + 'static,
    ) -> Changing<(), AppError> {
        let (this, name) = (self.this.clone(), Box::<str>::from(name));
        self.parts.changes.begin(async move {
            let apps = this.upgrade().ok_or(NotStored::Unknown)?;
            let _turn = apps.turn().await;
            let app = apps.named(&name)?;
            let mut definition = app.stored().definition.clone();
            change(&mut definition);
            check_names(&name, &definition)?;
            apps.check_dead_letter(&definition)?;
            let rules = rules(&definition);
            app.update(Vec::new(), |stored| stored.definition = definition)
                .await?;
            app.step(|machine, now, effects| machine.set_rules(rules, now, effects));
            Ok(())
        })
    }
}

impl App {
    /// Takes a task from its worker, which is told.
    fn end_claim(&self, task: TaskId, reason: &'static str) {
        self.step(|machine, now, effects| {
            let epoch = machine.task(task).map_or(0, |task| task.epoch);
            machine.lose(task, epoch, reason, now, effects);
            machine.on_time(now, effects);
        });
    }

    /// Sets the places of a task in some inputs, and forgets finished keys and failures there. A task that
    /// was split, merged or reset meanwhile is left as it is.
    pub(crate) async fn move_task(
        &self,
        slot: &Arc<Slot>,
        to: &[Option<u64>],
        reason: &'static str,
    ) -> Result<(), AppError> {
        let _turn = slot.turn().await;
        if !self.is_current(slot) {
            return Ok(());
        }
        slot.load(&self.parts, &self.inputs()).await?;
        let known = self.with_machine(|machine| machine.task(slot.task));
        let epoch = known.map_or(0, |task| task.epoch);
        let now_ms = self.parts.clock.wall_ms();
        let places: Vec<u8> = (0_u8..)
            .zip(to)
            .filter(|(_, to)| to.is_some())
            .map(|(it, _)| it)
            .collect();
        let prepared = slot.with_state(|state| {
            let mut build = Build::new(now_ms);
            let position = moved(&state.position, to, epoch);
            build.push(POSITION, Some(&position.encode()), Applied::Position)?;
            for input in places.iter().filter(|_| !state.done().keys().is_empty()) {
                // The keys may be more than one append holds.
                build.push(&[b'x', *input], Some(&[]), Applied::Forget(*input))?;
            }
            let failures = state.failures().iter();
            for (place, _) in failures.filter(|(place, _)| places.contains(&place.input)) {
                build.push_failure(place, None)?;
            }
            finish(slot, build, position, epoch)
        })?;
        let keys = slot.with_state(|state| Ok(Arc::clone(state.done().keys())))?;
        self.end_claim(slot.task, reason);
        self.store_prepared(slot, prepared).await?;
        if let Err(why) = self.drop_forgotten(slot, &keys, &places, epoch).await {
            // They do not count any more, and take room on the disk.
            tracing::debug!(app = &*self.name, task = %slot.task, "finished keys stay in the log: {why}");
        }
        Ok(())
    }

    /// Removes the records of finished keys that were forgotten, some at a time.
    async fn drop_forgotten(
        &self,
        slot: &Slot,
        keys: &HashMap<Bytes, Box<[u64]>>,
        forgotten: &[u8],
        epoch: u64,
    ) -> Result<(), AppError> {
        let mut keys = keys.iter().peekable();
        while keys.peek().is_some() {
            let prepared = slot.with_state(|state| {
                let position = state.position.clone();
                let mut build = Build::new(self.parts.clock.wall_ms());
                build.push(POSITION, Some(&position.encode()), Applied::Position)?;
                while build.bytes() < STEP_BYTES
                    && let Some((key, behind)) = keys.next()
                {
                    let left = without(behind, forgotten);
                    let value = left.as_deref().map(offsets_value);
                    build.push(&done_key(key), value.as_deref(), Applied::Done(key.clone(), left))?;
                }
                finish(slot, build, position, epoch)
            })?;
            self.store_prepared(slot, prepared).await?;
        }
        Ok(())
    }
}

fn finish(slot: &Slot, build: Build, position: Position, epoch: u64) -> Result<Prepared, AppError> {
    let (append, changes) = build.finish(slot.log, epoch)?;
    Ok(Prepared {
        append,
        position,
        changes,
        emitted: Vec::new(),
        messages: Vec::new(),
    })
}

/// Returns a position with other places in some inputs.
fn moved(before: &Position, to: &[Option<u64>], epoch: u64) -> Position {
    let mut position = Position {
        seq: before.seq + 1,
        epoch,
        ..before.clone()
    };
    if to.iter().all(Option::is_some) {
        // Task time begins anew, else all that is read again would be late.
        position.time = i64::MIN;
    }
    let ahead = position.ahead.iter_mut().map(|it| (&mut it.next, &mut it.safe));
    let all = ahead.chain([(&mut position.next, &mut position.safe)]);
    for (next, safe) in all {
        for (places, new) in [next, safe]
            .into_iter()
            .flat_map(|places| places.iter_mut().zip(to))
        {
            *places = new.unwrap_or(*places);
        }
    }
    position.drop_reached();
    position
}
