//! Positions of clients that ever asked for one: stored when a client stops listening, and before it begins
//! at a lower one.
//!
//! ```text
//! space 12: u32 client (big-endian) → u8 version = 1, then each: u128 stored topic, u32 partition,
//!           u64 next offset
//! ```
//!
//! A position is the first offset that was not handed to the client's connection when it left. For a client
//! that resumes, it means, per topic:
//!
//! | the client | gets |
//! |---|---|
//! | does not have the topic | all from its position on |
//! | has had it since before it began to listen | the gap from its position to live delivery |
//! | has it only by a pattern that it has subscribed to since | all up to that subscription |
//! | has subscribed to it since | nothing: it has begun |

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use stafett_journal::{Change, Frame, Journal, StateUnreadable};
use stafett_model::{Lock, LockGuard, Offset};
use stafett_routing::live::Pattern;
use stafett_store::StageOutcome;
use stafett_store::spaces;
use stafett_topics::TopicId;

use crate::clients::ClientNumber;
use crate::log_delivery::{LiveLogs, Partition};
use crate::topics::TopicHash;

const VERSION: u8 = 1;

/// A message from a log, addressed to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPosition {
    pub(crate) client: u32,
    /// Place of the partition among those of all logs.
    pub(crate) place: u32,
    pub(crate) offset: Offset,
    pub(crate) topic: TopicHash,
}

impl LogPosition {
    pub(crate) fn new(client: u32, place: usize, offset: Offset, topic: TopicHash) -> Self {
        Self {
            client,
            place: u32::try_from(place).unwrap_or(u32::MAX),
            offset,
            topic,
        }
    }

    pub(crate) fn place(&self) -> usize {
        usize::try_from(self.place).unwrap_or(usize::MAX)
    }
}

type StoredPositions = Vec<(TopicId, u32, Offset)>;

/// Positions of the clients that ever asked for one.
#[derive(Debug, Default)]
pub(crate) struct Positions(Lock<HashMap<u32, ClientPositions>>);

#[derive(Debug, Default)]
pub(crate) struct ClientPositions {
    /// Positions that the journal has.
    stored: StoredPositions,
    listening: Option<Box<ListeningState>>,
}

/// State of a client since it began to listen on its connection.
#[derive(Debug)]
struct ListeningState {
    /// Positions before that.
    was: StoredPositions,
    /// Offsets from which messages came live, by partition.
    since: Vec<Offset>,
    /// Topics subscribed to since then: each begins once.
    begun: HashSet<Arc<str>>,
    /// Patterns subscribed to since then, with the offsets of the partitions at that time.
    patterns: Vec<(Pattern, Box<[Offset]>)>,
}

impl ListeningState {
    fn new(was: &StoredPositions, now: &[Offset]) -> Self {
        Self {
            was: was.clone(),
            since: now.to_vec(),
            begun: HashSet::new(),
            patterns: Vec::new(),
        }
    }
}

/// Positions at which topics can begin for a resuming client.
#[derive(Debug)]
pub(crate) struct Beginning {
    /// Positions before the client listened here, by partition.
    pub(crate) was: Vec<Option<Offset>>,
    /// Offsets from which messages came live, by partition.
    pub(crate) since: Vec<Offset>,
    /// Details of each requested topic.
    pub(crate) topics: Vec<TopicStart>,
}

/// Beginning of a requested topic.
#[derive(Debug)]
pub(crate) struct TopicStart {
    /// True if it was not requested before while the client listened here.
    pub(crate) is_first: bool,
    /// Number of matching patterns that the client has subscribed to since then.
    pub(crate) late_patterns: usize,
    /// Offsets at which the earliest of these patterns took effect, by partition.
    pub(crate) late: Box<[Offset]>,
}

