//! Asynchronous shell of a connection: reads requests, has them executed, waits for answers, writes them.
//!
//! Reading continues while earlier requests wait, up to a bound on pending answers. Answers leave in order;
//! all that are ready leave in one write. While a client does not read its answers, its requests are not
//! read.
//! are not read.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use stafett_model::Lock;
use stafett_net::registry::Wait;
use stafett_net::{
    Connection, Frame, FrameError, FrameLimits, FrameReader, Intake, Output, Permit, ReadHalf, Status, Turn,
    WRITE_PACE, WriteHalf,
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::ReusableBoxFuture;

use crate::authority::Identity;
use crate::call::Close;
use crate::cells::PassedClient;
use crate::context::{KafkaContext, RequestContext};
use crate::operation::{Operation, Step};
use crate::response_queue::{NextResponse, ResponseQueue};
use crate::session::{self, Input};
use crate::throttle::Throttle;
use crate::traced::Traced;

/// Length of the shortest request: API, version, correlation id.
const REQUEST_BYTES_MIN: u32 = 8;
/// Answers are collected up to about this many bytes before they are written.
const WRITE_BYTES: usize = 1 << 20;
/// Maximum bytes of a request before the login.
const BEFORE_LOGIN_BYTES_MAX: u32 = 512 << 10;
/// Time limit from connecting to the login.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum capacity of the queues of an idle connection.
const KEPT: usize = 16;

/// Error that ended a connection.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Write(#[from] stafett_net::WriteError),
    #[error(transparent)]
    Close(#[from] Close),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Serves one connection until it ends. A passed client is one of another
/// cell, where its login was checked.
pub(crate) async fn serve(
    shared: Arc<KafkaContext>,
    mut connection: Connection,
    passed: Option<PassedClient>,
) {
    let (peer, id) = (connection.entry.peer, connection.entry.id);
    match run(&shared, &mut connection, passed).await {
        Ok(()) => tracing::trace!(%peer, id, "the client left"),
        Err(Ended::Close(close)) => {
            shared.metrics.on_close(close.reason());
            tracing::debug!(%peer, id, reason = %close, "closing the connection");
        }
        Err(Ended::Frame(error @ FrameError::GaveWay { .. })) => {
            tracing::warn!(%peer, id, %error, "the connection ended");
        }
        Err(error) => tracing::debug!(%peer, id, %error, "the connection ended"),
    }
}

async fn run(
    shared: &Arc<KafkaContext>,
    connection: &mut Connection,
    passed: Option<PassedClient>,
) -> Result<(), Ended> {
    let limits = FrameLimits {
        frame_bytes_min: REQUEST_BYTES_MIN,
        frame_bytes_max: shared.settings.request_bytes_max,
        idle_timeout: shared.settings.idle_timeout,
        ..FrameLimits::default()
    };
    let entry = &connection.entry;
    let drain = connection.drain.clone();
    let context = RequestContext {
        shared: Arc::clone(shared),
        entry: Arc::clone(entry),
        is_tls: match &passed {
            Some(client) => client.is_tls,
            None => entry.tls().is_some(),
        },
        identity: match passed {
            Some(client) => Identity::of(client.caller),
            None => Identity::new(&shared.broker, entry),
        },
        upstream: OnceLock::new(),
        drain: drain.clone(),
        budget: Arc::clone(&connection.budget),
        is_patient: AtomicBool::new(false),
        is_introduced: AtomicBool::new(false),
        opened_sessions: Lock::default(),
        shedding: connection.shedding.clone(),
        trace: connection.trace.clone(),
        throttle: Throttle::default(),
        has_refused: AtomicBool::new(false),
    };
    let intake = Intake::new(connection.shedding.as_ref());
    let reader = FrameReader::new(limits, Arc::clone(&connection.budget), Arc::clone(entry), drain);
    let (read, write) = connection.stream.split();
    let login_until = Instant::now() + LOGIN_TIMEOUT;
    let mut loops = Loop {
        context: &context,
        login_until: context.must_log_in().then_some(login_until),
        reader,
        read,
        write,
        frames: Vec::new(),
        held: VecDeque::new(),
        responses: ResponseQueue::default(),
        performing: Performing::default(),
        outgoing: Output::default(),
        is_reading: true,
        intake,
        turn: Turn::default(),
    };
    if loops.login_until.is_some() {
        let bytes = BEFORE_LOGIN_BYTES_MAX.min(shared.settings.request_bytes_max);
        loops.reader.set_frame_bytes_max(bytes);
    }
    loops.run().await
}

struct Loop<'a> {
    context: &'a RequestContext,
    /// Until the client has logged in; `None` if it need not.
    login_until: Option<Instant>,
    reader: FrameReader,
    read: ReadHalf<'a>,
    write: WriteHalf<'a>,
    /// Frames of the last read; moved to `held` at once.
    frames: Vec<Frame>,
    /// Frames that were read and wait until an earlier answer is done.
    held: VecDeque<Frame>,
    responses: ResponseQueue,
    performing: Performing<'a>,
    outgoing: Output,
    is_reading: bool,
    intake: Intake,
    turn: Turn,
}

/// The operation that the first answer waits for. Its memory is kept for the next one.
#[derive(Default)]
struct Performing<'a> {
    operation: Option<ReusableBoxFuture<'a, Result<Step, Close>>>,
    is_pending: bool,
    /// Its wait, for the registry of connections.
    wait: Option<Wait>,
}

