//! Reader of one log: message by message from an offset on, with the ranges that it had to skip.
//!
//! A reader of logs is a tail and a stored position. It sees each message that is visible. Waiting for growth
//! and retries are the caller's.

use std::sync::Arc;

use stafett_journal::Journal;
use stafett_model::{Epoch, LogId, Offset, StoredMessage};

use crate::cursor::{Cursor, CursorItem, ReadAheadBudget};
use crate::log_read::{LogRead, LogTicket, ReadEnd, SkipReason, Skipped, read_log};

#[derive(Debug)]
pub struct Tail {
    log: LogId,
    /// Offset of the next item.
    next: Offset,
    /// Bytes of one read.
    read_bytes: usize,
    cursor: Cursor,
    /// Range at `next` that the last read found missing.
    skipped: Option<Skipped>,
}

#[derive(Debug)]
pub enum TailItem {
    /// A message, and the epoch that stored it.
    Message(Offset, StoredMessage, Epoch),
    Skipped(Skipped),
}

impl Tail {
    pub fn new(log: LogId, from: Offset, read_bytes: usize, kept: Arc<ReadAheadBudget>) -> Self {
        Self {
            log,
            next: from,
            read_bytes,
            cursor: Cursor::new(kept),
            skipped: None,
        }
    }

    /// Returns the offset of the next item.
    pub fn next_offset(&self) -> Offset {
        self.next
    }

    /// Continues at an offset. The read-ahead stays if the offset is in it.
    pub fn seek(&mut self, offset: Offset) {
        self.next = offset;
        self.skipped = None;
    }

    /// Drops the read-ahead: the next item is read again.
    pub fn drop_read_ahead(&mut self) {
        self.cursor.clear();
        self.skipped = None;
    }

    /// Returns the next item of the read-ahead. `None` if the log has to be read.
    pub fn item(&mut self) -> Option<TailItem> {
        let at = self.next;
        let skipped = match self.skipped.take() {
            Some(skipped) => skipped,
            None => match self.cursor.look(at.0) {
                CursorItem::Message(message, stored_by) => {
                    self.next = Offset(at.0 + 1);
                    return Some(TailItem::Message(at, message, stored_by));
                }
                CursorItem::Hole(to) => Skipped {
                    from: at,
                    to: Offset(to),
                    why: SkipReason::Gap,
                },
                CursorItem::Unread => return None,
            },
        };
        self.next = skipped.to;
        Some(TailItem::Skipped(skipped))
    }

    /// Puts back the message that was just returned.
    pub fn put_back(&mut self, offset: Offset, message: StoredMessage, stored_by: Epoch) {
        self.cursor.put_back(offset.0, message, stored_by);
        self.next = offset;
    }

    /// Begins to read from the next offset on; the result goes to [`Self::on_read`].
    pub fn begin_read(&self, journal: &dyn Journal) -> LogTicket {
        read_log(journal, self.log, self.next, self.read_bytes)
    }

    /// Handles the result of a read: there are further items, or the reason why there are none.
    pub fn on_read(&mut self, read: LogRead) -> Result<(), ReadEnd> {
        match read {
            LogRead::Batches(run) => self.cursor.fill(self.next.0, run),
            LogRead::Skip(skipped) => self.skipped = Some(skipped),
            LogRead::End(end) => return Err(end),
        }
        Ok(())
    }

    /// Reads from the next offset on.
    pub async fn read(&mut self, journal: &dyn Journal) -> Result<(), ReadEnd> {
        let read = self.begin_read(journal).finish().await;
        self.on_read(read)
    }

    /// Returns the next item, after a read if necessary.
    pub async fn next(&mut self, journal: &dyn Journal) -> Result<TailItem, ReadEnd> {
        loop {
            match self.item() {
                Some(item) => return Ok(item),
                None => self.read(journal).await?,
            }
        }
    }

