//! Messages between a controller and an agent.
//!
//! ```text
//! frame   u32 length of the rest, big-endian
//!         u8  kind: 0 a message in JSON, 1 bytes that are read and forgotten (to measure the network)
//!         …   content
//! ```
//!
//! The agent speaks first: [`Greeting`]; then [`Introduction`], [`IntroductionReply`]; then [`ToAgent`] and
//! [`FromAgent`] in any order. Readers bound the length before they take memory.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};

use crate::drivers::DriverError;
use crate::experiment::Plan;
use crate::workload::client_placement::Seating;
use crate::workload::load::{Loaded, Second};
use crate::workload::together::{HostSecond, Progress};

/// The version of this protocol. Both sides have the same.
pub const VERSION: u32 = 7;
/// Before the other side has proven itself.
pub const INTRODUCTION_BYTES_MAX: usize = 4 << 10;
/// Longest message to an agent.
pub const ORDER_BYTES_MAX: usize = 1 << 20;
/// Longest report: the last one accounts for every message, a bit each.
pub const REPORT_BYTES_MAX: usize = 256 << 20;

/// Largest number in a report: as many hosts as there can be do not overflow a sum of it.
const NUMBER_MAX: f64 = (1_u64 << 53) as f64;
const MESSAGE: u8 = 0;
const FILL: u8 = 1;
const HEAD_BYTES: usize = 5;
/// Bytes that the other side has to take within its time.
const PART_BYTES: usize = 64 << 10;

/// An agent's first words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    pub protocol: u32,
    pub version: String,
    pub needs_secret: bool,
    pub challenge: String,
}

/// Introduction of a controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    pub protocol: u32,
    pub version: String,
    pub proof: Option<String>,
    pub challenge: String,
}

/// Answer to an introduction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntroductionReply {
    Welcome { proof: Option<String>, machine: Machine },
    Refused { reason: String },
}

/// Machine of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The same for all agents of one machine: they share its cores.
    pub id: String,
    pub cores: u32,
    pub memory_bytes: u64,
    pub cpu: String,
    pub kernel: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ToAgent {
    /// Is answered at once. Also says that the controller is there.
    Ping(u64),
    /// Asks which driver would send and receive.
    Describe(Box<Question>),
    Prepare(Box<Preparation>),
    Begin,
    /// The clients of a role have ended on all hosts.
    Over(String),
    /// New rate of all clients of a role together, on all hosts, in messages per second.
    Rate {
        role: String,
        rate: f64,
    },
    /// By role, how many messages its clients on this host may have sent since the load began.
    Allow {
        load: u64,
        made: BTreeMap<String, u64>,
    },
    /// There is nothing left to be sent.
    End,
    /// There is nothing left to be received.
    Stop,
    /// Ends a load that was prepared or begun; its results are still reported.
    Abandon,
}

/// Question about a driver, before there is a system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    pub plan: Plan,
    pub system: String,
}

/// A driver, as it stands beside its figures.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Described {
    pub name: String,
    pub version: String,
    /// Part of the plan that it cannot do.
    pub lacks: Option<String>,
}

/// A host's share of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preparation {
    /// Answers say which load they are about.
    pub load: u64,
    pub plan: Plan,
    pub seating: Seating,
    pub system: String,
    pub address: String,
    /// Name of the point in the names of topics, and the settings of these.
    pub tag: String,
    pub topic_settings: Vec<(String, String)>,
    /// It is the whole load.
    pub alone: Option<Alone>,
}

/// A load that one host runs alone, beside its system. It waits for no other host and ends by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alone {
    /// Processes of the system.
    pub brokers: Vec<u32>,
    /// Ends when all that was to be sent has come.
    pub ends_early: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromAgent {
    Pong(u64),
    Driver(Described),
    /// Of a load that was prepared.
    Load {
        load: u64,
        said: OfLoad,
    },
}

/// Report of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfLoad {
    /// Of one that the host runs alone.
    Second(Second),
    Progress(Progress),
    Seconds(HostSecond),
    /// The last that is said of it.
    Done(Box<Loaded>),
    /// Instead.
    Failed(DriverError),
}

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

fn frame(kind: u8, content: &[u8]) -> io::Result<BytesMut> {
    let length = u32::try_from(content.len() + 1)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "more than 4 GiB in a message"))?;
    let mut frame = BytesMut::with_capacity(HEAD_BYTES + content.len());
    frame.put_u32(length);
    frame.put_u8(kind);
    frame.extend_from_slice(content);
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8]) -> Result<ToAgent, ProtocolError> {
        Reader::new(bytes, 1000).next().await
    }

    #[tokio::test]
    async fn what_is_sent_is_read_whatever_stands_between() {
        let mut bytes = Vec::new();
        fill(&mut bytes, &[7; 500]).await.unwrap();
        send(&mut bytes, &ToAgent::Ping(5)).await.unwrap();
        send(&mut bytes, &ToAgent::Over("producers".to_owned()))
            .await
            .unwrap();
        let mut reader = Reader::new(bytes.as_slice(), 1000);
        assert_eq!(reader.next::<ToAgent>().await.unwrap(), ToAgent::Ping(5));
        assert_eq!(
            reader.next::<ToAgent>().await.unwrap(),
            ToAgent::Over("producers".to_owned())
        );
        assert!(matches!(
            reader.next::<ToAgent>().await,
            Err(ProtocolError::Ended)
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_message_to_a_slow_reader_is_sent_and_one_to_nobody_is_not() {
        let (mut here, there) = tokio::io::duplex(64 << 10);
        let long = ToAgent::Over("x".repeat(1 << 20));
        let slow = async {
            let mut reader = there;
            let mut bytes = vec![0; 100 << 10];
            for _ in 0..12 {
                // Slower as a whole than anybody waits for nothing.
                tokio::time::sleep(Duration::from_secs(9)).await;
                reader.read_exact(&mut bytes[..(1 << 20) / 12]).await.unwrap();
            }
            reader
        };
        let (sent, reader) = tokio::join!(send_within(Duration::from_secs(10), &mut here, &long), slow);
        sent.unwrap();
        let error = send_within(Duration::from_secs(10), &mut here, &long)
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "it took nothing for 10 s");
        drop(reader);
    }

    #[tokio::test]
    async fn what_is_not_of_the_protocol_is_refused_before_it_takes_memory() {
        let long = [0xff, 0xff, 0xff, 0xff, 0];
        assert!(matches!(read(&long).await, Err(ProtocolError::TooLong { .. })));
        for (bytes, says) in [
            (&[0, 0, 0, 0][..], "an empty frame"),
            (&[0, 0, 0, 1, 9], "kind 9"),
            (&[0, 0, 0, 3, 0, b'{', b'}'], "not of this protocol"),
            (&[0, 0, 0, 2, 0, 0xff], "not of this protocol"),
            (b"GET / HTTP/1.1\r\n\r\n", "frame of"),
        ] {
            let error = read(bytes).await.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert!(matches!(read(&[0, 0, 0, 9, 0]).await, Err(ProtocolError::Ended)));
    }
}
