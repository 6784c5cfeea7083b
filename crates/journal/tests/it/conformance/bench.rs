//! The providers, and how each is restarted.

use std::fmt;
use std::future::Future;

use stafett_journal::{DiskJournal, Journal, MemoryJournal, Metrics, Settings};
use stafett_model::LogId;
use tempfile::TempDir;

/// Bytes of a segment that batches cannot have.
const HEADS_BYTES: usize = 16 << 10;

/// A journal with the means to restart it.
pub struct Bench {
    journal: Option<Started>,
    /// `None`: the journal is in memory.
    open: Option<Box<dyn Fn() -> DiskJournal>>,
    batch_bytes_max: usize,
}

enum Started {
    Memory(MemoryJournal),
    Disk(DiskJournal),
}

/// Settings with one segment for all that most tests write.
pub fn usual() -> Settings {
    Settings {
        segment_bytes: 4 << 20,
        disk_free_bytes_min: 0,
        ..Settings::default()
    }
}

/// Settings with segments that fill up all the time.
pub fn small_segments() -> Settings {
    Settings {
        segment_bytes: 64 << 10,
        tail_cache_bytes: 32 << 10,
        checkpoint_bytes: 256 << 10,
        ..usual()
    }
}

impl Bench {
    pub fn memory() -> Self {
        Self {
            journal: Some(Started::Memory(MemoryJournal::new())),
            open: None,
            batch_bytes_max: (4 << 20) - HEADS_BYTES,
        }
    }

    pub fn disk() -> Self {
        Self::on_disk(usual())
    }

    pub fn disk_with_small_segments() -> Self {
        Self::on_disk(small_segments())
    }

    fn on_disk(settings: Settings) -> Self {
        let home = TempDir::new().unwrap();
        let segment_bytes = settings.segment_bytes;
        Self::reopening(segment_bytes, move || {
            DiskJournal::open(home.path(), settings.clone(), Metrics::new()).unwrap()
        })
    }

    /// Takes a journal that `open` opens, again after each close.
    pub fn reopening(segment_bytes: u32, open: impl Fn() -> DiskJournal + 'static) -> Self {
        Self {
            journal: Some(Started::Disk(open())),
            open: Some(Box::new(open)),
            batch_bytes_max: segment_bytes as usize - HEADS_BYTES,
        }
    }

    pub fn journal(&self) -> &dyn Journal {
        match self.journal.as_ref().expect("it is open") {
            Started::Memory(journal) => journal,
            Started::Disk(journal) => journal,
        }
    }

    /// Returns the size of the largest batch that fits.
    pub fn batch_bytes_max(&self) -> usize {
        self.batch_bytes_max
    }

    /// Restarts the journal cleanly.
    pub fn reopen(&mut self) {
        if let Some(Started::Memory(journal)) = &self.journal {
            self.journal = Some(Started::Memory(journal.reopen()));
            return;
        }
        self.journal = None;
        self.journal = self.open.as_ref().map(|open| Started::Disk(open()));
    }

    /// Waits until a log is readable up to `end`: at `memory`, appends are acknowledged before that.
    pub fn wait_until_visible(&self, log: LogId, end: u64) {
        let watch = self.journal().watch();
        assert!(self.journal().watch_log(&watch, log, 0));
        while self.journal().bounds(log).unwrap().end.0 < end {
            block_on(watch.grown());
        }
    }
}

impl fmt::Debug for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.journal(), f)
    }
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}
