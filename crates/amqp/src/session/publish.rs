//! Published messages: gathered while frames arrive, handed to the broker per exchange, and remembered until
//! their outcome is known.

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use stafett_access::Rate;
use stafett_amqp_wire::methods::basic;
use stafett_amqp_wire::{ContentHeader, Encoder, FrameKind, Properties, ReplyCode};
use stafett_messaging::{Publish, PublishError};

use stafett_model::Message;
use stafett_store::wall_ms;
use tokio::time::Instant;

use super::assembly::Content;
use super::channel::Mode;
use super::confirms::{PublishOrigin, PublishedBatch};
use super::repeat_publish::RepeatPublish;
use super::{ConnectionEnd, MethodError, Session};
use crate::content::{self, Incoming, Publisher};
use crate::exception::{Exception, Scope};
use crate::metrics::Counted;

/// Number of unconfirmed batches at which reading pauses.
const BATCHES_MAX: usize = 256;
/// Maximum number of messages for which room is allocated in advance.
const GATHERED_AHEAD: usize = 1024;

/// Consecutive messages to one exchange that are not handed to the broker yet.
#[derive(Debug)]
pub(crate) struct PendingPublish {
    exchange: ByteString,
    pub(super) entries: Vec<PublishOrigin>,
    /// None if they are refused.
    pub(super) messages: Vec<Publish>,
    /// True if the messages waited too long.
    pub(super) is_refused: bool,
}

impl Session {
    /// Decides whether messages that were just read are published, where a listener may refuse them.
    pub(crate) fn begin_intake(&mut self) {
        self.refuses = self.intake.is_used() && self.intake.refuses(Instant::now(), self.confirms.oldest());
        if let Some((_, begun)) = &mut self.trace {
            *begun = Instant::now();
        }
    }

    /// Notes whether something is left to read or to execute (`has_more`).
    pub(crate) fn end_intake(&mut self, has_more: bool) {
        if has_more {
            self.intake.on_left(Instant::now());
        } else {
            self.intake.on_drained();
        }
        self.intake.set_requests(self.confirms.messages());
    }

    pub(crate) fn has_unconfirmed(&self) -> bool {
        !self.confirms.is_empty()
    }

    /// Returns true if nothing more should be read until earlier messages are stored.
    pub(crate) fn is_full(&self) -> bool {
        self.confirms.len() >= BATCHES_MAX
    }

    pub(super) fn on_published(&mut self, number: u16, content: Content) -> Result<(), MethodError> {
        let (mandatory, bytes) = (content.publish.mandatory, content.body.len());
        let properties = content.properties.as_bytes().clone();
        let incoming = self.receive(number, content)?;
        let confirm = match &mut self.channel(number)?.mode {
            Mode::Confirms { last } => {
                *last += 1;
                Some(*last)
            }
            Mode::Plain => None,
            Mode::Transactions(held) => {
                // Their memory is not that of the turn: they have their own bound.
                held.bytes += bytes;
                held.messages.push((mandatory, incoming));
                self.charge_published(1, bytes);
                return self.check_transaction(number);
            }
        };
        if super::replies::is_direct_reply(&incoming) {
            return self.reply(number, confirm, mandatory, incoming);
        }
        self.is_waited_for |= confirm.is_some();
        let entry = PublishOrigin {
            channel: number,
            number: confirm,
            mandatory,
        };
        if self.refuses {
            return self.refuse(entry, incoming, properties);
        }
        // The route of a message with a reply address depends on more than the message.
        let is_plain = incoming.more_keys.is_empty() && !incoming.properties.has_reply_to();
        self.repeat = is_plain.then_some(RepeatPublish {
            channel: number,
            mandatory,
            properties,
            refused: None,
        });
        self.gather(entry, incoming);
        Ok(())
    }

