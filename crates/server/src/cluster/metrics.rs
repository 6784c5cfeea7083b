//! Metrics of this node in a cluster.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use stafett_admin::cluster::CommitTimes;
use stafett_model::Lock;

#[derive(Debug)]
pub(crate) struct Metrics {
    pub(super) nodes: Gauge,
    pub(super) is_owner: Gauge,
    pub(super) epoch: Gauge,
    pub(super) relays: Gauge,
    pub(super) relayed: Counter,
    pub(super) refused_relays: Counter,
    pub(super) unserved: Counter,
    pub(super) passed: Counter,
    pub(super) strangers: Counter,
    pub(super) claims: Counter,
    pub(super) losses: Counter,
    pub(super) opening: Histogram,
    committing: Histogram,
    latest: Arc<Lock<Latest>>,
}

/// Times of the latest commits.
#[derive(Debug, Default)]
struct Latest {
    count: u64,
    times: VecDeque<Duration>,
}

/// Commits whose times are kept.
const LATEST_MAX: usize = 1000;

impl Metrics {
    pub(super) fn new() -> Self {
        Self {
            nodes: Gauge::default(),
            is_owner: Gauge::default(),
            epoch: Gauge::default(),
            relays: Gauge::default(),
            relayed: Counter::default(),
            refused_relays: Counter::default(),
            unserved: Counter::default(),
            passed: Counter::default(),
            strangers: Counter::default(),
            claims: Counter::default(),
            losses: Counter::default(),
            opening: Histogram::new(exponential_buckets(0.01, 2.0, 14)),
            committing: Histogram::new(exponential_buckets(0.000_25, 2.0, 16)),
            latest: Arc::default(),
        }
    }

    /// Returns a function that notes the time of a commit.
    pub(super) fn on_commit(&self) -> impl Fn(Duration) + Send + Sync + 'static + use<> {
        let (committing, latest) = (self.committing.clone(), Arc::clone(&self.latest));
        move |time| {
            committing.observe(time.as_secs_f64());
            let mut latest = latest.lock();
            latest.count += 1;
            if latest.times.len() == LATEST_MAX {
                latest.times.pop_front();
            }
            latest.times.push_back(time);
        }
    }

    /// Returns the number of commits, and times of the latest.
    pub(super) fn commits(&self) -> Option<CommitTimes> {
        let (count, mut times) = {
            let latest = self.latest.lock();
            (latest.count, latest.times.iter().copied().collect::<Vec<_>>())
        };
        times.sort_unstable();
        let at = |part: usize| {
            let time = times.get(((times.len().saturating_sub(1)) * part).div_ceil(100));
            time.map(|time| time.as_secs_f64() * 1000.0)
        };
        Some(CommitTimes {
            count,
            p50_ms: at(50)?,
            p99_ms: at(99)?,
            max_ms: at(100)?,
        })
    }

    /// Registers the metrics; their values outlive the registry.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("cluster");
        registry.register(
            "nodes",
            "Nodes that live, as this node sees it.",
            self.nodes.clone(),
        );
        registry.register("is_owner", "1 while this node serves.", self.is_owner.clone());
        registry.register(
            "epoch",
            "Owners that the cell has had, as this node sees it.",
            self.epoch.clone(),
        );
        registry.register(
            "relays",
            "Connections that are relayed to the owner.",
            self.relays.clone(),
        );
        registry.register(
            "relayed",
            "Connections that were relayed to the owner.",
            self.relayed.clone(),
        );
        registry.register(
            "refused_relays",
            "Connections that were closed because as many were relayed as cluster.relays_max allows.",
            self.refused_relays.clone(),
        );
        registry.register(
            "unserved",
            "Connections that ended because there was no owner in time.",
            self.unserved.clone(),
        );
        registry.register(
            "passed",
            "Connections and requests of clients that were passed on to the owner of their cell.",
            self.passed.clone(),
        );
        registry.register(
            "strangers",
            "Connections to the address for other nodes that were not from one.",
            self.strangers.clone(),
        );
        registry.register("claims", "Claims of the cell by this node.", self.claims.clone());
        registry.register(
            "losses",
            "Leases that this node lost, or could not use.",
            self.losses.clone(),
        );
        registry.register_with_unit(
            "opening",
            "Time from a claim to listeners that serve.",
            Unit::Seconds,
            self.opening.clone(),
        );
        registry.register_with_unit(
            "commit",
            "Time of a commit in the database.",
            Unit::Seconds,
            self.committing.clone(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_latest_commits_are_kept() {
        let metrics = Metrics::new();
        assert!(metrics.commits().is_none());
        let on_commit = metrics.on_commit();
        for ms in 1..=1500 {
            on_commit(Duration::from_millis(ms));
        }
        let commits = metrics.commits().unwrap();
        assert_eq!(commits.count, 1500);
        assert!((commits.max_ms - 1500.0).abs() < 0.1, "{commits:?}");
        assert!((commits.p50_ms - 1001.0).abs() < 1.1, "{commits:?}");
        assert!((commits.p99_ms - 1491.0).abs() < 1.1, "{commits:?}");
    }
}
