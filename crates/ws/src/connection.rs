//! One WebSocket connection: reads, feeds its [`Session`], runs the gathered work, writes.
//!
//! - Bytes are read into a buffer of the thread; a connection owns a buffer only for an incomplete frame,
//!   whose bytes it reserves from the budget first.
//! - It executes nothing while work is in progress or while its peer does not read the answers: the socket
//!   holds back a fast peer. During long work it reads a little ahead, to notice the end of the peer.
//! - Messages that the session pushes wait there, within its bound, until the socket takes it.

mod inbound;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use stafett_net::registry::Wait;
use stafett_net::{Arrival, Connection, Intake, Pace, Stream, Turn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::frame::{self, Decoder};
use crate::session::Session;
use crate::traced::Traced;

/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// Room for the next read of an incomplete message.
const PARTIAL_READ_BYTES: usize = 4096;
/// Bit in the first byte of the last frame of a message.
const FIN: u8 = 0x80;
/// Bytes read ahead during long work.
const READ_AHEAD_BYTES: usize = 16 << 10;
/// Bytes of unsent answers at which reading pauses.
const UNSENT_MAX: usize = 256 << 10;
/// Text messages that are taken at once.
const TEXTS_MAX: usize = 16;
/// Minimum speed of a message.
const PACE: Pace = Pace {
    grace: Duration::from_secs(30),
    bytes_per_second_min: 64 << 10,
};
/// Close code for a connection that an operator ends: a policy of the server (RFC 6455, section 7.4.1).
const ENDED_BY_OPERATOR: u16 = 1008;
/// Time for the peer to close its side after the connection was closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

thread_local! {
    static READ: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// Shutdown of the process, as seen by a connection.
#[derive(Debug, Clone)]
pub struct Ending {
    /// Send a close frame and finish.
    pub drain: CancellationToken,
    /// End at once.
    pub abort: CancellationToken,
}

/// Limits of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of one message of the peer.
    pub message_bytes_max: usize,
    /// A connection that receives nothing for this long, not even a pong, is closed.
    pub idle: Duration,
    /// Time that a peer may go without reading any of the bytes sent to it.
    pub write: Duration,
}

/// Work of a session in progress.
pub type Working<D> = Pin<Box<dyn Future<Output = D> + Send>>;

struct Running<S: Session> {
    /// Name of the service, for logs.
    name: &'static str,
    connection: Connection,
    session: S,
    decoder: Decoder,
    /// Received bytes not yet processed: the beginning of a frame, or frames that wait for work.
    inbound: BytesMut,
    /// Budget share of the incomplete message.
    memory: Option<Arrival>,
    message_bytes_max: usize,
    /// Messages that wait for work, or for the peer to read answers.
    held: VecDeque<Held>,
    working: Option<Working<S::Done>>,
    outbound: BytesMut,
    silence: Silence,
    /// True if bytes were written since the last tick.
    wrote: bool,
    /// Time of the first tick that saw the incomplete message.
    partial_since: Option<Instant>,
    /// Time of the first tick that saw unsent bytes without progress.
    stalled_since: Option<Instant>,
    /// Nothing more is read; the connection ends once everything is sent.
    closing: bool,
    /// Complete messages wait until the peer has read answers.
    is_behind: bool,
    turn: Turn,
    /// The last read, if it may be written to the performance log.
    traced: Option<Traced>,
}

/// A message that waits: its text, or the reason why it has none.
type Held = Result<Box<str>, Box<str>>;

/// Serves a connection until it ends. `name` is its service, for the log.
pub async fn run<S: Session>(
    name: &'static str,
    connection: Connection,
    received: Bytes,
    mut session: S,
    limits: Limits,
    ending: Ending,
) {
    session.attach(&connection.entry);
    connection.entry.end_by(ending.drain.clone());
    if let Some(intake) = session.intake() {
        *intake = Intake::new(connection.shedding.as_ref());
    }
    let inbound = BytesMut::from(&received[..]);
    // Even a short slice keeps the buffer of the HTTP connection alive.
    drop(received);
    let mut running = Running {
        name,
        connection,
        session,
        decoder: Decoder::new(limits.message_bytes_max),
        inbound,
        memory: None,
        message_bytes_max: limits.message_bytes_max,
        held: VecDeque::new(),
        working: None,
        turn: Turn::default(),
        outbound: BytesMut::new(),
        silence: Silence::Heard,
        wrote: true,
        partial_since: None,
        stalled_since: None,
        closing: false,
        is_behind: false,
        traced: None,
    };
    let abort = ending.abort.clone();
    let ended = abort
        .run_until_cancelled(running.serve(limits, ending.drain))
        .await;
    if let Some(Err(error)) = ended {
        let entry = &running.connection.entry;
        entry.metrics.error(error.kind());
        if matches!(error, Ended::GaveWay) {
            tracing::warn!(peer = %entry.peer, %error, "a connection to {name} ended");
        } else {
            tracing::debug!(peer = %entry.peer, %error, "a connection to {name} ended early");
        }
    }
}

/// Time without received bytes, in ticks.
#[derive(Debug, Clone, Copy)]
enum Silence {
    Heard,
    Quiet,
    Pinged,
}

/// Reasons why a connection ends early.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("nothing came from it for too long")]
    Idle,
    #[error("it did not read the bytes that were sent to it")]
    Stalled,
    #[error("a message took too long to come")]
    Slow,
    #[error("a message made way: next to nothing of it came, while others waited for memory")]
    GaveWay,
    #[error("a frame is larger than the budget of the process")]
    Budget,
    #[error("another node may have taken over meanwhile")]
    NotOwner,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Ended {
    fn kind(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Stalled => "write_stalled",
            Self::Slow => "frame_slow",
            Self::GaveWay => "gave_way",
            Self::Budget => "budget",
            Self::NotOwner => "not_owner",
            Self::Io(_) => "io",
        }
    }
}

