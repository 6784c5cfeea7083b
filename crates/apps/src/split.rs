//! Tasks cut into slices of their keys, and slices joined again, while workers go on.
//!
//! State moves by key from the logs of the old tasks to those of the new ones, piece by piece. Meanwhile the
//! old tasks store nothing. One append ends them: it deletes their logs, and makes the new ones count. A
//! crash before it leaves the old tasks as they were; the new logs are named in the row of the app until
//! then, and deleted at the next start.
//!
//! An entry or a timer under a key of another slice belongs to no part. A cut that would lose it is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use stafett_journal::{Frame, OwnerEpoch, Visibility};
use stafett_model::{LogId, StoredRecord};
use stafett_store::{Changing, NotStored};
use stafett_topics::{ReadEnd, RecordItem, RecordTail};

use crate::app::App;
use crate::commit::Build;
use crate::definition::{StoredApp, StoredTask};
use crate::entry::{EntryKey, POSITION, Position, done_key, intact, offsets_value};
use crate::error::AppError;
use crate::failure::Failure;
use crate::failures::Failures;
use crate::joint::{joint_position, lowest};
use crate::machine::Reason;
use crate::mark::Mark;
use crate::registry::{Apps, TASKS_MAX, deletions, log_spec};
use crate::slot::Slot;
use crate::state::Applied;
use crate::task::TaskId;

/// Bytes of a piece.
const PIECE_BYTES: usize = 4 << 20;
const READ_BYTES: usize = 1 << 20;

/// Tasks that were split or merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The new tasks.
    pub tasks: Vec<TaskId>,
    /// Place at which they begin, per input.
    pub at: Vec<u64>,
}

/// A new task: its log, its first position, and the entries to store for it.
struct New {
    task: TaskId,
    log: LogId,
    position: Position,
    build: Build,
    failures: Failures,
}

impl Apps {
    /// Cuts a task into slices: 2, or another power of 2.
    pub fn split(&self, name: &str, task: TaskId, into: u32) -> Changing<Cut, AppError> {
        let (this, name) = (self.this.clone(), Box::<str>::from(name));
        self.parts.changes.begin(async move {
            let apps = this.upgrade().ok_or(NotStored::Unknown)?;
            let _turn = apps.turn().await;
            let app = apps.named(&name)?;
            let stored = app.stored();
            if !stored.tasks.contains_key(&task) {
                return Err(AppError::NoSuchTask(task));
            }
            if !stored.definition.splittable {
                return Err(AppError::NotSplittable);
            }
            if !into.is_power_of_two() || into < 2 {
                let why = "into is 2, 4 or another power of 2".to_owned();
                return Err(AppError::Bad { field: "into", why });
            }
            let new = task.slices(into).ok_or(AppError::TooFine(task))?;
            if stored.tasks.len() + new.len() > TASKS_MAX {
                let (what, max) = ("the number of tasks", TASKS_MAX as u64);
                return Err(AppError::TooLarge { what, max });
            }
            if !app.step(|machine, _, _| machine.begin_cut()) {
                return Err(AppError::NotSplittable);
            }
            let cut = apps.recast(&app, &[task], &new, Reason::Split).await;
            app.step(|machine, _, _| machine.end_cut());
            cut
        })
    }

    /// Joins all slices of a task.
    pub fn merge(&self, name: &str, task: TaskId) -> Changing<Cut, AppError> {
        let (this, name) = (self.this.clone(), Box::<str>::from(name));
        self.parts.changes.begin(async move {
            let apps = this.upgrade().ok_or(NotStored::Unknown)?;
            let _turn = apps.turn().await;
            let app = apps.named(&name)?;
            let stored = app.stored();
            let old: Vec<TaskId> = stored
                .tasks
                .keys()
                .copied()
                .filter(|it| it.is_within(task))
                .collect();
            match old.as_slice() {
                [] => Err(AppError::NoSuchTask(task)),
                [one] if *one == task => {
                    let why = format!("task {task} is not split");
                    Err(AppError::Bad { field: "task", why })
                }
                old => apps.recast(&app, old, &[task], Reason::Merge).await,
            }
        })
    }

