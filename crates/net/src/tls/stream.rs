//! Bytes of an encrypted connection.
//!
//! ```text
//! socket ─▶ buffer of the thread ─▶ session ─▶ reader          one copy of the plain bytes
//!                │ an incomplete record               │ bytes beyond the reader's room
//!                └▶ incoming                          └▶ plain
//! writer ─▶ records in a buffer of the thread ─▶ socket         one write for up to 256 KiB
//!                                     │ bytes beyond the socket's room
//!                                     └▶ outgoing
//! ```
//!
//! - An idle connection owns no buffer.
//! - A write takes plain bytes only when `outgoing` is empty, so that is bounded. Bytes that were taken may
//!   still be there: [`TlsStream::try_flush`].
//! - The end of the socket without a `close_notify` is an end like any other, as on a plain connection: the
//!   protocols above notice incomplete frames.
//! - The lock is for the two halves of a stream, which one task owns: it is never contended.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use rustix::net::Shutdown;
use rustls::server::UnbufferedServerConnection;
use tokio::net::TcpStream;

use super::HANDSHAKE_RECORD;
use super::handshake::{HANDSHAKE_BYTES_MAX, HandshakeError};
use super::records::{Session, malformed};
use super::session::{ClientName, TlsSession};
use crate::lock::lock;

/// Plain bytes of a full record (RFC 8446, section 5.1).
const RECORD_BYTES: usize = 16 * 1024;
/// Bytes that encryption adds to a record, at most.
const OVERHEAD: usize = 256;
/// Bytes of one read of the socket.
const READ_BYTES_MIN: usize = RECORD_BYTES + OVERHEAD;
const READ_BYTES_MAX: usize = 4 * READ_BYTES_MIN;
/// Plain bytes of one write to the socket.
const WRITE_RECORDS: usize = 16;
const WRITE_BYTES: usize = WRITE_RECORDS * RECORD_BYTES;
/// Bytes of alerts and updates of keys that may precede them.
const CONTROL_BYTES: usize = 4 * 1024;

thread_local! {
    static RECEIVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static SENT: RefCell<Buffers> = const { RefCell::new(Buffers { records: Vec::new(), gathered: Vec::new() }) };
}

/// Buffers of a thread for one write.
struct Buffers {
    records: Vec<u8>,
    /// Small slices, up to a record.
    gathered: Vec<u8>,
}

/// An encrypted stream after, or during, its handshake.
#[derive(Debug)]
pub struct TlsStream {
    socket: TcpStream,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    session: Session,
    /// Received bytes of an incomplete record.
    incoming: Vec<u8>,
    /// Decrypted bytes that were not read yet.
    plain: BytesMut,
    /// The peer sends nothing more.
    is_ended: bool,
}

impl TlsStream {
    pub(super) fn new(socket: TcpStream, connection: UnbufferedServerConnection) -> Self {
        Self {
            socket,
            state: Mutex::new(State {
                session: Session::new(connection),
                incoming: Vec::new(),
                plain: BytesMut::new(),
                is_ended: false,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(super) async fn socket_readable(&self) -> io::Result<()> {
        self.socket.readable().await
    }

    /// Waits until there may be bytes to read. Safe to cancel.
    pub async fn readable(&self) -> io::Result<()> {
        if self.state().has_plain() {
            return Ok(());
        }
        self.socket.readable().await
    }

    /// Waits until bytes may be written. Safe to cancel.
    pub async fn writable(&self) -> io::Result<()> {
        self.socket.writable().await
    }

    /// Gives up to `room` decrypted bytes to `put`, in pieces, or fails with `WouldBlock`. Returns their
    /// number, 0 at the end of the stream.
    pub fn try_read(&self, room: usize, mut put: impl FnMut(&[u8])) -> io::Result<usize> {
        self.state().read(&self.socket, room, &mut put)
    }

    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        room: usize,
        mut put: impl FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        loop {
            if !self.state().has_plain() {
                ready!(self.socket.poll_read_ready(cx))?;
            }
            match self.try_read(room, &mut put) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
        }
    }

    /// Encrypts and writes some of the bytes, or fails with `WouldBlock`. The socket may not have taken the
    /// last of them yet: see [`Self::try_flush`].
    pub fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.state().write(&self.socket, slices)
    }

    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_write_ready(cx))?;
            match self.try_write(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    /// Returns true if encrypted bytes wait for the socket.
    pub fn wants_flush(&self) -> bool {
        self.state().session.wants_flush()
    }

    /// Writes encrypted bytes that wait, or fails with `WouldBlock`.
    pub fn try_flush(&self) -> io::Result<()> {
        self.state().session.flush(&self.socket)
    }

    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.wants_flush() {
            ready!(self.socket.poll_write_ready(cx))?;
            match self.try_flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                flushed => flushed?,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Tells the peer that nothing more comes, and closes this side.
    pub(crate) fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(cx))?;
        self.state().close(&self.socket);
        rustix::net::shutdown(&self.socket, Shutdown::Write)?;
        Poll::Ready(Ok(()))
    }

    /// Reads once and goes on with the handshake. Returns true when it is complete.
    pub(super) fn try_handshake(&self, received: &mut usize) -> Result<bool, HandshakeError> {
        let mut guard = self.state();
        let State {
            session,
            incoming,
            plain,
            ..
        } = &mut *guard;
        let mut bytes = [0; 4096];
        let count = match self.socket.try_read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Ok(0) => return Err(HandshakeError::Left),
            read => read?,
        };
        let bytes = bytes.get(..count).unwrap_or_default();
        if *received == 0 && bytes.first() != Some(&HANDSHAKE_RECORD) {
            return Err(HandshakeError::Plain);
        }
        *received += count;
        incoming.extend_from_slice(bytes);
        let processed = session.process(incoming, &mut |bytes| plain.extend_from_slice(bytes));
        // An alert says why the handshake failed; the client may be gone.
        let flushed = session.flush(&self.socket);
        let processed = processed?;
        if let Err(error) = flushed
            && error.kind() != io::ErrorKind::WouldBlock
        {
            return Err(error.into());
        }
        keep(incoming, processed.used);
        if !session.is_handshaking() {
            return Ok(true);
        }
        if *received > HANDSHAKE_BYTES_MAX {
            return Err(HandshakeError::TooLarge);
        }
        Ok(false)
    }