    /// Refuses a message that waited too long, behind those before it.
    fn refuse(
        &mut self,
        entry: PublishOrigin,
        incoming: Incoming,
        properties: Bytes,
    ) -> Result<(), MethodError> {
        if entry.number.is_none() {
            self.intake.refused("publish", 1);
            // Without confirms there is no other way to tell it.
            let text = "requests wait too long, and messages without confirms cannot be refused one by one";
            let exception = Exception::new(ReplyCode::ResourceError, text);
            return Err(exception.ending(Scope::Channel).into());
        }
        let message = Message {
            value: Bytes::new(),
            ..incoming.message
        };
        match self.gathered.last_mut() {
            Some(run) if run.is_refused => run.entries.push(entry),
            _ => self.gathered.push(PendingPublish {
                exchange: message.exchange.clone(),
                entries: vec![entry],
                messages: Vec::new(),
                is_refused: true,
            }),
        }
        self.repeat = Some(RepeatPublish {
            channel: entry.channel,
            mandatory: entry.mandatory,
            properties,
            refused: Some(message),
        });
        Ok(())
    }

    /// Checks and converts a published message.
    fn receive(&mut self, number: u16, mut content: Content) -> Result<Incoming, MethodError> {
        let basic::Publish {
            exchange, immediate, ..
        } = &content.publish;
        if *immediate {
            return Err(Exception::new(ReplyCode::NotImplemented, "immediate=true").into());
        }
        if exchange.is_empty() {
            self.check_write(exchange)?;
        } else if self.checked_exchange.as_ref() != Some(exchange) {
            self.check_write(exchange)?;
            self.check_exchange(exchange)?;
            self.checked_exchange = Some(exchange.clone());
        }
        if let Some(memory) = content.memory.take() {
            self.add_memory(memory);
        }
        let publisher = Publisher {
            user: &self.agreed.user,
            now_ms: *self.turn_ms.get_or_insert_with(wall_ms),
        };
        let mut incoming = content::receive(content, publisher)?;
        self.check_keys(&incoming)?;
        self.fill_reply_address(number, &mut incoming)?;
        Ok(incoming)
    }

    fn gather(&mut self, entry: PublishOrigin, incoming: Incoming) {
        let Incoming {
            message, more_keys, ..
        } = incoming;
        if self
            .gathered
            .last()
            .is_none_or(|last| last.is_refused || last.exchange != message.exchange)
        {
            // Room for as many messages as in the last turn; none if the client switches between exchanges.
            let expected = if self.gathered.is_empty() {
                self.gathered_before
            } else {
                0
            };
            self.gathered.push(PendingPublish {
                exchange: message.exchange.clone(),
                entries: Vec::with_capacity(expected),
                messages: Vec::with_capacity(expected),
                is_refused: false,
            });
        }
        if let Some(last) = self.gathered.last_mut() {
            last.entries.push(entry);
            last.messages.push(Publish { message, more_keys });
        }
    }

    /// Hands the gathered messages to the broker: one call for each run of messages to the same exchange.
    pub(crate) fn flush_published(&mut self) -> Result<(), ConnectionEnd> {
        self.checked_exchange = None;
        self.repeat = None;
        if self.gathered.is_empty() {
            return Ok(());
        }
        let mut gathered = std::mem::take(&mut self.gathered);
        self.gathered_before = gathered
            .first()
            .map_or(0, |first| first.messages.len().min(GATHERED_AHEAD));
        for run in gathered.drain(..) {
            self.publish_run(run);
        }
        self.gathered = gathered;
        self.end_without_namespace()?;
        if let Some(memory) = self.memory.take() {
            self.confirms.keep(memory);
        }
        self.resolve_ready()
    }

