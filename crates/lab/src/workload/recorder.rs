//! Counts and latencies of a role.
//!
//! Drivers report per batch: one lock for as many messages as there are in it. Once a second the sampler
//! takes the counts since the last one, with a histogram of that second.
//!
//! Counts are of events in the time that counts. Latencies are of the messages that were *meant*
//! to be sent in it, whenever they were answered, and of those that were not, as long as they had waited when
//! they were given up: else a stall that outlasts the end would hide the messages that it holds up.

mod parcel;
mod reports;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use hdrhistogram::Histogram;
use roaring::RoaringTreemap;
use stafett_model::{Lock, LockGuard};
use tokio::time::Instant;

pub use self::parcel::{Handover, Parcel};
pub use self::reports::Reports;
use super::log::Log;
use crate::results::{Counts, Latencies, RateSample, Window, Windows, histogram};

/// A shorter time without an answer is none.
const SILENCE_NANOS: u64 = 100_000_000;
const SILENCES_MAX: usize = 10_000;

/// Record of one role.
#[derive(Debug)]
pub struct Recorder {
    started: Instant,
    counts: Clock,
    /// The time that counts, in nanoseconds since the load began.
    window: Range<u64>,
    /// Name of the role, and the log of its failures.
    log: (String, Log),
    books: Lock<Books>,
}

#[derive(Debug)]
struct Books {
    totals: Counts,
    /// Of the time that counts.
    measured: Counts,
    sampled: Counts,
    clients: u32,
    second: Histogram<u64>,
    whole: Histogram<u64>,
    lateness_second: Histogram<u64>,
    lateness: Histogram<u64>,
    /// Times of polls, if there are any.
    polls: Option<Histogram<u64>>,
    samples: Vec<RateSample>,
    windows: Windows,
    error: Option<String>,
    given_up: BTreeMap<u32, RoaringTreemap>,
    given_up_count: u64,
    /// Time of the last message, in nanoseconds since the load began.
    latest: u64,
    /// From the first message sent, or the first client that received, to the last acknowledgement or
    /// reception.
    active: Option<(u64, u64)>,
    /// From the first client that began to leave to the last that had left.
    left: Option<(u64, u64)>,
    /// Time of the last answer, and the longer times between two of them.
    answered: u64,
    silences: Vec<(u64, u64)>,
}

impl Books {
    /// A message of that moment took so long.
    fn took(&mut self, window: &Range<u64>, intended: u64, nanos: u64, count: u64) {
        let latency = Duration::from_nanos(nanos);
        histogram::record(&mut self.second, latency, count);
        if window.contains(&intended) {
            histogram::record(&mut self.whole, latency, count);
        }
    }

    /// An answer came.
    fn answers(&mut self, now: u64) {
        if now.saturating_sub(self.answered) >= SILENCE_NANOS && self.silences.len() < SILENCES_MAX {
            self.silences.push((self.answered, now));
        }
        self.answered = now;
    }

    fn begins(&mut self, now: u64) {
        self.active.get_or_insert((now, now));
    }

    fn goes_on(&mut self, now: u64) {
        if let Some((_, last)) = &mut self.active {
            *last = now;
        }
    }
}

/// Kind of a role's latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    Acknowledgements,
    Receptions,
}

impl Recorder {
    pub fn new(started: Instant, counts: Clock) -> Self {
        Self {
            started,
            counts,
            window: 0..u64::MAX,
            log: Default::default(),
            books: Lock::new(Books {
                totals: Counts::default(),
                measured: Counts::default(),
                sampled: Counts::default(),
                clients: 0,
                second: histogram::empty(),
                whole: histogram::empty(),
                lateness_second: histogram::empty(),
                lateness: histogram::empty(),
                polls: None,
                samples: Vec::new(),
                windows: Windows::default(),
                error: None,
                given_up: BTreeMap::new(),
                given_up_count: 0,
                latest: 0,
                active: None,
                left: None,
                answered: 0,
                silences: Vec::new(),
            }),
        }
    }

