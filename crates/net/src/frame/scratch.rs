//! Read buffers. A thread reads for one connection at a time and never across a wait, so one buffer per
//! thread serves any number of connections, and idle connections own none.
//!
//! The bytes leave the buffer at once: few are copied into memory of their own size; with many, the buffer
//! itself is given away and the thread takes a new one.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncRead;
use tokio_util::io::poll_read_buf;

/// Maximum bytes of one read; reserved before it.
pub(super) const READ_BYTES: usize = 64 * 1024;

/// From this size on, giving the buffer away wastes less than copying costs.
const GIVE_AWAY_BYTES: usize = READ_BYTES / 2;

thread_local! {
    static BUFFER: Cell<Option<BytesMut>> = const { Cell::new(None) };
}

/// Bytes of one read.
pub(super) struct Read {
    pub bytes: Bytes,
    /// Memory that the bytes occupy: at least their number, at most [`READ_BYTES`].
    pub memory_bytes: usize,
}

/// Reads the available bytes. An empty result means that the peer has closed its side.
pub(super) fn poll_read<R: AsyncRead + Unpin>(
    stream: &mut R,
    cx: &mut Context<'_>,
) -> Poll<io::Result<Read>> {
    let mut buffer = BUFFER
        .take()
        .unwrap_or_else(|| BytesMut::with_capacity(READ_BYTES));
    let polled = poll_read_buf(Pin::new(stream), cx, &mut buffer);
    let Poll::Ready(Ok(count)) = polled else {
        BUFFER.set(Some(buffer));
        let failed = ready!(polled);
        return Poll::Ready(failed.map(|_| Read {
            bytes: Bytes::new(),
            memory_bytes: 0,
        }));
    };
    let read = if count >= GIVE_AWAY_BYTES {
        Read {
            bytes: buffer.freeze(),
            memory_bytes: READ_BYTES,
        }
    } else {
        let bytes = Bytes::copy_from_slice(&buffer);
        buffer.clear();
        BUFFER.set(Some(buffer));
        Read {
            bytes,
            memory_bytes: count,
        }
    };
    Poll::Ready(Ok(read))
}
