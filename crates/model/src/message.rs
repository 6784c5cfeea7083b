//! A message: what a queue stores, as one record of a batch.
//!
//! The body is the record's value; the record's headers are those of whoever published it, opaque here and
//! given back unchanged, plus one reserved header that holds what the core acts on:
//!
//! ```text
//! u8      version = 1
//! u8      flags           1 persistent, 2 ttl, 4 delay, 8 deaths, 16 number
//! u8      priority
//! number  ms since 1970 when it arrived
//! text    exchange
//! text    routing key
//! number  ttl in ms       where the flag says so
//! number  delay in ms     where the flag says so
//! number  of its arrival  where the flag says so: in which order messages came that have the same ms
//! number  deaths          where the flag says so, the latest first; each:
//!         u8 reason (0 expired, 1 length, 2 rejected, 3 delivery limit), plus 128 for the first ever, 64 if the message had lost
//!         its further routing keys before, 32 if it lost them with this; number count,
//!         number ms since 1970 of its first, text queue, text exchange, text routing key, number ttl + 1 (0: none)
//! ```
//!
//! A number has seven bits a byte, low bits first; a text has its length in front as a number. A record
//! without the header (a log client wrote it) reads as a message with nothing set but key, body, headers and
//! time.

use bytes::Bytes;
use bytestring::ByteString;
use smallvec::SmallVec;

use crate::batch::BatchError;
use crate::batch_builder::BatchBuilder;
use crate::record::{Header, Record};
use crate::varint::{read_number, with_number};

/// The header that holds what the core acts on. Nobody else writes it: a publisher's own is left out.
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
/// Entries of the history that are read back: there is one per queue and reason.
const DEATHS_MAX: u64 = 1024;

/// A message on its way into queues.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// Where it was published to; empty is the default exchange.
    pub exchange: ByteString,
    pub routing_key: ByteString,
    pub key: Option<Bytes>,
    pub value: Bytes,
    /// The record's time, ms since 1970; -1: none.
    pub timestamp_ms: i64,
    pub priority: u8,
    /// How long it may wait in a queue.
    pub ttl_ms: Option<u64>,
    /// How long it waits before it is routed.
    pub delay_ms: Option<u64>,
    /// Whether it outlives a restart in a durable queue.
    pub persistent: bool,
    pub headers: MessageHeaders,
    /// How often it was dead-lettered from where, the latest first.
    pub deaths: Vec<Death>,
}

/// When a message came: of two, the one that came later is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Arrival {
    /// Since 1970.
    pub ms: i64,
    /// Rises within a run of the program; 0 where the order within a ms is of no interest.
    pub number: u64,
}

/// Headers of a publisher, opaque to the core.
pub type MessageHeaders = SmallVec<[(ByteString, Option<Bytes>); 1]>;

/// That a message left a queue as a dead letter, once or more often, for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    pub queue: ByteString,
    pub reason: DeathReason,
    pub count: u64,
    /// When it happened first, ms since 1970.
    pub first_ms: i64,
    /// Where the message had been published to when it happened first.
    pub exchange: ByteString,
    pub routing_key: ByteString,
    /// The time to live that the message had, and lost.
    pub ttl_ms: Option<u64>,
    /// It was the message's first death ever.
    pub is_first: bool,
    /// When it happened first, the message had lost the further routing keys that it had been published with.
    pub keys_were_lost: bool,
    /// It left with a key of the queue's own, which replaced all keys that it had, for good.
    pub loses_keys: bool,
}

/// Why a message became a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeathReason {
    /// It waited longer than it may.
    Expired,
    /// The queue was longer than it may be.
    Length,
    /// A consumer did not want it.
    Rejected,
    /// It came back more often than it may.
    DeliveryLimit,
}

/// What the core acts on, as it was read from the reserved header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Acted<'a> {
    pub(crate) exchange: &'a str,
    pub(crate) routing_key: &'a str,
    pub(crate) priority: u8,
    pub(crate) arrived: Arrival,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) delay_ms: Option<u64>,
    pub(crate) persistent: bool,
    /// The deaths as they lie there, to be read by [`read_deaths`].
    pub(crate) deaths: &'a [u8],
}

impl Message {
    /// Adds the message to a batch as it arrives.
    pub fn write(&self, arrived: Arrival, batch: &mut BatchBuilder) -> Result<(), BatchError> {
        let mut acted = SmallVec::<[u8; 128]>::new();
        self.write_acted(arrived, &mut acted);
        let mut headers = SmallVec::<[Header<'_>; 4]>::new();
        let given = self.headers.iter();
        headers.extend(given.map(|(name, value)| (name.as_bytes().as_ref(), value.as_deref())));
        headers.retain(|(name, _)| *name != MESSAGE_HEADER);
        headers.push((MESSAGE_HEADER, Some(&acted)));
        batch.push(&Record {
            key: self.key.as_deref(),
            value: Some(&self.value),
            headers: &headers,
            timestamp: self.timestamp_ms.max(-1),
        })
    }

    /// Bytes that it takes in a batch, about: what memory is reckoned by.
    pub fn bytes(&self) -> usize {
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| name.len() + value.as_ref().map_or(0, Bytes::len) + 4);
        let texts = self.exchange.len() + self.routing_key.len() + self.key.as_ref().map_or(0, Bytes::len);
        let deaths = self.deaths.iter().map(Death::bytes);
        self.value.len() + texts + headers.sum::<usize>() + deaths.sum::<usize>() + 48
    }

    fn write_acted(&self, arrived: Arrival, out: &mut SmallVec<[u8; 128]>) {
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

/// Reads the reserved header; `None` where it is malformed or of a version that is not known.
pub(crate) fn read_acted(bytes: &[u8]) -> Option<Acted<'_>> {
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
    Some(Acted {
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

/// Reads a history as far as it is sound.
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
