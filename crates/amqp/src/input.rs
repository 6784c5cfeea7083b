//! Received bytes that are not decoded yet. An idle connection has no buffer: memory is taken when there are
//! bytes to read.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use stafett_amqp_wire::frame;
use stafett_net::moderation::{Change, Moderation};
use stafett_net::registry::Wait;
use stafett_net::{BudgetError, ByteBudget, ConnectionEntry, Permit, ReadHalf};
use tokio::time::{Instant, sleep_until};

/// Limits on the bytes of one read.
const READ_BYTES_MIN: usize = 4 * 1024;
const READ_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Input {
    pub buffer: BytesMut,
    /// Bytes of the next read; doubled after a read that filled its buffer.
    read_bytes: usize,
    moderation: Moderation,
    /// There may be bytes that the runtime was not notified of.
    is_unsure: bool,
    /// The last read filled its buffer: there is more to read.
    is_behind: bool,
    /// A read found nothing, and had to wait.
    was_empty: bool,
}

/// Reasons why a read fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Budget(#[from] BudgetError),
}

impl Default for Input {
    fn default() -> Self {
        Self {
            buffer: BytesMut::new(),
            read_bytes: READ_BYTES_MIN,
            moderation: Moderation::default(),
            is_unsure: false,
            is_behind: false,
            was_empty: true,
        }
    }
}

impl Input {
    /// True if a read found nothing since this was asked last.
    pub(crate) fn take_was_empty(&mut self) -> bool {
        std::mem::take(&mut self.was_empty)
    }

    /// True if there is more to read.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Reads the available bytes, with memory reserved before. `None` at the end of the stream. Safe to
    /// cancel.
    pub(crate) async fn read(
        &mut self,
        stream: &mut ReadHalf<'_>,
        budget: &Arc<ByteBudget>,
        entry: &ConnectionEntry,
    ) -> Result<Option<Permit>, InputError> {
        loop {
            match self.moderation.due() {
                Some(due) => {
                    stream.clear_readable();
                    tokio::select! {
                        ready = stream.readable() => ready?,
                        () = sleep_until(due) => {}
                    }
                }
                None if self.is_unsure => {}
                None => stream.readable().await?,
            }
            let wanted = self.wanted();
            let mut permit = if let Some(permit) = budget.try_reserve(wanted) {
                permit
            } else {
                let _waiting = entry.waiting(Wait::Memory);
                budget.reserve(wanted).await?
            };
            self.buffer.reserve(wanted);
            let mut limited = self.buffer.split_off(self.buffer.len());
            let read = if self.is_unsure || self.moderation.due().is_some() {
                stream.try_read_unnoticed(&mut limited, wanted)
            } else {
                stream.try_read_buf(&mut limited)
            };
            self.buffer.unsplit(limited);
            match read {
                Ok(0) => return Ok(None),
                Ok(count) => {
                    permit.shrink_to(count);
                    self.is_behind = count >= wanted;
                    self.read_bytes = if self.is_behind {
                        (self.read_bytes * 2).min(READ_BYTES_MAX)
                    } else {
                        count.next_power_of_two().clamp(READ_BYTES_MIN, READ_BYTES_MAX)
                    };
                    return Ok(Some(permit));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_unsure = false;
                    self.was_empty = true;
                    if self.moderation.due().is_some() {
                        self.moderate(stream, 0, false);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Records the result of a read: see [`Moderation`].
    pub(crate) fn moderate(&mut self, stream: &ReadHalf<'_>, bytes: usize, is_waited_for: bool) {
        if !stream.can_be_moderated() {
            return;
        }
        let change = self.moderation.on_read(Instant::now(), bytes, is_waited_for);
        stream.moderate(change);
        self.is_unsure |= change == Change::Off;
    }

    /// Returns the bytes to read: about the size of the last read, or the rest of the frame that has begun.
    fn wanted(&self) -> usize {
        let missing =
            frame::announced(&self.buffer).map_or(0, |bytes| bytes.saturating_sub(self.buffer.len()));
        missing.clamp(self.read_bytes, READ_BYTES_MAX)
    }

    /// Frees the buffer if it is empty.
    pub(crate) fn shrink(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }
}
