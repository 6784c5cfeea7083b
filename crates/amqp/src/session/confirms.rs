//! From outcomes of published messages to confirms for their publishers.
//!
//! Messages handed to the broker in one call form a batch. Batches are confirmed in order, so an
//! acknowledgement may always cover all messages before it.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use stafett_amqp_wire::methods::{Confirm, basic, confirm};
use stafett_amqp_wire::{Method, ReplyCode};
use stafett_messaging::{PublishRefusal, PublishTicket, Published};
use stafett_net::Permit;
use tokio::time::Instant;

use super::channel::Mode;
use super::dispatch::not_for_servers;
use super::held::Flow;
use super::{ConnectionEnd, MethodError, Session};
use crate::exception::Exception;
use crate::operation::Operation;
use crate::traced::TracedBatch;

/// Outcome of a message that waited too long. Publishers are not told the reason of a refusal.
const TOO_LATE: Published = Published::Refused(PublishRefusal::QueueFull);

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
    /// Refused because they waited too long.
    is_refused: bool,
    /// When it was handed over, where that matters.
    since: Option<Instant>,
    /// `None` if it is not written to the performance log.
    traced: Option<Box<TracedBatch>>,
    pub origins: Vec<PublishOrigin>,
    memory: Option<Permit>,
}

impl PublishedBatch {
    pub(super) fn new(ticket: PublishTicket, origins: Vec<PublishOrigin>) -> Self {
        Self {
            ticket: Some(ticket),
            is_refused: false,
            since: None,
            traced: None,
            origins,
            memory: None,
        }
    }

    /// A message that is confirmed behind the batches before it, although it is not routed.
    pub(super) fn unrouted(origin: PublishOrigin) -> Self {
        Self {
            ticket: None,
            is_refused: false,
            since: None,
            traced: None,
            origins: vec![origin],
            memory: None,
        }
    }

    /// Messages that are refused behind the batches before them.
    pub(super) fn refused(origins: Vec<PublishOrigin>) -> Self {
        Self {
            ticket: None,
            is_refused: true,
            since: None,
            traced: None,
            origins,
            memory: None,
        }
    }

    /// Notes when it was handed over.
    pub(super) fn begun(mut self, since: Option<Instant>) -> Self {
        self.since = since;
        self
    }

    /// Has it written to the performance log when its outcome is known.
    pub(super) fn traced(mut self, traced: Option<Box<TracedBatch>>) -> Self {
        self.traced = traced;
        self
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
        if let Some(ticket) = &mut self.ticket {
            let outcomes = ready!(Pin::new(ticket).poll(cx));
            if let Some(traced) = self.traced.take() {
                traced.write(&outcomes);
            }
            return Poll::Ready(outcomes);
        }
        let fate = if self.is_refused {
            TOO_LATE
        } else {
            Published::Unroutable
        };
        Poll::Ready(vec![fate; self.origins.len()])
    }
}

/// Consecutive messages of a channel that are answered together.
struct ConfirmRun {
    channel: u16,
    is_good: bool,
    last: u64,
    count: u64,
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

    /// Returns when the oldest batch was handed over that is not stored yet, where that is noted.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.waiting.iter().find_map(|batch| batch.since)
    }

    /// Returns the number of messages without an outcome.
    pub(crate) fn messages(&self) -> usize {
        self.waiting.iter().map(|batch| batch.origins.len()).sum()
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
        let mut run: Option<ConfirmRun> = None;
        for (entry, fate) in entries.iter().zip(fates) {
            let is_good = match fate {
                Published::Stored | Published::Unroutable => true,
                Published::Refused(_) => false,
                Published::Unknown => return Err(ConnectionEnd::OutcomeUnknown),
            };
            let Some(number) = entry.number else {
                continue;
            };
            match &mut run {
                Some(run) if run.channel == entry.channel && run.is_good == is_good => {
                    run.last = number;
                    run.count += 1;
                }
                other => {
                    let before = other.replace(ConfirmRun {
                        channel: entry.channel,
                        is_good,
                        last: number,
                        count: 1,
                    });
                    self.confirm_run(before);
                }
            }
        }
        self.confirm_run(run);
        Ok(())
    }

    /// Confirms or refuses messages together. All messages before them on their channel have been answered.
    fn confirm_run(&mut self, run: Option<ConfirmRun>) {
        let Some(run) = run else { return };
        let (delivery_tag, multiple) = (run.last, run.count > 1);
        let method = if run.is_good {
            self.context.metrics.confirmed.inc_by(run.count);
            basic::Ack {
                delivery_tag,
                multiple,
            }
            .into()
        } else {
            self.context.metrics.refused.inc_by(run.count);
            basic::Nack {
                delivery_tag,
                multiple,
                requeue: false,
            }
            .into()
        };
        self.confirm(run.channel, method);
    }

    /// Confirms a message that was not routed.
    pub(super) fn confirm_unrouted(&mut self, entry: PublishOrigin) {
        if let Some(number) = entry.number {
            self.confirm_run(Some(ConfirmRun {
                channel: entry.channel,
                is_good: true,
                last: number,
                count: 1,
            }));
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