    /// Deletes the logs of splits and merges that a crash has ended. Called once, after the start.
    pub async fn finish_splits(&self) -> Result<(), NotStored> {
        for app in self.all() {
            let unfinished = app.stored().unfinished.clone();
            if !unfinished.is_empty() {
                app.drop_logs(&unfinished).await?;
            }
        }
        Ok(())
    }

    async fn recast(
        &self,
        app: &Arc<App>,
        old: &[TaskId],
        new: &[TaskId],
        reason: Reason,
    ) -> Result<Cut, AppError> {
        let slots: Vec<Arc<Slot>> = old.iter().filter_map(|task| app.slot(*task)).collect();
        let mut turns = Vec::with_capacity(slots.len());
        for slot in &slots {
            turns.push(slot.turn().await);
            slot.load(&self.parts, &app.inputs()).await?;
        }
        let position = joint_position(&slots)?;
        let count = u32::try_from(new.len()).unwrap_or(u32::MAX);
        let first = self.journal.allocate(count);
        let logs: Vec<LogId> = (first.0..).map(LogId).take(new.len()).collect();
        let now_ms = self.parts.clock.wall_ms();
        let mut parts: Vec<New> = new
            .iter()
            .zip(&logs)
            .map(|(task, log)| New {
                task: *task,
                log: *log,
                position: position.clone(),
                build: Build::new(now_ms),
                failures: Failures::default(),
            })
            .collect();
        let spec = log_spec(app.durability());
        let created = Frame::CreateLogs { first, count, spec };
        let unfinished = logs.clone();
        app.update(vec![created], |stored| stored.unfinished = unfinished)
            .await?;
        let moved = self.move_state(app, &slots, &mut parts).await;
        let finished = match moved {
            Ok(()) => self.finish_recast(app, old, &parts).await,
            Err(why) => Err(why),
        };
        let epoch = match finished {
            Ok(epoch) => epoch,
            // The new logs may be those that count.
            Err(why) if why == AppError::NotStored(NotStored::Unknown) => return Err(why),
            Err(why) => {
                if let Err(left) = app.drop_logs(&logs).await {
                    tracing::warn!(
                        app = &*app.name,
                        "logs of a split stay until the next start: {left}"
                    );
                }
                return Err(why);
            }
        };
        app.replace_slots(old, &parts);
        let new: Vec<(TaskId, u64)> = new.iter().map(|task| (*task, epoch)).collect();
        app.step(|machine, now, effects| machine.replace(old, &new, reason, now, effects));
        let tasks = new.into_iter().map(|(task, _)| task).collect();
        let at = position.next;
        Ok(Cut { tasks, at })
    }

    /// Ends the old tasks. Returns the latest epoch of their claims, which the new ones go on from.
    async fn finish_recast(&self, app: &App, old: &[TaskId], parts: &[New]) -> Result<u64, AppError> {
        let epoch = app.with_machine(|machine| {
            let epochs = old.iter().filter_map(|task| machine.task(*task));
            epochs.map(|task| task.epoch).max().unwrap_or(0)
        });
        // Where tasks began tells which inputs had records.
        let (catalog, inputs) = (&app.parts.catalog, app.inputs());
        let slots: Vec<_> = old.iter().filter_map(|task| app.slot(*task)).collect();
        for slot in &slots {
            slot.reach_starts(catalog, &inputs).await?;
        }
        let began = slots
            .iter()
            .map(|slot| slot.starts(catalog, &inputs))
            .reduce(lowest);
        let stored = app.stored();
        let ended = stored.tasks.iter().filter(|(task, _)| old.contains(task));
        let ended: BTreeMap<TaskId, StoredTask> =
            ended.map(|(task, stored)| (*task, stored.clone())).collect();
        let claims = parts.iter().map(|part| Frame::Claim {
            log: part.log,
            owner: OwnerEpoch(epoch),
        });
        let frames = claims.chain(deletions(&ended)).collect();
        let change = |stored: &mut StoredApp| {
            let pin = old.iter().find_map(|task| stored.marks.pins.get(task).cloned());
            stored.marks.pins.retain(|task, _| !old.contains(task));
            stored.tasks.retain(|task, _| !old.contains(task));
            for part in parts {
                let starts = began.clone().unwrap_or_else(|| part.position.next.clone());
                stored.tasks.insert(
                    part.task,
                    StoredTask {
                        log: part.log,
                        starts,
                    },
                );
                if let Some(pin) = &pin {
                    stored.marks.pins.insert(part.task, pin.clone());
                }
            }
            stored.unfinished.clear();
        };
        app.update(frames, change).await?;
        Ok(epoch)
    }

