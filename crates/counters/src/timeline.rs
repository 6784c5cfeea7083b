//! Samples of an object for a request: one for each step that was asked for.

use crate::history::{History, STEPS_MAX};
use crate::series::{SERIES_MAX, Series, Source};
use crate::words::Tracked;

/// One object's samples, up to the latest sweep.
#[derive(Debug, Clone)]
pub struct Timeline {
    /// The first sweep with samples; later than [`Self::ends`] if there are none.
    pub begins: u32,
    /// The latest sweep.
    pub ends: u32,
    /// Per series that is kept, from the beginning of the hour: levels at the ends of steps of 5 s, or
    /// increases within them.
    steps: Vec<Box<[u32]>>,
    /// Values at the latest sweep: levels, or counters.
    latest: [u64; SERIES_MAX],
    levels: [bool; SERIES_MAX],
}

/// Sample of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Level or counter at the end.
    pub value: u64,
    /// Increase of the counter since the end of the step before.
    pub increase: u64,
}

impl Timeline {
    /// Returns the samples of an object with the present values `now` of its series.
    pub(crate) fn of(
        series: &[Series],
        tracked: Option<&Tracked>,
        ends: u32,
        now: [u64; SERIES_MAX],
    ) -> Self {
        let kept: Vec<usize> = (0..series.len())
            .filter(|at| series.get(*at).is_some_and(|series| series.is_kept))
            .collect();
        let mut levels = [false; SERIES_MAX];
        for (level, series) in levels.iter_mut().zip(series) {
            *level = series.is_level();
        }
        let record = tracked.map(|tracked| tracked.record.lock());
        let mut latest = now;
        // The count since the latest sweep belongs to the next step.
        if let Some(record) = record.as_deref() {
            for ((latest, before), is_level) in latest.iter_mut().zip(record.values).zip(levels) {
                *latest = if is_level {
                    u64::from(before)
                } else {
                    latest.saturating_sub(u64::from(low(*latest).wrapping_sub(before)))
                };
            }
        }
        let history = record.as_deref().and_then(|record| record.history.as_deref());
        let first = (ends + 1).saturating_sub(STEPS_MAX);
        let steps = kept.iter().enumerate().map(|(place, at)| {
            let flat = if levels.get(*at) == Some(&true) {
                low(latest.get(*at).copied().unwrap_or_default())
            } else {
                0
            };
            (first..=ends)
                .map(|tick| history.map_or(flat, |history| history.sample(tick, place)))
                .collect()
        });
        Self {
            begins: history.map_or(ends + 1, History::begins),
            ends,
            steps: steps.collect(),
            latest,
            levels,
        }
    }

    /// Returns the number of kept series.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns samples of the kept series `at`, newest first: `count` steps of `length` times 5 s. Before the
    /// beginning, levels are the earliest known, and nothing increases.
    pub fn samples(&self, at: usize, length: u32, count: usize) -> Vec<Sample> {
        let (Some(steps), length) = (self.steps.get(at), length.max(1)) else {
            return Vec::new();
        };
        let is_level = self.levels.get(at) == Some(&true);
        let mut value = self.latest.get(at).copied().unwrap_or_default();
        let mut left = steps.len();
        let known = usize::try_from((self.ends + 1).saturating_sub(self.begins)).unwrap_or(usize::MAX);
        let earliest = steps.len().saturating_sub(known.max(1));
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let mut samples = Vec::with_capacity(count.min(1 << 16));
        for _ in 0..count.min(1 << 16) {
            let from = left.saturating_sub(length);
            if is_level {
                let place = left.saturating_sub(1).max(earliest);
                let level = steps.get(place).copied().unwrap_or_default();
                samples.push(Sample {
                    value: u64::from(level),
                    increase: 0,
                });
            } else {
                let within = steps.get(from..left).unwrap_or_default();
                let increase: u64 = within.iter().map(|step| u64::from(*step)).sum();
                samples.push(Sample { value, increase });
                value = value.saturating_sub(increase);
            }
            left = from;
        }
        samples
    }
}

pub(crate) fn low(value: u64) -> u32 {
    u32::try_from(value & u64::from(u32::MAX)).unwrap_or_default()
}

/// Returns the value of a source: levels saturate where they are kept, counters wrap.
pub(crate) fn value_of(source: Source, word: impl Fn(usize) -> u64, level: impl Fn(usize) -> u64) -> u64 {
    match source {
        Source::Level(at) => level(at).min(u64::from(u32::MAX)),
        Source::Words(words) => words.iter().fold(0, |sum: u64, at| sum.wrapping_add(word(*at))),
    }
}
