//! Records, state and commits of a claimed task.

use std::sync::Arc;

use bytes::Bytes;
use stafett_topics::ReadEnd;

use crate::app::{App, Claim, Session};
use crate::definition::{Definition, Guarantee};
use crate::delivery::{Delivery, FetchLimits, Fetched, Gap, Source};
use crate::entry::key_of_entry;
use crate::error::AppError;
use crate::fail::refuse_stopped;
use crate::failure::Failure;
use crate::filter::Selection;
use crate::lost_topics::reach;
use crate::machine::WorkerError;
use crate::mark::Mark;
use crate::pace::raise;
use crate::slot::Slot;
use crate::state::{DueTimer, Entry, Scan, entry_of, read_places, read_table, timer_of};
use crate::task::TaskId;

/// Bytes of the values that one request gets.
const GET_BYTES_MAX: usize = 64 << 20;
/// Time for which the state of a task that no worker has stays in memory, after it was read.
const READ_MS: i64 = 60_000;

impl App {
    /// Reads the next records of a claim, from the offsets that the worker names, else from the last
    /// commit on. Waits for records or a timer until `wait` ends.
    pub async fn fetch(
        &self,
        session: Session<'_>,
        claim: Claim,
        from: &[Option<u64>],
        limits: FetchLimits,
        wait: impl Future<Output = ()>,
    ) -> Result<Fetched, AppError> {
        let mut wait = std::pin::pin!(wait);
        let (mut is_over, mut is_again) = (false, false);
        // Places behind records that were read and are not for the worker.
        let mut ahead = Vec::new();
        let topics = self.readable_topics().await?;
        let logs = topics.iter().filter_map(|topic| topic.log(claim.task.partition));
        let logs: Vec<_> = logs.collect();
        reach(&self.parts.catalog, topics.iter(), claim.task.partition).await?;
        let watch = self.parts.catalog.watch();
        for log in &logs {
            self.parts.catalog.watch_log(&watch, *log, 0);
        }
        loop {
            let slot = self.claimed(session, claim)?;
            if self.stored().paused {
                return Err(AppError::Paused);
            }
            let fetched = self.fetch_once(&slot, claim, (from, &ahead), limits, &logs).await;
            if matches!(fetched, Err(AppError::Unreadable { .. })) && !is_again {
                // The claim has ended by a split, or the state is read again.
                is_again = true;
                drop(slot.turn().await);
                self.claimed(session, claim)?;
                self.readable(claim.task).await?;
                continue;
            }
            let fetched = fetched?;
            let is_found = !fetched.is_empty();
            let passes = self.stored().definition.guarantee == Guarantee::AtMostOnce;
            let has_come = !fetched.records.is_empty() || !fetched.due.is_empty();
            if passes && has_come && !self.pass(session, claim, &fetched).await? {
                continue;
            }
            if !is_found {
                self.pass_left_out(session, claim, &slot).await?;
            }
            if is_found || is_over {
                self.counts.delivered.inc_by(fetched.records.len() as u64);
                self.counts.again.inc_by(slot.note_handed(&fetched));
                let late = fetched.records.iter().filter(|it| it.late).count();
                self.counts.late.inc_by(late as u64);
                self.counts.on_passed(fetched.passed);
                return Ok(fetched);
            }
            if fetched.has_moved() {
                self.counts.on_passed(fetched.passed);
                ahead.clone_from(&fetched.next);
                tokio::select! {
                    biased;
                    () = &mut wait => is_over = true,
                    () = tokio::task::yield_now() => {}
                }
                continue;
            }
            tokio::select! {
                () = &mut wait => is_over = true,
                () = watch.grown() => {}
                () = tokio::time::sleep(self.idle_step(&slot)) => {}
            }
        }
    }

    /// Time after which a waiting fetch looks at the task's time again.
    fn idle_step(&self, slot: &Slot) -> std::time::Duration {
        const LOOK_MS: u64 = 1000;
        const ALONE_MS: i64 = 10;
        let stored = self.stored();
        let told = slot.delivery.lock().told.clone();
        let now_ms = self.parts.clock.wall_ms();
        let look = slot.with_state(|state| {
            let failures = state.failures();
            let retries = failures
                .iter()
                .map(|(_, failure)| failure.retry_ms.saturating_sub(now_ms));
            let retry = retries.filter(|wait| *wait > 0).min();
            // The next one comes once a record that is delivered alone is committed.
            let alone = |failure: &Failure| failure.alone_before > 0 || failure.comes_alone();
            let alone = failures.iter().any(|(_, failure)| alone(failure));
            let retry = if alone { Some(ALONE_MS) } else { retry };
            Ok((state.next_timer_but(&told), retry))
        });
        let (next, retry) = look.unwrap_or_default();
        let look_ms = retry
            .and_then(|wait| u64::try_from(wait).ok())
            .unwrap_or(LOOK_MS)
            .min(LOOK_MS);
        let rules = stored.definition.time;
        let Some(due) = next else {
            return std::time::Duration::from_millis(look_ms);
        };
        let until = due
            .saturating_add_unsigned(if rules.of_records { rules.grace_ms } else { 0 })
            .saturating_sub(now_ms);
        let until = u64::try_from(until)
            .unwrap_or(0)
            .max(rules.idle_ms.min(LOOK_MS) / 4);
        std::time::Duration::from_millis(until.clamp(10, LOOK_MS).min(look_ms))
    }