    pub(super) fn facts(&self, rule: ClientName) -> TlsSession {
        self.state().session.facts(rule)
    }
}

impl Drop for TlsStream {
    /// Tells the peer that nothing more comes, if the socket takes that at once.
    fn drop(&mut self) {
        self.state().close(&self.socket);
    }
}

impl State {
    /// Returns true if a read has a result without the socket.
    fn has_plain(&self) -> bool {
        self.is_ended || !self.plain.is_empty()
    }

    fn read(&mut self, socket: &TcpStream, room: usize, put: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let mut count = self.plain.len().min(room);
        if count > 0 {
            put(&self.plain.split_to(count));
            if self.plain.is_empty() {
                self.plain = BytesMut::new();
            }
            return Ok(count);
        }
        while !self.is_ended && count < room {
            let (given, is_full) = match self.receive(socket, room - count, put) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && count > 0 => break,
                received => received?,
            };
            count += given;
            if count > 0 && !is_full {
                break;
            }
        }
        Ok(count)
    }

    /// Reads the socket once. Returns the number of bytes that were put, and true if there may be more to
    /// read.
    fn receive(
        &mut self,
        socket: &TcpStream,
        room: usize,
        put: &mut dyn FnMut(&[u8]),
    ) -> io::Result<(usize, bool)> {
        let Self {
            session,
            incoming,
            plain,
            is_ended,
        } = self;
        RECEIVED.with_borrow_mut(|buffer| {
            let held = incoming.len();
            let wanted = (room + room / 16).clamp(READ_BYTES_MIN, READ_BYTES_MAX);
            if buffer.len() < held + wanted {
                buffer.resize(held + wanted, 0);
            }
            let (kept, into) = buffer.split_at_mut(held);
            let received = socket.try_read(into.get_mut(..wanted).unwrap_or_default())?;
            if received == 0 {
                *is_ended = true;
                return Ok((0, false));
            }
            kept.copy_from_slice(incoming);
            let mut left = room;
            let bytes = buffer.get_mut(..held + received).unwrap_or_default();
            let processed = session.process(bytes, &mut |record| {
                let (now, later) = record.split_at(left.min(record.len()));
                left -= now.len();
                put(now);
                plain.extend_from_slice(later);
            });
            // Answers to updates of keys, and alerts. The rest goes with the next write.
            if let Err(error) = session.flush(socket)
                && error.kind() != io::ErrorKind::WouldBlock
            {
                return Err(error);
            }
            let processed = processed.map_err(malformed)?;
            *is_ended |= processed.is_closed;
            incoming.clear();
            incoming.extend_from_slice(bytes.get(processed.used..).unwrap_or_default());
            keep(incoming, 0);
            Ok((room - left, received == wanted))
        })
    }

    fn write(&mut self, socket: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.session.flush(socket)?;
        let Self {
            session, incoming, ..
        } = self;
        SENT.with_borrow_mut(|Buffers { records, gathered }| {
            records.resize(WRITE_BYTES + WRITE_RECORDS * OVERHEAD + CONTROL_BYTES, 0);
            gathered.clear();
            let (mut taken, mut filled) = (0, 0);
            for slice in slices {
                let mut rest: &[u8] = slice
                    .get(..slice.len().min(WRITE_BYTES - taken))
                    .unwrap_or_default();
                taken += rest.len();
                while !rest.is_empty() {
                    // Whole records leave from where they lie; smaller pieces are gathered.
                    if gathered.is_empty() && rest.len() >= RECORD_BYTES {
                        let (whole, behind) = rest.split_at(rest.len() - rest.len() % RECORD_BYTES);
                        filled += session.encrypt(incoming, whole, records, filled)?;
                        rest = behind;
                        continue;
                    }
                    let (now, behind) = rest.split_at(rest.len().min(RECORD_BYTES - gathered.len()));
                    gathered.extend_from_slice(now);
                    rest = behind;
                    if gathered.len() == RECORD_BYTES {
                        filled += session.encrypt(incoming, gathered, records, filled)?;
                        gathered.clear();
                    }
                }
            }
            filled += session.encrypt(incoming, gathered, records, filled)?;
            session.send(socket, records.get(..filled).unwrap_or_default())?;
            Ok(taken)
        })
    }

    fn close(&mut self, socket: &TcpStream) {
        let Self {
            session, incoming, ..
        } = self;
        let mut bytes = [0; CONTROL_BYTES];
        if session.flush(socket).is_ok()
            && let Ok(count) = session.close(incoming, &mut bytes)
        {
            // The peer may be gone, or not read: then it has to do without.
            drop(session.send(socket, bytes.get(..count).unwrap_or_default()));
        }
    }
}

/// Removes bytes from the front, and the memory if nothing is left.
fn keep(bytes: &mut Vec<u8>, used: usize) {
    bytes.drain(..used.min(bytes.len()));
    if bytes.is_empty() {
        *bytes = Vec::new();
    }
}
