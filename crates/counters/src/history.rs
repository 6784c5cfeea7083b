//! Samples of one object: a ring of the latest steps of 5 s, and behind it a ring of buckets of six steps.
//!
//! A step that leaves the first ring is added to its bucket. An object that does not change is not visited:
//! when it changes again, the steps in between are filled with the levels that it had, and no increases.

use crate::series::Series;

/// Length of a step.
pub const STEP_MS: i64 = 5_000;
/// Steps of an hour, the longest history.
pub const STEPS_MAX: u32 = 720;
/// Steps of 15 minutes, which are kept one by one.
const FINE: u32 = 180;
/// Steps of a bucket.
const BUCKET: u32 = 6;
/// Buckets of the three quarters of an hour before, and one that is being filled.
const BUCKETS: u32 = (STEPS_MAX - FINE) / BUCKET + 1;

/// Samples of the series of one object that are kept.
#[derive(Debug)]
pub struct History {
    /// Series, and a bit for each that is a level.
    width: u32,
    levels: u64,
    fine: u32,
    samples: Box<[u32]>,
    buckets: Box<[u32]>,
    begins: u32,
    ends: u32,
}

impl History {
    /// Creates the history of an object, which has no samples before `tick`.
    pub fn new(series: &[Series], tick: u32) -> Self {
        Self::with_fine(series, tick, FINE)
    }

    /// Creates a history in which each step of the hour is kept.
    pub fn whole(series: &[Series], tick: u32) -> Self {
        Self::with_fine(series, tick, STEPS_MAX)
    }

    fn with_fine(series: &[Series], tick: u32, fine: u32) -> Self {
        let kept = || series.iter().filter(|series| series.is_kept);
        let width = kept().count().min(64);
        let bits = kept().take(width).zip(0..);
        let levels = bits.fold(0, |levels, (series, at)| {
            levels | u64::from(series.is_level()) << at
        });
        let buckets = if fine < STEPS_MAX { BUCKETS } else { 0 };
        Self {
            samples: vec![0; index(fine) * width].into(),
            buckets: vec![0; index(buckets) * width].into(),
            width: u32::try_from(width).unwrap_or_default(),
            levels,
            fine,
            begins: tick,
            ends: tick.saturating_sub(1),
        }
    }

    /// Returns the bytes of a history of an object with these series.
    pub fn bytes_of(series: &[Series]) -> usize {
        let kept = series.iter().filter(|series| series.is_kept).count();
        size_of::<Self>() + kept * 4 * index(FINE + BUCKETS)
    }

    /// Returns the first step that has samples.
    pub fn begins(&self) -> u32 {
        self.begins.max(self.ends.saturating_sub(STEPS_MAX - 1))
    }

    /// Returns the last step that has samples.
    pub fn ends(&self) -> u32 {
        self.ends
    }

    /// Adds the samples of a step, behind all others.
    pub fn push(&mut self, tick: u32, samples: &[u32]) {
        if tick <= self.ends {
            return;
        }
        // A sample older than the whole ring is overwritten in any case.
        let from = (self.ends + 1).max(tick.saturating_sub(STEPS_MAX));
        if from > self.ends + 1 {
            self.forget();
            self.ends = from - 1;
        }
        for gap in from..tick {
            self.step(gap, None);
        }
        self.step(tick, Some(samples));
    }

    /// Sets all samples to the latest levels without increases, as the object did not change for an hour.
    fn forget(&mut self) {
        let width = self.width();
        for at in 0..width {
            let value = if self.is_level(at) {
                self.sample(self.ends, at)
            } else {
                0
            };
            for of in [&mut self.samples, &mut self.buckets] {
                of.iter_mut()
                    .skip(at)
                    .step_by(width)
                    .for_each(|sample| *sample = value);
            }
        }
    }

    /// Fills the next step: with the samples, or as one without a change.
    fn step(&mut self, tick: u32, samples: Option<&[u32]>) {
        for at in 0..self.width() {
            let is_level = self.is_level(at);
            let value = match samples {
                Some(samples) => samples.get(at).copied().unwrap_or_default(),
                None if is_level && tick > self.begins => self.sample(tick - 1, at),
                None => 0,
            };
            let place = self.place(tick, at);
            let Some(slot) = self.samples.get_mut(place) else {
                continue;
            };
            let left = std::mem::replace(slot, value);
            if let Some(past) = tick.checked_sub(self.fine).filter(|past| *past >= self.begins) {
                self.add_to_bucket(past, at, left, is_level);
            }
        }
        self.ends = tick;
    }

    fn add_to_bucket(&mut self, tick: u32, at: usize, value: u32, is_level: bool) {
        let place = self.bucket_place(tick, at);
        let is_first = tick.is_multiple_of(BUCKET) || tick == self.begins;
        if let Some(bucket) = self.buckets.get_mut(place) {
            *bucket = if is_level || is_first {
                value
            } else {
                bucket.saturating_add(value)
            };
        }
    }