impl Positions {
    pub(crate) fn load(journal: &dyn Journal) -> Result<Self, StateUnreadable> {
        let mut positions = HashMap::new();
        spaces::LIVE_POSITIONS.load_values(journal, |key, value| {
            let client = u32::from_be_bytes(key.try_into().ok()?);
            let (stored, listening) = (decode(value)?, None);
            positions.insert(client, ClientPositions { stored, listening });
            Some(())
        })?;
        Ok(Self(Lock::new(positions)))
    }

    /// Records that a client begins to listen, with partitions delivered up to `now`. The caller must hold up
    /// delivery.
    pub(crate) fn on_listen(&self, client: ClientNumber, now: &[Offset]) {
        if let Some(of_client) = self.lock().get_mut(&client.0) {
            of_client.listening = Some(Box::new(ListeningState::new(&of_client.stored, now)));
        }
    }

    /// Records that a listening client subscribes to topics from a given position.
    pub(crate) fn begin(
        &self,
        client: ClientNumber,
        topics: impl Iterator<Item = Arc<str>>,
        now: &[Offset],
        logs: &LiveLogs,
    ) -> Beginning {
        let mut positions = self.lock();
        let of_client = positions.entry(client.0).or_default();
        let stored = &of_client.stored;
        let listening = of_client
            .listening
            .get_or_insert_with(|| Box::new(ListeningState::new(stored, now)));
        let was = |partition: &Arc<Partition>| find(&listening.was, partition.topic.id, partition.number);
        let was = logs.partitions.iter().map(was).collect();
        // A partition opened later came live from its beginning.
        let since: Vec<Offset> = (0..)
            .zip(&logs.partitions)
            .map(|(place, partition)| {
                listening
                    .since
                    .get::<usize>(place)
                    .copied()
                    .unwrap_or(partition.opened)
            })
            .collect();
        let topics = topics
            .map(|topic| listening.topic_begins(topic, &since))
            .collect();
        Beginning { was, since, topics }
    }

    /// Returns the listening clients that follow logs.
    pub(crate) fn listening(&self) -> Vec<ClientNumber> {
        let positions = self.lock();
        let listening = positions.iter().filter(|(_, of)| of.listening.is_some());
        listening.map(|(client, _)| ClientNumber(*client)).collect()
    }

    /// Records that a client has subscribed to a pattern, effective from `now` on, or has unsubscribed
    /// (`None`). The caller must hold up delivery.
    pub(crate) fn on_pattern(&self, client: ClientNumber, pattern: &Pattern, now: Option<&[Offset]>) {
        let mut positions = self.lock();
        let Some(listening) = positions.get_mut(&client.0).and_then(|of| of.listening.as_mut()) else {
            return;
        };
        match now {
            Some(now) => listening.patterns.push((pattern.clone(), now.into())),
            None => listening.patterns.retain(|(known, _)| known != pattern),
        }
    }

    /// Returns true if the client's subscriptions have to be recorded.
    pub(crate) fn is_listening(&self, client: ClientNumber) -> bool {
        let positions = self.lock();
        let of_client = positions.get(&client.0);
        of_client.is_some_and(|of_client| of_client.listening.is_some())
    }

    /// Records that a client has subscribed to a topic, which begins with new messages, or has unsubscribed,
    /// so that the topic may begin again.
    pub(crate) fn on_step(&self, client: ClientNumber, topic: &str, is_subscribed: bool) {
        let mut positions = self.lock();
        let Some(listening) = positions.get_mut(&client.0).and_then(|of| of.listening.as_mut()) else {
            return;
        };
        if !is_subscribed {
            listening.begun.remove(topic);
        } else if !listening.begun.contains(topic) {
            listening.begun.insert(topic.into());
        }
    }

    /// Stores positions no higher than `at`, by partition, so that a crash loses nothing of the range that
    /// the client is about to get.
    pub(crate) fn store_lower(
        &self,
        journal: &dyn Journal,
        logs: &LiveLogs,
        client: ClientNumber,
        at: &[Offset],
    ) {
        let mut positions = self.lock();
        let Some(of_client) = positions.get_mut(&client.0) else {
            return;
        };
        let lower = logs.partitions.iter().zip(at).map(|(partition, at)| {
            let known = find(&of_client.stored, partition.topic.id, partition.number);
            let offset = known.map_or(*at, |known| known.min(*at));
            (partition.topic.id, partition.number, offset)
        });
        let lower = lower.collect();
        of_client.store(journal, client, lower);
    }

