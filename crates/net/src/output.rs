//! Bytes to be written: small pieces are gathered in one buffer, large ones are referenced, and few vectored
//! writes send all of it.
//!
//! ```text
//! push(Bytes) ─▶ chunks ─┬─▶ up to 64 slices per system call
//! tail() ─▶ tail ─ seal ─┘
//! ```
//!
//! Chunks are never empty. The caller decides how long a peer may take to read: [`Output::write_paced`] has a
//! limit, the others have none.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWrite;
use tokio::time::{Instant, timeout_at};

use crate::pace::Pace;
use crate::registry::{ConnectionEntry, Wait};

/// Pieces from this size on are worth a slice of their own; copying a smaller one is cheaper.
pub const SHARED_BYTES_MIN: usize = 2048;
/// Time for a peer to read: at most `grace` without any progress, and in all the allowance.
pub const WRITE_PACE: Pace = Pace {
    grace: Duration::from_mins(1),
    bytes_per_second_min: 16 * 1024,
};
/// Slices per system call.
const SLICES_MAX: usize = 64;
/// Capacities that an idle connection keeps.
const KEPT_BYTES: usize = 1024;
const KEPT_CHUNKS: usize = 16;

/// Reasons why a paced write fails. Each of them ends the connection.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("the peer did not read the {left} bytes that were left for it")]
    Stalled { left: usize },
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl WriteError {
    /// Returns the error's label in metrics: one of a fixed set of words.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Stalled { .. } => "write_stalled",
            Self::Io(_) => "write",
        }
    }
}

/// Bytes that wait to be written to one connection.
#[derive(Debug, Default)]
pub struct Output {
    chunks: VecDeque<Bytes>,
    tail: BytesMut,
    chunk_bytes: usize,
    written: u64,
    /// An encrypted stream still has bytes that it took.
    wants_flush: bool,
}

impl Output {
    /// Returns the number of bytes that the stream did not take yet.
    #[inline]
    pub fn len(&self) -> usize {
        self.chunk_bytes + self.tail.len()
    }

