//! This node's connection to the owner. It says at once when the owner lets go of the cell, and when its
//! process ends: so there is no need to wait for the lease then, which is for machines and networks that
//! fail.
//!
//! The owner sends a byte five times per lease, so that a network that drops all packets is noticed.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use stafett_cluster::{Node, PEER, PeerError, Wish};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::time::error::Elapsed;
use tokio::time::{sleep, timeout};

use super::link::Link;
use super::member::Member;
use super::peers::{FREE, RESERVED};

/// Pause before another attempt to reach the owner.
const PAUSE: Duration = Duration::from_millis(500);
/// Attempts to find out whether a process has ended, their pause and their time.
const ATTEMPTS: u32 = 10;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(20);
const ATTEMPT_MAX: Duration = Duration::from_millis(500);

/// Watches whichever node owns the cell. Does not return.
pub(super) async fn run(member: Arc<Member>) {
    let mut owners = member.owner.subscribe();
    let mut is_said = false;
    // The owner that this node reached last, and its address.
    let mut reached = None;
    loop {
        let owner = match owners.wait_for(Option::is_some).await {
            Ok(owner) => owner.clone(),
            Err(_) => return,
        };
        let Some(owner) = owner else { continue };
        let wish = Wish::Watch {
            node: member.view().own,
            cell: member.cell,
        };
        match member.reach(&owner, &wish).await {
            Ok(link) => {
                is_said = false;
                reached = Some((owner.facts.incarnation, link.address));
                member.set_reaches_owner(true);
                let is_other = |now: &Option<Arc<Node>>| {
                    now.as_ref().map(|now| now.facts.incarnation) != Some(owner.facts.incarnation)
                };
                tokio::select! {
                    () = until_end(link, &owner, &member) => {}
                    _ = owners.wait_for(is_other) => {}
                }
                member.set_reaches_owner(false);
                member.look();
            }
            Err(why) => {
                if !std::mem::replace(&mut is_said, true) {
                    tracing::warn!(owner = %owner.facts.name, %why, "this node does not reach the owner: it relays nothing");
                }
                if let Some((incarnation, address)) = reached
                    && incarnation == owner.facts.incarnation
                    && has_ended(address, &owner, &member, 1).await
                {
                    on_ended(&owner, &member);
                }
            }
        }
        tokio::select! {
            () = sleep(PAUSE) => {}
            _ = owners.changed() => {}
        }
    }
}

/// Waits until the owner lets go of the cell, or its connection ends.
async fn until_end(mut link: Link, owner: &Node, member: &Member) {
    let on_reserved = || member.give_way(owner.facts.incarnation);
    match listen(&mut link.stream, member.lease, on_reserved).await {
        Heard::Free => member.on_free(),
        Heard::End => {
            if has_ended(link.address, owner, member, ATTEMPTS).await {
                on_ended(owner, member);
            }
        }
        Heard::Nothing => {
            tracing::warn!(owner = %owner.facts.name, "nothing comes from the owner: relayed connections are closed");
            member.on_silence();
        }
    }
}

/// Last word of the owner.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    /// The cell is free.
    Free,
    /// The connection has ended.
    End,
    /// Nothing for too long.
    Nothing,
}

/// Listens to the owner. `on_reserved` is called when it is about to let go of the cell for another node.
async fn listen(
    stream: &mut (impl AsyncRead + Unpin),
    silence_max: Duration,
    on_reserved: impl Fn(),
) -> Heard {
    loop {
        match timeout(silence_max, stream.read_u8()).await {
            Ok(Ok(FREE)) => return Heard::Free,
            Ok(Ok(RESERVED)) => on_reserved(),
            Ok(Ok(_)) => {}
            Ok(Err(_)) => return Heard::End,
            Err(_) => return Heard::Nothing,
        }
    }
}

fn on_ended(owner: &Node, member: &Member) {
    tracing::info!(owner = %owner.facts.name, "the owner's process has ended");
    member.on_ended(owner.facts.incarnation);
}

/// Returns true if the process at an address has ended: its machine says that nothing listens there, or
/// another program does. It did listen there, as it proved to know its key.
async fn has_ended(address: SocketAddr, owner: &Node, member: &Member, attempts: u32) -> bool {
    for _ in 0..attempts {
        match look(address, owner, member).await {
            Ok(Err(PeerError::Stranger)) => return true,
            Ok(Err(PeerError::Io(error))) if error.kind() == io::ErrorKind::ConnectionRefused => return true,
            Ok(Ok(()) | Err(PeerError::Refused)) => return false,
            // The process may be about to end.
            Ok(Err(PeerError::Io(_) | PeerError::Malformed)) | Err(_) => sleep(ATTEMPT_PAUSE).await,
        }
    }
    false
}

/// Returns true if the process of a node answers.
pub(super) async fn answers(node: &Node, member: &Member) -> bool {
    let Some(address) = node.facts.address(PEER) else {
        return false;
    };
    let looked = look(address, node, member).await;
    matches!(looked, Ok(Ok(()) | Err(PeerError::Refused)))
}

/// Asks for a look at a cell. A node that runs refuses it, unless it owns the cell.
async fn look(
    address: impl ToSocketAddrs,
    node: &Node,
    member: &Member,
) -> Result<Result<(), PeerError>, Elapsed> {
    let asked = async {
        let stream = TcpStream::connect(address).await?;
        let look = Wish::Watch {
            node: 0,
            cell: member.cell,
        };
        let asked = member.shared.trust.ask(stream, &node.facts.key, &look, true);
        asked.await.map(drop)
    };
    timeout(ATTEMPT_MAX, asked).await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::io::{AsyncWriteExt as _, duplex};

    use super::super::peers::HERE;
    use super::*;

    #[tokio::test]
    async fn an_owner_that_says_nothing_more_is_noticed() {
        let (mut watching, mut owner) = duplex(16);
        owner.write_all(&[HERE, HERE]).await.unwrap();
        let heard = timeout(
            Duration::from_secs(20),
            listen(&mut watching, Duration::from_millis(50), || {}),
        );
        assert_eq!(
            heard.await,
            Ok(Heard::Nothing),
            "its connection is open all the same"
        );
        drop(owner);
    }

    #[tokio::test]
    async fn a_free_cell_and_an_end_are_told_apart() {
        let (mut watching, mut owner) = duplex(16);
        owner.write_all(&[HERE, RESERVED, FREE]).await.unwrap();
        drop(owner);
        let (silence_max, reserved) = (Duration::from_secs(20), Cell::new(0));
        let on_reserved = || reserved.set(reserved.get() + 1);
        assert_eq!(listen(&mut watching, silence_max, on_reserved).await, Heard::Free);
        assert_eq!(listen(&mut watching, silence_max, on_reserved).await, Heard::End);
        assert_eq!(reserved.get(), 1, "the cell was for another node first");
    }
}
