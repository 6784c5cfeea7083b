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
use stafett_queue::Lane;
use stafett_topics::{Tail, TailItem};
use tokio::sync::Semaphore;

use crate::context::DeliveryContext;
use crate::dispatcher::{DeliveryState, Dispatcher};

/// Bytes of an entry, approximately.
pub(crate) const ENTRY_BYTES: usize = 14;
/// Bound on the entries of all indexes.
const ENTRIES_MAX: usize = 4_000_000;
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

/// Bits of an offset in an entry, behind the base of its lane; the hash has the others.
const OFFSET_BITS: u32 = 36;
const OFFSETS_MAX: u64 = 1 << OFFSET_BITS;

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
    lanes: BTreeMap<u32, LaneEntries>,
    /// Number of entries in all lanes, and after the last sweep.
    count: usize,
    swept: usize,
}

/// Entries of one lane: the messages from `base` up to `covered` that have the header.
#[derive(Debug, Default)]
struct LaneEntries {
    base: u64,
    covered: u64,
    /// Hash of the value, and offset behind the base.
    set: BTreeSet<u64>,
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
        self.hash.hash_one(value) >> OFFSET_BITS
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
            (entries.count, entries.swept)
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
            let (from, end) = self.reach(&mut entries, number, lane.head(), lane.end());
            if from < end
                && let Some(log) = inner.log(number)
            {
                let kept = Arc::clone(&context.read_ahead);
                unread.push(Unread {
                    lane: number,
                    tail: Tail::new(log, Offset(from), READ_BYTES, kept),
                    end,
                });
            }
        }
        (unread, unsettled)
    }

    /// Returns the part of a lane that is to be indexed. A lane whose end is too far from its base begins
    /// anew at its head.
    fn reach(&self, entries: &mut Entries, number: u32, head: u64, end: u64) -> (u64, u64) {
        let new = || LaneEntries::from(head);
        let lane = entries.lanes.entry(number).or_insert_with(new);
        if end.saturating_sub(lane.base) > OFFSETS_MAX && head > lane.base {
            let dropped = std::mem::replace(lane, new()).set.len();
            entries.count -= dropped;
            self.all_entries.fetch_sub(dropped, Ordering::Relaxed);
        }
        lane.covered = lane.covered.max(head.min(lane.limit()));
        (lane.covered, end.min(lane.limit()))
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
                    found.extend(self.hit(context, offset.0, &message));
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

    fn hit(&self, context: &DeliveryContext, offset: u64, message: &StoredMessage) -> Option<(u64, u64)> {
        let value = message.header(self.header.as_bytes())??;
        Some((context.selections.hash(value), offset))
    }

    /// Adds the hashes and offsets of the messages before `covered`, without those settled by now. False if
    /// there is no room for them.
    fn add(&self, dispatcher: &Dispatcher, number: u32, covered: u64, found: &mut Vec<(u64, u64)>) -> bool {
        if self.all_entries.load(Ordering::Relaxed) + found.len() > ENTRIES_MAX {
            return false;
        }
        {
            let inner = dispatcher.lock();
            let state = inner.state.lane(number);
            found.retain(|(_, offset)| state.is_some_and(|state| !state.is_settled(*offset)));
        }
        let mut entries = self.entries.lock();
        let Some(lane) = entries.lanes.get_mut(&number) else {
            return false;
        };
        let before = lane.set.len();
        for (hash, offset) in found.drain(..) {
            let entry = lane.entry(hash, offset);
            lane.set.extend(entry);
        }
        lane.covered = covered.min(lane.limit());
        let added = lane.set.len() - before;
        entries.count += added;
        self.all_entries.fetch_add(added, Ordering::Relaxed);
        true
    }

    /// Removes the entries of settled messages.
    async fn sweep(&self, dispatcher: &Dispatcher) {
        let mut place = Some((0, 0));
        while let Some(from) = place {
            place = self.sweep_some(dispatcher, from);
            tokio::task::yield_now().await;
        }
        let mut entries = self.entries.lock();
        entries.swept = entries.count;
    }

    /// Looks at some entries, from a lane and an entry in it on. Returns the place behind them.
    fn sweep_some(&self, dispatcher: &Dispatcher, (number, from): (u32, u64)) -> Option<(u32, u64)> {
        let inner = dispatcher.lock();
        let mut entries = self.entries.lock();
        let (number, lane) = entries.lanes.range_mut(number..).next()?;
        let number = *number;
        let some: Vec<u64> = lane.set.range(from..).take(TOGETHER).copied().collect();
        let state = inner.state.lane(number);
        let mut removed = 0;
        for entry in &some {
            let is_settled = |state: &Lane| state.is_settled(lane.offset(*entry));
            if state.is_none_or(is_settled) && lane.set.remove(entry) {
                removed += 1;
            }
        }
        entries.count -= removed;
        self.all_entries.fetch_sub(removed, Ordering::Relaxed);
        match some.last() {
            Some(last) => Some((number, last.checked_add(1)?)),
            None => Some((number.checked_add(1)?, 0)),
        }
    }
}

