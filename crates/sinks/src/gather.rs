//! Rows of one partition until they are due: full, or a time after the last flush. Pure; the clock is an
//! argument.

use std::sync::Arc;

use stafett_model::StoredRecord;

use crate::convert::{Converted, Converter, Reason};
use crate::rollup::{Groups, Rollup};
use crate::rows::Rows;
use crate::target::Place;

/// Triggers of a flush; the first that is reached counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushRules {
    pub records: usize,
    pub bytes: usize,
    /// Time since the last flush of the partition.
    pub every_ms: u64,
}

/// Cause of a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    Full,
    Bytes,
    Time,
    /// The partition goes to another worker, or the sink stops.
    Stop,
    /// A batch with these bounds was begun before.
    Begun,
}

impl Cause {
    pub fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Bytes => "bytes",
            Self::Time => "time",
            Self::Stop => "stop",
            Self::Begun => "begun",
        }
    }
}

/// A record that is not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Poison {
    pub offset: u64,
    pub reason: Reason,
}

/// Records of a partition that are written together.
#[derive(Debug, Clone)]
pub struct Batch {
    pub place: Place,
    /// Offset of the first record.
    pub from: u64,
    /// Offset behind the last one.
    pub next: u64,
    pub rows: Rows,
    pub poison: Vec<Poison>,
    /// Records between `from` and `next`, also those without a row.
    pub records: u64,
    pub dropped: Dropped,
    /// Newest time stamp of its records, if they have any.
    pub newest_ms: Option<i64>,
    /// True if rows are not those of single records: they are all stored, or none.
    pub is_whole: bool,
    pub cause: Cause,
}

/// Records that conditions left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    pub records: u64,
    /// Those of them on which a condition failed.
    pub failed: u64,
}

/// Gathered rows of a partition.
#[derive(Debug)]
pub struct Gather {
    place: Place,
    rules: FlushRules,
    width: usize,
    from: u64,
    next: u64,
    rows: Rows,
    poison: Vec<Poison>,
    poison_bytes: usize,
    records: u64,
    dropped: Dropped,
    /// Time stamp of the first record, if it has one.
    oldest_ms: Option<i64>,
    newest_ms: Option<i64>,
    flushed_ms: u64,
    begun: Option<u64>,
    /// Groups of records that are summed up instead of written.
    groups: Option<(Arc<Rollup>, Groups)>,
}

impl Gather {
    /// Begins at `from`. `begun` is the end of a batch whose bounds are stored already: it is written again
    /// with the same bounds.
    pub fn new(
        place: Place,
        rules: FlushRules,
        width: usize,
        from: u64,
        begun: Option<u64>,
        now_ms: u64,
    ) -> Self {
        Self {
            place,
            rules,
            width,
            from,
            next: from,
            rows: Rows::new(width),
            poison: Vec::new(),
            poison_bytes: 0,
            records: 0,
            dropped: Dropped::default(),
            oldest_ms: None,
            newest_ms: None,
            flushed_ms: now_ms,
            begun: begun.filter(|end| *end > from),
            groups: None,
        }
    }

    /// Sums records up, if there is a roll-up.
    #[must_use]
    pub fn summing(mut self, rollup: Option<&Arc<Rollup>>) -> Self {
        self.groups = rollup.map(|rollup| (Arc::clone(rollup), Groups::default()));
        self
    }

