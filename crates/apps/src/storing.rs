//! Appends of tasks, stored in their turns and applied to their states.

use stafett_journal::{Append, Outcome, Refusal};
use stafett_model::LogId;
use stafett_store::NotStored;

use crate::app::{App, Claim, Session};
use crate::commit::{Build, Committed, Emitted, Prepared};
use crate::delivery::Fetched;
use crate::entry::{POSITION, Position, timer_key};
use crate::error::AppError;
use crate::queues::QueueMessages;
use crate::slot::Slot;
use crate::state::{Applied, DueTimer, TaskState};

/// A commit whose append is under way.
struct Part<'a> {
    slot: &'a Slot,
    claim: Claim,
    position: Position,
    changes: Vec<Applied>,
    emitted: Vec<(Box<str>, u32, u32)>,
    /// Results for queues.
    queued: u64,
}

impl App {
    pub(crate) async fn store(
        &self,
        slot: &Slot,
        claim: Claim,
        prepared: Prepared,
    ) -> Result<Committed, AppError> {
        let stored = self.store_together(vec![(slot, claim, prepared)]).await?;
        Ok(stored.into_iter().next().unwrap_or_default())
    }

    /// Stores commits of several tasks in their turns by one append, all or nothing.
    pub(crate) async fn store_together(
        &self,
        commits: Vec<(&Slot, Claim, Prepared)>,
    ) -> Result<Vec<Committed>, AppError> {
        let (mut append, mut messages) = (Append::default(), QueueMessages::new());
        let mut parts = Vec::with_capacity(commits.len());
        for (slot, claim, prepared) in commits {
            append.frames.extend(prepared.append.frames);
            append.pinned_bytes += prepared.append.pinned_bytes;
            let queued = prepared.messages.len() as u64;
            messages.extend(prepared.messages);
            parts.push(Part {
                slot,
                claim,
                position: prepared.position,
                changes: prepared.changes,
                emitted: prepared.emitted,
                queued,
            });
        }
        let began = tokio::time::Instant::now();
        let placed = match self.place(append, messages).await {
            Ok(placed) => placed,
            Err(why) => return Err(self.on_not_stored(&parts, why)),
        };
        let mut bases = placed.into_iter();
        let stored = parts
            .into_iter()
            .map(|part| self.on_stored(part, &mut bases, began));
        stored.collect()
    }

