//! Timeouts and bounds of a client.

use std::time::Duration;

/// How patient a client is, and how much it takes from a broker at once.
#[derive(Debug, Clone)]
pub struct Options {
    /// What the client calls itself.
    pub client_id: String,
    pub connect_timeout: Duration,
    /// How long an answer may take, besides the time that the request itself asks the broker to wait.
    pub request_timeout: Duration,
    /// How long requests are tried again after errors that may pass.
    pub retry_for: Duration,
    /// The largest answer that is read.
    pub response_bytes_max: usize,
    /// Memory for the parts of one decoded answer.
    pub decode_bytes_max: usize,
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
        }
    }
}