    /// Latencies count of the messages that are meant to be sent from one of these moments on and before the
    /// other.
    #[must_use]
    pub fn counting(self, from: Duration, to: Duration) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            window: nanos(from)..nanos(to),
            ..self
        }
    }

    /// Returns the end of the time that counts, in nanoseconds since the load began.
    pub fn counts_until(&self) -> u64 {
        self.window.end
    }

    /// Writes failures to `log`, too, under the role's name.
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

    fn books(&self) -> LockGuard<'_, Books> {
        self.books.lock()
    }

    /// Messages came: the intended moments of the new ones, how many new ones have their moments on another
    /// host's clock, the bytes of all, and how many came again.
    pub fn received(&self, moments: &[(u64, u64)], elsewhere: u64, bytes: u64, again: u64) {
        let now = self.now();
        let mut books = self.books();
        books.latest = now;
        books.totals.received += elsewhere;
        if self.counts == Clock::Receptions {
            books.answers(now);
        }
        for (intended, count) in moments {
            books.totals.received += count;
            if self.counts == Clock::Acknowledgements {
                continue;
            }
            books.took(&self.window, *intended, now.saturating_sub(*intended), *count);
        }
        if self.counts == Clock::Receptions {
            books.goes_on(now);
        }
        books.totals.bytes_received += bytes;
        books.totals.duplicated += again;
    }

    /// Counts messages that were meant to be sent at these moments (and how many at each) and get no answer:
    /// each took as long as it has been waited for by now at least, and not less than `least` nanoseconds.
    pub fn waited_in_vain(&self, moments: &[(u64, u64)], least: u64) {
        let now = self.now();
        let mut books = self.books();
        for (intended, count) in moments {
            let waited = now.saturating_sub(*intended).max(least);
            books.took(&self.window, *intended, waited, *count);
        }
    }

    /// Returns the time from the first message sent, or the first client that received, to the last
    /// acknowledgement or reception.
    pub fn active(&self) -> Option<(u64, u64)> {
        self.books().active
    }

    /// A poll that was due at that moment has been answered.
    pub fn polled(&self, due: Instant) {
        let now = self.now();
        let due = due.saturating_duration_since(self.started).as_nanos();
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        if self.window.contains(&due) {
            let took = Duration::from_nanos(now.saturating_sub(due));
            let mut books = self.books();
            histogram::record(books.polls.get_or_insert_with(histogram::empty), took, 1);
        }
    }

    /// A client has unsubscribed, since that moment.
    pub fn left(&self, since: u64) {
        let now = self.now();
        let mut books = self.books();
        let (first, last) = books.left.get_or_insert((since, now));
        (*first, *last) = (since.min(*first), now.max(*last));
    }

    /// Returns the time from the first client that began to unsubscribe to the last that had done so.
    pub fn leaving(&self) -> Option<(u64, u64)> {
        self.books().left
    }

    /// Returns the stretches without an answer until now, in seconds since the load began.
    pub fn silences(&self) -> Vec<(f64, f64)> {
        let now = self.now();
        let mut books = self.books();
        books.answers(now);
        let seconds = |nanos: u64| Duration::from_nanos(nanos).as_secs_f64();
        let silences = books.silences.iter();
        silences
            .map(|(from, to)| (seconds(*from), seconds(*to)))
            .collect()
    }

    /// Changes counts that have no latency.
    pub fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.books().totals);
    }

    pub fn client_came(&self) {
        let now = self.now();
        let mut books = self.books();
        books.clients += 1;
        if self.counts == Clock::Receptions {
            books.begins(now);
        }
    }

    /// Returns the number of clients that are at work.
    pub fn clients(&self) -> u32 {
        self.books().clients
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

    /// Returns the messages of a stream that were given up by their sender.
    pub fn given_up_of(&self, stream: u32) -> RoaringTreemap {
        let books = self.books();
        books.given_up.get(&stream).cloned().unwrap_or_default()
    }

    /// Returns the time of the last message, in nanoseconds since the load began.
    pub fn latest(&self) -> u64 {
        self.books().latest
    }

    /// Returns how many different messages were given up.
    pub fn given_up(&self) -> u64 {
        self.books().given_up_count
    }

    pub fn last_sample(&self) -> Option<RateSample> {
        self.books().samples.last().copied()
    }

    /// Returns the messages that were given up, by stream.
    pub fn all_given_up(&self) -> BTreeMap<u32, RoaringTreemap> {
        self.books().given_up.clone()
    }

    /// Takes the sample of the `seconds` that end at `at_s`; with its latencies, encoded, if they are
    /// `wanted` and there are any.
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
        let mut sample = RateSample {
            at_s,
            seconds,
            clients: books.clients,
            sent: since.sent,
            acknowledged: since.acknowledged,
            received: since.received,
            failed: since.failed,
            timed_out: since.timed_out,
            reconnects: since.reconnects,
            ..RateSample::default()
        };
        sample.take_quantiles(&books.second);
        books.samples.push(sample);
        let latencies = (wanted && !books.second.is_empty()).then(|| histogram::encode(&books.second));
        let Books {
            measured,
            second,
            lateness_second,
            lateness,
            windows,
            ..
        } = &mut *books;
        windows.add(at_s, second);
        if counts {
            measured.add(&since);
            // Both have the same bounds, so adding does not fail.
            let _ = lateness.add(&*lateness_second);
        }
        second.reset();
        lateness_second.reset();
        (sample, latencies)
    }

    /// Returns everything, at the end: counts of the time that counts, of the whole, the main latency,
    /// lateness and samples.
    pub fn finish(&self) -> Finished {
        let mut books = self.books();
        Finished {
            measured: books.measured,
            totals: books.totals,
            latency: (!books.whole.is_empty()).then(|| Latencies::of(&books.whole)),
            lateness: (!books.lateness.is_empty()).then(|| Latencies::of(&books.lateness)),
            polls: books.polls.as_ref().map(Latencies::of),
            samples: books.samples.clone(),
            windows: books.windows.finish(),
        }
    }
}

