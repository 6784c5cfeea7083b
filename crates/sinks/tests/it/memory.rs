//! Positions in memory, as the app of a sink has them.

use std::collections::HashMap;

use async_trait::async_trait;
use stafett_model::Lock;
use stafett_sinks::target::{Ledger, Opened, Place, Start, TargetError};

#[derive(Debug, Default)]
pub(crate) struct MemoryLedger(pub(crate) Lock<HashMap<Place, (u64, u64)>>);

#[async_trait]
impl Ledger for MemoryLedger {
    async fn open(&self, place: &Place, start: Start) -> Result<Opened, TargetError> {
        let first = (start.next, start.next);
        let (next, end) = *self.0.lock().entry(place.clone()).or_insert(first);
        Ok(Opened {
            next,
            epoch: 1,
            begun: (end > next).then_some(end),
            topic: None,
        })
    }

    async fn begin(&self, place: &Place, from: u64, next: u64) -> Result<(), TargetError> {
        let mut places = self.0.lock();
        let end = places.get(place).map_or(0, |(_, end)| *end);
        places.insert(place.clone(), (from, end.max(next)));
        Ok(())
    }

    fn end(&self, place: &Place, next: u64) {
        let mut places = self.0.lock();
        let end = places.get(place).map_or(0, |(_, end)| *end);
        places.insert(place.clone(), (next, end.max(next)));
    }
}