    fn publish_run(&mut self, run: PendingPublish) {
        let PendingPublish {
            exchange,
            entries,
            mut messages,
            is_refused,
        } = run;
        if is_refused {
            self.intake.refused("publish", entries.len() as u64);
            self.confirms.push(PublishedBatch::refused(entries));
            return;
        }
        let since = self.intake.is_used().then(Instant::now);
        let count = messages.len();
        let sizes = messages.iter().map(|publish| publish.message.value.len());
        let taken: usize = sizes.sum();
        let bytes = taken as u64;
        self.charge_published(count, taken);
        self.context.metrics.published.inc_by(messages.len() as u64);
        self.context.metrics.published_bytes.inc_by(bytes);
        self.count_run(&entries, &messages);
        match self
            .context
            .broker
            .messaging()
            .publish_from(&self.namespace, &exchange, &mut messages)
        {
            Ok(mut ticket) => {
                for (index, unroutable) in ticket.take_unroutable() {
                    if let Some(entry) = entries.get(index).filter(|entry| entry.mandatory) {
                        self.return_message(entry.channel, unroutable.message);
                    }
                }
                let batch = PublishedBatch::new(ticket, entries);
                let trace = self.trace.as_ref();
                let traced = trace.and_then(|(trace, begun)| trace.begin(*begun, count, bytes));
                self.confirms.push(batch.begun(since).traced(traced));
            }
            Err(PublishError::NoSuchNamespace) => self.namespace_is_gone = true,
            // The exchange was there when the messages were accepted, and went with its bindings before they
            // were routed. As in RabbitMQ, such messages are unroutable.
            Err(PublishError::NoSuchExchange | PublishError::Internal) => {
                for (entry, unroutable) in entries.into_iter().zip(messages) {
                    if entry.mandatory {
                        self.return_message(entry.channel, unroutable.message);
                    }
                    self.confirm_unrouted(entry);
                }
            }
        }
    }

    fn charge_published(&mut self, count: usize, bytes: usize) {
        self.charge(Rate::Produced, bytes);
        if !self.agreed.is_internal {
            self.charge(Rate::Requests, count);
        }
    }

    /// Counts publishers, messages to be confirmed, and sizes.
    fn count_run(&mut self, entries: &[PublishOrigin], messages: &[Publish]) {
        let metrics = &self.context.metrics;
        let to_confirm = entries.iter().filter(|entry| entry.number.is_some()).count();
        metrics.published_to_confirm.inc_by(to_confirm as u64);
        metrics.on_sizes(messages.iter().map(|publish| publish.message.value.len()));
        for run in entries.chunk_by(|one, other| one.channel == other.channel) {
            let channel = run
                .first()
                .and_then(|entry| self.channels.get_mut(&entry.channel));
            if let Some(channel) = channel.filter(|channel| channel.publisher.is_none()) {
                channel.publisher = Some(Counted::in_gauge(&metrics.publishers));
            }
        }
    }

    /// Returns an unroutable message to its publisher.
    pub(super) fn return_message(&mut self, channel: u16, message: Message) {
        if self.channels.get(&channel).is_none_or(|channel| channel.closing) {
            return;
        }
        self.context.metrics.returned.inc();
        let properties = content::properties_of(&message);
        let method = basic::Return {
            reply_code: ReplyCode::NoRoute.code(),
            reply_text: ReplyCode::NoRoute.name().into(),
            exchange: message.exchange,
            routing_key: message.routing_key,
        };
        self.out.send(channel, method);
        self.write_content(channel, &properties, message.value);
    }

    /// Writes a content header and a body.
    pub(super) fn write_content(&mut self, channel: u16, properties: &Properties, body: Bytes) {
        let header = ContentHeader {
            body_size: body.len() as u64,
            properties: properties.clone(),
        };
        let tail: &mut BytesMut = self.out.tail();
        Encoder::frame(tail, FrameKind::Header, channel, |e| header.encode(e));
        self.out.body(channel, body, self.agreed.frame_bytes_max);
    }
}

#[cfg(test)]
mod tests {
    use crate::churn::Churn;
    use std::sync::Arc;

    use prometheus_client::registry::Registry;
    use stafett_amqp_wire::methods::{Basic, confirm};
    use stafett_amqp_wire::{Frame, Method, frame};
    use stafett_broker::{Broker, BrokerSettings};
    use stafett_journal::MemoryJournal;
    use stafett_messaging::NewExchange;
    use stafett_model::Namespace;
    use stafett_net::{BudgetSettings, ByteBudget};
    use stafett_routing::ExchangeKind;

    use super::*;
    use crate::context::AmqpContext;
    use crate::handshake::{Agreed, ClientProperties};
    use crate::metrics::Metrics;
    use crate::output::Output;
    use stafett_access::Caller;

    use crate::session::replies::Addresses;
    use crate::settings::AmqpSettings;

