//! Frames to be written: small ones are gathered in one buffer, large bodies are referenced.

use std::ops::{Deref, DerefMut};

use bytes::Bytes;
use stafett_amqp_wire::{Frame, FrameKind, Method};
use stafett_net::output::SHARED_BYTES_MIN;

/// Frames waiting to be written.
#[derive(Debug, Default)]
pub(crate) struct Output(stafett_net::Output);

impl Deref for Output {
    type Target = stafett_net::Output;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Output {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Output {
    pub(crate) fn send(&mut self, channel: u16, method: impl Into<Method>) {
        method.into().encode(channel, self.tail());
    }

    pub(crate) fn heartbeat(&mut self) {
        stafett_amqp_wire::Encoder::frame(self.tail(), FrameKind::Heartbeat, 0, |_| ());
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
                stafett_amqp_wire::Encoder::frame(self.tail(), FrameKind::Body, channel, |e| {
                    e.raw(&piece);
                });
            } else {
                Frame::put_head(self.tail(), FrameKind::Body, channel, piece.len());
                self.push(piece);
                Frame::put_end(self.tail());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
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
