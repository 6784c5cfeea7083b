//! Sampler of one kind of objects: visits those that have changed, at each sweep.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use stafett_model::Lock;

use crate::history::{History, STEP_MS, STEPS_MAX};
use crate::series::{SERIES_MAX, Series};
use crate::timeline::{Timeline, low, value_of};
use crate::words::Tracked;

/// An object that counts.
pub trait Measured: fmt::Debug + Send + Sync {
    /// Series of its kind, those that are kept first; at most [`SERIES_MAX`].
    const SERIES: &'static [Series];

    /// Returns the state of sampling; `None` if nothing was counted.
    fn tracked(&self) -> Option<&Tracked>;

    /// Returns a counter.
    fn word(&self, at: usize) -> u64;

    /// Returns a level.
    fn level(&self, _at: usize) -> u64 {
        0
    }

    /// Returns true if the object is deleted: it has no levels and no history any more.
    fn is_gone(&self) -> bool {
        false
    }
}

/// Numbers of sweeps, from the steady time. The first is 1.
#[derive(Debug, Default)]
pub struct Ticks {
    last: Option<(i64, u32)>,
}

/// A sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advance {
    pub tick: u32,
    /// Steps since the sweep before: more than one if it came late.
    pub steps: u32,
}

impl Ticks {
    /// Returns the sweep at a moment of the steady time, at which one is due.
    pub fn advance(&mut self, now_ms: i64) -> Advance {
        let steps = self.last.map_or(1, |(at, _)| {
            let steps = now_ms.saturating_sub(at).saturating_add(STEP_MS / 2) / STEP_MS;
            u32::try_from(steps).unwrap_or(1).max(1)
        });
        let tick = self.last.map_or(0, |(_, tick)| tick).saturating_add(steps);
        self.last = Some((now_ms, tick));
        Advance { tick, steps }
    }
}

/// Sums over all objects of a kind, by series: levels, and counters since the start.
#[derive(Debug, Default)]
pub struct Totals([AtomicU64; SERIES_MAX]);

impl Totals {
    /// Returns the sum of a series as of the latest sweep.
    pub fn get(&self, at: usize) -> u64 {
        self.0.get(at).map_or(0, |total| total.load(Ordering::Relaxed))
    }
}

/// Sampler of the objects of type `T`.
#[derive(Debug)]
pub struct Sampler<T> {
    changed: Lock<Vec<Arc<T>>>,
    /// Objects with a history.
    warm: Lock<Vec<Arc<T>>>,
    tick: AtomicU32,
    histories: AtomicUsize,
    totals: Totals,
}

impl<T> Default for Sampler<T> {
    fn default() -> Self {
        Self {
            changed: Lock::default(),
            warm: Lock::default(),
            tick: AtomicU32::new(0),
            histories: AtomicUsize::new(0),
            totals: Totals::default(),
        }
    }
}

impl<T: Measured> Sampler<T> {
    /// Has the next sweep visit an object, which has changed.
    #[inline]
    pub fn note(&self, tracked: &Tracked, object: impl FnOnce() -> Arc<T>) {
        if !tracked.is_listed.load(Ordering::Relaxed) && !tracked.is_listed.swap(true, Ordering::AcqRel) {
            self.changed.lock().push(object());
        }
    }

    /// Takes samples of the objects that have changed. Histories begin while they fit into `room`, in bytes.
    pub fn sweep(&self, advance: Advance, room: &mut usize) {
        let bytes = History::bytes_of(T::SERIES);
        // Objects have locks that they hold while they are noted: none is visited under the lock of the list.
        let changed = mem::take(&mut *self.changed.lock());
        for object in changed {
            let Some(tracked) = object.tracked() else {
                continue;
            };
            // A change from here on lists it again.
            tracked.is_listed.store(false, Ordering::Release);
            let fits = *room >= bytes;
            let is_new = self.sample(&object, tracked, advance, fits);
            if is_new {
                *room -= bytes;
                self.histories.fetch_add(1, Ordering::Relaxed);
                self.warm.lock().push(object);
            }
        }
        self.tick.store(advance.tick, Ordering::Release);
    }

