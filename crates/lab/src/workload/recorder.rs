//! Counts and latencies of a role.
//!
//! Drivers report per batch: one lock for as many messages as there are in it. Once a second the sampler takes what came
//! since: so there is a histogram of the second, which goes into the whole one if the second counts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::Instant;

use super::log::Log;
use super::message::Message;
use crate::results::{Counts, Latencies, RateSample, histogram};

/// Messages that were given up are remembered one by one up to this many; beyond, loss cannot be told from failure.
const GIVEN_UP_MAX: usize = 1 << 20;

/// What one role did.
#[derive(Debug)]
pub struct Recorder {
    started: Instant,
    counts: Clock,
    /// Where what goes wrong is said, and about whom.
    log: (String, Log),
    books: Mutex<Books>,
}

#[derive(Debug)]
struct Books {
    totals: Counts,
    /// Of what counts.
    measured: Counts,
    sampled: Counts,
    clients: u32,
    second: Histogram<u64>,
    whole: Histogram<u64>,
    lateness_second: Histogram<u64>,
    lateness: Histogram<u64>,
    samples: Vec<RateSample>,
    error: Option<String>,
    given_up: BTreeMap<u32, BTreeSet<u64>>,
    given_up_count: usize,
    /// When a message came last, in nanoseconds since the load began.
    latest: u64,
}

/// What a role's latency is the latency of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    Acknowledgements,
    Receptions,
}

/// One client's way to its role's recorder.
#[derive(Debug, Clone)]
pub struct Reports {
    recorder: Arc<Recorder>,
    outstanding: Arc<AtomicU64>,
}

/// The messages of a batch, as runs.
#[derive(Debug, Default, Clone)]
pub struct Parcel {
    /// Intended moments, and how many messages have each.
    moments: Vec<(u64, u64)>,
    /// Streams, and where in them a run begins and how long it is.
    runs: Vec<(u32, u64, u64)>,
    pub messages: u64,
    pub bytes: u64,
}

impl Parcel {
    #[inline]
    pub fn push(&mut self, message: &Message) {
        self.messages += 1;
        self.bytes += u64::from(message.size);
        match self.moments.last_mut() {
            Some((intended, count)) if *intended == message.intended => *count += 1,
            _ => self.moments.push((message.intended, 1)),
        }
        match self.runs.last_mut() {
            Some((stream, first, count))
                if *stream == message.stream && *first + *count == message.sequence =>
            {
                *count += 1;
            }
            _ => self.runs.push((message.stream, message.sequence, 1)),
        }
    }
}

impl<'a> FromIterator<&'a Message> for Parcel {
    fn from_iter<I: IntoIterator<Item = &'a Message>>(messages: I) -> Self {
        let mut parcel = Self::default();
        for message in messages {
            parcel.push(message);
        }
        parcel
    }
}

impl Reports {
    pub fn new(recorder: &Arc<Recorder>) -> Self {
        Self {
            recorder: Arc::clone(recorder),
            outstanding: Arc::default(),
        }
    }

    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// Messages of this client that are on their way.
    pub fn outstanding(&self) -> u64 {
        self.outstanding.load(Ordering::Relaxed)
    }

    /// Messages were handed to the driver.
    pub fn sent(&self, messages: &[Message]) {
        let count = messages.len() as u64;
        self.outstanding.fetch_add(count, Ordering::Relaxed);
        let now = self.recorder.now();
        let mut books = self.recorder.books();
        books.totals.sent += count;
        for group in messages.chunk_by(|a, b| a.intended == b.intended) {
            let bytes: u64 = group.iter().map(|message| u64::from(message.size)).sum();
            books.totals.bytes_sent += bytes;
            let late = now.saturating_sub(group.first().map_or(now, |message| message.intended));
            histogram::record(
                &mut books.lateness_second,
                Duration::from_nanos(late),
                group.len() as u64,
            );
        }
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
        for (intended, count) in &parcel.moments {
            let latency = Duration::from_nanos(now.saturating_sub(*intended));
            histogram::record(&mut books.second, latency, *count);
        }
    }

    /// They were refused, or nobody knows.
    pub fn failed(&self, parcel: &Parcel, reason: &str) {
        self.outstanding.fetch_sub(parcel.messages, Ordering::Relaxed);
        self.recorder.say(&format!("messages were not stored: {reason}"));
        let mut books = self.recorder.books();
        books.totals.failed += parcel.messages;
        books.error.get_or_insert_with(|| reason.to_owned());
        for (stream, first, count) in &parcel.runs {
            for sequence in *first..first + count {
                if books.given_up_count < GIVEN_UP_MAX
                    && books.given_up.entry(*stream).or_default().insert(sequence)
                {
                    books.given_up_count += 1;
                }
            }
        }
    }

    /// They were sent without waiting for an answer: they count, and nothing is known of them.
    pub fn unanswered(&self, parcel: &Parcel) {
        self.acknowledged(parcel);
    }
}

impl Recorder {
    pub fn new(started: Instant, counts: Clock) -> Self {
        Self {
            started,
            counts,
            log: Default::default(),
            books: Mutex::new(Books {
                totals: Counts::default(),
                measured: Counts::default(),
                sampled: Counts::default(),
                clients: 0,
                second: histogram::empty(),
                whole: histogram::empty(),
                lateness_second: histogram::empty(),
                lateness: histogram::empty(),
                samples: Vec::new(),
                error: None,
                given_up: BTreeMap::new(),
                given_up_count: 0,
                latest: 0,
            }),
        }
    }

