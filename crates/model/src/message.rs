//! Messages: the records that a queue stores.
//!
//! The body is the record's value. The record's headers are the publisher's, opaque here and returned
//! unchanged, plus one reserved header with the fields that the core uses:
//!
//! ```text
//! u8      version = 1
//! u8      flags           1 persistent, 2 ttl, 4 delay, 8 deaths, 16 number
//! u8      priority
//! number  arrival, ms since 1970
//! text    exchange
//! text    routing key
//! number  ttl in ms       if flagged
//! number  delay in ms     if flagged
//! number  arrival number  if flagged: orders messages that arrived in the same ms
//! number  death count     if flagged; then the deaths, latest first, each:
//!         u8 reason (0 expired, 1 length, 2 rejected, 3 delivery limit), plus 128 if it is the message's
//!         first death, 64 if the message had lost its further routing keys before, 32 if it lost them with
//!         this one; number count, number ms since 1970 of the first, text queue, text exchange, text routing
//!         key, number ttl + 1 (0: none)
//! ```
//!
//! A number has seven bits per byte, low bits first; a text is preceded by its length as a number. A record
//! without the header (written by a client of a log) reads as a message that has only key, body, headers and
//! time.

use bytes::Bytes;
use bytestring::ByteString;
use smallvec::SmallVec;

use crate::batch::BatchError;
use crate::batch_builder::BatchBuilder;
use crate::record::{Header, Record};
use crate::varint::{read_number, with_number};

/// Name of the header with the fields that the core uses. Reserved: a publisher's own header of that name is
/// dropped.
pub const MESSAGE_HEADER: &[u8] = b"stafett.message";

pub(crate) const VERSION: u8 = 1;
const PERSISTENT: u8 = 1;
const TTL: u8 = 2;
const DELAY: u8 = 4;
const DEATHS: u8 = 8;
const NUMBER: u8 = 16;
const FIRST_DEATH: u8 = 0x80;
const KEYS_WERE_LOST: u8 = 0x40;
const LOSES_KEYS: u8 = 0x20;
/// Bound on the deaths that are read back; a message has one per queue and reason.
const DEATHS_MAX: u64 = 1024;

/// A message to be routed into queues.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// Exchange that it was published to; empty for the default exchange.
    pub exchange: ByteString,
    pub routing_key: ByteString,
    pub key: Option<Bytes>,
    pub value: Bytes,
    /// Time of the record, ms since 1970; -1: none.
    pub timestamp_ms: i64,
    pub priority: u8,
    /// Longest time that it may wait in a queue.
    pub ttl_ms: Option<u64>,
    /// Delay before it is routed.
    pub delay_ms: Option<u64>,
    /// True if it survives a restart in a durable queue.
    pub persistent: bool,
    pub headers: MessageHeaders,
    /// Dead-letterings per queue and reason, latest first.
    pub deaths: Vec<Death>,
}

/// Arrival of a message. A later arrival compares as greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Arrival {
    /// Milliseconds since 1970.
    pub ms: i64,
    /// Ascending number within a run of the program; 0 if the order within one ms does not matter.
    pub number: u64,
}

/// Headers of a publisher, opaque to the core.
pub type MessageHeaders = SmallVec<[(ByteString, Option<Bytes>); 1]>;

/// Dead-letterings of a message from one queue for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    pub queue: ByteString,
    pub reason: DeathReason,
    pub count: u64,
    /// Time of the first, ms since 1970.
    pub first_ms: i64,
    /// Exchange that the message had been published to at that time.
    pub exchange: ByteString,
    pub routing_key: ByteString,
    /// Time to live that the message had, and lost.
    pub ttl_ms: Option<u64>,
    /// True if it was the message's first death of all.
    pub is_first: bool,
    /// True if, at the first of these deaths, the message had already lost its further routing keys.
    pub keys_were_lost: bool,
    /// True if the queue's own dead-letter routing key replaced all keys of the message.
    pub loses_keys: bool,
}

/// Reason for dead-lettering a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeathReason {
    /// Its time to live passed.
    Expired,
    /// The queue exceeded its length limit.
    Length,
    /// A consumer rejected it.
    Rejected,
    /// It was returned more often than allowed.
    DeliveryLimit,
}

/// Fields of the reserved header that the core uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CoreFields<'a> {
    pub(crate) exchange: &'a str,
    pub(crate) routing_key: &'a str,
    pub(crate) priority: u8,
    pub(crate) arrived: Arrival,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) delay_ms: Option<u64>,
    pub(crate) persistent: bool,
    /// Encoded deaths, to be read by [`read_deaths`].
    pub(crate) deaths: &'a [u8],
}

impl Message {
    /// Adds the message to a batch as it arrives.
    pub fn write(&self, arrived: Arrival, batch: &mut BatchBuilder) -> Result<(), BatchError> {
        let mut fields = SmallVec::<[u8; 128]>::new();
        self.write_core_fields(arrived, &mut fields);
        let mut headers = SmallVec::<[Header<'_>; 4]>::new();
        let given = self.headers.iter();
        headers.extend(given.map(|(name, value)| (name.as_bytes().as_ref(), value.as_deref())));
        headers.retain(|(name, _)| *name != MESSAGE_HEADER);
        headers.push((MESSAGE_HEADER, Some(&fields)));
        batch.push(&Record {
            key: self.key.as_deref(),
            value: Some(&self.value),
            headers: &headers,
            timestamp: self.timestamp_ms.max(-1),
        })
    }

    /// Returns the approximate bytes that it takes in a batch, for memory budgets.
    pub fn bytes(&self) -> usize {
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| name.len() + value.as_ref().map_or(0, Bytes::len) + 4);
        let texts = self.exchange.len() + self.routing_key.len() + self.key.as_ref().map_or(0, Bytes::len);
        let deaths = self.deaths.iter().map(Death::bytes);
        self.value.len() + texts + headers.sum::<usize>() + deaths.sum::<usize>() + 48
    }

