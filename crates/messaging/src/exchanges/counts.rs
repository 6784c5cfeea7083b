//! Counters of one exchange.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stafett_counters::{Measured, Sampler, Series, Tracked, Words};
use stafett_model::SharedLock;

const IN: usize = 0;
const ROUTED: usize = 1;
const UNROUTABLE: usize = 2;

/// Counters of an exchange. One that was not published to has none.
#[derive(Debug, Default)]
pub struct ExchangeTraffic {
    counters: Words<3>,
    is_gone: AtomicBool,
}

/// Messages of an exchange since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExchangeCounts {
    /// Messages that publishers gave to it.
    pub published: u64,
    /// Messages of these that led somewhere.
    pub routed: u64,
    pub unroutable: u64,
}

impl Measured for ExchangeTraffic {
    const SERIES: &'static [Series] = &[
        Series::counts("published", &[IN]),
        Series::counts("routed", &[ROUTED]),
        Series::counts("unroutable", &[UNROUTABLE]),
    ];

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

impl ExchangeTraffic {
    pub fn counts(&self) -> ExchangeCounts {
        let [published, routed, unroutable] = self.counters.all();
        ExchangeCounts {
            published,
            routed,
            unroutable,
        }
    }
}

/// Counters of the exchanges of a namespace, by name.
#[derive(Debug, Default)]
pub(crate) struct ExchangesTraffic(SharedLock<HashMap<Arc<str>, Arc<ExchangeTraffic>>>);

impl ExchangesTraffic {
    pub(crate) fn count(
        &self,
        sampler: &Sampler<ExchangeTraffic>,
        exchange: &str,
        published: u64,
        unroutable: u64,
    ) {
        let adds = [
            (IN, published),
            (ROUTED, published.saturating_sub(unroutable)),
            (UNROUTABLE, unroutable),
        ];
        let known = self.0.read();
        let Some(traffic) = known.get(exchange) else {
            drop(known);
            let traffic = Arc::clone(self.0.write().entry(exchange.into()).or_default());
            sampler.note(traffic.counters.add(adds), || Arc::clone(&traffic));
            return;
        };
        sampler.note(traffic.counters.add(adds), || Arc::clone(traffic));
    }

    pub(crate) fn get(&self, exchange: &str) -> Option<Arc<ExchangeTraffic>> {
        self.0.read().get(exchange).cloned()
    }

    pub(crate) fn forget(&self, exchange: &str) {
        let removed = self.0.write().remove(exchange);
        if let Some(traffic) = removed {
            traffic.is_gone.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn forget_all(&self) {
        let all = std::mem::take(&mut *self.0.write());
        for traffic in all.values() {
            traffic.is_gone.store(true, Ordering::Relaxed);
        }
    }
}
