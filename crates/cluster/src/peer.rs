//! The first bytes between two nodes: both prove that they read the same table of nodes and share the secret
//! of the cluster, and the node that connects says its purpose.
//!
//! ```text
//! connecting   TLS (`peer_tls.rs`), unless the client that it brings has TLS with the listener
//! connecting   "STAFETT PEER 2\n"   challenge, 32 bytes
//! accepting    challenge, 32 bytes   proof, 32 bytes
//! connecting   proof, 32 bytes   length, u16   wish, text
//! accepting    1 byte: 1 granted, 0 refused
//! ```
//!
//! A proof is the HMAC-SHA-256 (RFC 2104), under the key of the accepting node and the secret (`secrets.rs`),
//! of a byte for the side, the binding of the encryption, both challenges, and the wish of the connecting
//! side. So a client's bytes go to no program that took a node's address, a stranger cannot give itself
//! another client's address, and none reads or changes the words of two nodes. Nothing of one connection is
//! of use in another: challenges are new each time. Integers are big-endian.

use std::io;
use std::net::SocketAddr;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::nodes::{Key, random};
use crate::peer_tls::Binding;
use crate::secrets::Secrets;

const GREETING: &[u8; 15] = b"STAFETT PEER 2\n";
const PROOF_BYTES: usize = 32;
const WISH_BYTES_MAX: usize = 512;

/// Purpose of a connection between nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// Its bytes are those of a client that came to a listener of another node.
    Relay {
        listener: String,
        client: SocketAddr,
        cell: u32,
    },
    /// It lasts for as long as the process of the owner; a byte says that the cell is free.
    Watch { node: u32, cell: u32 },
    /// The owner is to let go of a cell for a node, or for any other one.
    Move { cell: u32, to: Option<u32> },
    /// Users and rights of the cluster, again whenever they change. The owner of the first cell has them.
    Access,
    /// Topics of the cluster, in the same way.
    Topics,
    /// The same, for a cell that answers each copy with a byte once it has it.
    TopicsOf { cell: u32 },
    /// Settings of groups, in the same way.
    Groups,
}

/// Reason why there is no connection between two nodes.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is no node of this cluster, or has another cluster.secret")]
    Stranger,
    #[error("it asks for nothing that is known")]
    Malformed,
    #[error("it refuses")]
    Refused,
}

impl Wish {
    fn write(&self) -> String {
        match self {
            Self::Relay {
                listener,
                client,
                cell,
            } => format!("relay {listener} {client}{}", behind(*cell)),
            Self::Watch { node, cell } => format!("watch {node}{}", behind(*cell)),
            Self::Move { cell, to: None } => format!("move {cell}"),
            Self::Move { cell, to: Some(to) } => format!("move {cell} {to}"),
            Self::Access => "access".to_owned(),
            Self::Topics => "topics".to_owned(),
            Self::TopicsOf { cell } => format!("topics-of {cell}"),
            Self::Groups => "groups".to_owned(),
        }
    }

    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        // The first cell is not named.
        let cell = |word: Option<&str>| word.map_or(Some(0), |word| word.parse().ok());
        let wish = match words.next()? {
            "relay" => Self::Relay {
                listener: words.next()?.to_owned(),
                client: words.next()?.parse().ok()?,
                cell: cell(words.next())?,
            },
            "watch" => Self::Watch {
                node: words.next()?.parse().ok()?,
                cell: cell(words.next())?,
            },
            "move" => Self::Move {
                cell: words.next()?.parse().ok()?,
                to: words.next().map(str::parse).transpose().ok()?,
            },
            "access" => Self::Access,
            "topics" => Self::Topics,
            "topics-of" => Self::TopicsOf {
                cell: words.next()?.parse().ok()?,
            },
            "groups" => Self::Groups,
            _ => return None,
        };
        words.next().is_none().then_some(wish)
    }
}

/// Returns a cell as the last word of a wish; nothing for the first one, which older versions know alone.
fn behind(cell: u32) -> String {
    if cell == 0 {
        return String::new();
    }
    format!(" {cell}")
}

