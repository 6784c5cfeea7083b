//! Connections between nodes: encrypted, and proven by both sides before anything is said.
//!
//! A client that has TLS with the listener is relayed as it is: a second encryption would be of no use.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_user_timeout};
use stafett_cluster::{Binding, Key, Login, Node, NodeTls, PEER, PeerError, Secrets, Wish, ask, hear};
use stafett_net::{Duplex, Stream, tls};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::member::Member;

/// Time to connect to another node.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// Time for another node's answer, which may still open the journal.
const ANSWER_MAX: Duration = Duration::from_secs(6);

/// A connection to another node, which has granted a wish.
pub(crate) struct Link {
    pub(crate) stream: Box<dyn Duplex>,
    pub(super) address: SocketAddr,
}

/// Proofs of this node.
#[derive(Debug, Clone)]
pub(super) struct Trust {
    secrets: Secrets,
    tls: NodeTls,
}

impl Trust {
    /// Reads the cluster's secret, if there is one, and makes the key of this start of the node.
    pub(super) fn new(secret: Option<&Login>) -> anyhow::Result<Self> {
        let secrets = match secret {
            Some(secret) => Secrets::read(&secret.resolve()?)?,
            None => Secrets::default(),
        };
        let tls = NodeTls::new().context("no key for other nodes can be made")?;
        Ok(Self { secrets, tls })
    }

    /// Asks the node with a key for something.
    pub(super) async fn ask(
        &self,
        mut stream: TcpStream,
        key: &Key,
        wish: &Wish,
        is_encrypted: bool,
    ) -> Result<Box<dyn Duplex>, PeerError> {
        let proofs = (&self.secrets, key);
        if !is_encrypted {
            ask(&mut stream, proofs, &Binding::NONE, wish).await?;
            return Ok(Box::new(stream));
        }
        let connected = self.tls.connect(stream).await;
        let (mut stream, binding) = connected.map_err(|error| {
            // Another program answers.
            let is_tls = error.kind() != io::ErrorKind::InvalidData;
            if is_tls {
                PeerError::Io(error)
            } else {
                PeerError::Stranger
            }
        })?;
        ask(&mut stream, proofs, &binding, wish).await?;
        Ok(Box::new(stream))
    }

    /// Returns the wish of another node.
    pub(super) async fn hear(&self, stream: TcpStream, key: &Key) -> Result<(Stream, Wish), PeerError> {
        let proofs = (&self.secrets, key);
        if tls::speaks_tls(&stream).await? {
            let stream = tls::accept_with(stream, self.tls.accepting().clone()).await?;
            let mut stream = Stream::Tls(Box::new(stream));
            let wish = hear(&mut stream, proofs, self.tls.binding()).await?;
            return Ok((stream, wish));
        }
        let mut stream = Stream::Plain(stream);
        match hear(&mut stream, proofs, &Binding::NONE).await? {
            wish @ Wish::Relay { .. } => Ok((stream, wish)),
            Wish::Watch { .. }
            | Wish::Move { .. }
            | Wish::Access
            | Wish::Topics
            | Wish::TopicsOf { .. }
            | Wish::Groups => Err(PeerError::Malformed),
        }
    }
}

impl Member {
    /// Connects to another node for a purpose.
    pub(super) async fn reach(&self, node: &Node, wish: &Wish) -> anyhow::Result<Link> {
        self.connect(node, wish, true).await
    }

    /// As [`Self::reach`], for a client that has TLS with the listener.
    pub(super) async fn reach_as_it_is(&self, node: &Node, wish: &Wish) -> anyhow::Result<Link> {
        self.connect(node, wish, false).await
    }

    async fn connect(&self, node: &Node, wish: &Wish, is_encrypted: bool) -> anyhow::Result<Link> {
        let address = node
            .facts
            .address(PEER)
            .context("it has no address for other nodes")?;
        let connected = timeout(CONNECT_MAX, TcpStream::connect(address)).await;
        let stream = connected.context("no answer")??;
        prepare(&stream, self.lease, wish)?;
        let address = stream.peer_addr()?;
        let asked = self.shared.trust.ask(stream, &node.facts.key, wish, is_encrypted);
        let stream = timeout(ANSWER_MAX, asked).await.context("no answer")??;
        Ok(Link { stream, address })
    }
}

