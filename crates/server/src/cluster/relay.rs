//! Connections of clients while this node stands by: bytes go to the owner and back. TLS of a client is left
//! as it is; the bytes of others are encrypted between the nodes.
//!
//! A client that comes while there is no owner waits for a while. Its first byte is not read before a node
//! takes the connection, so that attempts can be repeated. Those that wait and those that are relayed have
//! one bound together, of which each listener has three quarters at most.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use stafett_cluster::{Node, Wish};
use stafett_net::stall::StallGuard;
use stafett_net::{Connection, EVENTS, Handed, Listener, Protocol, Stream, WRITE_PACE, tls};
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::link::Link;
use super::member::{Member, Phase};

/// Time that a client waits for an owner: below the time-outs of clients' libraries.
const HOLD_MAX: Duration = Duration::from_secs(8);
/// Pause before another attempt to reach the owner.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes on their way, each way.
const BUFFER_BYTES: usize = 16 << 10;
/// Bytes of a request that tell its path.
const PATH_BYTES: usize = 32;
/// Time for them to arrive.
const PATH_MAX: Duration = Duration::from_secs(10);
const PATH_PAUSE: Duration = Duration::from_millis(5);

/// Requests about this node itself, up to the end of their path. It answers them also while it stands by.
const OWN: [&[u8]; 6] = [
    b"GET /health",
    b"GET /health/any",
    b"GET /metrics",
    b"HEAD /health",
    b"HEAD /health/any",
    b"HEAD /metrics",
];

/// The connections of a listener while this node stands by.
#[derive(Debug)]
pub(crate) struct Relay {
    member: Arc<Member>,
    listener: &'static str,
    /// A part of the process answers here, if only that nothing is served.
    answers: bool,
    takes_plain: bool,
    takes_tls: bool,
    /// One for each connection of this listener that may be relayed.
    turns: Semaphore,
}

/// Place for a connection.
enum Found {
    Owner(Link, Arc<Node>),
    Here,
    /// There is no owner in time.
    Nowhere,
}

impl Relay {
    pub(crate) fn new(member: &Arc<Member>, listener: &Listener) -> Self {
        Self {
            member: Arc::clone(member),
            listener: listener.name(),
            answers: false,
            takes_plain: listener.takes_plain(),
            takes_tls: listener.takes_tls(),
            turns: Semaphore::new(turns_of_one(member.relays_max())),
        }
    }

    /// A part of the process answers connections that cannot be relayed, and requests about this node itself.
    #[must_use]
    pub(crate) fn answering(self) -> Self {
        Self {
            answers: true,
            ..self
        }
    }

    async fn carry(&self, connection: Connection) {
        let Connection {
            stream, drain, entry, ..
        } = connection;
        let Stream::Plain(socket) = stream else {
            return;
        };
        let peer = entry.peer;
        if self.answers && self.takes_plain && asks_for_itself(&socket).await {
            self.hand(socket, peer).await;
            return;
        }
        let own_turn = self.turns.try_acquire().ok();
        let Some(turn) = self.member.relay_turn(own_turn.is_some()) else {
            tracing::debug!(target: EVENTS, kind = "connection.refused", via = self.listener, from = %peer,
                "refused: this node relays as many connections as cluster.relays_max allows, of this listener or of all");
            return;
        };
        // While the listener drains, this node serves or ends: nothing is relayed any more.
        let has_tls = drain.run_until_cancelled(self.has_tls(&socket)).await;
        let has_tls = has_tls.unwrap_or_default();
        match self.find(peer, has_tls, &drain).await {
            Found::Owner(link, owner) => {
                // The owner's end would not be read while bytes for the client wait.
                let socket = StallGuard::passing(socket, WRITE_PACE.grace, entry);
                self.copy(socket, link, &owner, &drain).await;
            }
            Found::Here => {
                drop(turn);
                self.hand(socket, peer).await;
            }
            Found::Nowhere => {
                drop(turn);
                self.member.metrics.unserved.inc();
                if self.answers && !drain.is_cancelled() {
                    self.hand(socket, peer).await;
                }
            }
        }
    }

    /// Returns true if the client has TLS with the listener, as its first byte says where both are taken.
    async fn has_tls(&self, socket: &TcpStream) -> bool {
        if self.takes_plain && self.takes_tls {
            return tls::speaks_tls(socket).await.unwrap_or(false);
        }
        self.takes_tls
    }

    async fn hand(&self, stream: TcpStream, peer: SocketAddr) {
        let handed = Handed {
            stream: Stream::Plain(stream),
            peer,
            needs_tls: false,
            is_relayed: false,
        };
        self.member.doors.hand(self.listener, handed).await;
    }

