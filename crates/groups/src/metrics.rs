//! Metrics of groups.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::group::GroupState;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    kind: &'static str,
    state: &'static str,
}

#[derive(Debug, Default)]
pub(crate) struct GroupMetrics {
    groups: Family<StateLabels, Gauge>,
    pub(crate) rebalances: Counter,
    pub(crate) expired_members: Counter,
    pub(crate) commits: Counter,
    pub(crate) expired_commits: Counter,
}

impl GroupMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("groups");
        registry.register("groups", "Groups by kind and state", self.groups.clone());
        registry.register("rebalances", "Rebalances begun", self.rebalances.clone());
        registry.register(
            "expired_members",
            "Members that were silent for too long",
            self.expired_members.clone(),
        );
        registry.register(
            "commits",
            "Offsets committed, one per partition",
            self.commits.clone(),
        );
        registry.register(
            "expired_commits",
            "Committed offsets whose time was over or whose topic is gone",
            self.expired_commits.clone(),
        );
    }

    /// Counts a group's change of state; `before` is `None` for a new group, `after` for a removed one.
    pub(crate) fn on_state(&self, before: Option<GroupState>, after: Option<GroupState>) {
        if before == after {
            return;
        }
        let gauge = |state: GroupState| {
            self.groups.get_or_create(&StateLabels {
                kind: state.kind.name(),
                state: state.name,
            })
        };
        if let Some(state) = before {
            gauge(state).dec();
        }
        if let Some(state) = after {
            gauge(state).inc();
        }
    }
}
