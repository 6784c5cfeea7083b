//! What a protocol is given for each connection, and what it has to offer.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::budget::ByteBudget;
use crate::metrics::ListenerMetrics;

/// One accepted connection.
#[derive(Debug)]
pub struct Connection {
    pub stream: TcpStream,
    pub peer: SocketAddr,
    /// Unique among all connections of all listeners of the process.
    pub id: u64,
    /// Cancelled when the process drains: finish what was begun, read nothing more, end. This token is the
    /// connection's own child of the process's, so that waiting on it again and again contends with nobody.
    pub drain: CancellationToken,
    /// The process's bound on bytes of requests in memory.
    pub budget: Arc<ByteBudget>,
    pub metrics: Arc<ListenerMetrics>,
}

/// What a listener does with its connections.
pub trait Protocol: Send + Sync + 'static {
    /// Serves one connection until it ends. When draining takes too long the future is dropped, at whatever
    /// point it waits; the same happens to the memory of a connection as to its future, so keep it small.
    fn connection(&self, connection: Connection) -> impl Future<Output = ()> + Send;
}
