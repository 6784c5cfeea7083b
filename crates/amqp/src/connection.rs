//! The asynchronous shell of a connection: reads what is there, has it executed, writes what follows.
//!
//! While a client does not read, its deliveries stay in the queues: the outbox is emptied only when little waits to
//! be written. While much waits, or much is not stored yet, its requests are not read.

use std::sync::Arc;
use std::time::Duration;

use stafett_amqp_wire::frame;
use stafett_amqp_wire::methods::connection::{CloseOk, OpenOk};
use stafett_amqp_wire::{FrameError, ReplyCode};
use stafett_net::Connection;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{Instant, sleep, timeout};

use crate::amqp::Shared;
use crate::exception::{Exception, octets};
use crate::handshake::{self, Agreed, FRAME_BYTES_BEFORE, Handshake, Step};
use crate::input::{Input, InputError};
use crate::output::Output;
use crate::session::{End, Session};

/// Deliveries are taken out of the outbox while less than this waits to be written.
const DELIVER_BELOW: usize = 256 * 1024;
/// Requests are read while less than this waits to be written.
const READ_BELOW: usize = 4 << 20;
/// How long a client has to answer when the connection is closed from here.
const CLOSE_PATIENCE: Duration = Duration::from_secs(3);
/// Heartbeats of a client that may fail to come, in halves.
const MISSED_MAX: u32 = 4;

/// Why serving stopped.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    End(#[from] End),
    #[error("the client left")]
    Left,
    #[error("nothing came for two heartbeats")]
    Silent,
    #[error("the client did not answer that the connection is closed")]
    NotClosed,
    #[error("the connection was not opened: {0}")]
    NotOpened(String),
}

/// Serves one connection until it ends.
pub(crate) async fn serve(shared: Arc<Shared>, mut connection: Connection) {
    let (peer, id) = (connection.peer, connection.id);
    match run(&shared, &mut connection).await {
        Ended::Left | Ended::End(End::Closed) => tracing::trace!(%peer, id, "the client left"),
        ended @ (Ended::Input(_)
        | Ended::Io(_)
        | Ended::End(_)
        | Ended::Silent
        | Ended::NotClosed
        | Ended::NotOpened(_)) => tracing::debug!(%peer, id, reason = %ended, "the connection ended"),
    }
}

async fn run(shared: &Arc<Shared>, connection: &mut Connection) -> Ended {
    let mut opening = Opening {
        input: Input::new(),
        output: Output::default(),
    };
    let patience = shared.settings.handshake_timeout;
    let opened = timeout(patience, opening.run(shared, connection)).await;
    let agreed = match opened {
        Ok(Ok(agreed)) => agreed,
        Ok(Err(ended)) => return ended,
        Err(_) => return Ended::NotOpened("it took too long".to_owned()),
    };
    let budget = Arc::clone(&connection.budget);
    let session = Session::new(Arc::clone(shared), agreed, budget, opening.output);
    let mut open = Open {
        session,
        input: opening.input,
        is_reading: true,
        missed: 0,
    };
    let ended = open.run(connection).await.unwrap_or_else(|ended| ended);
    open.session.abandon();
    ended
}

/// A connection on which nobody has said yet who it is.
struct Opening {
    input: Input,
    output: Output,
}