    /// Stores the state of the old tasks in the new logs.
    async fn move_state(&self, app: &App, slots: &[Arc<Slot>], parts: &mut [New]) -> Result<(), AppError> {
        let now_ms = self.parts.clock.wall_ms();
        for part in &mut *parts {
            part.begin()?;
        }
        for slot in slots {
            let (done, failures) =
                slot.with_state(|state| Ok((Arc::clone(state.done().keys()), state.failures().clone())))?;
            // One of another slice's key finds no part: it leaves out no record.
            for (key, offsets) in done.iter() {
                let record = (done_key(key), offsets_value(offsets));
                let change = Applied::Done(key.clone(), Some(offsets.clone()));
                self.put(parts, Some(key), (&record.0, &record.1, now_ms), change)
                    .await?;
            }
            for (place, failure) in failures.iter() {
                let key = app.key_of_failure(slot, place.input, failure).await?;
                for part in &mut *parts {
                    part.take_failure(place.input, key.as_deref(), failure)?;
                }
            }
            self.move_entries(app, slot, slots, parts).await?;
        }
        for part in parts {
            self.flush(part).await?;
        }
        Ok(())
    }

    /// Moves the entries and timers of a task, one of those that are cut or joined.
    async fn move_entries(
        &self,
        app: &App,
        slot: &Slot,
        slots: &[Arc<Slot>],
        parts: &mut [New],
    ) -> Result<(), AppError> {
        let catalog = &self.parts.catalog;
        let unreadable = |why: String| AppError::Unreadable { task: slot.task, why };
        let bounds = catalog.bounds(slot.log);
        let bounds = bounds.ok_or_else(|| unreadable("the log does not exist".to_owned()))?;
        let stored = app.stored();
        let keyed: Vec<bool> = stored
            .definition
            .tables
            .values()
            .map(|table| table.keyed)
            .collect();
        let mut tail = RecordTail::new(slot.log, bounds.start, READ_BYTES, Visibility::Stored);
        loop {
            while let Some(item) = tail.item() {
                let (record, value, offset, written_ms) = match item {
                    RecordItem::Record(StoredRecord {
                        key: Some(record),
                        value: Some(value),
                        offset,
                        timestamp,
                        ..
                    }) => (record, value, offset, timestamp),
                    RecordItem::Record(_) => continue,
                    RecordItem::Skipped(skipped) => {
                        intact(&skipped).map_err(unreadable)?;
                        continue;
                    }
                };
                let (key, change) = match EntryKey::decode(&record) {
                    Some(EntryKey::State { table, key }) if slot.has_at(&record, offset.0) => {
                        if keyed.get(usize::from(table)) == Some(&false) {
                            return Err(AppError::NotKeyed(slot.task));
                        }
                        // The new state is read back from the log.
                        (key, Applied::Position)
                    }
                    Some(EntryKey::Timer { key, .. }) if slot.has_timer_at(&record, offset.0) => {
                        (key, Applied::Position)
                    }
                    _ => continue,
                };
                if is_stray(slot, slots, parts, (&key, &record)) {
                    let (task, key) = (slot.task, String::from_utf8_lossy(&key).into());
                    return Err(AppError::Stray { task, key });
                }
                // Entries expire by the time of their commits.
                self.put(parts, Some(&key), (&record, &value, written_ms), change)
                    .await?;
            }
            match tail.read(catalog).await {
                Ok(()) => {}
                Err(ReadEnd::AtEnd) => return Ok(()),
                Err(why) => return Err(unreadable(why.to_string())),
            }
        }
    }

