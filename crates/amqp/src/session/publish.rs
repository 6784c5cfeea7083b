//! What a client publishes: gathered while frames come in, handed to the broker per exchange, and remembered
//! until the broker says what became of it.

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use stafett_amqp_wire::methods::basic;
use stafett_amqp_wire::{ContentHeader, Encoder, FrameKind, Properties, ReplyCode};
use stafett_messaging::exchanges::{Publish, PublishError};

use stafett_model::Message;

use super::again::Again;
use super::assembly::Content;
use super::channel::Mode;
use super::confirms::{Entry, Group};
use super::{End, Session, Trouble};
use crate::clock::now_ms;
use crate::content::{self, Incoming, Publisher};
use crate::exception::Exception;

/// Publishing stops for a moment when so much waits for the broker.
const GROUPS_MAX: usize = 256;
/// Messages that room is made for before they come.
const GATHERED_AHEAD: usize = 1024;

/// Messages to one exchange that were received one behind the other and not handed to the broker yet.
#[derive(Debug)]
pub(crate) struct Gathered {
    exchange: ByteString,
    pub(super) entries: Vec<Entry>,
    pub(super) messages: Vec<Publish>,
}

impl Session {
    pub(crate) fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Whether no more should be read before something is stored.
    pub(crate) fn is_full(&self) -> bool {
        self.groups.len() >= GROUPS_MAX
    }

    pub(super) async fn on_published(&mut self, number: u16, content: Content) -> Result<(), Trouble> {
        let channel = self.channel(number)?;
        if let Mode::Transactions(transaction) = &mut channel.mode {
            transaction.bytes += content.body.len();
            // Content that waits for a commit has a bound of its own: a holder of memory must not wait for
            // more.
            transaction.contents.push(Content {
                memory: None,
                ..content
            });
            return self.check_transaction(number);
        }
        self.publish(number, content).await
    }

    pub(super) async fn publish(&mut self, number: u16, content: Content) -> Result<(), Trouble> {
        let basic::Publish {
            exchange,
            mandatory,
            immediate,
            ..
        } = &content.publish;
        let mandatory = *mandatory;
        if *immediate {
            return Err(Exception::new(ReplyCode::NotImplemented, "immediate=true").into());
        }
        if !exchange.is_empty() && self.checked_exchange.as_ref() != Some(exchange) {
            self.check_exchange(exchange)?;
            self.checked_exchange = Some(exchange.clone());
        }
        let mut content = content;
        if let Some(memory) = content.memory.take() {
            self.add_memory(memory);
        }
        let publisher = Publisher {
            user: &self.agreed.user,
            now_ms: *self.turn_ms.get_or_insert_with(now_ms),
        };
        let properties = content.properties.as_bytes().clone();
        let mut incoming = content::receive(content, publisher)?;
        let channel = self.channel(number)?;
        let confirm = match &mut channel.mode {
            Mode::Confirms { last } => {
                *last += 1;
                Some(*last)
            }
            Mode::Plain | Mode::Transactions(_) => None,
        };
        self.fill_reply_address(number, &mut incoming)?;
        if super::replies::is_direct_reply(&incoming) {
            return self.reply(number, confirm, mandatory, incoming).await;
        }
        self.is_waited_for |= confirm.is_some();
        let entry = Entry {
            channel: number,
            number: confirm,
            mandatory,
        };
        // Where an answer goes depends on more than what was sent.
        let is_as_it_came = incoming.more_keys.is_empty() && !incoming.properties.has_reply_to();
        self.again = is_as_it_came.then_some(Again {
            channel: number,
            mandatory,
            properties,
        });
        self.gather(entry, incoming);
        Ok(())
    }

    fn gather(&mut self, entry: Entry, incoming: Incoming) {
        let Incoming {
            message, more_keys, ..
        } = incoming;
        if self
            .gathered
            .last()
            .is_none_or(|last| last.exchange != message.exchange)
        {
            // As many as the last time, or few where the client goes from one exchange to another.
            let expected = if self.gathered.is_empty() {
                self.gathered_before
            } else {
                0
            };
            self.gathered.push(Gathered {
                exchange: message.exchange.clone(),
                entries: Vec::with_capacity(expected),
                messages: Vec::with_capacity(expected),
            });
        }
        if let Some(last) = self.gathered.last_mut() {
            last.entries.push(entry);
            last.messages.push(Publish { message, more_keys });
        }
    }

    /// Hands what was gathered to the broker: one call for each run of messages to the same exchange.
    pub(crate) fn flush_published(&mut self) -> Result<(), End> {
        self.checked_exchange = None;
        self.again = None;
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
            self.groups.keep(memory);
        }
        self.resolve_ready()
    }

    fn publish_run(&mut self, run: Gathered) {
        let Gathered {
            exchange,
            entries,
            messages,
        } = run;
        let bytes = messages
            .iter()
            .map(|publish| publish.message.value.len() as u64)
            .sum();
        self.shared.metrics.published.inc_by(messages.len() as u64);
        self.shared.metrics.published_bytes.inc_by(bytes);
        match self
            .shared
            .broker
            .messaging()
            .publish(&self.namespace, &exchange, messages)
        {
            Ok(mut ticket) => {
                for (index, unroutable) in ticket.take_unroutable() {
                    if let Some(entry) = entries.get(index).filter(|entry| entry.mandatory) {
                        self.return_message(entry.channel, unroutable.message);
                    }
                }
                self.groups.push(Group::new(ticket, entries));
            }
            Err(PublishError::NoSuchNamespace) => self.namespace_is_gone = true,
            // It was there when the messages came, and has gone with them.
            Err(PublishError::NoSuchExchange | PublishError::Internal) => {
                for entry in entries {
                    self.confirm_unrouted(entry);
                }
            }
        }
    }

    /// Gives a message back that leads nowhere.
    pub(super) fn return_message(&mut self, channel: u16, message: Message) {
        if self.channels.get(&channel).is_none_or(|channel| channel.closing) {
            return;
        }
        self.shared.metrics.returned.inc();
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

    /// A content header and a body.
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
