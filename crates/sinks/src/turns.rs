//! Flushes of a sink at a time: one more after eight fast ones, half as many after a slow or failed one.
//!
//! A store that is slow because of its load gets less of it that way; back-pressure is lag. A flush is slow
//! if it takes longer than the operator says, or else twice as long as the fastest one of its size within the
//! last hour.

use std::sync::Arc;

use stafett_model::Lock;
use tokio::sync::Semaphore;

/// Fast flushes behind which there may be one more at a time.
const FAST: u32 = 8;
/// Time that is never slow, unless the operator says so: others are noise.
const FAST_MS: u64 = 100;
/// Half of the time for which the fastest flush counts.
const AGE_MS: u64 = 30 * 60 * 1000;
/// Flushes that hang and hold up no others, at most.
const HANGING_MAX: usize = 4;
/// Sizes of batches that are compared, by powers of two of their bytes.
const SIZES: usize = 40;

/// Rules of an operator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TurnRules {
    /// Flushes at a time, at most.
    pub parallel: Option<u64>,
    /// Time of a flush above which it is slow.
    pub slow_ms: Option<u64>,
}

/// Times of the fastest flush of a size, in ms: in this half hour and in the one before.
#[derive(Debug, Clone, Copy)]
struct Fastest {
    since_ms: u64,
    least: u64,
    least_before: u64,
}

impl Fastest {
    const NONE: Self = Self {
        since_ms: 0,
        least: u64::MAX,
        least_before: u64::MAX,
    };

    /// Takes a flush, and returns the fastest one before it.
    fn take(&mut self, took_ms: u64, now_ms: u64) -> Option<u64> {
        let age = now_ms.saturating_sub(self.since_ms);
        if age >= AGE_MS {
            let least_before = if age < 2 * AGE_MS { self.least } else { u64::MAX };
            *self = Self {
                since_ms: now_ms,
                least: u64::MAX,
                least_before,
            };
        }
        let fastest = self.least.min(self.least_before);
        self.least = self.least.min(took_ms);
        (fastest != u64::MAX).then_some(fastest)
    }
}

/// Number of flushes at a time. Pure; the clock is an argument.
#[derive(Debug)]
struct Limit {
    rules: TurnRules,
    at_a_time: usize,
    fast: u32,
    fastest: [Fastest; SIZES],
    /// Number of cuts. A flush that began before the last one ran under a higher limit, and does not count.
    cuts: u64,
}

impl Limit {
    fn new(rules: TurnRules) -> Self {
        Self {
            rules,
            at_a_time: 1,
            fast: 0,
            fastest: [Fastest::NONE; SIZES],
            cuts: 0,
        }
    }

    fn is_slow(&mut self, bytes: u64, took_ms: u64, now_ms: u64) -> bool {
        let size = usize::try_from(bytes.checked_ilog2().unwrap_or(0)).unwrap_or(SIZES);
        let fastest = self.fastest.get_mut(size.min(SIZES - 1));
        let fastest = fastest.and_then(|fastest| fastest.take(took_ms, now_ms));
        let slow_ms = match (self.rules.slow_ms, fastest) {
            (Some(slow_ms), _) => slow_ms,
            (None, Some(fastest)) => fastest.saturating_mul(2).max(FAST_MS),
            (None, None) => return false,
        };
        took_ms > slow_ms
    }

    fn cut(&mut self, begun: u64) {
        if begun == self.cuts {
            self.at_a_time = (self.at_a_time / 2).max(1);
            self.fast = 0;
            self.cuts += 1;
        }
    }

    /// Takes a fast flush. It counts only while all turns are taken: others say nothing about one more.
    fn on_fast(&mut self, begun: u64, is_full: bool) {
        if begun != self.cuts || !is_full {
            return;
        }
        self.fast += 1;
        let max = self.rules.parallel.and_then(|max| usize::try_from(max).ok());
        if self.fast >= FAST && max.is_none_or(|max| self.at_a_time < max) {
            self.at_a_time += 1;
            self.fast = 0;
        }
    }
}