impl Opening {
    async fn run(&mut self, shared: &Shared, connection: &mut Connection) -> Result<Agreed, Ended> {
        let peer = connection.peer.ip();
        let budget = Arc::clone(&connection.budget);
        let drain = connection.drain.clone();
        let (read, mut write) = connection.stream.split();
        let mut handshake = Handshake::default();
        let mut began = false;
        loop {
            let read = drain.run_until_cancelled(self.input.read(&read, &budget)).await;
            let Some(read) = read else {
                return Err(End::Stopping.into());
            };
            let permit = read?.ok_or(Ended::Left)?;
            if !began {
                let Some(is_spoken) = frame::split_protocol_header(&mut self.input.buffer) else {
                    continue;
                };
                if !is_spoken {
                    self.output.tail().extend_from_slice(&frame::PROTOCOL_HEADER);
                    self.flush(&mut write).await?;
                    return Err(Ended::NotOpened(
                        "another protocol, or another version".to_owned(),
                    ));
                }
                began = true;
                self.output.send(0, handshake::start());
            }
            while let Some(frame) = self.next_frame()? {
                match handshake.on_frame(frame, &shared.settings, peer) {
                    Step::Nothing => {}
                    Step::Send(method) => self.output.send(0, method),
                    Step::Open(agreed) => return self.open(shared, agreed, &mut write).await,
                    Step::Close(exception) => return Err(self.refuse(&exception, &mut write).await),
                    Step::End { why } => {
                        self.flush(&mut write).await?;
                        return Err(Ended::NotOpened(why));
                    }
                    Step::Closed => {
                        self.output.send(0, CloseOk {});
                        self.flush(&mut write).await?;
                        return Err(Ended::Left);
                    }
                }
            }
            drop(permit);
            self.flush(&mut write).await?;
        }
    }

    fn next_frame(&mut self) -> Result<Option<stafett_amqp_wire::Frame>, Ended> {
        frame::split(&mut self.input.buffer, FRAME_BYTES_BEFORE)
            .map_err(|error| Ended::NotOpened(error.to_string()))
    }

    async fn open(
        &mut self,
        shared: &Shared,
        agreed: Agreed,
        write: &mut WriteHalf<'_>,
    ) -> Result<Agreed, Ended> {
        let name = &agreed.virtual_host;
        if !shared.open_virtual_host(name) {
            let exception = Exception::not_allowed(format!("vhost {name} not found")).caused_by((10, 40));
            return Err(self.refuse(&exception, write).await);
        }
        self.output.send(0, OpenOk::default());
        Ok(agreed)
    }

    /// Tells why, and that is the end.
    async fn refuse(&mut self, exception: &Exception, write: &mut WriteHalf<'_>) -> Ended {
        self.output.send(0, exception.close());
        match self.flush(write).await {
            Ok(()) => Ended::NotOpened(exception.reply_text()),
            Err(ended) => ended,
        }
    }

    async fn flush(&mut self, write: &mut WriteHalf<'_>) -> Result<(), Ended> {
        while !self.output.is_empty() {
            self.output.write(write).await?;
        }
        Ok(())
    }
}

struct Open {
    session: Session,
    input: Input,
    is_reading: bool,
    /// Halves of a heartbeat in which nothing came.
    missed: u32,
}

enum Event {
    Written,
    Read(Option<stafett_net::Permit>),
    Stored,
    Filled,
    Tick,
    Drain,
    TooLate,
}

impl Open {
    async fn run(&mut self, connection: &mut Connection) -> Result<Ended, Ended> {
        let budget = Arc::clone(&connection.budget);
        let drain = connection.drain.clone();
        let metrics = Arc::clone(&connection.metrics);
        let (read, mut write) = connection.stream.split();
        let half = self.session.agreed.heartbeat / 2;
        let mut written_before = 0;
        let mut writing_since: Option<Instant> = None;
        let mut deadline: Option<Instant> = None;
        let mut tick = Box::pin(sleep(half));
        // What came together with the last frame of the opening.
        self.execute().await?;
        loop {
            if self.session.is_closing() && deadline.is_none() {
                deadline = Some(Instant::now() + CLOSE_PATIENCE);
            }
            if writing_since.is_none() && !self.session.out.is_empty() {
                writing_since = Some(Instant::now());
            }
            let event = self
                .next_event(&read, &mut write, &budget, &drain, deadline, &mut tick)
                .await?;
            match event {
                Event::Written => {
                    if self.session.out.is_empty()
                        && let Some(begun) = writing_since.take()
                    {
                        self.session.shared.metrics.on_written(begun.elapsed());
                    }
                }
                Event::Stored | Event::Filled => {}
                Event::Read(None) => return Err(Ended::Left),
                Event::Read(Some(permit)) => {
                    self.missed = 0;
                    metrics.received_bytes.inc_by(permit.bytes() as u64);
                    self.session.add_memory(permit);
                    let begun = Instant::now();
                    match self.execute().await {
                        Ok(()) => {}
                        Err(Ended::End(End::Closed)) => return Ok(self.last_words(&mut write).await),
                        Err(ended) => return Err(ended),
                    }
                    self.session.shared.metrics.on_executed(begun.elapsed());
                }
                Event::Tick => {
                    self.on_tick(&mut written_before)?;
                    tick.as_mut().reset(Instant::now() + half);
                }
                Event::Drain => {
                    self.session.stop().await?;
                    deadline.get_or_insert(Instant::now() + CLOSE_PATIENCE);
                }
                Event::TooLate => return Err(Ended::NotClosed),
            }
            self.session.resolve_ready()?;
            if self.session.out.len() < DELIVER_BELOW {
                let begun = Instant::now();
                if self.session.deliver() {
                    self.session.shared.metrics.on_delivered(begun.elapsed());
                }
            }
            self.input.shrink();
            self.session.out.shrink();
        }
    }