    fn write_core_fields(&self, arrived: Arrival, out: &mut SmallVec<[u8; 128]>) {
        let flag = |set, flag| if set { flag } else { 0 };
        let flags = flag(self.persistent, PERSISTENT)
            | flag(self.ttl_ms.is_some(), TTL)
            | flag(self.delay_ms.is_some(), DELAY)
            | flag(!self.deaths.is_empty(), DEATHS)
            | flag(arrived.number > 0, NUMBER);
        out.extend_from_slice(&[VERSION, flags, self.priority]);
        write_number(arrived.ms.max(0).cast_unsigned(), out);
        write_text(&self.exchange, out);
        write_text(&self.routing_key, out);
        let number = (arrived.number > 0).then_some(arrived.number);
        for number in [self.ttl_ms, self.delay_ms, number].into_iter().flatten() {
            write_number(number, out);
        }
        if !self.deaths.is_empty() {
            write_number(self.deaths.len() as u64, out);
            for death in &self.deaths {
                death.write(out);
            }
        }
    }
}

impl Death {
    fn bytes(&self) -> usize {
        self.queue.len() + self.exchange.len() + self.routing_key.len() + 24
    }

    fn write(&self, out: &mut SmallVec<[u8; 128]>) {
        let reason = match self.reason {
            DeathReason::Expired => 0,
            DeathReason::Length => 1,
            DeathReason::Rejected => 2,
            DeathReason::DeliveryLimit => 3,
        };
        let flag = |set, flag| if set { flag } else { 0 };
        out.push(
            reason
                | flag(self.is_first, FIRST_DEATH)
                | flag(self.keys_were_lost, KEYS_WERE_LOST)
                | flag(self.loses_keys, LOSES_KEYS),
        );
        write_number(self.count, out);
        write_number(self.first_ms.max(0).cast_unsigned(), out);
        for text in [&self.queue, &self.exchange, &self.routing_key] {
            write_text(text, out);
        }
        write_number(self.ttl_ms.map_or(0, |ms| ms.saturating_add(1)), out);
    }

    fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (first, rest) = bytes.split_first()?;
        let reason = match first & !(FIRST_DEATH | KEYS_WERE_LOST | LOSES_KEYS) {
            0 => DeathReason::Expired,
            1 => DeathReason::Length,
            2 => DeathReason::Rejected,
            3 => DeathReason::DeliveryLimit,
            _ => return None,
        };
        let (count, rest) = read_number(rest)?;
        let (first_ms, rest) = read_number(rest)?;
        let (queue, rest) = read_text(rest)?;
        let (exchange, rest) = read_text(rest)?;
        let (routing_key, rest) = read_text(rest)?;
        let (ttl, rest) = read_number(rest)?;
        let death = Self {
            queue: queue.into(),
            reason,
            count,
            first_ms: i64::try_from(first_ms).ok()?,
            exchange: exchange.into(),
            routing_key: routing_key.into(),
            ttl_ms: ttl.checked_sub(1),
            is_first: first & FIRST_DEATH != 0,
            keys_were_lost: first & KEYS_WERE_LOST != 0,
            loses_keys: first & LOSES_KEYS != 0,
        };
        Some((death, rest))
    }
}

/// Reads the reserved header; `None` if it is malformed or of an unknown version.
pub(crate) fn read_core_fields(bytes: &[u8]) -> Option<CoreFields<'_>> {
    let ([VERSION, flags, priority], rest) = bytes.split_first_chunk::<3>()? else {
        return None;
    };
    let (arrived_ms, rest) = read_number(rest)?;
    let (exchange, rest) = read_text(rest)?;
    let (routing_key, mut rest) = read_text(rest)?;
    let mut optional = |flag| {
        if flags & flag == 0 {
            return Some(None);
        }
        let (number, behind) = read_number(rest)?;
        rest = behind;
        Some(Some(number))
    };
    let (ttl_ms, delay_ms, number) = (optional(TTL)?, optional(DELAY)?, optional(NUMBER)?);
    Some(CoreFields {
        exchange,
        routing_key,
        priority: *priority,
        arrived: Arrival {
            ms: i64::try_from(arrived_ms).ok()?,
            number: number.unwrap_or(0),
        },
        ttl_ms,
        delay_ms,
        persistent: flags & PERSISTENT != 0,
        deaths: if flags & DEATHS == 0 { &[] } else { rest },
    })
}

/// Reads deaths up to the first malformed one.
pub(crate) fn read_deaths(bytes: &[u8]) -> Vec<Death> {
    let Some((count, mut rest)) = read_number(bytes) else {
        return Vec::new();
    };
    let mut deaths = Vec::new();
    for _ in 0..count.min(DEATHS_MAX) {
        let Some((death, behind)) = Death::read(rest) else {
            break;
        };
        deaths.push(death);
        rest = behind;
    }
    deaths
}

fn write_number(value: u64, out: &mut SmallVec<[u8; 128]>) {
    with_number(value, |bytes| out.extend_from_slice(bytes));
}

fn write_text(text: &str, out: &mut SmallVec<[u8; 128]>) {
    write_number(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

fn read_text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = read_number(bytes)?;
    let (text, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some((std::str::from_utf8(text).ok()?, rest))
}
