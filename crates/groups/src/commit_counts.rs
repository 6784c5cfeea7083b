//! Commits of one group since the start, and its lag.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stafett_counters::{Measured, Sampler, Series, Tracked, Words};

use crate::registry::Groups;

const COMMITS: usize = 0;

/// Counter of a group's commits, one for each partition of a commit, and its lag.
#[derive(Debug, Default)]
pub struct GroupCounts {
    counters: Words<1>,
    /// Offsets from the commits to the ends of their partitions, when they were measured last.
    lag: AtomicU64,
    is_gone: AtomicBool,
}

impl Measured for GroupCounts {
    const SERIES: &'static [Series] = &[Series::counts("commits", &[COMMITS]), Series::level("lag", 0)];

    fn tracked(&self) -> Option<&Tracked> {
        self.counters.tracked()
    }

    fn word(&self, at: usize) -> u64 {
        self.counters.get(at)
    }

    fn level(&self, _: usize) -> u64 {
        self.lag.load(Ordering::Relaxed)
    }

    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }
}

impl GroupCounts {
    pub fn commits(&self) -> u64 {
        self.counters.get(COMMITS)
    }
}

impl Groups {
    /// Sets the lag of a group, which the next sweep samples if it has changed.
    pub(super) fn set_lag(&self, counts: &Arc<GroupCounts>, lag: u64) {
        if counts.lag.swap(lag, Ordering::Relaxed) != lag {
            self.sampler.note(counts.counters.touch(), || Arc::clone(counts));
        }
    }

    /// Returns the sampler of the groups' counters.
    pub fn sampler(&self) -> &Sampler<GroupCounts> {
        &self.sampler
    }
}

/// Counters of a group, which end with it. One that has no commits has none.
#[derive(Debug, Default)]
pub(crate) struct CommitCounter {
    counts: Option<Arc<GroupCounts>>,
    /// True if no commit has changed since the lag was measured.
    is_measured: bool,
}

impl CommitCounter {
    /// Counts commits that are staged.
    pub(crate) fn add(&mut self, sampler: &Sampler<GroupCounts>, commits: u64) {
        self.is_measured = false;
        if commits > 0 {
            let counts = self.counts.get_or_insert_default();
            sampler.note(counts.counters.add([(COMMITS, commits)]), || Arc::clone(counts));
        }
    }

    /// Has the lag measured again, as commits were removed.
    pub(crate) fn on_removed(&mut self) {
        self.is_measured = false;
    }

    /// Returns true if a commit has changed since the last call with `is_settled`: that no change of a
    /// commit is under way.
    pub(crate) fn begin_measuring(&mut self, is_settled: bool) -> bool {
        !std::mem::replace(&mut self.is_measured, is_settled)
    }

    pub(crate) fn get(&self) -> Option<&Arc<GroupCounts>> {
        self.counts.as_ref()
    }

    pub(crate) fn get_or_insert(&mut self) -> &Arc<GroupCounts> {
        self.counts.get_or_insert_default()
    }

    /// Ends the counters of a group that is removed. Its lag leaves the total.
    pub(crate) fn end(&self, sampler: &Sampler<GroupCounts>) {
        if let Some(counts) = &self.counts {
            counts.is_gone.store(true, Ordering::Relaxed);
            if let Some(tracked) = counts.counters.tracked() {
                sampler.note(tracked, || Arc::clone(counts));
            }
        }
    }
}
