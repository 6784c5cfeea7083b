//! Records of a task's log. The first byte of the key is the kind.
//!
//! ```text
//! key                                      value
//! p                                        version 1 · seq u64 · epoch u64 · time i64 · inputs u8
//!                                          · (next u64, safe u64)*
//!                                          version 2 also: slices ahead u16
//!                                          · (bits u16 · length u8 · (next u64, safe u64)*)*
//! d key                                    offset u64 of the last record, per input
//! x input u8                               empty: earlier finished keys do not count in the input
//! t key length u32 · key · name            due i64, ms since 1970
//! s table u16 · key                        expiry i64 (MAX for never), ms since 1970 · value
//! f input u8 (255 for timers)              record that fails: offset u64 · retry i64 (MAX for never)
//!   · number u16, if it is not 0           · attempts u32 · last ones u8 · (time i64, worker text, error text)*
//!                                          · deaths u32 · delivered alone before u64
//!                                          of a timer also: due i64 · key length u32 · key · name
//! ```
//!
//! Numbers are little-endian. A record without a value deletes its key. The log is compacted by key.

use bytes::Bytes;
use stafett_model::codec::get;
use stafett_topics::{SkipReason, Skipped};

use crate::failures::FailurePlace;
use crate::task::Slice;

/// Version of positions without slices ahead.
const VERSION: u8 = 1;
const VERSION_AHEAD: u8 = 2;
pub(crate) const POSITION: &[u8] = b"p";
/// Expiry of an entry that does not expire.
pub(crate) const NEVER: i64 = i64::MAX;

/// How far a task is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Position {
    /// Number of the last commit; 0 before the first.
    pub seq: u64,
    /// Epoch of the claim that committed last.
    pub epoch: u64,
    /// Task time of the last commit, ms since 1970; the smallest number before the first.
    pub time: i64,
    /// Next offset to do, per input.
    pub next: Vec<u64>,
    /// Offset from which a restart has to read, per input.
    pub safe: Vec<u64>,
    /// Slices that are further, after tasks were joined. Of two that have a key, the first counts.
    pub ahead: Vec<Ahead>,
}

/// A slice that is further than the rest of its task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ahead {
    pub slice: Slice,
    /// As those of the position.
    pub next: Vec<u64>,
    pub safe: Vec<u64>,
}

/// Key of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EntryKey {
    Position,
    Done(Bytes),
    Forgotten { input: u8 },
    Timer { key: Bytes, name: Bytes },
    State { table: u16, key: Bytes },
    Failure(FailurePlace),
}

impl EntryKey {
    /// Reads a key; `None` for a kind that this version does not know.
    pub(crate) fn decode(bytes: &Bytes) -> Option<Self> {
        let mut rest: &[u8] = bytes.get(1..)?;
        let tail = |rest: &[u8]| bytes.slice(bytes.len() - rest.len()..);
        match bytes.first()? {
            b'p' => Some(Self::Position),
            b'd' => Some(Self::Done(tail(rest))),
            b't' => {
                let length = usize::try_from(u32::from_le_bytes(get(&mut rest)?)).ok()?;
                let both = tail(rest);
                (length <= both.len()).then(|| Self::Timer {
                    key: both.slice(..length),
                    name: both.slice(length..),
                })
            }
            b's' => {
                let table = u16::from_le_bytes(get(&mut rest)?);
                let key = tail(rest);
                Some(Self::State { table, key })
            }
            b'f' => {
                let [input] = get(&mut rest)?;
                let mut place = FailurePlace::first(input);
                if !rest.is_empty() {
                    place.number = u16::from_le_bytes(get(&mut rest)?);
                }
                rest.is_empty().then_some(Self::Failure(place))
            }
            b'x' => {
                let [input] = get(&mut rest)?;
                rest.is_empty().then_some(Self::Forgotten { input })
            }
            _ => None,
        }
    }
}

pub(crate) fn done_key(key: &[u8]) -> Vec<u8> {
    [b"d", key].concat()
}

