//! A complete published message, borrowed from the receive buffer: `basic.publish`, its content header and
//! its body, in one frame each, back to back. Publishers send this shape again and again; borrowing it allows
//! a comparison with the previous message without decoding.

use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};

use crate::frame::{self, FRAME_OVERHEAD, FrameKind};
use crate::methods::BASIC;

const PUBLISH: u16 = 40;
/// Bytes of a frame in front of its payload and behind it.
const BEFORE: usize = 7;
const BEHIND: usize = FRAME_OVERHEAD - BEFORE;

/// Fields of the message; texts are not checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicationRef<'a> {
    pub channel: u16,
    pub exchange: &'a [u8],
    pub routing_key: &'a [u8],
    pub mandatory: bool,
    /// Flags and properties, still encoded.
    pub properties: &'a [u8],
    body: Range<usize>,
}

impl<'a> PublicationRef<'a> {
    /// Reads the message at the front of `buffer`. `None` if the buffer begins with anything else, or if the
    /// message is incomplete, in other frames or damaged: then read it frame by frame.
    #[must_use]
    pub fn first(buffer: &'a [u8], frame_max: u32) -> Option<Self> {
        let method = frame::first(buffer, frame_max).ok()??;
        let mut fields = method.payload;
        let is_publish = method.kind == FrameKind::Method as u8
            && number(&mut fields)? == BASIC
            && number(&mut fields)? == PUBLISH;
        let _reserved = is_publish.then(|| number(&mut fields))??;
        let exchange = short(&mut fields)?;
        let routing_key = short(&mut fields)?;
        // `mandatory`; a message with `immediate` is refused elsewhere.
        let &[bits @ (0 | 1)] = fields else { return None };

        let behind = method.whole_bytes();
        let header = frame::first(buffer.get(behind..)?, frame_max).ok()??;
        let mut fields = header.payload;
        let is_header = header.kind == FrameKind::Header as u8
            && header.channel == method.channel
            && number(&mut fields)? == BASIC;
        let _weight = is_header.then(|| number(&mut fields))??;
        let (size, properties) = fields.split_first_chunk::<8>()?;

        let behind = behind + header.whole_bytes();
        let body = frame::first(buffer.get(behind..)?, frame_max).ok()??;
        let is_body = body.kind == FrameKind::Body as u8
            && body.channel == method.channel
            && !body.payload.is_empty()
            && body.payload.len() as u64 == u64::from_be_bytes(*size);
        is_body.then_some(Self {
            channel: method.channel,
            exchange,
            routing_key,
            mandatory: bits == 1,
            properties,
            body: behind + BEFORE..behind + BEFORE + body.payload.len(),
        })
    }

    /// Returns the length of the body in bytes.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        self.body.len()
    }

    /// Returns the range of the body in the buffer.
    #[must_use]
    pub fn body(&self) -> Range<usize> {
        self.body.clone()
    }
}

/// Removes the first message from `buffer` and returns its body without copying. `body` is the body's range.
#[must_use]
pub fn take(buffer: &mut BytesMut, body: &Range<usize>) -> Bytes {
    buffer.advance(body.start.min(buffer.len()));
    let taken = buffer.split_to(body.len().min(buffer.len())).freeze();
    buffer.advance(BEHIND.min(buffer.len()));
    taken
}

/// Removes the first message from `buffer`. `body` is the body's range.
pub fn skip(buffer: &mut BytesMut, body: &Range<usize>) {
    buffer.advance((body.end + BEHIND).min(buffer.len()));
}

fn number(fields: &mut &[u8]) -> Option<u16> {
    let (number, rest) = fields.split_first_chunk::<2>()?;
    *fields = rest;
    Some(u16::from_be_bytes(*number))
}

fn short<'a>(fields: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (&length, rest) = fields.split_first()?;
    let (text, rest) = rest.split_at_checked(usize::from(length))?;
    *fields = rest;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::{Method, basic};
    use crate::{ContentHeader, Encoder, Frame, PropertiesBuilder};

    fn message(channel: u16, body: &[u8]) -> BytesMut {
        let mut out = BytesMut::new();
        let publish = basic::Publish {
            exchange: "songs".into(),
            routing_key: "a.b".into(),
            mandatory: true,
            ..basic::Publish::default()
        };
        Encoder::frame(&mut out, FrameKind::Method, channel, |e| {
            Method::from(publish).write(e);
        });
        let header = ContentHeader {
            body_size: body.len() as u64,
            properties: PropertiesBuilder {
                delivery_mode: Some(2),
                ..PropertiesBuilder::default()
            }
            .finish(),
        };
        Encoder::frame(&mut out, FrameKind::Header, channel, |e| header.encode(e));
        Frame::put_head(&mut out, FrameKind::Body, channel, body.len());
        out.extend_from_slice(body);
        Frame::put_end(&mut out);
        out
    }

    #[test]
    fn a_message_in_three_frames_is_seen_and_taken_out_with_what_is_around_it() {
        let mut buffer = message(7, b"hello");
        buffer.extend_from_slice(b"rest");
        let found = PublicationRef::first(&buffer, 4096).unwrap();
        assert_eq!((found.channel, found.mandatory), (7, true));
        assert_eq!((found.exchange, found.routing_key), (&b"songs"[..], &b"a.b"[..]));
        assert_eq!((found.properties, found.body_bytes()), (&[0x10, 0, 2][..], 5));
        let body = found.body();
        assert_eq!(take(&mut buffer, &body), "hello");
        assert_eq!(buffer, "rest");
    }

    #[test]
    fn no_beginning_of_a_message_is_one() {
        let whole = message(1, b"hello");
        for length in 0..whole.len() {
            assert_eq!(
                PublicationRef::first(&whole[..length], 4096),
                None,
                "{length} bytes"
            );
        }
    }

    /// If any single byte is changed, the result is either `None` or another message of the same shape.
    #[test]
    fn a_changed_byte_is_another_message_or_none() {
        let whole = message(1, b"hello");
        let before = PublicationRef::first(&whole, 4096).unwrap();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                let Some(found) = PublicationRef::first(&changed, 4096) else {
                    continue;
                };
                let is_of_the_body = before.body().contains(&at);
                let is_weight_or_reserved = found == before;
                assert!(
                    is_of_the_body || is_weight_or_reserved || found != before,
                    "byte {at}"
                );
                assert_eq!(found.body().end + BEHIND, changed.len(), "byte {at}");
            }
        }
    }

    #[test]
    fn a_body_in_two_frames_or_none_is_left_to_others() {
        let mut two = message(1, b"hello");
        // The header says six bytes, the frame has five.
        let size_at = before_size(&two);
        two[size_at + 7] = 6;
        assert_eq!(PublicationRef::first(&two, 4096), None);
        let mut none = message(1, b"");
        none.truncate(none.len() - FRAME_OVERHEAD);
        assert_eq!(PublicationRef::first(&none, 4096), None);
    }

    fn before_size(buffer: &[u8]) -> usize {
        let method = frame::first(buffer, 0).unwrap().unwrap();
        method.whole_bytes() + BEFORE + 4
    }

    #[test]
    fn frames_beyond_the_limit_are_left_to_others() {
        assert_eq!(PublicationRef::first(&message(1, &[0; 5000]), 4096), None);
    }
}
