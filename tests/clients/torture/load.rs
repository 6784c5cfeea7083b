//! State shared by the clients of a round, and the records of each client.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::PATIENCE;

/// A settlement is stored for certain if something that was sent this much later is stored: settlements wait
/// for some milliseconds, and the journal keeps the order. The clock alone proves nothing: on a busy machine
/// the process may have to wait.
const SETTLED_WINDOW: Duration = Duration::from_secs(1);
/// Maximum acknowledged and unread items of each kind of work.
const UNREAD_MAX: i64 = 40;

/// Kinds of work, each of which has to make progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// A batch of a partition.
    Produce,
    /// A request with many batches.
    ProduceWide,
    /// An AMQP message.
    Publish,
    /// An AMQP message that was delivered and settled.
    Settle,
    /// A live message.
    Live,
    /// A live message that was delivered.
    Hear,
    /// A change of a live subscription.
    Subscribe,
}

pub(super) const WORKS: [Work; 7] = [
    Work::Produce,
    Work::ProduceWide,
    Work::Publish,
    Work::Settle,
    Work::Live,
    Work::Hear,
    Work::Subscribe,
];

#[derive(Debug)]
pub(super) struct Load {
    begun: Instant,
    stop: AtomicBool,
    /// Completed items by kind of work.
    done: [AtomicU64; WORKS.len()],
    /// Stored and unread items by kind of work.
    unread: [AtomicI64; WORKS.len()],
    /// True after a fault that allows the broker to refuse requests.
    may_refuse: AtomicBool,
    /// Time at which the last item that is known to be stored was sent.
    stored: Mutex<Option<Instant>>,
    /// For each end of the process: the value of `stored` at its begin, and the time at which it was over.
    deaths: Mutex<Vec<(Instant, Instant)>>,
}

impl Load {
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
            stop: AtomicBool::default(),
            done: Default::default(),
            unread: Default::default(),
            may_refuse: AtomicBool::default(),
            stored: Mutex::default(),
            deaths: Mutex::default(),
        }
    }

    pub(super) fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(super) fn done(&self, work: Work) {
        self.done[work as usize].fetch_add(1, Ordering::Relaxed);
        self.unread[work as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Records that an item of this kind was read.
    pub(super) fn read(&self, work: Work) {
        self.unread[work as usize].fetch_sub(1, Ordering::Relaxed);
    }

    /// Records that no item of this kind is left to read. The count may be wrong: unacknowledged items are
    /// read too, and some are read twice.
    pub(super) fn all_read(&self, work: Work) {
        self.unread[work as usize].store(0, Ordering::Relaxed);
    }

    /// True if a client may send more now. Waits a millisecond if it may not.
    pub(super) fn has_room(&self, work: Work) -> bool {
        let has_room = self.unread[work as usize].load(Ordering::Relaxed) < UNREAD_MAX;
        if !has_room {
            thread::sleep(Duration::from_millis(1));
        }
        has_room
    }

    /// Returns the number of all completed items.
    pub(super) fn total(&self) -> u64 {
        self.counts().iter().sum()
    }

    fn counts(&self) -> [u64; WORKS.len()] {
        WORKS.map(|work| self.done[work as usize].load(Ordering::Relaxed))
    }

    /// Waits until `more` items of every kind are completed. Returns the time that it took.
    pub(super) fn await_progress(&self, more: u64, patience: Duration) -> Duration {
        let begun = Instant::now();
        let awaited = self.counts().map(|count| count + more);
        loop {
            let counts = self.counts();
            let late: Vec<_> = (0..WORKS.len())
                .filter(|work| counts[*work] < awaited[*work])
                .map(|work| WORKS[work])
                .collect();
            if late.is_empty() {
                return begun.elapsed();
            }
            assert!(
                begun.elapsed() < patience,
                "no progress after {:?}: {late:?}",
                begun.elapsed()
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until `count` more items are completed.
    pub(super) fn await_total(&self, count: u64) {
        let awaited = self.total() + count;
        let begun = Instant::now();
        while self.total() < awaited {
            assert!(begun.elapsed() < PATIENCE, "nothing is acknowledged any more");
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn allow_refusals(&self) {
        self.may_refuse.store(true, Ordering::Relaxed);
    }

    /// Records that an item that was sent at `sent` is stored.
    pub(super) fn stored(&self, sent: Instant) {
        *self.stored.lock().unwrap() = Some(sent);
    }

    /// Runs `end`, which ends the process or makes it fail.
    pub(super) fn death(&self, end: impl FnOnce()) {
        // Recorded first, because messages may return while it runs.
        let far = Instant::now() + Duration::from_hours(1);
        let number = {
            let stored = self.stored.lock().unwrap().unwrap_or(self.begun);
            let mut deaths = self.deaths.lock().unwrap();
            deaths.push((stored, far));
            deaths.len() - 1
        };
        end();
        self.deaths.lock().unwrap()[number].1 = Instant::now();
    }

    /// True if a message that was settled for certain at that time may return.
    pub(super) fn may_come_back(&self, settled: Instant) -> bool {
        let deaths = self.deaths.lock().unwrap();
        let mut deaths = deaths.iter();
        deaths.any(|(stored, end)| settled + SETTLED_WINDOW > *stored && settled < *end)
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = WORKS.iter().zip(self.counts());
        f.debug_map().entries(counts).finish()
    }
}

/// Items that a client has sent: the numbers below `next`.
#[derive(Debug, Default)]
pub(super) struct Sent {
    next: u64,
    acknowledged: Vec<u64>,
    refused: Vec<u64>,
    /// Answers other than success.
    refusals: Vec<String>,
}

impl Sent {
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn acknowledge(&mut self, number: u64) {
        self.acknowledged.push(number);
    }

    pub(super) fn acknowledged(&self) -> &[u64] {
        &self.acknowledged
    }

    pub(super) fn refuse(&mut self, number: u64, answer: String) {
        self.refused.push(number);
        self.refusals.push(answer);
        thread::sleep(Duration::from_millis(5));
    }

    /// Compares the sent items with the stored ones.
    pub(super) fn check(&self, place: &str, stored: &[u64], load: &Load) {
        assert!(
            stored.is_sorted_by(|one, next| one < next),
            "{place}: something is there twice or out of order: {stored:?}"
        );
        self.check_refused(place, |number| stored.binary_search(&number).is_ok(), load);
        assert!(
            stored.last().is_none_or(|last| *last < self.next),
            "{place}: more than was sent"
        );
        let lost: Vec<_> = self
            .acknowledged
            .iter()
            .filter(|number| stored.binary_search(number).is_err())
            .collect();
        assert!(lost.is_empty(), "{place}: acknowledged and lost: {lost:?}");
    }

    /// Checks that refusals were allowed, and that refused items are not stored.
    pub(super) fn check_refused(&self, place: &str, mut is_there: impl FnMut(u64) -> bool, load: &Load) {
        let may = load.may_refuse.load(Ordering::Relaxed);
        assert!(
            may || self.refusals.is_empty(),
            "{place}: refused: {:?}",
            self.refusals
        );
        let there: Vec<_> = self.refused.iter().filter(|number| is_there(**number)).collect();
        assert!(there.is_empty(), "{place}: refused and there: {there:?}");
    }
}
