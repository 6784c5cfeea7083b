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
use crate::definition::Definition;
use crate::entry::Position;
use crate::error::AppError;
use crate::failure::{Attempt, ERROR_BYTES_MAX, Failure};
use crate::slot::Slot;
use crate::state::TaskState;
use crate::task::TaskId;
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

/// Outcome of a failure.
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
            app.fail_here(Session::new(worker, number), claim, failure).await
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
        let definition = self.stored().definition.clone();
        let input = u8::try_from(new.input).unwrap_or(u8::MAX);
        let (repeated, known, position) = slot.with_state(|state| {
            let repeated = is_repeated(&state.position, claim, new.seq)?;
            let known = state.failures().get(&input).cloned();
            Ok((repeated, known, state.position.clone()))
        })?;
        let known = known.filter(|known| known.offset == new.offset);
        if repeated {
            let dead_letter = definition.dead_letter.filter(|_| known.is_none());
            return Ok(answer(new.seq, true, &known.unwrap_or_default(), dead_letter));
        }
        let next = position.next.get(new.input).copied().unwrap_or(0);
        let record = self.record_at(&slot, &new, next, &position).await?;
        let mut failure = known.unwrap_or_else(|| Failure {
            offset: new.offset,
            ..Failure::default()
        });
        let is_last = !new.retry || failure.attempts.saturating_add(1) >= definition.attempts_max;
        let attempt = Attempt {
            at_ms: self.parts.clock.wall_ms(),
            worker: session.worker.into(),
            error: cut(&new.error).into(),
        };
        failure.note(attempt, is_last);
        let dead_letter = definition.dead_letter.clone().filter(|_| is_last);
        let (commit, kept) = match &dead_letter {
            Some(topic) => {
                let letter = self.letter(claim, &definition.topic(new.input), record, &failure);
                let mut commit = passing(&new, &position);
                commit.emit.push((topic.clone(), letter));
                (commit, None)
            }
            None => (numbered(new.seq), Some((input, failure.clone()))),
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
            now_ms: self.parts.clock.wall_ms(),
        };
        let prepared = slot.with_state(|state| context.prepare(state, &commit, kept))?;
        self.store(&slot, claim, prepared).await?;
        self.counts.failed.inc();
        self.counts.dead_lettered.inc_by(u64::from(dead_letter.is_some()));
        Ok(answer(new.seq, false, &failure, dead_letter))
    }

    /// Reads the first record at or behind the position, which has to be the one that failed.
    pub(crate) async fn record_at(
        &self,
        slot: &Slot,
        new: &NewFailure,
        next: u64,
        position: &Position,
    ) -> Result<StoredRecord, AppError> {
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
                    RecordItem::Record(record)
                        if position.is_passed(new.input, record.offset.0, record.key.as_deref()) => {}
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

fn numbered(seq: u64) -> NewCommit {
    NewCommit {
        seq,
        ..NewCommit::default()
    }
}

/// Returns a commit whose position is behind the record. Places from which a restart reads stay, unless
/// they are at the record.
fn passing(new: &NewFailure, position: &Position) -> NewCommit {
    let mut commit = numbered(new.seq);
    for (input, (next, safe)) in position.next.iter().zip(&position.safe).enumerate() {
        let is_here = input == new.input;
        commit.next.push(is_here.then_some(new.offset + 1));
        commit
            .safe
            .push(Some(*safe).filter(|safe| !is_here || safe < next));
    }
    commit
}

/// Returns an error if a record has failed for the last time, and there is no topic for it.
pub(crate) fn refuse_stopped(
    task: TaskId,
    state: &TaskState,
    definition: &Definition,
) -> Result<(), AppError> {
    let stopped = state.failures().iter().find(|(_, failure)| failure.is_last());
    let stopped = stopped.filter(|_| definition.dead_letter.is_none());
    let Some((input, failure)) = stopped else {
        return Ok(());
    };
    Err(AppError::Failed {
        task,
        topic: definition.topic(usize::from(*input)),
        offset: failure.offset,
        attempts: failure.attempts,
        error: failure.last_error().into(),
    })
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
