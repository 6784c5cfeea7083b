//! Where clients were last: stored when they leave, for those who ever asked to begin somewhere.
//!
//! ```text
//! space 12: u32 client (big-endian) → u8 version = 1, then each: u128 stored topic, u32 partition, u64 next offset
//! ```
//!
//! A position is the first offset that was not handed to the client's connection when it left.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use stafett_journal::{
    Append, Change, Frame, Journal, StateChange, StateItem, StateSpace, StateUnreadable, StateWait,
};
use stafett_model::Offset;

use crate::live::clients::ClientNumber;
use crate::live::hub::Live;
use crate::topic::TopicId;

const SPACE: StateSpace = StateSpace(12);
const VERSION: u8 = 1;

/// A message of a log on its way to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub(crate) client: u32,
    /// The partition, among those of all logs.
    pub(crate) place: usize,
    pub(crate) offset: Offset,
}

type OfClient = Vec<(TopicId, u32, Offset)>;

#[derive(Debug, Default)]
pub(crate) struct Positions(Mutex<HashMap<u32, OfClient>>);

impl Positions {
    pub(crate) fn load(journal: &dyn Journal) -> Result<Self, StateUnreadable> {
        let mut positions = HashMap::new();
        let mut unknown = false;
        journal.load_state(SPACE, &mut |item| {
            let StateItem::Value { key, value } = item else {
                return;
            };
            match (key.try_into().map(u32::from_be_bytes), decode(value)) {
                (Ok(client), Some(of_client)) => drop(positions.insert(client, of_client)),
                _ => unknown = true,
            }
        })?;
        if unknown {
            let why = "a client's position is of a format that this version does not know";
            return Err(StateUnreadable(why.to_owned()));
        }
        Ok(Self(Mutex::new(positions)))
    }

    pub(crate) fn get(&self, client: ClientNumber, topic: TopicId, partition: u32) -> Option<Offset> {
        let positions = self.lock();
        let of_client = positions.get(&client.0)?;
        let found = of_client
            .iter()
            .find(|(of, number, _)| (*of, *number) == (topic, partition));
        found.map(|(_, _, offset)| *offset)
    }

    /// From now on it is remembered where this client is when it leaves.
    pub(crate) fn note(&self, client: ClientNumber) {
        self.lock().entry(client.0).or_default();
    }

    /// What forgets a client, if it was noted.
    pub(crate) fn forget(&self, client: ClientNumber) -> Option<Frame> {
        self.lock()
            .remove(&client.0)
            .map(|_| frame(client, Change::Delete))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, OfClient>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Live {
    /// Remembers where a client is that leaves; `left` are the messages that were not handed to its connection.
    pub(crate) fn store_position(&self, client: ClientNumber, left: &[Mark]) {
        let Some(logs) = self.logs.get() else { return };
        let mut positions = self.positions.lock();
        let Some(of_client) = positions.get_mut(&client.0) else {
            return;
        };
        let now = logs.partitions.iter().enumerate().map(|(place, partition)| {
            let follow = partition.follow();
            let held = follow
                .holds
                .iter()
                .filter(|hold| hold.client == client.0)
                .map(|hold| hold.at);
            let unsent = left
                .iter()
                .filter(|mark| mark.client == client.0 && mark.place == place)
                .map(|mark| mark.offset);
            let next = held.chain(unsent).min().unwrap_or(follow.next).min(follow.next);
            (partition.topic.id, partition.number, next)
        });
        let now: OfClient = now.collect();
        if *of_client == now {
            return;
        }
        of_client.clone_from(&now);
        let stored = frame(client, Change::Put(encode(&now)));
        // Nobody waits for it: who must not miss anything names an offset.
        drop(
            self.journal
                .append(vec![Append::state([stored], StateWait::Written)]),
        );
    }
}

fn frame(client: ClientNumber, change: Change) -> Frame {
    Frame::State(StateChange {
        space: SPACE,
        key: Bytes::copy_from_slice(&client.0.to_be_bytes()),
        change,
    })
}

fn encode(of_client: &OfClient) -> Bytes {
    let mut out = vec![VERSION];
    for (topic, partition, offset) in of_client {
        out.extend_from_slice(&topic.0.to_le_bytes());
        out.extend_from_slice(&partition.to_le_bytes());
        out.extend_from_slice(&offset.0.to_le_bytes());
    }
    out.into()
}

fn decode(value: &[u8]) -> Option<OfClient> {
    let (&VERSION, mut rest) = value.split_first()? else {
        return None;
    };
    let mut of_client = Vec::new();
    while !rest.is_empty() {
        let (topic, behind) = rest.split_first_chunk()?;
        let (partition, behind) = behind.split_first_chunk()?;
        let (offset, behind) = behind.split_first_chunk()?;
        rest = behind;
        let offset = Offset::ZERO.checked_add(u64::from_le_bytes(*offset))?;
        of_client.push((
            TopicId(u128::from_le_bytes(*topic)),
            u32::from_le_bytes(*partition),
            offset,
        ));
    }
    Some(of_client)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_read_back_and_cut_ones_do_not() {
        let of_client = vec![(TopicId(1 << 100), 3, Offset(77)), (TopicId(2), 0, Offset(0))];
        let stored = encode(&of_client);
        assert_eq!(decode(&stored), Some(of_client));
        assert_eq!(decode(&stored[..stored.len() - 1]), None);
        assert_eq!(decode(&[]), None);
    }
}
