//! Connections of other nodes: they bring clients that came there, or wait for this process to end.

use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::set_tcp_user_timeout;
use stafett_cluster::{PeerError, Wish, answer};
use stafett_net::{Handed, Stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::copies::{self, Part};
use super::member::{Member, Phase};
use super::strangers::{Stranger, Strangers};

/// Time for that.
const HEAR_MAX: Duration = Duration::from_secs(2);
/// Time for this node to open the journal while a client waits.
const OPENING_MAX: Duration = Duration::from_secs(5);
/// Pause after an error that is not of one connection.
const PAUSE: Duration = Duration::from_millis(100);
/// Lead of the node that is to have the cell.
const LEAD: Duration = Duration::from_millis(500);
/// Signs of life per lease.
const SIGNS: u32 = 5;

/// Bytes for a node that watches this one: it lives; the cell is free; another node has the first turn then.
pub(super) const HERE: u8 = 0;
pub(super) const FREE: u8 = 1;
pub(super) const RESERVED: u8 = 2;

/// Accepts other nodes. Does not return.
pub(super) async fn run(listener: TcpListener, member: Arc<Member>) {
    let strangers = Arc::new(Strangers::default());
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_ended) = tasks.join_next() => continue,
        };
        match accepted {
            Ok((stream, _)) => {
                tasks.spawn(serve(stream, Arc::clone(&member), strangers.enter()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept other nodes; waiting");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, member: Arc<Member>, stranger: Stranger) {
    let hearing = timeout(HEAR_MAX, member.shared.trust.hear(stream, member.key()));
    let Some(heard) = stranger.unless_crowded_out(hearing).await else {
        member.metrics.strangers.inc();
        return;
    };
    let (mut stream, wish) = match heard {
        Ok(Ok(heard)) => heard,
        Ok(Err(error @ (PeerError::Stranger | PeerError::Malformed))) => {
            member.metrics.strangers.inc();
            tracing::debug!(%error, "a connection to the address for other nodes is refused");
            return;
        }
        Ok(Err(PeerError::Io(_) | PeerError::Refused)) => return,
        Err(_) => {
            member.metrics.strangers.inc();
            return;
        }
    };
    let cell = match &wish {
        Wish::Relay { cell, .. } | Wish::Watch { cell, .. } | Wish::Move { cell, .. } => *cell,
        Wish::Access | Wish::Topics | Wish::TopicsOf { .. } | Wish::Groups => 0,
    };
    // A node that went away needs no answer.
    let Some(member) = member.of_cell(cell) else {
        let _ = answer(&mut stream, false).await;
        return;
    };
    let _ = match wish {
        Wish::Relay { listener, client, .. } => {
            let is_granted = serves(member).await && member.doors.is_open(&listener);
            let answered = answer(&mut stream, is_granted).await;
            if answered.is_ok() && is_granted {
                let handed = Handed {
                    needs_tls: matches!(stream, Stream::Plain(_)),
                    stream,
                    peer: client,
                    is_relayed: true,
                };
                member.doors.hand(&listener, handed).await;
            }
            answered
        }
        Wish::Watch { node, .. } => tell(&mut stream, member, node).await,
        Wish::Move { to, .. } => answer(&mut stream, member.move_cell(to).is_ok()).await,
        Wish::Access => copies::give(&mut stream, member, Part::Access, None).await,
        Wish::Topics => copies::give(&mut stream, member, Part::Topics, None).await,
        Wish::TopicsOf { cell } => copies::give(&mut stream, member, Part::Topics, Some(cell)).await,
        Wish::Groups => copies::give(&mut stream, member, Part::Groups, None).await,
    };
}

/// Waits for the end of an opening. Returns true if this node serves then.
async fn serves(member: &Member) -> bool {
    let mut phases = member.phase.subscribe();
    let opened = phases.wait_for(|phase| *phase != Phase::Opening);
    matches!(timeout(OPENING_MAX, opened).await, Ok(Ok(phase)) if *phase == Phase::Serving)
}

/// Tells a node that this one lives, and when the cell is free.
async fn tell(stream: &mut Stream, member: &Member, node: u32) -> std::io::Result<()> {
    let (mut let_go, mut reserved) = (member.let_go.subscribe(), member.reserved.subscribe());
    reserved.mark_changed();
    let owns = member.phase() != Phase::StandingBy;
    answer(stream, owns).await?;
    if !owns {
        return Ok(());
    }
    // The connection of a node that vanished ends.
    let silence_max = u32::try_from(member.lease.as_millis()).unwrap_or(u32::MAX);
    set_tcp_user_timeout(&*stream, silence_max)?;
    loop {
        tokio::select! {
            _ = let_go.changed() => {
                let order = *let_go.borrow();
                if order.to.is_some_and(|to| to != node) {
                    sleep(LEAD).await;
                }
                return say(stream, FREE).await;
            }
            _ = reserved.changed() => {
                let is_for_another = reserved.borrow_and_update().is_some_and(|to| to != node);
                if is_for_another {
                    say(stream, RESERVED).await?;
                }
            }
            _ = stream.read_u8() => return Ok(()),
            () = sleep(member.lease / SIGNS) => say(stream, HERE).await?,
        }
    }
}

async fn say(stream: &mut Stream, word: u8) -> std::io::Result<()> {
    stream.write_all(&[word]).await?;
    stream.flush().await
}
