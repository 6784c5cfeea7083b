//! Reads frames from a stream.
//!
//! Bytes that were received but not returned yet are *unparsed* (whole frames beyond `frames_max`, or the
//! beginning of the next frame), a *partial* frame, or both: a partial frame that is now complete, and the
//! bytes behind it.
//!
//! ```text
//! parse ──▶ frames returned? ──yes──▶ return
//!   ▲              │ no: the unparsed bytes are the beginning of one frame
//!   │              ▼
//!   │         make room: reserve its bytes, move it into a buffer of its own size
//!   │              ▼
//!   └──────── read once
//! ```
//!
//! - A connection that waits for its next frame owns no buffer and none of the budget.
//! - A complete frame never waits for the budget, and frames before an invalid length are returned first.
//! - While a reader waits for the budget it holds bytes of the small pool, or a frame whose next step it
//!   waits for, or none.
//! - All state is in the reader: dropping the future of [`FrameReader::next_frames`] loses nothing.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use tokio::io::AsyncRead;
use tokio::time::{Instant, timeout_at};
use tokio_util::io::poll_read_buf;
use tokio_util::sync::CancellationToken;

use super::scratch::{self, READ_BYTES};
use super::{Frame, FrameError, FrameLimits, HEADER_BYTES, Status};
use crate::arrival::{Arrival, WINDOW};
use crate::budget::{ByteBudget, Permit};
use crate::registry::{ConnectionEntry, Wait};
use crate::tls::{is_hello, warn_of_tls};

/// If a frame lacks at least this much, the rest is read straight into its buffer. Less is read together with
/// the bytes that follow it.
const DIRECT_BYTES_MIN: usize = 16 * 1024;

/// Reads the frames of one connection.
#[derive(Debug)]
pub struct FrameReader {
    limits: FrameLimits,
    budget: Arc<ByteBudget>,
    entry: Arc<ConnectionEntry>,
    drain: CancellationToken,
    unparsed: Option<Unparsed>,
    partial: Option<Box<Partial>>,
    /// Start of the time that the current frame may take; restarts after a wait for memory.
    since: Option<Instant>,
    /// The last read took all bytes that were there.
    is_drained: bool,
    /// A read had to wait for bytes.
    was_empty: bool,
    /// Time of the first of the last frames from its first byte on, if it came in several reads.
    received_in: Duration,
}

/// Bytes as received; never empty.
#[derive(Debug)]
struct Unparsed {
    bytes: Bytes,
    permit: Permit,
}

/// Beginning of a frame: the length prefix while that is incomplete, then the whole frame.
#[derive(Debug)]
struct Partial {
    /// Its capacity is reserved.
    buffer: Vec<u8>,
    /// Size of the complete buffer.
    expected: usize,
    memory: Arrival,
}

impl Partial {
    fn missing(&self) -> usize {
        self.expected.saturating_sub(self.buffer.len())
    }

    /// Returns the number of bytes that may be read into the buffer now.
    fn room(&self) -> usize {
        self.memory
            .room()
            .min(self.expected)
            .saturating_sub(self.buffer.len())
    }
}

/// Outcome of one read.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    Progress,
    /// Nothing arrived for a while.
    Nothing,
    /// Nothing was read: the bytes could not be reserved without waiting.
    NeedsBudget,
    Closed,
}

impl FrameReader {
    #[must_use]
    pub fn new(
        limits: FrameLimits,
        budget: Arc<ByteBudget>,
        entry: Arc<ConnectionEntry>,
        drain: CancellationToken,
    ) -> Self {
        Self {
            limits,
            budget,
            entry,
            drain,
            unparsed: None,
            partial: None,
            since: None,
            is_drained: true,
            was_empty: true,
            received_in: Duration::ZERO,
        }
    }

    /// True if a read had to wait for bytes since this was asked last.
    pub fn take_was_empty(&mut self) -> bool {
        std::mem::take(&mut self.was_empty)
    }

    /// Returns the time that the first of the last frames took to come; zero if it came in one read.
    pub fn received_in(&self) -> Duration {
        self.received_in
    }

    /// True if nothing is left to return: the last read took all bytes that were there, and all frames in
    /// them were returned.
    pub fn is_drained(&self) -> bool {
        self.is_drained && self.unparsed.is_none()
    }

    /// Changes the largest accepted frame from now on, for example after authentication.
    pub fn set_frame_bytes_max(&mut self, bytes: u32) {
        self.limits.frame_bytes_max = bytes;
    }