    async fn session() -> Session {
        let journal = Arc::new(MemoryJournal::new());
        let broker = Broker::start(journal, BrokerSettings::default()).await.unwrap();
        let context = AmqpContext {
            broker: Arc::new(broker),
            settings: AmqpSettings::default(),
            metrics: Metrics::register(&mut Registry::default()),
            replies: Addresses::default(),
            churn: Churn::default(),
            homes: std::sync::OnceLock::new(),
        };
        let agreed = Agreed {
            user: "guest".into(),
            mechanism: "PLAIN".into(),
            client: ClientProperties::default(),
            channels_max: 10,
            frame_bytes_max: 131_072,
            heartbeat: std::time::Duration::ZERO,
            virtual_host: Namespace::DEFAULT.into(),
            is_internal: false,
        };
        let budget = ByteBudget::new(BudgetSettings { bytes: 1 << 20 });
        let caller = Arc::new(Caller::internal());
        Session::new(Arc::new(context), agreed, caller, budget, Output::default())
    }

    fn receive(session: &mut Session, mut bytes: BytesMut) {
        while let Some(frame) = frame::split(&mut bytes, 0).unwrap() {
            session.on_frame(frame).unwrap();
        }
    }

    fn publish(mandatory: bool, body: &'static [u8], out: &mut BytesMut) {
        let publish = basic::Publish {
            exchange: "short-lived".into(),
            routing_key: "key".into(),
            mandatory,
            ..basic::Publish::default()
        };
        Method::from(publish).encode(1, out);
        let header = ContentHeader {
            body_size: body.len() as u64,
            properties: Properties::NONE,
        };
        Encoder::frame(out, FrameKind::Header, 1, |e| header.encode(e));
        Encoder::frame(out, FrameKind::Body, 1, |e| e.raw(body));
    }

    /// Returns the frames that wait to be written.
    async fn sent(session: &mut Session) -> Vec<Frame> {
        let mut bytes = Vec::new();
        session.out.write_all(&mut bytes).await.unwrap();
        let mut bytes = BytesMut::from(&bytes[..]);
        std::iter::from_fn(|| frame::split(&mut bytes, 0).unwrap()).collect()
    }

    #[tokio::test]
    async fn mandatory_messages_of_an_exchange_that_goes_before_they_are_routed_come_back() {
        let mut session = session().await;
        let broker = Arc::clone(&session.context.broker);
        let exchanges = broker.messaging().exchanges();
        let (namespace, name) = (Namespace::default(), "short-lived");
        let new = NewExchange::new(ExchangeKind::FanOut);
        exchanges.declare(&namespace, name, new).unwrap().1.await.unwrap();
        let mut bytes = BytesMut::new();
        Method::from(stafett_amqp_wire::methods::channel::Open::default()).encode(1, &mut bytes);
        Method::from(confirm::Select::default()).encode(1, &mut bytes);
        publish(true, b"first", &mut bytes);
        publish(false, b"second", &mut bytes);
        publish(true, b"third", &mut bytes);
        receive(&mut session, bytes);
        exchanges.delete(&namespace, name, false).unwrap().await.unwrap();
        session.finish_turn().unwrap();
        let mut seen = Vec::new();
        for frame in sent(&mut session).await {
            match FrameKind::of(frame.kind).unwrap() {
                FrameKind::Method => match Method::decode(frame.payload).unwrap() {
                    Method::Basic(Basic::Return(back)) => {
                        assert_eq!(back.reply_code, ReplyCode::NoRoute.code());
                        assert_eq!((&*back.exchange, &*back.routing_key), (name, "key"));
                    }
                    Method::Basic(Basic::Ack(ack)) => seen.push(format!("ack {}", ack.delivery_tag)),
                    Method::Channel(_) | Method::Confirm(_) => {}
                    other @ (Method::Connection(_)
                    | Method::Access(_)
                    | Method::Exchange(_)
                    | Method::Queue(_)
                    | Method::Basic(_)
                    | Method::Tx(_)) => panic!("{other:?}"),
                },
                FrameKind::Body => seen.push(String::from_utf8_lossy(&frame.payload).into_owned()),
                FrameKind::Header | FrameKind::Heartbeat => {}
            }
        }
        assert_eq!(seen, ["first", "ack 1", "ack 2", "third", "ack 3"]);
    }
}
