//! The stored batch: one canonical layout for everything that is kept.
//!
//! It is bit-compatible with record batch v2 of Kafka (message format in Kafka's documentation, section
//! 5.3.1), all integers big-endian:
//!
//! ```text
//!  0  i64 base offset          ┐ patched when the batch is stored:
//!  8  i32 length from byte 12  │ not covered by the checksum
//! 12  i32 leader epoch         ┘
//! 16  i8  magic = 2
//! 17  u32 CRC-32C of bytes 21..
//! 21  i16 attributes           bits 0-2 compression, 3 timestamp type, 4 transactional, 5 control,
//!                              6 delete horizon
//! 23  i32 last offset delta
//! 27  i64 base timestamp       ms since 1970
//! 35  i64 max timestamp
//! 43  i64 producer id          -1: none
//! 51  i16 producer epoch
//! 53  i32 base sequence
//! 57  i32 record count
//! 61  records, compressed as one block if the attributes say so
//! ```

use crate::checksum::{Crc32c, crc32c};
use crate::id::{Epoch, Offset, ProducerId};

/// Bytes of a batch before its first record.
pub const HEADER_BYTES: usize = 61;
/// Length of the batch's placement: base offset, length and leader epoch. The batch's checksum does not cover
/// it.
pub const PLACEMENT_BYTES: usize = 16;
/// Bytes before the part that the length field counts.
pub const LENGTH_PREFIX_BYTES: usize = 12;
/// The only supported layout version.
pub const MAGIC: u8 = 2;

const CRC_AT: usize = 17;
const ATTRIBUTES_AT: usize = 21;
const CODEC_MASK: u16 = 0b111;
pub(crate) const APPEND_TIME_BIT: u16 = 1 << 3;
pub(crate) const TRANSACTIONAL_BIT: u16 = 1 << 4;
pub(crate) const CONTROL_BIT: u16 = 1 << 5;

/// Compression of a batch's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// Decoded header of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: i64,
    /// Bytes of the whole batch, header included.
    pub bytes: usize,
    pub leader_epoch: i32,
    pub magic: u8,
    pub crc: u32,
    pub attributes: u16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub record_count: i32,
}

/// Reason why bytes are not a valid batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    #[error("a batch of {given} bytes is cut short: its header says {wanted}")]
    Truncated { given: usize, wanted: usize },
    #[error("a batch states a length of {0}, less than its own header takes")]
    Length(i64),
    #[error("batch layout version {0} is not supported: expected 2")]
    Magic(u8),
    #[error("the batch's checksum is {computed:#010x}, its header says {stored:#010x}")]
    Checksum { stored: u32, computed: u32 },
    #[error("compression codec {0} is unknown: expected 0 to 4")]
    Codec(u16),
    #[error("the batch claims {records} records with a last offset delta of {last_offset_delta}")]
    Counts { records: i32, last_offset_delta: i32 },
    #[error("the batch's timestamps, {base} at first and {max} at most, are not those of its records")]
    Timestamps { base: i64, max: i64 },
    #[error("record {index} of the batch is malformed")]
    Record { index: u32 },
    #[error("the batch's {codec:?} block cannot be decompressed")]
    Decompression { codec: Codec },
    #[error("records cannot be compressed with {codec:?}")]
    Compression { codec: Codec },
    #[error("the batch's records take more than {limit} bytes once decompressed")]
    TooLarge { limit: usize },
    #[error("a batch of {bytes} bytes is larger than the {limit} allowed")]
    Oversized { bytes: usize, limit: usize },
    #[error("a batch of {records} records holds more than the {limit} allowed")]
    TooManyRecords { records: i32, limit: u32 },
    #[error("the batch claims {records} records, which cannot come out of {bytes} compressed bytes")]
    Implausible { records: i32, bytes: usize },
    #[error("one batch is expected, but {bytes} bytes follow it")]
    Trailing { bytes: usize },
    #[error("the batch's base offset is {0}: a producer sends 0, the log gives the offset")]
    BaseOffset(i64),
    #[error("producer id {id}, epoch {epoch} and base sequence {sequence} of the batch do not go together")]
    Producer { id: i64, epoch: i16, sequence: i32 },
    #[error("a producer may not send control records")]
    Control,
    #[error("a producer may not send records that carry the time of their append")]
    AppendTime,
}

impl Codec {
    pub(crate) fn bits(self) -> u16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }
}

