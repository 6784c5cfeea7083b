//! Selection of messages by the value of a header: an index in memory of the unsettled messages that have
//! it, for dispatchers whose messages are selected.
//!
//! An index is built by one read of the logs when it is first wanted, and reads on from there with each
//! search; so it costs publishing and settling nothing. Entries of settled messages are removed when a
//! search meets them, or by a sweep once they are the most. An index covers the offsets of each lane up to a
//! place; a search reads the messages behind it. Hits are checked against the message.
//!
//! Its memory is bounded over all dispatchers; an index that was not used for a while is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use stafett_model::{Lock, Offset, StoredMessage};
use stafett_topics::{Tail, TailItem};
use tokio::sync::Semaphore;

use crate::context::DeliveryContext;
use crate::dispatcher::{DeliveryState, Dispatcher};

/// Bound on the entries of all indexes.
const ENTRIES_MAX: usize = 1_000_000;
/// Bound on the indexes of a dispatcher, and on the bytes of a header's name.
const INDEXES_MAX: usize = 4;
const NAME_BYTES_MAX: usize = 255;
/// Time after which an unused index is dropped, and after which it makes way for another one.
const UNUSED_MS: i64 = 600_000;
const MAKES_WAY_MS: i64 = 60_000;
/// Bound on the bytes that one search reads to build an index.
const BUILD_BYTES_MAX: usize = 1 << 30;
const READ_BYTES: usize = 1 << 20;
/// Messages that are read before their entries are added, and entries of a step of a sweep.
const TOGETHER: usize = 2048;
/// Messages that are read before other tasks get their turns.
const TURN_MESSAGES: usize = 256;

/// Bits of an offset and of a lane in an entry; the hash has the others. Later lanes are not indexed.
const OFFSET_BITS: u32 = 53;
const LANE_BITS: u32 = 20;

/// All indexes of one kind of dispatchers.
#[derive(Debug, Default)]
pub(crate) struct Selections {
    hash: RandomState,
    /// Entries of all indexes.
    entries: Arc<AtomicUsize>,
    all: Lock<Vec<(Weak<Dispatcher>, Weak<SelectionIndex>)>>,
}

