//! Ids for idempotent producers. Blocks of them are reserved durably, so that none is given out twice.

use stafett_journal::{Journal, StateUnreadable};
use stafett_model::{Lock, ProducerId};
use stafett_store::{NotStored, spaces, store_synced};

const BLOCK: i64 = 1000;

#[derive(Debug)]
pub(crate) struct ProducerIds {
    /// Next id, and the end of the block.
    block: Lock<(i64, i64)>,
    /// One permit, held while a block is being reserved.
    taking: tokio::sync::Semaphore,
}

impl ProducerIds {
    pub(crate) fn load(journal: &dyn Journal) -> Result<Self, StateUnreadable> {
        let stored = spaces::PRODUCER_IDS.load(journal)?;
        let next = stored
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, i64::from_le_bytes);
        Ok(Self {
            block: Lock::new((next, next)),
            taking: tokio::sync::Semaphore::new(1),
        })
    }

    pub(crate) async fn next(&self, journal: &dyn Journal) -> Result<ProducerId, NotStored> {
        if let Some(id) = self.take() {
            return Ok(id);
        }
        let _turn = self.taking.acquire().await.map_err(|_| NotStored::Unknown)?;
        if let Some(id) = self.take() {
            return Ok(id);
        }
        let end = self.lock().1 + BLOCK;
        let put = spaces::PRODUCER_IDS.put(end.to_le_bytes().to_vec());
        store_synced(journal, [put]).await?;
        let mut block = self.lock();
        block.1 = end;
        drop(block);
        self.take().ok_or(NotStored::Unknown)
    }

    fn take(&self) -> Option<ProducerId> {
        let mut block = self.lock();
        let id = block.0;
        (id < block.1).then(|| {
            block.0 += 1;
            ProducerId(id)
        })
    }

    fn lock(&self) -> stafett_model::LockGuard<'_, (i64, i64)> {
        self.block.lock()
    }
}
