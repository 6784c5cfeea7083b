//! One accepted connection, and the trait that protocols implement.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::budget::ByteBudget;
use crate::metrics::ListenerMetrics;
use crate::shedding::Shedding;
use crate::stream::Stream;
use crate::trace::Trace;

/// One accepted connection.
#[derive(Debug)]
pub struct Connection {
    pub stream: Stream,
    pub peer: SocketAddr,
    /// Unique among all connections of all listeners of the process.
    pub id: u64,
    /// Cancelled when the process drains: finish work in progress, read nothing more, end. Each connection
    /// has its own child token, so that repeated waits on it do not contend.
    pub drain: CancellationToken,
    /// The process's bound on request bytes in memory.
    pub budget: Arc<ByteBudget>,
    pub metrics: Arc<ListenerMetrics>,
    /// `None` if the listener refuses nothing.
    pub shedding: Option<Arc<Shedding>>,
    /// `None` if there is no performance log.
    pub trace: Option<Arc<Trace>>,
}

/// Handler of a listener's connections.
pub trait Protocol: Send + Sync + 'static {
    /// Serves one connection until it ends. If draining takes too long the future is dropped at any await
    /// point. The future is held in memory as long as the connection is open, so keep it small.
    fn connection(&self, connection: Connection) -> impl Future<Output = ()> + Send;
}
