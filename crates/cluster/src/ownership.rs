//! Who owns the cell: claims by candidates, and the lease that an owner keeps.
//!
//! A claim excludes the former owner by itself (`database.rs`). The lease only says when one is tried:
//! a candidate claims a cell without an owner, or one whose beat it has seen unchanged for the time of the
//! lease, counted while its own looks were answered. An owner whose beat was not answered for that time ends
//! by itself a quarter before, so that it does not answer clients beside its successor.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use stafett_model::{Lock, WakeUp};

use crate::belonging::check_store;
use crate::database::{Body, Database, DatabaseError, Link, Nonce, Owner, Row, nonce};
use crate::objects::Objects;
use crate::storage::SharedStorage;

/// A claim that excluded the former owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    pub epoch: u64,
    /// The fence behind the former owner's last row.
    pub fence: Link,
}

/// Finding of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    Claimed(Claim),
    /// Another node owns the cell.
    Owned,
}

/// A node that would own the cell.
#[derive(Debug)]
pub struct Candidate {
    database: Arc<dyn Database>,
    node: Nonce,
    lease: Duration,
    /// The owner as it was seen, and since when.
    seen: Option<(Owner, Duration)>,
    /// A node whose process has ended.
    ended: Option<Nonce>,
    /// The node's object store, which is compared with that of the cell before a claim.
    objects: Option<Arc<dyn Objects>>,
    has_store_checked: bool,
}

impl Candidate {
    /// `node` makes the node unmistakable; it does not outlive the process.
    pub fn new(database: Arc<dyn Database>, node: Nonce, lease: Duration) -> Self {
        Self {
            database,
            node,
            lease,
            seen: None,
            ended: None,
            objects: None,
            has_store_checked: false,
        }
    }

    /// Has each claim depend on the object store of the node.
    #[must_use]
    pub fn with_store(mut self, objects: Option<Arc<dyn Objects>>) -> Self {
        self.objects = objects;
        self.has_store_checked = true;
        self
    }

    /// Notes that the process of a node has ended: there is no need to wait for its lease. If it has not, a
    /// claim excludes it all the same.
    pub fn on_ended(&mut self, node: Nonce) {
        self.ended = Some(node);
    }

    /// Interval between looks.
    pub fn interval(&self) -> Duration {
        interval(self.lease)
    }

    /// Claims the cell if it is free. `clock` never goes back, such as [`uptime`].
    pub fn look(&mut self, clock: impl FnMut() -> Duration) -> Result<Look, DatabaseError> {
        let looked = self.look_by(clock);
        if looked.is_err() {
            // The owner may have been alive meanwhile.
            self.seen = None;
        }
        looked
    }

    fn look_by(&mut self, mut clock: impl FnMut() -> Duration) -> Result<Look, DatabaseError> {
        let began = clock();
        let owner = self.database.owner()?;
        let is_free = match (owner.node, self.seen) {
            (None, _) => true,
            // A former run of this process.
            (Some(node), _) if node == self.node || Some(node) == self.ended => true,
            (Some(_), Some((seen, since))) if seen == owner => began.saturating_sub(since) >= self.lease,
            (Some(_), _) => {
                // The time of an answer that was late does not count.
                self.seen = Some((owner, clock()));
                false
            }
        };
        if !is_free {
            return Ok(Look::Owned);
        }
        if self.has_store_checked {
            check_store(&*self.database, self.objects.as_ref())?;
        }
        if !self.database.claim(owner.epoch, self.node)? {
            return Ok(Look::Owned);
        }
        let epoch = owner.epoch + 1;
        Ok(Look::Claimed(Claim {
            epoch,
            fence: self.fence(epoch)?,
        }))
    }

    /// Commits a fence behind the newest row. Rows of the former owner that were on their way may be in
    /// front of it. This ends: it has one at a time, and none begins any more.
    fn fence(&self, epoch: u64) -> Result<Link, DatabaseError> {
        loop {
            let newest = self.database.newest()?;
            let link = Link {
                seq: newest.seq + 1,
                nonce: nonce(),
            };
            let is_in_place = self.database.commit(&Row {
                epoch,
                link,
                previous: newest.nonce,
                name: None,
                at: 0,
                body: Body::Inline(&[]),
            })?;
            if is_in_place {
                return Ok(link);
            }
            if self.database.owner()?.epoch != epoch {
                return Err(DatabaseError::Unreachable(
                    "another node claimed the cell".to_owned(),
                ));
            }
        }
    }
}

pub(crate) fn interval(lease: Duration) -> Duration {
    lease / 5
}

/// Pause before another beat after one without an answer.
fn short_pause(lease: Duration) -> Duration {
    lease / 20
}

/// The lease of an owner. A thread keeps it.
#[derive(Debug)]
pub struct Lease {
    state: Arc<LeaseState>,
    /// Storage whose keeping ends before the cell is let go.
    kept: Option<Arc<SharedStorage>>,
    thread: Option<JoinHandle<()>>,
}

struct LeaseState {
    database: Arc<dyn Database>,
    epoch: u64,
    lease: Duration,
    tenure: Arc<Tenure>,
    kept: Lock<Kept>,
    wake: WakeUp,
    on_loss: Box<dyn Fn(&str) + Send + Sync>,
}

