//! Settings of the front end.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crate::cells::{Cells, FirstCell};

/// Id of a broker that is alone.
const BROKER_ID: i32 = 1;

/// Address at which clients reach the listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub host: String,
    pub port: u16,
}

/// A broker that clients are told of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BrokerAddress {
    pub id: i32,
    /// Address of its listener without TLS, if it has one.
    pub plain: Option<Endpoint>,
    /// Address of its listener with TLS, if it has one.
    pub tls: Option<Endpoint>,
}

/// Other brokers of the cluster: some take the place of this one, and pass clients on to it meanwhile; others
/// lead the partitions of other cells.
pub trait Brokers: Debug + Send + Sync {
    /// Returns the others that live.
    fn others(&self) -> Vec<BrokerAddress>;
    /// Returns the broker that leads the partitions of another cell. `None` if there is none for now.
    fn leader(&self, cell: u32) -> Option<i32>;
}

#[derive(Debug, Clone)]
pub struct KafkaSettings {
    /// Id of this broker. It leads the partitions of its cell; that of the first cell is the controller.
    pub broker_id: i32,
    /// `None` if it is alone.
    pub brokers: Option<Arc<dyn Brokers>>,
    /// The way to the first cell. `None` there, and in a broker that has no cells.
    pub first_cell: Option<Arc<dyn FirstCell>>,
    /// The ways to all cells. `None` in the first one, and in a broker that has no cells.
    pub cells: Option<Arc<dyn Cells>>,
    /// Address in metadata. `None` means the address that the client connected to.
    pub advertised: Option<Endpoint>,
    /// The same for clients with TLS.
    pub advertised_tls: Option<Endpoint>,
    /// Address of the listener without TLS, as shown to clients.
    pub listen: Option<String>,
    /// Address of the listener with TLS.
    pub listen_tls: Option<String>,
    /// True if a metadata request may create the topics that it names.
    pub auto_create_topics: bool,
    /// In a cluster of several cells: true if topics whose creator does not say are spread over them.
    pub spread_topics: bool,
    /// Data folder, as shown to clients.
    pub log_dir: String,
    /// Maximum bytes of a request.
    pub request_bytes_max: u32,
    /// Maximum bytes of records in one fetch answer, regardless of the client's limit.
    pub fetch_bytes_max: usize,
    /// Maximum pending answers of a connection; at the bound, its requests are not read.
    pub answers_max: usize,
    /// A connection is closed if no request begins for this long.
    pub idle_timeout: Duration,
    /// Maximum time that the heartbeat answer to a member of a stable group is held back.
    pub heartbeat_hold: Duration,
    /// Maximum fetch sessions of all connections together.
    pub fetch_sessions_max: usize,
    /// Maximum partitions in all fetch sessions together.
    pub fetch_session_partitions_max: usize,
}

impl KafkaSettings {
    /// Returns the other brokers.
    pub(crate) fn others(&self) -> Vec<BrokerAddress> {
        self.brokers
            .as_ref()
            .map(|brokers| brokers.others())
            .unwrap_or_default()
    }

    /// Returns true if a broker has this id. All have the same settings.
    pub(crate) fn has_broker(&self, id: i32) -> bool {
        id == self.broker_id || self.others().iter().any(|other| other.id == id)
    }
}

impl Default for KafkaSettings {
    fn default() -> Self {
        Self {
            broker_id: BROKER_ID,
            brokers: None,
            first_cell: None,
            cells: None,
            advertised: None,
            advertised_tls: None,
            listen: None,
            listen_tls: None,
            auto_create_topics: true,
            spread_topics: false,
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
