//! A client: one connection with one channel, on which it publishes with confirms and consumes.

mod answers;
mod consumer;
mod transacting;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use stafett_amqp_wire::methods::{basic, channel, confirm, connection, tx};
use stafett_amqp_wire::{Method, PropertiesBuilder, TableBuilder, Value, frame};

use self::consumer::{Consumer, FILTERS};
pub(super) use self::transacting::TRANSACTIONAL;
use self::transacting::Transacting;
use super::copies::{Copies, CopyId, Made};
use super::streams::Stream;
use super::wire::{FRAME_BYTES_MAX, Incoming, encode, encode_content};
use super::{LATE, Patience, QUEUES, publish_method};
use crate::server::Server;
use crate::steps::{Message, Settling};
use crate::wire::Socket;
use crate::world::Finding;

#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) number: u8,
    vhost: &'static str,
    /// Names of its queues, by number.
    queues: &'static [&'static str],
    connection: Option<Socket>,
    incoming: Incoming,
    is_open: bool,
    /// Bytes to send once the channel is open.
    later: Vec<u8>,
    /// True after it has sent a close: it sends nothing more and ignores deliveries.
    is_closing: bool,
    /// Unconfirmed messages by their numbers on the channel.
    unconfirmed: BTreeMap<u64, usize>,
    published: u64,
    /// Number of its connection among those that publish.
    pub(super) stream: u64,
    /// Group of its records in topics, which keep their order.
    pub(super) group: u64,
    transacting: Transacting,
    /// Consumers by tag.
    consumers: BTreeMap<String, Consumer>,
    /// Consumers of streams by tag.
    pub(super) streams: BTreeMap<String, Stream>,
    /// Number of unconfirmed consumers.
    asked: u32,
    consumed: u32,
    gets: VecDeque<u8>,
    /// Unsettled messages by tag, each with its queue.
    held: BTreeMap<u64, Held>,
    settled: Vec<CopyId>,
    pub(super) declared: usize,
    /// Time until which it reads nothing.
    pub(super) paused_until_ms: i64,
}

/// An unsettled message.
#[derive(Debug, Clone, Copy)]
struct Held {
    id: CopyId,
    from: Made,
}

const PREFETCH: [u16; 4] = [0, 1, 7, 100];

impl Client {
    pub(super) fn new(number: u8) -> Self {
        Self::new_in(number, "/")
    }

    /// Creates a client of another namespace.
    pub(super) fn new_in(number: u8, vhost: &'static str) -> Self {
        Self {
            number,
            vhost,
            queues: &QUEUES,
            connection: None,
            incoming: Incoming::default(),
            is_open: false,
            later: Vec::new(),
            is_closing: false,
            unconfirmed: BTreeMap::new(),
            published: 0,
            stream: 0,
            group: 0,
            transacting: Transacting::default(),
            consumers: BTreeMap::new(),
            streams: BTreeMap::new(),
            asked: 0,
            consumed: 0,
            gets: VecDeque::new(),
            held: BTreeMap::new(),
            settled: Vec::new(),
            declared: 0,
            paused_until_ms: 0,
        }
    }

