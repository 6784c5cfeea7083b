//! Timeouts, bounds and security of a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

/// User and password of a login by SASL PLAIN (RFC 4616). The password is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "login of {:?}", self.user)
    }
}

/// Timeouts, bounds on bytes from a broker, and security.
#[derive(Debug, Clone)]
pub struct Options {
    /// Client id in requests.
    pub client_id: String,
    pub connect_timeout: Duration,
    /// Time for an answer, on top of the time that the request itself asks the broker to wait.
    pub request_timeout: Duration,
    /// Time during which a request is retried after retriable errors.
    pub retry_for: Duration,
    /// Maximum bytes of an answer.
    pub response_bytes_max: usize,
    /// Maximum memory for the parts of one decoded answer.
    pub decode_bytes_max: usize,
    /// TLS of all connections. `None` for plain ones.
    pub tls: Option<Arc<ClientConfig>>,
    /// Login by the mechanism PLAIN, which shows the password to the broker: to the network too, without TLS.
    pub login: Option<Login>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            client_id: "stafett".to_owned(),
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            retry_for: Duration::from_secs(20),
            response_bytes_max: 128 << 20,
            decode_bytes_max: 256 << 20,
            tls: None,
            login: None,
        }
    }
}