    /// Reads the message at an offset. `None` if there is none that can be read. Ascending offsets are read
    /// together.
    pub async fn message_at(
        &mut self,
        journal: &dyn Journal,
        offset: Offset,
    ) -> Result<Option<StoredMessage>, ReadEnd> {
        self.seek(offset);
        match self.next(journal).await {
            Ok(TailItem::Message(_, message, _)) => Ok(Some(message)),
            Ok(TailItem::Skipped(_)) | Err(ReadEnd::AtEnd) => Ok(None),
            Err(end) => Err(end),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use bytes::{Bytes, BytesMut};
    use stafett_journal::{LogSlice, ReadError};
    use stafett_model::batch::{PLACEMENT_BYTES, placement};
    use stafett_model::{BatchBuilder, Codec, Record};

    use super::*;

    fn tail(kept: &Arc<ReadAheadBudget>) -> Tail {
        Tail::new(LogId(1), Offset::ZERO, 1 << 20, Arc::clone(kept))
    }

    /// Builds a stored batch; the values of its messages are their offsets.
    fn batch(offsets: Range<u64>, mut builder: BatchBuilder) -> Bytes {
        for offset in offsets.clone() {
            let value = offset.to_string();
            let record = Record {
                value: Some(value.as_bytes()),
                ..Record::default()
            };
            builder.push(&record).unwrap();
        }
        let mut batch = BytesMut::from(&*builder.finish().unwrap());
        let place = placement(Offset(offsets.start), Epoch(7), batch.len());
        batch[..PLACEMENT_BYTES].copy_from_slice(&place);
        batch.freeze()
    }

    fn plain(offsets: Range<u64>) -> Bytes {
        batch(offsets, BatchBuilder::new(Codec::None))
    }

    fn run(batches: &[Bytes], next: u64, piece_bytes: usize) -> LogRead {
        let bytes = batches.concat();
        let pieces = bytes.chunks(piece_bytes);
        LogRead::Batches(LogSlice {
            bytes: bytes.len(),
            pieces: pieces.map(Bytes::copy_from_slice).collect(),
            next: Offset(next),
            ..LogSlice::default()
        })
    }

    /// Takes all items that are there: `3` is a message, `3..5 Gap` a skipped range.
    fn items(tail: &mut Tail) -> Vec<String> {
        let texts = std::iter::from_fn(|| tail.item()).map(|item| match item {
            TailItem::Message(offset, message, stored_by) => {
                assert_eq!(stored_by, Epoch(7));
                assert_eq!(message.value(), offset.to_string().as_bytes());
                offset.to_string()
            }
            TailItem::Skipped(Skipped { from, to, why }) => format!("{from}..{to} {why:?}"),
        });
        texts.collect()
    }

    #[test]
    fn batches_over_several_pieces_are_put_together() {
        let batches = [plain(0..3), plain(3..4), plain(4..6)];
        for piece_bytes in [1, 7, 60, 61, 62, 100, 1000] {
            let kept = Arc::default();
            let mut tail = tail(&kept);
            tail.on_read(run(&batches, 6, piece_bytes)).unwrap();
            assert_eq!(items(&mut tail), ["0", "1", "2", "3", "4", "5"], "{piece_bytes}");
            assert_eq!(tail.next_offset(), Offset(6));
        }
    }

    #[test]
    fn offsets_without_messages_are_a_gap() {
        let control = batch(4..5, BatchBuilder::new(Codec::None).control());
        let mut tail = tail(&Arc::default());
        tail.on_read(run(&[plain(2..4), control, plain(5..6)], 8, 1000))
            .unwrap();
        assert_eq!(
            items(&mut tail),
            ["0..2 Gap", "2", "3", "4..5 Gap", "5", "6..8 Gap"]
        );
        assert_eq!(tail.next_offset(), Offset(8));
    }

    #[test]
    fn a_batch_that_begins_earlier_is_read_from_the_wanted_offset_on() {
        let mut tail = tail(&Arc::default());
        tail.seek(Offset(2));
        tail.on_read(run(&[plain(0..4)], 4, 1000)).unwrap();
        assert_eq!(items(&mut tail), ["2", "3"]);
    }

    #[test]
    fn an_offset_within_what_was_read_is_not_read_again() {
        let mut tail = tail(&Arc::default());
        tail.on_read(run(&[plain(0..3), plain(3..6)], 6, 1000)).unwrap();
        for offset in [Offset(1), Offset(4)] {
            tail.seek(offset);
            assert!(matches!(tail.item(), Some(TailItem::Message(at, ..)) if at == offset));
        }
        tail.seek(Offset(2));
        assert!(tail.item().is_none(), "what lies before has to be read");
    }

    #[test]
    fn what_is_missing_is_skipped_with_its_reason() {
        let damage = ReadError::Damaged {
            log: LogId(1),
            from: Offset(2),
            to: Offset(5),
        };
        let mut tail = tail(&Arc::default());
        tail.on_read(LogRead::of(Offset::ZERO, Some(Err(damage))))
            .unwrap();
        assert_eq!(items(&mut tail), ["2..5 Damaged"]);
        let expired = ReadError::OutOfRange {
            log: LogId(1),
            wanted: Offset(5),
            start: Offset(9),
            end: Offset(9),
        };
        tail.on_read(LogRead::of(Offset(5), Some(Err(expired)))).unwrap();
        assert_eq!(items(&mut tail), ["5..9 Expired"]);
        let end = LogRead::of(Offset(9), Some(Ok(LogSlice::default())));
        assert_eq!(tail.on_read(end), Err(ReadEnd::AtEnd));
        assert!(items(&mut tail).is_empty());
        assert_eq!(tail.next_offset(), Offset(9));
    }

    #[test]
    fn a_message_that_was_put_back_comes_again() {
        let mut tail = tail(&Arc::default());
        tail.on_read(run(&[plain(0..2)], 2, 1000)).unwrap();
        let Some(TailItem::Message(at, message, stored_by)) = tail.item() else {
            panic!("there is a message");
        };
        tail.put_back(at, message, stored_by);
        assert_eq!(tail.next_offset(), Offset::ZERO);
        assert_eq!(items(&mut tail), ["0", "1"]);
    }

    #[test]
    fn kept_bytes_are_counted_until_they_are_dropped() {
        let kept = Arc::default();
        let (mut one, mut other) = (tail(&kept), tail(&kept));
        let batch = plain(0..3);
        let batch_bytes = batch.len();
        one.on_read(run(std::slice::from_ref(&batch), 3, 1000)).unwrap();
        other.on_read(run(std::slice::from_ref(&batch), 3, 1000)).unwrap();
        assert_eq!(kept.bytes(), 2 * batch_bytes);
        drop(one);
        other.on_read(run(&[batch, plain(3..9)], 9, 1000)).unwrap();
        assert!(kept.bytes() > batch_bytes);
        drop(other);
        assert_eq!(kept.bytes(), 0);
    }
}
