//! Read-ahead of a log: batches as stored, decoded message by message on demand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stafett_journal::LogSlice;
use stafett_model::{Epoch, Offset, Records, StoredMessage};

use crate::batches::Batches;

/// Bound on the decompressed bytes of one batch.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// Position in a log from which messages are read in order.
#[derive(Debug)]
pub struct Cursor {
    batches: Batches,
    batch: Option<(Records, Epoch)>,
    next: Option<(u64, StoredMessage, Epoch)>,
    /// First offset that the cursor covers.
    from: u64,
    /// End of the covered offsets.
    end: u64,
    bytes: usize,
    kept: Arc<ReadAheadBudget>,
}

/// Bytes that all cursors keep in memory.
#[derive(Debug, Default)]
pub struct ReadAheadBudget(AtomicUsize);

/// Result of looking at an offset.
#[derive(Debug)]
pub enum CursorItem {
    /// The message, and the epoch that stored it.
    Message(StoredMessage, Epoch),
    /// No message up to this offset.
    Hole(u64),
    /// The cursor has to be filled from this offset.
    Unread,
}

impl ReadAheadBudget {
    #[inline]
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Cursor {
    pub fn new(kept: Arc<ReadAheadBudget>) -> Self {
        Self {
            batches: Batches::default(),
            batch: None,
            next: None,
            from: 0,
            end: 0,
            bytes: 0,
            kept,
        }
    }

    /// Replaces the contents by the result of a read from `from` on.
    pub fn fill(&mut self, from: u64, run: LogSlice) {
        self.clear();
        (self.from, self.end) = (from, run.next.0);
        self.bytes = run.bytes;
        self.batches = Batches::of(run);
        self.kept.0.fetch_add(self.bytes, Ordering::Relaxed);
    }

    /// Drops the contents.
    pub fn clear(&mut self) {
        self.batches = Batches::default();
        (self.batch, self.next) = (None, None);
        (self.from, self.end) = (0, 0);
        self.kept
            .0
            .fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }

    /// Looks at an offset. A message found is taken out.
    #[inline]
    pub fn look(&mut self, wanted: u64) -> CursorItem {
        if wanted < self.from || wanted >= self.end {
            return CursorItem::Unread;
        }
        let next = match self.next.take() {
            Some(next) if next.0 >= wanted => Some(next),
            _ => self.read_next(wanted),
        };
        match next {
            Some((at, message, epoch)) if at == wanted => {
                self.from = wanted + 1;
                CursorItem::Message(message, epoch)
            }
            Some(later) => {
                let at = later.0;
                self.next = Some(later);
                CursorItem::Hole(at)
            }
            None => CursorItem::Hole(self.end),
        }
    }

    /// Puts back the message that was just taken out.
    #[inline]
    pub fn put_back(&mut self, at: u64, message: StoredMessage, epoch: Epoch) {
        if self.from == at + 1 && self.next.is_none() {
            self.from = at;
            self.next = Some((at, message, epoch));
        }
    }

    /// Returns the first remaining message at or after an offset.
    fn read_next(&mut self, wanted: u64) -> Option<(u64, StoredMessage, Epoch)> {
        loop {
            if let Some((batch, epoch)) = &mut self.batch {
                match batch.next_message() {
                    Some(Ok((at, message))) if at.0 >= wanted => return Some((at.0, message, *epoch)),
                    Some(Ok(_)) => continue,
                    Some(Err(_)) | None => self.batch = None,
                }
            }
            let mut records = self.batches.next_records(BATCH_BYTES_MAX)?;
            let epoch = Epoch(u32::try_from(records.header().leader_epoch).unwrap_or(0));
            if records.seek(Offset(wanted)).is_ok() {
                self.batch = Some((records, epoch));
            }
        }
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.clear();
    }
}
