//! Deliveries out of frames: `basic.deliver` or `basic.get-ok`, a content header, and bodies, which are
//! looked at where they lie.
//!
//! ```text
//! Idle ── basic.deliver ──▶ Head ── content header ──▶ Body ── last body ──▶ Idle
//! ```

use stafett_amqp_wire::methods::BASIC;
use stafett_amqp_wire::{FrameKind, FrameRef};

use super::link::{check, id_of, u64_at};
use crate::drivers::DriverError;
use crate::workload::Received;

const DELIVER: u16 = 60;
const GET_OK: u16 = 71;
const GET_EMPTY: u16 = 72;
/// Place of the body's size in a content header: behind class and weight.
const BODY_SIZE_AT: usize = 4;
const METHOD_ID_BYTES: usize = 4;

/// Deliveries so far.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    state: State,
    /// The tag of the last delivery that came as a whole.
    last_tag: u64,
    /// The last `basic.get` was answered that there is nothing.
    pub(super) is_empty: bool,
}

#[derive(Debug, Default, Clone, Copy)]
enum State {
    #[default]
    Idle,
    Head {
        tag: u64,
    },
    Body(Body),
}

/// A body that has not come as a whole.
#[derive(Debug, Clone, Copy)]
struct Body {
    tag: u64,
    size: u64,
    left: u64,
    /// The lab's own bytes at the front, unless there are none.
    received: Option<Received>,
}

impl Deliveries {
    pub(super) fn last_tag(&self) -> u64 {
        self.last_tag
    }

    /// Adds the delivery that ends with this frame, if one does.
    #[inline]
    pub(super) fn take(&mut self, frame: FrameRef<'_>, into: &mut Vec<Received>) -> Result<(), DriverError> {
        match FrameKind::of(frame.kind) {
            Some(FrameKind::Method) => self.on_method(frame),
            Some(FrameKind::Header) => self.on_header(frame),
            Some(FrameKind::Body) => self.on_body(frame, into),
            Some(FrameKind::Heartbeat) => Ok(()),
            None => Err(out_of_turn("a frame of no kind")),
        }
    }

    fn on_method(&mut self, frame: FrameRef<'_>) -> Result<(), DriverError> {
        let tag = match id_of(frame.payload) {
            (BASIC, DELIVER) => {
                // The consumer's tag is in front of the delivery's.
                let length = frame.payload.get(METHOD_ID_BYTES).copied().map(usize::from);
                length.and_then(|length| u64_at(frame.payload, METHOD_ID_BYTES + 1 + length))
            }
            (BASIC, GET_OK) => u64_at(frame.payload, METHOD_ID_BYTES),
            (BASIC, GET_EMPTY) => {
                self.is_empty = true;
                return Ok(());
            }
            _ => return check(frame),
        };
        let tag = tag.ok_or_else(|| out_of_turn("a delivery without a tag"))?;
        self.state = State::Head { tag };
        Ok(())
    }

    fn on_header(&mut self, frame: FrameRef<'_>) -> Result<(), DriverError> {
        let (State::Head { tag }, Some(size)) = (self.state, u64_at(frame.payload, BODY_SIZE_AT)) else {
            return Err(out_of_turn("a content header"));
        };
        if size == 0 {
            // None of the lab's.
            self.end(tag);
        } else {
            self.state = State::Body(Body {
                tag,
                size,
                left: size,
                received: None,
            });
        }
        Ok(())
    }

    fn on_body(&mut self, frame: FrameRef<'_>, into: &mut Vec<Received>) -> Result<(), DriverError> {
        let State::Body(mut body) = self.state else {
            return Err(out_of_turn("a body"));
        };
        if body.left == body.size {
            body.received = Received::read(frame.payload);
        }
        body.left = body
            .left
            .checked_sub(frame.payload.len() as u64)
            .ok_or_else(|| out_of_turn("more of a body than was announced"))?;
        if body.left > 0 {
            self.state = State::Body(body);
            return Ok(());
        }
        into.extend(body.received.map(|received| Received {
            size: u32::try_from(body.size).unwrap_or(u32::MAX),
            ..received
        }));
        self.end(body.tag);
        Ok(())
    }

    fn end(&mut self, tag: u64) {
        self.last_tag = tag;
        self.state = State::Idle;
    }
}

fn out_of_turn(what: &str) -> DriverError {
    DriverError::Failed(format!("{what} came where it makes no sense"))
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use stafett_amqp_wire::frame::first;
    use stafett_amqp_wire::methods::basic;
    use stafett_amqp_wire::{ContentHeader, Encoder, Method, Properties};

    use super::*;
    use crate::workload::Message;

    fn delivery(tag: u64, body: &[u8], piece: usize) -> BytesMut {
        let mut out = BytesMut::new();
        let deliver = basic::Deliver {
            consumer_tag: "consumer".into(),
            delivery_tag: tag,
            ..basic::Deliver::default()
        };
        Method::from(deliver).encode(1, &mut out);
        let header = ContentHeader {
            body_size: body.len() as u64,
            properties: Properties::NONE,
        };
        Encoder::frame(&mut out, FrameKind::Header, 1, |e| header.encode(e));
        for piece in body.chunks(piece) {
            Encoder::frame(&mut out, FrameKind::Body, 1, |e| e.raw(piece));
        }
        out
    }

    fn taken(mut bytes: &[u8], deliveries: &mut Deliveries) -> Result<Vec<Received>, DriverError> {
        let mut into = Vec::new();
        while let Some(frame) = first(bytes, 0).unwrap() {
            deliveries.take(frame, &mut into)?;
            bytes = &bytes[frame.whole_bytes()..];
        }
        Ok(into)
    }

    #[test]
    fn bodies_in_one_frame_and_in_several_are_the_same_message() {
        let message = Message {
            stream: 7,
            sequence: 9,
            size: 100,
            ..Message::default()
        };
        let mut body = message.header().to_vec();
        body.resize(100, b'x');
        for piece in [1000, 100, 30] {
            let mut deliveries = Deliveries::default();
            let found = taken(&delivery(5, &body, piece), &mut deliveries).unwrap();
            assert_eq!(found.len(), 1);
            assert_eq!((found[0].stream, found[0].sequence, found[0].size), (7, 9, 100));
            assert_eq!(deliveries.last_tag(), 5);
        }
    }

    #[test]
    fn what_is_none_of_the_labs_is_settled_and_not_counted() {
        let mut deliveries = Deliveries::default();
        assert!(taken(&delivery(1, b"", 9), &mut deliveries).unwrap().is_empty());
        assert!(
            taken(&delivery(2, b"short", 9), &mut deliveries)
                .unwrap()
                .is_empty()
        );
        assert_eq!(deliveries.last_tag(), 2);
    }

    #[test]
    fn frames_out_of_turn_are_errors() {
        let whole = delivery(1, b"body", 9);
        let method = first(&whole, 0).unwrap().unwrap().whole_bytes();
        assert!(taken(&whole[method..], &mut Deliveries::default()).is_err());
        let mut long = delivery(1, b"body", 9);
        Encoder::frame(&mut long, FrameKind::Body, 1, |e| e.raw(b"more"));
        assert!(taken(&long, &mut Deliveries::default()).is_err());
    }

    #[test]
    fn the_end_of_the_queue_is_told() {
        let mut out = BytesMut::new();
        Method::from(basic::Cancel::default()).encode(1, &mut out);
        let error = taken(&out, &mut Deliveries::default()).unwrap_err();
        assert!(error.to_string().contains("queue is gone"), "{error}");
    }
}
