//! What was read of a log and not yet handed out: batches as they are, read message by message as they are
//! wanted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Buf, Bytes, BytesMut};
use stafett_journal::Run;
use stafett_model::batch::HEADER_BYTES;
use stafett_model::{BatchHeader, Epoch, Records, StoredMessage, records};

/// Decompressed bytes of one batch.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// A place in a log from which messages are read in order.
#[derive(Debug)]
pub(crate) struct Cursor {
    pieces: VecDeque<Bytes>,
    batch: Option<(Records, Epoch)>,
    next: Option<(u64, StoredMessage, Epoch)>,
    /// What it covers: from here…
    from: u64,
    /// …to here.
    end: u64,
    bytes: usize,
    kept: Arc<Kept>,
}

/// Bytes that all cursors keep in memory.
#[derive(Debug, Default)]
pub(crate) struct Kept(AtomicUsize);

/// What a cursor has at an offset.
#[derive(Debug)]
pub(crate) enum Look {
    /// The message, and the start of the program that stored it.
    Message(StoredMessage, Epoch),
    /// Nothing, until there.
    Hole(u64),
    /// It has to be filled from there.
    Unread,
}

impl Kept {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Cursor {
    pub(crate) fn new(kept: Arc<Kept>) -> Self {
        Self {
            pieces: VecDeque::new(),
            batch: None,
            next: None,
            from: 0,
            end: 0,
            bytes: 0,
            kept,
        }
    }

    /// Goes on with what was read from `from` on.
    pub(crate) fn fill(&mut self, from: u64, run: Run) {
        self.clear();
        self.pieces = run.pieces.into();
        (self.from, self.end) = (from, run.next.0);
        self.bytes = run.bytes;
        self.kept.0.fetch_add(self.bytes, Ordering::Relaxed);
    }

    /// Forgets what was read.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        (self.batch, self.next) = (None, None);
        (self.from, self.end) = (0, 0);
        self.kept
            .0
            .fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }

    /// What is at an offset. A message is taken out with that.
    pub(crate) fn look(&mut self, wanted: u64) -> Look {
        if wanted < self.from || wanted >= self.end {
            return Look::Unread;
        }
        let next = match self.next.take() {
            Some(next) if next.0 >= wanted => Some(next),
            _ => self.read_next(wanted),
        };
        match next {
            Some((at, message, epoch)) if at == wanted => {
                self.from = wanted + 1;
                Look::Message(message, epoch)
            }
            Some(later) => {
                let at = later.0;
                self.next = Some(later);
                Look::Hole(at)
            }
            None => Look::Hole(self.end),
        }
    }

    /// Puts a message back that was just taken out.
    pub(crate) fn put_back(&mut self, at: u64, message: StoredMessage, epoch: Epoch) {
        if self.from == at + 1 && self.next.is_none() {
            self.from = at;
            self.next = Some((at, message, epoch));
        }
    }

    /// The first message at or behind an offset that is left. Batches that are not sound have none, nor do
    /// those that only steer.
    fn read_next(&mut self, wanted: u64) -> Option<(u64, StoredMessage, Epoch)> {
        loop {
            if let Some((batch, epoch)) = &mut self.batch {
                match batch.next_message() {
                    Some(Ok((at, message))) if at.0 >= wanted => return Some((at.0, message, *epoch)),
                    Some(Ok(_)) => continue,
                    Some(Err(_)) | None => self.batch = None,
                }
            }
            let batch = self.next_batch()?;
            let Ok(header) = BatchHeader::parse(&batch) else {
                continue;
            };
            let epoch = Epoch(u32::try_from(header.leader_epoch).unwrap_or(0));
            if !header.is_control()
                && let Ok(mut records) = records(&batch, BATCH_BYTES_MAX)
                && records.seek(stafett_model::Offset(wanted)).is_ok()
            {
                self.batch = Some((records, epoch));
            }
        }
    }

    /// The next batch, put together where it lies in several pieces.
    fn next_batch(&mut self) -> Option<Bytes> {
        let wanted = loop {
            let front = self.pieces.front()?;
            if front.len() >= HEADER_BYTES {
                break BatchHeader::parse(front).ok()?.bytes;
            }
            self.join()?;
        };
        while self.pieces.front()?.len() < wanted {
            self.join()?;
        }
        let front = self.pieces.front_mut()?;
        let batch = front.split_to(wanted);
        if !front.has_remaining() {
            self.pieces.pop_front();
        }
        Some(batch)
    }

    /// Makes one piece of the first two.
    fn join(&mut self) -> Option<()> {
        let (first, second) = (self.pieces.pop_front()?, self.pieces.pop_front()?);
        let mut joined = BytesMut::with_capacity(first.len() + second.len());
        joined.extend_from_slice(&first);
        joined.extend_from_slice(&second);
        self.pieces.push_front(joined.freeze());
        Some(())
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.clear();
    }
}