impl<'a> Performing<'a> {
    /// Performs operations until the first answer is ready, and takes it.
    fn poll_next(
        &mut self,
        context: &'a RequestContext,
        responses: &mut ResponseQueue,
        cx: &mut Context<'_>,
    ) -> Poll<NextResponse> {
        loop {
            if let Some(operation) = self.operation.as_mut().filter(|_| self.is_pending) {
                let Poll::Ready(step) = operation.poll(cx) else {
                    context.entry.begin_wait(self.wait);
                    return Poll::Pending;
                };
                context.entry.set_wait(None);
                self.is_pending = false;
                responses.on_done(step);
            }
            match responses.next_operation() {
                Some(Operation::Turn(request)) => responses.on_done(request.on_done(context, ())),
                Some(operation) => {
                    self.wait = operation.wait();
                    self.begin(operation.perform(context));
                }
                None => {
                    let next = responses.poll_next(&context.shared, cx);
                    if next.is_ready() {
                        context.entry.set_wait(None);
                    } else if !responses.is_empty() {
                        context.entry.begin_wait(Some(Wait::Journal));
                    }
                    return next;
                }
            }
        }
    }

    fn begin(&mut self, performed: impl Future<Output = Result<Step, Close>> + Send + 'a) {
        match &mut self.operation {
            Some(operation) => operation.set(performed),
            none => *none = Some(ReusableBoxFuture::new(performed)),
        }
        self.is_pending = true;
    }
}

#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart at once, and a box would cost memory for each answer"
)]
enum Event {
    Response(NextResponse),
    Read(Status),
    /// The client is no longer beyond its quota.
    Unmuted,
}

