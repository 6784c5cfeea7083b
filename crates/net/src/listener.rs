//! One listening socket, and the socket options of its connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};

use crate::metrics::{ListenerMetrics, NetMetrics};
use crate::shedding::{Overload, Shedding};
use crate::tls::Tls;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// Settings of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerSettings {
    /// Name in metrics and logs.
    pub name: &'static str,
    /// Maximum open connections. Further ones are closed as soon as they are accepted.
    pub connections_max: usize,
    /// Idle time after which the peer is probed. A silent peer is given up after another third of it.
    pub keepalive: Duration,
    pub overload: Overload,
}

impl ListenerSettings {
    #[must_use]
    pub fn new(name: &'static str, connections_max: usize) -> Self {
        Self {
            name,
            connections_max,
            keepalive: Duration::from_mins(5),
            overload: Overload::default(),
        }
    }
}

/// Reasons why a listener cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("{address:?} is no address to listen on: {source}")]
    Resolve { address: String, source: io::Error },
    #[error("{address:?} names no address")]
    Nothing { address: String },
    #[error("cannot listen on {address}: {}", plainly(.source))]
    Bind { address: SocketAddr, source: io::Error },
}

fn plainly(error: &io::Error) -> String {
    let kind = error.kind();
    if kind == io::ErrorKind::AddrInUse {
        "the address is in use by another program".to_owned()
    } else if kind == io::ErrorKind::AddrNotAvailable {
        "this machine has no such address".to_owned()
    } else {
        error.to_string()
    }
}

/// Resolves `HOST:PORT` to at least one address.
pub async fn resolve(address: &str) -> Result<Vec<SocketAddr>, BindError> {
    let resolved = lookup_host(address).await.map_err(|source| BindError::Resolve {
        address: address.to_owned(),
        source,
    })?;
    let resolved: Vec<_> = resolved.collect();
    if resolved.is_empty() {
        return Err(BindError::Nothing {
            address: address.to_owned(),
        });
    }
    Ok(resolved)
}

/// Bound listener, to be passed to [`crate::serve`]. The socket is open until the last clone is dropped;
/// connections that are not accepted wait in it.
#[derive(Debug, Clone)]
pub struct Listener {
    pub(crate) socket: Arc<TcpListener>,
    pub(crate) settings: ListenerSettings,
    pub(crate) metrics: Arc<ListenerMetrics>,
    pub(crate) shedding: Option<Arc<Shedding>>,
    pub(crate) security: Security,
}

/// Kinds of connections that a listener takes.
#[derive(Debug, Clone, Default)]
pub enum Security {
    #[default]
    Plain,
    Tls(Arc<Tls>),
    /// Both, told apart by the first byte of a connection.
    Either(Arc<Tls>),
}

impl Listener {
    /// Changes the kinds of connections that it takes.
    #[must_use]
    pub fn secured(self, security: Security) -> Self {
        Self { security, ..self }
    }

    /// Listens on the first of `addresses` (see [`resolve`]) that can be bound.
    pub fn bind(
        addresses: &[SocketAddr],
        settings: ListenerSettings,
        metrics: &NetMetrics,
    ) -> Result<Self, BindError> {
        let mut failed = BindError::Nothing {
            address: String::new(),
        };
        for address in addresses {
            match listen(*address) {
                Ok(socket) => {
                    return Ok(Self {
                        socket: Arc::new(socket),
                        metrics: metrics.listener(settings.name),
                        shedding: Shedding::of(settings.overload, settings.name, metrics),
                        settings,
                        security: Security::Plain,
                    });
                }
                Err(source) => {
                    failed = BindError::Bind {
                        address: *address,
                        source,
                    }
                }
            }
        }
        Err(failed)
    }

    /// Returns the same socket, counted in other metrics.
    #[must_use]
    pub fn counted_in(&self, metrics: &NetMetrics) -> Self {
        Self {
            metrics: metrics.listener(self.settings.name),
            shedding: Shedding::of(self.settings.overload, self.settings.name, metrics),
            ..self.clone()
        }
    }

    /// Returns true if connections without TLS are served.
    #[must_use]
    pub fn takes_plain(&self) -> bool {
        match self.security {
            Security::Plain | Security::Either(_) => true,
            Security::Tls(_) => false,
        }
    }

    /// Returns true if connections with TLS are served.
    #[must_use]
    pub fn takes_tls(&self) -> bool {
        match self.security {
            Security::Tls(_) | Security::Either(_) => true,
            Security::Plain => false,
        }
    }

    /// Returns the name in metrics and logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.settings.name
    }

    /// Returns the listening address, with the real port.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Sets the options of an accepted connection: answers are sent at once (no Nagle delay), and dead peers are
/// detected.
pub(crate) fn prepare(stream: &TcpStream, settings: &ListenerSettings) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, settings.keepalive)?;
    sockopt::set_tcp_keepintvl(stream, (settings.keepalive / 9).max(Duration::from_secs(1)))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}