    /// Takes the samples of one object. True if its history begins.
    fn sample(&self, object: &T, tracked: &Tracked, advance: Advance, may_begin: bool) -> bool {
        let record = &mut *tracked.record.lock();
        let is_gone = object.is_gone();
        for (at, series) in T::SERIES.iter().enumerate() {
            let level = |at| if is_gone { 0 } else { object.level(at) };
            let value = low(value_of(series.source, |at| object.word(at), level));
            let (Some(before), Some(increase), Some(total)) = (
                record.values.get_mut(at),
                record.increases.get_mut(at),
                self.totals.0.get(at),
            ) else {
                continue;
            };
            let before = mem::replace(before, value);
            if series.is_level() {
                total.fetch_add(u64::from(value).wrapping_sub(before.into()), Ordering::Relaxed);
            } else {
                *increase = value.wrapping_sub(before);
                total.fetch_add(u64::from(*increase), Ordering::Relaxed);
            }
        }
        tracked.tick.store(advance.tick, Ordering::Release);
        if is_gone || record.history.is_none() && !may_begin {
            return false;
        }
        let is_new = record.history.is_none();
        let history = record
            .history
            .get_or_insert_with(|| Box::new(History::new(T::SERIES, advance.tick)));
        spread(history, T::SERIES, &record.values, &mut record.increases, advance);
        is_new
    }

    /// Removes histories of objects that are gone or did not change for an hour. Returns the bytes of the
    /// others.
    pub fn forget_cold(&self) -> usize {
        let tick = self.tick.load(Ordering::Relaxed);
        self.keep(|object, at| !object.is_gone() && tick.saturating_sub(at) < STEPS_MAX)
    }

    /// Removes histories of objects that have changed last at or before a sweep, the latest ones first, until
    /// `excess` bytes are gone.
    pub fn forget_until(&self, until: u32, excess: &mut usize) {
        let bytes = History::bytes_of(T::SERIES);
        self.keep(|_, at| {
            let stays = *excess == 0 || at > until;
            if !stays {
                *excess = excess.saturating_sub(bytes);
            }
            stays
        });
    }

    fn keep(&self, mut keeps: impl FnMut(&T, u32) -> bool) -> usize {
        let mut warm = self.warm.lock();
        // The latest are asked first.
        warm.reverse();
        warm.retain(|object| {
            let Some(tracked) = object.tracked() else {
                return false;
            };
            let stays = keeps(object, tracked.tick.load(Ordering::Acquire));
            if !stays {
                tracked.record.lock().history = None;
            }
            stays
        });
        warm.reverse();
        self.histories.store(warm.len(), Ordering::Relaxed);
        if warm.capacity() > 2 * warm.len() + 64 {
            warm.shrink_to_fit();
        }
        warm.len() * History::bytes_of(T::SERIES)
    }

    /// Returns the last changes of the objects with histories, and the bytes of each.
    pub fn ages(&self) -> Vec<(u32, usize)> {
        let warm = self.warm.lock();
        let age = |object: &Arc<T>| {
            let tracked = object.tracked();
            tracked.map_or(0, |tracked| tracked.tick.load(Ordering::Acquire))
        };
        let bytes = History::bytes_of(T::SERIES);
        warm.iter().map(|object| (age(object), bytes)).collect()
    }

    /// Returns the number of histories.
    pub fn histories(&self) -> usize {
        self.histories.load(Ordering::Relaxed)
    }

    /// Returns the bytes of all histories.
    pub fn bytes(&self) -> usize {
        self.histories() * History::bytes_of(T::SERIES)
    }

    /// Returns the sums over all objects.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Returns the increase of a series within the latest step.
    pub fn increase(&self, object: &T, at: usize) -> u64 {
        let tick = self.tick.load(Ordering::Acquire);
        let Some(tracked) = object.tracked() else {
            return 0;
        };
        let at_tick = tracked.tick.load(Ordering::Acquire);
        if at_tick < tick || at_tick == 0 {
            return 0;
        }
        let record = tracked.record.lock();
        record.increases.get(at).copied().unwrap_or_default().into()
    }

    /// Returns the increase of a series per second, within the latest step.
    pub fn rate(&self, object: &T, at: usize) -> f64 {
        per_second(self.increase(object, at))
    }

