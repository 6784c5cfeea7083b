//! Dead letters of records and timers that failed for the last time.
//!
//! A letter is the record, with the history of its failure in headers. If the topic refuses it, as too large
//! or for its time, it is stored without the history, else without value and headers, and says so: the record
//! itself is where it was.

use bytes::Bytes;
use stafett_model::StoredRecord;
use stafett_topics::NewRecord;

use crate::app::{App, Claim};
use crate::commit::NewCommit;
use crate::error::AppError;
use crate::failure::{Attempt, FailedTimer, Failure};
use crate::slot::Slot;

/// Form of a letter. A topic that refuses one gets the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Whole,
    WithoutHistory,
    /// Key, place and error alone.
    Place,
}

const FORMS: [Form; 3] = [Form::Whole, Form::WithoutHistory, Form::Place];

/// Header of a record.
type Header = (Bytes, Option<Bytes>);

fn header(name: &'static str, value: String) -> Header {
    (Bytes::from_static(name.as_bytes()), Some(value.into()))
}

impl App {
    /// Returns the topic of dead letters. `None` if there is none now: then tasks stop at a record that
    /// failed for the last time.
    pub(crate) fn letters_to(&self) -> Option<Box<str>> {
        let name = self.stored().definition.dead_letter.clone()?;
        let topic = self.parts.catalog.topics().named(&name)?;
        (!topic.id.is_queue()).then_some(name)
    }

    /// Stores a commit with a letter, in the first form that its topic takes.
    pub(crate) async fn store_letter(
        &self,
        place: (&Slot, Claim),
        mut commit: NewCommit,
        topic: &str,
        reached: &[u64],
        letter: impl Fn(Form) -> NewRecord,
    ) -> Result<(), AppError> {
        let mut stored = Ok(());
        for form in FORMS {
            commit.emit = vec![(topic.into(), letter(form))];
            stored = self.store_attempt(place, &commit, None, reached).await;
            if !matches!(stored, Err(AppError::Emit { .. })) {
                break;
            }
        }
        stored
    }

    /// Returns the letter of a record.
    pub(crate) fn letter(
        &self,
        claim: Claim,
        topic: &str,
        record: &StoredRecord,
        failure: &Failure,
        form: Form,
    ) -> NewRecord {
        let place = [
            header("stafett-topic", topic.to_owned()),
            header("stafett-partition", claim.task.partition.to_string()),
            header("stafett-offset", record.offset.to_string()),
        ];
        let mut letter = NewRecord {
            key: record.key.clone(),
            headers: self.headers(claim, place, failure, form),
            ..NewRecord::default()
        };
        if form == Form::Place {
            let bytes = record.value.as_ref().map_or(0, Bytes::len);
            let left_out = format!("value of {bytes} bytes and headers");
            letter.headers.push(header("stafett-left-out", left_out));
            return letter;
        }
        let own = record.headers.iter();
        let own = own.map(|(name, value)| (Bytes::copy_from_slice(name), value.map(Bytes::copy_from_slice)));
        drop(letter.headers.splice(..0, own));
        letter.value.clone_from(&record.value);
        letter.timestamp = Some(record.timestamp);
        letter
    }

    /// Returns the letter of a timer: its key, and in headers its name and its time.
    pub(crate) fn timer_letter(
        &self,
        claim: Claim,
        timer: &FailedTimer,
        failure: &Failure,
        form: Form,
    ) -> NewRecord {
        let name = Some(timer.name.clone());
        let place = [
            (Bytes::from_static(b"stafett-timer"), name),
            header("stafett-due", timer.due.to_string()),
        ];
        NewRecord {
            key: Some(timer.key.clone()),
            headers: self.headers(claim, place, failure, form),
            ..NewRecord::default()
        }
    }

    /// Returns the headers of a letter: app, task, `place`, and the history of the failure.
    fn headers<const N: usize>(
        &self,
        claim: Claim,
        place: [Header; N],
        failure: &Failure,
        form: Form,
    ) -> Vec<Header> {
        let mut headers = vec![
            header("stafett-app", self.name.to_string()),
            header("stafett-task", claim.task.to_string()),
        ];
        headers.extend(place);
        headers.push(header("stafett-attempts", failure.attempts.to_string()));
        headers.push(header("stafett-error", failure.last_error().to_owned()));
        let history = failure.history.iter().filter(|_| form == Form::Whole);
        for Attempt { at_ms, worker, error } in history {
            headers.push(header("stafett-attempt", format!("{at_ms} {worker}: {error}")));
        }
        headers
    }
}
