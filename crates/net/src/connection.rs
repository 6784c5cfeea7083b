//! One accepted connection, and the trait that protocols implement.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::budget::ByteBudget;
use crate::registry::ConnectionEntry;
use crate::shedding::Shedding;
use crate::stream::Stream;
use crate::trace::Trace;

/// One accepted connection.
#[derive(Debug)]
pub struct Connection {
    pub stream: Stream,
    /// Cancelled when the process drains or an operator ends the connection ([`ConnectionEntry::reason`]):
    /// finish work in progress, read nothing more, end. Each connection has its own child token, so that
    /// repeated waits on it do not contend.
    pub drain: CancellationToken,
    /// The process's bound on request bytes in memory.
    pub budget: Arc<ByteBudget>,
    /// `None` if the listener refuses nothing.
    pub shedding: Option<Arc<Shedding>>,
    /// `None` if there is no performance log.
    pub trace: Option<Arc<Trace>>,
    pub entry: Arc<ConnectionEntry>,
}

/// Handler of a listener's connections.
pub trait Protocol: Send + Sync + 'static {
    /// Serves one connection until it ends. If draining takes too long the future is dropped at any await
    /// point. The future is held in memory as long as the connection is open, so keep it small.
    fn connection(&self, connection: Connection) -> impl Future<Output = ()> + Send;
}