impl Drop for SelectionIndex {
    fn drop(&mut self) {
        let left = self.entries.get_mut().count;
        self.all_entries.fetch_sub(left, Ordering::Relaxed);
    }
}

impl Selected {
    /// Returns the first offset of a lane from `from` on that may be wanted. True if the index has it, and
    /// false if it is the first one that the index does not cover.
    pub(crate) fn next(&self, lane: u32, from: u64) -> (u64, bool) {
        let entries = self.index.entries.lock();
        let Some(lane) = entries.lanes.get(&lane).filter(|lane| from < lane.covered) else {
            return (from, false);
        };
        let (from, to) = (from.max(lane.base), lane.covered);
        let first = lane.entry(self.hash, from);
        let last = to.checked_sub(1).and_then(|last| lane.entry(self.hash, last));
        let range = first.zip(last).filter(|(first, last)| first <= last);
        let found = range.and_then(|(first, last)| lane.set.range(first..=last).next());
        found.map_or((to, false), |found| (lane.offset(*found), true))
    }

    /// Removes the entry of a settled message.
    pub(crate) fn remove(&self, lane: u32, offset: u64) {
        let mut entries = self.index.entries.lock();
        let Some(lane) = entries.lanes.get_mut(&lane) else {
            return;
        };
        let entry = lane.entry(self.hash, offset);
        if entry.is_some_and(|entry| lane.set.remove(&entry)) {
            entries.count -= 1;
            self.index.all_entries.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl LaneEntries {
    fn from(base: u64) -> Self {
        Self {
            base,
            covered: base,
            set: BTreeSet::new(),
        }
    }

    /// Returns the offset up to which entries can be.
    fn limit(&self) -> u64 {
        self.base.saturating_add(OFFSETS_MAX)
    }

    /// Returns the entry of an offset. `None` if it lies out of reach.
    fn entry(&self, hash: u64, offset: u64) -> Option<u64> {
        let behind = offset
            .checked_sub(self.base)
            .filter(|behind| *behind < OFFSETS_MAX)?;
        Some(hash << OFFSET_BITS | behind)
    }

    fn offset(&self, entry: u64) -> u64 {
        self.base + (entry & (OFFSETS_MAX - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_its_offset_and_is_in_their_order() {
        let lane = LaneEntries::from(7);
        let hash = u64::MAX >> OFFSET_BITS;
        let offsets = [7, 8, 1 << 30, lane.limit() - 1];
        let packed = offsets.map(|offset| lane.entry(hash, offset).unwrap());
        assert!(packed.is_sorted());
        assert_eq!(packed.map(|entry| lane.offset(entry)), offsets);
        assert!(lane.entry(hash - 1, lane.limit() - 1).unwrap() < packed[0]);
        assert_eq!(lane.entry(hash, 6), None);
        assert_eq!(lane.entry(hash, lane.limit()), None);
    }

    #[test]
    fn a_lane_begins_anew_at_its_head_once_its_end_is_out_of_reach() {
        let index = SelectionIndex {
            header: "sender".into(),
            entries: Lock::default(),
            reads: Semaphore::new(1),
            used_ms: AtomicI64::new(0),
            all_entries: Arc::default(),
        };
        let mut entries = Entries::default();
        assert_eq!(index.reach(&mut entries, 0, 5, 9), (5, 9));
        entries.lanes.get_mut(&0).unwrap().set.insert(1);
        entries.count = 1;
        index.all_entries.store(1, Ordering::Relaxed);
        let far = OFFSETS_MAX + 100;
        assert_eq!(
            index.reach(&mut entries, 0, 5, far),
            (5, OFFSETS_MAX + 5),
            "nothing is settled"
        );
        assert_eq!(
            (entries.count, index.reach(&mut entries, 0, 50, far)),
            (1, (50, OFFSETS_MAX + 50))
        );
        assert_eq!((entries.count, index.all_entries.load(Ordering::Relaxed)), (0, 0));
        assert_eq!(index.reach(&mut entries, 0, 100, far), (100, far));
    }
}