    /// Puts a record into the log of the part that has the key, if there is one.
    async fn put(
        &self,
        parts: &mut [New],
        key: Option<&[u8]>,
        (record, value, written_ms): (&[u8], &[u8], i64),
        change: Applied,
    ) -> Result<(), AppError> {
        let part = parts.iter_mut().find(|part| part.task.slice().has(key));
        let Some(part) = part else { return Ok(()) };
        part.build.push_of(written_ms, record, Some(value), change)?;
        if part.build.bytes() >= PIECE_BYTES {
            self.flush(part).await?;
            part.begin()?;
        }
        Ok(())
    }

    async fn flush(&self, part: &mut New) -> Result<(), AppError> {
        let build = std::mem::replace(&mut part.build, Build::new(self.parts.clock.wall_ms()));
        let (append, _) = build.finish(part.log, 0)?;
        let outcome = self.parts.catalog.append(vec![append]).await.pop();
        Ok(stafett_store::only_outcome(outcome.as_ref())?)
    }
}

/// True for an entry, or a timer, of another slice's key that no part takes, or that another one of the key
/// stands beside: a commit of an earlier version stored it.
fn is_stray(slot: &Slot, slots: &[Arc<Slot>], parts: &[New], (key, record): (&[u8], &[u8])) -> bool {
    if slot.task.slice().has(Some(key)) {
        return false;
    }
    let has_part = parts.iter().any(|part| part.task.slice().has(Some(key)));
    let others = slots.iter().filter(|other| other.task != slot.task);
    let mut states = others.map(|other| other.with_state(|state| Ok(state.has_record(record))));
    !has_part || states.any(|is_there| is_there != Ok(false))
}

impl New {
    /// Takes a failure of a key, or the stretch of records that are to be delivered alone, of which any may
    /// be deadly.
    fn take_failure(&mut self, input: u8, key: Option<&[u8]>, failure: &Failure) -> Result<(), AppError> {
        let is_own = self.task.slice().has(key) && failure.attempts > 0;
        let taken = if is_own {
            Some(failure.clone())
        } else {
            failure.rest(failure.offset)
        };
        let (place, alone_before) = self.failures.place_for_other(input);
        // A stretch that is known already takes no place.
        let Some(mut failure) = taken.filter(|taken| is_own || taken.alone_before > alone_before) else {
            return Ok(());
        };
        failure.alone_before = failure.alone_before.max(alone_before);
        self.failures.set(place, Some(failure.clone()));
        self.build.push_failure(place, Some(failure))
    }

    /// Each piece begins with the position, as each commit does.
    fn begin(&mut self) -> Result<(), AppError> {
        let position = self.position.encode();
        self.build.push(POSITION, Some(&position), Applied::Position)
    }
}

impl App {
    /// Returns the key of the record, or of the timer, that fails. `None` also if its topic is gone.
    async fn key_of_failure(
        &self,
        slot: &Slot,
        input: u8,
        failure: &Failure,
    ) -> Result<Option<Bytes>, AppError> {
        if let Some(timer) = &failure.timer {
            return Ok(Some(timer.key.clone()));
        }
        let none = Mark::default();
        match self.undone(slot, input.into(), failure.offset, &none).await {
            Err(AppError::NoSuchTopic(_) | AppError::TopicMadeAgain(_)) => Ok(None),
            found => Ok(found?.and_then(|record| record.key)),
        }
    }

    async fn drop_logs(&self, logs: &[LogId]) -> Result<(), NotStored> {
        let task = |(at, log): (u32, &LogId)| {
            let starts = Vec::new();
            (TaskId::whole(at), StoredTask { log: *log, starts })
        };
        let logs: BTreeMap<TaskId, StoredTask> = (0..).zip(logs).map(task).collect();
        let dropped = self
            .update(deletions(&logs), |stored| stored.unfinished.clear())
            .await;
        match dropped {
            Err(AppError::NotStored(why)) => Err(why),
            _ => Ok(()),
        }
    }

    fn replace_slots(&self, old: &[TaskId], parts: &[New]) {
        let stored = self.stored();
        let mut slots = self.slots.write();
        slots.retain(|task, _| !old.contains(task));
        for part in parts {
            if let Some(task) = stored.tasks.get(&part.task) {
                slots.insert(part.task, Slot::new(part.task, task));
            }
        }
    }
}
