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
    /// Loads the end of the last block. That may be lost with a part of the journal: ids that logs know are
    /// not given out again either, as new producers would be taken for the earlier ones.
    pub(crate) fn load(journal: &dyn Journal) -> Result<Self, StateUnreadable> {
        let stored = spaces::PRODUCER_IDS.load(journal)?;
        let next = stored
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, i64::from_le_bytes);
        let ids = Self {
            block: Lock::new((next, next)),
            taking: tokio::sync::Semaphore::new(1),
        };
        for (log, _) in journal.filled() {
            for producer in journal.producers(log).unwrap_or_default() {
                ids.pass(producer.id);
            }
        }
        Ok(ids)
    }

    /// Gives out ids behind this one only.
    pub(crate) fn pass(&self, id: ProducerId) {
        let mut block = self.lock();
        if id.0 >= block.0 {
            block.0 = id.0.saturating_add(1);
            block.1 = block.1.max(block.0);
        }
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

#[cfg(test)]
mod tests {
    use stafett_journal::{Append, Frame, LogSpec, MemoryJournal, StateWait};
    use stafett_model::{BatchBuilder, Codec, Record};

    use super::*;

    #[tokio::test]
    async fn ids_that_logs_know_are_not_given_out_again() {
        let journal = MemoryJournal::default();
        let log = journal.allocate(1);
        let create = Frame::CreateLogs {
            first: log,
            count: 1,
            spec: LogSpec::default(),
        };
        let mut batch = BatchBuilder::new(Codec::None).producer(ProducerId(1700), 0, 0);
        let record = Record {
            key: None,
            value: Some(b"value"),
            headers: &[],
            timestamp: 1,
        };
        batch.push(&record).unwrap();
        let batch = Append::batch(log, batch.finish().unwrap());
        // The row of the last block is lost.
        journal
            .append(vec![Append::state([create], StateWait::Written), batch])
            .wait();
        let ids = ProducerIds::load(&journal).unwrap();
        assert_eq!(ids.next(&journal).await, Ok(ProducerId(1701)));
        ids.pass(ProducerId(1700));
        assert_eq!(ids.next(&journal).await, Ok(ProducerId(1702)));
        ids.pass(ProducerId(1800));
        assert_eq!(ids.next(&journal).await, Ok(ProducerId(1801)));
        ids.pass(ProducerId(5000));
        assert_eq!(ids.next(&journal).await, Ok(ProducerId(5001)));
    }
}
