//! Records that cannot be handled: attempts, and dead letters.
//!
//! A failure is a commit: it has a number, so a lost answer counts no attempt twice. Only the record at the
//! position can fail, so nothing before it is left undone when it goes to the dead letters.

use std::sync::Arc;

use stafett_journal::Visibility;
use stafett_model::{Offset, StoredRecord};
use stafett_store::Changing;
use stafett_topics::{ReadEnd, RecordItem, RecordTail};

use crate::app::{App, Claim, Session};
use crate::commit::NewCommit;
use crate::committing::is_repeated;
use crate::definition::Definition;
use crate::entry::Position;
use crate::error::AppError;
use crate::failure::{Attempt, ERROR_BYTES_MAX, Failure};
use crate::failures::{FailurePlace, Failures};
use crate::filter::{Passed, Selection};
use crate::mark::Mark;
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
        let _turn = self.turn_of(session, claim, &slot).await?;
        let stored = self.stored();
        let definition = &stored.definition;
        let input = u8::try_from(new.input).unwrap_or(u8::MAX);
        let (repeated, known, mark) = slot.with_state(|state| {
            let repeated = is_repeated(&state.position, claim, new.seq)?;
            let known = state.failures().of_record(input, new.offset);
            let known = known.map(|(_, failure)| failure.clone());
            Ok((repeated, known, Mark::of_done(state)))
        })?;
        if repeated {
            let dead_letter = definition.dead_letter.clone().filter(|_| known.is_none());
            return Ok(answer(new.seq, true, &known.unwrap_or_default(), dead_letter));
        }
        let next = mark.position.next.get(new.input).copied().unwrap_or(0);
        let record = self.undone(&slot, new.input, next, &mark).await?;
        let at = record.as_ref().map_or(next, |record| record.offset.0);
        let record = record.filter(|_| at == new.offset);
        let record = record.ok_or_else(|| AppError::BadOffset {
            field: "offset",
            topic: definition.topic(new.input),
            given: new.offset,
            from: at,
            to: at,
        })?;
        let (place, mut failure) =
            slot.with_state(|state| Ok(failure_of(state.failures(), input, new.offset)))?;
        let is_last = !new.retry || failure.attempts.saturating_add(1) >= definition.attempts_max;
        failure.note(self.attempt(session.worker, &new.error), is_last);
        let delivers = self.with_machine(|machine| machine.delivers_to(session.worker));
        let reached = self.reached(&slot, delivers).await?;
        self.claimed(session, claim)?;
        let noted = Noted {
            seq: new.seq,
            place,
            record,
            failure: failure.clone(),
        };
        let dead_letter = self.store_failure(&slot, claim, noted, &reached).await?;
        Ok(answer(new.seq, false, &failure, dead_letter))
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
            place,
            record,
            failure,
        } = noted;
        let letters = self.letters_to().filter(|_| failure.is_last());
        let Some(topic) = letters else {
            let kept = Some((place, failure));
            self.store_attempt((slot, claim), &numbered(seq), kept, reached)
                .await?;
            return Ok(None);
        };
        let input = usize::from(place.input);
        let commit = slot.with_state(|state| Ok(passing(seq, input, failure.offset, &state.position)))?;
        let of = self.stored().definition.topic(input);
        let letter = |form| self.letter(claim, &of, &record, &failure, form);
        self.store_letter((slot, claim), commit, &topic, reached, letter)
            .await?;
        Ok(Some(topic))
    }

    /// Stores an attempt: the failure that is kept, or a commit with a dead letter.
    pub(crate) async fn store_attempt(
        &self,
        (slot, claim): (&Slot, Claim),
        commit: &NewCommit,
        kept: Option<(FailurePlace, Failure)>,
        reached: &[u64],
    ) -> Result<(), AppError> {
        let is_last = kept.is_none();
        let prepared = self.prepare_in(slot, claim, reached, |context, state| {
            context.prepare(state, commit, kept)
        })?;
        self.store(slot, claim, prepared).await?;
        // Timers that were delivered beside it come again.
        slot.delivery.lock().told.clear();
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
        let (stops, mark) = slot.with_state(|state| {
            let mut failures = state.failures().of_input(known_input);
            let stops = failures.any(|(_, failure)| failure.is_last());
            Ok((stops, Mark::of_done(state)))
        })?;
        let place = |places: &[u64]| places.get(input).copied().unwrap_or(0);
        let (next, reached) = (place(&mark.position.next), place(&delivery.reached));
        if next >= reached || stops && self.letters_to().is_none() {
            return Ok(());
        }
        let record = match self.undone(slot, input, next, &mark).await {
            Ok(record) => record.filter(|record| record.offset.0 < reached),
            // Without the record there is nothing to blame.
            Err(_) => None,
        };
        let Some(record) = record else { return Ok(()) };
        let (place, mut failure) =
            slot.with_state(|state| Ok(failure_of(state.failures(), known_input, record.offset.0)))?;
        let attempt = self.attempt(worker, "the worker fell silent with it");
        let attempts_max = self.stored().definition.attempts_max;
        let is_last = failure.note_death(attempt, attempts_max, reached);
        self.counts.deaths.inc();
        if is_last {
            tracing::warn!(app = &*self.name, task = %claim.task, offset = record.offset.0,
                "workers fall silent with this record: it is taken to have failed");
        }
        let noted = Noted {
            // It is no commit of a worker's.
            seq: mark.position.seq,
            place,
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
        mark: &Mark,
    ) -> Result<Option<StoredRecord>, AppError> {
        let topics = self.topics()?;
        let topic = topics.get(input);
        let log = topic.and_then(|topic| topic.log(slot.task.partition));
        let log = log.ok_or_else(|| AppError::NoSuchTopic(self.stored().definition.topic(input)))?;
        let mut tail = RecordTail::new(log, Offset(next), READ_BYTES, Visibility::Committed);
        let (stored, mut passed) = (self.stored(), Passed::default());
        let selection = Selection::of(slot.task, &stored.definition);
        loop {
            while let Some(item) = tail.item() {
                let RecordItem::Record(record) = item else {
                    continue;
                };
                if !selection.passes_over(mark, input, &record, &mut passed).await {
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
}

/// A failure to store.
struct Noted {
    /// Number of its commit.
    seq: u64,
    place: FailurePlace,
    record: StoredRecord,
    failure: Failure,
}

/// Returns the failure of a record so far, and its place. Of an earlier record's, the stretch of records that
/// are delivered alone is left.
fn failure_of(failures: &Failures, input: u8, offset: u64) -> (FailurePlace, Failure) {
    if let Some((place, known)) = failures.of_record(input, offset) {
        return (place, known.clone());
    }
    let (place, alone_before) = failures.place_for_other(input);
    let failure = Failure {
        offset,
        alone_before,
        ..Failure::default()
    };
    (place, failure)
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

/// Returns an error if a record or a timer has failed for the last time, and the task `stops` at it. A record
/// before `next` was passed over since.
pub(crate) fn refuse_stopped(
    task: TaskId,
    state: &TaskState,
    definition: &Definition,
    stops: bool,
    next: &[u64],
) -> Result<(), AppError> {
    let is_ahead = |(place, failure): &(FailurePlace, &Failure)| {
        let next = next.get(usize::from(place.input));
        failure.timer.is_some() || next.is_none_or(|next| failure.offset >= *next)
    };
    let mut failures = state.failures().iter().filter(|_| stops).filter(is_ahead);
    let Some((place, failure)) = failures.find(|(_, failure)| failure.is_last()) else {
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
        topic: definition.topic(usize::from(place.input)),
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
