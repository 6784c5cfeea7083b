//! Walk over the batches of a read, as stored. They may span several pieces, and are put together
//! only as they are reached.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use stafett_journal::{AbortedTransaction, LogSlice};
use stafett_model::batch::HEADER_BYTES;
use stafett_model::{BatchHeader, Records, records};

/// Batches of a read, in order.
#[derive(Debug, Default)]
pub struct Batches {
    pieces: VecDeque<Bytes>,
    aborted: Vec<AbortedTransaction>,
}

impl Batches {
    pub fn of(run: LogSlice) -> Self {
        Self {
            pieces: run.pieces.into(),
            aborted: run.aborted,
        }
    }

    /// Returns the header of the next batch, which is not taken out or put together.
    pub fn header(&mut self) -> Option<BatchHeader> {
        BatchHeader::parse(self.front(HEADER_BYTES)?).ok()
    }

    /// Takes out the next batch as stored, with its header.
    pub fn next_batch(&mut self) -> Option<(BatchHeader, Bytes)> {
        let header = self.header()?;
        let batch = self.front(header.bytes)?.split_to(header.bytes);
        Some((header, batch))
    }

    /// Takes out the next batch that has records for readers; decompressed, they take at most `bytes_max`.
    /// Malformed batches, control batches and those of aborted transactions have none.
    pub fn next_records(&mut self, bytes_max: usize) -> Option<Records> {
        loop {
            let (header, batch) = self.next_batch()?;
            if !self.is_hidden(&header)
                && let Ok(records) = records(&batch, bytes_max)
            {
                return Some(records);
            }
        }
    }

    /// Returns true for control batches and batches of aborted transactions: readers get nothing of them.
    pub fn is_hidden(&self, header: &BatchHeader) -> bool {
        header.is_control() || header.is_transactional() && self.is_aborted(header)
    }

    fn is_aborted(&self, header: &BatchHeader) -> bool {
        self.aborted.iter().any(|aborted| {
            let range = aborted.first.0..aborted.last.0;
            aborted.producer.0 == header.producer_id && range.contains(&header.base_offset.cast_unsigned())
        })
    }

    /// Returns the first piece, made long enough to have the next `bytes` bytes. `None` if there are fewer.
    fn front(&mut self, bytes: usize) -> Option<&mut Bytes> {
        while self.pieces.front()?.is_empty() {
            self.pieces.pop_front();
        }
        if self.pieces.front()?.len() < bytes {
            self.join(bytes)?;
        }
        self.pieces.front_mut()
    }

    /// Joins the next `bytes` bytes to one piece.
    fn join(&mut self, bytes: usize) -> Option<()> {
        let mut joined = BytesMut::with_capacity(bytes);
        while joined.len() < bytes {
            let front = self.pieces.front_mut()?;
            let wanted = front.len().min(bytes - joined.len());
            joined.extend_from_slice(&front.split_to(wanted));
            if front.is_empty() {
                self.pieces.pop_front();
            }
        }
        self.pieces.push_front(joined.freeze());
        Some(())
    }
}
