//! Writes prepared chunks: many per system call, without an allocation per chunk, and with a time limit for
//! peers that do not read.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;
use tokio::time::{Instant, timeout_at};

use crate::metrics::ListenerMetrics;
use crate::pace::Pace;

/// Chunks per system call.
const SLICES_MAX: usize = 64;

/// Time limits for a peer to read: at most `grace` without any progress, and in all the allowance of `pace`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteLimits {
    pub pace: Pace,
}

impl Default for WriteLimits {
    fn default() -> Self {
        Self {
            pace: Pace {
                grace: Duration::from_mins(1),
                bytes_per_second_min: 16 * 1024,
            },
        }
    }
}

/// Reasons why a write fails. Each of them ends the connection.
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

/// Writer of one connection.
#[derive(Debug)]
pub struct FrameWriter {
    limits: WriteLimits,
    metrics: Arc<ListenerMetrics>,
}

impl FrameWriter {
    #[must_use]
    pub fn new(limits: WriteLimits, metrics: Arc<ListenerMetrics>) -> Self {
        Self { limits, metrics }
    }

    /// Writes all of `chunks`, in order, and leaves them empty. If the future is dropped, `chunks` keeps the
    /// unwritten bytes.
    ///
    /// # Errors
    /// Any error ends the connection. It is counted under its kind.
    pub async fn write_chunks<W: AsyncWrite + Unpin>(
        &self,
        stream: &mut W,
        chunks: &mut VecDeque<Bytes>,
    ) -> Result<(), WriteError> {
        let result = self.write_all(stream, chunks).await;
        if let Err(error) = &result {
            self.metrics.error(error.kind());
        }
        result
    }

    async fn write_all<W: AsyncWrite + Unpin>(
        &self,
        stream: &mut W,
        chunks: &mut VecDeque<Bytes>,
    ) -> Result<(), WriteError> {
        let mut left: usize = chunks.iter().map(Bytes::len).sum();
        let mut now = Instant::now();
        let deadline = now + self.limits.pace.allowance(left);
        while left > 0 {
            let stalled = deadline.min(now + self.limits.pace.grace);
            let write = poll_fn(|cx| poll_write_chunks(stream, chunks, cx));
            let Ok(written) = timeout_at(stalled, write).await else {
                return Err(WriteError::Stalled { left });
            };
            let written = written?;
            if written == 0 {
                return Err(io::Error::from(io::ErrorKind::WriteZero).into());
            }
            advance(chunks, written);
            left = left.saturating_sub(written);
            self.metrics.sent_bytes.inc_by(written as u64);
            if left > 0 {
                now = Instant::now();
            }
        }
        chunks.clear();
        Ok(())
    }
}

fn poll_write_chunks<W: AsyncWrite + Unpin>(
    stream: &mut W,
    chunks: &VecDeque<Bytes>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let mut count = 0;
    for (slice, chunk) in slices
        .iter_mut()
        .zip(chunks.iter().filter(|chunk| !chunk.is_empty()))
    {
        *slice = IoSlice::new(chunk);
        count += 1;
    }
    let slices = slices.get(..count).unwrap_or_default();
    Pin::new(stream).poll_write_vectored(cx, slices)
}

fn advance(chunks: &mut VecDeque<Bytes>, mut written: usize) {
    while let Some(first) = chunks.front_mut() {
        if first.len() > written {
            first.advance(written);
            return;
        }
        written -= first.len();
        chunks.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, duplex};

    fn writer() -> FrameWriter {
        FrameWriter::new(WriteLimits::default(), Arc::default())
    }

    #[tokio::test]
    async fn many_pieces_arrive_in_order() {
        let (mut near, mut far) = duplex(100);
        let mut chunks: VecDeque<Bytes> = (0..200_u8)
            .map(|n| Bytes::from(vec![n; usize::from(n % 7)]))
            .collect();
        let expected = chunks.iter().flatten().copied().collect::<Vec<_>>();
        let writer = writer();
        let (written, received) = tokio::join!(
            async {
                let written = writer.write_chunks(&mut near, &mut chunks).await;
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
        assert!(chunks.is_empty());
        assert_eq!(writer.metrics.sent_bytes.get(), expected.len() as u64);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_reads_is_cut_off_after_the_grace() {
        let (mut near, _far) = duplex(100);
        let mut chunks = VecDeque::from([Bytes::from(vec![1; 1000])]);
        let start = Instant::now();
        let writer = writer();
        let error = writer.write_chunks(&mut near, &mut chunks).await.unwrap_err();
        assert!(matches!(error, WriteError::Stalled { left: 900 }), "{error}");
        assert!(start.elapsed() >= Duration::from_mins(1) && start.elapsed() < Duration::from_secs(61));
        assert_eq!(writer.metrics.errors("write_stalled"), 1);
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
        let mut chunks = VecDeque::from([Bytes::from(vec![1; 1000])]);
        let writer = writer();
        let start = Instant::now();
        tokio::select! {
            result = writer.write_chunks(&mut near, &mut chunks) => {
                assert!(matches!(result, Err(WriteError::Stalled { .. })));
            }
            () = slow_reader => {}
        }
        assert!(start.elapsed() < Duration::from_secs(62));
    }
}
