//! One WebSocket connection: reads, feeds its [`Session`], runs the gathered work, writes.
//!
//! - Bytes are read into a buffer of the thread; a connection owns a buffer only for an incomplete frame,
//!   whose bytes it reserves from the budget first.
//! - It executes nothing while work is in progress or while its peer does not read the answers: the socket
//!   holds back a fast peer. During long work it reads a little ahead, to notice the end of the peer.
//! - Messages that the session pushes wait there, within its bound, until the socket takes it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use stafett_net::registry::Wait;
use stafett_net::{Arrival, Connection, Intake, Pace, Stream, turn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::frame::{self, Decoded, Decoder, Event, FrameError};
use crate::session::{Incoming, Session, Step};
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
    #[error("it did not read what was sent to it")]
    Stalled,
    #[error("a message took too long to come")]
    Slow,
    #[error("a message made way: next to nothing of it came, while others waited for memory")]
    GaveWay,
    #[error("a frame is larger than the budget of the process")]
    Budget,
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
                    let Some(bytes) = self.read()? else {
                        return Ok(());
                    };
                    self.look_at_arrival()?;
                    turn::after(bytes).await;
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

    fn may_read(&self) -> bool {
        !self.closing
            && !self.is_behind
            && self.working.is_none()
            && self.held.is_empty()
            && self.outbound.len() < UNSENT_MAX
    }

    /// Returns true if bytes are read during long work, to notice the end of the peer.
    fn reads_ahead(&self) -> bool {
        self.working.is_some()
            && !self.closing
            && self.inbound.len() < READ_AHEAD_BYTES
            && self.session.works_long()
    }

    /// Reads once and processes the bytes. Returns their number, or `None` if the peer has closed its side.
    fn read(&mut self) -> Result<Option<usize>, Ended> {
        let intake = self.session.intake().filter(|intake| intake.is_used());
        let refuses = intake.map(|intake| intake.refuses(Instant::now(), None));
        let sheds = refuses.is_some();
        self.session.set_refuses(refuses.unwrap_or(false));
        let room = if self.inbound.is_empty() {
            READ_BYTES
        } else {
            PARTIAL_READ_BYTES
        };
        let traced = Traced::begin(&self.connection);
        let read = if self.inbound.is_empty() {
            READ.with_borrow_mut(|buffer| {
                let count = self.connection.stream.try_read(buffer)?;
                if let Some(bytes) = buffer.get_mut(..count) {
                    let used = self.look_at(bytes);
                    self.inbound
                        .extend_from_slice(bytes.get(used..).unwrap_or_default());
                }
                Ok(count)
            })
        } else {
            self.inbound.reserve(PARTIAL_READ_BYTES);
            let count = self.connection.stream.try_read_buf(&mut self.inbound);
            if count.is_ok() {
                self.process_inbound();
            }
            count
        };
        match read {
            Ok(0) => Ok(None),
            Ok(count) => {
                self.connection.entry.on_received(count);
                self.silence = Silence::Heard;
                if let Some(mut traced) = traced {
                    traced.on_processed(count);
                    self.traced = Some(traced);
                }
                self.work();
                if self.working.is_none() {
                    self.write_traced();
                }
                if sheds {
                    self.note_what_is_left(count >= room);
                }
                Ok(Some(count))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if let Some(intake) = self.session.intake() {
                    intake.on_drained();
                }
                Ok(Some(0))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reads bytes that wait until the work is done. False if the peer has closed its side.
    fn read_ahead(&mut self) -> Result<bool, Ended> {
        self.inbound.reserve(PARTIAL_READ_BYTES);
        match self.connection.stream.try_read_buf(&mut self.inbound) {
            Ok(count) => {
                self.connection.entry.on_received(count);
                self.silence = Silence::Heard;
                Ok(count > 0)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error.into()),
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

    /// Continues with bytes and messages received earlier.
    fn process(&mut self) {
        self.is_behind = false;
        while let Some(message) = self.held.pop_front() {
            self.is_behind = self.outbound.len() >= UNSENT_MAX;
            let incoming = message.as_deref().map_err(|why| &**why);
            if self.is_behind || self.session.on_message(incoming, &mut self.outbound) == Step::AfterWork {
                self.held.push_front(message);
                break;
            }
        }
        if self.held.is_empty() {
            self.held = VecDeque::new();
            self.process_inbound();
        }
        self.work();
    }

    fn process_inbound(&mut self) {
        let mut inbound = std::mem::take(&mut self.inbound);
        let used = self.look_at(&mut inbound);
        inbound.advance(used);
        if inbound.is_empty() {
            // An idle connection owns no buffer.
            inbound = BytesMut::new();
            if !self.decoder.is_in_message() {
                self.memory = None;
            }
        }
        self.inbound = inbound;
    }

    /// Processes the frames in `bytes` one by one; returns the number of bytes used.
    fn look_at(&mut self, mut bytes: &mut [u8]) -> usize {
        let mut used = 0;
        self.is_behind = false;
        while !self.closing && self.held.is_empty() && !bytes.is_empty() {
            // Answers may be far larger than their commands.
            if self.outbound.len() >= UNSENT_MAX {
                self.is_behind = true;
                break;
            }
            if self.session.takes_several() && bytes.first() == Some(&frame::WHOLE_TEXT) {
                let (count, behind) = self.look_at_texts(std::mem::take(&mut bytes));
                used += count;
                bytes = behind;
                if count > 0 || self.closing {
                    continue;
                }
            }
            let (count, event) = match self.decoder.decode(bytes) {
                Ok(Decoded::Incomplete(_)) => break,
                Ok(Decoded::Frame { bytes, event }) => (bytes, event),
                Err(error) => {
                    self.refuse(error);
                    break;
                }
            };
            // Control frames between fragments do not extend the time allowed for a message.
            let is_whole = matches!(event, Event::Text(_) | Event::Binary(_));
            match event {
                Event::Text(text) => {
                    if self.session.on_message(Ok(text), &mut self.outbound) == Step::AfterWork {
                        self.held.push_back(Ok(text.into()));
                    }
                }
                Event::Binary(bytes) => {
                    let read = self.session.read_binary(bytes);
                    let incoming: Incoming<'_> = read.as_deref().map_err(String::as_str);
                    if self.session.on_message(incoming, &mut self.outbound) == Step::AfterWork {
                        self.held.push_back(read.map(Into::into).map_err(Into::into));
                    }
                }
                Event::Ping(payload) => frame::put_pong(payload, &mut self.outbound),
                Event::Pong | Event::Fragment => {}
                Event::Close(code) => {
                    frame::put_close(code.unwrap_or(1000), "", &mut self.outbound);
                    self.closing = true;
                }
            }
            if is_whole {
                self.partial_since = None;
            }
            used += count;
            bytes = bytes.get_mut(count..).unwrap_or_default();
        }
        used
    }

    /// Processes several unfragmented text messages at once. Returns the number of bytes used, and the rest.
    fn look_at_texts<'a>(&mut self, bytes: &'a mut [u8]) -> (usize, &'a mut [u8]) {
        let mut texts = Vec::with_capacity(TEXTS_MAX);
        let taken = self.decoder.texts(bytes, TEXTS_MAX, &mut texts);
        if !texts.is_empty() {
            self.partial_since = None;
            let done = self.session.on_texts(&texts, UNSENT_MAX, &mut self.outbound);
            let left = texts.get(done..).unwrap_or_default();
            self.is_behind = !left.is_empty() && self.outbound.len() >= UNSENT_MAX;
            self.held.extend(left.iter().map(|text| Ok(Box::from(*text))));
        }
        if let Some(error) = taken.error {
            self.refuse(error);
        }
        (taken.bytes, taken.rest)
    }

    fn refuse(&mut self, error: FrameError) {
        self.connection.entry.metrics.error("websocket");
        self.session.on_refused(error, &mut self.outbound);
        self.close(error.close_code(), &error.to_string());
    }

    /// Starts the gathered work.
    fn work(&mut self) {
        if self.working.is_none()
            && let Some(work) = self.session.take_work()
        {
            self.working = Some(work);
        }
    }

    fn is_partial(&self) -> bool {
        !self.inbound.is_empty() || self.decoder.is_in_message()
    }

    /// Reserves memory for the rest of an incomplete message before it is read.
    async fn reserve(&mut self) -> Result<(), Ended> {
        if self.working.is_some() || self.closing || self.is_behind || !self.is_partial() {
            return Ok(());
        }
        let Some(frame_bytes) = self.decoder.frame_bytes(&self.inbound) else {
            return Ok(());
        };
        // The size of a fragmented message is not known in advance.
        let is_one_frame =
            !self.decoder.is_in_message() && self.inbound.first().is_some_and(|byte| byte & FIN != 0);
        let expected = if is_one_frame {
            frame_bytes
        } else {
            frame_bytes.max(self.message_bytes_max)
        };
        let budget = &self.connection.budget;
        let memory = match self.memory.take().filter(|memory| memory.expected() >= expected) {
            Some(memory) => memory,
            None => {
                if let Some(memory) = Arrival::try_begin(budget, expected) {
                    memory
                } else {
                    let _waiting = self.connection.entry.waiting(Wait::Memory);
                    let begun = Arrival::begin(budget, expected).await;
                    begun.map_err(|_| Ended::Budget)?
                }
            }
        };
        let memory = self.memory.insert(memory);
        let needed = self.inbound.len() + self.decoder.held_bytes() + PARTIAL_READ_BYTES;
        while memory.room() < needed && !memory.is_whole() {
            if !memory.try_grow() {
                let _waiting = self.connection.entry.waiting(Wait::Memory);
                memory.grow().await.map_err(|_| Ended::Budget)?;
            }
        }
        Ok(())
    }

    /// Returns the time for the next look at the incomplete message. `never` if there is none.
    fn window_end(&mut self, never: Instant) -> Instant {
        let received = self.inbound.len() + self.decoder.held_bytes();
        self.memory
            .as_mut()
            .map_or(never, |memory| memory.window_end(Instant::now(), received))
    }

    /// Ends the connection if the window of its message has ended without progress while others wait for
    /// memory.
    fn look_at_arrival(&mut self) -> Result<(), Ended> {
        let received = self.inbound.len() + self.decoder.held_bytes();
        let (memory, now) = (self.memory.as_mut(), Instant::now());
        if memory.is_some_and(|memory| memory.is_due(now) && memory.gives_way(now, received)) {
            return Err(Ended::GaveWay);
        }
        Ok(())
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