    /// Returns the steps of 5 s since an object changed last; `None` if it did not since the start.
    pub fn idle_steps(&self, object: &T) -> Option<u32> {
        let at = object
            .tracked()
            .map(|tracked| tracked.tick.load(Ordering::Acquire));
        let tick = self.tick.load(Ordering::Acquire);
        at.filter(|at| *at > 0).map(|at| tick.saturating_sub(at))
    }

    /// Returns the samples of an object up to the latest sweep.
    pub fn timeline(&self, object: &T) -> Timeline {
        let mut now = [0; SERIES_MAX];
        for (now, series) in now.iter_mut().zip(T::SERIES) {
            *now = value_of(series.source, |at| object.word(at), |at| object.level(at));
        }
        Timeline::of(
            T::SERIES,
            object.tracked(),
            self.tick.load(Ordering::Acquire),
            now,
        )
    }
}

/// Returns an increase within a step as one per second.
pub(crate) fn per_second(increase: u64) -> f64 {
    increase as f64 * 1000.0 / STEP_MS as f64
}

/// Adds the samples to a history. The count until a late sweep is spread over the steps since the one
/// before; `increases` is left with that of the last step.
fn spread(
    history: &mut History,
    series: &[Series],
    values: &[u32; SERIES_MAX],
    increases: &mut [u32; SERIES_MAX],
    advance: Advance,
) {
    let steps = advance.steps.clamp(1, STEPS_MAX);
    let whole = *increases;
    for later in (0..steps).rev() {
        let mut samples = [0; SERIES_MAX];
        for (at, series) in series.iter().enumerate() {
            let (Some(sample), Some(value), Some(whole), Some(increase)) = (
                samples.get_mut(at),
                values.get(at),
                whole.get(at),
                increases.get_mut(at),
            ) else {
                continue;
            };
            *increase = whole / steps + u32::from(later < whole % steps);
            *sample = if series.is_level() { *value } else { *increase };
        }
        history.push(advance.tick.saturating_sub(later), &samples);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Words;

    #[derive(Debug, Default)]
    struct Thing {
        words: Words<2>,
        level: AtomicU64,
        is_gone: std::sync::atomic::AtomicBool,
        /// Held while it is noted and while its level is read.
        lock: Lock<()>,
    }

    impl Measured for Thing {
        const SERIES: &'static [Series] = &[
            Series::level("level", 0),
            Series::counts("count", &[0]),
            Series::counts("sum", &[0, 1]).latest_alone(),
        ];

        fn tracked(&self) -> Option<&Tracked> {
            self.words.tracked()
        }

        fn word(&self, at: usize) -> u64 {
            self.words.get(at)
        }

        fn level(&self, _: usize) -> u64 {
            let _held = self.lock.lock();
            self.level.load(Ordering::Relaxed)
        }

        fn is_gone(&self) -> bool {
            self.is_gone.load(Ordering::Relaxed)
        }
    }

    struct World {
        sampler: Sampler<Thing>,
        ticks: Ticks,
        now_ms: i64,
    }

    impl World {
        fn new() -> Self {
            Self {
                sampler: Sampler::default(),
                ticks: Ticks::default(),
                now_ms: 0,
            }
        }

        fn add(&self, thing: &Arc<Thing>, count: u64) {
            let _held = thing.lock.lock();
            thing.level.fetch_add(count, Ordering::Relaxed);
            let tracked = thing.words.add([(0, count), (1, 2 * count)]);
            self.sampler.note(tracked, || Arc::clone(thing));
        }

        fn sweep(&mut self, mut room: usize) {
            self.now_ms += STEP_MS;
            let advance = self.ticks.advance(self.now_ms);
            self.sampler.sweep(advance, &mut room);
        }
    }

    #[test]
    fn a_sweep_visits_what_has_changed_and_rates_are_those_of_the_last_step() {
        let mut world = World::new();
        let (busy, idle) = (Arc::new(Thing::default()), Arc::new(Thing::default()));
        world.add(&busy, 5);
        world.add(&busy, 5);
        assert_eq!(world.sampler.changed.lock().len(), 1);
        world.sweep(usize::MAX);
        assert_eq!(world.sampler.increase(&busy, 1), 10);
        assert!((world.sampler.rate(&busy, 2) - 6.0).abs() < f64::EPSILON);
        assert_eq!(world.sampler.increase(&idle, 1), 0);
        assert_eq!((idle.words.bytes(), world.sampler.histories()), (0, 1));
        world.sweep(usize::MAX);
        assert_eq!(world.sampler.increase(&busy, 1), 0);
        assert_eq!(world.sampler.idle_steps(&busy), Some(1));
        let samples = world.sampler.timeline(&busy).samples(1, 1, 3);
        let shown: Vec<_> = samples
            .iter()
            .map(|sample| (sample.value, sample.increase))
            .collect();
        assert_eq!(shown, [(10, 0), (10, 10), (0, 0)]);
    }

    #[test]
    fn totals_are_sums_of_levels_and_counts_also_of_what_is_gone() {
        let mut world = World::new();
        let things: Vec<_> = (0..3).map(|_| Arc::new(Thing::default())).collect();
        for (thing, count) in things.iter().zip(1..) {
            world.add(thing, count);
        }
        world.sweep(usize::MAX);
        assert_eq!(
            (world.sampler.totals().get(0), world.sampler.totals().get(1)),
            (6, 6)
        );
        things[2].is_gone.store(true, Ordering::Relaxed);
        world.add(&things[2], 0);
        world.sweep(usize::MAX);
        assert_eq!(
            (world.sampler.totals().get(0), world.sampler.totals().get(1)),
            (3, 6)
        );
        world.sampler.forget_cold();
        assert_eq!(world.sampler.histories(), 2);
    }

    #[test]
    fn the_coldest_lose_their_histories_first_and_the_newest_of_those_as_cold() {
        let mut world = World::new();
        let things: Vec<_> = (0..4).map(|_| Arc::new(Thing::default())).collect();
        world.add(&things[0], 1);
        world.sweep(usize::MAX);
        for thing in &things[1..] {
            world.add(thing, 1);
        }
        world.sweep(usize::MAX);
        let bytes = History::bytes_of(Thing::SERIES);
        let mut excess = 2 * bytes;
        for until in [1, 2] {
            world.sampler.forget_until(until, &mut excess);
        }
        let warm: Vec<bool> = things
            .iter()
            .map(|thing| thing.tracked().unwrap().record.lock().history.is_some())
            .collect();
        assert_eq!((warm, excess), (vec![false, true, true, false], 0));
        // Without room, there are rates but no new history.
        world.add(&things[0], 5);
        world.sweep(0);
        assert_eq!(world.sampler.increase(&things[0], 1), 5);
        assert_eq!(world.sampler.histories(), 2);
    }

    #[test]
    fn a_late_sweep_spreads_its_increase_over_the_steps_since_the_one_before() {
        let mut world = World::new();
        let thing = Arc::new(Thing::default());
        world.add(&thing, 1);
        world.sweep(usize::MAX);
        world.add(&thing, 10);
        world.now_ms += 3 * STEP_MS;
        world.sweep(usize::MAX);
        let samples = world.sampler.timeline(&thing).samples(1, 1, 5);
        let increases: Vec<u64> = samples.iter().map(|sample| sample.increase).collect();
        assert_eq!(increases.iter().take(4).sum::<u64>(), 10);
        assert!(
            increases.iter().take(4).all(|increase| [2, 3].contains(increase)),
            "{increases:?}"
        );
        // Moments that come twice or go back are one step each.
        for now_ms in [0, i64::MIN, i64::MAX, i64::MAX, 0] {
            let before = world.ticks.last.map_or(0, |(_, tick)| tick);
            let advance = world.ticks.advance(now_ms);
            assert!(advance.tick > before || before == u32::MAX);
            world.sampler.sweep(advance, &mut usize::MAX.clone());
        }
    }

    #[test]
    fn counters_of_a_hundred_thousand_objects_with_eight_thousand_histories_take_less_than_85_mb() {
        let used = 100_000 * size_of_block();
        // A history is three allocations.
        let warm = 8_000 * (History::bytes_of(QUEUE_LIKE) + 3 * 16);
        assert!(used + warm <= 85_000_000, "{used} + {warm}");
    }

    const QUEUE_LIKE: &[Series] = &[Series::level("", 0); 7];

    fn size_of_block() -> usize {
        let words = Words::<16>::new();
        words.touch();
        // A lock is larger where its order is checked.
        let checks = size_of::<Lock<()>>() - size_of::<std::sync::Mutex<()>>();
        // The allocator's own bytes.
        words.bytes() - checks + 16
    }
}