    async fn fetch_once(
        &self,
        slot: &Arc<Slot>,
        claim: Claim,
        (from, ahead): (&[Option<u64>], &[u64]),
        limits: FetchLimits,
        logs: &[stafett_model::LogId],
    ) -> Result<Fetched, AppError> {
        let catalog = &self.parts.catalog;
        let definition = self.stored().definition.clone();
        let (mut delivery, mut fetched) = self.begin_fetch(slot, (from, ahead), logs, &definition)?;
        let (now_ms, stops) = (self.parts.clock.wall_ms(), self.letters_to().is_none());
        let (due, mark, begins) = slot.with_state(|state| {
            let mark = Mark::of(state, now_ms, stops, fetched.time);
            let due = mark.due(state, fetched.time, &delivery.told, delivery.due_max());
            delivery.note_told(&due, &fetched.next);
            let mark = mark.told(state, &delivery.told);
            fetched.position.clone_from(&state.position.next);
            if definition.guarantee == Guarantee::AtMostOnce {
                // Another fetch of the claim has passed this on.
                raise(&mut fetched.next, &state.position.next);
            }
            let begins = state.position.seq == 0 && slot.begins_at_earliest();
            Ok((due, mark, begins))
        })?;
        fetched.base.clone_from(&fetched.next);
        let source = Source {
            catalog,
            logs,
            selection: Selection::of(slot.task, &definition),
            rules: definition.time,
            stops_at_gap: definition.stops_at_gap,
            begins,
        };
        let had_gap = delivery.gap.is_some();
        // No record passes a timer that is due.
        let has_more_due = mark.next_timer.is_some_and(|due| due <= fetched.time);
        if !had_gap && !has_more_due {
            let read = delivery.read(&source, &mark, limits, &mut fetched).await;
            read.map_err(|why| match why {
                ReadEnd::NoSuchLog => self.gone_topic(),
                why @ (ReadEnd::AtEnd | ReadEnd::Failed(_) | ReadEnd::Stopped) => AppError::Input(why),
            })?;
        }
        delivery.note_told(&due, &fetched.next);
        let waits = !fetched.records.is_empty() || fetched.has_more() || mark.holds_any();
        self.note_idle(&mut delivery, waits, &definition.time);
        fetched.due = self.timers(slot, &due).await?;
        fetched.time = delivery.time_at(definition.time, &fetched.next);
        let gap = delivery.gap.filter(|_| fetched.due.is_empty());
        self.keep(slot, claim, delivery)?;
        let Some(gap) = gap else {
            if fetched.is_empty() {
                slot.with_state(|state| {
                    refuse_stopped(claim.task, state, &definition, stops, &fetched.next)
                })?;
            }
            return Ok(fetched);
        };
        if !had_gap {
            self.counts.gaps.inc();
        }
        Err(gap_error(claim.task, gap, &definition))
    }

    /// Returns the deliveries of a claim, and the answer with the place at which it begins.
    fn begin_fetch(
        &self,
        slot: &Slot,
        (from, ahead): (&[Option<u64>], &[u64]),
        logs: &[stafett_model::LogId],
        definition: &Definition,
    ) -> Result<(Delivery, Fetched), AppError> {
        let mut delivery = slot.delivery.lock().clone();
        if from.iter().flatten().next().is_none() {
            // Everything behind the last commit comes again, timers too.
            delivery.told.clear();
            delivery.alone = None;
        }
        let bounds = logs.iter().filter_map(|log| self.parts.catalog.bounds(*log));
        let mut fetched = Fetched {
            next: delivery.base.clone(),
            end: bounds.map(|bounds| bounds.stable.0).collect(),
            ..Fetched::default()
        };
        begin_at(&mut fetched.next, from, &delivery.reached, definition)?;
        raise(&mut fetched.next, ahead);
        delivery.pass_clear(&mut fetched.next);
        delivery.ends.clone_from(&fetched.end);
        if !definition.time.of_records {
            delivery.idle_ms = self.parts.clock.wall_ms();
        }
        fetched.time = delivery.time_at(definition.time, &fetched.next);
        Ok((delivery, fetched))
    }

