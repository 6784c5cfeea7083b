//! An open connection: its channels, and the execution of frames.
//!
//! ```text
//!             ┌ method ── one file per class ──▶ the broker; answers go to the output
//! frame ──────┼ header, body ── assembly ──▶ published messages, which are gathered
//!             └ heartbeat
//! runs of the outbox ──▶ deliver ──▶ output
//! tickets of published messages ──▶ confirms ──▶ output
//! ```
//!
//! A session does no I/O: it is given frames and fills an [`Output`]. While a method waits for the broker,
//! frames behind it wait too. Gathered messages go to the broker at the end of the turn, or before a method
//! that depends on them.

mod again;
mod arriving;
pub(crate) mod assembly;
mod blocked;
mod bound;
pub(crate) mod channel;
mod confirms;
mod connection_class;
mod consume;
mod deliver;
mod exchange;
mod get;
mod publish;
mod queue;
pub(crate) mod replies;
mod settle;
mod stream;
mod transactions;
pub(crate) mod unacked;

use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use stafett_amqp_wire::methods::{Basic, Channel as ChannelMethod, channel as channel_class, name_of};
use stafett_amqp_wire::{ContentHeader, Frame, FrameKind, Method, ReplyCode};
use stafett_messaging::DiskSpace;
use stafett_messaging::delivery::{DeliveryBatch, DeliveryId, Dispatcher, Event, Outbox, Settle, Source};
use stafett_messaging::queues::OwnerId;
use stafett_model::Namespace;
use stafett_net::{ByteBudget, Permit};
use std::collections::HashMap;
use tokio_util::sync::CancellationToken;

use self::again::Again;
use self::assembly::Content;
use self::channel::Channel;
use self::confirms::Groups;
use self::consume::Holder;
use self::publish::Gathered;
use crate::amqp::Shared;
use crate::exception::{Exception, Scope, octets};
use crate::handshake::Agreed;
use crate::output::Output;

/// Bodies larger than this reserve memory before they arrive.
const LARGE_BODY_BYTES: u64 = 64 * 1024;

/// Bytes of deliveries that wait for their connection.
const OUTBOX_BYTES: usize = 256 * 1024;

/// Reasons for ending a connection at once.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    #[error("the client has closed the connection")]
    Closed,
    #[error("nobody can tell whether something was stored")]
    OutcomeUnknown,
    #[error("the process is stopping")]
    Stopping,
}

/// Error from executing a frame.
#[derive(Debug)]
pub(crate) enum Trouble {
    Exception(Exception),
    End(End),
}

impl From<Exception> for Trouble {
    fn from(exception: Exception) -> Self {
        Self::Exception(exception)
    }
}

impl From<End> for Trouble {
    fn from(end: End) -> Self {
        Self::End(end)
    }
}

/// Settlements for one queue or stream.
type Settlements = Vec<(DeliveryId, Settle)>;