pub(crate) fn timer_key(key: &[u8], name: &[u8]) -> Vec<u8> {
    let length = u32::try_from(key.len()).unwrap_or(u32::MAX).to_le_bytes();
    [b"t", &length[..], key, name].concat()
}

pub(crate) fn state_key(table: u16, key: &[u8]) -> Vec<u8> {
    [b"s", &table.to_le_bytes()[..], key].concat()
}

pub(crate) fn state_value(expiry: i64, value: &[u8]) -> Vec<u8> {
    [&expiry.to_le_bytes()[..], value].concat()
}

/// Splits a stored value into its expiry and the value.
pub(crate) fn split_value(stored: &Bytes) -> Option<(i64, Bytes)> {
    let expiry = i64::from_le_bytes(*stored.first_chunk()?);
    Some((expiry, stored.slice(8..)))
}

pub(crate) fn offsets_value(offsets: &[u64]) -> Vec<u8> {
    offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect()
}

pub(crate) fn read_offsets(value: &[u8]) -> Box<[u64]> {
    let (chunks, _) = value.as_chunks::<8>();
    chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect()
}

impl Position {
    /// Position of a task that has never committed.
    pub(crate) fn start(offsets: Vec<u64>) -> Self {
        Self {
            time: i64::MIN,
            safe: offsets.clone(),
            next: offsets,
            ..Self::default()
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let version = if self.ahead.is_empty() {
            VERSION
        } else {
            VERSION_AHEAD
        };
        let mut out = vec![version];
        out.extend_from_slice(&self.seq.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.time.to_le_bytes());
        out.push(u8::try_from(self.next.len()).unwrap_or(u8::MAX));
        put_places(&self.next, &self.safe, &mut out);
        if !self.ahead.is_empty() {
            let count = u16::try_from(self.ahead.len()).unwrap_or(u16::MAX);
            out.extend_from_slice(&count.to_le_bytes());
        }
        for Ahead { slice, next, safe } in &self.ahead {
            let (bits, length) = slice.parts();
            out.extend_from_slice(&bits.to_le_bytes());
            out.push(length);
            put_places(next, safe, &mut out);
        }
        out
    }

    /// Returns the slice ahead that has a key.
    fn ahead_of(&self, key: Option<&[u8]>) -> Option<&Ahead> {
        self.ahead.iter().find(|ahead| ahead.slice.has(key))
    }

    /// Returns the next offset of an input for a key. A slice that is ahead in another input may have been
    /// overtaken in this one.
    pub fn next_for(&self, input: usize, key: Option<&[u8]>) -> u64 {
        let ahead = self.ahead_of(key).map_or(&self.next, |ahead| &ahead.next);
        let next = [ahead, &self.next].into_iter();
        next.filter_map(|next| next.get(input))
            .copied()
            .max()
            .unwrap_or(0)
    }

    /// True for a record that is not read again: its slice is ahead.
    pub(crate) fn is_passed(&self, input: usize, offset: u64, key: Option<&[u8]>) -> bool {
        let ahead = self.ahead_of(key);
        ahead.is_some_and(|ahead| ahead.safe.get(input).is_some_and(|safe| offset < *safe))
    }

    /// Returns the position at a later place. A safe offset behind the position stays: records from there on
    /// are read again after a restart.
    pub(crate) fn moved_to(&self, place: &[u64], time: i64) -> Self {
        let mut position = self.clone();
        let inputs = position.next.iter_mut().zip(&mut position.safe).zip(place);
        for ((next, safe), place) in inputs.filter(|((next, _), place)| **next < **place) {
            if safe == next {
                *safe = *place;
            }
            *next = *place;
        }
        position.time = position.time.max(time);
        position.drop_reached();
        position
    }

    /// Forgets slices that the rest has reached.
    pub(crate) fn drop_reached(&mut self) {
        let (safe, ahead) = (&self.safe, &mut self.ahead);
        ahead.retain(|ahead| ahead.next.iter().zip(safe).any(|(next, safe)| next > safe));
    }

    pub(crate) fn decode(mut rest: &[u8]) -> Option<Self> {
        let rest = &mut rest;
        let [version] = get(rest)?;
        if version != VERSION && version != VERSION_AHEAD {
            return None;
        }
        let (seq, epoch) = (u64::from_le_bytes(get(rest)?), u64::from_le_bytes(get(rest)?));
        let time = i64::from_le_bytes(get(rest)?);
        let [inputs] = get(rest)?;
        let (next, safe) = get_places(inputs, rest)?;
        let mut ahead = Vec::new();
        if version == VERSION_AHEAD {
            for _ in 0..u16::from_le_bytes(get(rest)?) {
                let bits = u16::from_le_bytes(get(rest)?);
                let [length] = get(rest)?;
                let slice = Slice::of_parts(bits, length)?;
                let (next, safe) = get_places(inputs, rest)?;
                ahead.push(Ahead { slice, next, safe });
            }
        }
        rest.is_empty().then_some(Self {
            seq,
            epoch,
            time,
            next,
            safe,
            ahead,
        })
    }
}

fn put_places(next: &[u64], safe: &[u64], out: &mut Vec<u8>) {
    for (next, safe) in next.iter().zip(safe) {
        out.extend_from_slice(&next.to_le_bytes());
        out.extend_from_slice(&safe.to_le_bytes());
    }
}

fn get_places(inputs: u8, rest: &mut &[u8]) -> Option<(Vec<u64>, Vec<u64>)> {
    let (mut next, mut safe) = (Vec::new(), Vec::new());
    for _ in 0..inputs {
        next.push(u64::from_le_bytes(get(rest)?));
        safe.push(u64::from_le_bytes(get(rest)?));
    }
    Some((next, safe))
}

/// Returns the key of an entry, of that of its record.
pub(crate) fn key_of_entry(record_key: &Bytes) -> Option<Bytes> {
    match EntryKey::decode(record_key)? {
        EntryKey::State { key, .. } => Some(key),
        EntryKey::Position
        | EntryKey::Done(_)
        | EntryKey::Forgotten { .. }
        | EntryKey::Timer { .. }
        | EntryKey::Failure(_) => None,
    }
}

/// Returns an error that names a range of a task's log if it is damaged. Other ranges without records were
/// compacted away.
pub(crate) fn intact(skipped: &Skipped) -> Result<(), String> {
    if skipped.why == SkipReason::Damaged {
        return Err(format!("offsets {} to {} are damaged", skipped.from, skipped.to));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_are_read_back(key: Vec<u8>, name: Vec<u8>, table: u16) {
            let (own, other) = (Bytes::from(key.clone()), Bytes::from(name.clone()));
            prop_assert_eq!(EntryKey::decode(&done_key(&key).into()), Some(EntryKey::Done(own.clone())));
            let timer = EntryKey::Timer { key: own.clone(), name: other };
            prop_assert_eq!(EntryKey::decode(&timer_key(&key, &name).into()), Some(timer));
            let state = EntryKey::State { table, key: own };
            prop_assert_eq!(EntryKey::decode(&state_key(table, &key).into()), Some(state));
            for number in [0, table] {
                let place = FailurePlace { input: 7, number };
                prop_assert_eq!(EntryKey::decode(&place.key().into()), Some(EntryKey::Failure(place)));
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = EntryKey::decode(&Bytes::from(bytes.clone()));
            if let Some(position) = Position::decode(&bytes) {
                prop_assert_eq!(Position::decode(&position.encode()), Some(position));
            }
        }

        #[test]
        fn positions_are_read_back(seq: u64, epoch: u64, time: i64, offsets in prop::collection::vec(any::<(u64, u64)>(), 0..4)) {
            let (next, safe): (Vec<_>, Vec<_>) = offsets.into_iter().unzip();
            let slice = crate::task::TaskId::whole(0).halves().unwrap()[1].slice();
            let ahead = Ahead { slice, next: safe.clone(), safe: next.clone() };
            let position = Position { seq, epoch, time, next, safe, ahead: vec![ahead] };
            let bytes = position.encode();
            prop_assert_eq!(Position::decode(&bytes), Some(position));
            prop_assert_eq!(Position::decode(&bytes[..bytes.len() - 1]), None);
        }
    }
}
