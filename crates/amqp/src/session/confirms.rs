//! From outcomes of published messages to confirms for their publishers.
//!
//! Messages handed to the broker in one call form a batch. Batches are confirmed in order, so an
//! acknowledgement may always cover all messages before it.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use stafett_amqp_wire::methods::{Confirm, basic, confirm};
use stafett_amqp_wire::{Method, ReplyCode};
use stafett_messaging::{PublishTicket, Published};
use stafett_net::Permit;

use super::channel::Mode;
use super::dispatch::not_for_servers;
use super::held::Flow;
use super::{ConnectionEnd, MethodError, Session};
use crate::exception::Exception;
use crate::operation::Operation;

/// Channel of a published message, and its number if it is to be confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PublishOrigin {
    pub channel: u16,
    pub number: Option<u64>,
    /// Return the message if it is unroutable.
    pub mandatory: bool,
}

/// Messages handed to the broker together.
#[derive(Debug)]
pub(crate) struct PublishedBatch {
    /// `None` if the messages are not routed.
    ticket: Option<PublishTicket>,
    pub origins: Vec<PublishOrigin>,
    memory: Option<Permit>,
}

impl PublishedBatch {
    pub(super) fn new(ticket: PublishTicket, origins: Vec<PublishOrigin>) -> Self {
        Self {
            ticket: Some(ticket),
            origins,
            memory: None,
        }
    }

    /// A message that is confirmed behind the batches before it, although it is not routed.
    pub(super) fn unrouted(origin: PublishOrigin) -> Self {
        Self {
            ticket: None,
            origins: vec![origin],
            memory: None,
        }
    }

    /// Keeps memory reserved until the messages are stored.
    pub(super) fn keep(&mut self, memory: Permit) {
        match &mut self.memory {
            Some(kept) => kept.merge(memory),
            none => *none = Some(memory),
        }
    }
}

/// Resolves to the outcomes of the messages.
impl Future for PublishedBatch {
    type Output = Vec<Published>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.ticket {
            Some(ticket) => Pin::new(ticket).poll(cx),
            None => Poll::Ready(vec![Published::Unroutable; self.origins.len()]),
        }
    }
}

/// Batches in the order in which they were handed to the broker.
#[derive(Debug, Default)]
pub(crate) struct PendingConfirms {
    waiting: VecDeque<PublishedBatch>,
    /// Outcomes of batches that are not confirmed yet.
    done: VecDeque<(Vec<PublishOrigin>, Vec<Published>)>,
}

impl PendingConfirms {
    pub(super) fn push(&mut self, batch: PublishedBatch) {
        self.waiting.push_back(batch);
    }

    /// Keeps `memory` with the last batch; releases it if there is none.
    pub(super) fn keep(&mut self, memory: Permit) {
        if let Some(batch) = self.waiting.back_mut() {
            batch.keep(memory);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.done.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Resolves once the outcome of the oldest batch is known.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.done.is_empty() {
            return Poll::Ready(());
        }
        let Some(batch) = self.waiting.front_mut() else {
            return Poll::Pending;
        };
        let Poll::Ready(published) = Pin::new(&mut *batch).poll(cx) else {
            return Poll::Pending;
        };
        if let Some(batch) = self.waiting.pop_front() {
            self.done.push_back((batch.origins, published));
        }
        Poll::Ready(())
    }

    /// Counts messages that wait for their confirms, by channel.
    pub(crate) fn unconfirmed(&self) -> HashMap<u16, u64> {
        let waiting = self.waiting.iter().map(|batch| &batch.origins);
        let origins = waiting.chain(self.done.iter().map(|(origins, _)| origins));
        let mut counts = HashMap::new();
        for origin in origins.flatten().filter(|origin| origin.number.is_some()) {
            *counts.entry(origin.channel).or_default() += 1;
        }
        counts
    }

    /// Returns the outcome of the oldest batch, if it is known now.
    fn next_done(&mut self) -> Option<(Vec<PublishOrigin>, Vec<Published>)> {
        let mut context = Context::from_waker(Waker::noop());
        match self.poll_ready(&mut context) {
            Poll::Ready(()) => self.done.pop_front(),
            Poll::Pending => None,
        }
    }
}

impl Session {
    pub(super) fn on_confirm(&mut self, number: u16, method: &Confirm) -> Result<Flow, MethodError> {
        let Confirm::Select(method) = method else {
            return Err(not_for_servers());
        };
        let channel = self.channel(number)?;
        match channel.mode {
            Mode::Plain => channel.mode = Mode::Confirms { last: 0 },
            Mode::Confirms { .. } => {}
            Mode::Transactions(_) => {
                return Err(Exception::precondition("cannot switch from tx to confirm mode").into());
            }
        }
        if !method.no_wait {
            self.out.send(number, confirm::SelectOk {});
        }
        Ok(Flow::Continue)
    }