type Challenge = [u8; 32];

/// Conversation of two nodes, as far as both have agreed on it.
struct Talk<'a> {
    binding: &'a Binding,
    challenges: [Challenge; 2],
}

impl Talk<'_> {
    fn mac(&self, key: &Key, side: u8, wish: &str) -> Hmac<Sha256> {
        #[expect(clippy::expect_used, reason = "a key of any length is one (RFC 2104)")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&key.0).expect("any key is taken");
        mac.update(&[side]);
        mac.update(&self.binding.0);
        for challenge in &self.challenges {
            mac.update(challenge);
        }
        mac.update(wish.as_bytes());
        mac
    }

    fn proof(&self, key: &Key, side: u8, wish: &str) -> [u8; PROOF_BYTES] {
        self.mac(key, side, wish).finalize().into_bytes().into()
    }

    /// Returns the key under which a proof is right.
    fn proven<'k>(&self, keys: &'k [Key], side: u8, wish: &str, proof: &[u8]) -> Option<&'k Key> {
        let is_right = |key: &&Key| self.mac(key, side, wish).verify_slice(proof).is_ok();
        keys.iter().find(is_right)
    }
}

const CONNECTING: u8 = b'c';
const ACCEPTING: u8 = b'a';

/// Asks the node with a key for something. Returns when that is granted.
pub async fn ask<S>(
    stream: &mut S,
    (secrets, key): (&Secrets, &Key),
    binding: &Binding,
    wish: &Wish,
) -> Result<(), PeerError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let ours = random();
    stream.write_all(&[GREETING.as_slice(), &ours].concat()).await?;
    stream.flush().await?;
    let (mut theirs, mut proof) = (Challenge::default(), [0; PROOF_BYTES]);
    stream.read_exact(&mut theirs).await?;
    stream.read_exact(&mut proof).await?;
    let challenges = [ours, theirs];
    let talk = Talk { binding, challenges };
    let keys = secrets.keys(key);
    let known = talk.proven(&keys, ACCEPTING, "", &proof);
    let known = known.ok_or(PeerError::Stranger)?;
    let wish = wish.write();
    let bytes = u16::try_from(wish.len()).map_err(|_| PeerError::Malformed)?;
    let mut message = talk.proof(known, CONNECTING, &wish).to_vec();
    message.extend(bytes.to_be_bytes());
    message.extend(wish.as_bytes());
    stream.write_all(&message).await?;
    stream.flush().await?;
    match stream.read_u8().await? {
        1 => Ok(()),
        _ => Err(PeerError::Refused),
    }
}

/// Returns the wish of a node that knows this node's key and a secret. It is to be answered.
pub async fn hear<S>(
    stream: &mut S,
    (secrets, key): (&Secrets, &Key),
    binding: &Binding,
) -> Result<Wish, PeerError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut greeting = [0; GREETING.len()];
    stream.read_exact(&mut greeting).await?;
    if greeting != *GREETING {
        return Err(PeerError::Stranger);
    }
    let (mut theirs, ours) = (Challenge::default(), random());
    stream.read_exact(&mut theirs).await?;
    let challenges = [theirs, ours];
    let talk = Talk { binding, challenges };
    let keys = secrets.keys(key);
    let first = keys.first().ok_or(PeerError::Stranger)?;
    let proof = talk.proof(first, ACCEPTING, "");
    stream.write_all(&[ours.as_slice(), &proof].concat()).await?;
    stream.flush().await?;
    let mut proof = [0; PROOF_BYTES];
    stream.read_exact(&mut proof).await?;
    let bytes = usize::from(stream.read_u16().await?);
    if bytes > WISH_BYTES_MAX {
        return Err(PeerError::Malformed);
    }
    let mut wish = vec![0; bytes];
    stream.read_exact(&mut wish).await?;
    let wish = String::from_utf8(wish).map_err(|_| PeerError::Malformed)?;
    if talk.proven(&keys, CONNECTING, &wish, &proof).is_none() {
        return Err(PeerError::Stranger);
    }
    Wish::read(&wish).ok_or(PeerError::Malformed)
}