#[derive(Debug)]
struct Known {
    limit: Limit,
    /// Turns that are free or taken. More than the limit, until enough of them have ended.
    turns: usize,
    taken: usize,
    /// Flushes that hang, and hold up no others.
    hanging: usize,
}

/// Turns of the partitions of a sink, in the order in which they ask.
#[derive(Debug)]
pub(crate) struct Turns {
    free: Semaphore,
    known: Lock<Known>,
}

/// A turn to write. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    /// Number of cuts when it began.
    begun: u64,
    is_hanging: bool,
}

impl Turns {
    pub(crate) fn new(rules: TurnRules) -> Self {
        let limit = Limit::new(rules);
        Self {
            free: Semaphore::new(limit.at_a_time),
            known: Lock::new(Known {
                turns: limit.at_a_time,
                taken: 0,
                hanging: 0,
                limit,
            }),
        }
    }

    /// Waits for a turn.
    pub(crate) async fn take(self: &Arc<Self>) -> Turn {
        // It is never closed.
        if let Ok(permit) = self.free.acquire().await {
            permit.forget();
        }
        let mut known = self.known.lock();
        known.taken += 1;
        Turn {
            turns: Arc::clone(self),
            begun: known.limit.cuts,
            is_hanging: false,
        }
    }

    /// Returns the number of flushes at a time.
    pub(crate) fn limit(&self) -> usize {
        self.known.lock().limit.at_a_time
    }

    /// Ends a turn that was taken.
    fn give_back(&self, known: &mut Known) {
        known.taken -= 1;
        if known.turns > known.limit.at_a_time {
            known.turns -= 1;
        } else {
            self.free.add_permits(1);
        }
    }

    /// Makes or takes away free turns, up to the limit.
    fn settle(&self, known: &mut Known) {
        let limit = known.limit.at_a_time;
        if known.turns < limit {
            self.free.add_permits(limit - known.turns);
            known.turns = limit;
        } else {
            known.turns -= self.free.forget_permits(known.turns - limit);
        }
    }
}

impl Turn {
    /// Notes a flush that the target has taken.
    pub(crate) fn took(self, bytes: u64, took_ms: u64, now_ms: u64) {
        let mut known = self.turns.known.lock();
        let is_full = known.taken >= known.limit.at_a_time;
        if known.limit.is_slow(bytes, took_ms, now_ms) {
            known.limit.cut(self.begun);
        } else {
            known.limit.on_fast(self.begun, is_full);
        }
        self.turns.settle(&mut known);
        drop(known);
    }

    /// Notes that the flush hangs. Others go on, unless too many hang already: each is load on the store.
    pub(crate) fn hangs(&mut self) {
        let mut known = self.turns.known.lock();
        known.limit.cut(self.begun);
        if !self.is_hanging && known.hanging < HANGING_MAX {
            known.hanging += 1;
            self.is_hanging = true;
            self.turns.give_back(&mut known);
        }
        self.turns.settle(&mut known);
        drop(known);
    }