/// Unsettled messages of a dispatcher by the value of one header.
#[derive(Debug)]
pub(crate) struct SelectionIndex {
    header: Box<str>,
    entries: Lock<Entries>,
    /// One search at a time reads on.
    reads: Semaphore,
    /// In steady time.
    used_ms: AtomicI64,
    all_entries: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Entries {
    /// Hash of the value, lane and offset.
    set: BTreeSet<u128>,
    /// By lane: the offset up to which messages are indexed.
    covered: BTreeMap<u32, u64>,
    /// Number of entries after the last sweep.
    swept: usize,
}

/// A wanted value in an index.
#[derive(Debug, Clone)]
pub(crate) struct Selected {
    index: Arc<SelectionIndex>,
    hash: u64,
}

/// Part of a lane that an index could not read yet.
struct Unread {
    lane: u32,
    tail: Tail,
    end: u64,
}

impl Selections {
    /// Returns the number of entries of all indexes.
    pub(crate) fn entries(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    fn hash(&self, value: &[u8]) -> u64 {
        self.hash.hash_one(value) >> (OFFSET_BITS + LANE_BITS - u64::BITS)
    }

    /// Drops the indexes that were not used for a while.
    pub(crate) fn drop_unused(&self, now_ms: i64) {
        let mut unused = Vec::new();
        self.all.lock().retain(|(dispatcher, index)| {
            let Some(index) = index.upgrade() else {
                return false;
            };
            let is_used = index.used_ms.load(Ordering::Relaxed) > now_ms - UNUSED_MS;
            if !is_used {
                unused.push((dispatcher.upgrade(), index));
            }
            is_used
        });
        for (dispatcher, index) in unused {
            if let Some(dispatcher) = dispatcher {
                let mut inner = dispatcher.lock();
                inner.selections.retain(|known| !Arc::ptr_eq(known, &index));
            }
        }
    }
}

impl Dispatcher {
    /// Selects the messages in which a header has a value, from an index that is up to date. `None` if there
    /// can be none.
    pub(crate) async fn select(
        self: &Arc<Self>,
        context: &Arc<DeliveryContext>,
        header: &str,
        value: &[u8],
    ) -> Option<Selected> {
        if header.len() > NAME_BYTES_MAX {
            return None;
        }
        let now_ms = context.clock.now_ms();
        let index = {
            let mut inner = self.lock();
            if self.is_ended() {
                return None;
            }
            inner.selection_index(self, context, header, now_ms)?
        };
        index.used_ms.store(now_ms, Ordering::Relaxed);
        index.read_on(self, context).await;
        Some(Selected {
            hash: context.selections.hash(value),
            index,
        })
    }
}

impl DeliveryState {
    /// Returns the index of a header; a new one if there is none.
    fn selection_index(
        &mut self,
        dispatcher: &Arc<Dispatcher>,
        context: &DeliveryContext,
        header: &str,
        now_ms: i64,
    ) -> Option<Arc<SelectionIndex>> {
        if let Some(known) = self.selections.iter().find(|index| *index.header == *header) {
            return Some(Arc::clone(known));
        }
        if self.selections.len() >= INDEXES_MAX {
            let used_ms = |index: &Arc<SelectionIndex>| index.used_ms.load(Ordering::Relaxed);
            let oldest = (0..self.selections.len())
                .min_by_key(|at| self.selections.get(*at).map_or(i64::MAX, used_ms))?;
            let makes_way = self.selections.get(oldest).map_or(i64::MAX, used_ms) <= now_ms - MAKES_WAY_MS;
            if !makes_way {
                return None;
            }
            self.selections.swap_remove(oldest);
        }
        let index = Arc::new(SelectionIndex {
            header: header.into(),
            entries: Lock::default(),
            reads: Semaphore::new(1),
            used_ms: AtomicI64::new(now_ms),
            all_entries: Arc::clone(&context.selections.entries),
        });
        self.selections.push(Arc::clone(&index));
        let mut all = context.selections.all.lock();
        all.push((Arc::downgrade(dispatcher), Arc::downgrade(&index)));
        Some(index)
    }
}

impl SelectionIndex {
    /// Indexes the messages behind the covered ones, as far as memory and a bound on the bytes allow.
    async fn read_on(&self, dispatcher: &Arc<Dispatcher>, context: &Arc<DeliveryContext>) {
        let Ok(_alone) = self.reads.acquire().await else {
            return;
        };
        let (unread, unsettled) = self.unread(dispatcher, context);
        if unread.is_empty() {
            return;
        }
        let (known, swept) = {
            let entries = self.entries.lock();
            (entries.set.len(), entries.swept)
        };
        let is_mostly_settled = known as u64 > 2 * unsettled + TOGETHER as u64;
        let has_no_room = context.selections.entries() >= ENTRIES_MAX && known > swept + swept / 4 + TOGETHER;
        if is_mostly_settled || has_no_room {
            self.sweep(dispatcher).await;
        }
        if context.selections.entries() + TOGETHER > ENTRIES_MAX {
            return;
        }
        let mut bytes_left = BUILD_BYTES_MAX;
        for lane in unread {
            self.read_lane(dispatcher, context, lane, &mut bytes_left).await;
        }
    }

    /// Returns the parts of the lanes that are not indexed, and the number of unsettled messages.
    fn unread(&self, dispatcher: &Arc<Dispatcher>, context: &DeliveryContext) -> (Vec<Unread>, u64) {
        let mut inner = dispatcher.lock();
        inner.look_at_logs(dispatcher, context);
        let mut unsettled = 0;
        let mut entries = self.entries.lock();
        let mut unread = Vec::new();
        for (number, lane) in inner.state.lanes() {
            unsettled += lane.unsettled();
            if number >> LANE_BITS != 0 {
                continue;
            }
            let covered = entries.covered.entry(number).or_default();
            *covered = lane.head().max(*covered);
            if *covered < lane.end()
                && let Some(log) = inner.log(number)
            {
                let kept = Arc::clone(&context.read_ahead);
                unread.push(Unread {
                    lane: number,
                    tail: Tail::new(log, Offset(*covered), READ_BYTES, kept),
                    end: lane.end(),
                });
            }
        }
        (unread, unsettled)
    }

    async fn read_lane(
        &self,
        dispatcher: &Arc<Dispatcher>,
        context: &DeliveryContext,
        mut from: Unread,
        bytes_left: &mut usize,
    ) {
        let mut found = Vec::new();
        let mut read = 0_usize;
        while from.tail.next_offset().0 < from.end && *bytes_left > 0 && !dispatcher.is_ended() {
            match from.tail.next(&*context.journal).await {
                Ok(TailItem::Message(offset, message, _)) => {
                    *bytes_left = bytes_left.saturating_sub(message.bytes());
                    found.extend(self.entry(context, from.lane, offset.0, &message));
                    read += 1;
                }
                Ok(TailItem::Skipped(_)) => {}
                // A search that comes here reports it.
                Err(_) => break,
            }
            if read.is_multiple_of(TURN_MESSAGES) {
                tokio::task::yield_now().await;
            }
            let is_due = read.is_multiple_of(TOGETHER) && read > 0;
            if is_due && !self.add(dispatcher, from.lane, from.tail.next_offset().0, &mut found) {
                return;
            }
        }
        self.add(dispatcher, from.lane, from.tail.next_offset().0, &mut found);
    }

