//! One channel of a client of the stub: messages that it publishes are counted, and its consumers get
//! samples.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use stafett_amqp_wire::methods::{BASIC, Basic, Confirm, Exchange, Queue, basic, confirm, exchange, queue};
use stafett_amqp_wire::{FrameRef, Method};

use super::samples::{Repeated, Samples};
use super::session::Ended;
use crate::drivers::amqp::link::{id_of, u64_at};

const BODY_BYTES_MAX: usize = (128 << 10) - 8;
const PUBLISH: u16 = 40;
const ACK: u16 = 80;

/// A channel.
#[derive(Debug)]
pub(super) struct Channel {
    samples: Arc<Samples>,
    pub(super) number: u16,
    confirms: bool,
    published: u64,
    confirmed: u64,
    /// The last `basic.publish`, as it came: most are alike.
    publish: Vec<u8>,
    address: String,
    /// The message that comes is to be kept.
    is_wanted: bool,
    body: Vec<u8>,
    body_left: u64,
    consumers: Vec<Consumer>,
    /// Of each consumer; 0 is no bound.
    prefetch: u64,
    sent: u64,
    settled: u64,
    /// There was no message to deliver at the last attempt.
    waits: bool,
}

#[derive(Debug)]
struct Consumer {
    tag: String,
    queue: String,
    settles: bool,
    delivery: Option<Repeated>,
}

impl Channel {
    pub(super) fn new(number: u16, samples: Arc<Samples>) -> Self {
        Self {
            samples,
            number,
            confirms: false,
            published: 0,
            confirmed: 0,
            publish: Vec::new(),
            address: String::new(),
            is_wanted: false,
            body: Vec::new(),
            body_left: 0,
            consumers: Vec::new(),
            prefetch: 0,
            sent: 0,
            settled: 0,
            waits: false,
        }
    }

    pub(super) fn has_consumers(&self) -> bool {
        !self.consumers.is_empty()
    }

    /// True if a consumer may be given messages, and there are none yet.
    pub(super) fn waits(&self) -> bool {
        self.waits && self.has_consumers() && self.room() > 0
    }

    /// True if there are messages that a consumer may be given.
    pub(super) fn delivers(&self) -> bool {
        !self.waits && self.has_consumers() && self.room() > 0
    }

    fn room(&self) -> u64 {
        let settles = self.consumers.iter().any(|consumer| consumer.settles);
        if !settles || self.prefetch == 0 {
            return u64::MAX;
        }
        let all = self.prefetch * self.consumers.len() as u64;
        all.saturating_sub(self.sent - self.settled)
    }

    pub(super) fn on_header(&mut self, payload: &[u8]) {
        self.body_left = u64_at(payload, 4).unwrap_or(0);
        if self.body_left == 0 {
            self.published += 1;
        }
    }

    pub(super) fn on_body(&mut self, payload: &[u8]) {
        if self.is_wanted {
            self.body.extend_from_slice(payload);
        }
        self.body_left = self.body_left.saturating_sub(payload.len() as u64);
        if self.body_left == 0 {
            if self.is_wanted {
                self.samples.keep(&self.address, &self.body);
                self.is_wanted = false;
            }
            self.published += 1;
        }
    }

    pub(super) fn on_method(&mut self, frame: FrameRef<'_>, out: &mut BytesMut) -> Result<(), Ended> {
        match id_of(frame.payload) {
            (BASIC, PUBLISH) if frame.payload == self.publish => Ok(()),
            (BASIC, ACK) => {
                let settled = u64_at(frame.payload, 4).unwrap_or(0);
                self.settled = settled.clamp(self.settled, self.sent.max(self.settled));
                Ok(())
            }
            _ => {
                let method = Method::decode(Bytes::copy_from_slice(frame.payload))?;
                if let Some(answer) = self.answer(frame, method)? {
                    answer.encode(self.number, out);
                }
                Ok(())
            }
        }
    }

