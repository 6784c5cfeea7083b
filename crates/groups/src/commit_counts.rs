//! Commits of one group since the start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stafett_counters::{Measured, Sampler, Series, Tracked, Words};

use crate::registry::Groups;

const COMMITS: usize = 0;

/// Counter of a group's commits, one for each partition of a commit.
#[derive(Debug, Default)]
pub struct GroupCounts {
    counters: Words<1>,
    is_gone: AtomicBool,
}

impl Measured for GroupCounts {
    const SERIES: &'static [Series] = &[Series::counts("commits", &[COMMITS])];

    fn tracked(&self) -> Option<&Tracked> {
        self.counters.tracked()
    }

    fn word(&self, at: usize) -> u64 {
        self.counters.get(at)
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
    /// Returns the sampler of the groups' counters.
    pub fn sampler(&self) -> &Sampler<GroupCounts> {
        &self.sampler
    }
}

/// Counters of a group, which end with it. One that never committed has none.
#[derive(Debug, Default)]
pub(crate) struct CommitCounter(Option<Arc<GroupCounts>>);

impl CommitCounter {
    pub(crate) fn add(&mut self, sampler: &Sampler<GroupCounts>, commits: u64) {
        if commits > 0 {
            let counts = self.0.get_or_insert_default();
            sampler.note(counts.counters.add([(COMMITS, commits)]), || Arc::clone(counts));
        }
    }

    pub(crate) fn get(&self) -> Option<&Arc<GroupCounts>> {
        self.0.as_ref()
    }
}

impl Drop for CommitCounter {
    fn drop(&mut self) {
        if let Some(counts) = &self.0 {
            counts.is_gone.store(true, Ordering::Relaxed);
        }
    }
}
