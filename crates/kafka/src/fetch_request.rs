//! A fetch request in flat form: one list of partitions that point into one list of topics.

use smallvec::SmallVec;
use stafett_kafka_wire::{DecodeError, Decoder};

use crate::call::Call;
use crate::fetch_partition::PartitionRequest;
use crate::request_reader::{Reader, TopicKey};

/// First version with fetch sessions.
pub(crate) const SESSIONS_FROM: i16 = 7;
/// First version that names topics by id.
pub(crate) const IDS_FROM: i16 = 13;

/// Minimum bytes of a topic in a request.
const TOPIC_BYTES_MIN: usize = 3;
/// Minimum bytes of a partition in a request.
const PARTITION_BYTES_MIN: usize = 16;
/// Bytes of the number of a forgotten partition.
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
    partitions: SmallVec<[(u32, PartitionRequest); 1]>,
    /// Partitions that a session forgets.
    forgotten: Vec<(u32, i32)>,
}

impl FetchRequest {
    pub(crate) fn read(call: Call, body: Decoder) -> Result<Self, DecodeError> {
        let mut r = Reader::new(call, body);
        if r.version < 15 {
            // Replica id: replicas and clients are treated alike.
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
            // The client's rack is ignored: there is one broker.
            r.string()?;
        }
        r.tags()?;
        Ok(request)
    }

    /// Returns the number of requested partitions.
    pub(crate) fn partitions(&self) -> usize {
        self.partitions.len()
    }

    pub(crate) fn asked(&self) -> impl Iterator<Item = (&TopicKey, &PartitionRequest)> {
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

fn partition(r: &mut Reader) -> Result<PartitionRequest, DecodeError> {
    let partition = r.d.i32()?;
    let leader_epoch = if r.version >= 9 { r.d.i32()? } else { -1 };
    let fetch_offset = r.d.i64()?;
    if r.version >= 12 {
        // Epoch of the last record that a replica fetched.
        r.d.i32()?;
    }
    if r.version >= 5 {
        // Log start offset of a replica.
        r.d.i64()?;
    }
    let bytes_max = r.d.i32()?;
    r.tags()?;
    Ok(PartitionRequest {
        partition,
        leader_epoch,
        fetch_offset,
        bytes_max,
    })
}