    /// What goes wrong is also said in `log`, of a role of that name.
    #[must_use]
    pub fn saying(self, name: &str, log: &Log) -> Self {
        Self {
            log: (name.to_owned(), log.clone()),
            ..self
        }
    }

    fn say(&self, what: &str) {
        let (name, log) = &self.log;
        log.say(&format!("{name}: {what}"));
    }

    /// Nanoseconds since the load began; 0 before.
    pub fn now(&self) -> u64 {
        let elapsed = Instant::now().saturating_duration_since(self.started);
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
    }

    pub fn started(&self) -> Instant {
        self.started
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Messages came: the intended moments of the new ones, how many new ones have their moments on another host's clock,
    /// the bytes of all, and how many came again.
    pub fn received(&self, moments: &[(u64, u64)], elsewhere: u64, bytes: u64, again: u64) {
        let now = self.now();
        let mut books = self.books();
        books.latest = now;
        books.totals.received += elsewhere;
        for (intended, count) in moments {
            books.totals.received += count;
            if self.counts == Clock::Acknowledgements {
                continue;
            }
            let latency = Duration::from_nanos(now.saturating_sub(*intended));
            histogram::record(&mut books.second, latency, *count);
        }
        books.totals.bytes_received += bytes;
        books.totals.duplicated += again;
    }

    /// Changes counts that have no latency.
    pub fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.books().totals);
    }

    pub fn client_came(&self) {
        self.books().clients += 1;
    }

    pub fn client_went(&self) {
        let mut books = self.books();
        books.clients = books.clients.saturating_sub(1);
    }

    /// Something went wrong that is no message's fault.
    pub fn trouble(&self, reason: &str) {
        self.books().error.get_or_insert_with(|| reason.to_owned());
        self.say(reason);
    }

    pub fn error(&self) -> Option<String> {
        self.books().error.clone()
    }

    pub fn totals(&self) -> Counts {
        self.books().totals
    }

    /// How many messages of a range were given up by who sent them. Where there were too many to tell, not all of them.
    pub fn given_up_of(&self, stream: u32, range: Range<u64>) -> u64 {
        let books = self.books();
        let found = books.given_up.get(&stream);
        found.map_or(0, |set| set.range(range).count() as u64)
    }

    /// When a message came last, in nanoseconds since the load began.
    pub fn latest(&self) -> u64 {
        self.books().latest
    }

    /// How many different messages were given up.
    pub fn given_up(&self) -> u64 {
        self.books().given_up_count as u64
    }

    /// Whether so many were given up that loss cannot be told from failure.
    pub fn is_overwhelmed(&self) -> bool {
        self.books().given_up_count >= GIVEN_UP_MAX
    }

    pub fn last_sample(&self) -> Option<RateSample> {
        self.books().samples.last().copied()
    }

    /// Streams, and which of their messages were given up.
    pub fn all_given_up(&self) -> Vec<(u32, Vec<u64>)> {
        let books = self.books();
        let rows = books.given_up.iter();
        rows.map(|(stream, set)| (*stream, set.iter().copied().collect()))
            .collect()
    }

    /// Takes the sample of the `seconds` that end at `at_s`; with its latencies, encoded, if they are `wanted` and there
    /// are any.
    pub fn sample(
        &self,
        at_s: f64,
        seconds: f64,
        counts: bool,
        wanted: bool,
    ) -> (RateSample, Option<String>) {
        let mut books = self.books();
        let since = books.totals.since(&books.sampled);
        books.sampled = books.totals;
        let of = |quantile| (!books.second.is_empty()).then(|| books.second.value_at_quantile(quantile));
        let sample = RateSample {
            at_s,
            seconds,
            clients: books.clients,
            sent: since.sent,
            acknowledged: since.acknowledged,
            received: since.received,
            failed: since.failed,
            timed_out: since.timed_out,
            reconnects: since.reconnects,
            p50_us: of(0.5),
            p99_us: of(0.99),
            max_us: of(1.0),
        };
        books.samples.push(sample);
        let latencies = (wanted && !books.second.is_empty()).then(|| histogram::encode(&books.second));
        let Books {
            measured,
            second,
            whole,
            lateness_second,
            lateness,
            ..
        } = &mut *books;
        if counts {
            measured.add(&since);
            // Both have the same bounds, so adding does not fail.
            let _ = whole.add(&*second);
            let _ = lateness.add(&*lateness_second);
        }
        second.reset();
        lateness_second.reset();
        (sample, latencies)
    }

    /// Everything, at the end: counts of what counted, of all, the main latency, lateness and samples.
    pub fn finish(&self) -> Finished {
        let books = self.books();
        Finished {
            measured: books.measured,
            totals: books.totals,
            latency: (!books.whole.is_empty()).then(|| Latencies::of(&books.whole)),
            lateness: (!books.lateness.is_empty()).then(|| Latencies::of(&books.lateness)),
            samples: books.samples.clone(),
        }
    }
}

/// What a recorder ends with.
#[derive(Debug, Clone)]
pub struct Finished {
    pub measured: Counts,
    pub totals: Counts,
    pub latency: Option<Latencies>,
    pub lateness: Option<Latencies>,
    pub samples: Vec<RateSample>,
}
