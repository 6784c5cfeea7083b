//! Counters of the hand-out.

use prometheus_client::metrics::counter::Counter;
use stafett_model::DeathReason;

#[derive(Debug, Default)]
pub(crate) struct DeliveryMetrics {
    pub(crate) delivered: Counter,
    pub(crate) settled: Counter,
    pub(crate) expired: Counter,
    pub(crate) overflowed: Counter,
    pub(crate) rejected: Counter,
    pub(crate) returned_too_often: Counter,
    pub(crate) dead_lettered: Counter,
    pub(crate) lost: Counter,
    pub(crate) looks: Counter,
}

impl DeliveryMetrics {
    pub(super) fn on_death(&self, reason: DeathReason) {
        match reason {
            DeathReason::Expired => self.expired.inc(),
            DeathReason::Length => self.overflowed.inc(),
            DeathReason::Rejected => self.rejected.inc(),
            DeathReason::DeliveryLimit => self.returned_too_often.inc(),
        };
    }
}
