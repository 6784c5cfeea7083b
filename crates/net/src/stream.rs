//! Byte stream of one accepted connection. No crate above this one names the socket.
//!
//! Reads and writes by readiness: wait until the stream is `readable` or `writable`, then try. An encrypted
//! stream ([`TlsStream`]) may keep bytes that were written until it is flushed; [`crate::Output`] does that.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, tcp};

use crate::moderation::{self, Change};
use crate::tls::TlsStream;

/// Bytes that are read at once where the buffer grows by itself.
const READ_BYTES: usize = 64 * 1024;

/// A stream, for one owner.
#[derive(Debug)]
pub enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

/// Reading half of a [`Stream`].
#[derive(Debug)]
pub enum ReadHalf<'a> {
    Plain(tcp::ReadHalf<'a>),
    Tls(&'a TlsStream),
}

/// Writing half of a [`Stream`].
#[derive(Debug)]
pub enum WriteHalf<'a> {
    Plain(tcp::WriteHalf<'a>),
    Tls(&'a TlsStream),
}

/// Bytes both ways, over any kind of connection.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// For options of the socket.
impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

impl Stream {
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.socket(),
        }
    }

    /// Returns the address of this side.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket().local_addr()
    }

    /// Splits the stream for a task that reads and writes in turn.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        match self {
            Self::Plain(socket) => {
                let (read, write) = socket.split();
                (ReadHalf::Plain(read), WriteHalf::Plain(write))
            }
            Self::Tls(stream) => (ReadHalf::Tls(stream), WriteHalf::Tls(stream)),
        }
    }

    /// Waits until there may be bytes to read. Safe to cancel.
    #[inline]
    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.readable().await,
            Self::Tls(stream) => stream.readable().await,
        }
    }

    /// Waits until bytes may be written. Safe to cancel.
    #[inline]
    pub async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.writable().await,
            Self::Tls(stream) => stream.writable().await,
        }
    }

    /// Reads bytes that are there, or fails with `WouldBlock`. 0 at the end of the stream.
    #[inline]
    pub fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_read(into),
            Self::Tls(stream) => {
                let mut filled = 0;
                stream.try_read(into.len(), |bytes| {
                    if let Some(into) = into.get_mut(filled..filled + bytes.len()) {
                        into.copy_from_slice(bytes);
                    }
                    filled += bytes.len();
                })
            }
        }
    }

    /// As [`Self::try_read`], into the spare capacity of a buffer.
    #[inline]
    pub fn try_read_buf(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_read_buf(into),
            Self::Tls(stream) => try_read_spare(stream, into),
        }
    }

    /// Writes as many bytes as fit, or fails with `WouldBlock`. Bytes of an encrypted stream may still wait
    /// for the socket: see [`Self::try_flush`].
    #[inline]
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_write(bytes),
            Self::Tls(stream) => stream.try_write(&[IoSlice::new(bytes)]),
        }
    }

    /// Returns true if bytes that were written wait for the socket. Never on a plain stream.
    #[inline]
    pub fn wants_flush(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.wants_flush(),
        }
    }

    /// Gives bytes that wait to the socket, or fails with `WouldBlock`.
    pub fn try_flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(stream) => stream.try_flush(),
        }
    }
}

/// Reads into the spare capacity of a buffer.
fn try_read_spare(stream: &TlsStream, into: &mut BytesMut) -> io::Result<usize> {
    let spare = into.capacity() - into.len();
    let room = if spare == 0 { READ_BYTES } else { spare };
    stream.try_read(room, |bytes| into.extend_from_slice(bytes))
}

