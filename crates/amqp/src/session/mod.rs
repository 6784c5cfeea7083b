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
//! A session is synchronous: it is given frames, and fills an [`Output`]. Its waits are [`Operation`]s: the
//! connection performs one before it gives the next frame, and its outcome goes to [`Session::on_done`] (see
//! [`held`]). Gathered messages go to the broker at the end of the turn, or before a method that depends on
//! them.

mod arriving;
pub(crate) mod assembly;
mod blocked;
pub(crate) mod channel;
mod channels;
pub(crate) mod confirms;
mod connection_class;
mod consume;
mod deliver;
mod dispatch;
mod exchange;
mod get;
mod held;
pub(crate) mod pending_changes;
mod publish;
mod queue;
mod repeat_publish;
pub(crate) mod replies;
pub(crate) mod rights;
mod settle;
pub(crate) mod stream;
#[cfg(test)]
mod tests;
mod throttle;
pub(crate) mod transactions;
pub(crate) mod unacked;

use std::sync::Arc;

use bytestring::ByteString;
use stafett_access::Caller;
use stafett_delivery::{DeliveryBatch, DeliveryId, Dispatcher, Event, Outbox, Settle, Source};
use stafett_messaging::DiskSpace;
use stafett_messaging::queues::OwnerId;
use stafett_model::Namespace;
use stafett_net::{ByteBudget, ConnectionEntry, Intake, Permit};
use std::collections::{HashMap, VecDeque};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::channel::Channel;
use self::confirms::PendingConfirms;
use self::consume::TokenOwner;
use self::held::Held;
use self::pending_changes::PendingChange;
use self::publish::PendingPublish;
use self::repeat_publish::RepeatPublish;
use crate::client::AmqpClient;
use crate::context::AmqpContext;
use crate::exception::{Exception, Scope};
use crate::handshake::Agreed;
use crate::operation::{Done, Operation};
use crate::output::Output;
use crate::traced::ConnectionTrace;

/// Bodies larger than this reserve memory before they arrive.
const LARGE_BODY_BYTES: u64 = 64 * 1024;

/// Bytes of deliveries that wait for their connection.
const OUTBOX_BYTES: usize = 256 * 1024;

/// Reasons for ending a connection at once.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionEnd {
    #[error("the client has closed the connection")]
    Closed,
    #[error("nobody can tell whether something was stored")]
    OutcomeUnknown,
    #[error("the process is stopping")]
    Stopping,
}

/// Error from executing a frame.
#[derive(Debug)]
pub(crate) enum MethodError {
    Exception(Exception),
    End(ConnectionEnd),
}

impl From<Exception> for MethodError {
    fn from(exception: Exception) -> Self {
        Self::Exception(exception)
    }
}

impl From<ConnectionEnd> for MethodError {
    fn from(end: ConnectionEnd) -> Self {
        Self::End(end)
    }
}

/// Settlements for one queue or stream.
type Settlements = Vec<(DeliveryId, Settle)>;

#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Session {
    pub(crate) context: Arc<AmqpContext>,
    pub(crate) agreed: Arc<Agreed>,
    pub(crate) caller: Arc<Caller>,
    /// Generation of the users and rules that consumers and the connection were last compared with.
    rights_of: u64,
    pub(crate) client: Arc<AmqpClient>,
    /// Id of the connection; 0 if there is none.
    connection: u64,
    namespace: Namespace,
    owner: OwnerId,
    pub(crate) channels: HashMap<u16, Channel>,
    pub(crate) out: Output,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) replies: Arc<replies::Inbox>,
    /// Consumers by token.
    token_owners: HashMap<u64, TokenOwner>,
    last_token: u64,
    /// Exchange of the last message, which existed then. Valid until the end of the turn.
    checked_exchange: Option<ByteString>,
    /// Messages received and not handed to the broker yet.
    gathered: Vec<PendingPublish>,
    /// The last of them, if messages like it can take the fast path.
    repeat: Option<RepeatPublish>,
    /// Number of messages in the first run of the previous flush.
    gathered_before: usize,
    /// Time at which the messages of this turn arrived, in ms since 1970; set by the first one.
    turn_ms: Option<i64>,
    /// Batches handed to the broker, in order.
    pub(crate) confirms: PendingConfirms,
    /// Changes whose clients are answered once they are stored.
    pending_changes: VecDeque<PendingChange>,
    /// Operation to be performed before the next input.
    operation: Option<Operation>,
    /// Input that waits for it.
    held: Option<Held>,
    /// Outcome that the held input is executed with.
    done: Option<Done>,
    /// Settlements not passed to the queues yet.
    settlements: Vec<(Source, Settlements)>,
    /// Queues that may still be dead-lettering messages that this connection has rejected.
    dead_lettering: Vec<Arc<Dispatcher>>,
    runs: Vec<DeliveryBatch>,
    events: Vec<Event>,
    /// Memory of the received bytes.
    memory: Option<Permit>,
    budget: Arc<ByteBudget>,
    /// Time of the next check of incomplete large bodies.
    arrivals_due: Option<Instant>,
    pub(crate) space: DiskSpace,
    /// True if the connection published while space was short, and waits.
    blocked: bool,
    /// The virtual host was deleted, and the client is not notified yet.
    namespace_is_gone: bool,
    /// Cancelled when the virtual host is deleted.
    pub(crate) namespace_closed: CancellationToken,
    /// True if the bytes just read waited too long: no message in them is published.
    pub(crate) refuses: bool,
    /// Waiting times of messages.
    pub(crate) intake: Intake,
    /// The performance log, if there is one, and when the turn began.
    pub(crate) trace: Option<(ConnectionTrace, Instant)>,
    throttle: throttle::Throttle,
    /// A client may be waiting for the result of the frames: true for all but messages without confirms.
    pub(crate) is_waited_for: bool,
    /// The server has closed the connection, and waits for `close-ok`.
    closing: bool,
}

