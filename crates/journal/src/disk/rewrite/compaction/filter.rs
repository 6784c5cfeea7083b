//! Record filter of a pass: which records of a batch stay, and which batches.
//!
//! | record below the end of the pass | |
//! |---|---|
//! | without a key | goes: it came before the log was compacted |
//! | with a newer one of its key in the offset map | goes |
//! | tombstone below the log's horizon | goes |
//! | any other | stays |
//!
//! A batch that is left without records goes, unless it says where the log ends or which sequence number its
//! producer used last. Control batches stay as they are.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use stafett_model::{
    BatchError, BatchHeader, KeyedRecord, LogId, Offset, Retained, emptied, for_each_key, retain,
};

use super::super::super::engine::Engine;
use super::super::super::producers::sequence_after;
use super::bounds::is_hidden;
use super::offset_map::{KeyHash, OffsetMap, TOGETHER};

/// Most decompressed bytes of a batch. One that takes more stays as it is.
pub(super) const BATCH_BYTES_MAX: usize = 256 << 20;

pub(in super::super) struct RecordFilter {
    pub(super) map: OffsetMap,
    pub(super) logs: BTreeMap<LogId, LogFilter>,
    pub(super) removed: Removed,
}

/// Part of a pass that concerns one log.
#[derive(Debug, Default)]
pub(super) struct LogFilter {
    /// Offset behind the compacted records.
    pub(super) end: Offset,
    /// Offset below which tombstones go.
    pub(super) horizon: Offset,
    /// Epoch and last sequence number per producer.
    pub(super) producers: HashMap<i64, (i16, i32)>,
    /// True if a tombstone stayed.
    pub(super) has_tombstones: bool,
    /// True if a batch could not be read and stayed whole: older records of some keys may be in it.
    pub(super) is_incomplete: bool,
}

/// Contents removed by a pass.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Removed {
    pub(super) records: u64,
    pub(super) bytes: u64,
}

/// Result for one batch.
#[derive(Debug)]
pub(in super::super) enum Filtered {
    /// Stays as it is.
    Whole,
    /// Replaced by a batch with fewer records, maybe none.
    Replaced(Bytes),
    Gone,
}

impl RecordFilter {
    /// Returns the logs that take part in the pass.
    pub(in super::super) fn logs(&self) -> BTreeSet<LogId> {
        self.logs.keys().copied().collect()
    }

    /// Returns true if a batch at `base` may lose records.
    pub(in super::super) fn covers(&self, log: LogId, base: Offset) -> bool {
        self.logs.get(&log).is_some_and(|own| base < own.end)
    }

    /// Filters a stored batch of a log: the log's own part, placed.
    pub(in super::super) fn apply(&mut self, core: &Engine, log: LogId, batch: &Bytes) -> Filtered {
        let (Some(own), Ok(header)) = (self.logs.get_mut(&log), BatchHeader::parse(batch)) else {
            return Filtered::Whole;
        };
        if header.is_control() {
            return Filtered::Whole;
        }
        let retained = if is_hidden_in(core, log, &header) {
            Ok(Retained::Nothing)
        } else {
            own.choose(&self.map, log, batch).and_then(|kept| match kept {
                kept if !kept.contains(&false) => Ok(Retained::All),
                kept if !kept.contains(&true) => Ok(Retained::Nothing),
                kept => {
                    let mut kept = kept.into_iter();
                    retain(batch, BATCH_BYTES_MAX, |_| kept.next().unwrap_or(true))
                }
            })
        };
        let filtered = match retained {
            Ok(Retained::All) if header.record_count > 0 => Filtered::Whole,
            Ok(Retained::Some(part)) => Filtered::Replaced(part),
            Ok(Retained::All | Retained::Nothing) if !own.needs(&header) => Filtered::Gone,
            Ok(Retained::All) => Filtered::Whole,
            Ok(Retained::Nothing) => emptied(batch).map_or(Filtered::Whole, Filtered::Replaced),
            Err(error) => {
                tracing::warn!(%log, %error, base = header.base_offset, "a batch cannot be compacted: it stays whole");
                own.is_incomplete = true;
                Filtered::Whole
            }
        };
        self.removed.count(&header, &filtered);
        filtered
    }

