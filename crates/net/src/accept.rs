//! The accept loop.
//!
//! It runs until the process stops accepting. Errors of a single connection are skipped. If the process is
//! out of descriptors or the machine out of memory, it waits and retries, longer each time, without a busy
//! loop.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::EVENTS;
use crate::budget::ByteBudget;
use crate::connection::{Connection, Protocol};
use crate::listener::{Listener, ListenerSettings, Security, prepare};
use crate::metrics::ListenerMetrics;
use crate::registry::{ConnectionEntry, Connections, Listed};
use crate::shedding::Shedding;
use crate::shutdown::Shutdown;
use crate::stream::Stream;
use crate::tls::{Tls, handshake};
use crate::trace::Trace;

const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// State shared by the listeners of one process.
#[derive(Debug, Clone)]
pub struct Shared {
    pub shutdown: Shutdown,
    pub budget: Arc<ByteBudget>,
    /// `None` if there is no performance log.
    pub trace: Option<Arc<Trace>>,
    pub connections: Arc<Connections>,
    /// Reads the wall clock, in ms since 1970.
    wall_ms: fn() -> i64,
    connection_id_next: Arc<AtomicU64>,
}

impl Shared {
    #[must_use]
    pub fn new(shutdown: Shutdown, budget: Arc<ByteBudget>) -> Self {
        Self {
            shutdown,
            budget,
            trace: None,
            connections: Arc::default(),
            wall_ms: || 0,
            connection_id_next: Arc::new(AtomicU64::new(1)),
        }
    }
}

impl Shared {
    /// Sets the clock that tells when connections began. Without one, it is 1970.
    #[must_use]
    pub fn with_clock(self, wall_ms: fn() -> i64) -> Self {
        Self { wall_ms, ..self }
    }

    /// Returns a copy with its own shutdown.
    #[must_use]
    pub fn ending_with(&self, shutdown: Shutdown) -> Self {
        Self {
            shutdown,
            ..self.clone()
        }
    }
}

/// Accepts connections and serves each in its own task until the process drains. Then waits for those tasks,
/// which end by themselves or are dropped when the process aborts.
pub async fn serve<P: Protocol>(listener: Listener, protocol: Arc<P>, shared: Shared) {
    let (socket, admission) = Admission::of(listener);
    let accepting = shared.shutdown.accepting();
    let (settings, metrics) = (&admission.settings, &admission.metrics);
    // The tasks hold no abort token: it would be polled, and its lock taken, at every wake-up of every
    // connection.
    let mut tasks = JoinSet::new();
    let mut pause = Pause::default();
    let mut closing = pin!(shared.shutdown.closing().cancelled());
    let mut measuring = pin!(measure(admission.shedding.as_deref()));
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut closing => break,
            () = &mut measuring => continue,
            Some(_ended) = tasks.join_next() => continue,
            accepted = socket.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                pause.reset();
                let handed = Handed {
                    stream: Stream::Plain(stream),
                    peer,
                    needs_tls: false,
                    is_relayed: false,
                };
                admit(handed, &admission, &protocol, &shared, &mut tasks);
            }
            Err(error) => {
                metrics.error("accept");
                if let Some(wait) = pause.after(&error) {
                    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                    tracing::warn!(listener = settings.name, %error, wait_ms, "cannot accept connections; waiting");
                    shared.shutdown.closing().run_until_cancelled(sleep(wait)).await;
                }
            }
        }
    }
    drop((socket, accepting));
    end(tasks, &shared).await;
}

/// Serves connections that another listener has accepted, as if this one had, until the process drains. Its
/// own socket is not used.
pub async fn serve_handed<P: Protocol>(
    listener: Listener,
    mut handed: mpsc::Receiver<Handed>,
    protocol: Arc<P>,
    shared: Shared,
) {
    let (socket, admission) = Admission::of(listener);
    drop(socket);
    let mut tasks = JoinSet::new();
    let mut draining = pin!(shared.shutdown.draining().cancelled());
    loop {
        let next = tokio::select! {
            biased;
            () = &mut draining => break,
            Some(_ended) = tasks.join_next() => continue,
            next = handed.recv() => next,
        };
        let Some(next) = next else {
            break;
        };
        admit(next, &admission, &protocol, &shared, &mut tasks);
    }
    drop(handed);
    end(tasks, &shared).await;
}

