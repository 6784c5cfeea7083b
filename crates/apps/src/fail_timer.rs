//! Timers that cannot be handled: attempts, and dead letters, as of records (`fail`).
//!
//! While a timer waits for its next attempt the task delivers nothing, so no record passes it. A commit that
//! sets or clears the timer ends its failure.

use std::sync::Arc;

use bytes::Bytes;
use stafett_store::Changing;
use stafett_topics::NewRecord;

use crate::app::{App, Claim, Session};
use crate::committing::is_repeated;
use crate::error::AppError;
use crate::fail::{Failed, answer, header, numbered};
use crate::failure::{FailedTimer, Failure, TIMER};

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
            timer: Some(FailedTimer {
                key: key.clone(),
                name: name.clone(),
                due,
            }),
            ..known.unwrap_or_default()
        };
        let is_last = !new.retry || failure.attempts.saturating_add(1) >= definition.attempts_max;
        failure.note(self.attempt(session.worker, &new.error), is_last);
        let dead_letter = definition.dead_letter.filter(|_| failure.is_last());
        let mut commit = numbered(new.seq);
        let mut kept = Some((TIMER, failure.clone()));
        if let Some(topic) = &dead_letter {
            commit.timers.push((key.clone(), name.clone(), None));
            let letter = self.timer_letter(claim, (key, name, due), &failure);
            commit.emit.push((topic.clone(), letter));
            kept = None;
        }
        let reached = self.reached(&slot, true)?;
        self.store_attempt((&slot, claim), &commit, kept, &reached)
            .await?;
        Ok(answer(new.seq, false, &failure, dead_letter))
    }

    /// Returns the dead letter of a timer: its key, and in headers its name, its time, and the history of its
    /// failure.
    fn timer_letter(
        &self,
        claim: Claim,
        (key, name, due): (Bytes, Bytes, i64),
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