    async fn next_event(
        &mut self,
        read: &ReadHalf<'_>,
        write: &mut WriteHalf<'_>,
        budget: &Arc<stafett_net::ByteBudget>,
        drain: &tokio_util::sync::CancellationToken,
        deadline: Option<Instant>,
        tick: &mut std::pin::Pin<Box<tokio::time::Sleep>>,
    ) -> Result<Event, Ended> {
        let Self {
            session,
            input,
            is_reading,
            ..
        } = self;
        let may_read = *is_reading && session.out.len() < READ_BELOW && !session.is_full();
        let has_heartbeat = !session.agreed.heartbeat.is_zero();
        let has_groups = session.has_groups();
        let may_deliver = session.out.len() < DELIVER_BELOW && !session.is_closing();
        let is_closing = session.is_closing();
        let (groups, out, outbox, replies) = session.parts();
        let waiting = !out.is_empty();
        let begun = Instant::now();
        tokio::select! {
            biased;
            written = out.write(write), if waiting => {
                written?;
                Ok(Event::Written)
            }
            permit = input.read(read, budget), if may_read => Ok(Event::Read(permit?)),
            () = groups.ready(), if has_groups => Ok(Event::Stored),
            () = outbox.filled(), if may_deliver => Ok(Event::Filled),
            () = replies.filled(), if may_deliver => Ok(Event::Filled),
            () = drain.cancelled(), if !is_closing => Ok(Event::Drain),
            () = tick.as_mut(), if has_heartbeat => Ok(Event::Tick),
            () = tokio::time::sleep_until(deadline.unwrap_or(begun)), if deadline.is_some() => Ok(Event::TooLate),
        }
    }

    /// Executes everything that was read.
    async fn execute(&mut self) -> Result<(), Ended> {
        loop {
            match frame::split(&mut self.input.buffer, self.session.agreed.frame_bytes_max) {
                Ok(Some(frame)) => self.session.on_frame(frame).await?,
                Ok(None) => break,
                Err(error) => {
                    // Nothing behind it can be understood.
                    self.is_reading = false;
                    self.session.fail(0, bad_frame(error, &self.input.buffer))?;
                    break;
                }
            }
        }
        self.session.finish_turn()?;
        Ok(())
    }

    fn on_tick(&mut self, written_before: &mut u64) -> Result<(), Ended> {
        self.missed += 1;
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

    /// Writes what is left, for a client that has said goodbye.
    async fn last_words(&mut self, write: &mut WriteHalf<'_>) -> Ended {
        let write_all = async {
            while !self.session.out.is_empty() {
                self.session.out.write(write).await?;
            }
            Ok::<_, std::io::Error>(())
        };
        match timeout(CLOSE_PATIENCE, write_all).await {
            Ok(Ok(())) => Ended::End(End::Closed),
            Ok(Err(error)) => error.into(),
            Err(_) => Ended::NotClosed,
        }
    }
}

fn bad_frame(error: FrameError, buffer: &[u8]) -> Exception {
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
