//! Timers that cannot be handled: attempts, and dead letters, as of records (`fail`).
//!
//! While a timer waits for its next attempt the task delivers nothing, so no record passes it. A commit that
//! sets or clears the timer ends its failure.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use stafett_store::Changing;
use stafett_topics::NewRecord;

use crate::app::{App, Claim, Session};
use crate::committing::is_repeated;
use crate::error::AppError;
use crate::fail::{Failed, answer, header, numbered};
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
        let _turn = slot.turn().await;
        self.claimed(session, claim)?;
        slot.load(&self.parts.catalog, &self.inputs()).await?;
        let definition = self.stored().definition.clone();
        let (repeated, known, due) = slot.with_state(|state| {
            let repeated = is_repeated(&state.position, claim, new.seq)?;
            let known = state.failures().get(&TIMER).cloned();
            Ok((repeated, known, state.timer(&new.key, &new.name)))
        })?;
        let is_same = |timer: &FailedTimer| timer.key == new.key && timer.name == new.name;
        let known = known.filter(|known| known.timer.as_ref().is_some_and(is_same));
        if repeated {
            let dead_letter = definition.dead_letter.filter(|_| known.is_none());
            return Ok(answer(new.seq, true, &known.unwrap_or_default(), dead_letter));
        }
        let due = due.ok_or_else(|| AppError::Bad {
            field: "timer",
            why: "the key has no timer of this name".to_owned(),
        })?;
        let (key, name) = (new.key, new.name);
        let mut failure = Failure {
            timer: Some(FailedTimer { key, name, due }),
            ..known.unwrap_or_default()
        };
        let is_last = !new.retry || failure.attempts.saturating_add(1) >= definition.attempts_max;
        failure.note(self.attempt(session.worker, &new.error), is_last);
        let dead_letter = self.store_timer((&slot, claim), new.seq, &failure).await?;
        Ok(answer(new.seq, false, &failure, dead_letter))
    }

    /// Stores the failure of a timer. One that is the last goes to the dead letters, if there is a topic for
    /// them, which is returned.
    async fn store_timer(
        &self,
        (slot, claim): (&Slot, Claim),
        seq: u64,
        failure: &Failure,
    ) -> Result<Option<Box<str>>, AppError> {
        let dead_letter = self.stored().definition.dead_letter.clone();
        let dead_letter = dead_letter.filter(|_| failure.is_last());
        let mut commit = numbered(seq);
        let mut kept = Some((TIMER, failure.clone()));
        if let (Some(topic), Some(timer)) = (&dead_letter, &failure.timer) {
            let FailedTimer { key, name, .. } = timer.clone();
            commit.timers.push((key, name, None));
            let letter = self.timer_letter(claim, timer.clone(), failure);
            commit.emit.push((topic.clone(), letter));
            kept = None;
        }
        let reached = self.reached(slot, true)?;
        self.store_attempt((slot, claim), &commit, kept, &reached).await?;
        Ok(dead_letter)
    }

    /// Notes that a worker fell silent, for the first timer that was delivered and not committed: a worker
    /// does those before records, unless these brought its time: it is later than `time` then, that of the
    /// last commit. False if there is none. Called as [`Self::note_death`] is.
    pub(crate) async fn note_timer_death(
        &self,
        slot: &Slot,
        claim: Claim,
        worker: &str,
        (told, time): (&BTreeSet<(i64, u64)>, i64),
    ) -> Result<bool, AppError> {
        let Some((due, place)) = told.first().copied().filter(|(due, _)| *due <= time) else {
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
            let known = state.failures().get(&TIMER);
            let known = known.filter(|known| known.timer.as_ref() == Some(&timer));
            Ok((state.position.seq, known.cloned().unwrap_or_default()))
        })?;
        let (has_topic, attempts_max) = self.letters();
        if known.is_last() && !has_topic {
            return Ok(true);
        }
        let mut failure = Failure {
            timer: Some(timer),
            ..known
        };
        let attempt = self.attempt(worker, "the worker fell silent with it");
        let is_last = failure.note_death(attempt, attempts_max, 0);
        self.counts.deaths.inc();
        if is_last {
            tracing::warn!(app = &*self.name, task = %claim.task, due,
                "workers fall silent with this timer: it is taken to have failed");
        }
        self.store_timer((slot, claim), seq, &failure).await?;
        Ok(true)
    }

    /// Returns the dead letter of a timer: its key, and in headers its name, its time, and the history of its
    /// failure.
    fn timer_letter(
        &self,
        claim: Claim,
        FailedTimer { key, name, due }: FailedTimer,
        failure: &Failure,
    ) -> NewRecord {
        let place = [
            (Bytes::from_static(b"stafett-timer"), Some(name)),
            header("stafett-due", due.to_string()),
        ];
        NewRecord {
            key: Some(key),
            headers: self.headers_of(claim, place, failure),
            ..NewRecord::default()
        }
    }
}