    /// Records the positions of a client that no longer listens.
    pub(crate) fn on_left(
        &self,
        journal: &dyn Journal,
        logs: &LiveLogs,
        client: ClientNumber,
        at: &[Offset],
    ) {
        let mut positions = self.lock();
        let Some(of_client) = positions.get_mut(&client.0) else {
            return;
        };
        of_client.listening = None;
        let place = |(partition, at): (&Arc<Partition>, &Offset)| (partition.topic.id, partition.number, *at);
        let now = logs.partitions.iter().zip(at).map(place).collect();
        of_client.store(journal, client, now);
    }

    /// Removes a client. Returns its positions, if it has any, with the frame that deletes them.
    pub(crate) fn forget(&self, client: ClientNumber) -> Option<(ClientPositions, Frame)> {
        let positions = self.lock().remove(&client.0)?;
        Some((positions, frame(client, Change::Delete)))
    }

    /// Takes back the positions of a client whose deletion was not stored, unless it has new ones.
    pub(crate) fn restore(&self, client: ClientNumber, positions: ClientPositions) {
        self.lock().entry(client.0).or_insert(positions);
    }

    fn lock(&self) -> LockGuard<'_, HashMap<u32, ClientPositions>> {
        self.0.lock()
    }
}

impl ListeningState {
    /// Records the request of a topic; `since` has the offsets from which partitions came live.
    fn topic_begins(&mut self, topic: Arc<str>, since: &[Offset]) -> TopicStart {
        let mut late: Box<[Offset]> = Box::default();
        let mut late_patterns = 0;
        for (_, at) in self
            .patterns
            .iter()
            .filter(|(pattern, _)| pattern.matches(&topic))
        {
            late_patterns += 1;
            // A partition opened after the pattern came live from its beginning.
            let at = (0..)
                .zip(since)
                .map(|(place, since)| at.get::<usize>(place).unwrap_or(since));
            late = match late_patterns {
                1 => at.copied().collect(),
                _ => at.zip(&late).map(|(one, other)| *one.min(other)).collect(),
            };
        }
        TopicStart {
            is_first: self.begun.insert(topic),
            late_patterns,
            late,
        }
    }
}

impl ClientPositions {
    /// Stages the positions, before anything staged from now on. No task waits for them: a subscription
    /// acknowledged later is durable only together with them.
    fn store(&mut self, journal: &dyn Journal, client: ClientNumber, now: StoredPositions) {
        if self.stored != now {
            let stored = frame(client, Change::Put(encode(&now)));
            // If refused, they are stored the next time.
            if !matches!(StageOutcome::of(journal, [stored]), StageOutcome::Refused(_)) {
                self.stored = now;
            }
        }
    }
}

fn find(places: &StoredPositions, topic: TopicId, partition: u32) -> Option<Offset> {
    let found = places
        .iter()
        .find(|(of, number, _)| (*of, *number) == (topic, partition));
    found.map(|(_, _, offset)| *offset)
}

fn frame(client: ClientNumber, change: Change) -> Frame {
    spaces::LIVE_POSITIONS.change(Bytes::copy_from_slice(&client.0.to_be_bytes()), change)
}

fn encode(of_client: &StoredPositions) -> Bytes {
    let mut out = vec![VERSION];
    for (topic, partition, offset) in of_client {
        out.extend_from_slice(&topic.0.to_le_bytes());
        out.extend_from_slice(&partition.to_le_bytes());
        out.extend_from_slice(&offset.0.to_le_bytes());
    }
    out.into()
}

fn decode(value: &[u8]) -> Option<StoredPositions> {
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