    /// When nothing waits in any input, task time goes on with the clock.
    fn note_idle(&self, delivery: &mut Delivery, waits: bool, rules: &crate::definition::TimeRules) {
        let clock = &self.parts.clock;
        if waits || !rules.of_records {
            delivery.idle_since_ms = None;
            return;
        }
        let since = *delivery.idle_since_ms.get_or_insert_with(|| clock.now_ms());
        if clock.now_ms().saturating_sub(since) >= i64::try_from(rules.idle_ms).unwrap_or(i64::MAX) {
            let now = clock.wall_ms().saturating_sub_unsigned(rules.grace_ms);
            delivery.idle_ms = delivery.idle_ms.max(now);
        }
    }

    /// Notes the delivery, unless the claim has ended or something was committed meanwhile.
    fn keep(&self, slot: &Slot, claim: Claim, mut delivery: Delivery) -> Result<(), AppError> {
        let is_kept = slot.with_state(|state| {
            let mut known = slot.delivery.lock();
            if known.epoch != claim.epoch {
                return Ok(false);
            }
            // A commit may have changed them meanwhile.
            delivery.told.retain(|timer, _| state.has_timer(*timer));
            if known.base == delivery.base {
                delivery.merge_reached(&known);
                *known = delivery;
            } else {
                // Its worker goes on behind it, or from the commit on.
                known.merge(&delivery);
            }
            Ok(true)
        })?;
        if is_kept { Ok(()) } else { Err(self.lost(claim)) }
    }

    pub(crate) fn lost(&self, claim: Claim) -> AppError {
        let known = self.with_machine(|machine| machine.task(claim.task));
        let lost = WorkerError::LostClaim {
            task: claim.task,
            epoch: known.as_ref().map_or(0, |task| task.epoch),
            holder: known.and_then(|task| task.worker),
        };
        lost.into()
    }

    async fn timers(&self, slot: &Slot, due: &[(i64, u64)]) -> Result<Vec<DueTimer>, AppError> {
        let places: Vec<_> = due.iter().map(|(_, place)| Some(*place)).collect();
        let read = read_places(&self.parts.catalog, slot.log, &places).await;
        let read = read.map_err(|why| AppError::Unreadable { task: slot.task, why })?;
        let timers = due.iter().zip(&read);
        Ok(timers
            .filter_map(|((due, _), record)| timer_of(record.as_ref()?, *due))
            .collect())
    }

    /// Passes over the gap at which a task rests. Returns it.
    pub fn accept_gap(&self, task: TaskId) -> Result<Option<Gap>, AppError> {
        let slot = self.slot(task).ok_or(AppError::NoSuchTask(task))?;
        let mut delivery = slot.delivery.lock();
        let gap = delivery.gap.take();
        if let Some(gap) = gap {
            delivery.accepted = Some(gap);
            if let Some(reached) = delivery.reached.get_mut(gap.input) {
                *reached = gap.to.max(*reached);
            }
        }
        Ok(gap)
    }

    /// Returns the values of keys, as of the last commit.
    pub async fn get(
        &self,
        task: TaskId,
        table: &str,
        keys: &[Bytes],
    ) -> Result<(Vec<Option<Entry>>, u64), AppError> {
        let table = self.table(table)?;
        let slot = self.readable(task).await?;
        match self.get_from(&slot, table, keys).await {
            Err(AppError::Unreadable { .. }) => {
                let slot = self.followed(&slot).await?;
                self.get_from(&slot, table, keys).await
            }
            found => found,
        }
    }

    async fn get_from(
        &self,
        slot: &Slot,
        table: u16,
        keys: &[Bytes],
    ) -> Result<(Vec<Option<Entry>>, u64), AppError> {
        let (places, seq) = slot.with_state(|state| {
            let places: Vec<_> = keys.iter().map(|key| state.place_of(table, key)).collect();
            Ok((places, state.position.seq))
        })?;
        let read = read_places(&self.parts.catalog, slot.log, &places).await;
        let read = read.map_err(|why| AppError::Unreadable { task: slot.task, why })?;
        let clock = &self.parts.clock;
        let entries = read.iter().zip(keys).map(|(record, key)| {
            let entry = entry_of(record.as_ref()?, clock)?;
            (entry.key == *key).then_some(entry)
        });
        let entries: Vec<Option<Entry>> = entries.collect();
        let bytes: usize = entries.iter().flatten().map(|entry| entry.value.len()).sum();
        if bytes > GET_BYTES_MAX {
            let max = GET_BYTES_MAX as u64;
            return Err(AppError::TooLarge {
                what: "the answer",
                max,
            });
        }
        Ok((entries, seq))
    }

