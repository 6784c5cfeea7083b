//! Counters of the hand-out.

use prometheus_client::metrics::counter::Counter;
use stafett_model::DeathReason;

#[derive(Debug, Default)]
pub struct DeliveryMetrics {
    pub delivered: Counter,
    pub settled: Counter,
    pub expired: Counter,
    pub overflowed: Counter,
    pub rejected: Counter,
    pub returned_too_often: Counter,
    pub dead_lettered: Counter,
    pub lost: Counter,
    pub looks: Counter,
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
