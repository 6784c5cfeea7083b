//! A node of a test: a journal over the shared storage, opened after a claim.

use std::sync::Arc;
use std::time::Duration;

use stafett_cluster::fake::FakeDatabase;
use stafett_cluster::{Candidate, Claim, Database, Look, SharedStorage};
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

/// Opens the storage of a new node, with an empty disk of its own.
pub fn storage(database: &Arc<dyn Database>, claim: Claim) -> std::io::Result<SharedStorage> {
    let scratch = SimulatedDisk::new().storage();
    SharedStorage::open(Arc::clone(database), claim, scratch, Duration::ZERO)
}

/// Takes the cell over.
pub fn open(database: &Arc<dyn Database>, settings: &Settings) -> DiskJournal {
    let storage = storage(database, claim(database)).unwrap();
    DiskJournal::open_on(Arc::new(storage), settings.clone(), Metrics::new()).unwrap()
}

impl Bench {
    pub fn shared() -> Self {
        Self::over_fake(usual())
    }

    pub fn shared_with_small_segments() -> Self {
        Self::over_fake(small_segments())
    }

    fn over_fake(settings: Settings) -> Self {
        let database = FakeDatabase::default();
        Self::reopening(settings.segment_bytes, move || {
            let node: Arc<dyn Database> = database.node();
            open(&node, &settings)
        })
    }
}