    fn answer(&mut self, frame: FrameRef<'_>, method: Method) -> Result<Option<Method>, Ended> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "what is not there is not served")]
        match method {
            Method::Exchange(Exchange::Declare(method)) => {
                Ok((!method.no_wait).then(|| exchange::DeclareOk {}.into()))
            }
            Method::Exchange(Exchange::Delete(method)) => {
                Ok((!method.no_wait).then(|| exchange::DeleteOk {}.into()))
            }
            Method::Queue(method) => self.on_queue(method),
            Method::Confirm(Confirm::Select(_)) => {
                self.confirms = true;
                Ok(Some(confirm::SelectOk {}.into()))
            }
            Method::Basic(method) => self.on_basic(frame, method),
            other => Err(Ended::NotServed(other.name())),
        }
    }

    fn on_queue(&self, method: Queue) -> Result<Option<Method>, Ended> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "what is not there is not served")]
        Ok(match method {
            Queue::Declare(method) => (!method.no_wait).then(|| {
                queue::DeclareOk {
                    queue: method.queue.clone(),
                    ..queue::DeclareOk::default()
                }
                .into()
            }),
            Queue::Bind(method) => {
                self.samples.bind(&method.queue, &method.exchange);
                (!method.no_wait).then(|| queue::BindOk {}.into())
            }
            Queue::Delete(method) => (!method.no_wait).then(|| queue::DeleteOk::default().into()),
            other => return Err(Ended::NotServed(Method::Queue(other).name())),
        })
    }

    fn on_basic(&mut self, frame: FrameRef<'_>, method: Basic) -> Result<Option<Method>, Ended> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "what is not there is not served")]
        Ok(match method {
            Basic::Qos(method) => {
                self.prefetch = method.prefetch_count.into();
                Some(basic::QosOk {}.into())
            }
            Basic::Consume(method) => {
                // A consumer without a name gets one.
                let tag = if method.consumer_tag.is_empty() {
                    format!("stub-{}-{}", self.number, self.consumers.len() + 1)
                } else {
                    method.consumer_tag.to_string()
                };
                let consumer_tag = tag.as_str().into();
                self.consumers.push(Consumer {
                    tag,
                    queue: method.queue.to_string(),
                    settles: !method.no_ack,
                    delivery: None,
                });
                (!method.no_wait).then(|| basic::ConsumeOk { consumer_tag }.into())
            }
            Basic::Cancel(method) => {
                let gone = |consumer: &Consumer| consumer.tag == *method.consumer_tag;
                self.consumers.retain(|consumer| !gone(consumer));
                let consumer_tag = method.consumer_tag;
                (!method.no_wait).then(|| basic::CancelOk { consumer_tag }.into())
            }
            Basic::Publish(method) => {
                self.publish.clear();
                self.publish.extend_from_slice(frame.payload);
                let address = if method.exchange.is_empty() {
                    &method.routing_key
                } else {
                    &method.exchange
                };
                self.address = address.to_string();
                self.is_wanted = self.samples.lacks(&self.address);
                self.body.clear();
                None
            }
            other => return Err(Ended::NotServed(Method::Basic(other).name())),
        })
    }

    /// Confirms everything that has come, at once.
    pub(super) fn confirm(&mut self, out: &mut BytesMut) {
        if self.confirms && self.published > self.confirmed {
            self.confirmed = self.published;
            let ack = basic::Ack {
                delivery_tag: self.confirmed,
                multiple: true,
            };
            Method::from(ack).encode(self.number, out);
        }
    }

    /// Gives out to each consumer in turn, until enough waits to be written.
    pub(super) fn deliver(&mut self, out: &mut BytesMut, bytes_max: usize) {
        for consumer in &mut self.consumers {
            if consumer.delivery.is_none() {
                let body = self.samples.of_queue(&consumer.queue);
                consumer.delivery =
                    body.map(|body| Repeated::new(self.number, &consumer.tag, &body, BODY_BYTES_MAX));
            }
        }
        let mut room = self.room();
        self.waits = false;
        while room > 0 && out.len() < bytes_max {
            let before = self.sent;
            for consumer in &self.consumers {
                let Some(delivery) = &consumer.delivery else {
                    continue;
                };
                if room == 0 {
                    return;
                }
                self.sent += 1;
                delivery.put(self.sent, out);
                room -= 1;
            }
            if self.sent == before {
                self.waits = true;
                return;
            }
        }
    }
}