impl BatchHeader {
    /// Reads the header at the front of `bytes`, which may continue behind the batch. Checks only that the
    /// header is complete and that the length it states is at least a header's.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(BatchError::Truncated {
                given: bytes.len(),
                wanted: HEADER_BYTES,
            });
        };
        let length = i32::from_be_bytes(field(head, 8));
        let bytes = usize::try_from(length)
            .ok()
            .map(|behind| behind + LENGTH_PREFIX_BYTES);
        let bytes = bytes
            .filter(|n| *n >= HEADER_BYTES)
            .ok_or_else(|| BatchError::Length(length.into()))?;
        Ok(Self {
            base_offset: i64::from_be_bytes(field(head, 0)),
            bytes,
            leader_epoch: i32::from_be_bytes(field(head, 12)),
            magic: u8::from_be_bytes(field(head, 16)),
            crc: u32::from_be_bytes(field(head, 17)),
            attributes: u16::from_be_bytes(field(head, 21)),
            last_offset_delta: i32::from_be_bytes(field(head, 23)),
            base_timestamp: i64::from_be_bytes(field(head, 27)),
            max_timestamp: i64::from_be_bytes(field(head, 35)),
            producer_id: i64::from_be_bytes(field(head, 43)),
            producer_epoch: i16::from_be_bytes(field(head, 51)),
            base_sequence: i32::from_be_bytes(field(head, 53)),
            record_count: i32::from_be_bytes(field(head, 57)),
        })
    }

    /// Reads the header of the batch in `bytes` and checks magic, codec and checksum: the checks for a batch
    /// that is already stored.
    pub fn verify(bytes: &[u8]) -> Result<Self, BatchError> {
        let header = Self::parse(bytes)?;
        let whole = bytes.get(..header.bytes).ok_or(BatchError::Truncated {
            given: bytes.len(),
            wanted: header.bytes,
        })?;
        if header.magic != MAGIC {
            return Err(BatchError::Magic(header.magic));
        }
        header.codec()?;
        let computed = crc32c(whole.get(ATTRIBUTES_AT..).unwrap_or_default());
        if computed != header.crc {
            return Err(BatchError::Checksum {
                stored: header.crc,
                computed,
            });
        }
        Ok(header)
    }

    /// Encodes the header with its fields as they are; the length field follows from `bytes`.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let length = i32::try_from(self.bytes.saturating_sub(LENGTH_PREFIX_BYTES)).unwrap_or(i32::MAX);
        let mut out = [0; HEADER_BYTES];
        put(&mut out, 0, self.base_offset.to_be_bytes());
        put(&mut out, 8, length.to_be_bytes());
        put(&mut out, 12, self.leader_epoch.to_be_bytes());
        put(&mut out, 16, self.magic.to_be_bytes());
        put(&mut out, CRC_AT, self.crc.to_be_bytes());
        put(&mut out, ATTRIBUTES_AT, self.attributes.to_be_bytes());
        put(&mut out, 23, self.last_offset_delta.to_be_bytes());
        put(&mut out, 27, self.base_timestamp.to_be_bytes());
        put(&mut out, 35, self.max_timestamp.to_be_bytes());
        put(&mut out, 43, self.producer_id.to_be_bytes());
        put(&mut out, 51, self.producer_epoch.to_be_bytes());
        put(&mut out, 53, self.base_sequence.to_be_bytes());
        put(&mut out, 57, self.record_count.to_be_bytes());
        out
    }

    /// Encodes the header for `body`, the records as stored. Length and checksum are computed from it;
    /// `bytes` and `crc` are ignored.
    pub(crate) fn seal(mut self, body: &[u8]) -> [u8; HEADER_BYTES] {
        self.bytes = HEADER_BYTES + body.len();
        let mut head = self.encode();
        let mut sum = Crc32c::new();
        sum.update(head.get(ATTRIBUTES_AT..).unwrap_or_default());
        sum.update(body);
        put(&mut head, CRC_AT, sum.finish().to_be_bytes());
        head
    }

    pub fn codec(&self) -> Result<Codec, BatchError> {
        Ok(match self.attributes & CODEC_MASK {
            0 => Codec::None,
            1 => Codec::Gzip,
            2 => Codec::Snappy,
            3 => Codec::Lz4,
            4 => Codec::Zstd,
            other => return Err(BatchError::Codec(other)),
        })
    }

    /// Returns true if the records carry the time of their append instead of their creation time.
    pub fn is_append_time(&self) -> bool {
        self.attributes & APPEND_TIME_BIT != 0
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_BIT != 0
    }

    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }

    pub(crate) fn with_codec(mut self, codec: Codec) -> Self {
        self.attributes = (self.attributes & !CODEC_MASK) | codec.bits();
        self
    }

    /// Returns the number of offsets that the batch takes in its log.
    pub fn span(&self) -> u64 {
        u64::try_from(self.last_offset_delta).map_or(0, |delta| delta + 1)
    }

    pub fn producer(&self) -> Option<ProducerId> {
        (self.producer_id >= 0).then_some(ProducerId(self.producer_id))
    }
}

/// Encodes the placement of a batch of `bytes` in total, stored at `base` under `epoch`.
pub fn placement(base: Offset, epoch: Epoch, bytes: usize) -> [u8; PLACEMENT_BYTES] {
    let length = u32::try_from(bytes.saturating_sub(LENGTH_PREFIX_BYTES)).unwrap_or(u32::MAX);
    let mut out = [0; PLACEMENT_BYTES];
    let (offset, rest) = out.split_at_mut(8);
    offset.copy_from_slice(&base.0.to_be_bytes());
    let (len, leader) = rest.split_at_mut(4);
    len.copy_from_slice(&length.to_be_bytes());
    leader.copy_from_slice(&epoch.0.to_be_bytes());
    out
}

fn field<const N: usize>(head: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(bytes) = head.get(at..at + N) {
        out.copy_from_slice(bytes);
    }
    out
}

fn put<const N: usize>(head: &mut [u8; HEADER_BYTES], at: usize, value: [u8; N]) {
    if let Some(bytes) = head.get_mut(at..at + N) {
        bytes.copy_from_slice(&value);
    }
}
