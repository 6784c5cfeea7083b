//! Messages between nodes about logs. Both ends are nodes of one cluster, which trust each other.
//!
//! ```text
//! u32 bytes behind this | u32 bytes of the head | head, JSON | bytes that the head counts
//! ```
//!
//! Integers are big-endian. Questions have numbers; answers come in any order.

use std::io;

use bytes::{Buf, BufMut as _, Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stafett_journal::{AbortedTransaction, Bounds, LogSlice, ReadError, Refusal};
use stafett_model::{LogId, Offset, ProducerId};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Largest message.
const MESSAGE_BYTES_MAX: usize = 512 << 20;
const LENGTH_BYTES: usize = 4;
/// Bytes that are reserved for a message before they come.
const READ_AT_ONCE: usize = 1 << 20;

/// Id of a topic, and a partition.
pub(crate) type Place = (u128, u32);

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Question {
    Append {
        id: u64,
        frames: Vec<Framed>,
        level: Option<String>,
        request: Option<[u8; 16]>,
        frees_space: bool,
        /// True if an append without batches waits for a sync.
        synced: bool,
    },
    Read {
        id: u64,
        logs: Vec<From>,
        bytes_max: usize,
        first_batch_whole: bool,
    },
    FindTime {
        id: u64,
        place: Place,
        /// `None` for the latest record.
        at_or_after: Option<i64>,
    },
    /// The bounds of these logs are told from now on, under the numbers; those that are known, at once.
    Follow {
        logs: Vec<(u32, Place)>,
        /// Least milliseconds between two messages about bounds.
        #[serde(default)]
        pause_ms: u64,
    },
}

/// A frame of an append.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Framed {
    Batch {
        bytes: usize,
        /// Places, and the records of the batch that they get: the first, and their number; else all.
        targets: Vec<(Place, Option<(u32, u32)>)>,
    },
    Truncate {
        place: Place,
        before: u64,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct From {
    pub place: Place,
    pub offset: u64,
    pub bytes_max: usize,
    pub committed: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Appended {
        id: u64,
        outcome: Appended,
        /// Bounds of the logs, in the order of the targets.
        bounds: Vec<Option<Told>>,
    },
    Read {
        id: u64,
        logs: Vec<Result<Slice, Unread>>,
    },
    Found {
        id: u64,
        batch: Result<Option<usize>, Unread>,
    },
    /// Bounds of followed logs. `None` for one that is not there.
    Bounds(Vec<(u32, Option<Told>)>),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Appended {
    /// First offset, and whether it was stored before, in the order of the targets.
    Committed(Vec<(u64, bool)>),
    /// Reason, about the log of a target.
    Refused(usize, Reason),
    Unknown,
}

/// Reason of a refusal.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reason {
    NoSuchLog,
    Fenced,
    OffsetsExhausted,
    TooLarge { bytes: usize, limit: usize },
    DiskFull,
    Closed,
}

/// Bounds of a log.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Told {
    start: u64,
    end: u64,
    stable: u64,
    bytes: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Slice {
    bytes: usize,
    next: u64,
    bounds: Option<Told>,
    /// Producer, first and last offset of aborted transactions.
    aborted: Vec<(i64, u64, u64)>,
}

/// Reason why a log was not read.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Unread {
    NoSuchLog,
    OutOfRange { wanted: u64, start: u64, end: u64 },
    Damaged { from: u64, to: u64 },
    Failed(String),
}

impl std::convert::From<Bounds> for Told {
    fn from(bounds: Bounds) -> Self {
        Self {
            start: bounds.start.0,
            end: bounds.end.0,
            stable: bounds.stable.0,
            bytes: bounds.bytes,
        }
    }
}

impl std::convert::From<Told> for Bounds {
    fn from(told: Told) -> Self {
        Self {
            start: Offset(told.start),
            end: Offset(told.end),
            stable: Offset(told.stable),
            bytes: told.bytes,
        }
    }
}

impl Reason {
    pub(crate) fn of(why: &Refusal) -> Self {
        match why {
            Refusal::NoSuchLog(_) => Self::NoSuchLog,
            Refusal::OffsetsExhausted(_) => Self::OffsetsExhausted,
            Refusal::TooLarge { bytes, limit } => Self::TooLarge {
                bytes: *bytes,
                limit: *limit,
            },
            Refusal::DiskFull => Self::DiskFull,
            Refusal::Closed => Self::Closed,
            // Others are about conditions and producers, which appends of other cells do not have.
            Refusal::Fenced { .. }
            | Refusal::OutOfSequence { .. }
            | Refusal::StaleProducer { .. }
            | Refusal::OutsideTransaction { .. }
            | Refusal::NotAtOffset { .. }
            | Refusal::StaleOwner { .. } => Self::Fenced,
        }
    }

    pub(crate) fn about(self, log: LogId) -> Refusal {
        match self {
            Self::NoSuchLog => Refusal::NoSuchLog(log),
            Self::Fenced => Refusal::Fenced { log },
            Self::OffsetsExhausted => Refusal::OffsetsExhausted(log),
            Self::TooLarge { bytes, limit } => Refusal::TooLarge { bytes, limit },
            Self::DiskFull => Refusal::DiskFull,
            Self::Closed => Refusal::Closed,
        }
    }
}

impl Unread {
    pub(crate) fn of(error: &ReadError) -> Self {
        match error {
            ReadError::NoSuchLog(_) => Self::NoSuchLog,
            ReadError::OutOfRange {
                wanted, start, end, ..
            } => Self::OutOfRange {
                wanted: wanted.0,
                start: start.0,
                end: end.0,
            },
            ReadError::Damaged { from, to, .. } => Self::Damaged {
                from: from.0,
                to: to.0,
            },
            ReadError::Io { reason, .. } => Self::Failed(reason.to_string()),
        }
    }

    pub(crate) fn about(self, log: LogId) -> ReadError {
        match self {
            Self::NoSuchLog => ReadError::NoSuchLog(log),
            Self::OutOfRange { wanted, start, end } => ReadError::OutOfRange {
                log,
                wanted: Offset(wanted),
                start: Offset(start),
                end: Offset(end),
            },
            Self::Damaged { from, to } => ReadError::Damaged {
                log,
                from: Offset(from),
                to: Offset(to),
            },
            Self::Failed(reason) => ReadError::Io {
                log,
                reason: reason.into(),
            },
        }
    }
}

impl Slice {
    pub(crate) fn of(slice: &LogSlice) -> Self {
        let aborted = slice.aborted.iter();
        Self {
            bytes: slice.bytes,
            next: slice.next.0,
            bounds: slice.bounds.map(Told::from),
            aborted: aborted
                .map(|one| (one.producer.0, one.first.0, one.last.0))
                .collect(),
        }
    }

    /// Returns the slice, with its bytes from the front of `rest`.
    pub(crate) fn read(self, rest: &mut Bytes) -> io::Result<LogSlice> {
        let bytes = take(rest, self.bytes)?;
        let aborted = self.aborted.into_iter();
        let aborted = aborted.map(|(producer, first, last)| AbortedTransaction {
            producer: ProducerId(producer),
            first: Offset(first),
            last: Offset(last),
        });
        Ok(LogSlice {
            bytes: self.bytes,
            pieces: if bytes.is_empty() { Vec::new() } else { vec![bytes] },
            next: Offset(self.next),
            bounds: self.bounds.map(Bounds::from),
            aborted: aborted.collect(),
        })
    }
}

/// Returns the next bytes of a message.
pub(crate) fn take(rest: &mut Bytes, bytes: usize) -> io::Result<Bytes> {
    if bytes > rest.len() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(rest.split_to(bytes))
}

/// Appends a message to `out`.
pub(crate) fn put<'a>(
    head: &impl Serialize,
    bytes: impl IntoIterator<Item = &'a Bytes>,
    out: &mut BytesMut,
) -> io::Result<()> {
    let start = out.len();
    out.put_bytes(0, 2 * LENGTH_BYTES);
    serde_json::to_writer((&mut *out).writer(), head)?;
    let head_bytes = out.len() - start - 2 * LENGTH_BYTES;
    for piece in bytes {
        out.extend_from_slice(piece);
    }
    let all_bytes = out.len() - start - LENGTH_BYTES;
    let length =
        |bytes: usize| u32::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let lengths = [
        length(all_bytes)?.to_be_bytes(),
        length(head_bytes)?.to_be_bytes(),
    ]
    .concat();
    if let Some(slot) = out.get_mut(start..start + lengths.len()) {
        slot.copy_from_slice(&lengths);
    }
    Ok(())
}

