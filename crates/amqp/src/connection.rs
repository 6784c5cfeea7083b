//! The asynchronous shell of a connection: reads, feeds the session, performs its operations, writes the
//! results.
//!
//! While a client does not read, its deliveries stay in the queues: the outbox is emptied only while few
//! bytes wait to be written. While many bytes wait, or many messages are not stored yet, no requests are
//! read.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use stafett_amqp_wire::{FrameError, ReplyCode, frame};
use stafett_messaging::DiskSpace;
use stafett_net::registry::Wait;
use stafett_net::{ByteBudget, Connection, ConnectionEntry, Intake, Permit, ReadHalf, Turn, WriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::context::AmqpContext;
use crate::exception::{Exception, octets};
use crate::homes::{self, AccessVersion};
use crate::input::{Input, InputError};
use crate::opening::{Opened, Opening};
use crate::operation::Operation;
use crate::session::{ConnectionEnd, Session};
use crate::traced::ConnectionTrace;

/// The outbox is emptied while fewer bytes than this wait to be written.
const DELIVER_BELOW: usize = 256 * 1024;
/// Requests are read while fewer bytes than this wait to be written.
const READ_BELOW: usize = 4 << 20;
/// Time for a client to answer when the connection is closed by the server.
const CLOSE_PATIENCE: Duration = Duration::from_secs(3);
/// Checks of a connection per heartbeat interval. A heartbeat is sent if nothing was written between two
/// checks, so the server is silent for half an interval at most.
const LOOKS: u32 = 4;
/// Time between two checks of a connection without heartbeats, which has a token that expires.
const LOOKS_WITHOUT_HEARTBEAT: Duration = Duration::from_secs(5);
/// Consecutive checks that a client may be silent: two intervals.
const MISSED_MAX: u32 = 2 * LOOKS;

/// Reasons why serving ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    End(#[from] ConnectionEnd),
    #[error("the client left")]
    Left,
    #[error("nothing came for two heartbeats")]
    Silent,
    #[error("the client did not answer that the connection is closed")]
    NotClosed,
    #[error("its virtual host {0}")]
    HomeLost(&'static str),
    #[error("another node may have taken over meanwhile")]
    NotOwner,
    #[error("the connection was not opened: {0}")]
    NotOpened(String),
}

/// Serves one connection until it ends.
pub(crate) async fn serve(context: Arc<AmqpContext>, mut connection: Connection) {
    let ended = run(&context, &mut connection).await;
    tell_end(&connection, &ended);
}

/// Serves a connection that another broker has opened, until it ends.
pub(crate) async fn serve_passed(
    context: &Arc<AmqpContext>,
    versions: &watch::Receiver<AccessVersion>,
    mut connection: Connection,
) {
    let mut opening = Opening::default();
    let patience = context.settings.handshake_timeout;
    let opened = timeout(patience, opening.adopt(context, versions, &mut connection)).await;
    let ended = match opened {
        Ok(Ok(opened)) => run_opened(context, &mut connection, opening, opened).await,
        Ok(Err(ended)) => ended,
        Err(_) => Ended::NotOpened("it took too long".to_owned()),
    };
    tell_end(&connection, &ended);
}

fn tell_end(connection: &Connection, ended: &Ended) {
    let (peer, id) = (connection.entry.peer, connection.entry.id);
    match ended {
        Ended::Left | Ended::End(ConnectionEnd::Closed) => tracing::trace!(%peer, id, "the client left"),
        ended @ (Ended::Input(_)
        | Ended::Io(_)
        | Ended::End(_)
        | Ended::Silent
        | Ended::NotClosed
        | Ended::HomeLost(_)
        | Ended::NotOwner
        | Ended::NotOpened(_)) => tracing::debug!(%peer, id, reason = %ended, "the connection ended"),
    }
}

async fn run(context: &Arc<AmqpContext>, connection: &mut Connection) -> Ended {
    let mut opening = Opening::default();
    let patience = context.settings.handshake_timeout;
    let opened = timeout(patience, opening.run(context, connection)).await;
    match opened {
        Ok(Ok(opened)) if context.is_elsewhere(&opened.0.virtual_host) => {
            Box::pin(homes::pass(context, connection, opening, opened)).await
        }
        Ok(Ok(opened)) => run_opened(context, connection, opening, opened).await,
        Ok(Err(ended)) => ended,
        Err(_) => Ended::NotOpened("it took too long".to_owned()),
    }
}

async fn run_opened(
    context: &Arc<AmqpContext>,
    connection: &mut Connection,
    opening: Opening,
    opened: Opened,
) -> Ended {
    // Counted until the connection ends.
    let (agreed, caller, _admitted) = opened;
    let budget = Arc::clone(&connection.budget);
    let mut session = Session::new(Arc::clone(context), agreed, caller, budget, opening.output);
    session.attach(&connection.entry);
    session.intake = Intake::new(connection.shedding.as_ref());
    session.trace = connection.trace.clone().map(|trace| {
        let connection = ConnectionTrace {
            trace,
            metrics: Arc::clone(&connection.entry.metrics),
            peer: connection.entry.peer,
        };
        (connection, Instant::now())
    });
    let mut open = Open {
        session,
        input: opening.input,
        is_reading: true,
        missed: 0,
        turn: Turn::default(),
    };
    let ended = open.run(connection).await;
    open.session.abandon();
    ended
}

struct Open {
    session: Session,
    input: Input,
    is_reading: bool,
    /// Consecutive checks without received bytes.
    missed: u32,
    turn: Turn,
}

enum Event {
    Written,
    Read(Option<Permit>),
    Stored,
    Filled,
    Space,
    NamespaceClosed,
    RightsChanged,
    /// A debt to a quota may be gone.
    Unthrottled,
    Tick,
    Drain,
    /// The deadline of closing or the session's next check of arrivals has come.
    Due,
}

/// The two halves of the connection, and related state.
struct Wire<'a> {
    read: ReadHalf<'a>,
    write: WriteHalf<'a>,
    budget: Arc<ByteBudget>,
    drain: CancellationToken,
    entry: Arc<ConnectionEntry>,
    space: DiskSpace,
    namespace_closed: CancellationToken,
    /// Changes of users and rules.
    changes: watch::Receiver<u64>,
    /// Bytes already counted in the metrics.
    sent: u64,
    /// Time at which the oldest unwritten bytes were queued.
    writing_since: Option<Instant>,
}

