//! Frames of the protocol: read whole and bounded, written whole.

use std::io;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};

/// Reason why a connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    #[error("the connection ended")]
    Ended,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("a frame of {length} bytes came where {max} are the most")]
    TooLong { length: usize, max: usize },
    #[error("it told what cannot be: {0}")]
    Implausible(serde_json::Number),
    #[error("what came is not of this protocol: {0}")]
    Malformed(String),
}

/// Reader of frames. It keeps incomplete ones, so a wait can be dropped.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    buffer: BytesMut,
    bytes_max: usize,
    /// Time at which bytes came last.
    heard: Instant,
}

/// Largest number in a report: as many hosts as there can be do not overflow a sum of it.
const NUMBER_MAX: f64 = (1_u64 << 53) as f64;

const MESSAGE: u8 = 0;

const FILL: u8 = 1;

const HEAD_BYTES: usize = 5;

/// Bytes that the other side has to take within its time.
const PART_BYTES: usize = 64 << 10;

impl<R: AsyncRead + Unpin> Reader<R> {
    pub fn new(from: R, bytes_max: usize) -> Self {
        Self {
            from,
            buffer: BytesMut::new(),
            bytes_max,
            heard: Instant::now(),
        }
    }

    /// Returns the time at which bytes came last, even if only a part of a message.
    pub fn heard(&self) -> Instant {
        self.heard
    }

    /// From now on frames may be this long.
    pub fn allow(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// The next message. Safe to drop.
    /// Fails where the connection ends or something else comes.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<T, ProtocolError> {
        loop {
            if let Some((kind, content)) = self.frame()? {
                match kind {
                    MESSAGE => {
                        return serde_json::from_slice(&content)
                            .map_err(|error| ProtocolError::Malformed(error.to_string()));
                    }
                    FILL => continue,
                    unknown => return Err(ProtocolError::Malformed(format!("kind {unknown}"))),
                }
            }
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return Err(ProtocolError::Ended);
            }
            self.heard = Instant::now();
        }
    }

    /// Reads and forgets bytes that measure the network, until a message comes. Safe to drop.
    /// Fails where the connection ends.
    pub async fn absorb(&mut self) -> Result<(), ProtocolError> {
        loop {
            let kind = self.buffer.get(4);
            if kind.is_some_and(|kind| *kind != FILL) {
                return Ok(());
            }
            if self.frame()?.is_some() {
                continue;
            }
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return Err(ProtocolError::Ended);
            }
            self.heard = Instant::now();
        }
    }

    /// Returns the next message of an agent. Its numbers are added up and multiplied without asking again, so
    /// none is negative or beyond [`NUMBER_MAX`]. Safe to drop.
    /// Fails where the connection ends or something else comes.
    pub async fn next_report<T: DeserializeOwned>(&mut self) -> Result<T, ProtocolError> {
        let report: Value = self.next().await?;
        check_numbers(&report)?;
        serde_json::from_value(report).map_err(|error| ProtocolError::Malformed(error.to_string()))
    }

    fn frame(&mut self) -> Result<Option<(u8, Bytes)>, ProtocolError> {
        let Some(length) = self.buffer.first_chunk() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        let max = self.bytes_max;
        if length > max {
            return Err(ProtocolError::TooLong { length, max });
        }
        if length == 0 {
            return Err(ProtocolError::Malformed("an empty frame".to_owned()));
        }
        let Some(missing) = (4 + length)
            .checked_sub(self.buffer.len())
            .filter(|left| *left > 0)
        else {
            self.buffer.advance(4);
            let mut content = self.buffer.split_to(length).freeze();
            let kind = content.get_u8();
            return Ok(Some((kind, content)));
        };
        // Memory follows the bytes that came, not the length that was announced.
        self.buffer.reserve(missing.min(256 << 10));
        Ok(None)
    }
}

fn check_numbers(value: &Value) -> Result<(), ProtocolError> {
    match value {
        Value::Number(number) => {
            let is_one = number
                .as_f64()
                .is_some_and(|number| (0.0..=NUMBER_MAX).contains(&number));
            is_one
                .then_some(())
                .ok_or_else(|| ProtocolError::Implausible(number.clone()))
        }
        Value::Array(values) => values.iter().try_for_each(check_numbers),
        Value::Object(fields) => fields.values().try_for_each(check_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
    }
}

/// Sends a message.
/// Fails where the connection ends.
pub async fn send<T: Serialize>(to: &mut (impl AsyncWrite + Unpin), message: &T) -> io::Result<()> {
    let json = serde_json::to_vec(message)?;
    to.write_all(&frame(MESSAGE, &json)?).await
}

/// As [`send`], to a side that may not read.
/// Fails if the connection ends, or the other side takes nothing for `patience`.
pub async fn send_within<T: Serialize>(
    patience: Duration,
    to: &mut (impl AsyncWrite + Unpin),
    message: &T,
) -> io::Result<()> {
    let json = serde_json::to_vec(message)?;
    for part in frame(MESSAGE, &json)?.chunks(PART_BYTES) {
        let sent = timeout(patience, to.write_all(part)).await;
        sent.unwrap_or_else(|_| {
            let what = format!("it took nothing for {} s", patience.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, what))
        })?;
    }
    Ok(())
}

/// Sends bytes that the other side forgets.
/// Fails where the connection ends.
pub async fn fill(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    to.write_all(&frame(FILL, bytes)?).await
}

pub(super) fn frame(kind: u8, content: &[u8]) -> io::Result<BytesMut> {
    let length = u32::try_from(content.len() + 1)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "more than 4 GiB in a message"))?;
    let mut frame = BytesMut::with_capacity(HEAD_BYTES + content.len());
    frame.put_u32(length);
    frame.put_u8(kind);
    frame.extend_from_slice(content);
    Ok(frame)
}