    /// Returns the rows and the poison of the batch, and their memory.
    fn size(&self) -> (usize, usize) {
        let (rows, bytes) = match &self.groups {
            Some((_, groups)) => (groups.len(), groups.bytes()),
            None => (self.rows.len(), self.rows.bytes()),
        };
        (rows + self.poison.len(), bytes + self.poison_bytes)
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Returns the offset behind the last record that was taken.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Takes a record, unless it lies before the position, or behind the end of a batch that was begun.
    /// Returns false if the batch has to be taken first, or the row of a database.
    pub fn push(&mut self, record: &StoredRecord, converter: &mut Converter) -> bool {
        let offset = record.offset.0;
        if offset < self.next {
            return true;
        }
        if let Some(end) = self.begun.filter(|end| offset >= *end) {
            // Its last offsets have no records for readers: a marker, an aborted batch, or removed ones.
            self.next = self.next.max(end);
            return false;
        }
        let result = match &mut self.groups {
            Some((rollup, groups)) => converter.fold(rollup, &self.place, record, groups),
            None => converter.convert(&self.place, record, &mut self.rows),
        };
        match result {
            Ok(Converted::Row) => {}
            Ok(Converted::Waits) => return false,
            Ok(Converted::Dropped { has_failed }) => {
                self.dropped.records += 1;
                self.dropped.failed += u64::from(has_failed);
            }
            Err(reason) => {
                self.poison_bytes += size_of::<Poison>() + reason.text.len();
                self.poison.push(Poison { offset, reason });
            }
        }
        if self.records == 0 {
            self.oldest_ms = Some(record.timestamp).filter(|at| *at >= 0);
        }
        self.newest_ms = self.newest_ms.max(Some(record.timestamp).filter(|at| *at >= 0));
        self.records += 1;
        self.next = offset + 1;
        true
    }

    /// Notes that the log has nothing for readers below `next`: control batches, and removed records.
    pub fn pass(&mut self, next: u64) {
        let end = self.begun.map_or(next, |end| end.min(next));
        self.next = self.next.max(end);
    }

    /// True if no more records are taken before the batch is.
    pub fn is_full(&self) -> bool {
        if self.begun.is_some() {
            return false;
        }
        let (rows, bytes) = self.size();
        rows >= self.rules.records || bytes >= self.rules.bytes
    }

    /// Returns why a flush is due.
    pub fn due(&self, now_ms: u64) -> Option<Cause> {
        if self.next == self.from {
            return None;
        }
        if let Some(end) = self.begun {
            return (self.next >= end).then_some(Cause::Begun);
        }
        let (rows, bytes) = self.size();
        if rows >= self.rules.records {
            Some(Cause::Full)
        } else if bytes >= self.rules.bytes {
            Some(Cause::Bytes)
        } else if self.deadline().is_some_and(|deadline| now_ms >= deadline) {
            Some(Cause::Time)
        } else {
            None
        }
    }

    /// Returns why a last flush is due. A batch that was begun waits for all of its records: a part of it
    /// would have another id.
    pub fn due_at_end(&self, now_ms: u64) -> Option<Cause> {
        match self.begun {
            Some(_) => self.due(now_ms),
            None => (!self.is_empty()).then_some(Cause::Stop),
        }
    }

    /// Returns the time of the next flush by time. `None` while nothing is gathered, and for a batch that was
    /// begun: its end decides.
    pub fn deadline(&self) -> Option<u64> {
        let waits = !self.is_empty() && self.begun.is_none();
        waits.then(|| self.flushed_ms.saturating_add(self.rules.every_ms))
    }

    /// Returns the time stamp of the first record that was gathered.
    pub fn oldest_ms(&self) -> Option<i64> {
        self.oldest_ms
    }

    /// True if nothing is gathered.
    pub fn is_empty(&self) -> bool {
        self.next == self.from
    }

    /// Takes the batch, and begins the next one behind it.
    pub fn take(&mut self, cause: Cause, now_ms: u64) -> Batch {
        if let Some((rollup, groups)) = &mut self.groups {
            groups.drain(rollup, self.from, &mut self.rows);
        }
        let batch = Batch {
            is_whole: self.groups.is_some(),
            place: self.place.clone(),
            from: self.from,
            next: self.next,
            rows: std::mem::replace(&mut self.rows, Rows::new(self.width)),
            poison: std::mem::take(&mut self.poison),
            records: std::mem::take(&mut self.records),
            dropped: std::mem::take(&mut self.dropped),
            newest_ms: self.newest_ms.take(),
            cause,
        };
        self.from = self.next;
        self.poison_bytes = 0;
        self.begun = None;
        self.oldest_ms = None;
        self.flushed_ms = now_ms;
        batch
    }
}

#[cfg(test)]
mod tests {
    use stafett_model::Offset;

    use super::*;
    use crate::computed::tests::place_and_record;
    use crate::definition::Definition;

    #[test]
    fn a_batch_that_was_begun_ends_where_it_did_although_its_last_offsets_have_no_records() {
        let text = "[sink.a]\nfrom = \"t\"\nto = \"topic\"\ntopic = \"u\"\n";
        let sink = Definition::parse(text).unwrap().remove(0);
        let (place, record) = place_and_record();
        let mut converter = Converter::new(sink.columns.clone(), Vec::new(), sink.on_unknown);
        let mut gather = Gather::new(place, sink.flush, sink.columns.len(), 10, Some(13), 0);
        let mut push = |gather: &mut Gather, offset| {
            let record = StoredRecord {
                offset: Offset(offset),
                ..record.clone()
            };
            gather.push(&record, &mut converter)
        };
        assert!(push(&mut gather, 10) && push(&mut gather, 11));
        assert_eq!((gather.due(u64::MAX), gather.deadline()), (None, None));
        assert!(!push(&mut gather, 14), "it is one of the next batch");
        assert_eq!(gather.due(0), Some(Cause::Begun));
        let batch = gather.take(Cause::Begun, 0);
        assert_eq!((batch.from, batch.next, batch.records), (10, 13, 2));
        assert!(push(&mut gather, 14));
        assert_eq!(gather.next(), 15);
    }
}
