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
use crate::committing::is_repeated;
use crate::definition::Definition;
use crate::entry::Position;
use crate::error::AppError;
use crate::failure::{Attempt, ERROR_BYTES_MAX, Failure};
use crate::slot::Slot;
use crate::state::TaskState;
use crate::task::TaskId;

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
        slot.load(&self.parts.catalog, &self.inputs()).await?;
        let definition = self.stored().definition.clone();
        let input = u8::try_from(new.input).unwrap_or(u8::MAX);
        let (repeated, known, position) = slot.with_state(|state| {
            let repeated = is_repeated(&state.position, claim, new.seq)?;
            let known = state.failures().get(&input).cloned();
            Ok((repeated, known, state.position.clone()))
        })?;
        if repeated {
            let known = known.filter(|known| known.offset == new.offset);
            let dead_letter = definition.dead_letter.filter(|_| known.is_none());
            return Ok(answer(new.seq, true, &known.unwrap_or_default(), dead_letter));
        }
        let next = position.next.get(new.input).copied().unwrap_or(0);
        let record = self.undone(&slot, new.input, next, &position).await?;
        let at = record.as_ref().map_or(next, |record| record.offset.0);
        let record = record.filter(|_| at == new.offset);
        let record = record.ok_or_else(|| AppError::BadOffset {
            field: "offset",
            topic: definition.topic(new.input),
            given: new.offset,
            from: at,
            to: at,
        })?;
        let mut failure = failure_of(known, new.offset);
        let is_last = !new.retry || failure.attempts.saturating_add(1) >= definition.attempts_max;
        failure.note(self.attempt(session.worker, &new.error), is_last);
        let delivers = self.with_machine(|machine| machine.delivers_to(session.worker));
        let reached = self.reached(&slot, delivers)?;
        let noted = Noted {
            seq: new.seq,
            input,
            record,
            failure: failure.clone(),
        };
        let dead_letter = self.store_failure(&slot, claim, noted, &reached).await?;
        Ok(answer(new.seq, false, &failure, dead_letter))
    }

    /// Returns true if the app has a topic for dead letters, and the attempts that it allows.
    pub(crate) fn letters(&self) -> (bool, u32) {
        let definition = &self.stored().definition;
        (definition.dead_letter.is_some(), definition.attempts_max)
    }

    pub(crate) fn attempt(&self, worker: &str, error: &str) -> Attempt {
        Attempt {
            at_ms: self.parts.clock.wall_ms(),
            worker: worker.into(),
            error: cut(error).into(),
        }
    }

    /// Stores the failure of a record. One that is the last goes to the dead letters, if there is a topic for
    /// them, which is returned.
    async fn store_failure(
        &self,
        slot: &Slot,
        claim: Claim,
        noted: Noted,
        reached: &[u64],
    ) -> Result<Option<Box<str>>, AppError> {
        let Noted {
            seq,
            input,
            record,
            failure,
        } = noted;
        let definition = self.stored().definition.clone();
        let position = slot.with_state(|state| Ok(state.position.clone()))?;
        let dead_letter = definition.dead_letter.clone().filter(|_| failure.is_last());
        let (commit, kept) = match &dead_letter {
            Some(topic) => {
                let mut commit = passing(seq, usize::from(input), failure.offset, &position);
                let letter = self.letter(claim, &definition.topic(input.into()), record, &failure);
                commit.emit.push((topic.clone(), letter));
                (commit, None)
            }
            None => (numbered(seq), Some((input, failure))),
        };
        self.store_attempt((slot, claim), &commit, kept, reached).await?;
        Ok(dead_letter)
    }

    /// Stores an attempt: the failure that is kept, or a commit with a dead letter.
    pub(crate) async fn store_attempt(
        &self,
        (slot, claim): (&Slot, Claim),
        commit: &NewCommit,
        kept: Option<(u8, Failure)>,
        reached: &[u64],
    ) -> Result<(), AppError> {
        let stored = self.stored();
        let context = CommitContext {
            catalog: &self.parts.catalog,
            definition: &stored.definition,
            log: slot.log,
            slice: slot.task.slice(),
            epoch: claim.epoch,
            reached,
            delivery: &slot.delivery.lock().clone(),
            now_ms: self.parts.clock.wall_ms(),
        };
        let is_last = kept.is_none();
        let prepared = slot.with_state(|state| context.prepare(state, commit, kept))?;
        self.store(slot, claim, prepared).await?;
        self.counts.failed.inc();
        self.counts.dead_lettered.inc_by(u64::from(is_last));
        Ok(())
    }

    /// Notes that a worker fell silent, for the first timer or record that was delivered to it and is not
    /// done. A record under which worker after worker dies is taken to have failed. Called in the task's
    /// turn, under the claim that follows.
    pub(crate) async fn note_death(&self, slot: &Slot, claim: Claim, worker: &str) -> Result<(), AppError> {
        let delivery = slot.delivery.lock().clone();
        let rules = self.stored().definition.time;
        let time = slot.with_state(|state| Ok(delivery.time_at(rules, &state.position.next)))?;
        if self
            .note_timer_death(slot, claim, worker, (&delivery.told, time))
            .await?
        {
            return Ok(());
        }
        let input = delivery.last_input();
        let known_input = u8::try_from(input).unwrap_or(u8::MAX);
        let (known, position) = slot.with_state(|state| {
            Ok((
                state.failures().get(&known_input).cloned(),
                state.position.clone(),
            ))
        })?;
        let place = |places: &[u64]| places.get(input).copied().unwrap_or(0);
        let (next, reached) = (place(&position.next), place(&delivery.reached));
        let (has_topic, attempts_max) = self.letters();
        if next >= reached || !has_topic && known.as_ref().is_some_and(Failure::is_last) {
            return Ok(());
        }
        let record = match self.undone(slot, input, next, &position).await {
            Ok(record) => record.filter(|record| record.offset.0 < reached),
            // Without the record there is nothing to blame.
            Err(_) => None,
        };
        let Some(record) = record else { return Ok(()) };
        let mut failure = failure_of(known, record.offset.0);
        let attempt = self.attempt(worker, "the worker fell silent with it");
        let is_last = failure.note_death(attempt, attempts_max, reached);
        self.counts.deaths.inc();
        if is_last {
            tracing::warn!(app = &*self.name, task = %claim.task, offset = record.offset.0,
                "workers fall silent with this record: it is taken to have failed");
        }
        let noted = Noted {
            // It is no commit of a worker's.
            seq: position.seq,
            input: known_input,
            record,
            failure,
        };
        self.store_failure(slot, claim, noted, &delivery.reached)
            .await
            .map(drop)
    }

    /// Reads the first record at or behind a place that is not done. `None` if there is none.
    pub(crate) async fn undone(
        &self,
        slot: &Slot,
        input: usize,
        next: u64,
        position: &Position,
    ) -> Result<Option<StoredRecord>, AppError> {
        let topics = self.topics()?;
        let topic = topics.get(input);
        let log = topic.and_then(|topic| topic.log(slot.task.partition));
        let log = log.ok_or_else(|| AppError::NoSuchTopic(self.stored().definition.topic(input)))?;
        let mut tail = RecordTail::new(log, Offset(next), READ_BYTES, Visibility::Committed);
        loop {
            while let Some(item) = tail.item() {
                let RecordItem::Record(record) = item else {
                    continue;
                };
                let key = record.key.as_deref();
                if slot.task.slice().has(key) && !position.is_passed(input, record.offset.0, key) {
                    return Ok(Some(record));
                }
            }
            match tail.read(&self.parts.catalog).await {
                Ok(()) => {}
                Err(ReadEnd::AtEnd) => return Ok(None),
                Err(why) => return Err(AppError::Input(why)),
            }
        }
    }

    /// Returns the headers of a dead letter: app, task, `place`, and the history of the failure.
    pub(crate) fn headers_of<const N: usize>(
        &self,
        claim: Claim,
        place: [Header; N],
        failure: &Failure,
    ) -> Vec<Header> {
        let mut headers = vec![
            header("stafett-app", self.name.to_string()),
            header("stafett-task", claim.task.to_string()),
        ];
        headers.extend(place);
        headers.push(header("stafett-attempts", failure.attempts.to_string()));
        headers.push(header("stafett-error", failure.last_error().to_owned()));
        for attempt in &failure.history {
            let Attempt { at_ms, worker, error } = attempt;
            headers.push(header("stafett-attempt", format!("{at_ms} {worker}: {error}")));
        }
        headers
    }

    /// Returns the dead letter of a record: it, and the history of its failure in headers.
    fn letter(&self, claim: Claim, topic: &str, record: StoredRecord, failure: &Failure) -> NewRecord {
        let own = record.headers.iter();
        let own = own.map(|(name, value)| (Bytes::copy_from_slice(name), value.map(Bytes::copy_from_slice)));
        let place = [
            header("stafett-topic", topic.to_owned()),
            header("stafett-partition", claim.task.partition.to_string()),
            header("stafett-offset", record.offset.to_string()),
        ];
        let headers = own.chain(self.headers_of(claim, place, failure)).collect();
        NewRecord {
            partition: None,
            key: record.key,
            value: record.value,
            headers,
            timestamp: Some(record.timestamp),
        }
    }
}

