//! Timers that cannot be handled: attempts, and dead letters, as of records (`fail`).
//!
//! While a timer waits for its next attempt the task delivers nothing, so no record passes it. A commit that
//! sets or clears the timer ends its failure.

use std::sync::Arc;

use bytes::Bytes;
use stafett_store::Changing;

use crate::app::{App, Claim, Session};
use crate::committing::is_repeated;
use crate::delivery::Told;
use crate::error::AppError;
use crate::fail::{Failed, answer, numbered};
use crate::failure::{FailedTimer, Failure, TIMER};
use crate::slot::Slot;
use crate::state::{DueTimer, read_places, timer_of};

/// A timer that its worker could not handle.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewTimerFailure {
    /// The last number of a commit and 1.
    pub seq: u64,
    pub key: Bytes,
    pub name: Bytes,
    pub error: Box<str>,
    /// False if another attempt is of no use.
    pub retry: bool,
}

impl App {
    /// Notes that a timer failed. It completes whether or not its caller waits.
    pub fn fail_timer(
        self: &Arc<Self>,
        session: Session<'_>,
        claim: Claim,
        failure: NewTimerFailure,
    ) -> Changing<Failed, AppError> {
        let app = Arc::clone(self);
        let (worker, number) = (session.worker.to_owned(), session.number);
        self.parts.changes.begin(async move {
            let session = Session::new(&worker, number);
            app.fail_timer_here(session, claim, failure).await
        })
    }

    async fn fail_timer_here(
        &self,
        session: Session<'_>,
        claim: Claim,
        new: NewTimerFailure,
    ) -> Result<Failed, AppError> {
        let slot = self.claimed(session, claim)?;
        let _turn = self.turn_of(session, claim, &slot).await?;
        let stored = self.stored();
        let definition = &stored.definition;
        let (key, name) = (new.key, new.name);
        let (repeated, known, due) = slot.with_state(|state| {
            let repeated = is_repeated(&state.position, claim, new.seq)?;
            let known = state.failures().of_timer(&key, &name);
            let known = known.map(|(_, failure)| failure.clone());
            Ok((repeated, known, state.timer(&key, &name)))
        })?;
        if repeated {
            let dead_letter = definition.dead_letter.clone().filter(|_| known.is_none());
            return Ok(answer(new.seq, true, &known.unwrap_or_default(), dead_letter));
        }
        let due = due.ok_or_else(|| AppError::Bad {
            field: "timer",
            why: "the key has no timer of this name".to_owned(),
        })?;
        let mut failure = known.unwrap_or_default();
        let is_last = !new.retry || failure.attempts.saturating_add(1) >= definition.attempts_max;
        failure.note(self.attempt(session.worker, &new.error), is_last);
        let timer = FailedTimer { key, name, due };
        let dead_letter = self
            .store_timer((&slot, claim), new.seq, &timer, &failure)
            .await?;
        Ok(answer(new.seq, false, &failure, dead_letter))
    }

    /// Stores the failure of a timer. One that is the last goes to the dead letters, if there is a topic for
    /// them, which is returned.
    async fn store_timer(
        &self,
        (slot, claim): (&Slot, Claim),
        seq: u64,
        timer: &FailedTimer,
        failure: &Failure,
    ) -> Result<Option<Box<str>>, AppError> {
        let reached = self.reached(slot, true).await?;
        let mut commit = numbered(seq);
        let Some(topic) = self.letters_to().filter(|_| failure.is_last()) else {
            let place = slot.with_state(|state| {
                let known = state.failures().of_timer(&timer.key, &timer.name);
                let known = known.map(|(place, _)| place);
                Ok(known.unwrap_or_else(|| state.failures().place_for_other(TIMER).0))
            })?;
            let failure = Failure {
                timer: Some(timer.clone()),
                ..failure.clone()
            };
            let kept = Some((place, failure));
            self.store_attempt((slot, claim), &commit, kept, &reached).await?;
            return Ok(None);
        };
        commit.timers.push((timer.key.clone(), timer.name.clone(), None));
        let letter = |form| self.timer_letter(claim, timer, failure, form);
        self.store_letter((slot, claim), commit, &topic, &reached, letter)
            .await?;
        Ok(Some(topic))
    }

    /// Notes that a worker fell silent, for the first timer that was delivered and not committed: a worker
    /// does those before records, unless these brought its time: it is later than `time` then, that of the
    /// last commit. False if there is none. Called as [`Self::note_death`] is.
    pub(crate) async fn note_timer_death(
        &self,
        slot: &Slot,
        claim: Claim,
        worker: &str,
        (told, time): (&Told, i64),
    ) -> Result<bool, AppError> {
        let first = told.first_key_value().map(|(timer, _)| *timer);
        let Some((due, place)) = first.filter(|(due, _)| *due <= time) else {
            return Ok(false);
        };
        let read = read_places(&self.parts.catalog, slot.log, &[Some(place)]).await;
        let record = read.ok().and_then(|mut read| read.pop()?);
        let Some(timer) = record.and_then(|record| timer_of(&record, due)) else {
            return Ok(false);
        };
        let DueTimer { key, name, due } = timer;
        let timer = FailedTimer { key, name, due };
        let (seq, known) = slot.with_state(|state| {
            let known = state.failures().of_timer(&timer.key, &timer.name);
            let known = known.filter(|(_, known)| known.timer.as_ref() == Some(&timer));
            let known = known.map(|(_, failure)| failure.clone());
            Ok((state.position.seq, known.unwrap_or_default()))
        })?;
        if known.is_last() && self.letters_to().is_none() {
            return Ok(true);
        }
        let mut failure = known;
        let attempt = self.attempt(worker, "the worker fell silent with it");
        let attempts_max = self.stored().definition.attempts_max;
        let is_last = failure.note_death(attempt, attempts_max, 0);
        self.counts.deaths.inc();
        if is_last {
            tracing::warn!(app = &*self.name, task = %claim.task, due,
                "workers fall silent with this timer: it is taken to have failed");
        }
        self.store_timer((slot, claim), seq, &timer, &failure).await?;
        Ok(true)
    }
}
