//! Users, rights, topics and settings of groups over cells: the owner of the first cell keeps them, and
//! owners of others have a copy.
//!
//! ```text
//! for each change: u64 epoch of the first cell | u64 generation | u64 bytes | copy
//! back:            u8 1 for each copy of the topics, once the cell has it
//! ```
//!
//! Integers are big-endian. A copy is whole: changes are few, and gather for a moment. It comes over a
//! connection that is encrypted and proven (`link.rs`), and is refused if it is older than the last one, or
//! of a former owner.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use stafett_amqp::AccessVersion;
use stafett_broker::{Broker, FirstCellFacts};
use stafett_cluster::{Wish, answer};
use stafett_net::Stream;
use stafett_topics::TopicCopies;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::member::Member;

/// Least time between two copies, in which changes gather.
const GATHER: Duration = Duration::from_millis(50);
/// Longest time for which a change of topics waits for other cells.
const HAVE_MAX: Duration = Duration::from_secs(3);
/// Byte for a copy that a cell has.
const HAVE: u8 = 1;
/// Attempts to reach an owner, one of which is made as by an earlier version.
const ATTEMPTS: u32 = 10;
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
    /// `cell`: the one that asks. `None`: in the words of an earlier version.
    fn wish(self, cell: Option<u32>) -> Wish {
        match self {
            Self::Access => Wish::Access,
            Self::Topics => cell.map_or(Wish::Topics, |cell| Wish::TopicsOf { cell }),
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

/// Gives copies to the owner of another cell, as long as this node serves the first one. `cell`: the number
/// of one that says that it has them.
pub(super) async fn give(
    stream: &mut Stream,
    member: &Member,
    part: Part,
    cell: Option<u32>,
) -> io::Result<()> {
    let mut current = member.first_broker.subscribe();
    let broker = current.borrow_and_update().clone();
    answer(stream, broker.is_some()).await?;
    let Some(broker) = broker else { return Ok(()) };
    let epoch = member.epoch();
    let mut changes = part.changes(&broker);
    let mut given = VecDeque::new();
    loop {
        changes.mark_unchanged();
        let (generation, copy) = part.copy(&broker);
        let head = [epoch, generation, copy.len() as u64].map(u64::to_be_bytes);
        stream.write_all(&head.concat()).await?;
        stream.write_all(&copy).await?;
        stream.flush().await?;
        // Others never say that they have one.
        given.extend(cell.map(|_| (epoch, generation)));
        let (gathered, mut has_changed) = (Instant::now() + GATHER, false);
        loop {
            tokio::select! {
                _ = changes.changed(), if !has_changed => has_changed = true,
                () = sleep_until(gathered), if has_changed => break,
                _ = current.changed() => return Ok(()),
                said = stream.read_u8() => match (said, cell, given.pop_front()) {
                    (Ok(HAVE), Some(cell), Some(version)) => {
                        member.had.send_modify(|had| {
                            had.insert(cell, version);
                        });
                    }
                    _ => return Ok(()),
                }
            }
        }
    }
}

impl Member {
    /// Gives users, rights, topics and settings of groups to owners of other cells from now on.
    pub(crate) fn give_copies(self: &Arc<Self>, broker: &Arc<Broker>) {
        if self.cell_count() > 1 {
            broker.catalog().tell(Arc::new(OtherCopies(Arc::downgrade(self))));
        }
        self.first_broker.send_replace(Some(Arc::clone(broker)));
    }
}

/// The copies of the topics in cells behind the first one, as its owner knows them.
#[derive(Debug)]
struct OtherCopies(Weak<Member>);

impl TopicCopies for OtherCopies {
    fn have(&self, version: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let Some(member) = self.0.upgrade() else { return };
            // A cell that has no owner, or none that answers, has a copy before it serves again.
            let _ = timeout(HAVE_MAX, have(&member, (member.epoch(), version))).await;
        })
    }
}

/// Waits until all cells that have owners have a version of the topics.
async fn have(member: &Member, version: Version) {
    let (mut had, mut views) = (member.had.subscribe(), member.view.subscribe());
    loop {
        let view = Arc::clone(&views.borrow_and_update());
        let known = had.borrow_and_update().clone();
        let has = |cell| known.get(&cell).is_some_and(|known| *known >= version);
        if (1..member.cell_count()).all(|cell| has(cell) || view.of_cell(cell).owner().is_none()) {
            return;
        }
        let ended = tokio::select! {
            changed = had.changed() => changed,
            changed = views.changed() => changed,
        };
        if ended.is_err() {
            return;
        }
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
    let own = follower.broker.catalog().cells().own;
    let mut attempts = 0;
    loop {
        let view = Arc::clone(&views.borrow_and_update());
        attempts += 1;
        let cell = (attempts % ATTEMPTS != 0).then_some(own);
        if let Some(owner) = view.owner()
            && let Ok(mut link) = first.reach(owner, &part.wish(cell)).await
        {
            attempts = 0;
            let incarnation = owner.facts.incarnation;
            let says = cell.is_some() && part == Part::Topics;
            tokio::select! {
                taken = take(&mut link.stream, view.epoch, follower, says) => {
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

/// Takes copies of the owner of an epoch, or of a later one. `says`: it is told of those that are taken.
async fn take(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    epoch: u64,
    follower: &Follower,
    says: bool,
) -> io::Result<()> {
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
        if says {
            stream.write_u8(HAVE).await?;
            stream.flush().await?;
        }
    }
}
