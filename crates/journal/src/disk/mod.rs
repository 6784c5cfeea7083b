//! The journal on local disk.
//!
//! ```text
//! append ── stage ── queue ── writer ──┬── tail cache ──┐
//!          (under the                  │                ├── read
//!          logs' locks)             segment ─ sidecar ──┘
//!                                      │
//!                                    syncer ── waiting appends
//! ```
//!
//! - [`storage`], `os_storage`: interface to the operating system
//! - `segment`, `group`, `frame`, `chunk`, `control`: the formats, from the outside in; `sidecar`,
//!   `checkpoint`: the indexes
//! - `prepare`, `stage`, `control_append`, `write_queue`, `overtake`, `writer`, `syncer`: writing;
//!   `inline_write`: writing on the staging thread
//! - `log`, `producers`, `transactions`, `tail_cache`, `read`, `find_time`: reading
//! - `housekeeping`, `pool`, `retention`, `dates`, `running`: housekeeping
//! - `scan`, `index`, `salvage`, `recovery`, `state`: recovery
//! - `scrub`, `status`, `backup`, `fsck`: looking after it

pub mod backup;
mod checkpoint;
mod chunk;
pub(crate) mod codec;
mod control;
mod control_append;
mod dates;
mod engine;
mod find_time;
mod frame;
pub mod fsck;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod group;
mod housekeeping;
mod index;
mod inline_write;
mod layout;
mod log;
mod open_files;
mod os_storage;
mod overtake;
mod partial_batch;
mod pool;
mod position;
mod prepare;
pub(crate) mod producers;
mod read;
mod read_buffers;
mod recovery;
mod retention;
mod rewrite;
pub(crate) mod running;
mod salvage;
mod scan;
mod scrub;
mod segment;
pub mod settings;
mod sidecar;
mod stage;
mod start;
mod state;
mod status;
pub mod storage;
mod syncer;
mod tail_cache;
#[cfg(test)]
mod tests;
pub(crate) mod transactions;
mod write_queue;
mod writer;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use stafett_model::{Epoch, Lock, LogId};

use self::engine::Engine;
use self::os_storage::Directory;
use self::recovery::recover;
use self::storage::Storage;
use crate::contract::{
    Append, Bounds, Journal, OpenTransaction, OwnerEpoch, ProducerStatus, ReadRequest, RequestId, StateItem,
    StateSpace, StateUnreadable, TimeQuery,
};
use crate::disk_space::DiskSpace;
use crate::metrics::Metrics;
use crate::ticket::{ReadTicket, Ticket, TimeTicket};
use crate::watch::Watch;

pub use self::backup::{BackupError, BackupReport, BackupTarget};
pub use self::os_storage::{OpenDirectoryError, open_directory};
pub use self::recovery::{OpenError, RecoveryReport};
pub use self::rewrite::{CompactionSettings, RewritePolicy};
pub use self::scrub::ScrubReport;
pub use self::settings::{Clock, Settings};
use self::start::{Job, start};
pub use self::status::{JournalStatus, SegmentStatus};

/// A journal in a directory.
#[derive(Debug)]
pub struct DiskJournal {
    core: Arc<Engine>,
    threads: Lock<Vec<JoinHandle<()>>>,
    /// Its directory; `None` on other storage.
    path: Option<PathBuf>,
    report: RecoveryReport,
}

impl DiskJournal {
    /// Opens the journal in a directory of the operating system, which is created if missing.
    pub fn open(path: &Path, settings: Settings, metrics: Metrics) -> Result<Self, OpenError> {
        let storage: Arc<dyn Storage> = Arc::new(Directory::open(path)?);
        let mut journal = Self::open_on(storage, settings, metrics)?;
        journal.path = Some(path.to_owned());
        Ok(journal)
    }