    /// Returns true if all bytes are written, as far as the socket.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && !self.wants_flush
    }

    /// Returns the number of bytes written so far.
    #[inline]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns the buffer to which small pieces are appended.
    #[inline]
    pub fn tail(&mut self) -> &mut BytesMut {
        &mut self.tail
    }

    /// Appends a piece without copying it.
    #[inline]
    pub fn push(&mut self, chunk: Bytes) {
        self.seal();
        if !chunk.is_empty() {
            self.chunk_bytes += chunk.len();
            self.chunks.push_back(chunk);
        }
    }

    #[inline]
    fn seal(&mut self) {
        if !self.tail.is_empty() {
            let tail = self.tail.split().freeze();
            self.chunk_bytes += tail.len();
            self.chunks.push_back(tail);
        }
    }

    /// Writes some of the waiting bytes, or the rest of those that the stream took. Safe to cancel.
    pub async fn write<W: AsyncWrite + Unpin>(&mut self, stream: &mut W) -> io::Result<()> {
        self.seal();
        if self.chunks.is_empty() {
            poll_fn(|cx| Pin::new(&mut *stream).poll_flush(cx)).await?;
            self.wants_flush = false;
            return Ok(());
        }
        poll_fn(|cx| {
            let written = ready!(self.poll_write(stream, cx))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
            if self.chunks.is_empty() {
                let flushed = Pin::new(&mut *stream).poll_flush(cx);
                self.wants_flush = flushed.is_pending();
                if let Poll::Ready(flushed) = flushed {
                    flushed?;
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Writes all of the waiting bytes. Safe to cancel.
    pub async fn write_all<W: AsyncWrite + Unpin>(&mut self, stream: &mut W) -> io::Result<()> {
        while !self.is_empty() {
            self.write(stream).await?;
        }
        Ok(())
    }

    /// Writes all of the waiting bytes to a peer that has to read at a pace. Safe to cancel.
    ///
    /// # Errors
    /// Any error ends the connection. It is counted under its kind.
    pub async fn write_paced<W: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut W,
        pace: Pace,
        entry: &ConnectionEntry,
    ) -> Result<(), WriteError> {
        let _waiting = entry.waiting(Wait::Outbox);
        let mut now = Instant::now();
        let deadline = now + pace.allowance(self.len());
        while !self.is_empty() {
            let left = self.len();
            let result = match timeout_at(deadline.min(now + pace.grace), self.write(stream)).await {
                Ok(written) => written.map_err(WriteError::from),
                Err(_) => Err(WriteError::Stalled { left }),
            };
            if self.len() < left {
                entry.on_sent(left - self.len());
            }
            if let Err(error) = result {
                entry.metrics.error(error.kind());
                return Err(error);
            }
            if !self.is_empty() {
                now = Instant::now();
            }
        }
        Ok(())
    }

    fn poll_write<W: AsyncWrite + Unpin>(
        &self,
        stream: &mut W,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        for (slice, chunk) in slices.iter_mut().zip(&self.chunks) {
            *slice = IoSlice::new(chunk);
            count += 1;
        }
        Pin::new(stream).poll_write_vectored(cx, slices.get(..count).unwrap_or_default())
    }

    fn advance(&mut self, mut written: usize) {
        self.chunk_bytes = self.chunk_bytes.saturating_sub(written);
        self.written += written as u64;
        while let Some(first) = self.chunks.front_mut() {
            if first.len() > written {
                first.advance(written);
                return;
            }
            written -= first.len();
            self.chunks.pop_front();
        }
    }

    /// Frees memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        if self.is_empty() && self.tail.capacity() > KEPT_BYTES {
            self.tail = BytesMut::new();
        }
        if self.chunks.is_empty() && self.chunks.capacity() > KEPT_CHUNKS {
            self.chunks = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use tokio::io::{AsyncReadExt, duplex};

    fn output(chunks: impl IntoIterator<Item = Vec<u8>>) -> Output {
        let mut output = Output::default();
        for chunk in chunks {
            output.push(chunk.into());
        }
        output
    }

    #[tokio::test]
    async fn many_pieces_arrive_in_order() {
        let (mut near, mut far) = duplex(100);
        let entry = ConnectionEntry::of(1, Arc::default());
        let (mut output, mut expected) = (Output::default(), Vec::new());
        for n in 0..200_u8 {
            let piece = vec![n; usize::from(n % 7)];
            expected.extend_from_slice(&piece);
            if n % 3 == 0 {
                output.tail().extend_from_slice(&piece);
            } else {
                output.push(piece.into());
            }
        }
        assert_eq!(output.len(), expected.len());
        let (written, received) = tokio::join!(
            async {
                let written = output.write_paced(&mut near, WRITE_PACE, &entry).await;
                drop(near);
                written
            },
            async {
                let mut received = Vec::new();
                far.read_to_end(&mut received).await.unwrap();
                received
            }
        );
        written.unwrap();
        assert_eq!(received, expected);
        assert!(output.is_empty());
        let count = expected.len() as u64;
        assert_eq!((output.written(), entry.traffic().sent_bytes), (count, count));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_reads_is_cut_off_after_the_grace() {
        let (mut near, _far) = duplex(100);
        let (mut output, entry) = (output([vec![1; 1000]]), ConnectionEntry::of(1, Arc::default()));
        let start = Instant::now();
        let error = output
            .write_paced(&mut near, WRITE_PACE, &entry)
            .await
            .unwrap_err();
        assert!(matches!(error, WriteError::Stalled { left: 900 }), "{error}");
        assert!(start.elapsed() >= Duration::from_mins(1) && start.elapsed() < Duration::from_secs(61));
        assert_eq!(entry.metrics.errors("write_stalled"), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_a_byte_now_and_then_is_cut_off_in_the_end() {
        let (mut near, mut far) = duplex(1);
        let slow_reader = async move {
            let mut byte = [0];
            loop {
                tokio::time::sleep(Duration::from_secs(50)).await;
                far.read_exact(&mut byte).await.unwrap();
            }
        };
        let (mut output, entry) = (output([vec![1; 1000]]), ConnectionEntry::of(1, Arc::default()));
        let start = Instant::now();
        tokio::select! {
            result = output.write_paced(&mut near, WRITE_PACE, &entry) => {
                assert!(matches!(result, Err(WriteError::Stalled { .. })));
            }
            () = slow_reader => {}
        }
        assert!(start.elapsed() < Duration::from_secs(62));
    }
}
