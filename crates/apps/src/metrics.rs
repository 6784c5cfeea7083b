//! Metrics of all apps together.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

type Count = Counter<u64, AtomicU64>;

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) delivered: Count,
    pub(crate) ignored: Count,
    pub(crate) commits: Count,
    pub(crate) repeated: Count,
    pub(crate) fenced: Count,
    pub(crate) emitted: Count,
    pub(crate) gaps: Count,
    pub(crate) failed: Count,
    pub(crate) dead_lettered: Count,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let mut add = |name: &str, help: &str, count: &Count| registry.register(name, help, count.clone());
        add(
            "apps_records_delivered",
            "Records delivered to workers",
            &self.delivered,
        );
        add(
            "apps_ignored",
            "Records of finished keys that were left out",
            &self.ignored,
        );
        add("apps_commits", "Commits that were stored", &self.commits);
        add(
            "apps_commits_repeated",
            "Commits that were stored before",
            &self.repeated,
        );
        add(
            "apps_commits_fenced",
            "Commits refused because the claim was lost",
            &self.fenced,
        );
        add("apps_emitted", "Results stored by commits", &self.emitted);
        add("apps_gaps", "Gaps that stopped a task", &self.gaps);
        add("apps_failed", "Attempts at records that failed", &self.failed);
        add(
            "apps_dead_lettered",
            "Records that went to a topic of dead letters",
            &self.dead_lettered,
        );
    }
}
