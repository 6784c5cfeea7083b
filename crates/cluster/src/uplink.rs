//! The owner's way into the database: commits of segments in the order of writing, and publications of files.
//!
//! A commit takes everything that was written to any segment so far. So the rows are in the order of writing,
//! whichever file a sync was called for, and a new owner finds a prefix of that.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use stafett_model::{Lock, WakeUp};

use crate::database::{Database, DatabaseError, Link, Publication, Row, nonce};
use crate::file::{PUBLISHED_BYTES_MAX, SharedFile};
use crate::ownership::Claim;

/// Most names that are removed at a time.
const REMOVED_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct Uplink {
    pub(crate) database: Arc<dyn Database>,
    epoch: u64,
    /// The owner's last row. Held during a commit.
    last: Lock<Link>,
    /// Segments with bytes that are not committed, in the order of writing.
    waiting: Lock<Vec<Arc<SharedFile>>>,
    /// Held during a publication.
    publishing: Lock<()>,
    failure: OnceLock<String>,
    /// Pause before another attempt, which a failure ends.
    pause: Duration,
    pausing: Lock<()>,
    wake: WakeUp,
}

impl Uplink {
    pub(crate) fn new(database: Arc<dyn Database>, claim: Claim, pause: Duration) -> Self {
        Self {
            database,
            epoch: claim.epoch,
            last: Lock::new(claim.fence),
            waiting: Lock::default(),
            publishing: Lock::default(),
            failure: OnceLock::new(),
            pause,
            pausing: Lock::default(),
            wake: WakeUp::default(),
        }
    }

    /// Returns an error after a failure.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.failure.get() {
            Some(reason) => Err(io::Error::other(reason.clone())),
            None => Ok(()),
        }
    }

    /// Ends all use of the database; the first reason counts.
    pub(crate) fn fail(&self, reason: String) -> io::Error {
        let error = io::Error::other(reason.clone());
        if self.failure.set(reason).is_ok() {
            // Files refer to this.
            self.waiting.lock().clear();
            drop(self.pausing.lock());
            self.wake.notify_all();
        }
        error
    }

    /// Adds a segment with new bytes.
    pub(crate) fn wait_for(&self, file: Arc<SharedFile>) {
        self.waiting.lock().push(file);
    }

    /// Commits everything that was written to segments.
    pub(crate) fn commit(&self) -> io::Result<()> {
        let mut last = self.last.lock();
        self.check()?;
        let files = std::mem::take(&mut *self.waiting.lock());
        for file in files {
            file.begin_commit();
            // A segment that cannot be read back would leave a hole among the rows.
            let uncommitted = || file.uncommitted().map_err(|error| self.fail(error.to_string()));
            while let Some((name, at, body)) = uncommitted()? {
                let link = Link {
                    seq: last.seq + 1,
                    nonce: nonce(),
                };
                self.commit_row(&Row {
                    epoch: self.epoch,
                    link,
                    previous: last.nonce,
                    name: Some(&name),
                    at,
                    body: &body,
                })?;
                *last = link;
                file.on_committed(at + body.len() as u64);
            }
        }
        Ok(())
    }

    fn commit_row(&self, row: &Row<'_>) -> io::Result<()> {
        // After a lost answer, the row at the place tells whether it was committed.
        let is_committed = self.until_answered(|| {
            Ok(self.database.commit(row)? || self.database.nonce_at(row.link.seq)? == Some(row.link.nonce))
        })?;
        if is_committed {
            return Ok(());
        }
        Err(self.fenced())
    }

    /// Publishes changes of files. The caller has the turn.
    pub(crate) fn publish(&self, files: &[Arc<SharedFile>]) -> io::Result<()> {
        let mut publication = Publication::default();
        let mut bytes = 0;
        for file in files {
            // Changes that were taken and not published are lost.
            let take = || file.take_change().map_err(|error| self.fail(error.to_string()));
            while let Some(change) = take()? {
                bytes += change.blocks.iter().map(|(_, block)| block.len()).sum::<usize>();
                publication.changed.push(change);
                if bytes >= PUBLISHED_BYTES_MAX {
                    self.send(&std::mem::take(&mut publication))?;
                    bytes = 0;
                }
            }
        }
        self.send(&publication)
    }

    /// Publishes removals, a few at a time: rows of a segment take a while. The caller has the turn.
    pub(crate) fn publish_removed(&self, removed: &[String]) -> io::Result<()> {
        for names in removed.chunks(REMOVED_MAX) {
            self.send(&Publication {
                removed: names.to_vec(),
                changed: Vec::new(),
            })?;
        }
        Ok(())
    }

    fn send(&self, publication: &Publication) -> io::Result<()> {
        let is_empty = publication.removed.is_empty() && publication.changed.is_empty();
        if is_empty || self.until_answered(|| self.database.publish(self.epoch, publication))? {
            return Ok(());
        }
        Err(self.fenced())
    }

    /// Runs `work` while no other publication is gathered or under way.
    pub(crate) fn in_turn<R>(&self, work: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        let _turn = self.publishing.lock();
        self.check()?;
        work()
    }

    /// Repeats a call until there is an answer, or a failure.
    pub(crate) fn until_answered<R>(&self, call: impl Fn() -> Result<R, DatabaseError>) -> io::Result<R> {
        let mut is_logged = false;
        loop {
            self.check()?;
            match call() {
                Ok(answer) => return Ok(answer),
                Err(error @ DatabaseError::Refused(_)) => return Err(self.fail(error.to_string())),
                Err(error @ DatabaseError::Unreachable(_)) => {
                    if !std::mem::replace(&mut is_logged, true) {
                        tracing::warn!(%error, "trying again");
                    }
                }
            }
            let pausing = self.pausing.lock();
            drop(
                self.wake
                    .wait_timeout_while(pausing, self.pause, |()| self.failure.get().is_none()),
            );
        }
    }

    fn fenced(&self) -> io::Error {
        self.fail("another node owns the cell".to_owned())
    }
}