    fn entry(
        &self,
        context: &DeliveryContext,
        lane: u32,
        offset: u64,
        message: &StoredMessage,
    ) -> Option<u128> {
        let value = message.header(self.header.as_bytes())??;
        Some(entry(context.selections.hash(value), lane, offset))
    }

    /// Adds the entries of the messages before `covered`, without those settled by now. False if there is no
    /// room for them.
    fn add(&self, dispatcher: &Dispatcher, lane: u32, covered: u64, found: &mut Vec<u128>) -> bool {
        if self.all_entries.load(Ordering::Relaxed) + found.len() > ENTRIES_MAX {
            return false;
        }
        {
            let inner = dispatcher.lock();
            let state = inner.state.lane(lane);
            found.retain(|entry| state.is_some_and(|state| !state.is_settled(offset_of(*entry))));
        }
        let mut entries = self.entries.lock();
        let before = entries.set.len();
        entries.set.extend(found.drain(..));
        entries.covered.insert(lane, covered);
        self.all_entries
            .fetch_add(entries.set.len() - before, Ordering::Relaxed);
        true
    }

    /// Removes the entries of settled messages.
    async fn sweep(&self, dispatcher: &Dispatcher) {
        let mut from = 0;
        loop {
            {
                let inner = dispatcher.lock();
                let mut entries = self.entries.lock();
                let some: Vec<u128> = entries.set.range(from..).take(TOGETHER).copied().collect();
                let Some(last) = some.last() else {
                    entries.swept = entries.set.len();
                    return;
                };
                from = last + 1;
                for entry in some {
                    let lane = inner.state.lane(lane_of(entry));
                    if lane.is_none_or(|lane| lane.is_settled(offset_of(entry))) {
                        self.remove(&mut entries, entry);
                    }
                }
            }
            tokio::task::yield_now().await;
        }
    }

    fn remove(&self, entries: &mut Entries, entry: u128) {
        if entries.set.remove(&entry) {
            self.all_entries.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for SelectionIndex {
    fn drop(&mut self) {
        let left = self.entries.get_mut().set.len();
        self.all_entries.fetch_sub(left, Ordering::Relaxed);
    }
}

impl Selected {
    /// Returns the first offset of a lane from `from` on that may be wanted. True if the index has it, and
    /// false if it is the first one that the index does not cover.
    pub(crate) fn next(&self, lane: u32, from: u64) -> (u64, bool) {
        let entries = self.index.entries.lock();
        let covered = entries.covered.get(&lane).copied().unwrap_or(0);
        if lane >> LANE_BITS != 0 || from >= covered {
            return (from, false);
        }
        let range = entry(self.hash, lane, from)..entry(self.hash, lane, covered);
        match entries.set.range(range).next() {
            Some(found) => (offset_of(*found), true),
            None => (covered, false),
        }
    }

    /// Removes the entry of a settled message.
    pub(crate) fn remove(&self, lane: u32, offset: u64) {
        let mut entries = self.index.entries.lock();
        self.index.remove(&mut entries, entry(self.hash, lane, offset));
    }
}

fn entry(hash: u64, lane: u32, offset: u64) -> u128 {
    let offset = offset.min((1 << OFFSET_BITS) - 1);
    (u128::from(hash) << (LANE_BITS + OFFSET_BITS)) | (u128::from(lane) << OFFSET_BITS) | u128::from(offset)
}

fn lane_of(entry: u128) -> u32 {
    u32::try_from((entry >> OFFSET_BITS) & ((1 << LANE_BITS) - 1)).unwrap_or(u32::MAX)
}

fn offset_of(entry: u128) -> u64 {
    u64::try_from(entry & ((1 << OFFSET_BITS) - 1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_its_lane_and_offset_and_is_in_their_order() {
        let hash = (1 << 55) - 1;
        let entries = [(0, 0), (0, 1), (0, (1 << 53) - 1), (1, 0), ((1 << 20) - 1, 7)];
        let packed = entries.map(|(lane, offset)| entry(hash, lane, offset));
        assert!(packed.is_sorted());
        assert_eq!(packed.map(|entry| (lane_of(entry), offset_of(entry))), entries);
        assert!(entry(hash - 1, 9, 9) < packed[0]);
    }
}