/// Event that woke the connection.
enum Woken<D> {
    Drain,
    Done(D),
    Readable,
    ReadableAhead,
    Go,
    Tick,
}

impl<S: Session> Running<S> {
    async fn serve(&mut self, limits: Limits, drain: CancellationToken) -> Result<(), Ended> {
        let tick_every = limits.idle / 2;
        let mut tick_at = Instant::now() + tick_every;
        self.process();
        loop {
            self.send()?;
            if self.is_behind && self.working.is_none() && self.outbound.len() < UNSENT_MAX {
                self.process();
                // Gives other tasks on this thread a turn.
                tokio::task::yield_now().await;
                continue;
            }
            if self.closing && self.outbound.is_empty() && self.working.is_none() {
                return self.end().await;
            }
            self.reserve().await?;
            let may_read = self.may_read();
            let wake_at = if may_read {
                tick_at.min(self.window_end(tick_at))
            } else {
                tick_at
            };
            self.connection.entry.set_wait(self.wait());
            let reads_ahead = self.reads_ahead();
            let sends = self.is_sending();
            let pushes = !sends && !self.closing;
            let (stream, session) = (&self.connection.stream, &self.session);
            let woken = tokio::select! {
                () = drain.cancelled(), if !self.closing => Woken::Drain,
                done = done(&mut self.working) => Woken::Done(done),
                ready = stream.readable(), if may_read => ready.map(|()| Woken::Readable)?,
                ready = stream.readable(), if reads_ahead => ready.map(|()| Woken::ReadableAhead)?,
                ready = stream.writable(), if sends => ready.map(|()| Woken::Go)?,
                () = session.ready(), if pushes => Woken::Go,
                () = sleep_until(wake_at) => Woken::Tick,
            };
            match woken {
                Woken::Go => {}
                Woken::Readable => {
                    let begun = Instant::now();
                    if !self.read()? {
                        return Ok(());
                    }
                    self.look_at_arrival()?;
                    self.turn.add(begun.elapsed());
                    self.turn.end().await;
                }
                Woken::ReadableAhead => {
                    if !self.read_ahead()? {
                        return Ok(());
                    }
                }
                Woken::Done(done) => {
                    self.working = None;
                    self.write_traced();
                    self.session.on_done(done, &mut self.outbound);
                    self.process();
                }
                Woken::Drain => self.stop(),
                Woken::Tick if wake_at < tick_at => self.look_at_arrival()?,
                Woken::Tick => {
                    tick_at = Instant::now() + tick_every;
                    self.tick(limits.write)?;
                }
            }
        }
    }

    /// Writes the line of the last read, which is executed and stored.
    fn write_traced(&mut self) {
        if let Some(traced) = self.traced.take() {
            traced.write(self.name, &self.connection);
        }
    }

