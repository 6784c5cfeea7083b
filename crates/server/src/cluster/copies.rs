//! Users, rights, topics and settings of groups over cells: the owner of the first cell keeps them, and owners of others have a
//! copy.
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
use stafett_broker::{Broker, FirstCellFacts};
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

/// Version of a copy: epoch of the first cell, and generation there.
pub(crate) type Version = AccessVersion;

/// Part of the first cell that others copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Access,
    Topics,
    /// Settings of groups. An owner of an earlier version gives none.
    Groups,
}

impl Part {
    fn wish(self) -> Wish {
        match self {
            Self::Access => Wish::Access,
            Self::Topics => Wish::Topics,
            Self::Groups => Wish::Groups,
        }
    }

    fn changes(self, broker: &Broker) -> watch::Receiver<u64> {
        match self {
            Self::Access => broker.access().changes(),
            Self::Topics => broker.topics().watch_changes(),
            Self::Groups => broker.watch_group_settings(),
        }
    }

    fn copy(self, broker: &Broker) -> (u64, Vec<u8>) {
        match self {
            Self::Access => broker.access().copy(),
            Self::Topics => broker.copy_topics(),
            Self::Groups => broker.copy_group_settings(),
        }
    }
}

/// Gives copies to the owner of another cell, as long as this node serves the first one.
pub(super) async fn give(stream: &mut Stream, member: &Member, part: Part) -> io::Result<()> {
    let mut current = member.first_broker.subscribe();
    let broker = current.borrow_and_update().clone();
    answer(stream, broker.is_some()).await?;
    let Some(broker) = broker else { return Ok(()) };
    let epoch = member.epoch();
    let mut changes = part.changes(&broker);
    loop {
        changes.mark_unchanged();
        let (generation, copy) = part.copy(&broker);
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

/// A part of another cell that is kept as that of the first one.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) broker: Arc<Broker>,
    pub(crate) part: Part,
    /// Version of the last copy.
    pub(crate) version: watch::Sender<Version>,
    /// Facts of the first cell that come with its topics.
    pub(crate) facts: watch::Sender<FirstCellFacts>,
}

impl Follower {
    pub(crate) fn new(broker: &Arc<Broker>, part: Part) -> Self {
        Self {
            broker: Arc::clone(broker),
            part,
            version: watch::Sender::default(),
            facts: watch::Sender::default(),
        }
    }

    /// Waits for the first copy.
    pub(crate) async fn is_there(&self) {
        let is_known = |version: &Version| *version != Version::default();
        // This holds the sender.
        let _ = self.version.subscribe().wait_for(is_known).await;
    }

    async fn apply(&self, copy: &[u8]) -> io::Result<()> {
        match self.part {
            Part::Access => self.broker.follow_access(copy).map_err(io::Error::other),
            Part::Topics => {
                let facts = self.broker.follow_topics(copy).await;
                self.facts.send_replace(facts.map_err(io::Error::other)?);
                Ok(())
            }
            Part::Groups => self.broker.follow_group_settings(copy).map_err(io::Error::other),
        }
    }
}

/// Keeps a part of this cell as that of the first one. Does not return.
pub(crate) async fn follow(first: &Member, follower: &Follower) {
    let part = follower.part;
    let mut said = Said::default();
    let mut views = first.view.subscribe();
    loop {
        let view = Arc::clone(&views.borrow_and_update());
        if let Some(owner) = view.owner()
            && let Ok(mut link) = first.reach(owner, &part.wish()).await
        {
            let incarnation = owner.facts.incarnation;
            tokio::select! {
                taken = take(&mut link.stream, view.epoch, follower) => {
                    if let Err(why) = taken {
                        said.say(&why, part);
                    }
                }
                _ = views.wait_for(|now| now.owner != Some(incarnation)) => {}
            }
        }
        sleep(PAUSE).await;
    }
}

/// The last reason why there was no copy: each is told once.
#[derive(Debug, Default)]
struct Said(String);

impl Said {
    fn say(&mut self, why: &io::Error, part: Part) {
        let (is_end, why) = (why.kind() != io::ErrorKind::Other, why.to_string());
        // The end of a connection says nothing about this cell.
        if is_end || self.0 == why {
            tracing::debug!(%why, ?part, "no copy of the first cell");
        } else {
            tracing::warn!(%why, ?part, "no copy of the first cell: this cell serves with the last one, if there is one");
            self.0 = why;
        }
    }
}

/// Takes copies of the owner of an epoch, or of a later one.
async fn take(stream: &mut (impl AsyncRead + Unpin), epoch: u64, follower: &Follower) -> io::Result<()> {
    loop {
        let version = (stream.read_u64().await?, stream.read_u64().await?);
        let bytes = stream.read_u64().await?;
        if bytes > COPY_BYTES_MAX {
            return Err(io::Error::other("a copy is too long"));
        }
        let mut copy = Vec::new();
        (&mut *stream).take(bytes).read_to_end(&mut copy).await?;
        if copy.len() as u64 != bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // A former owner may not know yet that it is none.
        if version.0 < epoch || version < *follower.version.borrow() {
            return Err(io::Error::other("this copy is older"));
        }
        follower.apply(&copy).await?;
        follower.version.send_replace(version);
    }
}