    /// Returns a page of a table's entries, in the order in which they were changed last.
    pub async fn scan(
        &self,
        task: TaskId,
        table: &str,
        prefix: &[u8],
        after: Option<u64>,
        count: usize,
    ) -> Result<(Scan, u64), AppError> {
        let table = self.table(table)?;
        let slot = self.readable(task).await?;
        match self.scan_from(&slot, (table, prefix), after, count).await {
            Err(AppError::Unreadable { .. }) => {
                let slot = self.followed(&slot).await?;
                self.scan_from(&slot, (table, prefix), after, count).await
            }
            found => found,
        }
    }

    async fn scan_from(
        &self,
        slot: &Slot,
        wanted: (u16, &[u8]),
        after: Option<u64>,
        count: usize,
    ) -> Result<(Scan, u64), AppError> {
        let bounds = self.parts.catalog.bounds(slot.log);
        let start = bounds.map_or(0, |bounds| bounds.start.0);
        let from = after.unwrap_or(0).max(start);
        let read = read_table(&self.parts.catalog, slot.log, from, wanted, count).await;
        let read = read.map_err(|why| AppError::Unreadable { task: slot.task, why })?;
        let clock = &self.parts.clock;
        slot.with_state(|state| {
            let mut deleted = read.deleted;
            deleted.retain(|key| after.is_some() && state.is_gone(key));
            let deleted = deleted.iter().filter_map(key_of_entry).collect();
            let current = state.keep_current(read.found);
            let entries = current.iter().filter_map(|record| entry_of(record, clock));
            let scan = Scan {
                entries: entries.collect(),
                deleted,
                next: Some(read.end).filter(|_| !read.is_all),
                end: read.end,
            };
            Ok((scan, state.position.seq))
        })
    }

    /// Returns the task to read from once a read of it has failed: a split, a merge or a reset may have ended
    /// its log meanwhile.
    pub(crate) async fn followed(&self, slot: &Slot) -> Result<Arc<Slot>, AppError> {
        // Until the change has ended.
        drop(slot.turn().await);
        self.readable(slot.task).await
    }

    fn table(&self, name: &str) -> Result<u16, AppError> {
        let known = self.stored().definition.table(name);
        known
            .map(|(number, _)| number)
            .ok_or_else(|| AppError::NoSuchTable(name.into()))
    }

    /// Reads the state of a task if it is not in memory, so that a claim of it can be shown.
    pub async fn read_in(&self, task: TaskId) {
        // A task that cannot be read says so when its worker fetches.
        drop(self.readable(task).await);
    }

    /// Returns a task whose state is in memory, also if no worker has it.
    pub(crate) async fn readable(&self, task: TaskId) -> Result<Arc<Slot>, AppError> {
        loop {
            let slot = self.slot(task).ok_or(AppError::NoSuchTask(task))?;
            if slot.state.lock().is_some() {
                return Ok(slot);
            }
            let turn = slot.turn().await;
            if self.is_current(&slot) {
                slot.load(&self.parts, &self.inputs()).await?;
                drop(turn);
                // One that no worker has does not stay in memory for long.
                self.schedule(self.parts.clock.now_ms() + READ_MS);
                return Ok(slot);
            }
        }
    }
}

fn gap_error(task: TaskId, gap: Gap, definition: &Definition) -> AppError {
    AppError::Gap {
        task,
        topic: definition.topic(gap.input),
        from: gap.from,
        to: gap.to,
    }
}

/// Moves the places at which a fetch begins to those that its worker names, within its deliveries.
fn begin_at(
    places: &mut [u64],
    from: &[Option<u64>],
    reached: &[u64],
    definition: &Definition,
) -> Result<(), AppError> {
    for (input, place) in places.iter_mut().enumerate() {
        let reached = reached.get(input).copied().unwrap_or(*place).max(*place);
        let Some(given) = from.get(input).copied().flatten() else {
            continue;
        };
        if !(*place..=reached).contains(&given) {
            return Err(AppError::BadOffset {
                field: "next",
                topic: definition.topic(input),
                given,
                from: *place,
                to: reached,
            });
        }
        *place = given;
    }
    Ok(())
}