impl Loop<'_> {
    async fn run(&mut self) -> Result<(), Ended> {
        while self.is_reading || !self.responses.is_empty() || !self.held.is_empty() {
            let event = self.next_event().await?;
            match event {
                Event::Response(next) => {
                    let worked = self.respond(next).await?;
                    self.turn.add(worked);
                }
                Event::Unmuted => {}
                Event::Read(status) => {
                    self.held.extend(self.frames.drain(..));
                    if self.reader.take_was_empty() {
                        self.intake.on_drained();
                    }
                    if status != Status::Frames {
                        self.is_reading = false;
                        // Ends all waits for future events, such as those of fetches.
                        self.context.drain.cancel();
                    }
                }
            }
            let input = Input {
                refuses: self.intake.is_used() && self.refuses_work(),
                received_in: self.reader.received_in(),
            };
            let begun = Instant::now();
            session::on_input(self.context, &mut self.held, &mut self.responses, input);
            self.turn.add(begun.elapsed());
            if self.intake.is_used() {
                self.note_what_is_left();
            }
            self.turn.end().await;
            self.shrink();
            if self.login_until.is_some() && !self.context.must_log_in() {
                self.login_until = None;
                self.reader
                    .set_frame_bytes_max(self.context.shared.settings.request_bytes_max);
            }
        }
        Ok(())
    }

    /// Returns true if the requests that were read waited too long to begin new work.
    fn refuses_work(&self) -> bool {
        let oldest_write = self.responses.oldest_produce();
        !self.held.is_empty() && self.intake.refuses(Instant::now(), oldest_write)
    }

    /// Notes whether requests wait that could not begin, or were not read.
    fn note_what_is_left(&mut self) {
        let reads = self.responses.len() < self.context.shared.settings.answers_max;
        if self.held.is_empty() && self.reader.is_drained() && reads {
            self.intake.on_drained();
        } else {
            self.intake.on_left(Instant::now());
        }
        self.intake.set_requests(self.responses.len() + self.held.len());
    }

    async fn next_event(&mut self) -> Result<Event, Ended> {
        let muted = self.context.muted_until();
        let may_read = self.is_reading
            && muted.is_none()
            && self.held.is_empty()
            && self.responses.len() < self.context.shared.settings.answers_max;
        let Self {
            context,
            reader,
            read,
            frames,
            responses,
            performing,
            login_until,
            ..
        } = self;
        let too_late = async {
            match *login_until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let unmuted = async {
            match muted {
                Some(until) => context.drain.run_until_cancelled(sleep_until(until)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            next = poll_fn(|cx| performing.poll_next(context, responses, cx)), if !responses.is_empty() => {
                Ok(Event::Response(next))
            }
            status = reader.next_frames(read, frames), if may_read => Ok(Event::Read(status?)),
            _ = unmuted => Ok(Event::Unmuted),
            () = too_late => Err(Close::NoLogin.into()),
        }
    }

    /// Writes an answer, together with all that are ready behind it. Returns the time that it took.
    async fn respond(&mut self, first: NextResponse) -> Result<Duration, Ended> {
        let begun = Instant::now();
        let mut permits: Option<Permit> = None;
        let mut turn = None;
        let mut closed = None;
        let mut next = Some(first);
        let mut traced: Vec<Box<Traced>> = Vec::new();
        while let Some(NextResponse {
            result,
            permit,
            traced: this,
        }) = next
        {
            let before = self.outgoing.len();
            let reply = match result {
                Ok(reply) => reply,
                Err(close) => {
                    closed = Some(close);
                    break;
                }
            };
            for permit in [Some(permit), reply.memory].into_iter().flatten() {
                match &mut permits {
                    Some(permits) => permits.merge(permit),
                    none => *none = Some(permit),
                }
            }
            if let Some(encoded) = reply.encoded {
                for chunk in encoded {
                    self.outgoing.push(chunk);
                }
            }
            if let Some(mut this) = this {
                this.bytes_out = self.outgoing.len() - before;
                traced.push(this);
            }
            if reply.close.is_some() {
                closed = reply.close;
                break;
            }
            if reply.turn.is_some() {
                turn = reply.turn;
                break;
            }
            next = if self.outgoing.len() < WRITE_BYTES {
                self.ready_answer().await
            } else {
                None
            };
        }
        if !self.context.shared.may_answer() {
            return Err(Close::NotOwner.into());
        }
        let mut took = Duration::ZERO;
        if !self.outgoing.is_empty() {
            let Self { outgoing, write, .. } = self;
            let entry = &self.context.entry;
            outgoing.write_paced(write, WRITE_PACE, entry).await?;
            took = begun.elapsed();
            self.context.shared.metrics.on_written(took);
        }
        drop((permits, turn));
        if let Some(trace) = &self.context.trace {
            for this in traced {
                this.write(trace, self.context, self.context.entry.metrics.open.get());
            }
        }
        closed.map_or(Ok(took), |close| Err(close.into()))
    }

    /// Returns the next answer if it is ready now.
    async fn ready_answer(&mut self) -> Option<NextResponse> {
        let Self {
            context,
            responses,
            performing,
            ..
        } = self;
        poll_fn(|cx| match performing.poll_next(context, responses, cx) {
            Poll::Ready(next) => Poll::Ready(Some(next)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    /// Releases memory, so that an idle connection keeps little.
    fn shrink(&mut self) {
        if self.frames.capacity() > KEPT {
            self.frames = Vec::new();
        }
        if self.held.is_empty() && self.held.capacity() > KEPT {
            self.held = VecDeque::new();
        }
        self.outgoing.shrink();
        self.responses.shrink();
    }
}