/// Sets the options of a connection to another node.
fn prepare(stream: &TcpStream, lease: Duration, wish: &Wish) -> io::Result<()> {
    stream.set_nodelay(true)?;
    set_socket_keepalive(stream, true)?;
    set_tcp_keepidle(stream, lease.max(Duration::from_secs(1)))?;
    set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    if !matches!(wish, Wish::Relay { .. }) {
        // A relayed client may not be read for any time: bytes wait, and the other node lives all the same.
        let silence_max = u32::try_from(lease.as_millis()).unwrap_or(u32::MAX);
        set_tcp_user_timeout(stream, silence_max)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::tcp_user_timeout;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    fn trust(secret: &str) -> Trust {
        Trust {
            secrets: Secrets::read(secret).unwrap(),
            tls: NodeTls::new().unwrap(),
        }
    }

    const SECRET: &str = "the secret of this cluster";

    fn relay() -> Wish {
        Wish::Relay {
            listener: "amqp".to_owned(),
            client: "10.0.0.1:5".parse().unwrap(),
            cell: 0,
        }
    }

    /// A connection, and the accepted side of it.
    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(connecting, listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    #[tokio::test]
    async fn nodes_of_one_secret_have_an_encrypted_connection() {
        let (one, other, key) = (trust(SECRET), trust(SECRET), Key::random());
        for (wish, is_encrypted) in [(Wish::Access, true), (relay(), true), (relay(), false)] {
            let (near, far) = pair().await;
            let asking = async {
                let mut stream = one.ask(near, &key, &wish, is_encrypted).await.unwrap();
                stream.write_all(b"hello").await.unwrap();
                stream.flush().await.unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await.unwrap();
                answer
            };
            let hearing = async {
                let (mut stream, heard) = other.hear(far, &key).await.unwrap();
                assert_eq!(matches!(stream, Stream::Tls(_)), is_encrypted);
                stafett_cluster::answer(&mut stream, true).await.unwrap();
                let mut sent = [0; 5];
                stream.read_exact(&mut sent).await.unwrap();
                stream.write_all(&sent).await.unwrap();
                stream.shutdown().await.unwrap();
                heard
            };
            let (answer, heard) = tokio::join!(asking, hearing);
            assert_eq!((&*answer, heard), ("hello", wish.clone()));
        }
    }

    #[tokio::test]
    async fn a_node_of_another_secret_is_none() {
        let (one, other, key) = (trust(SECRET), trust("the secret of another"), Key::random());
        let ((near, far), wish) = (pair().await, Wish::Access);
        let (asked, heard) = tokio::join!(one.ask(near, &key, &wish, true), other.hear(far, &key));
        assert!(matches!(asked, Err(PeerError::Stranger)));
        assert!(heard.is_err());
    }

    /// A program that took the place of a node, and passes all it gets on to that node.
    #[tokio::test]
    async fn a_program_between_two_nodes_is_noticed_and_reads_nothing() {
        let (one, between, other) = (trust(SECRET), trust(SECRET), trust(SECRET));
        let ((near, taken), (passed, far)) = (pair().await, pair().await);
        let (key, wish) = (Key::random(), Wish::Access);
        let relaying = async {
            let accepting = between.tls.accepting().clone();
            let taken = tls::accept_with(taken, accepting).await.unwrap();
            let (mut passed, _) = between.tls.connect(passed).await.unwrap();
            let mut taken = Stream::Tls(Box::new(taken));
            tokio::io::copy_bidirectional(&mut taken, &mut passed).await.ok();
        };
        let asking = one.ask(near, &key, &wish, true);
        let (asked, heard, ()) = tokio::join!(asking, other.hear(far, &key), relaying);
        assert!(matches!(asked, Err(PeerError::Stranger)));
        assert!(heard.is_err(), "it had no wish");
    }

    #[tokio::test]
    async fn only_clients_of_their_own_encryption_come_without_any() {
        let (one, other, key) = (trust(SECRET), trust(SECRET), Key::random());
        for wish in [
            Wish::Access,
            Wish::Move { cell: 0, to: None },
            Wish::Watch { node: 1, cell: 0 },
        ] {
            let (near, far) = pair().await;
            let (asked, heard) = tokio::join!(one.ask(near, &key, &wish, false), other.hear(far, &key));
            assert!(asked.is_err() && matches!(heard, Err(PeerError::Malformed)));
        }
    }

    /// The system gives a connection up whose bytes wait for longer than its bound, also if the other side is
    /// there and does not read.
    #[tokio::test]
    async fn a_relayed_client_may_not_be_read_for_any_time() {
        let lease = Duration::from_millis(300);
        for (wish, bound_ms) in [
            (relay(), 0),
            (Wish::Access, 300),
            (Wish::Watch { node: 1, cell: 0 }, 300),
        ] {
            let (near, _far) = pair().await;
            prepare(&near, lease, &wish).unwrap();
            assert_eq!(tcp_user_timeout(&near).unwrap(), bound_ms, "{wish:?}");
        }
    }
}