/// Answers a wish.
pub async fn answer<S: AsyncWrite + Unpin>(stream: &mut S, is_granted: bool) -> io::Result<()> {
    stream.write_all(&[u8::from(is_granted)]).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    fn relay() -> Wish {
        Wish::Relay {
            listener: "one".to_owned(),
            client: "[2001:db8::1]:4".parse().unwrap(),
            cell: 0,
        }
    }

    /// One side of a conversation.
    type Side = (Secrets, Key, Binding);

    fn side(key: Key, secret: &str) -> Side {
        let secrets = match secret {
            "" => Secrets::default(),
            text => Secrets::read(text).unwrap(),
        };
        (secrets, key, Binding::NONE)
    }

    async fn talk(
        asking: Side,
        hearing: Side,
        wish: &Wish,
    ) -> (Result<(), PeerError>, Result<Wish, PeerError>) {
        let (mut one, mut other) = duplex(64);
        tokio::join!(
            async move {
                let (secrets, key, binding) = asking;
                ask(&mut one, (&secrets, &key), &binding, wish).await
            },
            async move {
                let (secrets, key, binding) = hearing;
                let heard = hear(&mut other, (&secrets, &key), &binding).await;
                answer(&mut other, heard.is_ok()).await.ok();
                heard
            }
        )
    }

    const OLD: &str = "an old secret of some length";
    const NEW: &str = "a new secret of some length";

    #[tokio::test]
    async fn nodes_that_know_the_key_understand_each_other() {
        let key = Key::random();
        let of_cell = |cell| Wish::Watch { node: 7, cell };
        let to = |to| Wish::Move { cell: 3, to };
        for wish in [
            relay(),
            of_cell(0),
            of_cell(2),
            to(None),
            to(Some(1)),
            Wish::Access,
        ] {
            let (asked, heard) = talk(side(key, OLD), side(key, OLD), &wish).await;
            asked.unwrap();
            assert_eq!(heard.unwrap(), wish);
        }
    }

    #[tokio::test]
    async fn a_stranger_learns_no_wish() {
        let key = Key::random();
        let other = Binding([1; 32]);
        for (asking, hearing) in [
            (side(Key::random(), ""), side(Key::random(), "")),
            (side(key, OLD), side(key, NEW)),
            (side(key, OLD), side(key, "")),
            (side(key, ""), side(key, OLD)),
            // Another program between the two, each with its own encryption.
            ((Secrets::default(), key, other), side(key, "")),
        ] {
            refuses(asking, hearing).await;
        }
    }

    async fn refuses(asking: Side, hearing: Side) {
        let (asked, heard) = talk(asking, hearing, &relay()).await;
        assert!(matches!(asked, Err(PeerError::Stranger)), "{asked:?}");
        // The node that connected went away without a wish.
        assert!(matches!(heard, Err(PeerError::Io(_))), "{heard:?}");
    }

    #[tokio::test]
    async fn a_secret_is_changed_node_by_node() {
        let key = Key::random();
        let (first, then) = (format!("{OLD}\n{NEW}"), format!("{NEW}\n{OLD}"));
        for (one, other) in [(OLD, &*first), (&*first, &*then), (&*then, NEW)] {
            for (asking, hearing) in [(one, other), (other, one)] {
                let (asked, heard) = talk(side(key, asking), side(key, hearing), &relay()).await;
                asked.unwrap();
                assert_eq!(heard.unwrap(), relay());
            }
        }
    }

    /// The proofs of one conversation are of no use in another.
    #[tokio::test]
    async fn a_recorded_conversation_cannot_be_had_again() {
        let (secrets, key) = (Secrets::read(OLD).unwrap(), Key::random());
        let (mut one, mut way) = duplex(1024);
        let (mut back, mut other) = duplex(1024);
        let recording = async {
            let (mut asked, mut answered) = ([0; GREETING.len() + 32], [0; 64]);
            way.read_exact(&mut asked).await.unwrap();
            back.write_all(&asked).await.unwrap();
            back.read_exact(&mut answered).await.unwrap();
            way.write_all(&answered).await.unwrap();
            let mut rest = vec![0; PROOF_BYTES + 2 + "access".len()];
            way.read_exact(&mut rest).await.unwrap();
            back.write_all(&rest).await.unwrap();
            way.write_all(&[1]).await.unwrap();
            (asked, rest)
        };
        let (asked, heard, (first, rest)) = tokio::join!(
            ask(&mut one, (&secrets, &key), &Binding::NONE, &Wish::Access),
            hear(&mut other, (&secrets, &key), &Binding::NONE),
            recording
        );
        asked.unwrap();
        assert_eq!(heard.unwrap(), Wish::Access);

        let (mut replaying, mut hearing) = duplex(1024);
        let (heard, ()) = tokio::join!(hear(&mut hearing, (&secrets, &key), &Binding::NONE), async {
            replaying.write_all(&first).await.unwrap();
            replaying.read_exact(&mut [0; 64]).await.unwrap();
            replaying.write_all(&rest).await.unwrap();
        });
        assert!(matches!(heard, Err(PeerError::Stranger)), "{heard:?}");
    }

    /// Sends bytes to a node, behind the greeting and its answer.
    async fn hears(first: &[u8], then: &[u8]) -> Result<Wish, PeerError> {
        let (mut one, mut other) = duplex(1024);
        let key = Key::random();
        let secrets = Secrets::default();
        let (heard, ()) = tokio::join!(hear(&mut other, (&secrets, &key), &Binding::NONE), async {
            one.write_all(first).await.unwrap();
            let mut answer = [0; 64];
            if one.read_exact(&mut answer).await.is_ok() {
                one.write_all(then).await.unwrap();
            }
            drop(one);
        });
        heard
    }

    #[tokio::test]
    async fn bytes_of_a_stranger_are_refused() {
        let greeting = [GREETING.as_slice(), &[0; 32]].concat();
        let long = [[0; 32].as_slice(), &[0xff, 0xff]].concat();
        assert!(matches!(hears(&greeting, &long).await, Err(PeerError::Malformed)));
        let wrong = [[0; 32].as_slice(), &[0, 7], b"watch 1"].concat();
        assert!(matches!(hears(&greeting, &wrong).await, Err(PeerError::Stranger)));
        assert!(matches!(hears(&greeting, b"short").await, Err(PeerError::Io(_))));
    }

    #[tokio::test]
    async fn another_protocol_is_refused_at_its_first_bytes() {
        let (mut one, mut other) = duplex(1024);
        one.write_all(b"GET /health HTTP/1.1\r\n").await.unwrap();
        let (secrets, key) = (Secrets::default(), Key::random());
        let heard = hear(&mut other, (&secrets, &key), &Binding::NONE).await;
        assert!(matches!(heard, Err(PeerError::Stranger)), "{heard:?}");
    }

    #[test]
    fn malformed_wishes_are_none() {
        for text in [
            "",
            "relay",
            "relay a",
            "relay a b",
            "watch",
            "watch x",
            "watch 1 x",
            "watch 1 2 3",
            "relay a 127.0.0.1:1 x",
            "move",
            "move 1 x",
            "access 1",
            "other 1",
        ] {
            assert_eq!(Wish::read(text), None, "{text}");
        }
        assert_eq!(Wish::read(&relay().write()), Some(relay()));
        assert_eq!(relay().write(), "relay one [2001:db8::1]:4");
        let Wish::Relay { listener, client, .. } = relay() else {
            return;
        };
        let other = Wish::Relay {
            listener,
            client,
            cell: 3,
        };
        assert_eq!(Wish::read(&other.write()), Some(other));
    }
}
