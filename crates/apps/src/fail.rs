//! Records that cannot be handled: attempts, and dead letters.
//!
//! A failure is a commit: it has a number, so a lost answer counts no attempt twice. Only the record at the
//! position can fail, so nothing before it is left undone when it goes to the dead letters.

use std::sync::Arc;

use bytes::Bytes;
use stafett_journal::Visibility;
use stafett_model::{Offset, StoredRecord};
use stafett_store::Changing;
use stafett_topics::{NewRecord, ReadEnd, RecordItem, RecordTail};

use crate::app::{App, Claim, Session};
use crate::commit::{CommitContext, NewCommit};
use crate::error::AppError;
use crate::failure::{Attempt, ERROR_BYTES_MAX, Failure};
use crate::slot::Slot;
use crate::work::is_repeated;

/// Bytes of the read that finds the record.
const READ_BYTES: usize = 1 << 20;

/// A record that its worker could not handle.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewFailure {
    /// The last number of a commit and 1.
    pub seq: u64,
    pub input: usize,
    pub offset: u64,
    pub error: Box<str>,
    /// False if another attempt is of no use.
    pub retry: bool,
}

/// What becomes of the record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Failed {
    pub seq: u64,
    pub repeated: bool,
    pub attempts: u32,
    /// Time of the next attempt, ms since 1970.
    pub retry_ms: Option<i64>,
    /// Topic of the dead letters, if the record went there.
    pub dead_letter: Option<Box<str>>,
}

impl App {
    /// Notes that the record at the position failed. It completes whether or not its caller waits.
    pub fn fail(
        self: &Arc<Self>,
        session: Session<'_>,
        claim: Claim,
        failure: NewFailure,
    ) -> Changing<Failed, AppError> {
        let app = Arc::clone(self);
        let (worker, number) = (session.worker.to_owned(), session.number);
        self.parts.changes.begin(async move {
            let worker = &*worker;
            app.fail_here(Session { worker, number }, claim, failure).await
        })
    }

    async fn fail_here(
        &self,
        session: Session<'_>,
        claim: Claim,
        new: NewFailure,
    ) -> Result<Failed, AppError> {
        let slot = self.claimed(session, claim)?;
        let _turn = slot.turn().await;
        self.claimed(session, claim)?;
        slot.load(&self.parts.catalog, &self.topics()?).await?;
        let input = u8::try_from(new.input).unwrap_or(u8::MAX);
        let (repeated, known, next, safe) = slot.with_state(|state| {
            let repeated = is_repeated(&state.position, claim, new.seq)?;
            let known = state.failures().get(&input).cloned();
            let Some(next) = state.position.next.get(new.input).copied() else {
                return Err(AppError::Bad {
                    field: "topic",
                    why: "the app does not read this topic".to_owned(),
                });
            };
            Ok((repeated, known, next, state.position.safe.clone()))
        })?;
        let known = known.filter(|known| known.offset == new.offset);
        let definition = self.stored().definition.clone();
        if repeated {
            let dead_letter = definition.dead_letter.filter(|_| known.is_none());
            return Ok(answer(new.seq, true, &known.unwrap_or_default(), dead_letter));
        }
        let record = self.record_at(&slot, &new, next).await?;
        let now_ms = self.parts.clock.wall_ms();
        let mut failure = known.unwrap_or_else(|| Failure {
            offset: new.offset,
            ..Failure::default()
        });
        let is_last = !new.retry || failure.attempts.saturating_add(1) >= definition.attempts_max;
        failure.note(
            Attempt {
                at_ms: now_ms,
                worker: session.worker.into(),
                error: cut(&new.error).into(),
            },
            is_last,
        );
        let dead_letter = definition.dead_letter.clone().filter(|_| is_last);
        let mut commit = NewCommit {
            seq: new.seq,
            ..NewCommit::default()
        };
        let stored_failure = match &dead_letter {
            Some(topic) => {
                let beside =
                    |(at, safe): (usize, &u64)| Some(*safe).filter(|safe| at != new.input || *safe < next);
                commit.next = vec![None; safe.len()];
                if let Some(place) = commit.next.get_mut(new.input) {
                    *place = Some(new.offset + 1);
                }
                commit.safe = safe.iter().enumerate().map(beside).collect();
                let input = definition.topic(new.input);
                commit
                    .emit
                    .push((topic.clone(), self.letter(claim, &input, record, &failure)));
                None
            }
            None => Some((input, failure.clone())),
        };
        let delivers = self.with_machine(|machine| machine.delivers_to(session.worker));
        let reached = self.reached(&slot, delivers)?;
        let context = CommitContext {
            catalog: &self.parts.catalog,
            definition: &definition,
            log: slot.log,
            epoch: claim.epoch,
            reached: &reached,
            delivery: &slot.delivery.lock().clone(),
            now_ms,
        };
        let prepared = slot.with_state(|state| context.prepare(state, &commit, stored_failure))?;
        self.store(&slot, claim, prepared).await?;
        self.parts.metrics.failed.inc();
        if dead_letter.is_some() {
            self.parts.metrics.dead_lettered.inc();
        }
        Ok(answer(new.seq, false, &failure, dead_letter))
    }