impl Wire<'_> {
    fn before_event(&mut self, session: &Session) {
        if self.writing_since.is_none() && !session.out.is_empty() {
            self.writing_since = Some(Instant::now());
        }
    }

    fn on_written(&mut self, session: &Session) {
        let written = session.out.written();
        self.entry
            .on_sent(usize::try_from(written - self.sent).unwrap_or(usize::MAX));
        self.sent = written;
        if session.out.is_empty()
            && let Some(begun) = self.writing_since.take()
        {
            session.context.metrics.on_written(begun.elapsed());
        }
    }
}

impl Open {
    async fn run(&mut self, connection: &mut Connection) -> Ended {
        let (read, write) = connection.stream.split();
        let mut wire = Wire {
            read,
            write,
            budget: Arc::clone(&connection.budget),
            drain: connection.drain.clone(),
            entry: Arc::clone(&connection.entry),
            space: self.session.space.clone(),
            namespace_closed: self.session.namespace_closed.clone(),
            changes: self.session.context.broker.access().changes(),
            sent: 0,
            writing_since: None,
        };
        let ended = self.serve(&mut wire).await;
        if matches!(ended, Ended::End(ConnectionEnd::Closed)) {
            return self.last_words(&mut wire.write).await;
        }
        ended
    }

    async fn serve(&mut self, wire: &mut Wire<'_>) -> Ended {
        let between_looks = match self.session.agreed.heartbeat / LOOKS {
            Duration::ZERO => LOOKS_WITHOUT_HEARTBEAT,
            between => between,
        };
        let mut written_before = 0;
        let mut deadline: Option<Instant> = None;
        let mut tick = Box::pin(sleep(between_looks));
        // Frames that arrived together with the last frame of the opening.
        if let Err(ended) = self.execute(&wire.entry).await {
            return ended;
        }
        loop {
            if self.session.is_closing() && deadline.is_none() {
                deadline = Some(Instant::now() + CLOSE_PATIENCE);
            }
            wire.before_event(&self.session);
            let done = match self.next_event(wire, deadline, &mut tick).await {
                Ok(Event::Written) => {
                    wire.on_written(&self.session);
                    Ok(())
                }
                Ok(Event::Stored | Event::Filled | Event::RightsChanged | Event::Unthrottled) => Ok(()),
                Ok(Event::Read(None)) => Err(Ended::Left),
                Ok(Event::Read(Some(permit))) => self.on_read(permit, wire).await,
                Ok(Event::Space) => {
                    self.session.unblock();
                    self.execute(&wire.entry).await
                }
                Ok(Event::NamespaceClosed) => self.session.on_namespace_closed().map_err(Ended::from),
                Ok(Event::Tick) => {
                    tick.as_mut().reset(Instant::now() + between_looks);
                    self.on_tick(&mut written_before)
                }
                Ok(Event::Drain) => {
                    deadline.get_or_insert_with(|| Instant::now() + CLOSE_PATIENCE);
                    match self.session.stop(wire.entry.reason().as_deref()) {
                        Ok(()) => self.perform(&wire.entry).await,
                        Err(end) => Err(end.into()),
                    }
                }
                Ok(Event::Due) if deadline.is_some_and(|deadline| deadline <= Instant::now()) => {
                    Err(Ended::NotClosed)
                }
                Ok(Event::Due) => self.session.look_at_arrivals().map_err(Ended::from),
                Err(ended) => Err(ended),
            };
            if let Err(ended) = done.and_then(|()| self.after_event()) {
                return ended;
            }
            self.turn.end().await;
        }
    }

