//! Read-ahead of a queue: a cursor for each of the lanes read last, so that lanes that take turns are not
//! read again each time.

use std::sync::Arc;

use smallvec::SmallVec;
use stafett_journal::LogSlice;
use stafett_model::{Epoch, StoredMessage};
use stafett_topics::{Cursor, CursorItem, ReadAheadBudget};

/// Bound on the lanes with a cursor.
const LANES_MAX: usize = 2;

/// Cursors by lane, the most recently filled last.
#[derive(Debug, Default)]
pub(super) struct ReadAhead(SmallVec<[(u32, Box<Cursor>); 1]>);

impl ReadAhead {
    /// Looks at an offset of a lane. A message found is taken out.
    pub(super) fn look(&mut self, lane: u32, offset: u64) -> CursorItem {
        self.of(lane)
            .map_or(CursorItem::Unread, |cursor| cursor.look(offset))
    }

    /// Puts back the message that was just taken out.
    pub(super) fn put_back(&mut self, lane: u32, offset: u64, message: StoredMessage, stored_by: Epoch) {
        if let Some(cursor) = self.of(lane) {
            cursor.put_back(offset, message, stored_by);
        }
    }

    /// Gives the lane's cursor the result of a read from `from` on.
    pub(super) fn fill(&mut self, kept: &Arc<ReadAheadBudget>, lane: u32, from: u64, run: LogSlice) {
        let known = self.0.iter().position(|(known, _)| *known == lane);
        let mut cursor = match known {
            Some(at) => self.0.remove(at).1,
            None if self.0.len() < LANES_MAX => Box::new(Cursor::new(Arc::clone(kept))),
            None => self.0.remove(0).1,
        };
        cursor.fill(from, run);
        self.0.push((lane, cursor));
    }

    pub(super) fn clear(&mut self) {
        self.0 = SmallVec::new();
    }

    fn of(&mut self, lane: u32) -> Option<&mut Cursor> {
        let (_, cursor) = self.0.iter_mut().find(|(known, _)| *known == lane)?;
        Some(cursor)
    }
}