    /// Confirms all batches at the front whose outcome is known.
    pub(crate) fn resolve_ready(&mut self) -> Result<(), ConnectionEnd> {
        while let Some((entries, published)) = self.confirms.next_done() {
            self.send_confirms(&entries, &published)?;
        }
        Ok(())
    }

    /// Returns the next operation on the way to a state in which everything published on this connection is
    /// stored, because the next method may depend on it.
    pub(super) fn await_publishes(&mut self) -> Result<Option<Operation>, ConnectionEnd> {
        self.flush_published()?;
        self.resolve_ready()?;
        Ok(self.confirms.waiting.pop_front().map(Operation::AwaitPublished))
    }

    pub(super) fn send_confirms(
        &mut self,
        entries: &[PublishOrigin],
        fates: &[Published],
    ) -> Result<(), ConnectionEnd> {
        // Channel, highest number and count of messages to acknowledge together.
        let mut acknowledged: Option<(u16, u64, u64)> = None;
        for (entry, fate) in entries.iter().zip(fates) {
            let is_good = match fate {
                Published::Stored | Published::Unroutable => true,
                Published::Refused(_) => false,
                Published::Unknown => return Err(ConnectionEnd::OutcomeUnknown),
            };
            let Some(number) = entry.number else {
                continue;
            };
            if is_good {
                match &mut acknowledged {
                    Some((channel, last, count)) if *channel == entry.channel => {
                        *last = number;
                        *count += 1;
                    }
                    other => {
                        let before = other.replace((entry.channel, number, 1));
                        self.acknowledge(before);
                    }
                }
            } else {
                let before = acknowledged.take();
                self.acknowledge(before);
                self.context.metrics.refused.inc();
                let nack = basic::Nack {
                    delivery_tag: number,
                    multiple: false,
                    requeue: false,
                };
                self.confirm(entry.channel, nack.into());
            }
        }
        self.acknowledge(acknowledged);
        Ok(())
    }

    fn acknowledge(&mut self, what: Option<(u16, u64, u64)>) {
        let Some((channel, last, count)) = what else {
            return;
        };
        self.context.metrics.confirmed.inc_by(count);
        let ack = basic::Ack {
            delivery_tag: last,
            multiple: count > 1,
        };
        self.confirm(channel, ack.into());
    }

    /// Confirms a message that was not routed.
    pub(super) fn confirm_unrouted(&mut self, entry: PublishOrigin) {
        if let Some(number) = entry.number {
            self.acknowledge(Some((entry.channel, number, 1)));
        }
    }

    fn confirm(&mut self, channel: u16, method: Method) {
        if self
            .channels
            .get(&channel)
            .is_some_and(|channel| !channel.closing)
        {
            self.out.send(channel, method);
        }
    }

    pub(super) fn check_exchange(&self, exchange: &str) -> Result<(), MethodError> {
        let name = &self.namespace;
        match self.context.exchanges().get(name, exchange) {
            Some(found) if found.is.internal => Err(Exception::new(
                ReplyCode::AccessRefused,
                format!("cannot publish to internal exchange '{exchange}' in vhost '{name}'"),
            )
            .into()),
            Some(_) => Ok(()),
            None => Err(Exception::not_found(format!("no exchange '{exchange}' in vhost '{name}'")).into()),
        }
    }
}