/// Header of a record.
pub(crate) type Header = (Bytes, Option<Bytes>);

pub(crate) fn header(name: &'static str, value: String) -> Header {
    (Bytes::from_static(name.as_bytes()), Some(value.into()))
}

/// A failure to store.
struct Noted {
    /// Number of its commit.
    seq: u64,
    input: u8,
    record: StoredRecord,
    failure: Failure,
}

/// Returns the failure of a record so far. Of an earlier record's, the stretch of records that are delivered
/// alone is left.
fn failure_of(known: Option<Failure>, offset: u64) -> Failure {
    match known {
        Some(known) if known.offset == offset => known,
        known => Failure {
            offset,
            alone_before: known.map_or(0, |known| known.alone_before),
            ..Failure::default()
        },
    }
}

pub(crate) fn numbered(seq: u64) -> NewCommit {
    NewCommit {
        seq,
        ..NewCommit::default()
    }
}

/// Returns a commit whose position is behind the record. Places from which a restart reads stay, unless
/// they are at the record.
fn passing(seq: u64, failed: usize, offset: u64, position: &Position) -> NewCommit {
    let mut commit = numbered(seq);
    for (input, (next, safe)) in position.next.iter().zip(&position.safe).enumerate() {
        let is_here = input == failed;
        commit.next.push(is_here.then_some(offset + 1));
        commit
            .safe
            .push(Some(*safe).filter(|safe| !is_here || safe < next));
    }
    commit
}

/// Returns an error if a record or a timer has failed for the last time, and there is no topic for it.
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
    if let Some(timer) = &failure.timer {
        return Err(AppError::TimerFailed {
            task,
            due: timer.due,
            attempts: failure.attempts,
            error: failure.last_error().into(),
        });
    }
    Err(AppError::Failed {
        task,
        topic: definition.topic(usize::from(*input)),
        offset: failure.offset,
        attempts: failure.attempts,
        error: failure.last_error().into(),
    })
}

pub(crate) fn answer(seq: u64, repeated: bool, failure: &Failure, dead_letter: Option<Box<str>>) -> Failed {
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
