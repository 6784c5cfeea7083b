//! Records of one session: decrypted, encrypted, and those that wait for the socket.

use std::io;

use bytes::{Buf, BytesMut};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic};
use tokio::net::TcpStream;

use super::session::{ClientName, TlsSession};

pub(super) struct Session {
    connection: UnbufferedServerConnection,
    /// Encrypted bytes that the socket did not take yet.
    outgoing: BytesMut,
    /// It takes and gives nothing more: the alert that says so is among the encrypted bytes.
    has_failed: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Session");
        shown
            .field("outgoing", &self.outgoing.len())
            .finish_non_exhaustive()
    }
}

/// Outcome of processing received bytes.
pub(super) struct Processed {
    /// Bytes that are not needed any more.
    pub(super) used: usize,
    pub(super) is_closed: bool,
}

impl Session {
    pub(super) fn new(connection: UnbufferedServerConnection) -> Self {
        Self {
            connection,
            outgoing: BytesMut::new(),
            has_failed: false,
        }
    }

    pub(super) fn wants_flush(&self) -> bool {
        !self.outgoing.is_empty()
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    pub(super) fn facts(&self, rule: ClientName) -> TlsSession {
        TlsSession::of(&self.connection, rule)
    }

    /// Processes received bytes and gives decrypted ones to `put`, a record at a time. After an error, the
    /// session is over.
    pub(super) fn process(
        &mut self,
        bytes: &mut [u8],
        put: &mut dyn FnMut(&[u8]),
    ) -> Result<Processed, rustls::Error> {
        if self.has_failed {
            return Err(rustls::Error::General("the session is over".to_owned()));
        }
        let processed = self.process_records(bytes, put);
        self.has_failed = processed.is_err();
        processed
    }

    fn process_records(
        &mut self,
        bytes: &mut [u8],
        put: &mut dyn FnMut(&[u8]),
    ) -> Result<Processed, rustls::Error> {
        let mut processed = Processed {
            used: 0,
            is_closed: false,
        };
        let mut failed = None;
        loop {
            let rest = bytes.get_mut(processed.used..).unwrap_or_default();
            let UnbufferedStatus { mut discard, state } = self.connection.process_tls_records(rest);
            let is_over = match state {
                // The alert follows the error: one more step. Another would process the same bytes again.
                Err(error) if failed.is_none() => {
                    failed = Some(error);
                    false
                }
                Err(_) | Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => true,
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        put(record.payload);
                    }
                    false
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    encode(&mut self.outgoing, |into| data.encode(into))?;
                    failed.is_some()
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    failed.is_some()
                }
                Ok(ConnectionState::PeerClosed) => {
                    processed.is_closed = true;
                    false
                }
                Ok(ConnectionState::Closed) => {
                    processed.is_closed = true;
                    true
                }
                Ok(_) => return Err(rustls::Error::General("no early data was offered".to_owned())),
            };
            processed.used += discard;
            if is_over {
                return failed.map_or(Ok(processed), Err);
            }
        }
    }

    /// Encrypts bytes into `records` from `filled` on; returns the number of bytes added. `incoming` are the
    /// bytes of an incomplete record.
    pub(super) fn encrypt(
        &mut self,
        incoming: &mut [u8],
        plain: &[u8],
        records: &mut [u8],
        filled: usize,
    ) -> io::Result<usize> {
        if plain.is_empty() {
            return Ok(0);
        }
        self.when_writable(
            incoming,
            records.get_mut(filled..).unwrap_or_default(),
            |traffic, into| traffic.encrypt(plain, into),
        )
    }

    /// Writes the alert that nothing more comes.
    pub(super) fn close(&mut self, incoming: &mut [u8], into: &mut [u8]) -> io::Result<usize> {
        #[expect(
            clippy::redundant_closure_for_method_calls,
            reason = "the method itself is for one lifetime only"
        )]
        self.when_writable(incoming, into, |traffic, into| traffic.queue_close_notify(into))
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all other states end the connection, and the library may add some"
    )]
    fn when_writable(
        &mut self,
        incoming: &mut [u8],
        into: &mut [u8],
        write: impl FnOnce(&mut Traffic<'_>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> io::Result<usize> {
        if self.has_failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut filled = 0;
        loop {
            let rest = into.get_mut(filled..).unwrap_or_default();
            let UnbufferedStatus { state, .. } = self.connection.process_tls_records(incoming);
            match state.map_err(malformed)? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    let written = write(&mut traffic, rest).map_err(io::Error::other)?;
                    return Ok(filled + written);
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    filled += data.encode(rest).map_err(io::Error::other)?;
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed => {}
                _ => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }

    /// Writes encrypted bytes; those that the socket does not take wait.
    pub(super) fn send(&mut self, socket: &TcpStream, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let written = match socket.try_write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            written => written?,
        };
        self.outgoing
            .extend_from_slice(bytes.get(written..).unwrap_or_default());
        Ok(())
    }

    pub(super) fn flush(&mut self, socket: &TcpStream) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            let written = socket.try_write(&self.outgoing)?;
            self.outgoing.advance(written);
        }
        if self.outgoing.capacity() > 0 {
            self.outgoing = BytesMut::new();
        }
        Ok(())
    }
}

type Traffic<'a> = WriteTraffic<'a, ServerConnectionData>;

/// Appends the bytes of `write`.
fn encode(
    outgoing: &mut BytesMut,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> Result<(), rustls::Error> {
    let start = outgoing.len();
    let written = match write(&mut []) {
        Err(EncodeError::InsufficientSize(needed)) => {
            outgoing.resize(start + needed.required_size, 0);
            write(outgoing.get_mut(start..).unwrap_or_default())
        }
        written => written,
    };
    let written = written.map_err(|error| rustls::Error::General(error.to_string()))?;
    outgoing.truncate(start + written);
    Ok(())
}

pub(super) fn malformed(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
