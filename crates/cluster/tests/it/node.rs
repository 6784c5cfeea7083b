//! A node of a test: a journal over the shared storage, opened after a claim.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use stafett_cluster::fake::FakeDatabase;
use stafett_cluster::{
    Candidate, Claim, Database, Look, Objects, Settings as StorageSettings, SharedStorage,
};
use stafett_journal::disk::storage::{Storage, StorageFile};
use stafett_journal::simulated::SimulatedDisk;
use stafett_journal::{DiskJournal, Metrics, Settings};

use crate::conformance::bench::{Bench, small_segments, usual};

/// Lease that is over at once: the owner does not beat.
pub const NO_LEASE: Duration = Duration::ZERO;

/// Claims the cell, whether or not it has an owner.
pub fn claim(database: &Arc<dyn Database>) -> Claim {
    let node = uuid::Uuid::new_v4().into_bytes();
    let mut candidate = Candidate::new(Arc::clone(database), node, NO_LEASE);
    for now in 0..10 {
        if let Ok(Look::Claimed(claim)) = candidate.look(|| Duration::from_secs(now)) {
            return claim;
        }
    }
    panic!("the cell cannot be claimed");
}

/// Settings without pauses.
pub fn quick() -> StorageSettings {
    StorageSettings {
        pause: Duration::ZERO,
        linger: Duration::ZERO,
        slow_put_after: Duration::MAX,
        inline_bytes_per_second: u64::MAX,
        ..StorageSettings::default()
    }
}

/// Settings with an object store for all that is larger than a bound, and next to no cache.
pub fn with_objects(objects: Arc<dyn Objects>, inline_bytes_max: usize) -> StorageSettings {
    StorageSettings {
        objects: Some(objects),
        inline_bytes_max,
        cache_bytes: 100 << 10,
        garbage_after: Duration::ZERO,
        ..quick()
    }
}

/// Opens the storage of a new node, with an empty disk of its own.
pub fn storage(database: &Arc<dyn Database>, claim: Claim) -> io::Result<SharedStorage> {
    storage_with(database, claim, quick())
}

pub fn storage_with(
    database: &Arc<dyn Database>,
    claim: Claim,
    settings: StorageSettings,
) -> io::Result<SharedStorage> {
    let scratch = SimulatedDisk::new().storage();
    SharedStorage::open(Arc::clone(database), claim, scratch, settings)
}

/// Takes the cell over.
pub fn open(database: &Arc<dyn Database>, settings: &Settings) -> DiskJournal {
    open_with(database, settings, quick())
}

/// Takes the cell over, and moves segments into the object store as soon as they are sealed.
pub fn open_with(
    database: &Arc<dyn Database>,
    settings: &Settings,
    storage_settings: StorageSettings,
) -> DiskJournal {
    let storage = storage_with(database, claim(database), storage_settings).unwrap();
    let storage = Arc::new(Kept(Arc::new(storage)));
    DiskJournal::open_on(storage, settings.clone(), Metrics::new()).unwrap()
}

/// A storage that does the work of its thread whenever names are synced.
#[derive(Debug)]
pub struct Kept(pub Arc<SharedStorage>);

impl Kept {
    fn keep(&self) -> io::Result<()> {
        self.0.seal()?;
        // What fails is left for the next time.
        let _ = self.0.delete_garbage();
        let _ = self.0.sweep();
        Ok(())
    }
}

impl Storage for Kept {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.0.create(name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.0.open(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.0.sync_names()?;
        self.keep()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes()
    }

    fn is_append_only(&self) -> bool {
        self.0.is_append_only()
    }

    fn may_recover(&self) -> bool {
        self.0.may_recover()
    }

    fn sync_threads(&self) -> usize {
        self.0.sync_threads()
    }

    fn syncs_max(&self) -> usize {
        self.0.syncs_max()
    }

    fn gather(&self) {
        self.0.gather();
    }
}

impl Bench {
    pub fn shared() -> Self {
        Self::over_fake(usual(), None)
    }

    pub fn shared_with_small_segments() -> Self {
        Self::over_fake(small_segments(), None)
    }

    pub fn shared_in_objects() -> Self {
        Self::over_fake(small_segments(), Some(0))
    }

    pub fn shared_with_some_objects() -> Self {
        Self::over_fake(small_segments(), Some(2 << 10))
    }

    fn over_fake(settings: Settings, inline_bytes_max: Option<usize>) -> Self {
        let database = FakeDatabase::default();
        Self::reopening(settings.segment_bytes, move || {
            let node = database.node();
            let storage = match inline_bytes_max {
                Some(bytes) => with_objects(Arc::<stafett_cluster::fake::FakeNode>::clone(&node), bytes),
                None => quick(),
            };
            let node: Arc<dyn Database> = node;
            open_with(&node, &settings, storage)
        })
    }
}