    /// Finds the node that takes a connection, and waits for one where there is none.
    async fn find(&self, client: SocketAddr, has_tls: bool, drain: &CancellationToken) -> Found {
        let member = &self.member;
        let wish = Wish::Relay {
            listener: self.listener.to_owned(),
            client,
            cell: member.cell,
        };
        let deadline = Instant::now() + HOLD_MAX;
        let (mut owners, mut phases) = (member.owner.subscribe(), member.phase.subscribe());
        loop {
            let phase = *phases.borrow_and_update();
            if phase == Phase::Serving {
                return Found::Here;
            }
            if drain.is_cancelled() {
                return Found::Nowhere;
            }
            let owner = owners.borrow_and_update().clone();
            let owner = owner.filter(|_| phase == Phase::StandingBy);
            let pause = if let Some(owner) = owner {
                let reaching = async {
                    if has_tls {
                        return member.reach_as_it_is(&owner, &wish).await;
                    }
                    member.reach(&owner, &wish).await
                };
                match timeout_at(deadline, reaching).await {
                    Ok(Ok(link)) => return Found::Owner(link, owner),
                    Ok(Err(why)) => {
                        tracing::trace!(owner = %owner.facts.name, %why, "the owner does not take a connection");
                    }
                    Err(_) => return Found::Nowhere,
                }
                PAUSE
            } else {
                HOLD_MAX
            };
            tokio::select! {
                _ = owners.changed() => {}
                _ = phases.changed() => {}
                () = drain.cancelled() => {}
                () = sleep(pause) => {}
                () = sleep_until(deadline) => return Found::Nowhere,
            }
        }
    }

    /// Passes bytes on until one side ends, another node owns the cell, nothing comes from the owner, or the
    /// client reads nothing for as long as any client may.
    async fn copy(
        &self,
        mut socket: StallGuard<TcpStream>,
        mut link: Link,
        owner: &Node,
        drain: &CancellationToken,
    ) {
        let metrics = &self.member.metrics;
        let (relays, open) = (metrics.relays.clone(), metrics.relays.inc());
        tracing::trace!(open, "relaying");
        metrics.relayed.inc();
        let mut owners = self.member.owner.subscribe();
        let is_other = |now: &Option<Arc<Node>>| {
            now.as_ref().map(|now| now.facts.incarnation) != Some(owner.facts.incarnation)
        };
        tokio::select! {
            _ = copy_bidirectional_with_sizes(&mut socket, &mut link.stream, BUFFER_BYTES, BUFFER_BYTES) => {}
            _ = owners.wait_for(is_other) => {}
            () = self.member.silence.notified() => {}
            () = drain.cancelled() => {}
        }
        relays.dec();
    }
}

impl Protocol for Relay {
    async fn connection(&self, connection: Connection) {
        Box::pin(self.carry(connection)).await;
    }
}

/// Returns the largest number of connections of one listener: others have a quarter in any case.
fn turns_of_one(all: usize) -> usize {
    (all - all / 4).clamp(1, Semaphore::MAX_PERMITS)
}

/// Returns true if the first request of a connection is about this node itself. Nothing is read.
async fn asks_for_itself(socket: &TcpStream) -> bool {
    let asked = timeout(PATH_MAX, async {
        let mut begin = [0; PATH_BYTES];
        loop {
            let bytes = socket.peek(&mut begin).await.unwrap_or_default();
            let begin = begin.get(..bytes).unwrap_or_default();
            match is_own(begin) {
                Some(is_own) => return is_own,
                None if bytes == 0 => return false,
                None => sleep(PATH_PAUSE).await,
            }
        }
    });
    asked.await.unwrap_or(false)
}

/// Returns true if a request that begins so is about this node itself. `None`: more bytes will tell.
fn is_own(begin: &[u8]) -> Option<bool> {
    for own in OWN {
        match begin.strip_prefix(own).map(<[u8]>::first) {
            Some(Some(b' ' | b'?')) => return Some(true),
            Some(None) => return None,
            None if own.starts_with(begin) => return None,
            Some(Some(_)) | None => {}
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::{is_own, turns_of_one};

    #[test]
    fn one_listener_leaves_places_to_the_others() {
        assert_eq!([1, 2, 4, 10_000].map(turns_of_one), [1, 2, 3, 7500]);
    }

    #[test]
    fn requests_about_the_node_itself_are_told_from_their_first_bytes() {
        for own in [
            "GET /health HTTP/1.1",
            "GET /health/any HTTP/1.1",
            "GET /metrics?x=1 HTTP/1.1",
            "HEAD /health HTTP/1.1",
            "HEAD /health/any?",
        ] {
            assert_eq!(is_own(own.as_bytes()), Some(true), "{own}");
        }
        for other in [
            "GET /healthy HTTP/1.1",
            "GET /health/anything ",
            "POST /health ",
            "GET /v1/topics ",
            "\x16\x03\x01",
        ] {
            assert_eq!(is_own(other.as_bytes()), Some(false), "{other}");
        }
        for part in ["", "GE", "HEAD /metr", "GET /health", "GET /health/an"] {
            assert_eq!(is_own(part.as_bytes()), None, "{part}");
        }
    }
}
