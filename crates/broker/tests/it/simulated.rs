//! A broker on a disk that loses its power on request, in time that advances only while all tasks wait.

use std::sync::Arc;
use std::time::Duration;

use stafett_broker::{Broker, BrokerSettings};
use stafett_journal::simulated::{Effect, Fault, SimulatedDisk};
use stafett_journal::{DiskJournal, Journal, Metrics, Settings};

/// Limit of a run: a longer one hangs, as the disk is gone.
const PATIENCE: Duration = Duration::from_mins(3);
/// Number of initial steps of 1 ms at which the journal is driven; later steps are 50 ms.
const FINE_STEPS: u32 = 2_000;

fn settings(boots: u8) -> Settings {
    Settings {
        segment_bytes: 64 << 10,
        tail_cache_bytes: 4 << 10,
        disk_free_bytes_min: 0,
        boot: [boots; 16],
        threads: false,
        ..Settings::default()
    }
}

/// Creates a disk that loses its power at the change of this number.
pub(crate) fn losing_power_at(change: u64) -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    disk.set_fault(Some(Fault {
        change,
        effect: Effect::PowerLoss,
    }));
    disk
}

/// Runs on a disk until the work is done or nothing proceeds.
pub(crate) fn on_disk<T>(
    disk: &SimulatedDisk,
    boots: u8,
    work: impl AsyncFnOnce(&Arc<Broker>, &DiskJournal) -> T,
) -> Option<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let journal = DiskJournal::open_on(disk.storage(), settings(boots), Metrics::new()).ok()?;
        let journal = Arc::new(journal);
        let pumped = Arc::clone(&journal);
        let pump = async move {
            for step in 0_u32.. {
                pumped.pump();
                let ms = if step < FINE_STEPS { 1 } else { 50 };
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
        };
        let body = async {
            let broker = Broker::start(
                Arc::clone(&journal) as Arc<dyn Journal>,
                BrokerSettings::default(),
            );
            let broker = Arc::new(broker.await.ok()?);
            Some(work(&broker, &journal).await)
        };
        tokio::select! {
            biased;
            done = tokio::time::timeout(PATIENCE, body) => done.ok().flatten(),
            () = pump => None,
        }
    })
}