    async fn on_read(&mut self, permit: Permit, wire: &Wire<'_>) -> Result<(), Ended> {
        self.missed = 0;
        let bytes = permit.bytes();
        wire.entry.on_received(bytes);
        self.session.add_memory(permit);
        if self.input.take_was_empty() {
            self.session.intake.on_drained();
        }
        self.session.begin_intake();
        let begun = Instant::now();
        let executed = self.execute(&wire.entry).await;
        let worked = begun.elapsed();
        self.session.context.metrics.on_executed(worked);
        self.turn.add(worked);
        self.turn.add_read(bytes);
        let is_waited_for = std::mem::take(&mut self.session.is_waited_for);
        self.input.moderate(&wire.read, bytes, is_waited_for);
        executed
    }

    /// Sends confirms of stored messages, delivers as far as there is room, and frees unneeded memory.
    fn after_event(&mut self) -> Result<(), Ended> {
        self.session.end_without_rights()?;
        self.session.resolve_ready()?;
        if self.session.out.len() < DELIVER_BELOW && !self.session.is_sated() {
            let begun = Instant::now();
            if self.session.deliver() {
                let worked = begun.elapsed();
                self.session.context.metrics.on_delivered(worked);
                self.turn.add(worked);
            }
            self.session.end_without_namespace()?;
        }
        self.session.show_channels();
        self.input.shrink();
        self.session.out.shrink();
        if self.session.intake.is_used() {
            let has_more = self.input.is_behind() || !self.may_read();
            self.session.end_intake(has_more);
        }
        Ok(())
    }

    fn may_read(&self) -> bool {
        let session = &self.session;
        self.is_reading
            && session.out.len() < READ_BELOW
            && !session.is_full()
            && !session.is_blocked()
            && !session.is_muted()
    }

    async fn next_event(
        &mut self,
        wire: &mut Wire<'_>,
        deadline: Option<Instant>,
        tick: &mut Pin<Box<Sleep>>,
    ) -> Result<Event, Ended> {
        let may_read = self.may_read();
        let Self { session, input, .. } = self;
        let is_blocked = session.is_blocked();
        let has_looks = !session.agreed.heartbeat.is_zero() || session.caller.expires_ms().is_some();
        let has_unconfirmed = session.has_unconfirmed();
        let may_deliver = session.out.len() < DELIVER_BELOW && !session.is_closing() && !session.is_sated();
        let throttled = session.throttled_until();
        let is_closing = session.is_closing();
        // Others have no right that could go, or hear of it at their next event.
        let has_rights = !is_closing && session.caller.name().is_some();
        let due = match (deadline, session.arrivals_due()) {
            (Some(deadline), Some(due)) => Some(deadline.min(due)),
            (deadline, due) => deadline.or(due),
        };
        let waiting = !session.out.is_empty();
        if waiting {
            session.context.check_tenure()?;
        }
        let (confirms, out, outbox, replies) = session.parts();
        wire.entry.set_wait(if is_blocked {
            Some(Wait::Space)
        } else if waiting {
            Some(Wait::Outbox)
        } else {
            has_unconfirmed.then_some(Wait::Journal)
        });
        let begun = Instant::now();
        // In random order: a stream of deliveries must not keep settlements from being read.
        tokio::select! {
            written = out.write(&mut wire.write), if waiting => {
                written?;
                Ok(Event::Written)
            }
            permit = input.read(&mut wire.read, &wire.budget, &wire.entry), if may_read => Ok(Event::Read(permit?)),
            () = poll_fn(|cx| confirms.poll_ready(cx)), if has_unconfirmed => Ok(Event::Stored),
            // Also wakes a connection that is asked for its channels.
            () = outbox.filled() => Ok(Event::Filled),
            () = replies.filled(), if may_deliver => Ok(Event::Filled),
            () = wire.space.enough(), if is_blocked => Ok(Event::Space),
            () = wire.drain.cancelled(), if !is_closing => Ok(Event::Drain),
            () = wire.namespace_closed.cancelled(), if !is_closing => Ok(Event::NamespaceClosed),
            _ = wire.changes.changed(), if has_rights => Ok(Event::RightsChanged),
            () = tick.as_mut(), if has_looks => Ok(Event::Tick),
            () = tokio::time::sleep_until(throttled.unwrap_or(begun)), if throttled.is_some() => Ok(Event::Unthrottled),
            () = tokio::time::sleep_until(due.unwrap_or(begun)), if due.is_some() => Ok(Event::Due),
        }
    }