    /// Waits until at least one frame is complete and appends all complete frames to `frames`, in order, at
    /// most `frames_max` at once. Safe to cancel.
    ///
    /// # Errors
    /// Any error ends the connection. It is counted under its kind.
    pub async fn next_frames<R: AsyncRead + Unpin>(
        &mut self,
        stream: &mut R,
        frames: &mut Vec<Frame>,
    ) -> Result<Status, FrameError> {
        let drain = self.drain.clone();
        let result = match drain.run_until_cancelled(self.read_frames(stream, frames)).await {
            Some(result) => result,
            None => Ok(Status::Draining),
        };
        if let Err(error) = &result {
            self.entry.metrics.error(error.kind());
            if matches!(error, FrameError::Length { given, .. } if is_hello(&given.to_be_bytes())) {
                warn_of_tls(&self.entry);
            }
        }
        result
    }

    async fn read_frames<R: AsyncRead + Unpin>(
        &mut self,
        stream: &mut R,
        frames: &mut Vec<Frame>,
    ) -> Result<Status, FrameError> {
        let held = frames.len();
        loop {
            self.parse(frames)?;
            if frames.len() > held {
                self.received_in = Duration::ZERO;
                if let Some(since) = self.since.take() {
                    self.received_in = since.elapsed();
                    let seconds = self.received_in.as_secs_f64();
                    self.entry.metrics.receive_seconds.observe(seconds);
                }
                return Ok(Status::Frames);
            }
            self.make_room().await?;
            let mut permit = None;
            let turn = loop {
                match self.read_once(stream, &mut permit).await? {
                    Turn::Nothing => {}
                    Turn::NeedsBudget => {
                        let _waiting = self.entry.waiting(Wait::Memory);
                        permit = Some(self.budget.reserve(READ_BYTES).await?);
                    }
                    turn @ (Turn::Progress | Turn::Closed) => break turn,
                }
            };
            if turn == Turn::Closed {
                return self.closed();
            }
        }
    }

    /// Appends the complete frames to `frames`.
    fn parse(&mut self, frames: &mut Vec<Frame>) -> Result<(), FrameError> {
        let held = frames.len();
        if let Some(partial) = self.partial.take_if(|partial| partial.missing() == 0) {
            let Partial {
                buffer,
                memory,
                expected,
            } = *partial;
            let mut bytes = Bytes::from(buffer);
            let permit = memory.into_permit();
            if expected == HEADER_BYTES {
                self.unparsed = Some(Unparsed { bytes, permit });
            } else {
                bytes.advance(HEADER_BYTES);
                frames.push(Frame {
                    payload: bytes,
                    permit,
                });
            }
        }
        let Some(mut unparsed) = self.unparsed.take() else {
            return Ok(());
        };
        while frames.len() - held < self.limits.frames_max {
            let expected = match self.frame_size(&unparsed.bytes) {
                Err(error) if frames.len() == held => return Err(error),
                // Found again and returned after the frames before it.
                Err(_) => break,
                Ok(expected) => expected,
            };
            let Some(expected) = expected.filter(|size| *size <= unparsed.bytes.len()) else {
                break;
            };
            let payload = unparsed.bytes.split_to(expected).split_off(HEADER_BYTES);
            frames.push(Frame {
                payload,
                permit: unparsed.permit.split(expected),
            });
        }
        if !unparsed.bytes.is_empty() {
            self.unparsed = Some(unparsed);
        } else if let Some(last) = frames.last_mut() {
            // The shared buffer may be larger than its bytes.
            last.permit.merge(unparsed.permit);
        }
        Ok(())
    }

    /// Returns the size of the frame at the start of `bytes`, length prefix included. `None` if the prefix is
    /// incomplete.
    fn frame_size(&self, bytes: &[u8]) -> Result<Option<usize>, FrameError> {
        let Some(length) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let given = i32::from_be_bytes(*length);
        let (min, max) = (self.limits.frame_bytes_min, self.limits.frame_bytes_max);
        let length = u32::try_from(given)
            .ok()
            .filter(|length| (min..=max).contains(length));
        let length = length.ok_or(FrameError::Length { given, min, max })?;
        Ok(Some(HEADER_BYTES + length as usize))
    }

    /// Moves the beginning of a frame into its own buffer, and grows a full buffer by its next step, after
    /// reserving the bytes.
    async fn make_room(&mut self) -> Result<(), FrameError> {
        if let Some(partial) = &mut self.partial {
            if partial.room() == 0 && partial.missing() > 0 {
                if !partial.memory.try_grow() {
                    // Not the sender's fault: its time restarts.
                    self.since = None;
                    let _waiting = self.entry.waiting(Wait::Memory);
                    partial.memory.grow().await?;
                }
                let more = partial.room();
                partial.buffer.reserve_exact(more);
                self.since.get_or_insert_with(Instant::now);
            }
            return Ok(());
        }
        let Some(unparsed) = &self.unparsed else {
            return Ok(());
        };
        let expected = self.frame_size(&unparsed.bytes)?.unwrap_or(HEADER_BYTES);
        let mut since = self.since;
        let memory = if let Some(memory) = Arrival::try_begin(&self.budget, expected) {
            memory
        } else {
            since = None;
            let _waiting = self.entry.waiting(Wait::Memory);
            Arrival::begin(&self.budget, expected).await?
        };
        self.since = since.or_else(|| Some(Instant::now()));
        if let Some(unparsed) = self.unparsed.take() {
            let mut buffer = Vec::with_capacity(memory.room());
            buffer.put(unparsed.bytes);
            self.partial = Some(Box::new(Partial {
                buffer,
                expected,
                memory,
            }));
        }
        Ok(())
    }

