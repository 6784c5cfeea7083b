//! Request ids: the last appends with an id are remembered with their outcomes, so that an append that is
//! sent again is recognised.
//!
//! They are state in a space of their own: an id's value is stored with its append and deleted by the append
//! whose id takes its place. So it survives whatever its append survives, and takes bounded space.
//!
//! ```text
//! key    16 bytes id
//! value  u64 number, ascending with every id; per batch and log: u64 log, u64 base offset (little-endian)
//! ```

use std::collections::{HashMap, VecDeque};

use bytes::{BufMut, Bytes};
use smallvec::SmallVec;
use stafett_model::{LogId, Offset};

use crate::contract::{Change, PlacedBatch, REQUESTS_KEPT, RequestId, StateChange, StateSpace};
use crate::disk::codec::Reader;

/// State space reserved for request ids.
pub(crate) const SPACE: StateSpace = StateSpace(u16::MAX);

/// Remembered request ids. `W` is the condition that a resent append waits for.
#[derive(Debug)]
pub(crate) struct Requests<W> {
    known: HashMap<RequestId, KnownRequest<W>>,
    /// Oldest first.
    order: VecDeque<RequestId>,
    next_number: u64,
    kept: usize,
}

#[derive(Debug, Clone)]
struct KnownRequest<W> {
    placed: SmallVec<[PlacedBatch; 1]>,
    wait: W,
}

impl<W: Copy> Default for Requests<W> {
    fn default() -> Self {
        Self::keeping(REQUESTS_KEPT)
    }
}

impl<W: Copy> Requests<W> {
    fn keeping(kept: usize) -> Self {
        Self {
            known: HashMap::new(),
            order: VecDeque::new(),
            next_number: 0,
            kept,
        }
    }

    /// Loads remembered appends from pairs of keys and values; resent ones wait for `wait`.
    pub(crate) fn load(stored: impl IntoIterator<Item = (Bytes, Bytes)>, wait: W) -> Self {
        let decoded = stored.into_iter().filter_map(|(key, value)| decode(&key, &value));
        let mut rows: Vec<_> = decoded.collect();
        rows.sort_unstable_by_key(|(number, _, _)| *number);
        let mut requests = Self::default();
        for (number, id, placed) in rows {
            requests.next_number = number + 1;
            requests.order.push_back(id);
            requests.known.insert(id, KnownRequest { placed, wait });
        }
        requests
    }

    pub(crate) fn contains(&self, id: RequestId) -> bool {
        self.known.contains_key(&id)
    }

    /// Returns the places of an earlier append under this id, and the condition that it waits for.
    pub(crate) fn find(&self, id: RequestId) -> Option<(SmallVec<[PlacedBatch; 1]>, W)> {
        let known = self.known.get(&id)?;
        let duplicates = known.placed.iter().map(|placed| PlacedBatch {
            duplicate: true,
            ..*placed
        });
        Some((duplicates.collect(), known.wait))
    }

    /// Remembers an append under an id. Returns the changes to be stored with it: at most two.
    pub(crate) fn note(
        &mut self,
        id: RequestId,
        placed: SmallVec<[PlacedBatch; 1]>,
        wait: W,
    ) -> SmallVec<[StateChange; 2]> {
        let mut changes = SmallVec::new();
        if self.order.len() >= self.kept
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
            changes.push(change(oldest, Change::Delete));
        }
        changes.push(change(id, Change::Put(encode(self.next_number, &placed))));
        self.next_number += 1;
        self.order.push_back(id);
        self.known.insert(id, KnownRequest { placed, wait });
        changes
    }
}

/// Returns the approximate bytes of the changes for an append with `places` places, for the space budget.
pub(crate) fn state_bytes(places: usize) -> usize {
    2 * 64 + 8 + 16 * places + 64
}

fn change(id: RequestId, change: Change) -> StateChange {
    StateChange {
        space: SPACE,
        key: Bytes::copy_from_slice(&id.0),
        change,
    }
}

fn encode(number: u64, placed: &[PlacedBatch]) -> Bytes {
    let mut out = Vec::with_capacity(8 + placed.len() * 16);
    out.put_u64_le(number);
    for placed in placed {
        out.put_u64_le(placed.log.0);
        out.put_u64_le(placed.base.0);
    }
    out.into()
}

fn decode(key: &[u8], value: &[u8]) -> Option<(u64, RequestId, SmallVec<[PlacedBatch; 1]>)> {
    let id = RequestId(key.try_into().ok()?);
    let mut reader = Reader(value);
    let number = reader.u64()?;
    let mut placed = SmallVec::new();
    while !reader.0.is_empty() {
        placed.push(PlacedBatch {
            log: LogId(reader.u64()?),
            base: Offset(reader.u64()?),
            duplicate: false,
        });
    }
    // Bounded, so that the next number can always be computed.
    (number < u64::MAX >> 1).then_some((number, id, placed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> RequestId {
        RequestId([n; 16])
    }

    fn placed(base: u64) -> SmallVec<[PlacedBatch; 1]> {
        SmallVec::from_buf([PlacedBatch {
            log: LogId(3),
            base: Offset(base),
            duplicate: false,
        }])
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let mut requests = Requests::keeping(3);
        for n in 0..5 {
            let changes = requests.note(id(n), placed(n.into()), ());
            assert_eq!(changes.len(), if n < 3 { 1 } else { 2 });
        }
        let known: Vec<_> = (0..5).map(|n| requests.find(id(n)).is_some()).collect();
        assert_eq!(known, [false, false, true, true, true]);
        let (again, ()) = requests.find(id(4)).unwrap();
        assert_eq!((again[0].base, again[0].duplicate), (Offset(4), true));
    }

    #[test]
    fn what_was_stored_is_remembered_in_its_order() {
        let mut requests = Requests::keeping(10);
        let mut stored = HashMap::new();
        for n in 0..5 {
            for change in requests.note(id(n), placed(n.into()), ()) {
                match change.change {
                    Change::Put(value) => drop(stored.insert(change.key, value)),
                    Change::Delete | Change::Delta(_) => drop(stored.remove(&change.key)),
                }
            }
        }
        let mut loaded = Requests::load(stored, ());
        assert_eq!(loaded.order, requests.order);
        loaded.kept = 5;
        let changes = loaded.note(id(9), SmallVec::new(), ());
        assert_eq!(changes[0], change(id(0), Change::Delete));
    }

    #[test]
    fn what_cannot_have_been_stored_is_left_out() {
        let rows = [
            (Bytes::from_static(b"short"), Bytes::from_static(&[0; 8])),
            (Bytes::from_static(&[1; 16]), Bytes::from_static(&[0; 7])),
            (Bytes::from_static(&[2; 16]), Bytes::from_static(&[0; 9])),
            (Bytes::from_static(&[3; 16]), Bytes::from_static(&[255; 8])),
            (Bytes::from_static(&[4; 16]), Bytes::from_static(&[0; 8])),
        ];
        let loaded = Requests::load(rows, ());
        assert_eq!(loaded.order, [id(4)]);
    }
}