impl Session {
    pub(crate) fn new(
        context: Arc<AmqpContext>,
        agreed: Agreed,
        caller: Arc<Caller>,
        budget: Arc<ByteBudget>,
        out: Output,
    ) -> Self {
        let namespace = Namespace::new(&agreed.virtual_host);
        let owner = context.queues().new_owner();
        let space = context.broker.messaging().space();
        let namespace_closed = context.exchanges().closed(&namespace);
        let wake = Arc::<Notify>::default();
        let client = AmqpClient::new(agreed, Arc::clone(&wake));
        Self {
            context,
            agreed: Arc::clone(&client.agreed),
            rights_of: u64::MAX,
            caller,
            client,
            connection: 0,
            namespace,
            owner,
            channels: HashMap::new(),
            out,
            outbox: Outbox::with_wake(OUTBOX_BYTES, wake),
            replies: Arc::default(),
            token_owners: HashMap::new(),
            last_token: 0,
            checked_exchange: None,
            gathered: Vec::new(),
            repeat: None,
            gathered_before: 0,
            turn_ms: None,
            confirms: PendingConfirms::default(),
            pending_changes: VecDeque::new(),
            operation: None,
            held: None,
            done: None,
            settlements: Vec::new(),
            dead_lettering: Vec::new(),
            runs: Vec::new(),
            events: Vec::new(),
            memory: None,
            budget,
            arrivals_due: None,
            space,
            blocked: false,
            namespace_is_gone: false,
            namespace_closed,
            refuses: false,
            intake: Intake::default(),
            trace: None,
            throttle: throttle::Throttle::default(),
            is_waited_for: false,
            closing: false,
        }
    }

    /// Adds the connection that the session serves.
    pub(crate) fn attach(&mut self, entry: &ConnectionEntry) {
        self.connection = entry.id;
        entry.introduce(Arc::<AmqpClient>::clone(&self.client));
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
    pub(crate) fn finish_turn(&mut self) -> Result<(), ConnectionEnd> {
        self.flush_published()?;
        if let Some(operation) = self.await_changes() {
            self.hold(operation, Held::EndOfTurn);
            return Ok(());
        }
        self.flush_settlements();
        // Memory that is no longer part of a message.
        self.memory = None;
        self.turn_ms = None;
        Ok(())
    }

    /// Returns the parts that a connection waits for.
    pub(crate) fn parts(&mut self) -> (&mut PendingConfirms, &mut Output, &Outbox, &replies::Inbox) {
        (&mut self.confirms, &mut self.out, &self.outbox, &self.replies)
    }

    /// Closes the channel or the connection, depending on the exception.
    pub(crate) fn fail(&mut self, channel: u16, exception: Exception) -> Result<(), ConnectionEnd> {
        self.flush_published()?;
        self.context
            .metrics
            .on_exception(exception.code, exception.scope == Scope::Channel);
        tracing::debug!(channel, method = ?exception.method, reason = %exception.reply_text(), "an exception");
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

    /// Releases everything that the connection holds, however it ends.
    pub(crate) fn release(&mut self) {
        self.forget_block();
        self.channels.values().for_each(Channel::hold_consumers);
        let numbers: Vec<u16> = self.channels.keys().copied().collect();
        for number in numbers {
            if let Some(channel) = self.channels.remove(&number) {
                self.context.metrics.channels.dec();
                self.release_deliveries(channel);
            }
        }
        self.flush_settlements();
        self.context.queues().close_owner(self.owner);
    }

    /// Ends a session whose client is gone: its messages are still published, everything else is released.
    pub(crate) fn abandon(&mut self) {
        // The outcome is unknown, and there is no client to tell.
        drop(self.flush_published());
        self.release();
    }

    /// Returns the queue name, or for an empty name the queue declared last.
    fn queue_name(&mut self, number: u16, name: ByteString) -> Result<ByteString, MethodError> {
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
fn one_line(name: &ByteString) -> ByteString {
    if name.contains(['\r', '\n']) {
        name.replace(['\r', '\n'], "").into()
    } else {
        name.clone()
    }
}

/// Returns an unused name.
fn generated(prefix: &str) -> ByteString {
    format!("{prefix}{}", uuid::Uuid::new_v4().simple()).into()
}

impl MethodError {
    fn caused_by(self, id: (u16, u16)) -> Self {
        match self {
            Self::Exception(exception) => Self::Exception(exception.caused_by(id)),
            Self::End(end) => Self::End(end),
        }
    }
}
