//! Result of routing a message.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::filter::{Filter, FilterWork};
use crate::hops::{FilteredHop, Hop, Hops, Target};
use crate::message_view::MessageView;

/// Most exchanges that are compared one by one instead of in a set.
const LOOKED_THROUGH_MAX: usize = 16;

/// Destinations of a message, each once. Reused for many messages to keep its memory.
#[derive(Debug)]
pub struct Routes<T> {
    targets: Vec<T>,
    delayed_at: Vec<Arc<str>>,
    depends_on: DependsOn,
    /// Visited exchanges, in order.
    exchanges: Vec<Arc<str>>,
    /// The same as a set, once there are too many to compare.
    seen: HashSet<Arc<str>>,
    /// Number of hop sets added; several may contain the same target.
    added: usize,
    /// Hops of the exchange that is being visited whose filters have not been asked yet.
    filtered: Vec<Arc<FilteredHop<T>>>,
    /// Verdicts of filters on the message.
    verdicts: BTreeMap<Arc<Filter>, bool>,
    /// Work left to filters. All messages that are routed with this share it.
    work: FilterWork,
}

/// Input that a route depended on: messages with equal input have the same route.
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
            filtered: Vec::new(),
            verdicts: BTreeMap::new(),
            work: FilterWork::default(),
        }
    }
}

impl<T: Target> Routes<T> {
    /// Returns the targets, each once.
    pub fn targets(&self) -> &[T] {
        &self.targets
    }

    /// Returns the exchanges at which the message waits for its delay.
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
        self.verdicts.clear();
        self.work.begin_message();
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

    /// Returns the visited exchange number `index`.
    pub(crate) fn exchange(&self, index: usize) -> Option<Arc<str>> {
        self.exchanges.get(index).cloned()
    }

    /// Adds the hops of bindings.
    pub(crate) fn add(&mut self, hops: &Hops<T>) {
        let asked_later = self.filtered.len();
        let mut count = 0;
        hops.each(|hop| {
            count += 1;
            match hop {
                Hop::Target(target) => self.targets.push(target.clone()),
                Hop::Exchange(name) => self.add_exchange(name),
                Hop::Filtered(filtered) => self.filtered.push(Arc::clone(filtered)),
            }
        });
        self.added += usize::from(count > self.filtered.len() - asked_later);
    }

    /// Adds the filtered hops whose filters admit the message. Equal filters are asked once.
    pub(crate) fn ask_filters(&mut self, message: &dyn MessageView) {
        if self.filtered.is_empty() {
            return;
        }
        self.depend(DependsOn::Message);
        for filtered in std::mem::take(&mut self.filtered) {
            let verdict = if let Some(verdict) = self.verdicts.get(&filtered.filter) {
                *verdict
            } else {
                let verdict = message.admits(&filtered.filter, &mut self.work);
                self.verdicts.insert(Arc::clone(&filtered.filter), verdict);
                verdict
            };
            if !verdict {
                continue;
            }
            self.added += 1;
            match &filtered.hop {
                Hop::Target(target) => self.targets.push(target.clone()),
                Hop::Exchange(name) => self.add_exchange(name),
                // A binding has one filter.
                Hop::Filtered(_) => {}
            }
        }
    }

    /// Returns the number of additions. An unchanged number means that an exchange matched nothing.
    pub(crate) fn added(&self) -> usize {
        self.added
    }

    /// Removes duplicate targets.
    pub(crate) fn finish(&mut self) {
        if self.added > 1 {
            self.targets.sort_unstable();
            self.targets.dedup();
        }
    }
}