    fn width(&self) -> usize {
        index(self.width)
    }

    fn is_level(&self, at: usize) -> bool {
        at < 64 && self.levels >> at & 1 == 1
    }

    fn place(&self, tick: u32, at: usize) -> usize {
        index(tick % self.fine) * self.width() + at
    }

    fn bucket_place(&self, tick: u32, at: usize) -> usize {
        index(tick / BUCKET % BUCKETS) * self.width() + at
    }

    /// Returns a series' sample in a step; of a bucket, the level at its end or a sixth of its increase.
    pub fn sample(&self, tick: u32, at: usize) -> u32 {
        let get = |of: &[u32], place: usize| of.get(place).copied().unwrap_or_default();
        if tick > self.ends {
            let is_level = self.is_level(at) && self.ends >= self.begins;
            return if is_level { self.sample(self.ends, at) } else { 0 };
        }
        if tick < self.begins() {
            return 0;
        }
        if self.ends - tick < self.fine {
            return get(&self.samples, self.place(tick, at));
        }
        let value = get(&self.buckets, self.bucket_place(tick, at));
        if self.is_level(at) {
            return value;
        }
        // Steps of the bucket that have left the first ring and are not before the beginning.
        let first = (tick / BUCKET * BUCKET).max(self.begins);
        let last = (tick / BUCKET * BUCKET + BUCKET - 1).min(self.ends - self.fine);
        let steps = last + 1 - first;
        let rest = u32::from(tick - first < value % steps);
        value / steps + rest
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SERIES: &[Series] = &[Series::level("level", 0), Series::counts("count", &[0])];

    /// All steps, one by one.
    fn model(pushed: &[(u32, u32, u32)], begins: u32) -> Vec<(u32, u32)> {
        let end = pushed.last().map_or(begins, |(tick, _, _)| *tick);
        let mut steps = vec![(0, 0); usize::try_from(end + 1).unwrap()];
        let mut level = 0;
        for tick in begins..=end {
            let found = pushed.iter().find(|(at, _, _)| *at == tick);
            level = found.map_or(level, |found| found.1);
            steps[usize::try_from(tick).unwrap()] = (level, found.map_or(0, |found| found.2));
        }
        steps
    }

    proptest! {
        #[test]
        fn a_history_is_what_was_pushed(
            begins in 1_u32..50,
            gaps in prop::collection::vec((1_u32..90, 0_u32..1000, 0_u32..1000), 1..120),
        ) {
            let mut history = History::new(SERIES, begins);
            let mut tick = begins - 1;
            let mut pushed = Vec::new();
            for (gap, level, count) in gaps {
                tick += gap;
                history.push(tick, &[level, count]);
                pushed.push((tick, level, count));
            }
            let model = model(&pushed, begins);
            prop_assert_eq!(history.ends(), tick);
            for at in history.begins()..=tick {
                let expected = model[usize::try_from(at).unwrap()];
                if tick - at < FINE {
                    prop_assert_eq!((history.sample(at, 0), history.sample(at, 1)), expected, "{}", at);
                }
            }
            // Whole buckets have the sum of their steps, and the last level.
            let bucket = (history.begins() + BUCKET) / BUCKET * BUCKET;
            for first in (bucket..tick.saturating_sub(FINE + BUCKET)).step_by(6) {
                let steps = first..first + BUCKET;
                let sum: u32 = steps.clone().map(|at| history.sample(at, 1)).sum();
                let expected: u32 = steps.map(|at| model[usize::try_from(at).unwrap()].1).sum();
                prop_assert_eq!(sum, expected, "bucket {}", first);
                let last = model[usize::try_from(first + BUCKET - 1).unwrap()].0;
                prop_assert_eq!(history.sample(first, 0), last);
            }
        }
    }

    #[test]
    fn an_object_that_slept_for_hours_has_its_level_and_no_increases() {
        let mut history = History::new(SERIES, 1);
        history.push(1, &[7, 100]);
        history.push(100_000, &[9, 3]);
        assert_eq!((history.sample(100_000, 0), history.sample(100_000, 1)), (9, 3));
        for tick in history.begins()..100_000 {
            assert_eq!(
                (history.sample(tick, 0), history.sample(tick, 1)),
                (7, 0),
                "{tick}"
            );
        }
    }

    #[test]
    fn steps_that_are_not_later_are_passed_over() {
        let mut history = History::new(SERIES, 5);
        history.push(5, &[1, 1]);
        history.push(5, &[2, 2]);
        history.push(3, &[3, 3]);
        assert_eq!((history.sample(5, 0), history.sample(5, 1)), (1, 1));
        assert_eq!(history.sample(4, 0), 0);
    }
}