    /// Creates a client of other queues.
    pub(super) fn of_queues(number: u8, queues: &'static [&'static str]) -> Self {
        Self {
            queues,
            ..Self::new(number)
        }
    }

    /// Returns the same client without a connection.
    fn anew(&self) -> Self {
        Self {
            queues: self.queues,
            ..Self::new_in(self.number, self.vhost)
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Returns the messages that it holds, each with its queue. Those of deleted queues are left out.
    pub(super) fn held(&self, copies: &Copies) -> impl Iterator<Item = (CopyId, u8)> {
        let held = self.held.values().chain(self.held_by_transactions());
        let held = held.filter(|held| copies.is_now(held.from));
        held.map(|held| (held.id, held.from.queue))
    }

    pub(super) fn consumes(&self, queue: u8) -> bool {
        self.consumers
            .values()
            .any(|consumer| consumer.from.queue == queue)
    }

    /// True if it waits for an answer or a confirm.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_closing
            || self.is_committing()
            || self.asked > 0
            || !self.unconfirmed.is_empty()
            || !self.gets.is_empty()
            || !self.later.is_empty()
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Connects if necessary. Returns true if nothing was published on the connection.
    pub(super) fn connect(&mut self, server: &mut Server) -> Result<bool, Finding> {
        if self.connection.is_none() {
            let mut socket = server
                .connect_amqp()
                .map_err(|error| Finding(error.to_string()))?;
            socket.send(&frame::PROTOCOL_HEADER);
            self.connection = Some(socket);
        }
        Ok(self.stream == 0)
    }

    /// Handles the loss of the connection.
    pub(super) fn lose(&mut self, copies: &mut Copies, now_ms: i64) {
        self.give_all_back(copies, now_ms);
        copies.doubt(&self.settled, now_ms);
        *self = self.anew();
    }

    fn send_bytes(&mut self, bytes: &[u8]) {
        if self.is_closing {
            return;
        }
        match &mut self.connection {
            Some(socket) if self.is_open => socket.send(bytes),
            _ => self.later.extend_from_slice(bytes),
        }
    }

    pub(super) fn send(&mut self, method: impl Into<Method>) {
        self.send_bytes(&encode(1, &method.into()));
    }

    pub(super) fn publish(&mut self, number: usize, target: u8, message: Message) {
        if self.is_closing {
            return;
        }
        let Patience { ttl_ms, delay_ms } = message.patience;
        let delay = TableBuilder::new().with("x-delay", Value::I64(delay_ms.into()));
        let properties = PropertiesBuilder {
            expiration: ttl_ms.map(|ttl| ttl.to_string().into()),
            headers: (target == LATE).then(|| delay.finish()),
            delivery_mode: Some(if message.is_persistent { 2 } else { 1 }),
            priority: Some(message.priority),
            ..PropertiesBuilder::default()
        };
        let padding = "x".repeat(message.bytes as usize);
        let body = format!("{number}:0:{padding}");
        let bytes = encode_content(
            &publish_method(target).into(),
            properties.finish(),
            body.as_bytes(),
        );
        self.send_bytes(&bytes);
        if !self.is_transactional() {
            self.published += 1;
            self.unconfirmed.insert(self.published, number);
        }
    }

    /// Publishes a message with a key.
    pub(super) fn publish_with_key(&mut self, method: &Method, key: &'static str, body: &str) {
        let headers = TableBuilder::new().with("stafett-key", key).finish();
        let properties = PropertiesBuilder {
            headers: Some(headers),
            delivery_mode: Some(2),
            ..PropertiesBuilder::default()
        };
        self.send_bytes(&encode_content(method, properties.finish(), body.as_bytes()));
    }

    pub(super) fn consume(&mut self, copies: &Copies, queue: u8, now_ms: i64) {
        let Some(name) = self.queues.get(usize::from(queue)).filter(|_| !self.is_closing) else {
            return;
        };
        self.consumed += 1;
        let tag = format!("c{}", self.consumed);
        self.asked += 1;
        let turn = usize::try_from(self.consumed).unwrap_or(0) % FILTERS.len();
        let filter = FILTERS.get(turn).and_then(Option::as_ref);
        self.consumers
            .insert(tag.clone(), Consumer::new(copies, queue, filter, now_ms));
        let arguments = filter.map(|filter| {
            TableBuilder::new()
                .with("x-stafett-filter", filter.source)
                .finish()
        });
        self.send(basic::Consume {
            queue: (*name).into(),
            consumer_tag: tag.into(),
            arguments: arguments.unwrap_or_default(),
            ..basic::Consume::default()
        });
    }

    pub(super) fn get(&mut self, queue: u8) {
        let Some(name) = self.queues.get(usize::from(queue)).filter(|_| !self.is_closing) else {
            return;
        };
        self.gets.push_back(queue);
        self.send(basic::Get {
            queue: (*name).into(),
            ..basic::Get::default()
        });
    }

    pub(super) fn cancel(&mut self) {
        // Deliveries that are under way still arrive.
        let first = self.consumers.keys().next().cloned();
        if let Some(tag) = first.filter(|_| self.is_open) {
            self.send(basic::Cancel {
                consumer_tag: tag.into(),
                no_wait: false,
            });
        }
    }

    pub(super) fn close(&mut self, copies: &mut Copies, method: impl Into<Method>, now_ms: i64) {
        let method = method.into();
        if self.is_open && !self.is_closing {
            let channel = u16::from(!matches!(method, Method::Connection(_)));
            let bytes = encode(channel, &method);
            self.send_bytes(&bytes);
            self.is_closing = true;
            // It ignores deliveries from here on.
            self.give_all_back(copies, now_ms);
        }
    }

    fn give_all_back(&mut self, copies: &mut Copies, now_ms: i64) {
        for held in std::mem::take(&mut self.held).values() {
            if copies.is_now(held.from) {
                copies.give_back(held.id, self.number);
            }
        }
        self.end_transactions(copies);
        let consumed = self.consumers.values().map(|consumer| consumer.from.queue);
        for queue in consumed.chain(self.gets.iter().copied()) {
            copies.on_consumer_end(queue, now_ms);
        }
    }

    pub(super) fn settle(&mut self, copies: &mut Copies, count: u8, how: Settling, now_ms: i64) {
        if self.is_closing {
            return;
        }
        let some: Vec<_> = self
            .held
            .iter()
            .take(count.into())
            .map(|(tag, held)| (*tag, *held))
            .collect();
        let Some((last, _)) = some.last().copied() else {
            return;
        };
        if how == Settling::AckAll {
            self.send(basic::Ack {
                delivery_tag: last,
                multiple: true,
            });
        }
        for (delivery_tag, Held { id, from }) in some {
            self.held.remove(&delivery_tag);
            let dies = super::DYING.contains(&from.queue);
            match how {
                Settling::AckAll => {}
                Settling::Ack => self.send(basic::Ack {
                    delivery_tag,
                    multiple: false,
                }),
                Settling::Requeue => self.send(basic::Nack {
                    delivery_tag,
                    multiple: false,
                    requeue: true,
                }),
                Settling::Reject => self.send(basic::Reject {
                    delivery_tag,
                    requeue: false,
                }),
            }
            if self.is_transactional() {
                self.settle_in_transaction(copies, delivery_tag, Held { id, from }, how);
                continue;
            }
            match how {
                // It was deleted with its queue.
                _ if !copies.is_now(from) => {}
                Settling::Requeue => copies.give_back(id, self.number),
                // It is dead-lettered.
                Settling::Reject if dies => copies.give_back(id, self.number),
                Settling::Ack | Settling::AckAll | Settling::Reject => {
                    copies.settle(id, now_ms, self.published > 0);
                    self.settled.push(id);
                }
            }
        }
    }

    /// True while it does not read its input.
    pub(super) fn is_paused(&self, now_ms: i64) -> bool {
        now_ms < self.paused_until_ms && self.is_open
    }

    pub(super) fn turn(
        &mut self,
        copies: &mut Copies,
        may_refuse: bool,
        now_ms: i64,
        notes: &mut Vec<String>,
    ) -> Result<(), Finding> {
        if self.is_paused(now_ms) {
            return Ok(());
        }
        loop {
            let Some(socket) = &mut self.connection else {
                return Ok(());
            };
            socket.turn();
            let is_over = !socket.is_open;
            match self.incoming.next(&mut socket.input)? {
                Some((method, body)) => {
                    self.on_method(method, &body, copies, (may_refuse, now_ms), notes)?;
                    if self.is_closing && self.connection.is_none() {
                        self.lose(copies, now_ms);
                    }
                }
                None if is_over => {
                    notes.push(format!("client {} was cut off", self.number));
                    self.lose(copies, now_ms);
                }
                None => return Ok(()),
            }
        }
    }

    /// Opens another channel after its channel was closed.
    fn begin_again(&mut self, copies: &mut Copies, now_ms: i64) {
        self.give_all_back(copies, now_ms);
        let fresh = Self {
            connection: self.connection.take(),
            incoming: std::mem::take(&mut self.incoming),
            settled: std::mem::take(&mut self.settled),
            ..self.anew()
        };
        *self = fresh;
        self.open_channel();
    }

    fn open_channel(&mut self) {
        let qos = basic::Qos {
            prefetch_count: PREFETCH
                .get(usize::from(self.number) % PREFETCH.len())
                .copied()
                .unwrap_or_default(),
            ..basic::Qos::default()
        };
        let select: Method = if self.is_transactional() {
            tx::Select {}.into()
        } else {
            confirm::Select::default().into()
        };
        if let Some(socket) = &mut self.connection {
            socket.send(&encode(1, &channel::Open::default().into()));
            socket.send(&encode(1, &qos.into()));
            socket.send(&encode(1, &select));
        }
    }

    fn answer_start(&mut self) {
        let start = connection::StartOk {
            client_properties: TableBuilder::new().finish(),
            mechanism: "PLAIN".into(),
            response: Bytes::from_static(b"\0guest\0guest"),
            locale: "en_US".into(),
        };
        if let Some(socket) = &mut self.connection {
            socket.send(&encode(0, &start.into()));
        }
    }

    fn answer_tune(&mut self) {
        let tune = connection::TuneOk {
            channel_max: 10,
            frame_max: FRAME_BYTES_MAX,
            heartbeat: 0,
        };
        let open = connection::Open {
            virtual_host: self.vhost.into(),
            ..connection::Open::default()
        };
        if let Some(socket) = &mut self.connection {
            socket.send(&encode(0, &tune.into()));
            socket.send(&encode(0, &open.into()));
        }
        self.open_channel();
    }
}