/// Waits for connections, which are dropped when the process aborts.
async fn end(mut tasks: JoinSet<()>, shared: &Shared) {
    let all = async { while tasks.join_next().await.is_some() {} };
    if shared
        .shutdown
        .aborting()
        .run_until_cancelled(all)
        .await
        .is_none()
    {
        tasks.shutdown().await;
    }
}

/// A connection that was accepted elsewhere. An encrypted one is of a client that speaks plainly: the
/// encryption is that of the way here.
#[derive(Debug)]
pub struct Handed {
    pub stream: Stream,
    /// Address of the client, which may not be that of the other end.
    pub peer: SocketAddr,
    /// Only the client's own TLS protects the bytes on their way here: without it, they are not served.
    pub needs_tls: bool,
    /// Another node has accepted it.
    pub is_relayed: bool,
}

/// Measures how long tasks wait; never returns.
async fn measure(shedding: Option<&Shedding>) {
    match shedding {
        Some(shedding) => shedding.measure().await,
        None => pending().await,
    }
}

/// State of a listener that its connections get.
struct Admission {
    settings: ListenerSettings,
    metrics: Arc<ListenerMetrics>,
    shedding: Option<Arc<Shedding>>,
    security: Security,
}

impl Admission {
    fn of(listener: Listener) -> (Arc<TcpListener>, Self) {
        let Listener {
            socket,
            settings,
            metrics,
            shedding,
            security,
        } = listener;
        let admission = Self {
            settings,
            metrics,
            shedding,
            security,
        };
        (socket, admission)
    }

    /// Sets the options of a connection, and makes its entry. `None` if it is gone already.
    fn enter(
        &self,
        stream: &Stream,
        peer: SocketAddr,
        shared: &Shared,
        drain: &CancellationToken,
    ) -> Option<Arc<ConnectionEntry>> {
        let Self {
            settings, metrics, ..
        } = self;
        metrics.accepted.inc();
        let local = match prepare(stream.socket(), settings).and_then(|()| stream.local_addr()) {
            Ok(local) => local,
            Err(error) => {
                metrics.error("prepare");
                tracing::debug!(listener = settings.name, %peer, %error, "the connection was gone at once");
                return None;
            }
        };
        let id = shared.connection_id_next.fetch_add(1, Ordering::Relaxed);
        let (since_ms, metrics) = ((shared.wall_ms)(), Arc::clone(metrics));
        Some(ConnectionEntry::new(
            id,
            (peer, local),
            metrics,
            since_ms,
            drain.clone(),
        ))
    }
}

fn admit<P: Protocol>(
    handed: Handed,
    admission: &Admission,
    protocol: &Arc<P>,
    shared: &Shared,
    tasks: &mut JoinSet<()>,
) {
    let Handed {
        stream,
        peer,
        needs_tls,
        is_relayed,
    } = handed;
    let Admission {
        settings,
        metrics,
        shedding,
        security,
    } = admission;
    if tasks.len() >= settings.connections_max {
        metrics.refused.inc();
        tracing::debug!(target: EVENTS, kind = "connection.refused", via = settings.name, from = %peer,
            "refused: too many connections");
        return;
    }
    let drain = shared.shutdown.draining().child_token();
    let Some(entry) = admission.enter(&stream, peer, shared, &drain) else {
        return;
    };
    entry.set_relayed(is_relayed);
    let ending = drain.clone();
    let connect = {
        let (budget, entry) = (Arc::clone(&shared.budget), Arc::clone(&entry));
        let (shedding, trace) = (shedding.clone(), shared.trace.clone());
        move |stream| Connection {
            stream,
            drain,
            budget,
            shedding,
            trace,
            entry,
        }
    };
    let open = Open::count(Arc::clone(&entry), settings.name, &shared.connections);
    let protocol = Arc::clone(protocol);
    let task = match (security, stream) {
        // Another program may have taken the place of the client's on the way.
        (Security::Plain, Stream::Plain(_)) if needs_tls => {
            metrics.error("handed");
            return;
        }
        (Security::Plain, stream) | (Security::Either(_), stream @ Stream::Tls(_)) => {
            tasks.spawn(async move {
                let _open = open;
                protocol.connection(connect(stream)).await;
            })
        }
        // Its client would speak plainly where that is refused.
        (Security::Tls(_), Stream::Tls(_)) => {
            metrics.error("handed");
            return;
        }
        (Security::Tls(tls) | Security::Either(tls), Stream::Plain(socket)) => {
            let is_either = !needs_tls && matches!(security, Security::Either(_));
            let shaken = shake(socket, Arc::clone(tls), is_either, Arc::clone(&entry));
            tasks.spawn(after_handshake(shaken, ending, protocol, connect, open))
        }
    };
    entry.set_task(task);
}

