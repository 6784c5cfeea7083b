//! Wrapper of a stream that a library reads and writes: limits writes to peers that do not read, and counts
//! bytes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::registry::ConnectionEntry;
use crate::tls::{is_hello, warn_of_tls};

/// Fails a write with `TimedOut` if it has made no progress for the given time. The timer exists only while a
/// write waits.
#[derive(Debug)]
pub struct StallGuard<S> {
    stream: S,
    timeout: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    entry: Arc<ConnectionEntry>,
    /// TLS is a mistake of the client's.
    is_plain: bool,
}

impl<S> StallGuard<S> {
    #[must_use]
    pub fn new(stream: S, timeout: Duration, entry: Arc<ConnectionEntry>) -> Self {
        Self {
            stream,
            timeout,
            timer: None,
            entry,
            is_plain: true,
        }
    }

    /// As [`Self::new`], for bytes that are passed on as they are, those of TLS too.
    #[must_use]
    pub fn passing(stream: S, timeout: Duration, entry: Arc<ConnectionEntry>) -> Self {
        Self {
            is_plain: false,
            ..Self::new(stream, timeout, entry)
        }
    }

    /// Returns the wrapped stream.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.stream
    }

    fn sent(&self, polled: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = polled {
            self.entry.on_sent(*count);
        }
    }

    fn watch<T>(&mut self, polled: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.timer = None;
            return polled;
        }
        let timeout = self.timeout;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + timeout)));
        timer.as_mut().poll(cx).map(|()| {
            self.entry.metrics.error("write_stalled");
            Err(io::ErrorKind::TimedOut.into())
        })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if polled.is_ready() {
            let received = buffer.filled().get(before..).unwrap_or_default();
            if self.is_plain && is_hello(received) && self.entry.traffic().reads == 0 {
                warn_of_tls(&self.entry);
            }
            self.entry.on_received(received.len());
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.sent(&polled);
        self.watch(polled, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.sent(&polled);
        self.watch(polled, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(polled, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(polled, cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test(start_paused = true)]
    async fn a_write_without_progress_times_out_and_one_with_progress_does_not() {
        let (near, mut far) = duplex(10);
        let mut near = StallGuard::new(
            near,
            Duration::from_secs(20),
            ConnectionEntry::of(1, Arc::default()),
        );
        let reader = async {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_secs(15)).await;
                far.read_exact(&mut [0; 10]).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(near.write_all(&[0; 60]), reader);
        written.unwrap();
        let error = near.write_all(&[0; 60]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn tls_that_is_passed_on_is_no_mistake() {
        let hello = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
        for (is_passed, errors) in [(false, 1), (true, 0)] {
            let (near, mut far) = duplex(100);
            let entry = ConnectionEntry::of(1, Arc::default());
            let make = if is_passed {
                StallGuard::passing
            } else {
                StallGuard::new
            };
            let mut near = make(near, Duration::from_secs(20), Arc::clone(&entry));
            far.write_all(&hello).await.unwrap();
            near.read_exact(&mut [0; 11]).await.unwrap();
            assert_eq!(entry.metrics.errors("tls_on_plain_port"), errors);
        }
    }
}
