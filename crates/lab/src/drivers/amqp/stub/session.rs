//! What the stub says to one client. Definitions are all granted; messages are counted.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use stafett_amqp_wire::methods::{
    BASIC, Basic, Channel, Confirm, Connection, Exchange, Queue, basic, channel, confirm, connection,
    exchange, queue,
};
use stafett_amqp_wire::{DecodeError, FrameKind, FrameRef, Method, Table};

use super::samples::{Repeated, Samples};
use crate::drivers::amqp::link::{id_of, u64_at};
use crate::drivers::amqp::socket::SocketError;

const FRAME_BYTES_MAX: u32 = 128 << 10;
const BODY_BYTES_MAX: usize = (128 << 10) - 8;
const PUBLISH: u16 = 40;
const ACK: u16 = 80;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("another protocol is spoken")]
    NotSpoken,
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("{0} is not served")]
    NotServed(&'static str),
}

/// One client.
#[derive(Debug)]
pub(super) struct Session {
    samples: Arc<Samples>,
    channel: u16,
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
    ended: bool,
}

#[derive(Debug)]
struct Consumer {
    tag: String,
    queue: String,
    settles: bool,
    delivery: Option<Repeated>,
}

impl Session {
    pub(super) fn new(samples: Arc<Samples>) -> Self {
        Self {
            samples,
            channel: 1,
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
            ended: false,
        }
    }

    /// What a client is told first.
    pub(super) fn greet(out: &mut BytesMut) {
        let start = connection::Start {
            version_minor: 9,
            server_properties: Table::default(),
            mechanisms: Bytes::from_static(b"PLAIN"),
            locales: Bytes::from_static(b"en_US"),
            ..connection::Start::default()
        };
        Method::from(start).encode(0, out);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// It has consumers, and for none of their queues is there anything.
    pub(super) fn looks_out(&self) -> bool {
        !self.consumers.is_empty() && self.consumers.iter().all(|consumer| consumer.delivery.is_none())
    }

    /// It has something to send and may.
    pub(super) fn delivers(&self) -> bool {
        !self.consumers.is_empty() && self.room() > 0
    }

    fn room(&self) -> u64 {
        let settles = self.consumers.iter().any(|consumer| consumer.settles);
        if !settles || self.prefetch == 0 {
            return u64::MAX;
        }
        let all = self.prefetch * self.consumers.len() as u64;
        all.saturating_sub(self.sent - self.settled)
    }

    pub(super) fn on_frame(&mut self, frame: FrameRef<'_>, out: &mut BytesMut) -> Result<(), Ended> {
        match FrameKind::of(frame.kind) {
            Some(FrameKind::Method) => self.on_method(frame, out),
            Some(FrameKind::Header) => {
                self.body_left = u64_at(frame.payload, 4).unwrap_or(0);
                if self.body_left == 0 {
                    self.published += 1;
                }
                Ok(())
            }
            Some(FrameKind::Body) => {
                self.on_body(frame.payload);
                Ok(())
            }
            Some(FrameKind::Heartbeat) | None => Ok(()),
        }
    }

    fn on_body(&mut self, payload: &[u8]) {
        if self.is_wanted {
            self.body.extend_from_slice(payload);
        }
        self.body_left = self.body_left.saturating_sub(payload.len() as u64);
        if self.body_left == 0 {
            self.published += 1;
            if self.is_wanted {
                self.samples.keep(&self.address, &self.body);
                self.is_wanted = false;
            }
        }
    }

    fn on_method(&mut self, frame: FrameRef<'_>, out: &mut BytesMut) -> Result<(), Ended> {
        match id_of(frame.payload) {
            (BASIC, PUBLISH) if frame.payload == self.publish => Ok(()),
            (BASIC, ACK) => {
                self.settled = u64_at(frame.payload, 4).unwrap_or(0).max(self.settled);
                Ok(())
            }
            _ => {
                let method = Method::decode(Bytes::copy_from_slice(frame.payload))?;
                self.answer(frame, method, out)
            }
        }
    }

    fn answer(&mut self, frame: FrameRef<'_>, method: Method, out: &mut BytesMut) -> Result<(), Ended> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "what is not there is not served")]
        let answer: Option<Method> = match method {
            Method::Connection(method) => self.on_connection(method)?,
            Method::Channel(Channel::Open(_)) => {
                self.channel = frame.channel;
                Some(channel::OpenOk::default().into())
            }
            Method::Channel(Channel::Close(_)) => Some(channel::CloseOk {}.into()),
            Method::Exchange(Exchange::Declare(method)) => {
                (!method.no_wait).then(|| exchange::DeclareOk {}.into())
            }
            Method::Exchange(Exchange::Delete(method)) => {
                (!method.no_wait).then(|| exchange::DeleteOk {}.into())
            }
            Method::Queue(method) => self.on_queue(method)?,
            Method::Confirm(Confirm::Select(_)) => {
                self.confirms = true;
                Some(confirm::SelectOk {}.into())
            }
            Method::Basic(method) => self.on_basic(frame, method)?,
            other => return Err(Ended::NotServed(other.name())),
        };
        if let Some(answer) = answer {
            answer.encode(frame.channel, out);
        }
        Ok(())
    }

    fn on_connection(&mut self, method: Connection) -> Result<Option<Method>, Ended> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "what is not there is not served")]
        Ok(match method {
            Connection::StartOk(_) => Some(
                connection::Tune {
                    channel_max: 1,
                    frame_max: FRAME_BYTES_MAX,
                    heartbeat: 0,
                }
                .into(),
            ),
            Connection::TuneOk(_) => None,
            Connection::Open(_) => Some(connection::OpenOk::default().into()),
            Connection::Close(_) => {
                self.ended = true;
                Some(connection::CloseOk {}.into())
            }
            other => return Err(Ended::NotServed(Method::Connection(other).name())),
        })
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
                self.consumers.push(Consumer {
                    tag: method.consumer_tag.to_string(),
                    queue: method.queue.to_string(),
                    settles: !method.no_ack,
                    delivery: None,
                });
                let consumer_tag = method.consumer_tag;
                (!method.no_wait).then(|| basic::ConsumeOk { consumer_tag }.into())
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

    /// Confirms what has come, all at once.
    pub(super) fn confirm(&mut self, out: &mut BytesMut) {
        if self.confirms && self.published > self.confirmed {
            self.confirmed = self.published;
            let ack = basic::Ack {
                delivery_tag: self.confirmed,
                multiple: true,
            };
            Method::from(ack).encode(self.channel, out);
        }
    }

    /// Gives out to each consumer in turn, until enough waits to be written.
    pub(super) fn deliver(&mut self, out: &mut BytesMut, bytes_max: usize) {
        for consumer in &mut self.consumers {
            if consumer.delivery.is_none() {
                let body = self.samples.of_queue(&consumer.queue);
                consumer.delivery =
                    body.map(|body| Repeated::new(self.channel, &consumer.tag, &body, BODY_BYTES_MAX));
            }
        }
        let mut room = self.room();
        while room > 0 && out.len() < bytes_max {
            let before = self.sent;
            for consumer in &self.consumers {
                if let Some(delivery) = consumer.delivery.as_ref().filter(|_| room > 0) {
                    self.sent += 1;
                    room -= 1;
                    delivery.put(self.sent, out);
                }
            }
            if self.sent == before {
                return;
            }
        }
    }
}
