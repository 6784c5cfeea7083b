//! Names of recently changed topics, for users that cache data of many topics.

use std::collections::VecDeque;

use stafett_model::SharedLock;
use tokio::sync::watch;

/// Bound on the remembered changes.
const CHANGES_MAX: usize = 16_384;

#[derive(Debug, Default)]
pub(crate) struct TopicChanges {
    recent: SharedLock<RecentNames>,
    /// Notified of every change of a topic that shows no queue.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct RecentNames {
    names: VecDeque<Box<str>>,
    /// Number of changes before the first remembered one.
    forgotten: u64,
}

impl RecentNames {
    fn count(&self) -> u64 {
        self.forgotten + self.names.len() as u64
    }
}

impl TopicChanges {
    /// Records that a topic of that name was created, deleted or changed. Must be called once that is
    /// visible.
    pub(crate) fn record(&self, name: Box<str>, is_queue: bool) {
        let mut recent = self.recent.write();
        if recent.names.len() == CHANGES_MAX {
            recent.names.pop_front();
            recent.forgotten += 1;
        }
        recent.names.push_back(name);
        let version = recent.count() + 1;
        drop(recent);
        if !is_queue {
            self.changed.send_replace(version);
        }
    }

    /// Notifies of a change of the settings that topics have by default.
    pub(crate) fn notify(&self) {
        self.changed.send_modify(|_| {});
    }

    /// Returns a watch that is notified of every change of a topic that shows no queue.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Returns a number that rises with every change; never 0.
    pub(crate) fn version(&self) -> u64 {
        self.recent.read().count() + 1
    }

    /// Visits the names recorded after `version`. False, with nothing visited, if some are forgotten.
    pub(crate) fn since(&self, version: u64, visit: &mut dyn FnMut(&str)) -> bool {
        let recent = self.recent.read();
        let Some(skipped) = version.saturating_sub(1).checked_sub(recent.forgotten) else {
            return false;
        };
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        for name in recent.names.iter().skip(skipped) {
            visit(name);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(changes: &TopicChanges, version: u64) -> Option<Vec<String>> {
        let mut names = Vec::new();
        changes
            .since(version, &mut |name| names.push(name.to_owned()))
            .then_some(names)
    }

    #[test]
    fn what_changed_since_a_version_is_known_until_it_is_forgotten() {
        let changes = TopicChanges::default();
        let first = changes.version();
        changes.record("a".into(), false);
        let second = changes.version();
        changes.record("b".into(), false);
        assert_eq!(since(&changes, first).unwrap(), ["a", "b"]);
        assert_eq!(since(&changes, second).unwrap(), ["b"]);
        assert_eq!(since(&changes, changes.version()).unwrap(), Vec::<String>::new());
        for _ in 0..CHANGES_MAX {
            changes.record("c".into(), false);
        }
        assert_eq!(since(&changes, second), None);
        assert_eq!(since(&changes, changes.version() - 1).unwrap(), ["c"]);
    }
}