    /// Notes that the target is away, or does not answer.
    pub(crate) fn failed(self) {
        let mut known = self.turns.known.lock();
        known.limit.cut(self.begun);
        self.turns.settle(&mut known);
        drop(known);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut known = self.turns.known.lock();
        if self.is_hanging {
            known.hanging -= 1;
        } else {
            self.turns.give_back(&mut known);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::task::JoinSet;
    use tokio::time::{Instant, sleep};

    use super::*;

    /// A store that takes `each_ms` for a flush, and four times as long while more than four are under way.
    #[derive(Default)]
    struct Store {
        each_ms: AtomicU64,
        writing: AtomicUsize,
        /// Most flushes at a time since it was set to 0.
        most: AtomicUsize,
        written: AtomicU64,
    }

    impl Store {
        async fn write(&self) {
            let writing = self.writing.fetch_add(1, Ordering::Relaxed) + 1;
            self.most.fetch_max(writing, Ordering::Relaxed);
            let load = if writing > 4 { 4 } else { 1 };
            sleep(Duration::from_millis(self.each_ms.load(Ordering::Relaxed) * load)).await;
            self.writing.fetch_sub(1, Ordering::Relaxed);
            self.written.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the most flushes at a time within the next minute.
    async fn most(store: &Store) -> usize {
        store.most.store(0, Ordering::Relaxed);
        sleep(Duration::from_mins(1)).await;
        store.most.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_becomes_slow_is_written_to_by_fewer_at_a_time() {
        let store = Arc::new(Store::default());
        store.each_ms.store(80, Ordering::Relaxed);
        let turns = Arc::new(Turns::new(TurnRules::default()));
        let begin = Instant::now();
        let now_ms = move || u64::try_from(begin.elapsed().as_millis()).unwrap();
        let mut partitions = JoinSet::new();
        for _ in 0..16 {
            let (store, turns) = (Arc::clone(&store), Arc::clone(&turns));
            partitions.spawn(async move {
                loop {
                    let turn = turns.take().await;
                    let begun_ms = now_ms();
                    store.write().await;
                    turn.took(1 << 20, now_ms() - begun_ms, now_ms());
                }
            });
        }
        let fast = most(&store).await;
        assert!((4..=5).contains(&fast), "{fast} at a time: five are too many");
        store.each_ms.store(400, Ordering::Relaxed);
        sleep(Duration::from_secs(10)).await;
        assert_eq!((most(&store).await, turns.limit()), (1, 1));
        let written = store.written.load(Ordering::Relaxed);
        store.each_ms.store(80, Ordering::Relaxed);
        let fast = most(&store).await;
        assert!((4..=5).contains(&fast), "{fast} at a time once it is well again");
        assert!(store.written.load(Ordering::Relaxed) > written + 1000);
    }

    #[tokio::test]
    async fn failures_of_one_time_count_once_and_a_turn_that_is_dropped_ends() {
        let rules = TurnRules {
            parallel: Some(3),
            slow_ms: Some(500),
        };
        let turns = Arc::new(Turns::new(rules));
        let mut held = vec![turns.take().await];
        for _ in 0..100 {
            while held.len() < turns.limit() {
                held.push(turns.take().await);
            }
            held.remove(0).took(1, 500, 0);
        }
        assert_eq!(turns.limit(), 3, "no more than the operator allows");
        while held.len() < 3 {
            held.push(turns.take().await);
        }
        for turn in held {
            turn.failed();
        }
        assert_eq!(turns.limit(), 1);
        let turn = turns.take().await;
        let next = turns.take();
        drop(turn);
        next.await.took(1, 501, 0);
        assert_eq!(turns.known.lock().turns, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_hangs_gets_a_few_flushes_and_no_more() {
        let turns = Arc::new(Turns::new(TurnRules::default()));
        let mut hanging = Vec::new();
        let next = async || tokio::time::timeout(Duration::from_mins(1), turns.take()).await;
        while let Ok(mut turn) = next().await {
            turn.hangs();
            hanging.push(turn);
        }
        assert_eq!(hanging.len(), HANGING_MAX + 1);
        hanging.remove(0).took(1, 40_000, 0);
        assert!(next().await.is_err(), "the last one has its turn still");
        hanging.pop();
        let mut turn = next().await.unwrap();
        turn.hangs();
        assert!(next().await.is_ok(), "there is room for one that hangs");
        drop((turn, hanging));
        let known = turns.known.lock();
        assert_eq!((known.hanging, known.taken), (0, 0));
    }

    #[test]
    fn the_fastest_flush_of_a_size_counts_for_an_hour() {
        let mut limit = Limit::new(TurnRules::default());
        assert!(!limit.is_slow(1000, 90, 0));
        assert!(!limit.is_slow(1000, 180, 1));
        assert!(limit.is_slow(1000, 181, 2));
        assert!(!limit.is_slow(1 << 20, 5000, 3), "the first of its size");
        assert!(limit.is_slow(1000, 181, AGE_MS), "the half hour before");
        assert!(!limit.is_slow(1000, 200, 2 * AGE_MS), "181 is the fastest now");
        assert!(!limit.is_slow(u64::MAX, 1, 0));
    }
}
