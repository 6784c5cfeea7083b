//! TLS of listeners: certificates, handshakes, and the stream of an encrypted connection.
//!
//! ```text
//! files ─▶ Tls ── one ServerConfig per handshake ─▶ handshake ─▶ TlsStream, TlsSession ─▶ protocol
//!           ▲
//!           └ reload: a whole new configuration, or the one before
//! ```
//!
//! A connection keeps the configuration that it began with. Nothing here knows users: the certificate of a
//! client is plain data of its connection.
//!
//! - [`certificates`]: files, and the configuration made of them
//! - [`handshake`]: the beginning of a connection, bounded in time and bytes
//! - [`session`]: facts about a session, with the certificate of its client
//! - [`stream`]: the bytes of a connection; [`records`]: its session
//! - [`notice`]: log lines that strangers can cause, at a bounded rate

pub mod certificates;
pub(crate) mod handshake;
pub(crate) mod notice;
mod records;
pub mod session;
pub(crate) mod stream;

pub use certificates::{ClientCertificates, Tls, TlsError, TlsSettings, VersionMin};
pub use handshake::{accept_alone, accept_with, speaks_tls, warn_of_tls};
pub use session::{ClientCertificate, ClientName, TlsSession};
pub use stream::TlsStream;

/// First byte of a handshake record (RFC 8446, section 5.1).
const HANDSHAKE_RECORD: u8 = 22;

/// Returns true if the first bytes of a connection are those of a TLS client.
#[must_use]
pub fn is_hello(first: &[u8]) -> bool {
    matches!(first, [HANDSHAKE_RECORD, 3, ..])
}
