//! One partition within a search.

use std::collections::VecDeque;
use std::ops::Range;

use stafett_http::Problem;
use stafett_journal::Visibility;
use stafett_model::{LogId, Offset, StoredRecord};
use stafett_topics::{ReadEnd, RecordItem, RecordTail, TopicCatalog};

use super::choice::Choice;
use super::read::of_read;
use super::record::{RecordShown, size};
use super::search::Order;
use crate::content::Form;

/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;
/// Bytes of records that all lanes keep; others are read again when it is their turn.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// Rules and counts of a search.
pub(super) struct Scan {
    pub(super) order: Order,
    /// Offsets of one window.
    pub(super) window: u64,
    pub(super) choice: Choice,
    pub(super) form: Form,
    pub(super) visibility: Visibility,
    pub(super) looked_at: usize,
    pub(super) bytes_read: usize,
    /// Bytes of records that lanes keep.
    pub(super) kept: usize,
}

pub(super) struct Lane {
    partition: u32,
    log: LogId,
    /// Offsets that were not looked at yet.
    left: Range<u64>,
    /// Wanted records of the last window, in the order of the search.
    found: VecDeque<Found>,
    /// Rank of the last record that was looked at: none that follows is before it.
    rank: i64,
}

/// A wanted record. Lower ranks come first.
struct Found {
    rank: i64,
    offset: u64,
    bytes: usize,
    shown: Option<RecordShown>,
}

impl Lane {
    pub(super) fn new(partition: u32, log: LogId, left: Range<u64>) -> Self {
        Self {
            partition,
            log,
            left,
            found: VecDeque::new(),
            rank: i64::MIN,
        }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.found.is_empty() && self.left.is_empty()
    }

    /// Returns the rank of the next record, at least.
    pub(super) fn rank(&self) -> i64 {
        self.found.front().map_or(self.rank, |found| found.rank)
    }

    /// Returns the bytes of the next record. `None` if the next window has to be looked at first.
    pub(super) fn front_bytes(&self) -> Option<usize> {
        self.found.front().map(|found| found.bytes)
    }

    /// Returns the offset from which the search goes on: behind the next record if it is the newest first.
    pub(super) fn place(&self, order: Order) -> u64 {
        match (self.found.front(), order) {
            (Some(found), Order::Newest) => found.offset + 1,
            (Some(found), Order::Oldest) => found.offset,
            (None, Order::Newest) => self.left.end,
            (None, Order::Oldest) => self.left.start,
        }
    }

    /// Looks at the next window.
    pub(super) async fn scan(
        &mut self,
        catalog: &TopicCatalog,
        scan: &mut Scan,
        topic: &str,
    ) -> Result<(), Problem> {
        let Range { start, end } = self.left;
        let window = match scan.order {
            Order::Newest => end.saturating_sub(scan.window).max(start)..end,
            Order::Oldest => start..start.saturating_add(scan.window).min(end),
        };
        let mut tail = RecordTail::new(self.log, Offset(window.start), READ_BYTES, scan.visibility);
        let mut seen = Vec::new();
        loop {
            match tail.item() {
                Some(RecordItem::Record(record)) if record.offset.0 < window.end => {
                    scan.looked_at += 1;
                    seen.push((record.timestamp, self.found(&record, scan)));
                }
                Some(RecordItem::Skipped(skipped)) if skipped.to.0 < window.end => {}
                Some(_) => break,
                None if tail.next_offset().0 >= window.end => break,
                None => match tail.read(catalog).await {
                    Ok(()) => {}
                    Err(ReadEnd::AtEnd) => break,
                    Err(why) => return Err(of_read(&why, topic)),
                },
            }
        }
        scan.bytes_read += tail.bytes_read();
        match scan.order {
            Order::Newest => self.left = start..window.start,
            Order::Oldest => self.left = window.end..end,
        }
        if scan.order == Order::Newest {
            seen.reverse();
        }
        for (time, found) in seen {
            let rank = match scan.order {
                Order::Newest => time.saturating_neg(),
                Order::Oldest => time,
            };
            self.rank = self.rank.max(rank);
            let rank = self.rank;
            self.found.extend(found.map(|found| Found { rank, ..found }));
        }
        Ok(())
    }

    fn found(&self, record: &StoredRecord, scan: &mut Scan) -> Option<Found> {
        if !scan.choice.wants(record) {
            return None;
        }
        let bytes = size(record);
        // The fields beside the content count, too.
        let kept = bytes + size_of::<RecordShown>();
        let keeps = scan.kept + kept <= KEPT_BYTES_MAX;
        if keeps {
            scan.kept += kept;
        }
        Some(Found {
            rank: self.rank,
            offset: record.offset.0,
            bytes,
            shown: keeps.then(|| RecordShown::of(self.partition, record, scan.form)),
        })
    }

    /// Takes out the next record. `None` if it went meanwhile.
    pub(super) async fn pop(&mut self, catalog: &TopicCatalog, scan: &mut Scan) -> Option<RecordShown> {
        let found = self.found.pop_front()?;
        if found.shown.is_some() {
            scan.kept = scan.kept.saturating_sub(found.bytes + size_of::<RecordShown>());
            return found.shown;
        }
        let offset = Offset(found.offset);
        let mut tail = RecordTail::new(self.log, offset, 1, scan.visibility);
        tail.read(catalog).await.ok()?;
        scan.bytes_read += tail.bytes_read();
        match tail.item()? {
            RecordItem::Record(record) if record.offset == offset => {
                Some(RecordShown::of(self.partition, &record, scan.form))
            }
            RecordItem::Record(_) | RecordItem::Skipped(_) => None,
        }
    }
}