/// Serves a connection when its handshake is done. A task of its own kind: those of plain connections have no
/// room for a handshake.
async fn after_handshake<P: Protocol>(
    shaken: impl Future<Output = Option<Stream>>,
    ending: CancellationToken,
    protocol: Arc<P>,
    connect: impl FnOnce(Stream) -> Connection,
    open: Open,
) {
    let shaken = ending.run_until_cancelled(Box::pin(shaken)).await;
    if let Some(Some(stream)) = shaken {
        protocol.connection(connect(stream)).await;
    }
    drop(open);
}

/// Performs the handshake of a connection, if it has one. `None` if that failed.
async fn shake(
    socket: TcpStream,
    tls: Arc<Tls>,
    is_either: bool,
    entry: Arc<ConnectionEntry>,
) -> Option<Stream> {
    let shaken = async {
        if is_either && !handshake::begins_with_tls(&socket).await? {
            return Ok(Stream::Plain(socket));
        }
        let (stream, session) = handshake::accept(socket, &tls).await?;
        entry.metrics.handshake_done();
        entry.set_tls(session);
        Ok(Stream::Tls(Box::new(stream)))
    };
    shaken
        .await
        .inspect_err(|error| handshake::on_failed(&entry, error))
        .ok()
}

/// Counts and lists an open connection, correct even if its task panics.
struct Open {
    entry: Arc<ConnectionEntry>,
    listener: &'static str,
    _listed: Listed,
}

impl Open {
    fn count(entry: Arc<ConnectionEntry>, listener: &'static str, connections: &Arc<Connections>) -> Self {
        entry.metrics.open.inc();
        tracing::debug!(target: EVENTS, kind = "connection.opened", name = entry.id, via = listener, from = %entry.peer,
            "opened");
        Self {
            _listed: connections.add(&entry),
            entry,
            listener,
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let Self { entry, listener, .. } = self;
        entry.metrics.open.dec();
        let reason = entry.reason();
        let (kind, by, text) = match &reason {
            Some(reason) => ("connection.ended_by_operator", "operator", &**reason),
            None => ("connection.closed", "", "closed"),
        };
        tracing::debug!(target: EVENTS, kind, name = entry.id, via = *listener, from = %entry.peer, by, "{text}");
    }
}

/// Back-off after accept errors.
#[derive(Debug, Default)]
struct Pause(Duration);

impl Pause {
    fn reset(&mut self) {
        self.0 = Duration::ZERO;
    }

    /// Returns the time to wait. `None` for errors that concern only the connection being accepted.
    fn after(&mut self, error: &io::Error) -> Option<Duration> {
        let own_fault = matches!(
            error.kind(),
            io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
        );
        if own_fault {
            return None;
        }
        self.0 = (self.0 * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        Some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_descriptors_waits_longer_each_time_and_a_lost_connection_does_not() {
        let mut pause = Pause::default();
        assert_eq!(pause.after(&io::ErrorKind::ConnectionAborted.into()), None);
        let full = io::Error::from_raw_os_error(24);
        assert_eq!(pause.after(&full), Some(PAUSE_MIN));
        assert_eq!(pause.after(&full), Some(PAUSE_MIN * 2));
        for _ in 0..20 {
            pause.after(&full);
        }
        assert_eq!(pause.after(&full), Some(PAUSE_MAX));
        pause.reset();
        assert_eq!(pause.after(&full), Some(PAUSE_MIN));
    }
}
