//! This node in a cluster: it waits until it owns the cell, and opens its journal over the database.

use std::path::Path;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use anyhow::Context;
use stafett_cluster::{
    Candidate, Claim, Cutoff, Database, DatabaseError, Lease, Look, Nonce, Postgres, SharedStorage, nonce,
    open_objects, uptime,
};
use stafett_journal::disk::open_directory;
use stafett_journal::disk::storage::Storage;
use stafett_journal::{DiskJournal, Metrics, Settings as JournalSettings};
use stafett_net::EVENTS;
use tokio::task::spawn_blocking;

use crate::config::Settings;

/// The one cell that there is.
const CELL: i32 = 0;
/// Makes this process unmistakable, also after a failure of its journal.
static NODE: LazyLock<Nonce> = LazyLock::new(nonce);

/// Waits until this node owns the cell, and opens its journal.
pub(crate) async fn open(
    settings: &Settings,
    storage: stafett_cluster::Settings,
    journal: JournalSettings,
    metrics: Metrics,
) -> anyhow::Result<(DiskJournal, Lease)> {
    let Some(address) = &settings.cluster.database else {
        anyhow::bail!("cluster.database is empty");
    };
    if settings.data_dir.join("checkpoint.redb").exists() {
        anyhow::bail!(
            "{} holds the journal of a single node, which a cluster does not read: choose another data_dir",
            settings.data_dir.display()
        );
    }
    uptime().context("a cluster needs the time in /proc/uptime")?;
    let lease = settings.cluster.lease_ms;
    let database =
        Postgres::new(address.as_str(), CELL, Lease::patience(lease)).context("cluster.database")?;
    let database = Arc::new(database);
    // A node without the objects does not take over.
    if let Some(objects) = storage.objects.clone() {
        let prepared = spawn_blocking(move || objects.prepare()).await;
        prepared
            .context("the look at the objects was interrupted")?
            .context("cluster.objects")?;
    }
    let claim = wait_for_claim(&database, lease).await?;
    let scratch = settings.data_dir.join("cluster");
    let opened =
        spawn_blocking(move || open_claimed(database, claim, lease, &scratch, storage, journal, metrics));
    opened.await.context("recovery was interrupted")?
}

/// Returns the settings of the cell's storage.
pub(crate) fn storage_settings(settings: &Settings) -> anyhow::Result<stafett_cluster::Settings> {
    let cluster = &settings.cluster;
    let objects = match &cluster.objects {
        Some(location) => {
            let location = location.clone().with_login(cluster.objects_login.clone());
            Some(open_objects(location, CELL).context("cluster.objects")?)
        }
        None => None,
    };
    Ok(stafett_cluster::Settings {
        objects,
        inline_bytes_max: usize::try_from(cluster.inline_bytes_max).unwrap_or(usize::MAX),
        inline_bytes_per_second: cluster.inline_bytes_per_second,
        linger: cluster.linger_ms,
        cache_bytes: cluster.cache_bytes,
        garbage_after: cluster.garbage_after_ms,
        ..stafett_cluster::Settings::default()
    })
}

/// Looks at the cell until it can be claimed.
async fn wait_for_claim(database: &Arc<Postgres>, lease: Duration) -> anyhow::Result<Claim> {
    let shared: Arc<dyn Database> = Arc::<Postgres>::clone(database);
    let mut candidate = Some(Candidate::new(shared, *NODE, lease));
    let (mut is_prepared, mut last) = (false, String::new());
    loop {
        let database = Arc::clone(database);
        let Some(mut looking) = candidate.take() else {
            anyhow::bail!("the look at the cell was interrupted");
        };
        let looked = spawn_blocking(move || {
            if !is_prepared && let Err(error) = database.prepare() {
                return (looking, Err(error));
            }
            let look = looking.look(|| uptime().unwrap_or_default());
            (looking, look)
        });
        let (looking, look) = looked.await.context("the look at the cell was interrupted")?;
        let interval = looking.interval();
        candidate = Some(looking);
        let said = match look {
            Ok(Look::Claimed(claim)) => {
                tracing::info!(target: EVENTS, kind = "cluster.claimed", epoch = claim.epoch, "this node owns the cell");
                return Ok(claim);
            }
            Ok(Look::Owned) => {
                is_prepared = true;
                "another node owns the cell: standing by".to_owned()
            }
            Err(error @ DatabaseError::Refused(_)) => return Err(error).context("cluster.database"),
            Err(error @ DatabaseError::Unreachable(_)) => error.to_string(),
        };
        if said != last {
            tracing::info!(target: EVENTS, kind = "cluster.waiting", "{said}");
            last = said;
        }
        tokio::time::sleep(interval).await;
    }
}

fn open_claimed(
    database: Arc<Postgres>,
    claim: Claim,
    lease: Duration,
    scratch: &Path,
    settings: stafett_cluster::Settings,
    journal: JournalSettings,
    metrics: Metrics,
) -> anyhow::Result<(DiskJournal, Lease)> {
    let database: Arc<dyn Database> = database;
    let directory =
        open_directory(scratch).with_context(|| format!("{} cannot be used", scratch.display()))?;
    // First, as the local folder may have much that is removed.
    let cutoff: Arc<OnceLock<Cutoff>> = Arc::default();
    let cut = Arc::clone(&cutoff);
    let lease = Lease::keep(Arc::clone(&database), claim, lease, move |reason| {
        tracing::error!(target: EVENTS, kind = "cluster.lost", %reason, "this node does not own the cell any more");
        if let Some(cutoff) = cut.get() {
            cutoff.cut_off(reason);
        }
    })?;
    let storage = SharedStorage::open(database, claim, directory, settings)
        .context("the files of the cell cannot be listed")?;
    let storage = Arc::new(storage);
    cutoff.get_or_init(|| storage.cutoff());
    if let Some(reason) = lease.loss() {
        anyhow::bail!("the cell was lost while its files were listed: {reason}");
    }
    let journal = JournalSettings {
        // Data that was not committed is gone with the node, as after a loss of power.
        boot: nonce(),
        ..journal
    };
    let shared: Arc<dyn Storage> = Arc::<SharedStorage>::clone(&storage);
    let opened = DiskJournal::open_on(shared, journal, metrics);
    let opened = opened.context("the journal of the cell cannot be opened")?;
    storage.keep()?;
    Ok((opened, lease.of(storage)))
}