    /// Notes whether something is left to read or to execute. `has_more`: the last read was full.
    fn note_what_is_left(&mut self, has_more: bool) {
        let waits = self.working.is_some() || self.is_behind || !self.held.is_empty();
        let is_left = has_more || waits || self.outbound.len() >= UNSENT_MAX;
        let requests = self.held.len() + usize::from(self.working.is_some());
        let Some(intake) = self.session.intake() else {
            return;
        };
        if is_left {
            intake.on_left(Instant::now());
        } else {
            intake.on_drained();
        }
        intake.set_requests(requests);
    }

    /// Sends as much as the socket takes. One round suffices: the outbox wakes the connection again if it has
    /// more.
    fn send(&mut self) -> Result<(), Ended> {
        if self.connection.stream.wants_flush() && !self.flush()? {
            return Ok(());
        }
        if self.outbound.is_empty()
            && !self.closing
            && let Err(close) = self.session.push(&mut self.outbound)
        {
            self.close(close.code, close.reason);
        }
        if self.outbound.is_empty() {
            return Ok(());
        }
        if !self.session.may_answer() {
            return Err(Ended::NotOwner);
        }
        let stream = &mut self.connection.stream;
        match self
            .session
            .write(&mut self.outbound, |bytes| stream.try_write(bytes))
        {
            Ok(count) => {
                self.connection.entry.on_sent(count);
                self.wrote = true;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if self.outbound.is_empty() {
            // An idle connection owns no buffer.
            self.outbound = BytesMut::new();
            self.session.on_all_sent();
        }
        Ok(())
    }

    /// Gives the socket the bytes that an encrypted stream still has. True if it took all.
    fn flush(&mut self) -> Result<bool, Ended> {
        match self.connection.stream.try_flush() {
            Ok(()) => {
                self.wrote = true;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns true if something waits for the peer to read.
    fn is_sending(&self) -> bool {
        !self.outbound.is_empty() || self.connection.stream.wants_flush()
    }

    /// Checks the time limits; runs twice per idle timeout.
    fn tick(&mut self, write_timeout: Duration) -> Result<(), Ended> {
        let now = Instant::now();
        if !self.is_sending() || std::mem::take(&mut self.wrote) {
            self.stalled_since = None;
        } else if now - *self.stalled_since.get_or_insert(now) >= write_timeout {
            return Err(Ended::Stalled);
        }
        if !self.is_partial() {
            self.partial_since = None;
        } else if self.working.is_none() && self.held.is_empty() && !self.is_behind {
            let bytes = self.inbound.len() + self.decoder.held_bytes();
            if now - *self.partial_since.get_or_insert(now) >= PACE.allowance(bytes) {
                return Err(Ended::Slow);
            }
        }
        self.silence = match self.silence {
            Silence::Heard => Silence::Quiet,
            Silence::Pinged => return Err(Ended::Idle),
            // A peer that does not read, or that waits for our work, has its own limit.
            Silence::Quiet if self.working.is_some() || self.is_sending() => Silence::Quiet,
            Silence::Quiet => {
                frame::put_ping(&mut self.outbound);
                Silence::Pinged
            }
        };
        Ok(())
    }

    /// Returns the reason why nothing is read.
    fn wait(&self) -> Option<Wait> {
        if self.outbound.is_empty() {
            self.working.is_some().then_some(Wait::Journal)
        } else {
            Some(Wait::Outbox)
        }
    }

    fn stop(&mut self) {
        match self.connection.entry.reason() {
            Some(reason) => self.close(ENDED_BY_OPERATOR, &reason),
            None => self.close(1001, "the broker stops"),
        }
        if self.session.works_long() {
            self.working = None;
        }
    }

    fn close(&mut self, code: u16, reason: &str) {
        if !self.closing {
            frame::put_close(code, reason, &mut self.outbound);
            self.closing = true;
        }
    }

    /// Ends the connection after everything is sent. Waits briefly for the peer to close its side, so that it
    /// gets the rest.
    async fn end(&mut self) -> Result<(), Ended> {
        self.connection.stream.shutdown().await?;
        // The outcome does not matter any more.
        drop(timeout(CLOSE_TIMEOUT, read_to_end(&mut self.connection.stream)).await);
        Ok(())
    }
}

async fn read_to_end(stream: &mut Stream) {
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {}
}

async fn done<D>(working: &mut Option<Working<D>>) -> D {
    match working {
        Some(working) => working.await,
        None => pending().await,
    }
}
