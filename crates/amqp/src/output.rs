//! Bytes to be written: small frames are gathered in one buffer, large bodies are referenced, and few
//! vectored writes send all of it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use stafett_amqp_wire::{Frame, FrameKind, Method};
use tokio::io::AsyncWrite;

/// Bodies from this size on are written from their own buffer; copying a smaller one is cheaper than a slice.
pub(crate) const SHARED_BYTES_MIN: usize = 2048;
/// Slices per system call.
const SLICES_MAX: usize = 64;
/// Bytes of buffer that an idle connection keeps.
const KEPT_BYTES: usize = 1024;

/// Frames waiting to be written.
#[derive(Debug, Default)]
pub(crate) struct Output {
    chunks: VecDeque<Bytes>,
    tail: BytesMut,
    chunk_bytes: usize,
    written: u64,
}

impl Output {
    /// Returns the number of bytes waiting.
    pub(crate) fn len(&self) -> usize {
        self.chunk_bytes + self.tail.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes written so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Returns the buffer for small frames.
    pub(crate) fn tail(&mut self) -> &mut BytesMut {
        &mut self.tail
    }

    pub(crate) fn send(&mut self, channel: u16, method: impl Into<Method>) {
        method.into().encode(channel, &mut self.tail);
    }

    pub(crate) fn heartbeat(&mut self) {
        stafett_amqp_wire::Encoder::frame(&mut self.tail, FrameKind::Heartbeat, 0, |_| ());
    }

    /// Appends a body, in as many frames as needed.
    pub(crate) fn body(&mut self, channel: u16, mut body: Bytes, frame_bytes_max: u32) {
        let whole = usize::try_from(frame_bytes_max).unwrap_or(usize::MAX);
        let payload_max = if whole == 0 {
            usize::MAX
        } else {
            whole - stafett_amqp_wire::frame::FRAME_OVERHEAD
        };
        while !body.is_empty() {
            let piece = body.split_to(body.len().min(payload_max));
            if piece.len() < SHARED_BYTES_MIN {
                stafett_amqp_wire::Encoder::frame(&mut self.tail, FrameKind::Body, channel, |e| {
                    e.raw(&piece);
                });
            } else {
                Frame::put_head(&mut self.tail, FrameKind::Body, channel, piece.len());
                self.push(piece);
                Frame::put_end(&mut self.tail);
            }
        }
    }

    fn push(&mut self, chunk: Bytes) {
        self.seal();
        self.chunk_bytes += chunk.len();
        self.chunks.push_back(chunk);
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            let tail = self.tail.split().freeze();
            self.chunk_bytes += tail.len();
            self.chunks.push_back(tail);
        }
    }

    /// Writes some of the waiting bytes. Safe to cancel.
    pub(crate) async fn write<W: AsyncWrite + Unpin>(&mut self, stream: &mut W) -> io::Result<()> {
        self.seal();
        let written = poll_fn(|cx| self.poll_write(stream, cx)).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.advance(written);
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
    pub(crate) fn shrink(&mut self) {
        if self.is_empty() && self.tail.capacity() > KEPT_BYTES {
            self.tail = BytesMut::new();
        }
        if self.chunks.is_empty() && self.chunks.capacity() > 8 {
            self.chunks = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use stafett_amqp_wire::frame;
    use tokio::io::{AsyncReadExt, duplex};

    use super::*;

    #[tokio::test]
    async fn a_large_body_comes_out_in_frames_that_are_allowed() {
        let body = Bytes::from((0..20_000_u32).map(|n| n.to_le_bytes()[0]).collect::<Vec<_>>());
        let mut output = Output::default();
        output.body(3, body.clone(), 8192);
        output.heartbeat();
        let expected = output.len();
        let (mut near, mut far) = duplex(1000);
        let mut received = BytesMut::new();
        let write = async {
            while !output.is_empty() {
                output.write(&mut near).await.unwrap();
            }
            drop(near);
        };
        let read = async { while far.read_buf(&mut received).await.unwrap() > 0 {} };
        tokio::join!(write, read);
        assert_eq!((received.len(), output.written()), (expected, expected as u64));
        let mut together = Vec::new();
        for _ in 0..3 {
            let frame = frame::split(&mut received, 8192).unwrap().unwrap();
            assert_eq!((frame.kind, frame.channel), (3, 3));
            together.extend_from_slice(&frame.payload);
        }
        assert_eq!(together, body);
        assert_eq!(frame::split(&mut received, 8192).unwrap().unwrap().kind, 8);
        assert!(received.is_empty());
    }
}
