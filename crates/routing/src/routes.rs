//! Where a message goes.

use std::collections::HashSet;
use std::sync::Arc;

use crate::hops::{Hop, Hops, Target};

/// Exchanges up to which looking through them is faster than a set.
const LOOKED_THROUGH_MAX: usize = 16;

/// Where a message goes, each place once. One value serves many messages, so that its memory is taken once.
#[derive(Debug)]
pub struct Routes<T> {
    targets: Vec<T>,
    delayed_at: Vec<Arc<str>>,
    depends_on: DependsOn,
    /// Exchanges that were reached, in the order in which they were.
    exchanges: Vec<Arc<str>>,
    /// The same as a set, once they are too many to look through.
    seen: HashSet<Arc<str>>,
    /// Sets of hops that were added: several may name one target.
    added: usize,
}

/// What a route depended on: two messages that are alike in it go the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DependsOn {
    Nothing,
    Keys,
    /// Headers, properties or the delay.
    Message,
}

impl<T> Default for Routes<T> {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            delayed_at: Vec::new(),
            depends_on: DependsOn::Nothing,
            exchanges: Vec::new(),
            seen: HashSet::new(),
            added: 0,
        }
    }
}

impl<T: Target> Routes<T> {
    /// The targets, each once.
    pub fn targets(&self) -> &[T] {
        &self.targets
    }

    /// Exchanges at which the message waits before it goes on from there.
    pub fn delayed_at(&self) -> &[Arc<str>] {
        &self.delayed_at
    }

    pub fn depends_on(&self) -> DependsOn {
        self.depends_on
    }

    pub fn is_nowhere(&self) -> bool {
        self.targets.is_empty() && self.delayed_at.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.targets.clear();
        self.delayed_at.clear();
        self.exchanges.clear();
        self.seen.clear();
        self.depends_on = DependsOn::Nothing;
        self.added = 0;
    }

    pub(crate) fn depend(&mut self, on: DependsOn) {
        self.depends_on = self.depends_on.max(on);
    }

    pub(crate) fn wait_at(&mut self, exchange: &Arc<str>) {
        self.delayed_at.push(Arc::clone(exchange));
    }

    pub(crate) fn add_target(&mut self, target: T) {
        self.added += 1;
        self.targets.push(target);
    }

    pub(crate) fn add_exchange(&mut self, name: &Arc<str>) {
        let new = if self.exchanges.len() < LOOKED_THROUGH_MAX {
            !self.exchanges.contains(name)
        } else {
            if self.seen.is_empty() {
                self.seen.extend(self.exchanges.iter().cloned());
            }
            self.seen.insert(Arc::clone(name))
        };
        if new {
            self.exchanges.push(Arc::clone(name));
        }
    }

    /// The exchange that was reached as number `index`.
    pub(crate) fn exchange(&self, index: usize) -> Option<Arc<str>> {
        self.exchanges.get(index).cloned()
    }

    /// Adds what bindings lead to.
    pub(crate) fn add(&mut self, hops: &Hops<T>) {
        self.added += usize::from(!hops.is_empty());
        hops.each(|hop| match hop {
            Hop::Target(target) => self.targets.push(target.clone()),
            Hop::Exchange(name) => self.add_exchange(name),
        });
    }

    /// How much was added; compared before and after, it tells whether an exchange led anywhere.
    pub(crate) fn added(&self) -> usize {
        self.added
    }

    /// Leaves each target once.
    pub(crate) fn finish(&mut self) {
        if self.added > 1 {
            self.targets.sort_unstable();
            self.targets.dedup();
        }
    }
}
