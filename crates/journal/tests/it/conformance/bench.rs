//! The providers, and how each is restarted.

use std::fmt;
use std::future::Future;

use stafett_journal::{DiskJournal, Journal, MemoryJournal, Metrics, Settings};
use stafett_model::LogId;
use tempfile::TempDir;

/// A journal with the means to restart it.
pub struct Bench {
    journal: Option<Started>,
    home: Option<(TempDir, Settings)>,
}

enum Started {
    Memory(MemoryJournal),
    Disk(DiskJournal),
}

impl Bench {
    pub fn memory() -> Self {
        Self {
            journal: Some(Started::Memory(MemoryJournal::new())),
            home: None,
        }
    }

    pub fn disk() -> Self {
        Self::on_disk(Settings {
            segment_bytes: 4 << 20,
            ..Settings::default()
        })
    }

    pub fn disk_with_small_segments() -> Self {
        let settings = Settings {
            segment_bytes: 64 << 10,
            tail_cache_bytes: 32 << 10,
            checkpoint_bytes: 256 << 10,
            ..Settings::default()
        };
        Self::on_disk(settings)
    }

    fn on_disk(settings: Settings) -> Self {
        let settings = Settings {
            disk_free_bytes_min: 0,
            ..settings
        };
        let mut bench = Self {
            journal: None,
            home: Some((TempDir::new().unwrap(), settings)),
        };
        bench.reopen();
        bench
    }

    pub fn journal(&self) -> &dyn Journal {
        match self.journal.as_ref().expect("it is open") {
            Started::Memory(journal) => journal,
            Started::Disk(journal) => journal,
        }
    }

    /// Returns the size of the largest batch that fits.
    pub fn batch_bytes_max(&self) -> usize {
        self.home
            .as_ref()
            .map_or(4 << 20, |(_, settings)| settings.segment_bytes as usize)
            - (16 << 10)
    }

    /// Restarts the journal cleanly.
    pub fn reopen(&mut self) {
        if let Some(Started::Memory(journal)) = &self.journal {
            self.journal = Some(Started::Memory(journal.reopen()));
            return;
        }
        self.journal = None;
        let (home, settings) = self.home.as_ref().unwrap();
        let journal = DiskJournal::open(home.path(), settings.clone(), Metrics::new()).unwrap();
        self.journal = Some(Started::Disk(journal));
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
