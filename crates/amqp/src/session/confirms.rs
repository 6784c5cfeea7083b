//! From outcomes of published messages to confirms for their publishers.
//!
//! Messages handed to the broker in one call form a group. Groups are confirmed in order, so an
//! acknowledgement may always cover all messages before it.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use stafett_amqp_wire::methods::{Confirm, basic, confirm};
use stafett_amqp_wire::{Method, ReplyCode};
use stafett_messaging::{PublishTicket, Published};
use stafett_net::Permit;

use super::channel::Mode;
use super::{End, Session, Trouble};
use crate::exception::Exception;

/// Channel of a published message, and its number if it is to be confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub channel: u16,
    pub number: Option<u64>,
    /// Return the message if it is unroutable.
    pub mandatory: bool,
}

/// Messages handed to the broker together.
#[derive(Debug)]
pub(crate) struct Group {
    ticket: PublishTicket,
    entries: Vec<Entry>,
    memory: Option<Permit>,
}

impl Group {
    pub(super) fn new(ticket: PublishTicket, entries: Vec<Entry>) -> Self {
        Self {
            ticket,
            entries,
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

/// Groups in the order in which they were handed to the broker.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    waiting: VecDeque<Group>,
    /// Outcomes of groups that are not confirmed yet.
    done: VecDeque<(Vec<Entry>, Vec<Published>)>,
}

impl Groups {
    pub(super) fn push(&mut self, group: Group) {
        self.waiting.push_back(group);
    }

    /// Keeps `memory` with the last group; releases it if there is no group.
    pub(super) fn keep(&mut self, memory: Permit) {
        if let Some(group) = self.waiting.back_mut() {
            group.keep(memory);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.done.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until the outcome of the oldest group is known. Safe to cancel.
    pub(crate) async fn ready(&mut self) {
        std::future::poll_fn(|cx| self.poll_ready(cx)).await;
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.done.is_empty() {
            return Poll::Ready(());
        }
        let Some(group) = self.waiting.front_mut() else {
            return Poll::Pending;
        };
        let Poll::Ready(published) = Pin::new(&mut group.ticket).poll(cx) else {
            return Poll::Pending;
        };
        if let Some(group) = self.waiting.pop_front() {
            self.done.push_back((group.entries, published));
        }
        Poll::Ready(())
    }

    /// Returns the outcome of the oldest group, if it is known now.
    fn next_done(&mut self) -> Option<(Vec<Entry>, Vec<Published>)> {
        let mut context = Context::from_waker(Waker::noop());
        match self.poll_ready(&mut context) {
            Poll::Ready(()) => self.done.pop_front(),
            Poll::Pending => None,
        }
    }
}

impl Session {
    pub(super) fn on_confirm(&mut self, number: u16, method: &Confirm) -> Result<(), Trouble> {
        let Confirm::Select(method) = method else {
            return Err(super::not_for_servers(&Method::Confirm(method.clone())));
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
        Ok(())
    }

    /// Confirms all groups at the front whose outcome is known.
    pub(crate) fn resolve_ready(&mut self) -> Result<(), End> {
        while let Some((entries, published)) = self.groups.next_done() {
            self.tell(&entries, &published)?;
        }
        Ok(())
    }

    /// Waits until everything published on this connection is stored, because the next method may depend on
    /// it.
    pub(crate) async fn settle_published(&mut self) -> Result<(), End> {
        self.flush_published()?;
        while !self.groups.is_empty() {
            self.groups.ready().await;
            self.resolve_ready()?;
        }
        Ok(())
    }

    fn tell(&mut self, entries: &[Entry], fates: &[Published]) -> Result<(), End> {
        // Channel, highest number and count of messages to acknowledge together.
        let mut acknowledged: Option<(u16, u64, u64)> = None;
        for (entry, fate) in entries.iter().zip(fates) {
            let is_good = match fate {
                Published::Stored | Published::Unroutable => true,
                Published::Refused(_) => false,
                Published::Unknown => return Err(End::OutcomeUnknown),
            };
            let Some(number) = entry.number else { continue };
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
                self.shared.metrics.refused.inc();
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
        self.shared.metrics.confirmed.inc_by(count);
        let ack = basic::Ack {
            delivery_tag: last,
            multiple: count > 1,
        };
        self.confirm(channel, ack.into());
    }

    /// Confirms a message that was not routed.
    pub(super) fn confirm_unrouted(&mut self, entry: Entry) {
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

    pub(super) fn check_exchange(&self, exchange: &str) -> Result<(), Trouble> {
        let name = &self.namespace;
        match self.shared.broker.messaging().exchanges().get(name, exchange) {
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
