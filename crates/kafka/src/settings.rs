//! What can be set on the front end.

use std::time::Duration;

/// The one broker there is, and its own controller.
pub(crate) const BROKER_ID: i32 = 1;

/// Where clients reach the listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub host: String,
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaSettings {
    /// What clients are told to connect to; without, the address that they did connect to.
    pub advertised: Option<Endpoint>,
    /// The address of the listener, as clients are told.
    pub listen: String,
    /// Whether a metadata request may create the topics that it asks for.
    pub auto_create_topics: bool,
    /// Where everything is stored, as clients are told.
    pub log_dir: String,
    /// Bytes of the largest request.
    pub request_bytes_max: u32,
    /// Bytes of records in one answer to a fetch, whatever the client would take.
    pub fetch_bytes_max: usize,
    /// Answers that a connection may be owed before no more of its requests are read.
    pub answers_max: usize,
    /// A connection on which no request begins for as long is closed.
    pub idle_timeout: Duration,
    /// How long the answer to a member of a stable group is kept back at most.
    pub heartbeat_hold: Duration,
    /// Fetch sessions of all connections together.
    pub fetch_sessions_max: usize,
    /// Partitions in all fetch sessions together.
    pub fetch_session_partitions_max: usize,
}

impl Default for KafkaSettings {
    fn default() -> Self {
        Self {
            advertised: None,
            listen: String::new(),
            auto_create_topics: true,
            log_dir: String::new(),
            request_bytes_max: 100 << 20,
            fetch_bytes_max: 55 << 20,
            answers_max: 1024,
            idle_timeout: Duration::from_mins(10),
            heartbeat_hold: Duration::from_millis(2500),
            fetch_sessions_max: 1000,
            fetch_session_partitions_max: 4 << 20,
        }
    }
}