    /// Returns true if a stored batch of a log, placed, stays as it is.
    pub(in super::super) fn keeps_all(&mut self, core: &Engine, log: LogId, batch: &Bytes) -> bool {
        let (Some(own), Ok(header)) = (self.logs.get_mut(&log), BatchHeader::parse(batch)) else {
            return true;
        };
        if header.is_control() {
            return true;
        }
        if header.record_count == 0 {
            return own.needs(&header);
        }
        if is_hidden_in(core, log, &header) {
            return false;
        }
        let kept = own.choose(&self.map, log, batch);
        own.is_incomplete |= kept.is_err();
        kept.is_ok_and(|kept| !kept.contains(&false))
    }
}

fn is_hidden_in(core: &Engine, log: LogId, header: &BatchHeader) -> bool {
    let log = core.logs.get(log);
    log.is_some_and(|log| is_hidden(&log.lock(), header))
}

/// A record that stays unless the map has a newer one of its key.
struct Unsure {
    /// Index within the batch.
    index: usize,
    hash: KeyHash,
    offset: Offset,
    is_tombstone: bool,
}

impl LogFilter {
    /// Returns for each record of a batch whether it stays.
    fn choose(&mut self, map: &OffsetMap, log: LogId, batch: &Bytes) -> Result<Vec<bool>, BatchError> {
        let (mut kept, mut unsure) = (Vec::new(), Vec::with_capacity(TOGETHER));
        let mut tombstones = false;
        let mut look_up = |kept: &mut Vec<bool>, unsure: &mut Vec<Unsure>| {
            map.load(unsure.iter().map(|record| &record.hash));
            for record in unsure.drain(..) {
                let is_newest = map
                    .newest(record.hash)
                    .is_none_or(|newest| newest <= record.offset);
                if let Some(kept) = kept.get_mut(record.index) {
                    *kept = is_newest;
                }
                tombstones |= is_newest && record.is_tombstone;
            }
        };
        for_each_key(batch, BATCH_BYTES_MAX, |record| {
            let KeyedRecord {
                offset, is_tombstone, ..
            } = record;
            kept.push(offset >= self.end);
            let goes = is_tombstone && offset < self.horizon;
            if let Some(key) = record.key.filter(|_| offset < self.end && !goes) {
                unsure.push(Unsure {
                    index: kept.len() - 1,
                    hash: map.hash(log, key),
                    offset,
                    is_tombstone,
                });
            }
            if unsure.len() == TOGETHER {
                look_up(&mut kept, &mut unsure);
            }
            true
        })?;
        look_up(&mut kept, &mut unsure);
        self.has_tombstones |= tombstones;
        Ok(kept)
    }

    /// Returns true if a batch is kept although it has no records.
    fn needs(&self, header: &BatchHeader) -> bool {
        let end = u64::try_from(header.base_offset).map_or(0, |base| base + header.span());
        let last = sequence_after(header.base_sequence, header.last_offset_delta);
        let of_producer = self.producers.get(&header.producer_id);
        end >= self.end.0 || of_producer == Some(&(header.producer_epoch, last))
    }
}

impl Removed {
    fn count(&mut self, before: &BatchHeader, filtered: &Filtered) {
        let (records, bytes) = match filtered {
            Filtered::Whole => return,
            Filtered::Gone => (0, 0),
            Filtered::Replaced(batch) => {
                let after = BatchHeader::parse(batch).map_or(0, |header| header.record_count);
                (after, batch.len())
            }
        };
        self.records += u64::try_from(before.record_count - records).unwrap_or(0);
        self.bytes += before.bytes.saturating_sub(bytes) as u64;
    }
}
