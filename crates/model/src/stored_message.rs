//! A message in place, inside a stored batch: one slice of the batch, and the ranges of its fields.
//!
//! Made for delivery: one reference to the batch per message, nothing copied, texts checked once.

use bytes::Bytes;
use bytestring::ByteString;

use crate::batch::{BatchError, BatchHeader};
use crate::id::Offset;
use crate::message::{Arrival, CoreFields, Death, MESSAGE_HEADER, Message, read_core_fields, read_deaths};
use crate::record::{self, Header, RawRecord};
use crate::records::timestamp;

/// A message in a stored batch. Cheap to clone; it keeps the batch in memory.
#[derive(Debug, Clone)]
pub struct StoredMessage {
    record: Bytes,
    key: Option<Span>,
    value: Span,
    headers: Span,
    exchange: Span,
    routing_key: Span,
    deaths: Span,
    priority: u8,
    persistent: bool,
    timestamp_ms: i64,
    arrived: Arrival,
    ttl_ms: Option<u64>,
    delay_ms: Option<u64>,
}

/// Range of the record's bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    at: u32,
    len: u32,
}

impl StoredMessage {
    /// Reads the message of the record `raw` from a batch whose records are `block`.
    pub(crate) fn of(
        header: &BatchHeader,
        raw: &RawRecord<'_>,
        block: &Bytes,
        index: u32,
    ) -> Result<(Offset, Self), BatchError> {
        let malformed = BatchError::Record { index };
        let base = u64::try_from(header.base_offset).map_err(|_| malformed)?;
        let delta = u64::try_from(raw.offset_delta).map_err(|_| malformed)?;
        let offset = Offset(base).checked_add(delta).ok_or(malformed)?;
        let timestamp_ms = timestamp(header, raw).ok_or(malformed)?;
        let whole = raw.behind_offset;
        let span = |part: &[u8]| span_of(whole, part).ok_or(malformed);
        let fields = core_fields_of(raw).unwrap_or_else(|| CoreFields {
            persistent: true,
            arrived: Arrival {
                ms: timestamp_ms,
                number: 0,
            },
            ..CoreFields::default()
        });
        let message = Self {
            record: block.slice_ref(whole),
            key: raw.key.map(span).transpose()?,
            value: span(raw.value.unwrap_or_default())?,
            headers: span(raw.headers)?,
            exchange: span(fields.exchange.as_bytes())?,
            routing_key: span(fields.routing_key.as_bytes())?,
            deaths: span(fields.deaths)?,
            priority: fields.priority,
            persistent: fields.persistent,
            timestamp_ms,
            arrived: fields.arrived,
            ttl_ms: fields.ttl_ms,
            delay_ms: fields.delay_ms,
        };
        Ok((offset, message))
    }

    pub fn exchange(&self) -> &str {
        self.text(self.exchange)
    }

    pub fn routing_key(&self) -> &str {
        self.text(self.routing_key)
    }

    pub fn key(&self) -> Option<&[u8]> {
        self.key.map(|key| self.part(key))
    }

    pub fn value(&self) -> &[u8] {
        self.part(self.value)
    }

    /// Returns the body, as a slice of the batch.
    pub fn value_bytes(&self) -> Bytes {
        self.record.slice_ref(self.value())
    }

    /// Iterates over the publisher's headers, in order.
    pub fn headers(&self) -> impl Iterator<Item = Header<'_>> {
        let mut rest = self.part(self.headers);
        let all = std::iter::from_fn(move || {
            let (header, behind) = record::read_header(rest)?;
            rest = behind;
            Some(header)
        });
        all.filter(|(name, _)| *name != MESSAGE_HEADER)
    }

    /// Returns the value of the first header named `name`.
    pub fn header(&self, name: &[u8]) -> Option<Option<&[u8]>> {
        self.headers()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    /// Returns the time of the record, ms since 1970; -1: none.
    pub fn timestamp_ms(&self) -> i64 {
        self.timestamp_ms
    }

    pub fn arrived(&self) -> Arrival {
        self.arrived
    }

    /// Returns the arrival time, ms since 1970.
    pub fn arrived_ms(&self) -> i64 {
        self.arrived.ms
    }

    pub fn priority(&self) -> u8 {
        self.priority
    }

    pub fn ttl_ms(&self) -> Option<u64> {
        self.ttl_ms
    }

    pub fn delay_ms(&self) -> Option<u64> {
        self.delay_ms
    }

    pub fn persistent(&self) -> bool {
        self.persistent
    }

    /// Returns the dead-letterings per queue and reason, latest first.
    pub fn deaths(&self) -> Vec<Death> {
        if self.deaths.len == 0 {
            return Vec::new();
        }
        read_deaths(self.part(self.deaths))
    }

    /// Returns the bytes of the record, by which deliveries are bounded.
    pub fn bytes(&self) -> usize {
        self.record.len()
    }

    /// Returns the bytes of the body.
    pub fn value_len(&self) -> usize {
        usize::try_from(self.value.len).unwrap_or(usize::MAX)
    }

    /// Converts it into a message that can be published again.
    pub fn to_message(&self) -> Message {
        let slice = |part: &[u8]| self.record.slice_ref(part);
        let named = |(name, value): Header<'_>| {
            let text = |_| String::from_utf8_lossy(name).into_owned().into();
            let name = ByteString::try_from(slice(name)).unwrap_or_else(text);
            (name, value.map(slice))
        };
        Message {
            exchange: self.exchange().into(),
            routing_key: self.routing_key().into(),
            key: self.key().map(slice),
            value: self.value_bytes(),
            timestamp_ms: self.timestamp_ms,
            priority: self.priority,
            ttl_ms: self.ttl_ms,
            delay_ms: self.delay_ms,
            persistent: self.persistent,
            headers: self.headers().map(named).collect(),
            deaths: self.deaths(),
        }
    }

    fn part(&self, span: Span) -> &[u8] {
        let (at, len) = (
            usize::try_from(span.at).unwrap_or(usize::MAX),
            usize::try_from(span.len).unwrap_or(usize::MAX),
        );
        self.record.get(at..at.saturating_add(len)).unwrap_or_default()
    }

    fn text(&self, span: Span) -> &str {
        // Checked when the record was read.
        std::str::from_utf8(self.part(span)).unwrap_or_default()
    }
}