/// Final state of a recorder.
#[derive(Debug, Clone)]
pub struct Finished {
    pub measured: Counts,
    pub totals: Counts,
    pub latency: Option<Latencies>,
    pub lateness: Option<Latencies>,
    pub polls: Option<Latencies>,
    pub samples: Vec<RateSample>,
    pub windows: Vec<Window>,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::message::Message;
    use super::*;

    fn messages(sequences: Range<u64>) -> Vec<Message> {
        let message = |sequence| Message {
            stream: 7,
            sequence,
            ..Message::default()
        };
        sequences.map(message).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_driver_has_not_taken_over_has_failed_and_is_remembered() {
        let recorder = Arc::new(Recorder::new(Instant::now(), Clock::Acknowledgements));
        let reports = Reports::new(&recorder);
        let all = messages(0..100_000);
        reports.sent(&all);
        for some in all.chunks(500) {
            let mut handover = Handover::new(&reports, some);
            handover.taken(1);
            assert_eq!(handover.turn(), some.get(1));
        }
        let totals = recorder.totals();
        assert_eq!((totals.failed, recorder.given_up()), (99_800, 99_800));
        assert_eq!(reports.outstanding(), 200);
        let given_up = recorder.given_up_of(7);
        assert_eq!(recorder.all_given_up(), BTreeMap::from([(7, given_up.clone())]));
        assert_eq!(
            (given_up.contains(500), given_up.contains_range(501..1000)),
            (false, true)
        );
        assert_eq!(given_up.range_cardinality(..600), 499 + 99);
    }

    #[tokio::test(start_paused = true)]
    async fn latencies_are_of_what_was_meant_for_the_time_that_counts() {
        let second = Duration::from_secs(1);
        let recorder = Recorder::new(Instant::now(), Clock::Acknowledgements).counting(second, 2 * second);
        let (recorder, mut parcel) = (Arc::new(recorder), Parcel::default());
        let reports = Reports::new(&recorder);
        let mut some = messages(0..3);
        for (message, moment) in some.iter_mut().zip([500_000_000, 1_500_000_000, 2_500_000_000]) {
            message.intended = moment;
            parcel.push(message);
        }
        tokio::time::sleep(5 * second).await;
        reports.sent_once_free(&some, 4_999_000_000);
        reports.acknowledged(&parcel);
        // Sampled long after the time that counts.
        recorder.sample(5.0, 1.0, true, false);
        let finished = recorder.finish();
        let latency = finished.latency.unwrap();
        assert_eq!((latency.count, latency.max_us / 10_000), (1, 350));
        let lateness = finished.lateness.unwrap();
        assert_eq!((lateness.count, lateness.max_us / 10), (3, 100));
    }
}
