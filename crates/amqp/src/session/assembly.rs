//! Assembly of a published message: `basic.publish`, its content header, then its body in any number of
//! frames.
//!
//! ```text
//! Idle ── publish ──▶ Header ── header ──▶ Body ── the last byte ──▶ a message, and Idle
//! ```

use bytes::{Bytes, BytesMut};
use stafett_amqp_wire::methods::basic;
use stafett_amqp_wire::{ContentHeader, Properties, ReplyCode};
use stafett_net::{Arrival, Permit};
use tokio::time::Instant;

use crate::exception::Exception;

/// Maximum buffer that is allocated before the bytes of a body have arrived.
const BODY_BYTES_AHEAD: usize = 256 * 1024;

/// State of a channel's assembly.
#[derive(Debug, Default)]
pub(crate) enum Assembly {
    #[default]
    Idle,
    Header(basic::Publish),
    Body(Body),
}

#[derive(Debug)]
pub(crate) struct Body {
    publish: basic::Publish,
    properties: Properties,
    received: BytesMut,
    bytes: usize,
    memory: Option<Arrival>,
}

/// A complete published message.
#[derive(Debug)]
pub(crate) struct Content {
    pub publish: basic::Publish,
    pub properties: Properties,
    pub body: Bytes,
    pub memory: Option<Permit>,
}

impl Assembly {
    /// Returns true if a frame other than a method is expected.
    pub(crate) fn is_busy(&self) -> bool {
        !matches!(self, Self::Idle)
    }

    /// Returns RabbitMQ's error text for an unexpected frame.
    pub(crate) fn expected(&self) -> &'static str {
        match self {
            Self::Idle => "expected method frame, got non method frame instead",
            Self::Header(_) => "expected content header for class 60, got non content header frame instead",
            Self::Body(_) => "expected content body, got non content body frame instead",
        }
    }

    /// Returns the memory of an incomplete large body.
    pub(crate) fn memory(&mut self) -> Option<&mut Arrival> {
        match self {
            Self::Body(body) => body.memory.as_mut(),
            Self::Idle | Self::Header(_) => None,
        }
    }

    /// Takes the memory of an incomplete large body away, to let it grow.
    pub(crate) fn take_memory(&mut self) -> Option<Arrival> {
        match self {
            Self::Body(body) => body.memory.take(),
            Self::Idle | Self::Header(_) => None,
        }
    }

    pub(crate) fn put_memory_back(&mut self, memory: Arrival) {
        if let Self::Body(body) = self {
            body.memory = Some(memory);
        }
    }

    /// Returns true if memory must be reserved before `bytes` more of the body are kept.
    pub(crate) fn lacks_memory(&self, bytes: usize) -> bool {
        let Self::Body(body) = self else {
            return false;
        };
        let needed = body.bytes.min(body.received.len() + bytes);
        body.memory.as_ref().is_some_and(|memory| memory.room() < needed)
    }

    /// Returns true if the body gives way to others that wait for memory (see [`Arrival::gives_way`]), and
    /// the time for the next call.
    pub(crate) fn gives_way(&mut self, now: Instant) -> (bool, Option<Instant>) {
        let Self::Body(body) = self else {
            return (false, None);
        };
        let received = body.received.len();
        let Some(memory) = &mut body.memory else {
            return (false, None);
        };
        let gives_way = memory.is_due(now) && memory.gives_way(now, received);
        (gives_way, Some(memory.window_end(now, received)))
    }

    pub(crate) fn begin(&mut self, publish: basic::Publish) {
        *self = Self::Header(publish);
    }

    /// Takes the content header, and the memory for the body. Returns the message if it has no body.
    pub(crate) fn on_header(&mut self, header: ContentHeader, memory: Option<Arrival>) -> Option<Content> {
        let Self::Header(publish) = std::mem::take(self) else {
            return None;
        };
        let bytes = usize::try_from(header.body_size).unwrap_or(usize::MAX);
        if bytes == 0 {
            return Some(Content {
                publish,
                properties: header.properties,
                body: Bytes::new(),
                memory: memory.map(Arrival::into_permit),
            });
        }
        *self = Self::Body(Body {
            publish,
            properties: header.properties,
            received: BytesMut::new(),
            bytes,
            memory,
        });
        None
    }

    /// Takes a piece of the body. Returns the message once it is complete.
    pub(crate) fn on_body(&mut self, piece: Bytes) -> Result<Option<Content>, Exception> {
        let Self::Body(body) = self else {
            return Ok(None);
        };
        let left = body.bytes - body.received.len();
        if piece.len() > left {
            *self = Self::Idle;
            return Err(Exception::new(
                ReplyCode::UnexpectedFrame,
                "the body is longer than its header announced",
            )
            .caused_by((60, 40)));
        }
        let whole = if body.received.is_empty() && piece.len() == body.bytes {
            // The body is one frame: it is not copied.
            piece
        } else {
            if body.received.is_empty() {
                body.received.reserve(body.bytes.min(BODY_BYTES_AHEAD));
            }
            body.received.extend_from_slice(&piece);
            if body.received.len() < body.bytes {
                return Ok(None);
            }
            body.received.split().freeze()
        };
        let Self::Body(body) = std::mem::take(self) else {
            return Ok(None);
        };
        Ok(Some(Content {
            publish: body.publish,
            properties: body.properties,
            body: whole,
            memory: body.memory.map(Arrival::into_permit),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(body_size: u64) -> ContentHeader {
        ContentHeader {
            body_size,
            properties: Properties::NONE,
        }
    }

    fn begun() -> Assembly {
        let mut assembly = Assembly::default();
        assert!(!assembly.is_busy());
        assembly.begin(basic::Publish::default());
        assert!(assembly.expected().contains("content header"));
        assembly
    }

    #[test]
    fn a_body_in_one_frame_is_not_copied() {
        let mut assembly = begun();
        assert!(assembly.on_header(header(5), None).is_none());
        let piece = Bytes::from_static(b"hello");
        let content = assembly.on_body(piece.clone()).unwrap().unwrap();
        assert_eq!(content.body.as_ptr(), piece.as_ptr());
        assert!(!assembly.is_busy());
    }

    #[test]
    fn a_body_in_pieces_is_put_together_and_empty_pieces_do_no_harm() {
        let mut assembly = begun();
        assert!(assembly.on_header(header(5), None).is_none());
        assert!(assembly.on_body(Bytes::from_static(b"he")).unwrap().is_none());
        assert!(assembly.on_body(Bytes::new()).unwrap().is_none());
        let content = assembly.on_body(Bytes::from_static(b"llo")).unwrap().unwrap();
        assert_eq!(content.body, "hello");
    }

    #[test]
    fn a_message_without_a_body_is_complete_with_its_header() {
        assert!(
            begun()
                .on_header(header(0), None)
                .is_some_and(|content| content.body.is_empty())
        );
    }

    #[test]
    fn a_body_longer_than_announced_ends_the_connection() {
        let mut assembly = begun();
        assembly.on_header(header(2), None);
        let error = assembly.on_body(Bytes::from_static(b"abc")).unwrap_err();
        assert_eq!(error.code, ReplyCode::UnexpectedFrame);
    }
}