    /// Executes all received frames. The rest is executed later if the connection has to wait for space.
    async fn execute(&mut self, entry: &ConnectionEntry) -> Result<(), Ended> {
        while !self.session.is_blocked() {
            self.session.publish_again(&mut self.input.buffer);
            match frame::split(&mut self.input.buffer, self.session.agreed.frame_bytes_max) {
                Ok(Some(frame)) => self.session.on_frame(frame)?,
                Ok(None) => break,
                Err(error) => {
                    // The bytes that follow cannot be decoded.
                    self.is_reading = false;
                    self.session.fail(0, bad_frame(error, &self.input.buffer))?;
                    break;
                }
            }
            if self.session.is_waiting() {
                self.perform(entry).await?;
            }
        }
        self.session.finish_turn()?;
        self.perform(entry).await
    }

    /// Performs the operations that the session waits for.
    async fn perform(&mut self, entry: &ConnectionEntry) -> Result<(), Ended> {
        // In a future, an operation that was looked at would stay beside that which performs it.
        let with_wait = |operation: Operation| (operation.wait(), operation);
        while let Some((wait, operation)) = self.session.next_operation().map(with_wait) {
            let waiting = entry.waiting(wait);
            let done = operation
                .perform(&self.session.context, &self.session.caller)
                .await;
            drop(waiting);
            self.session.on_done(done)?;
        }
        Ok(())
    }

    fn on_tick(&mut self, written_before: &mut u64) -> Result<(), Ended> {
        self.session.end_expired()?;
        if self.session.agreed.heartbeat.is_zero() {
            return Ok(());
        }
        // Nothing is read from a blocked client, so it does not count as silent.
        self.missed = if self.session.is_blocked() || self.session.is_muted() {
            0
        } else {
            self.missed + 1
        };
        if self.missed > MISSED_MAX {
            return Err(Ended::Silent);
        }
        let written = self.session.out.written();
        if written == *written_before && self.session.out.is_empty() {
            self.session.out.heartbeat();
        }
        *written_before = written;
        Ok(())
    }

    /// Writes the remaining bytes, for a client that has closed the connection.
    async fn last_words(&mut self, write: &mut WriteHalf<'_>) -> Ended {
        if let Err(ended) = self.session.context.check_tenure() {
            return ended;
        }
        match timeout(CLOSE_PATIENCE, self.session.out.write_all(write)).await {
            Ok(Ok(())) => Ended::End(ConnectionEnd::Closed),
            Ok(Err(error)) => error.into(),
            Err(_) => Ended::NotClosed,
        }
    }
}

pub(crate) fn bad_frame(error: FrameError, buffer: &[u8]) -> Exception {
    let payload = frame::payload_of(buffer);
    match error {
        FrameError::TooLarge {
            kind,
            channel: _,
            size,
            max,
        } => Exception::new(
            ReplyCode::FrameError,
            format!("type {kind}, all octets = <<>>: {{frame_too_large,{size},{max}}}"),
        ),
        FrameError::BadEnd { kind, found, .. } => Exception::new(
            ReplyCode::FrameError,
            format!(
                "type {kind}, all octets = {}: {{invalid_frame_end_marker,{found}}}",
                octets(payload)
            ),
        ),
    }
}
