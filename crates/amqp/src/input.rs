//! What a connection has read and not understood yet. An idle connection has no buffer: memory is taken when there is
//! something to read.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use stafett_amqp_wire::frame;
use stafett_net::{BudgetError, ByteBudget, Permit};
use tokio::net::tcp::ReadHalf;

/// One read takes so much at least, and at most.
const READ_BYTES_MIN: usize = 4 * 1024;
const READ_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Input {
    pub buffer: BytesMut,
    /// How much the next read takes: twice as much after a read that filled it.
    read_bytes: usize,
}

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Budget(#[from] BudgetError),
}

impl Input {
    pub(crate) fn new() -> Self {
        Self {
            buffer: BytesMut::new(),
            read_bytes: READ_BYTES_MIN,
        }
    }

    /// Reads what is there, with the memory taken for it before; nothing at the end of the stream. Safe to cancel.
    pub(crate) async fn read(
        &mut self,
        stream: &ReadHalf<'_>,
        budget: &Arc<ByteBudget>,
    ) -> Result<Option<Permit>, InputError> {
        loop {
            stream.readable().await?;
            let wanted = self.wanted();
            let mut permit = budget.reserve(wanted).await?;
            self.buffer.reserve(wanted);
            let mut limited = self.buffer.split_off(self.buffer.len());
            let read = stream.try_read_buf(&mut limited);
            self.buffer.unsplit(limited);
            match read {
                Ok(0) => return Ok(None),
                Ok(count) => {
                    permit.shrink_to(count);
                    self.read_bytes = if count >= wanted {
                        (self.read_bytes * 2).min(READ_BYTES_MAX)
                    } else {
                        count.next_power_of_two().clamp(READ_BYTES_MIN, READ_BYTES_MAX)
                    };
                    return Ok(Some(permit));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// As much as was read the last time, or what is missing of a frame that has begun.
    fn wanted(&self) -> usize {
        let missing =
            frame::announced(&self.buffer).map_or(0, |bytes| bytes.saturating_sub(self.buffer.len()));
        missing.clamp(self.read_bytes, READ_BYTES_MAX)
    }

    /// Gives back what an idle connection does not need.
    pub(crate) fn shrink(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }
}
