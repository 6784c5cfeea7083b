//! One client's reports of its messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Clock, Recorder};
use crate::results::histogram;
use crate::workload::message::Message;
use crate::workload::recorder::parcel::Parcel;

/// One client's way to its role's recorder.
#[derive(Debug, Clone)]
pub struct Reports {
    recorder: Arc<Recorder>,
    outstanding: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
}

impl Reports {
    pub fn new(recorder: &Arc<Recorder>) -> Self {
        Self {
            recorder: Arc::clone(recorder),
            outstanding: Arc::default(),
            failed: Arc::default(),
        }
    }

    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// Messages of this client that are on their way.
    pub fn outstanding(&self) -> u64 {
        self.outstanding.load(Ordering::Relaxed)
    }

    /// Messages of this client that have failed.
    pub fn refused(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Counts messages that are handed to the driver now. It kept the client waiting until `free`
    /// (nanoseconds since the load began): time before that is not the client's lateness.
    pub fn sent_once_free(&self, messages: &[Message], free: u64) {
        let count = messages.len() as u64;
        self.outstanding.fetch_add(count, Ordering::Relaxed);
        let now = self.recorder.now();
        let mut books = self.recorder.books();
        books.begins(now);
        books.totals.sent += count;
        for group in messages.chunk_by(|a, b| a.intended == b.intended) {
            let bytes: u64 = group.iter().map(|message| u64::from(message.size)).sum();
            books.totals.bytes_sent += bytes;
            let due = group.first().map_or(now, |message| message.intended);
            let late = now.saturating_sub(due.max(free));
            histogram::record(
                &mut books.lateness_second,
                Duration::from_nanos(late),
                group.len() as u64,
            );
        }
    }

    /// As [`Self::sent_once_free`], of a client that waited for nothing.
    pub fn sent(&self, messages: &[Message]) {
        self.sent_once_free(messages, 0);
    }

    /// They are stored, as durably as was asked for.
    pub fn acknowledged(&self, parcel: &Parcel) {
        self.outstanding.fetch_sub(parcel.messages, Ordering::Relaxed);
        let now = self.recorder.now();
        let mut books = self.recorder.books();
        books.totals.acknowledged += parcel.messages;
        if self.recorder.counts == Clock::Receptions {
            return;
        }
        books.goes_on(now);
        books.answers(now);
        for (intended, count) in &parcel.moments {
            let waited = now.saturating_sub(*intended);
            books.took(&self.recorder.window, *intended, waited, *count);
        }
    }

    /// They were refused, or cannot have been taken.
    pub fn failed(&self, parcel: &Parcel, reason: &str) {
        self.outstanding.fetch_sub(parcel.messages, Ordering::Relaxed);
        self.failed.fetch_add(parcel.messages, Ordering::Relaxed);
        self.recorder.say(&format!("messages were not stored: {reason}"));
        let mut books = self.recorder.books();
        books.totals.failed += parcel.messages;
        books.error.get_or_insert_with(|| reason.to_owned());
        for (stream, first, count) in &parcel.runs {
            let of_stream = books.given_up.entry(*stream).or_default();
            books.given_up_count += of_stream.insert_range(*first..first + count);
        }
    }

    /// Counts messages whose answer is not awaited any more: they failed, and took at least as long as they
    /// were waited for.
    pub fn given_up(&self, parcel: &Parcel, reason: &str) {
        if parcel.messages == 0 {
            return;
        }
        self.failed(parcel, reason);
        if self.recorder.counts == Clock::Acknowledgements {
            self.recorder.waited_in_vain(&parcel.moments, 0);
        }
    }

    /// They were sent without waiting for an answer: they count, and nothing is known of them.
    pub fn unanswered(&self, parcel: &Parcel) {
        self.acknowledged(parcel);
    }
}
