//! Ids for idempotent producers. Blocks of them are reserved durably, so that none is given out twice.

use bytes::Bytes;
use stafett_journal::{
    Append, Change, Frame, Journal, Outcome, StateChange, StateItem, StateUnreadable, StateWait,
};
use stafett_model::{Lock, ProducerId};
use stafett_store::{NotStored, spaces};

const KEY: &[u8] = b"producer-ids";
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
        let mut next = 0;
        journal.load_state(spaces::CLUSTER, &mut |item| {
            if let StateItem::Value { key: KEY, value } = item
                && let Ok(bytes) = value.try_into()
            {
                next = i64::from_le_bytes(bytes);
            }
        })?;
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
        let change = StateChange {
            space: spaces::CLUSTER,
            key: Bytes::from_static(KEY),
            change: Change::Put(Bytes::copy_from_slice(&end.to_le_bytes())),
        };
        let append = Append::state([Frame::State(change)], StateWait::Synced);
        match journal.append(vec![append]).await.pop() {
            Some(Outcome::Committed(_)) => {}
            Some(Outcome::Refused(refusal)) => return Err(NotStored::Refused(refusal)),
            Some(Outcome::Unknown) | None => return Err(NotStored::Unknown),
        }
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

    fn lock(&self) -> std::sync::MutexGuard<'_, (i64, i64)> {
        self.block.lock()
    }
}
