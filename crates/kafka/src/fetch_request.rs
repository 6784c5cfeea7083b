//! What a fetch asks for, flat: one run of partitions, and one of topics that they point into.

use smallvec::SmallVec;
use stafett_kafka_wire::{DecodeError, Decoder};

use crate::fetch_state::Asked;
use crate::reader::{Reader, TopicKey};
use crate::session::Call;

/// From this version on, there are sessions.
pub(crate) const SESSIONS_FROM: i16 = 7;
/// From this version on, topics are named by their ids.
pub(crate) const IDS_FROM: i16 = 13;

/// The least that a topic, a partition and a number of a forgotten one take in a request.
const TOPIC_BYTES_MIN: usize = 3;
const PARTITION_BYTES_MIN: usize = 16;
const NUMBER_BYTES: usize = 4;

#[derive(Debug)]
pub(crate) struct FetchRequest {
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub isolation_level: i8,
    pub session_id: i32,
    pub session_epoch: i32,
    topics: SmallVec<[TopicKey; 1]>,
    partitions: SmallVec<[(u32, Asked); 1]>,
    /// Partitions that a session is to forget.
    forgotten: Vec<(u32, i32)>,
}

impl FetchRequest {
    pub(crate) fn read(call: Call, body: Decoder) -> Result<Self, DecodeError> {
        let mut r = Reader::new(call, body);
        if r.version < 15 {
            // Who asks: a replica, or a client, which is all the same here.
            r.d.i32()?;
        }
        let mut request = Self {
            max_wait_ms: r.d.i32()?,
            min_bytes: r.d.i32()?,
            max_bytes: r.d.i32()?,
            isolation_level: r.d.i8()?,
            session_id: if r.version >= SESSIONS_FROM { r.d.i32()? } else { 0 },
            session_epoch: if r.version >= SESSIONS_FROM {
                r.d.i32()?
            } else {
                -1
            },
            topics: SmallVec::new(),
            partitions: SmallVec::new(),
            forgotten: Vec::new(),
        };
        for _ in 0..r.count(TOPIC_BYTES_MIN)? {
            let topic = request.topic(&mut r)?;
            let count = r.count(PARTITION_BYTES_MIN)?;
            request.partitions.reserve(count);
            for _ in 0..count {
                request.partitions.push((topic, partition(&mut r)?));
            }
            r.tags()?;
        }
        if r.version >= SESSIONS_FROM {
            for _ in 0..r.count(TOPIC_BYTES_MIN)? {
                let topic = request.topic(&mut r)?;
                let count = r.count(NUMBER_BYTES)?;
                request.forgotten.reserve(count);
                for _ in 0..count {
                    request.forgotten.push((topic, r.d.i32()?));
                }
                r.tags()?;
            }
        }
        if r.version >= 11 {
            // The client's rack: there is one place only.
            r.string()?;
        }
        r.tags()?;
        Ok(request)
    }

    /// How many partitions are asked for.
    pub(crate) fn partitions(&self) -> usize {
        self.partitions.len()
    }

    pub(crate) fn asked(&self) -> impl Iterator<Item = (&TopicKey, &Asked)> {
        self.partitions
            .iter()
            .filter_map(|(topic, asked)| Some((self.key(*topic)?, asked)))
    }

    pub(crate) fn forgotten(&self) -> impl Iterator<Item = (&TopicKey, i32)> {
        self.forgotten
            .iter()
            .filter_map(|(topic, partition)| Some((self.key(*topic)?, *partition)))
    }

    fn topic(&mut self, r: &mut Reader) -> Result<u32, DecodeError> {
        let number = u32::try_from(self.topics.len()).unwrap_or(u32::MAX);
        self.topics.push(r.topic(IDS_FROM)?);
        Ok(number)
    }

    fn key(&self, topic: u32) -> Option<&TopicKey> {
        self.topics.get(usize::try_from(topic).ok()?)
    }
}

fn partition(r: &mut Reader) -> Result<Asked, DecodeError> {
    let partition = r.d.i32()?;
    let leader_epoch = if r.version >= 9 { r.d.i32()? } else { -1 };
    let fetch_offset = r.d.i64()?;
    if r.version >= 12 {
        // The epoch of what a replica has read last.
        r.d.i32()?;
    }
    if r.version >= 5 {
        // Where a replica's log starts.
        r.d.i64()?;
    }
    let bytes_max = r.d.i32()?;
    r.tags()?;
    Ok(Asked {
        partition,
        leader_epoch,
        fetch_offset,
        bytes_max,
    })
}