#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) agreed: Agreed,
    namespace: Namespace,
    owner: OwnerId,
    channels: HashMap<u16, Channel>,
    pub(crate) out: Output,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) replies: Arc<replies::Inbox>,
    /// Consumers by token.
    holders: HashMap<u64, Holder>,
    last_token: u64,
    /// Exchange of the last message, which existed then. Valid until the end of the turn.
    checked_exchange: Option<ByteString>,
    /// Messages received and not handed to the broker yet.
    gathered: Vec<Gathered>,
    /// The last of them, if messages like it can take the fast path.
    again: Option<Again>,
    /// Number of messages in the first run of the previous flush.
    gathered_before: usize,
    /// Time at which the messages of this turn arrived, in ms since 1970; set by the first one.
    turn_ms: Option<i64>,
    /// Groups handed to the broker, in order.
    groups: Groups,
    /// Bindings whose clients are answered once they are stored.
    bound: Vec<bound::Bound>,
    /// Settlements not passed to the queues yet.
    settlements: Vec<(Source, Settlements)>,
    /// Queues that may still be dead-lettering messages that this connection has rejected.
    burying: Vec<Arc<Dispatcher>>,
    runs: Vec<DeliveryBatch>,
    events: Vec<Event>,
    /// Memory of the received bytes.
    memory: Option<Permit>,
    budget: Arc<ByteBudget>,
    /// Time of the next check of incomplete large bodies.
    arrivals_due: Option<tokio::time::Instant>,
    pub(crate) space: DiskSpace,
    /// True if the connection published while space was short, and waits.
    blocked: bool,
    /// The virtual host was deleted, and the client is not notified yet.
    namespace_is_gone: bool,
    /// Cancelled when the virtual host is deleted.
    pub(crate) namespace_closed: CancellationToken,
    /// A client may be waiting for the result of the frames: true for all but messages without confirms.
    pub(crate) is_waited_for: bool,
    /// The server has closed the connection, and waits for `close-ok`.
    closing: bool,
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, agreed: Agreed, budget: Arc<ByteBudget>, out: Output) -> Self {
        let namespace = Namespace::new(&agreed.virtual_host);
        let owner = shared.broker.messaging().queues().new_owner();
        let space = shared.broker.messaging().space();
        let namespace_closed = shared.broker.messaging().exchanges().closed(&namespace);
        Self {
            shared,
            agreed,
            namespace,
            owner,
            channels: HashMap::new(),
            out,
            outbox: Outbox::new(OUTBOX_BYTES),
            replies: Arc::default(),
            holders: HashMap::new(),
            last_token: 0,
            checked_exchange: None,
            gathered: Vec::new(),
            again: None,
            gathered_before: 0,
            turn_ms: None,
            groups: Groups::default(),
            bound: Vec::new(),
            settlements: Vec::new(),
            burying: Vec::new(),
            runs: Vec::new(),
            events: Vec::new(),
            memory: None,
            budget,
            arrivals_due: None,
            space,
            blocked: false,
            namespace_is_gone: false,
            namespace_closed,
            is_waited_for: false,
            closing: false,
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Adds the memory reserved for bytes that are about to be decoded.
    pub(crate) fn add_memory(&mut self, permit: Permit) {
        match &mut self.memory {
            Some(memory) => memory.merge(permit),
            none => *none = Some(permit),
        }
    }

    /// Ends a turn, after all received frames are executed: hands the gathered messages to the broker.
    pub(crate) async fn finish_turn(&mut self) -> Result<(), End> {
        self.flush_published()?;
        self.tell_bound().await?;
        self.flush_settlements();
        // Memory that is no longer part of a message.
        self.memory = None;
        self.turn_ms = None;
        Ok(())
    }

    /// Returns the parts that a connection waits for.
    pub(crate) fn parts(&mut self) -> (&mut Groups, &mut Output, &Outbox, &replies::Inbox) {
        (&mut self.groups, &mut self.out, &self.outbox, &self.replies)
    }

    /// Executes a frame. An exception closes a channel or the connection, and is sent to the client.
    pub(crate) async fn on_frame(&mut self, frame: Frame) -> Result<(), End> {
        let channel = frame.channel;
        if !self.bound.is_empty() && !bound::is_bind(&frame) {
            self.tell_bound().await?;
        }
        match self.take(frame).await {
            Ok(()) => Ok(()),
            Err(Trouble::End(end)) => Err(end),
            Err(Trouble::Exception(exception)) => {
                self.tell_bound().await?;
                self.fail(channel, exception)
            }
        }
    }

    /// Closes the channel or the connection, depending on the exception.
    pub(crate) fn fail(&mut self, channel: u16, exception: Exception) -> Result<(), End> {
        self.flush_published()?;
        self.shared
            .metrics
            .on_exception(exception.code, exception.scope == Scope::Channel);
        tracing::debug!(channel, reason = %exception.reply_text(), "an exception");
        if exception.scope == Scope::Channel && channel != 0 {
            self.release_channel(channel, true);
            self.out.send(channel, exception.close());
        } else if !self.closing {
            self.closing = true;
            self.release();
            self.out.send(0, exception.ending(Scope::Connection).close());
        }
        Ok(())
    }

    async fn take(&mut self, frame: Frame) -> Result<(), Trouble> {
        let kind = FrameKind::of(frame.kind);
        if self.closing {
            return self.take_while_closing(kind, frame);
        }
        match (kind, frame.channel) {
            (None, _) => Err(Exception::new(
                ReplyCode::FrameError,
                format!(
                    "type {}, all octets = {}: unknown_frame",
                    frame.kind,
                    octets(&frame.payload)
                ),
            )
            .into()),
            (Some(FrameKind::Heartbeat), 0) => Ok(()),
            (Some(FrameKind::Method), 0) => self.on_connection_method(frame.payload).await,
            (Some(FrameKind::Header | FrameKind::Body), 0) => Err(unexpected(&frame)),
            (Some(kind), number) => self.take_on_channel(kind, number, frame).await,
        }
    }

    fn take_while_closing(&mut self, kind: Option<FrameKind>, frame: Frame) -> Result<(), Trouble> {
        if kind == Some(FrameKind::Method) && frame.channel == 0 {
            return self.on_method_while_closing(frame.payload);
        }
        Ok(())
    }

    async fn take_on_channel(&mut self, kind: FrameKind, number: u16, frame: Frame) -> Result<(), Trouble> {
        let Some(channel) = self.channels.get_mut(&number) else {
            return self.take_on_unopened_channel(kind, number, frame).await;
        };
        if channel.closing {
            self.take_on_closing_channel(kind, number, frame.payload);
            return Ok(());
        }
        match kind {
            FrameKind::Heartbeat => Err(unexpected(&frame)),
            FrameKind::Header => self.on_header(number, frame.payload).await,
            FrameKind::Body => {
                if !matches!(channel.assembly, assembly::Assembly::Body(_)) {
                    return Err(unexpected_content(channel));
                }
                let whole = if channel.assembly.lacks_memory(frame.payload.len()) {
                    self.grow_arrival(number, frame.payload.len()).await?;
                    self.channel(number)?.assembly.on_body(frame.payload)?
                } else {
                    channel.assembly.on_body(frame.payload)?
                };
                if let Some(content) = whole {
                    self.on_content(number, content).await?;
                }
                Ok(())
            }
            FrameKind::Method => {
                if channel.assembly.is_busy() {
                    return Err(unexpected_content(channel));
                }
                let id = method_id(&frame.payload);
                self.on_method(number, frame.payload)
                    .await
                    .map_err(|trouble| trouble.caused_by(id))
            }
        }
    }

    async fn take_on_unopened_channel(
        &mut self,
        kind: FrameKind,
        number: u16,
        frame: Frame,
    ) -> Result<(), Trouble> {
        let method = if kind == FrameKind::Method {
            Some(Method::decode(frame.payload.clone()).map_err(Exception::from)?)
        } else {
            None
        };
        match method {
            Some(Method::Channel(ChannelMethod::Open(_))) => {
                if self.agreed.channels_max != 0
                    && self.channels.len() >= usize::from(self.agreed.channels_max)
                {
                    let max = self.agreed.channels_max;
                    let text = format!(
                        "number of channels opened ({}) has reached the negotiated channel_max ({max})",
                        self.channels.len()
                    );
                    return Err(Exception::not_allowed(text).into());
                }
                // Outstanding confirms of a closed channel with this number must not go to the new channel.
                self.settle_published().await?;
                self.channels.insert(number, Channel::default());
                self.shared.metrics.channels.inc();
                self.out.send(number, channel_class::OpenOk::default());
                Ok(())
            }
            // It may still be in transit if both sides have closed the channel.
            Some(Method::Channel(ChannelMethod::CloseOk(_))) => Ok(()),
            _ => Err(Exception::new(ReplyCode::ChannelError, "expected 'channel.open'")
                .caused_by(method.map_or((0, 0), |method| method.id()))
                .into()),
        }
    }

    fn take_on_closing_channel(&mut self, kind: FrameKind, number: u16, payload: Bytes) {
        if kind != FrameKind::Method {
            return;
        }
        match Method::decode(payload) {
            Ok(Method::Channel(ChannelMethod::CloseOk(_))) => {
                self.remove_channel(number);
            }
            Ok(Method::Channel(ChannelMethod::Close(_))) => {
                self.remove_channel(number);
                self.out.send(number, channel_class::CloseOk {});
            }
            Ok(_) | Err(_) => {}
        }
    }

    async fn on_method(&mut self, number: u16, payload: Bytes) -> Result<(), Trouble> {
        let method = Method::decode(payload).map_err(Exception::from)?;
        self.is_waited_for |= !matches!(method, Method::Basic(Basic::Publish(_)));
        match method {
            Method::Basic(Basic::Publish(publish)) => {
                self.channel(number)?.assembly.begin(publish);
                self.wait_for_space();
                Ok(())
            }
            Method::Basic(method) => self.on_basic(number, method).await,
            Method::Exchange(method) => {
                self.flush_published()?;
                self.on_exchange(number, method).await
            }
            Method::Queue(method) => {
                self.settle_published().await?;
                self.settle_all().await;
                self.on_queue(number, method).await
            }
            Method::Channel(method) => self.on_channel_method(number, method).await,
            Method::Confirm(method) => self.on_confirm(number, &method),
            Method::Tx(method) => self.on_tx(number, method).await,
            Method::Access(method) => self.on_access(number, &method),
            method @ Method::Connection(_) => Err(not_for_servers(&method)),
        }
    }

    async fn on_basic(&mut self, number: u16, method: Basic) -> Result<(), Trouble> {
        match method {
            Basic::Qos(method) => self.on_qos(number, &method),
            Basic::Consume(method) => self.on_consume(number, method),
            Basic::Cancel(method) => self.on_cancel(number, method),
            Basic::Get(method) => self.on_get(number, &method).await,
            Basic::Ack(method) => self.on_settlement(number, settle::ack(&method)),
            Basic::Nack(method) => self.on_settlement(number, settle::nack(&method)),
            Basic::Reject(method) => self.on_settlement(number, settle::reject(&method)),
            Basic::Recover(method) => self.on_recover(number, method.requeue, true),
            Basic::RecoverAsync(method) => self.on_recover(number, method.requeue, false),
            Basic::CancelOk(_) => Ok(()),
            other @ (Basic::Publish(_)
            | Basic::QosOk(_)
            | Basic::ConsumeOk(_)
            | Basic::Return(_)
            | Basic::Deliver(_)
            | Basic::GetOk(_)
            | Basic::GetEmpty(_)
            | Basic::RecoverOk(_)) => Err(not_for_servers(&Method::Basic(other))),
        }
    }

    async fn on_channel_method(&mut self, number: u16, method: ChannelMethod) -> Result<(), Trouble> {
        match method {
            ChannelMethod::Open(_) => {
                Err(Exception::new(ReplyCode::ChannelError, "second 'channel.open' seen").into())
            }
            ChannelMethod::Close(_) => {
                self.settle_published().await?;
                self.release_channel(number, false);
                self.out.send(number, channel_class::CloseOk {});
                Ok(())
            }
            ChannelMethod::FlowOk(_) => Ok(()),
            ChannelMethod::Flow(method) => {
                if !method.active {
                    return Err(Exception::new(ReplyCode::NotImplemented, "active=false").into());
                }
                self.out.send(number, channel_class::FlowOk { active: true });
                Ok(())
            }
            other @ (ChannelMethod::OpenOk(_) | ChannelMethod::CloseOk(_)) => {
                Err(not_for_servers(&Method::Channel(other)))
            }
        }
    }

    /// Takes a content header. Memory for a large body is reserved in steps, before it arrives.
    async fn on_header(&mut self, number: u16, payload: Bytes) -> Result<(), Trouble> {
        let channel = self.channel(number)?;
        if !matches!(channel.assembly, assembly::Assembly::Header(_)) {
            return Err(unexpected_content(channel));
        }
        let header =
            ContentHeader::decode(payload).map_err(|error| Exception::from(error).caused_by((60, 40)))?;
        let max = self.shared.settings.message_bytes_max;
        if header.body_size > max {
            let text = format!(
                "message size {} is larger than configured max size {max}",
                header.body_size
            );
            return Err(Exception::precondition(text).caused_by((60, 40)).into());
        }
        let memory = if header.body_size > LARGE_BODY_BYTES {
            Some(self.begin_arrival(number, header.body_size).await?)
        } else {
            None
        };
        if let Some(content) = self.channel(number)?.assembly.on_header(header, memory) {
            self.on_content(number, content).await?;
        }
        Ok(())
    }

    async fn on_content(&mut self, number: u16, content: Content) -> Result<(), Trouble> {
        self.on_published(number, content)
            .await
            .map_err(|trouble| trouble.caused_by((60, 40)))
    }

    fn channel(&mut self, number: u16) -> Result<&mut Channel, Trouble> {
        self.channels
            .get_mut(&number)
            .ok_or_else(|| Exception::new(ReplyCode::ChannelError, "expected 'channel.open'").into())
    }

    fn remove_channel(&mut self, number: u16) {
        if self.channels.remove(&number).is_some() {
            self.shared.metrics.channels.dec();
        }
    }

    /// Releases everything that a channel holds. With `stays`, the channel ignores frames until the client
    /// confirms that it is closed.
    fn release_channel(&mut self, number: u16, stays: bool) {
        let Some(channel) = self.channels.remove(&number) else {
            return;
        };
        self.flush_settlements();
        self.let_go(channel);
        if stays {
            let closing = Channel {
                closing: true,
                ..Channel::default()
            };
            self.channels.insert(number, closing);
        } else {
            self.shared.metrics.channels.dec();
        }
    }

    /// Ends the consumers of a channel and requeues its unsettled deliveries.
    fn let_go(&mut self, mut channel: Channel) {
        // Unsettled deliveries go back before those in the outbox: other consumers get all of them in order.
        channel.hold_consumers();
        for unsettled in channel.take_unsettled() {
            self.settle(unsettled, channel::How::Requeue);
        }
        self.flush_settlements();
        for (_, tagged) in channel.consumers.drain() {
            self.holders.remove(&tagged.token);
            drop(tagged.consumer);
        }
        if let Some(replies) = channel.replies.take() {
            self.shared.replies.forget(&replies.address);
        }
    }

    /// Releases everything that the connection holds, however it ends.
    pub(crate) fn release(&mut self) {
        self.forget_block();
        self.channels.values().for_each(Channel::hold_consumers);
        let numbers: Vec<u16> = self.channels.keys().copied().collect();
        for number in numbers {
            if let Some(channel) = self.channels.remove(&number) {
                self.shared.metrics.channels.dec();
                self.let_go(channel);
            }
        }
        self.flush_settlements();
        self.shared.broker.messaging().queues().close_owner(self.owner);
    }

    /// Ends a session whose client is gone: its messages are still published, everything else is released.
    pub(crate) fn abandon(&mut self) {
        // The outcome is unknown, and there is no client to tell.
        drop(self.flush_published());
        self.release();
    }

    /// Returns the queue name, or for an empty name the queue declared last.
    fn queue_name(&mut self, number: u16, name: ByteString) -> Result<ByteString, Trouble> {
        if !name.is_empty() {
            return Ok(name);
        }
        let last = self.channel(number)?.last_queue.clone();
        if last.is_empty() {
            return Err(Exception::not_found("no previously declared queue").into());
        }
        Ok(last)
    }
}

impl Drop for Session {
    /// Releases everything, so that nothing stays in flight however a connection ends.
    fn drop(&mut self) {
        self.release();
    }
}

/// Returns a name without line breaks, which RabbitMQ removes from names that are declared, bound or deleted.
fn one_line(name: ByteString) -> ByteString {
    if name.contains(['\r', '\n']) {
        name.replace(['\r', '\n'], "").into()
    } else {
        name
    }
}

/// Returns an unused name.
fn generated(prefix: &str) -> ByteString {
    format!("{prefix}{}", uuid::Uuid::new_v4().simple()).into()
}

impl Trouble {
    fn caused_by(self, id: (u16, u16)) -> Self {
        match self {
            Self::Exception(exception) => Self::Exception(exception.caused_by(id)),
            Self::End(end) => Self::End(end),
        }
    }
}

fn method_id(payload: &Bytes) -> (u16, u16) {
    match payload.first_chunk::<4>() {
        Some(&[c0, c1, m0, m1]) => {
            let id = (u16::from_be_bytes([c0, c1]), u16::from_be_bytes([m0, m1]));
            name_of(id.0, id.1).map_or((0, 0), |_| id)
        }
        None => (0, 0),
    }
}

fn unexpected(frame: &Frame) -> Trouble {
    let text = format!("type {}, all octets = {}", frame.kind, octets(&frame.payload));
    Exception::new(ReplyCode::UnexpectedFrame, text).into()
}

fn unexpected_content(channel: &Channel) -> Trouble {
    let id = if channel.assembly.is_busy() {
        (60, 40)
    } else {
        (0, 0)
    };
    let text = if channel.assembly.is_busy() {
        channel.assembly.expected().to_owned()
    } else {
        "expected method frame, got non method frame instead".to_owned()
    };
    Exception::new(ReplyCode::UnexpectedFrame, text)
        .caused_by(id)
        .into()
}

fn not_for_servers(method: &Method) -> Trouble {
    tracing::debug!(
        method = method.name(),
        "a method that only servers send, or that belongs elsewhere"
    );
    Exception::new(ReplyCode::CommandInvalid, "unimplemented method").into()
}
