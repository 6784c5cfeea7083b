//! The beginning of a TLS connection, bounded in time and in bytes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::UnbufferedServerConnection;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::certificates::Tls;
use super::session::TlsSession;
use super::stream::TlsStream;
use crate::registry::ConnectionEntry;

/// Time for a whole handshake.
pub(crate) const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Bytes that a client may send before its handshake is complete, its certificates among them.
pub(super) const HANDSHAKE_BYTES_MAX: usize = 64 * 1024;

/// Reasons why a handshake fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("it took longer than {HANDSHAKE_MAX:?}")]
    Slow,
    #[error("the first bytes are not those of TLS: the client speaks plainly to a port with TLS")]
    Plain,
    #[error("the client sent more than {HANDSHAKE_BYTES_MAX} bytes")]
    TooLarge,
    #[error("the client left")]
    Left,
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl HandshakeError {
    /// Returns the error's label in metrics: one of a fixed set of words.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the library's errors are many, and more may come"
    )]
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Plain => "plain",
            Self::TooLarge => "too_large",
            Self::Left => "left",
            Self::Io(_) => "io",
            Self::Tls(error) => match error {
                rustls::Error::NoCertificatesPresented => "no_certificate",
                rustls::Error::InvalidCertificate(_) => "bad_certificate",
                rustls::Error::PeerIncompatible(_) => "incompatible",
                rustls::Error::AlertReceived(_) => "rejected_by_client",
                _ => "malformed",
            },
        }
    }
}

/// Performs the handshake. Dropping the future closes the connection.
pub(crate) async fn accept(socket: TcpStream, tls: &Tls) -> Result<(TlsStream, TlsSession), HandshakeError> {
    timeout(HANDSHAKE_MAX, run(socket, tls))
        .await
        .unwrap_or(Err(HandshakeError::Slow))
}

async fn run(socket: TcpStream, tls: &Tls) -> Result<(TlsStream, TlsSession), HandshakeError> {
    let (config, rule) = tls.config();
    let stream = shake(socket, config).await?;
    let session = stream.facts(rule);
    Ok((stream, session))
}

/// Performs the handshake of a connection that is no client's, with settings of its own.
pub async fn accept_with(socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<TlsStream> {
    let shaken = timeout(HANDSHAKE_MAX, shake(socket, config)).await;
    shaken
        .unwrap_or(Err(HandshakeError::Slow))
        .map_err(io::Error::other)
}

/// Performs the handshake of a connection without a listener, with the settings of `tls`.
pub async fn accept_alone(socket: TcpStream, tls: &Tls) -> io::Result<TlsStream> {
    accept_with(socket, tls.config().0).await
}

async fn shake(socket: TcpStream, config: Arc<ServerConfig>) -> Result<TlsStream, HandshakeError> {
    let stream = TlsStream::new(socket, UnbufferedServerConnection::new(config)?);
    let mut received = 0;
    loop {
        let is_complete = stream.try_handshake(&mut received)?;
        while stream.wants_flush() {
            stream.writable().await?;
            match stream.try_flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                flushed => flushed?,
            }
        }
        if is_complete {
            return Ok(stream);
        }
        stream.socket_readable().await?;
    }
}

/// Returns true if the first byte that comes is that of TLS, for connections that are no client's. Nothing is
/// read.
pub async fn speaks_tls(socket: &TcpStream) -> io::Result<bool> {
    begins_with_tls(socket).await.map_err(io::Error::other)
}

/// Returns true if the first byte that the client sends is that of TLS. For listeners that take both.
pub(crate) async fn begins_with_tls(socket: &TcpStream) -> Result<bool, HandshakeError> {
    let mut first = [0; 1];
    match timeout(HANDSHAKE_MAX, socket.peek(&mut first)).await {
        Err(_) => Err(HandshakeError::Slow),
        Ok(Ok(0)) => Err(HandshakeError::Left),
        Ok(Ok(_)) => Ok(first == [super::HANDSHAKE_RECORD]),
        Ok(Err(error)) => Err(error.into()),
    }
}

/// Counts a failed handshake, and logs it at a bounded rate.
pub(crate) fn on_failed(entry: &ConnectionEntry, error: &HandshakeError) {
    let kind = error.kind();
    entry.metrics.handshake_failed(kind);
    if matches!(error, HandshakeError::Left) {
        // A port that is looked at, such as by a check of a load balancer.
        return;
    }
    if let Some(left_out) = entry.metrics.notices.due() {
        tracing::warn!(listener = entry.metrics.name(), peer = %entry.peer, kind, %error, left_out,
            "a TLS handshake failed");
    }
}

/// Logs, at a bounded rate, that a client speaks TLS to a port without it.
pub fn warn_of_tls(entry: &ConnectionEntry) {
    entry.metrics.error("tls_on_plain_port");
    if let Some(left_out) = entry.metrics.notices.due() {
        tracing::warn!(listener = entry.metrics.name(), peer = %entry.peer, left_out,
            "a client speaks TLS to a port without it");
    }
}