    fn on_not_stored(&self, parts: &[Part<'_>], why: AppError) -> AppError {
        if why == AppError::NotStored(NotStored::Unknown) {
            for part in parts {
                *part.slot.state.lock() = None;
            }
        }
        let claims: Vec<_> = parts.iter().map(|part| (part.slot.log, part.claim)).collect();
        self.fenced(&claims, why)
    }

    /// Ends the claim that a refusal by the journal shows to be over, and returns the error for its worker.
    pub(crate) fn fenced(&self, claims: &[(LogId, Claim)], why: AppError) -> AppError {
        if let AppError::NotStored(NotStored::Refused(Refusal::StaleOwner { log, .. })) = why
            && let Some((_, claim)) = claims.iter().find(|(known, _)| *known == log)
        {
            let Claim { task, epoch } = *claim;
            self.step(|machine, now, effects| {
                machine.lose(task, epoch, "fenced", now, effects);
                machine.skip_epochs(task, why.later_epoch());
                // Another worker may have it.
                machine.on_time(now, effects);
            });
            return self.lost(*claim);
        }
        why
    }

    /// Applies a commit that is stored. Takes the bases of its batches: the first is that of the task's log.
    fn on_stored(
        &self,
        part: Part<'_>,
        bases: &mut impl Iterator<Item = u64>,
        began: tokio::time::Instant,
    ) -> Result<Committed, AppError> {
        let Part { slot, claim, .. } = part;
        let (seq, position) = (part.position.seq, part.position.clone());
        let before = slot.known().map(|known| known.position.next).unwrap_or_default();
        let passed = position.next.iter().zip(&before);
        let passed = passed.map(|(next, was)| next.saturating_sub(*was)).sum();
        let base = bases.next().unwrap_or(0);
        slot.with_state(|state| {
            state.apply(base, part.position, part.changes);
            let mut delivery = slot.delivery.lock();
            delivery.told.retain(|timer, _| state.has_timer(*timer));
            Ok(())
        })?;
        self.note_expiry(slot);
        let mut delivery = slot.delivery.lock();
        if delivery.epoch == claim.epoch {
            delivery.on_commit(&position);
        }
        drop(delivery);
        let emitted = Emitted::at(part.emitted, bases);
        let results = part.queued + emitted.iter().map(|it| u64::from(it.count)).sum::<u64>();
        self.counts.on_commit(began.elapsed(), passed, results);
        Ok(Committed {
            seq,
            repeated: false,
            emitted,
        })
    }

    /// Stores an append of the broker's own for a task in its turn, and applies it to the state.
    pub(crate) async fn store_prepared(&self, slot: &Slot, prepared: Prepared) -> Result<(), AppError> {
        let placed = self.append(prepared.append).await.inspect_err(|why| {
            if *why == AppError::NotStored(NotStored::Unknown) {
                *slot.state.lock() = None;
            }
        })?;
        let base = placed.first().copied().unwrap_or(0);
        slot.with_state(|state| {
            state.apply(base, prepared.position, prepared.changes);
            Ok(())
        })?;
        self.note_expiry(slot);
        Ok(())
    }

    /// Stores an append together with results for queues. Returns the bases of its own batches.
    pub(crate) async fn place(&self, append: Append, messages: QueueMessages) -> Result<Vec<u64>, AppError> {
        let Some((first, _)) = messages.first() else {
            return self.append(append).await;
        };
        let none = || AppError::NoSuchQueue(first.clone());
        let queues = self.parts.queues.get().ok_or_else(none)?;
        Ok(queues.append(append, messages).await?)
    }

    async fn append(&self, append: Append) -> Result<Vec<u64>, AppError> {
        match self.parts.catalog.append(vec![append]).await.pop() {
            Some(Outcome::Committed(placed)) => Ok(placed.iter().map(|batch| batch.base.0).collect()),
            Some(Outcome::Refused(why)) => Err(NotStored::Refused(why).into()),
            Some(Outcome::Unknown) | None => Err(NotStored::Unknown.into()),
        }
    }

    /// Stores the place behind a delivery before its worker has it, and clears its timers, for an app that
    /// does nothing twice. Returns false if the task has moved on meanwhile.
    pub(crate) async fn pass(
        &self,
        session: Session<'_>,
        claim: Claim,
        fetched: &Fetched,
    ) -> Result<bool, AppError> {
        let slot = self.claimed(session, claim)?;
        let _turn = self.turn_of(session, claim, &slot).await?;
        let rules = self.stored().definition.time;
        let time = slot.delivery.lock().time_at(rules, &fetched.next);
        let now_ms = self.parts.clock.wall_ms();
        let prepared = slot.with_state(|state| {
            let is_there = |timer: &DueTimer| state.timer(&timer.key, &timer.name) == Some(timer.due);
            if state.position.next != fetched.position || !fetched.due.iter().all(is_there) {
                return Ok(None);
            }
            let position = state.position.moved_to(&fetched.next, time);
            only_position(&slot, state, claim, position, (&fetched.due, now_ms)).map(Some)
        })?;
        let passed = match prepared {
            Some(prepared) => self.store(&slot, claim, prepared).await.map(|_| true),
            None => Ok(false),
        };
        if passed != Ok(true) {
            // Its worker does not have them.
            slot.delivery.lock().told.clear();
        }
        passed
    }

    /// Stores the place before which nothing is left for a task, now and then: its worker has nothing to
    /// commit while the records of its log are those of other slices, which wait for no worker.
    pub(crate) async fn pass_left_out(
        &self,
        session: Session<'_>,
        claim: Claim,
        slot: &Slot,
    ) -> Result<(), AppError> {
        let rules = self.stored().definition.time;
        let now_ms = self.parts.clock.now_ms();
        let place = || {
            let place = slot.delivery.lock().left_out(rules)?;
            let known = slot.known()?.position.next;
            let moves = place.0.iter().zip(&known).any(|(place, next)| place > next);
            moves.then_some(place)
        };
        if place().is_none() || !slot.may_pass(now_ms) {
            return Ok(());
        }
        let _turn = self.turn_of(session, claim, slot).await?;
        let Some((place, time)) = place() else {
            return Ok(());
        };
        let prepared = slot.with_state(|state| {
            let position = state.position.moved_to(&place, time);
            only_position(slot, state, claim, position, (&[], self.parts.clock.wall_ms()))
        })?;
        let position = prepared.position.clone();
        if let Err(why) = self.store_prepared(slot, prepared).await {
            tracing::debug!(app = &*self.name, task = %claim.task, "a place is not stored: {why}");
            return Ok(());
        }
        slot.delivery.lock().lowest.on_passed(&position);
        Ok(())
    }
}

/// Builds a commit that stores a position, and clears timers.
fn only_position(
    slot: &Slot,
    state: &TaskState,
    claim: Claim,
    position: Position,
    (fired, now_ms): (&[DueTimer], i64),
) -> Result<Prepared, AppError> {
    let mut build = Build::new(now_ms);
    build.push(POSITION, Some(&position.encode()), Applied::Position)?;
    build.push_rest(state, &position)?;
    for timer in fired {
        let record = timer_key(&timer.key, &timer.name);
        let change = Applied::Timer(state.hash(&record), None);
        build.push(&record, None, change)?;
    }
    let (append, changes) = build.finish(slot.log, claim.epoch)?;
    Ok(Prepared {
        append,
        position,
        changes,
        emitted: Vec::new(),
        messages: Vec::new(),
    })
}
