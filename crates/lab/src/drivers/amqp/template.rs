//! The frames of a published message: parts that are alike are made once per address.
//!
//! ```text
//! basic.publish │ content header up to the size of the body │ size │ properties │ body, in frames
//! └──────────────── head ─────────────────────────────────┘        └── tail ──┘
//! ```

use bytes::{BufMut as _, BytesMut};
use stafett_amqp_wire::frame::FRAME_OVERHEAD;
use stafett_amqp_wire::methods::basic;
use stafett_amqp_wire::{ContentHeader, Encoder, Frame, FrameKind, Method, PropertiesBuilder};

use super::layout::Address;
use super::link::CHANNEL_NUMBER;

/// Place of the body's size in a content header's frame: behind head, class and weight.
const SIZE_AT: usize = 7 + 4;
const SIZE_BYTES: usize = 8;
/// Bodies are not cut where nothing was agreed on.
const BODY_BYTES_MAX: usize = 128 << 10;

/// Bytes that are written for every message to one address.
#[derive(Debug, Default)]
pub(super) struct Template {
    head: Vec<u8>,
    tail: Vec<u8>,
    body_bytes_max: usize,
}

impl Template {
    pub(super) fn new(address: Address, delivery_mode: u8, priority: u8, frame_bytes_max: u32) -> Self {
        let publish = basic::Publish {
            exchange: address.exchange.into(),
            routing_key: address.routing_key.into(),
            ..basic::Publish::default()
        };
        let mut method = BytesMut::new();
        Method::from(publish).encode(CHANNEL_NUMBER, &mut method);
        let properties = PropertiesBuilder {
            delivery_mode: Some(delivery_mode),
            priority: (priority > 0).then_some(priority),
            ..PropertiesBuilder::default()
        };
        let content = ContentHeader {
            body_size: 0,
            properties: properties.finish(),
        };
        let mut header = BytesMut::new();
        Encoder::frame(&mut header, FrameKind::Header, CHANNEL_NUMBER, |e| {
            content.encode(e);
        });
        let tail = header.split_off(SIZE_AT + SIZE_BYTES);
        header.truncate(SIZE_AT);
        method.extend_from_slice(&header);
        let agreed = usize::try_from(frame_bytes_max).unwrap_or(usize::MAX);
        Self {
            head: method.to_vec(),
            tail: tail.to_vec(),
            body_bytes_max: if agreed == 0 {
                BODY_BYTES_MAX
            } else {
                agreed.saturating_sub(FRAME_OVERHEAD).max(1)
            },
        }
    }

    /// Writes a message.
    #[inline]
    pub(super) fn put(&self, body: &[u8], out: &mut BytesMut) {
        out.reserve(self.head.len() + self.tail.len() + body.len() + 2 * FRAME_OVERHEAD);
        out.extend_from_slice(&self.head);
        out.put_u64(body.len() as u64);
        out.extend_from_slice(&self.tail);
        for piece in body.chunks(self.body_bytes_max) {
            Frame::put_head(out, FrameKind::Body, CHANNEL_NUMBER, piece.len());
            out.extend_from_slice(piece);
            Frame::put_end(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use stafett_amqp_wire::frame::split;
    use stafett_amqp_wire::methods::Basic;

    use super::*;

    #[test]
    fn a_message_reads_back_as_written() {
        let address = Address {
            exchange: "x".to_owned(),
            routing_key: "q".to_owned(),
        };
        let template = Template::new(address, 2, 7, 4096);
        let body = vec![b'b'; 5000];
        let mut out = BytesMut::new();
        template.put(&body, &mut out);
        let mut next = || split(&mut out, 4096).unwrap().unwrap();
        let Ok(Method::Basic(Basic::Publish(publish))) = Method::decode(next().payload) else {
            panic!("it is published");
        };
        assert_eq!((&*publish.exchange, &*publish.routing_key), ("x", "q"));
        let header = ContentHeader::decode(next().payload).unwrap();
        assert_eq!(header.body_size, 5000);
        let properties = header.properties.read();
        assert_eq!(
            (properties.delivery_mode, properties.priority),
            (Some(2), Some(7))
        );
        let pieces: Vec<Bytes> = (0..2).map(|_| next().payload).collect();
        assert_eq!(pieces.concat(), body);
        assert!(out.is_empty());
    }
}