#[derive(Debug, Default)]
struct Kept {
    has_ended: bool,
    loss: Option<String>,
}

impl std::fmt::Debug for LeaseState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaseState")
            .field("kept", &self.kept)
            .finish_non_exhaustive()
    }
}

impl Lease {
    /// Time for one beat.
    pub fn patience(lease: Duration) -> Duration {
        interval(lease)
    }

    /// Keeps the lease of a claim, and the tenure with it. `on_loss` is called once, with the reason, if the
    /// lease is lost.
    pub fn keep(
        database: Arc<dyn Database>,
        claim: Claim,
        (lease, tenure): (Duration, &Arc<Tenure>),
        on_loss: impl Fn(&str) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let state = Arc::new(LeaseState {
            database,
            epoch: claim.epoch,
            lease,
            tenure: Arc::clone(tenure),
            kept: Lock::default(),
            wake: WakeUp::default(),
            on_loss: Box::new(on_loss),
        });
        let shared = Arc::clone(&state);
        let answered = uptime()?;
        tenure.renew(answered, lease);
        let thread = std::thread::Builder::new()
            .name("cluster-beat".into())
            .spawn(move || shared.run(answered))?;
        Ok(Self {
            state,
            kept: None,
            thread: Some(thread),
        })
    }

    /// Returns the reason why the lease was lost.
    pub fn loss(&self) -> Option<String> {
        self.state.kept.lock().loss.clone()
    }

    /// Has the keeping of a storage end before the cell is let go.
    #[must_use]
    pub fn of(mut self, storage: Arc<SharedStorage>) -> Self {
        self.kept = Some(storage);
        self
    }

    /// Lets go of the cell, once nothing is written to it any more.
    pub fn release(mut self) {
        if let Some(storage) = self.kept.take() {
            storage.end_keeping();
        }
        self.end();
        if self.loss().is_none()
            && let Err(error) = self.state.database.release(self.state.epoch)
        {
            tracing::warn!(%error, "the next owner waits for the lease");
        }
    }

    fn end(&mut self) {
        self.state.tenure.end();
        self.state.kept.lock().has_ended = true;
        self.state.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.end();
    }
}

impl LeaseState {
    /// Beats until the end, or until the lease is lost. `answered` is its beginning.
    fn run(&self, mut answered: Duration) {
        let mut pause = interval(self.lease);
        while !self.pause(pause) {
            pause = match self.beat(&mut answered) {
                Ok(true) => interval(self.lease),
                Ok(false) => short_pause(self.lease),
                Err(loss) => {
                    self.tenure.end();
                    self.kept.lock().loss = Some(loss.clone());
                    (self.on_loss)(&loss);
                    return;
                }
            };
        }
    }

    /// Raises the beat. False if there was no answer and another attempt would still end in time; an error
    /// is the reason why the lease is lost.
    fn beat(&self, answered: &mut Duration) -> Result<bool, String> {
        let began = uptime().map_err(|error| error.to_string())?;
        match self.database.beat(self.epoch) {
            Ok(true) => {
                *answered = began;
                self.tenure.renew(began, self.lease);
                Ok(true)
            }
            Ok(false) => Err("another node owns the cell".to_owned()),
            Err(error @ DatabaseError::Refused(_)) => Err(error.to_string()),
            Err(error @ DatabaseError::Unreachable(_)) => {
                let now = uptime().map_err(|error| error.to_string())?;
                let next = now + short_pause(self.lease) + Lease::patience(self.lease);
                if next.saturating_sub(*answered) <= self.lease * 3 / 4 {
                    return Ok(false);
                }
                Err(format!("the lease cannot be kept: {error}"))
            }
        }
    }

    /// Waits until the next beat is due. True at the end.
    fn pause(&self, pause: Duration) -> bool {
        let kept = self.kept.lock();
        self.wake
            .wait_timeout_while(kept, pause, |kept| !kept.has_ended)
            .has_ended
    }
}

/// The time until which an owner may answer clients: no other node has claimed the cell before. Its process
/// may be stopped for any time between two beats, and does not know it.
#[derive(Debug, Default)]
pub struct Tenure {
    /// Milliseconds of [`uptime`].
    until: AtomicU64,
}

impl Tenure {
    /// Returns true if the cell has no other owner.
    pub fn holds(&self) -> bool {
        let until = Duration::from_millis(self.until.load(Ordering::Acquire));
        uptime().is_ok_and(|now| now < until)
    }

    /// Begins or goes on: the last beat that was answered began at `answered`.
    fn renew(&self, answered: Duration, lease: Duration) {
        // Clocks of two machines may differ a little in their rates, and the claim was before the first beat.
        let until = (answered + lease * 9 / 10).as_millis();
        self.until
            .store(u64::try_from(until).unwrap_or(u64::MAX), Ordering::Release);
    }

    fn end(&self) {
        self.until.store(0, Ordering::Release);
    }
}

/// Returns the time since the machine started, in which it may have been suspended.
pub fn uptime() -> io::Result<Duration> {
    let now = clock_gettime(ClockId::Boottime);
    let parts = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
    match parts {
        (Ok(seconds), Ok(nanoseconds)) => Ok(Duration::new(seconds, nanoseconds)),
        _ => Err(io::Error::other("the time since the machine started is unknown")),
    }
}
