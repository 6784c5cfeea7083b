//! Timeouts and bounds of a client.

use std::fmt;
use std::time::Duration;

/// A user with its password, for SASL PLAIN. The password is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({:?})", self.user)
    }
}

/// Timeouts, and bounds on bytes from a broker.
#[derive(Debug, Clone)]
pub struct Options {
    /// Client id in requests.
    pub client_id: String,
    /// Login of every connection, if the broker requires one.
    pub login: Option<Login>,
    pub connect_timeout: Duration,
    /// Time for an answer, on top of the time that the request itself asks the broker to wait.
    pub request_timeout: Duration,
    /// Time during which a request is retried after retriable errors.
    pub retry_for: Duration,
    /// Maximum bytes of an answer.
    pub response_bytes_max: usize,
    /// Maximum memory for the parts of one decoded answer.
    pub decode_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            client_id: "stafett".to_owned(),
            login: None,
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            retry_for: Duration::from_secs(20),
            response_bytes_max: 128 << 20,
            decode_bytes_max: 256 << 20,
        }
    }
}