    /// Reads the first record at or behind the position, which has to be the one that failed.
    async fn record_at(&self, slot: &Slot, new: &NewFailure, next: u64) -> Result<StoredRecord, AppError> {
        let topics = self.topics()?;
        let topic = topics.get(new.input);
        let log = topic.and_then(|topic| topic.log(slot.task.partition));
        let name = topic.map(|topic| topic.name.clone()).unwrap_or_default();
        let log = log.ok_or_else(|| AppError::NoSuchTopic(name.clone()))?;
        let mut tail = RecordTail::new(log, Offset(next), READ_BYTES, Visibility::Committed);
        let bad = |at: u64| AppError::BadOffset {
            field: "offset",
            topic: name.clone(),
            given: new.offset,
            from: at,
            to: at,
        };
        loop {
            while let Some(item) = tail.item() {
                match item {
                    RecordItem::Record(record) if !slot.task.slice().has(record.key.as_deref()) => {}
                    RecordItem::Record(record) if record.offset.0 == new.offset => return Ok(record),
                    RecordItem::Record(record) => return Err(bad(record.offset.0)),
                    RecordItem::Skipped(_) => {}
                }
            }
            match tail.read(&self.parts.catalog).await {
                Ok(()) => {}
                Err(ReadEnd::AtEnd) => return Err(bad(next)),
                Err(why) => return Err(AppError::Input(why)),
            }
        }
    }

    /// Returns the dead letter of a record: it, and the history of its failure in headers.
    fn letter(&self, claim: Claim, topic: &str, record: StoredRecord, failure: &Failure) -> NewRecord {
        let header = |name: &str, value: String| (Bytes::from(name.to_owned()), Some(Bytes::from(value)));
        let mut headers: Vec<_> = record
            .headers
            .iter()
            .map(|(name, value)| (Bytes::copy_from_slice(name), value.map(Bytes::copy_from_slice)))
            .collect();
        headers.push(header("stafett-app", self.name.to_string()));
        headers.push(header("stafett-task", claim.task.to_string()));
        headers.push(header("stafett-topic", topic.to_owned()));
        headers.push(header("stafett-partition", claim.task.partition.to_string()));
        headers.push(header("stafett-offset", record.offset.to_string()));
        headers.push(header("stafett-attempts", failure.attempts.to_string()));
        headers.push(header("stafett-error", failure.last_error().to_owned()));
        for attempt in &failure.history {
            let Attempt { at_ms, worker, error } = attempt;
            headers.push(header("stafett-attempt", format!("{at_ms} {worker}: {error}")));
        }
        NewRecord {
            partition: None,
            key: record.key,
            value: record.value,
            headers,
            timestamp: Some(record.timestamp),
        }
    }
}

fn answer(seq: u64, repeated: bool, failure: &Failure, dead_letter: Option<Box<str>>) -> Failed {
    Failed {
        seq,
        repeated,
        attempts: failure.attempts,
        retry_ms: Some(failure.retry_ms).filter(|_| dead_letter.is_none() && !failure.is_last()),
        dead_letter,
    }
}

/// Cuts the text of an error at its limit.
fn cut(error: &str) -> &str {
    error
        .get(..error.floor_char_boundary(ERROR_BYTES_MAX))
        .unwrap_or(error)
}
