//! The first message of each address: enough to give consumers something to read.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{BufMut as _, BytesMut};
use stafett_amqp_wire::methods::basic;
use stafett_amqp_wire::{ContentHeader, Encoder, FrameKind, Method, Properties};
use stafett_model::{Lock, LockGuard};

/// Messages by their address, and exchanges by the queues that are bound to them.
#[derive(Debug, Default)]
pub(super) struct Samples {
    known: Lock<StubState>,
}

#[derive(Debug, Default)]
struct StubState {
    bodies: HashMap<String, Arc<[u8]>>,
    exchanges: HashMap<String, String>,
}

impl Samples {
    fn known(&self) -> LockGuard<'_, StubState> {
        self.known.lock()
    }

    pub(super) fn bind(&self, queue: &str, exchange: &str) {
        self.known()
            .exchanges
            .insert(queue.to_owned(), exchange.to_owned());
    }

    /// Returns true if there is no message for this address yet.
    pub(super) fn lacks(&self, address: &str) -> bool {
        !self.known().bodies.contains_key(address)
    }

    pub(super) fn keep(&self, address: &str, body: &[u8]) {
        self.known().bodies.insert(address.to_owned(), Arc::from(body));
    }

    /// Returns the message for a queue.
    pub(super) fn of_queue(&self, queue: &str) -> Option<Arc<[u8]>> {
        let known = self.known();
        let address = known.exchanges.get(queue).map_or(queue, String::as_str);
        known.bodies.get(address).cloned()
    }
}

/// A delivery that is written again and again, under another tag each time.
#[derive(Debug)]
pub(super) struct Repeated {
    frames: Vec<u8>,
    tag_at: usize,
}

impl Repeated {
    pub(super) fn new(channel: u16, consumer: &str, body: &[u8], frame_bytes_max: usize) -> Self {
        let deliver = basic::Deliver {
            consumer_tag: consumer.into(),
            ..basic::Deliver::default()
        };
        let mut frames = BytesMut::new();
        Method::from(deliver).encode(channel, &mut frames);
        let header = ContentHeader {
            body_size: body.len() as u64,
            properties: Properties::NONE,
        };
        Encoder::frame(&mut frames, FrameKind::Header, channel, |e| header.encode(e));
        for piece in body.chunks(frame_bytes_max.max(1)) {
            Encoder::frame(&mut frames, FrameKind::Body, channel, |e| e.raw(piece));
        }
        Self {
            frames: frames.to_vec(),
            // Behind the frame's head, the method's numbers, and the consumer's tag with its length.
            tag_at: 7 + 4 + 1 + consumer.len(),
        }
    }

    pub(super) fn put(&self, tag: u64, out: &mut BytesMut) {
        let (before, rest) = self
            .frames
            .split_at_checked(self.tag_at)
            .unwrap_or((&self.frames, &[]));
        out.extend_from_slice(before);
        out.put_u64(tag);
        out.extend_from_slice(rest.get(8..).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use stafett_amqp_wire::frame::split;
    use stafett_amqp_wire::methods::Basic;

    use super::*;

    #[test]
    fn a_repeated_delivery_differs_by_its_tag_alone() {
        let repeated = Repeated::new(1, "consumer", b"body", 100);
        let mut out = BytesMut::new();
        repeated.put(77, &mut out);
        let frame = split(&mut out, 0).unwrap().unwrap();
        let Ok(Method::Basic(Basic::Deliver(deliver))) = Method::decode(frame.payload) else {
            panic!("it is a delivery");
        };
        assert_eq!((deliver.delivery_tag, &*deliver.consumer_tag), (77, "consumer"));
        assert_eq!(
            ContentHeader::decode(split(&mut out, 0).unwrap().unwrap().payload)
                .unwrap()
                .body_size,
            4
        );
        assert_eq!(split(&mut out, 0).unwrap().unwrap().payload, "body");
        assert!(out.is_empty());
    }

    #[test]
    fn a_bound_queue_has_what_went_to_its_exchange() {
        let samples = Samples::default();
        samples.bind("q", "x");
        assert!(samples.lacks("x"));
        samples.keep("x", b"body");
        assert_eq!(samples.of_queue("q").as_deref(), Some(&b"body"[..]));
        assert_eq!(samples.of_queue("other"), None);
    }
}