    /// Waits for bytes and reads them, within the time that the peer has.
    async fn read_once<R: AsyncRead + Unpin>(
        &mut self,
        stream: &mut R,
        permit: &mut Option<Permit>,
    ) -> Result<Turn, FrameError> {
        let now = Instant::now();
        let since = self.since.unwrap_or(now);
        let (deadline, until) = match &mut self.partial {
            Some(partial) => {
                let deadline = since + self.limits.pace.allowance(partial.expected);
                let window_end = partial.memory.window_end(now, partial.buffer.len());
                (deadline, deadline.min(window_end))
            }
            None => (since + self.limits.idle_timeout, since + self.limits.idle_timeout),
        };
        let turn = poll_fn(|cx| {
            let polled = self.poll_turn(stream, permit, cx);
            self.was_empty |= polled.is_pending();
            polled
        });
        match timeout_at(until, turn).await {
            Ok(turn) => {
                // Bytes that come as the window ends do not begin another one unseen.
                self.check_window()?;
                turn
            }
            Err(_elapsed) => self.on_nothing(deadline - since, until < deadline),
        }
    }

    /// Decides what follows when nothing arrived until the window of a partial frame, or the peer's whole
    /// time, ended.
    fn on_nothing(&mut self, allowed: Duration, is_early: bool) -> Result<Turn, FrameError> {
        let Some(partial) = &mut self.partial else {
            return Err(FrameError::Idle { after: allowed });
        };
        let (received, expected) = (partial.buffer.len(), partial.expected);
        if !is_early {
            return Err(FrameError::Slow {
                received,
                expected,
                allowed,
            });
        }
        self.check_window()?;
        Ok(Turn::Nothing)
    }

    /// Fails if the window of a partial frame has ended without progress while others wait for memory.
    fn check_window(&mut self) -> Result<(), FrameError> {
        let Some(partial) = &mut self.partial else {
            return Ok(());
        };
        let (now, received, expected) = (Instant::now(), partial.buffer.len(), partial.expected);
        if partial.memory.is_due(now) && partial.memory.gives_way(now, received) {
            return Err(FrameError::GaveWay {
                received,
                expected,
                window: WINDOW,
            });
        }
        Ok(())
    }

    fn poll_turn<R: AsyncRead + Unpin>(
        &mut self,
        stream: &mut R,
        permit: &mut Option<Permit>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Turn, FrameError>> {
        let shared = match &self.partial {
            Some(partial)
                if partial.expected == HEADER_BYTES
                    || partial.missing() >= DIRECT_BYTES_MIN
                    || !partial.memory.is_whole() =>
            {
                None
            }
            Some(_) => self.budget.try_reserve(READ_BYTES),
            None => match permit.take().or_else(|| self.budget.try_reserve(READ_BYTES)) {
                Some(permit) => Some(permit),
                None => return Poll::Ready(Ok(Turn::NeedsBudget)),
            },
        };
        let (count, max) = match (shared, &mut self.partial) {
            (None, Some(partial)) => {
                let room = partial.room();
                let mut limited = (&mut partial.buffer).limit(room);
                (ready!(poll_read_buf(Pin::new(stream), cx, &mut limited))?, room)
            }
            (None, None) => return Poll::Ready(Ok(Turn::NeedsBudget)),
            (Some(permit), _) => {
                let read = ready!(scratch::poll_read(stream, cx))?;
                let count = read.bytes.len();
                self.take_in(read, permit);
                (count, READ_BYTES)
            }
        };
        self.is_drained = count < max;
        self.entry.on_received(count);
        Poll::Ready(Ok(if count == 0 { Turn::Closed } else { Turn::Progress }))
    }

    /// Completes the partial frame with the bytes read, and keeps the rest.
    fn take_in(&mut self, read: scratch::Read, mut permit: Permit) {
        let scratch::Read {
            mut bytes,
            memory_bytes,
        } = read;
        if let Some(partial) = &mut self.partial {
            let missing = partial.missing().min(bytes.len());
            partial.buffer.put(bytes.split_to(missing));
        }
        if !bytes.is_empty() {
            permit.shrink_to(memory_bytes);
            self.unparsed = Some(Unparsed { bytes, permit });
        }
    }

    /// Decides whether the end of the stream is an error: it is one inside a frame.
    fn closed(&self) -> Result<Status, FrameError> {
        match &self.partial {
            Some(partial) => Err(FrameError::Truncated {
                received: partial.buffer.len(),
                expected: partial.expected,
            }),
            None => Ok(Status::Closed),
        }
    }
}
