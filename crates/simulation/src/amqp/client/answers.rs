//! Frames that come from the broker.

use bytes::Bytes;
use stafett_amqp_wire::Method;
use stafett_amqp_wire::methods::{
    Basic, Channel, Confirm, Connection, Exchange, Queue, Tx, channel, connection,
};

use super::super::copies::{Copies, Made};
use super::super::streams::is_gone;
use super::super::wire::encode;
use super::{Client, Held};
use crate::world::Finding;

impl Client {
    fn on_connection_close(
        &mut self,
        close: &connection::Close,
        copies: &mut Copies,
        (may_refuse, now_ms): (bool, i64),
    ) -> Result<(), Finding> {
        // On a full disk there may be no space for a namespace either.
        let is_refused = [530, 541].contains(&close.reply_code) && may_refuse;
        if close.reply_code != 320 && !is_refused {
            return Err(Finding(format!("the connection was closed: {close:?}")));
        }
        self.is_closing = true;
        self.give_all_back(copies, now_ms);
        if let Some(socket) = &mut self.connection {
            socket.send(&encode(0, &connection::CloseOk {}.into()));
        }
        Ok(())
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a client ignores what it does not wait for"
    )]
    pub(super) fn on_method(
        &mut self,
        method: Method,
        body: &Bytes,
        copies: &mut Copies,
        (may_refuse, now_ms): (bool, i64),
        notes: &mut Vec<String>,
    ) -> Result<(), Finding> {
        match method {
            Method::Connection(Connection::Start(_)) => self.answer_start(),
            Method::Connection(Connection::Tune(_)) => self.answer_tune(),
            Method::Connection(Connection::CloseOk(_)) => self.connection = None,
            Method::Channel(Channel::CloseOk(_)) => self.begin_again(copies, now_ms),
            Method::Basic(Basic::CancelOk(cancelled)) => {
                if let Some(consumer) = self.consumers.remove(&*cancelled.consumer_tag) {
                    copies.on_consumer_end(consumer.from.queue, now_ms);
                }
            }
            Method::Basic(Basic::ConsumeOk(begun)) => match self.streams.get_mut(&*begun.consumer_tag) {
                Some(stream) => stream.confirm(),
                None => self.asked = self.asked.saturating_sub(1),
            },
            Method::Tx(Tx::CommitOk(_)) => self.on_committed(copies, now_ms, notes)?,
            Method::Confirm(Confirm::SelectOk(_)) | Method::Tx(Tx::SelectOk(_)) => {
                self.is_open = true;
                let later = std::mem::take(&mut self.later);
                self.send_bytes(&later);
            }
            Method::Queue(
                Queue::DeclareOk(_)
                | Queue::BindOk(_)
                | Queue::UnbindOk(_)
                | Queue::PurgeOk(_)
                | Queue::DeleteOk(_),
            )
            | Method::Exchange(Exchange::DeclareOk(_) | Exchange::DeleteOk(_)) => {
                self.declared += 1;
            }
            Method::Connection(Connection::Close(close)) => {
                notes.push(format!(
                    "client {} is told to go: {}",
                    self.number, close.reply_text
                ));
                self.on_connection_close(&close, copies, (may_refuse, now_ms))?;
            }
            Method::Channel(Channel::Close(close)) if !self.streams.is_empty() && is_gone(&close) => {
                self.lose(copies, now_ms);
            }
            Method::Channel(Channel::Close(close)) if self.is_transactional() => {
                notes.push(format!("client {}: {}", self.number, close.reply_text));
                self.on_commit_refused(&close, copies, may_refuse)?;
                if let Some(socket) = &mut self.connection {
                    socket.send(&encode(1, &channel::CloseOk {}.into()));
                }
                // If both sides close the channel, the answer to its own comes next.
                if !self.is_closing {
                    self.begin_again(copies, now_ms);
                }
            }
            Method::Channel(Channel::Close(close)) => {
                return Err(Finding(format!("the channel was closed: {close:?}")));
            }
            Method::Basic(basic) => self.on_basic(basic, body, copies, (may_refuse, now_ms), notes)?,
            _ => {}
        }
        Ok(())
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a client ignores what it does not wait for"
    )]
    fn on_basic(
        &mut self,
        method: Basic,
        body: &Bytes,
        copies: &mut Copies,
        (may_refuse, now_ms): (bool, i64),
        notes: &mut Vec<String>,
    ) -> Result<(), Finding> {
        match method {
            Basic::Ack(ack) => {
                for number in self.confirmed(ack.delivery_tag, ack.multiple) {
                    notes.push(format!("message {number} is confirmed"));
                    copies.confirm(number)?;
                }
            }
            Basic::Nack(nack) => {
                for number in self.confirmed(nack.delivery_tag, nack.multiple) {
                    if !may_refuse {
                        return Err(Finding(format!("message {number} was refused")));
                    }
                    notes.push(format!("message {number} is refused"));
                    // A failed journal cannot tell whether it is stored.
                }
            }
            Basic::Deliver(deliver) if self.streams.contains_key(&*deliver.consumer_tag) => {
                if let Some(stream) = self.streams.get_mut(&*deliver.consumer_tag) {
                    stream.take(&self.incoming.properties, body)?;
                }
                self.ack_stream(deliver.delivery_tag);
            }
            Basic::Deliver(deliver) if !self.is_closing => {
                let consumer = self.consumers.get(&*deliver.consumer_tag);
                let from = consumer.map(|consumer| consumer.from);
                let from = from.ok_or_else(|| Finding(format!("nobody consumes as {deliver:?}")))?;
                let (tag, redelivered) = (deliver.delivery_tag, deliver.redelivered);
                let number = self.on_message(from, (tag, redelivered), body, copies, now_ms, notes)?;
                let priority = self.incoming.properties.read().priority;
                if let Some(consumer) = self.consumers.get_mut(&*deliver.consumer_tag) {
                    consumer.check_filter(number, priority)?;
                    if !redelivered {
                        consumer.on_first(copies, number)?;
                    }
                }
            }
            Basic::GetOk(got) if !self.is_closing => {
                let queue = self.gets.pop_front();
                let queue = queue.ok_or_else(|| Finding("a message that nobody asked for".to_owned()))?;
                let from = copies.now(queue);
                let (tag, redelivered) = (got.delivery_tag, got.redelivered);
                self.on_message(from, (tag, redelivered), body, copies, now_ms, notes)?;
            }
            Basic::GetEmpty(_) => drop(self.gets.pop_front()),
            _ => {}
        }
        Ok(())
    }

    /// Processes a message and returns its number.
    fn on_message(
        &mut self,
        from: Made,
        (tag, redelivered): (u64, bool),
        body: &Bytes,
        copies: &mut Copies,
        now_ms: i64,
        notes: &mut Vec<String>,
    ) -> Result<usize, Finding> {
        let (number, _) =
            crate::kafka::id_of(body).ok_or_else(|| Finding("a message that nobody sent".to_owned()))?;
        notes.push(format!(
            "client {} gets message {number} from {from:?}, {redelivered}",
            self.number
        ));
        let id = if copies.is_now(from) {
            copies.deliver(number, from.queue, self.number, redelivered, now_ms)?
        } else {
            // Its queue was deleted meanwhile.
            (number, from.queue)
        };
        if self.held.insert(tag, Held { id, from }).is_some() {
            return Err(Finding(format!("tag {tag} was used twice")));
        }
        Ok(number)
    }

    /// Returns the messages that a confirm covers.
    fn confirmed(&mut self, tag: u64, multiple: bool) -> Vec<usize> {
        if !multiple {
            return self.unconfirmed.remove(&tag).into_iter().collect();
        }
        let rest = self.unconfirmed.split_off(&(tag + 1));
        std::mem::replace(&mut self.unconfirmed, rest)
            .into_values()
            .collect()
    }
}