fn core_fields_of<'a>(raw: &RawRecord<'a>) -> Option<CoreFields<'a>> {
    let mut rest = raw.headers;
    for _ in 0..raw.header_count {
        let ((name, value), behind) = record::read_header(rest)?;
        rest = behind;
        if name == MESSAGE_HEADER {
            return read_core_fields(value?);
        }
    }
    None
}

/// Returns the range of `part` inside `whole`, of which it is a slice; the default range if it is empty.
fn span_of(whole: &[u8], part: &[u8]) -> Option<Span> {
    if part.is_empty() {
        return Some(Span::default());
    }
    let at = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    Some(Span {
        at: u32::try_from(at).ok()?,
        len: u32::try_from(part.len()).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::batch::Codec;
    use crate::batch_builder::BatchBuilder;
    use crate::message::DeathReason;
    use crate::record::Record;
    use crate::records::records;

    fn full() -> Message {
        Message {
            exchange: "orders".into(),
            routing_key: "a.b".into(),
            key: Some(Bytes::from_static(b"k")),
            value: Bytes::from_static(b"body"),
            timestamp_ms: 77,
            priority: 9,
            ttl_ms: Some(0),
            delay_ms: Some(u64::MAX),
            persistent: true,
            headers: [("x".into(), None), ("y".into(), Some(Bytes::from_static(b"1")))]
                .into_iter()
                .collect(),
            deaths: vec![Death {
                queue: "q".into(),
                reason: DeathReason::DeliveryLimit,
                count: 300,
                first_ms: 5,
                exchange: "".into(),
                routing_key: "rk".into(),
                ttl_ms: Some(4),
                is_first: true,
                keys_were_lost: false,
                loses_keys: true,
            }],
        }
    }

    fn stored(messages: &[Message], codec: Codec) -> Vec<(Offset, StoredMessage)> {
        let mut batch = BatchBuilder::new(codec);
        for (number, message) in (0..).zip(messages) {
            let arrived = Arrival { ms: 1000, number };
            message.write(arrived, &mut batch).unwrap();
        }
        let mut records = records(&batch.finish().unwrap(), 1 << 20).unwrap();
        std::iter::from_fn(|| records.next_message())
            .map(Result::unwrap)
            .collect()
    }

    #[test]
    fn a_message_reads_back_as_written() {
        for codec in [Codec::None, Codec::Lz4] {
            let messages = [full(), Message::default(), full()];
            let read = stored(&messages, codec);
            let offsets: Vec<_> = read.iter().map(|(offset, _)| offset.0).collect();
            assert_eq!(offsets, [0, 1, 2]);
            let arrived: Vec<_> = read.iter().map(|(_, message)| message.arrived().number).collect();
            assert_eq!(arrived, [0, 1, 2]);
            let read: Vec<_> = read.iter().map(|(_, message)| message.to_message()).collect();
            assert_eq!(read, messages);
        }
    }

    #[test]
    fn what_a_message_says_is_there_without_making_it_ones_own() {
        let read = stored(&[full()], Codec::None);
        let message = &read[0].1;
        assert_eq!((message.exchange(), message.routing_key()), ("orders", "a.b"));
        assert_eq!((message.key(), message.value()), (Some(&b"k"[..]), &b"body"[..]));
        assert_eq!((message.arrived_ms(), message.timestamp_ms()), (1000, 77));
        assert_eq!(message.headers().count(), 2, "the reserved header is nobody's");
        assert_eq!(message.header(b"y"), Some(Some(&b"1"[..])));
    }

    #[test]
    fn a_record_of_a_log_client_is_a_message_with_nothing_set() {
        for header in [
            None,
            Some(&b""[..]),
            Some(&b"\x02\0\0"[..]),
            Some(&b"\x01\xff"[..]),
        ] {
            let headers = [(MESSAGE_HEADER, header), (&b"h"[..], None)];
            let mut batch = BatchBuilder::new(Codec::None);
            batch
                .push(&Record {
                    key: None,
                    value: None,
                    headers: &headers,
                    timestamp: 3,
                })
                .unwrap();
            let mut records = records(&batch.finish().unwrap(), 1 << 20).unwrap();
            let (_, message) = records.next_message().unwrap().unwrap();
            assert_eq!((message.exchange(), message.priority()), ("", 0));
            assert!(message.persistent() && message.value().is_empty());
            assert_eq!((message.arrived_ms(), message.ttl_ms()), (3, None));
            assert_eq!(message.headers().count(), 1);
        }
    }

    #[test]
    fn a_publishers_own_reserved_header_is_left_out() {
        let mut message = full();
        message
            .headers
            .push(("stafett.message".into(), Some(Bytes::from_static(b"forged"))));
        assert_eq!(stored(&[message], Codec::None)[0].1.to_message(), full());
    }
}
