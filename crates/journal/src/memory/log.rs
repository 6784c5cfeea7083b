//! A log in memory: its batches by base offset.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use stafett_model::batch::{PLACEMENT_BYTES, placement};
use stafett_model::fan_out::{self, Numbering};
use stafett_model::{BatchHeader, Epoch, LogId, Offset};

use crate::contract::{
    Bounds, LogSlice, LogSpec, OwnerEpoch, ReadError, ReadFrom, Selection, TimeQuery, Visibility,
};
use crate::disk::producers::Producers;
use crate::disk::running::Moment;
use crate::ticket::TimeResult;
use crate::watch::Watchers;

/// Most decompressed bytes of a batch of which a log has only a part.
const REBUILT_BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
pub(super) struct MemoryLog {
    id: LogId,
    pub(super) spec: LogSpec,
    start: Offset,
    pub(super) next: Offset,
    batches: BTreeMap<Offset, StoredBatch>,
    pub(super) producers: Producers,
    pub(super) owner: OwnerEpoch,
    pub(super) watchers: Watchers,
}

/// A batch as appended, and the log's part of it.
#[derive(Debug)]
struct StoredBatch {
    body: Bytes,
    records: Selection,
    span: u32,
    epoch: Epoch,
    max_timestamp: i64,
}

impl MemoryLog {
    pub(super) fn new(id: LogId, spec: LogSpec) -> Self {
        Self {
            id,
            spec,
            start: Offset::ZERO,
            next: Offset::ZERO,
            batches: BTreeMap::new(),
            producers: Producers::default(),
            owner: OwnerEpoch::default(),
            watchers: Watchers::default(),
        }
    }

    pub(super) fn without_watchers(self) -> Self {
        Self {
            watchers: Watchers::default(),
            ..self
        }
    }

    pub(super) fn bounds(&self) -> Bounds {
        let bytes = self.batches.values().map(|stored| stored.body.len() as u64).sum();
        Bounds {
            start: self.start,
            end: self.next,
            stable: match self.producers.transactions() {
                Some(transactions) => transactions.stable(self.next).max(self.start),
                None => self.next,
            },
            bytes,
        }
    }

    /// Records the sequence numbers and the transaction of a batch at `base`.
    pub(super) fn note_producer(
        &mut self,
        header: &BatchHeader,
        batch: &Bytes,
        is_shared: bool,
        base: Offset,
    ) {
        self.producers
            .note_batch(header, batch, is_shared, (base, base), Moment::default());
    }

    /// Stores a batch and returns its base offset.
    pub(super) fn push(
        &mut self,
        body: &Bytes,
        header: &BatchHeader,
        records: Selection,
        epoch: Epoch,
    ) -> Offset {
        let (base, span) = (self.next, span_of(header, records));
        let stored = StoredBatch {
            body: body.clone(),
            records,
            span,
            epoch,
            max_timestamp: header.max_timestamp,
        };
        self.batches.insert(base, stored);
        self.next = Offset(base.0 + u64::from(span));
        self.watchers.on_growth(body.len() as u64);
        base
    }

    pub(super) fn truncate(&mut self, before: Offset) {
        self.start = self.start.max(before.min(self.next));
        let start = self.start;
        self.producers.forget_aborted(start);
        self.batches.retain(|base, stored| stored.end(*base) > start);
    }

    pub(super) fn read(
        &self,
        from: ReadFrom,
        bytes_left: usize,
        mut whole: bool,
    ) -> Result<LogSlice, ReadError> {
        let bounds = self.bounds();
        let (log, wanted) = (self.id, from.offset);
        if wanted < bounds.start || wanted > bounds.end {
            return Err(ReadError::OutOfRange {
                log,
                wanted,
                start: bounds.start,
                end: bounds.end,
            });
        }
        let bytes_max = from.bytes_max.min(bytes_left);
        let limit = match from.visibility {
            Visibility::Stored => bounds.end,
            Visibility::Committed => bounds.stable,
        };
        let mut run = LogSlice {
            next: wanted,
            bounds: Some(bounds),
            ..LogSlice::default()
        };
        for (base, stored) in self.batches.range(self.first_at(wanted)..) {
            let batch = stored.batch(self.id, *base)?;
            if stored.end(*base) > limit || run.bytes + batch.len() > bytes_max && !whole {
                break;
            }
            whole = false;
            run.bytes += batch.len();
            run.next = stored.end(*base);
            run.pieces.push(batch);
        }
        if let (Visibility::Committed, Some(transactions)) = (from.visibility, self.producers.transactions())
        {
            run.aborted = transactions.aborted_in(wanted, run.next);
        }
        Ok(run)
    }

    pub(super) fn find_time(&self, query: TimeQuery) -> TimeResult {
        let found = match query {
            TimeQuery::AtOrAfter(time) => self
                .batches
                .iter()
                .find(|(_, stored)| stored.max_timestamp >= time),
            // `max_by_key` returns the last of equal elements: reversed, that is the first.
            TimeQuery::Latest => self
                .batches
                .iter()
                .rev()
                .max_by_key(|(_, stored)| stored.max_timestamp),
        };
        found
            .map(|(base, stored)| stored.batch(self.id, *base))
            .transpose()
    }

    /// Returns the base of the batch that contains `wanted`, or `wanted`.
    fn first_at(&self, wanted: Offset) -> Offset {
        let before = self.batches.range(..=wanted).next_back();
        before
            .filter(|(base, stored)| stored.end(**base) > wanted)
            .map_or(wanted, |(base, _)| *base)
    }
}

impl StoredBatch {
    fn end(&self, base: Offset) -> Offset {
        Offset(base.0 + u64::from(self.span))
    }

    /// Returns the log's part of the batch.
    fn batch(&self, log: LogId, base: Offset) -> Result<Bytes, ReadError> {
        let part = match self.records {
            Selection::All => Some(self.body.clone()),
            Selection::Range { first, count } => {
                let range = fan_out::Selection::Range(first..first.saturating_add(count));
                fan_out::select(&self.body, &range, Numbering::Renumber, base, REBUILT_BYTES_MAX).ok()
            }
        };
        let damaged = ReadError::Damaged {
            log,
            from: base,
            to: self.end(base),
        };
        let mut batch = BytesMut::from(part.ok_or_else(|| damaged.clone())?.as_ref());
        let place = placement(base, self.epoch, batch.len());
        batch
            .get_mut(..PLACEMENT_BYTES)
            .ok_or(damaged)?
            .copy_from_slice(&place);
        Ok(batch.freeze())
    }
}

/// Returns the number of offsets that a selection of a batch takes.
pub(super) fn span_of(header: &BatchHeader, records: Selection) -> u32 {
    match records {
        Selection::All => u32::try_from(header.span()).unwrap_or(0),
        Selection::Range { count, .. } => count,
    }
}