    /// Opens the journal on any storage.
    pub fn open_on(
        storage: Arc<dyn Storage>,
        settings: Settings,
        metrics: Metrics,
    ) -> Result<Self, OpenError> {
        let recovered = recover(&storage, &settings)?;
        let report = recovered.report.clone();
        let count = |count| i64::try_from(count).unwrap_or(i64::MAX);
        metrics
            .missing_segments
            .set(count(report.missing_segments.len() + report.set_aside.len()));
        metrics.unknown_logs.set(count(report.unknown_logs.len()));
        let core = Arc::new(start(storage, settings, metrics, recovered)?);
        let threads = if core.settings.threads {
            spawn(&core)?
        } else {
            Vec::new()
        };
        // Everything replayed is in the checkpoint before it is read, or in memory until one can be stored.
        if let Err(error) = housekeeping::checkpoint(&core) {
            tracing::error!(%error, "no checkpoint can be stored yet");
        }
        state::load_requests(&core)?;
        state::load_compactions(&core)?;
        tracing::info!(
            clean = report.clean,
            segments = report.segments,
            scanned = report.scanned_segments,
            replayed = report.replayed_frames,
            logs = report.logs,
            epoch = core.epoch.0,
            "the journal is open"
        );
        Ok(Self {
            core,
            threads: Lock::new(threads),
            path: None,
            report,
        })
    }

    /// Returns the findings of recovery.
    pub fn report(&self) -> &RecoveryReport {
        &self.report
    }

    /// Does the work of the threads if there are none: writes and syncs staged appends and does the
    /// housekeeping.
    pub fn pump(&self) {
        while writer::pump(&self.core) {}
        syncer::pump(&self.core);
        housekeeping::pump(&self.core);
        writer::write_idle_mark(&self.core);
    }

    /// Stores a checkpoint.
    pub fn checkpoint(&self) {
        housekeeping::try_checkpoint(&self.core);
    }

    /// Rewrites until there is nothing to do, where no thread does it; returns the number of steps.
    ///
    /// # Panics
    ///
    /// After 10,000 steps: rewriting without new appends has to end.
    pub fn rewrite(&self) -> usize {
        self.rewrite_with(&mut rewrite::Rewriter::default())
    }

    /// As [`Self::rewrite`], again and again with one memory of failures, as a thread does it.
    #[cfg(any(test, feature = "testing"))]
    pub fn rewriter(&self) -> impl FnMut() -> usize + '_ {
        let mut rewriter = rewrite::Rewriter::default();
        move || self.rewrite_with(&mut rewriter)
    }

    fn rewrite_with(&self, rewriter: &mut rewrite::Rewriter) -> usize {
        let mut steps = 0;
        while rewriter.step(&self.core) {
            steps += 1;
            assert!(steps < 10_000, "rewriting does not end");
        }
        steps
    }

    /// Makes a backup of the running journal into a new directory on the same file system.
    pub fn backup(&self, target: &Path) -> Result<BackupReport, BackupError> {
        match &self.path {
            Some(source) => backup::backup(&self.core, source, target),
            None => Err(BackupError::Journal("it is not in a directory".into())),
        }
    }

    /// Makes a backup of the running journal into an empty directory, which is incomplete if this fails.
    pub fn backup_into(&self, target: &dyn BackupTarget) -> Result<BackupReport, BackupError> {
        backup::backup_into(&self.core, target)
    }

    /// Returns figures of the running journal.
    pub fn status(&self) -> JournalStatus {
        status::status(&self.core)
    }

    /// Reads the headers of all segments.
    pub fn segments(&self) -> std::io::Result<Vec<SegmentStatus>> {
        status::segments(&self.core)
    }

    /// Reads every sealed segment; returns the number of damaged ones, which are named in the log.
    pub fn scrub(&self) -> usize {
        self.scrub_each(|_, _| ControlFlow::Continue(())).damaged
    }

    /// Reads sealed segments. Before each, `step` is called with the numbers of those read and of all, and
    /// may end this.
    pub fn scrub_each(&self, step: impl FnMut(usize, usize) -> ControlFlow<()>) -> ScrubReport {
        scrub::scrub_each(&self.core, step)
    }

    /// Enforces retention.
    pub fn enforce_retention(&self) {
        retention::enforce(&self.core);
    }
}

/// Starts the threads.
fn spawn(core: &Arc<Engine>) -> Result<Vec<JoinHandle<()>>, OpenError> {
    let syncers = std::iter::repeat_n::<Job>(("journal-sync", syncer::run), core.storage.sync_threads());
    let first: [Job; 1] = [("journal-write", writer::run)];
    let last: [Job; 2] = [
        ("journal-keep", housekeeping::run),
        ("journal-rewrite", rewrite::run),
    ];
    let jobs = first.into_iter().chain(syncers).chain(last);
    jobs.map(|(name, job)| {
        let core = Arc::clone(core);
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                // A panic is a bug: the journal fails, so that waiting callers are released and no more
                // appends are accepted.
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(&core)));
                if done.is_err() {
                    core.fail(format!("the thread {name} panicked"));
                }
            })
            .map_err(OpenError::Io)
    })
    .collect()
}