impl ReadHalf<'_> {
    /// Waits until there may be bytes to read. Safe to cancel.
    #[inline]
    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.readable().await,
            Self::Tls(stream) => stream.readable().await,
        }
    }

    /// Reads bytes that are there into the spare capacity of a buffer, or fails with `WouldBlock`. 0 at the
    /// end of the stream.
    #[inline]
    pub fn try_read_buf(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_read_buf(into),
            Self::Tls(stream) => try_read_spare(stream, into),
        }
    }

    /// As [`Self::try_read_buf`], at most `max` bytes, regardless of the runtime's readiness: the runtime is
    /// not notified of bytes that arrive while reads are delayed.
    pub fn try_read_unnoticed(&mut self, into: &mut BytesMut, max: usize) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => {
                into.resize(max, 0);
                let read = rustix::net::recv(socket.as_ref(), &mut into[..], RecvFlags::DONTWAIT);
                into.truncate(read.as_ref().map_or(0, |(count, _)| *count));
                Ok(read?.0)
            }
            // Its reads are never delayed.
            Self::Tls(stream) => stream.try_read(max, |bytes| into.extend_from_slice(bytes)),
        }
    }

    /// Clears the runtime's readiness, which is out of date while reads are delayed.
    pub fn clear_readable(&mut self) {
        if let Self::Plain(socket) = self {
            let _ = socket.as_ref().try_io(Interest::READABLE, || -> io::Result<()> {
                Err(io::ErrorKind::WouldBlock.into())
            });
        }
    }

    /// Returns true if reads can be delayed. Those of an encrypted stream are not: the system counts
    /// encrypted bytes.
    #[must_use]
    pub fn can_be_moderated(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Delays reads from now on, or does so no longer: see [`moderation`].
    pub fn moderate(&self, change: Change) {
        let Self::Plain(socket) = self else {
            return;
        };
        match change {
            Change::None => {}
            Change::On => moderation::wake_late(socket.as_ref()),
            Change::Off => moderation::wake_early(socket.as_ref()),
        }
    }
}

/// Reads through to the socket, or through the session.
macro_rules! read_through {
    ($of:ty) => {
        impl AsyncRead for $of {
            #[inline]
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    Self::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
                    Self::Tls(stream) => {
                        let room = buffer.remaining();
                        ready!(stream.poll_read(cx, room, |bytes| buffer.put_slice(bytes)))?;
                        Poll::Ready(Ok(()))
                    }
                }
            }
        }
    };
}

read_through!(Stream);
read_through!(ReadHalf<'_>);

/// Writes through to the socket, or through the session.
macro_rules! write_through {
    ($of:ty) => {
        impl AsyncWrite for $of {
            #[inline]
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                match self.get_mut() {
                    Self::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
                    Self::Tls(stream) => stream.poll_write(cx, &[IoSlice::new(bytes)]),
                }
            }

            #[inline]
            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                match self.get_mut() {
                    Self::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, slices),
                    Self::Tls(stream) => stream.poll_write(cx, slices),
                }
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            #[inline]
            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    Self::Plain(_) => Poll::Ready(Ok(())),
                    Self::Tls(stream) => stream.poll_flush(cx),
                }
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    Self::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
                    Self::Tls(stream) => stream.poll_shutdown(cx),
                }
            }
        }
    };
}

write_through!(Stream);
write_through!(WriteHalf<'_>);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(listener.accept(), connecting);
        (Stream::Plain(near.unwrap().0), far.unwrap())
    }

    #[tokio::test]
    async fn what_is_there_is_read_and_the_end_is_told() {
        let (mut near, mut far) = pair().await;
        let mut bytes = [0; 8];
        let error = near.try_read(&mut bytes).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        far.write_all(b"hello").await.unwrap();
        near.readable().await.unwrap();
        assert_eq!(near.try_read(&mut bytes).unwrap(), 5);
        near.writable().await.unwrap();
        assert_eq!(near.try_write(b"answer").unwrap(), 6);
        near.shutdown().await.unwrap();
        let mut answer = String::new();
        far.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer");
        far.shutdown().await.unwrap();
        near.readable().await.unwrap();
        assert_eq!(near.try_read(&mut bytes).unwrap(), 0);
    }

    #[tokio::test]
    async fn bytes_that_the_runtime_has_not_noticed_are_read_too() {
        let (mut near, mut far) = pair().await;
        let (mut read, _write) = near.split();
        far.write_all(b"hello").await.unwrap();
        read.readable().await.unwrap();
        read.clear_readable();
        let mut bytes = BytesMut::with_capacity(8);
        let error = read.try_read_buf(&mut bytes).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(read.try_read_unnoticed(&mut bytes, 4).unwrap(), 4);
        assert_eq!(bytes, "hell");
    }
}