/// Reads a message. `None` at the end of the connection.
pub(crate) async fn read<H: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<(H, Bytes)>> {
    let length = match stream.read_u32().await {
        Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        length => usize::try_from(length?).unwrap_or(usize::MAX),
    };
    if length > MESSAGE_BYTES_MAX {
        return Err(io::Error::other("a message of another cell is too long"));
    }
    let mut message = Vec::with_capacity(length.min(READ_AT_ONCE));
    let read = stream.take(length as u64).read_to_end(&mut message).await?;
    if read < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut rest = Bytes::from(message);
    let head_bytes = rest.try_get_u32().map_err(io::Error::other)?;
    let head = take(&mut rest, usize::try_from(head_bytes).unwrap_or(usize::MAX))?;
    Ok(Some((serde_json::from_slice(&head)?, rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_message_comes_as_it_was_put_and_a_cut_one_is_refused() {
        let follow = Question::Follow {
            logs: vec![(7, (u128::MAX, 3))],
            pause_ms: 0,
        };
        let mut out = BytesMut::new();
        put(
            &follow,
            [&Bytes::from_static(b"bytes"), &Bytes::from_static(b"!")],
            &mut out,
        )
        .unwrap();
        let whole = out.to_vec();
        let (head, rest) = read::<Question>(&mut whole.as_slice()).await.unwrap().unwrap();
        assert!(matches!(head, Question::Follow { logs, .. } if logs == [(7, (u128::MAX, 3))]));
        assert_eq!(rest, "bytes!");
        assert!(read::<Question>(&mut &[][..]).await.unwrap().is_none());
        for cut in 4..whole.len() {
            assert!(read::<Question>(&mut &whole[..cut]).await.is_err(), "{cut}");
        }
        for length in [[0xff; 4], [0, 0, 0, 3], [0, 0, 0, 4]] {
            let text = [&length[..], &[9; 8]].concat();
            assert!(read::<Question>(&mut text.as_slice()).await.is_err());
        }
    }
}
