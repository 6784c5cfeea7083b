//! The owner's way into the database and the object store: publications of files, and calls that are repeated
//! until there is an answer. Commits of segments are in `commits`, puts and gets of objects in `transfer`.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use stafett_journal::disk::storage::Storage;
use stafett_model::{Lock, WakeUp};

use crate::cache::Cache;
use crate::commits::{Budget, CommitQueue, Pace};
use crate::database::{Database, DatabaseError, Publication};
use crate::file::{Change, PUBLISHED_BYTES_MAX, SharedFile};
use crate::lost::LostObjects;
use crate::objects::Names;
use crate::ownership::Claim;
use crate::settings::Settings;
use crate::transfer::PutTimes;

/// Most names that are removed at a time.
const REMOVED_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct Uplink {
    pub(crate) database: Arc<dyn Database>,
    pub(crate) settings: Settings,
    pub(crate) epoch: u64,
    pub(crate) names: Arc<Names>,
    pub(crate) cache: Cache,
    /// Segments with bytes that wait for a commit, in the order of writing.
    pub(crate) waiting: Lock<Vec<Arc<SharedFile>>>,
    /// Bytes that wait for a commit.
    pub(crate) waiting_bytes: AtomicU64,
    pub(crate) queue: Lock<CommitQueue>,
    /// A commit ended, or may begin.
    pub(crate) turned: WakeUp,
    pub(crate) pace: Lock<Pace>,
    pub(crate) gathered: WakeUp,
    pub(crate) budget: Lock<Budget>,
    pub(crate) put_times: Lock<PutTimes>,
    pub(crate) lost: LostObjects,
    /// Held during a publication.
    publishing: Lock<()>,
    failure: OnceLock<String>,
    pausing: Lock<()>,
    wake: WakeUp,
}

impl Uplink {
    pub(crate) fn new(
        database: Arc<dyn Database>,
        claim: Claim,
        settings: Settings,
        scratch: Arc<dyn Storage>,
    ) -> Self {
        Self {
            database,
            epoch: claim.epoch,
            names: Arc::new(Names::new(claim)),
            cache: Cache::new(scratch, settings.cache_bytes),
            waiting: Lock::default(),
            waiting_bytes: AtomicU64::new(0),
            queue: Lock::new(CommitQueue::new(claim.fence)),
            turned: WakeUp::default(),
            pace: Lock::default(),
            gathered: WakeUp::default(),
            put_times: Lock::default(),
            lost: LostObjects::new(settings.metrics.lost_objects.clone()),
            budget: Lock::new(Budget::new(settings.inline_bytes_per_second)),
            publishing: Lock::default(),
            failure: OnceLock::new(),
            pausing: Lock::default(),
            wake: WakeUp::default(),
            settings,
        }
    }

    /// Returns an error after a failure.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.failure.get() {
            Some(reason) => Err(io::Error::other(reason.clone())),
            None => Ok(()),
        }
    }

    /// Ends all use of the database; the first reason counts. No lock of this is held.
    pub(crate) fn fail(&self, reason: String) -> io::Error {
        let error = io::Error::other(reason.clone());
        if self.failure.set(reason).is_ok() {
            // Files refer to this.
            self.waiting.lock().clear();
            self.queue.lock().clear();
            self.turned.notify_all();
            drop(self.pace.lock());
            self.gathered.notify_all();
            drop(self.pausing.lock());
            self.wake.notify_all();
        }
        error
    }

    /// Adds a segment with new bytes.
    pub(crate) fn wait_for(&self, file: Arc<SharedFile>) {
        self.waiting.lock().push(file);
    }

    /// Publishes changes of files. The caller has the turn.
    pub(crate) fn publish(&self, files: &[Arc<SharedFile>]) -> io::Result<()> {
        let mut publication = Publication::default();
        let mut bytes = 0;
        for file in files {
            // Changes that were taken and not published are lost.
            let take = || file.take_change().map_err(|error| self.fail(error.to_string()));
            while let Some(change) = take()? {
                match change {
                    Change::Blocks(change) => {
                        bytes += change.blocks.iter().map(|(_, block)| block.len()).sum::<usize>();
                        publication.changed.push(change);
                    }
                    Change::Whole(whole) => {
                        // Changes that were gathered before are in front.
                        self.send(&std::mem::take(&mut publication))?;
                        bytes = 0;
                        self.publish_parts(file, &whole)?;
                    }
                }
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

    pub(crate) fn send(&self, publication: &Publication) -> io::Result<()> {
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
            self.wait_a_moment();
        }
    }

    /// Waits before another attempt; a failure ends that.
    pub(crate) fn wait_a_moment(&self) {
        let pausing = self.pausing.lock();
        drop(
            self.wake
                .wait_timeout_while(pausing, self.settings.pause, |()| self.failure.get().is_none()),
        );
    }

    pub(crate) fn fenced(&self) -> io::Error {
        self.fail("another node owns the cell".to_owned())
    }
}
