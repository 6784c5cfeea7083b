//! A connection's bytes: written and read at the same time, as a server that cannot write reads no more
//! either.
//!
//! Frames are looked at in the input buffer. Every wait is safe to drop: bytes are in one of both buffers or
//! in the kernel, never in a future.

use std::io;

use bytes::{Buf as _, BytesMut};
use stafett_amqp_wire::FrameRef;
use stafett_amqp_wire::frame::{self, FrameError};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// The input buffer grows from the one to the other, as long as reading fills it: many connections are
/// silent.
const READ_BYTES_FIRST: usize = 4 << 10;
const READ_BYTES_MAX: usize = 256 << 10;

/// Reason why a connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum SocketError {
    #[error("the connection was closed")]
    Closed,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// A connection with its input and output.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    input: BytesMut,
    output: BytesMut,
    read_bytes: usize,
    /// Of the whole frame; 0 is no limit.
    frame_bytes_max: u32,
}

impl Socket {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            input: BytesMut::new(),
            output: BytesMut::new(),
            read_bytes: READ_BYTES_FIRST,
            frame_bytes_max: 0,
        })
    }

    pub(super) fn frame_bytes_max(&self) -> u32 {
        self.frame_bytes_max
    }

    pub(super) fn agree_on(&mut self, frame_bytes_max: u32) {
        self.frame_bytes_max = frame_bytes_max;
    }

    /// Returns the output: it is written with the next wait.
    pub(super) fn output(&mut self) -> &mut BytesMut {
        &mut self.output
    }

    /// Returns the input that was not looked at.
    pub(super) fn input(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// Shows every frame that is there, and then forgets it; `each` may write.
    pub(super) fn frames<E: From<SocketError>>(
        &mut self,
        mut each: impl FnMut(FrameRef<'_>, &mut BytesMut) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut at = 0;
        loop {
            let rest = self.input.get(at..).unwrap_or_default();
            let Some(found) = frame::first(rest, self.frame_bytes_max).map_err(SocketError::from)? else {
                break;
            };
            at += found.whole_bytes();
            each(found, &mut self.output)?;
        }
        self.input.advance(at);
        Ok(())
    }

    /// Writes the output, until there is input.
    pub(super) async fn read(&mut self) -> Result<(), SocketError> {
        // A client that never has to wait gives others their turn all the same.
        tokio::task::consume_budget().await;
        loop {
            let has_written = self.try_write()?;
            if self.try_read()? {
                return Ok(());
            }
            self.ready(!has_written).await?;
        }
    }

    /// Writes all output; takes in input meanwhile.
    pub(super) async fn write(&mut self) -> Result<(), SocketError> {
        tokio::task::consume_budget().await;
        while !self.try_write()? {
            self.ready(true).await?;
            self.try_read()?;
        }
        Ok(())
    }

    /// Until something has come or all has gone.
    pub(super) async fn read_or_write(&mut self) -> Result<(), SocketError> {
        tokio::task::consume_budget().await;
        loop {
            let (has_written, has_read) = (self.try_write()?, self.try_read()?);
            if has_written || has_read {
                return Ok(());
            }
            self.ready(true).await?;
        }
    }

    async fn ready(&self, writes: bool) -> Result<(), SocketError> {
        let interest = if writes {
            Interest::READABLE | Interest::WRITABLE
        } else {
            Interest::READABLE
        };
        self.stream.ready(interest).await?;
        Ok(())
    }

    /// Returns true if all output is written.
    fn try_write(&mut self) -> Result<bool, SocketError> {
        while !self.output.is_empty() {
            match self.stream.try_write(&self.output) {
                Ok(0) => return Err(SocketError::Closed),
                Ok(written) => self.output.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Returns true if there was input.
    fn try_read(&mut self) -> Result<bool, SocketError> {
        // A frame that is longer than one read comes in pieces.
        self.input.reserve(self.read_bytes);
        match self.stream.try_read_buf(&mut self.input) {
            Ok(0) => Err(SocketError::Closed),
            Ok(read) => {
                if read >= self.read_bytes {
                    self.read_bytes = (self.read_bytes * 4).min(READ_BYTES_MAX);
                }
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