impl Journal for DiskJournal {
    fn epoch(&self) -> Epoch {
        self.core.epoch
    }

    fn allocate(&self, count: u32) -> LogId {
        self.core.allocate(count)
    }

    fn append(&self, appends: Vec<Append>) -> Ticket {
        stage::append(&self.core, appends)
    }

    fn knows(&self, request: RequestId) -> bool {
        self.core.requests.lock().contains(request)
    }

    fn batch_bytes(&self) -> usize {
        // Half of a segment leaves space for heads and for the next batch.
        codec::usize_of(self.core.settings.segment_bytes / 2)
    }

    fn bounds(&self, log: LogId) -> Option<Bounds> {
        Some(self.core.logs.get(log)?.lock().bounds())
    }

    fn filled(&self) -> Vec<(LogId, Bounds)> {
        let logs = self.core.logs.all().into_iter();
        let bounds = logs.map(|log| (log.id, log.lock().bounds()));
        bounds.filter(|(_, bounds)| bounds.has_any()).collect()
    }

    fn owner(&self, log: LogId) -> Option<OwnerEpoch> {
        Some(self.core.logs.get(log)?.lock().owner)
    }

    fn producers(&self, log: LogId) -> Option<Vec<ProducerStatus>> {
        let log = self.core.logs.get(log)?;
        let state = log.lock();
        Some(
            state
                .producers
                .as_ref()
                .map_or_else(Vec::new, |producers| producers.seen()),
        )
    }

    fn open_transactions(&self) -> Vec<OpenTransaction> {
        let mut found = Vec::new();
        for log in self.core.logs.all() {
            let state = log.lock();
            if let Some(producers) = &state.producers {
                found.extend(producers.open_transactions(log.id));
            }
        }
        found.sort_unstable_by_key(|open: &OpenTransaction| open.log);
        found
    }

    fn read(&self, request: ReadRequest) -> ReadTicket {
        read::read(&self.core, &request)
    }

    fn find_time(&self, log: LogId, query: TimeQuery) -> TimeTicket {
        find_time::find_time(&self.core, log, query)
    }

    fn watch_log(&self, watch: &Watch, log: LogId, token: u32) -> bool {
        let Some(log) = self.core.logs.get(log) else {
            return false;
        };
        let mut state = log.lock();
        if state.deleted {
            return false;
        }
        state.watchers.add(watch.watcher(token));
        true
    }

    fn space(&self) -> DiskSpace {
        self.core.pool.shortage()
    }

    fn load_state(
        &self,
        space: StateSpace,
        visit: &mut dyn FnMut(StateItem<'_>),
    ) -> Result<(), StateUnreadable> {
        state::load(&self.core, space, visit)
    }

    fn failure(&self) -> Option<String> {
        self.core.failure.get().cloned()
    }

    fn close(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        // A failed journal has closed its queue; its threads are joined all the same.
        let is_first = !self.core.queue.is_closed();
        if is_first {
            housekeeping::end_run(&self.core);
        }
        self.core.queue.close();
        self.core.rewriting.close();
        // A panicked thread has failed the journal; the outcome of its unfinished appends stays unknown.
        let mut threads = threads.into_iter();
        // The writer and the syncers.
        for thread in threads.by_ref().take(1 + self.core.storage.sync_threads()) {
            let _ = thread.join();
        }
        self.core.housekeeping.close();
        for thread in threads {
            let _ = thread.join();
        }
        if is_first && !self.core.has_failed() {
            while writer::pump(&self.core) {}
            syncer::pump(&self.core);
            if self.core.has_begun() {
                writer::write_last_mark(&self.core);
                syncer::pump(&self.core);
            }
            self.core.drained.store(true, Ordering::Release);
            housekeeping::pump(&self.core);
            housekeeping::try_checkpoint(&self.core);
        }
    }
}

impl Drop for DiskJournal {
    fn drop(&mut self) {
        self.close();
    }
}
