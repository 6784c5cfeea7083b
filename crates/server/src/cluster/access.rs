//! Users and rights over cells: the owner of the first cell keeps them, and owners of others have a copy.
//!
//! ```text
//! for each change: u64 epoch of the first cell | u64 generation | u64 bytes | copy
//! ```
//!
//! Integers are big-endian. A copy is whole: changes are few, and gather for a moment. It comes over a
//! connection that is encrypted and proven (`link.rs`), and is refused if it is older than the last one, or
//! of a former owner.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use stafett_amqp::AccessVersion;
use stafett_broker::Broker;
use stafett_cluster::{Wish, answer};
use stafett_net::Stream;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::sleep;

use super::member::Member;

/// Time in which changes gather.
const GATHER: Duration = Duration::from_millis(50);
/// Pause before another attempt to reach the owner of the first cell.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of the largest copy: more than a million users, or as many rules.
const COPY_BYTES_MAX: u64 = 2 << 30;

/// Gives copies to the owner of another cell, as long as this node serves the first one.
pub(super) async fn give(stream: &mut Stream, member: &Member) -> io::Result<()> {
    let mut current = member.access.subscribe();
    let access = current.borrow_and_update().clone();
    answer(stream, access.is_some()).await?;
    let Some(access) = access else { return Ok(()) };
    let epoch = member.epoch();
    let mut changes = access.changes();
    loop {
        changes.mark_unchanged();
        let (generation, copy) = access.copy();
        let head = [epoch, generation, copy.len() as u64].map(u64::to_be_bytes);
        stream.write_all(&head.concat()).await?;
        stream.write_all(&copy).await?;
        stream.flush().await?;
        tokio::select! {
            _ = changes.changed() => {}
            _ = current.changed() => return Ok(()),
            _ = stream.read_u8() => return Ok(()),
        }
        sleep(GATHER).await;
    }
}

/// Keeps a broker's users and rights as those of the first cell; `versions` is told of each copy. Does not
/// return.
pub(crate) async fn follow(first: &Member, broker: &Arc<Broker>, versions: &watch::Sender<AccessVersion>) {
    let mut views = first.view.subscribe();
    loop {
        let view = Arc::clone(&views.borrow_and_update());
        if let Some(owner) = view.owner()
            && let Ok(mut link) = first.reach(owner, &Wish::Access).await
        {
            let incarnation = owner.facts.incarnation;
            tokio::select! {
                taken = take(&mut link.stream, view.epoch, broker, versions) => {
                    if let Err(why) = taken {
                        tracing::debug!(%why, "no more copies of users and rights from this node");
                    }
                }
                _ = views.wait_for(|now| now.owner != Some(incarnation)) => {}
            }
        }
        sleep(PAUSE).await;
    }
}

/// Takes copies of the owner of an epoch, or of a later one.
async fn take(
    stream: &mut (impl AsyncRead + Unpin),
    epoch: u64,
    broker: &Broker,
    versions: &watch::Sender<AccessVersion>,
) -> io::Result<()> {
    loop {
        let version = (stream.read_u64().await?, stream.read_u64().await?);
        let bytes = stream.read_u64().await?;
        if bytes > COPY_BYTES_MAX {
            return Err(io::Error::other("a copy of users and rights is too long"));
        }
        let mut copy = Vec::new();
        (&mut *stream).take(bytes).read_to_end(&mut copy).await?;
        if copy.len() as u64 != bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // A former owner may not know yet that it is none.
        if version.0 < epoch || version < *versions.borrow() {
            return Err(io::Error::other("these users and rights are older"));
        }
        broker.follow_access(&copy).map_err(io::Error::other)?;
        versions.send_replace(version);
    }
}
