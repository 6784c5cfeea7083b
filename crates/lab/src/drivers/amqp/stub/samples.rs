//! The first message of each address: enough to give consumers something to read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{BufMut as _, BytesMut};
use stafett_amqp_wire::methods::basic;
use stafett_amqp_wire::{ContentHeader, Encoder, FrameKind, Method, Properties};

/// Messages by their address, and exchanges by the queues that are bound to them.
#[derive(Debug, Default)]
pub(super) struct Samples {
    known: Mutex<Known>,
    /// As many are given out as were published.
    once: bool,
}

#[derive(Debug, Default)]
struct Known {
    bodies: HashMap<String, Arc<[u8]>>,
    exchanges: HashMap<String, String>,
    published: HashMap<String, Arc<AtomicU64>>,
    given_out: HashMap<String, Arc<AtomicU64>>,
}

/// What there is to be given out of a queue, to all its consumers together.
#[derive(Debug)]
pub(super) struct Tally {
    published: Arc<AtomicU64>,
    given_out: Arc<AtomicU64>,
}

impl Tally {
    /// Takes as many as there are, and no more than `most`.
    pub(super) fn take(&self, most: u64) -> u64 {
        let published = self.published.load(Ordering::Acquire);
        let some = |given_out: u64| most.min(published.saturating_sub(given_out));
        let taken = self
            .given_out
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |given_out| {
                Some(given_out + some(given_out)).filter(|after| *after > given_out)
            });
        taken.map_or(0, some)
    }
}

impl Samples {
    pub(super) fn once() -> Self {
        Self {
            once: true,
            ..Self::default()
        }
    }

    /// Where messages to an address are counted, if that is of interest.
    pub(super) fn published(&self, address: &str) -> Option<Arc<AtomicU64>> {
        self.once
            .then(|| Arc::clone(self.known().published.entry(address.to_owned()).or_default()))
    }

    /// What there is for a queue, unless messages are given out again and again.
    pub(super) fn tally(&self, queue: &str) -> Option<Tally> {
        if !self.once {
            return None;
        }
        let mut known = self.known();
        let address = known
            .exchanges
            .get(queue)
            .map_or(queue, String::as_str)
            .to_owned();
        Some(Tally {
            published: Arc::clone(known.published.entry(address).or_default()),
            given_out: Arc::clone(known.given_out.entry(queue.to_owned()).or_default()),
        })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn bind(&self, queue: &str, exchange: &str) {
        self.known()
            .exchanges
            .insert(queue.to_owned(), exchange.to_owned());
    }

    /// Whether a message to this address is to be kept.
    pub(super) fn lacks(&self, address: &str) -> bool {
        !self.known().bodies.contains_key(address)
    }

    pub(super) fn keep(&self, address: &str, body: &[u8]) {
        self.known().bodies.insert(address.to_owned(), Arc::from(body));
    }

    /// What there is for a queue.
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
    fn every_message_is_there_once_for_each_queue() {
        let samples = Samples::once();
        samples.bind("q", "x");
        samples.bind("r", "x");
        let (q, again, r) = ("q", "q", "r");
        let [q, again, r] = [q, again, r].map(|queue| samples.tally(queue).unwrap());
        assert_eq!(q.take(5), 0);
        samples.published("x").unwrap().fetch_add(7, Ordering::Release);
        assert_eq!([q.take(5), again.take(5), q.take(5), r.take(100)], [5, 2, 0, 7]);
        assert!(Samples::default().tally("q").is_none());
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
