//! The wait for the cell, and its journal over the database.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use stafett_cluster::{
    Candidate, Claim, Cutoff, Database, DatabaseError, Lease, Look, Objects, Postgres, SharedStorage,
    check_store, nonce, open_objects, uptime,
};
use stafett_http::{Health, State};
use stafett_journal::disk::open_directory;
use stafett_journal::disk::storage::Storage;
use stafett_journal::{DiskJournal, Metrics, Settings as JournalSettings};
use stafett_net::EVENTS;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::folder::LocalFolder;
use super::member::{CELL, Member, NODE};
use crate::config::Settings;

/// The cell, for as long as this node has it.
#[derive(Debug)]
pub(crate) struct Ownership {
    lease: Lease,
    cutoff: Cutoff,
    folder: LocalFolder,
}

impl Ownership {
    /// Returns why this node cannot go on as the owner.
    pub(crate) fn loss(&self) -> Option<String> {
        let loss = self.lease.loss().or_else(|| self.folder.loss())?;
        // Nothing waits for files that cannot be made.
        self.cutoff.cut_off(&loss);
        Some(loss)
    }

    /// Lets go of the cell, once nothing is written to it any more.
    pub(crate) fn release(self) {
        self.lease.release();
    }
}

/// Waits until this node owns the cell, and opens its journal.
pub(crate) async fn open(
    settings: &Settings,
    storage: stafett_cluster::Settings,
    member: &Arc<Member>,
    health: &Health,
    journal: JournalSettings,
    metrics: Metrics,
) -> anyhow::Result<(DiskJournal, Ownership)> {
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
    let lease = member.lease;
    let ca = settings.cluster.database_ca.as_deref();
    let database =
        Postgres::trusting(address.as_str(), ca, CELL, Lease::patience(lease)).context("cluster.database")?;
    let database = Arc::new(database.timed(member.metrics.on_commit()));
    // Clients are told of the node by its number.
    member.joined().await;
    let claim = wait_for_claim(&database, member, storage.objects.as_ref()).await?;
    member.on_claimed();
    health.set(State::Recovering);
    let scratch = settings.data_dir.join("cluster");
    let member = Arc::clone(member);
    let opened = spawn_blocking(move || {
        let opened = open_claimed(&database, claim, &member, &scratch, storage, journal, metrics);
        if opened.is_err() {
            database.hang_up();
        }
        opened
    });
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
///
/// A node without the cell's objects does not take over: it says so at its start, and before a claim.
async fn wait_for_claim(
    database: &Arc<Postgres>,
    member: &Arc<Member>,
    objects: Option<&Arc<dyn Objects>>,
) -> anyhow::Result<Claim> {
    let shared: Arc<dyn Database> = Arc::<Postgres>::clone(database);
    let candidate = Candidate::new(shared, *NODE, member.lease);
    let mut candidate = Some(candidate.with_store(objects.cloned()));
    let (mut is_prepared, mut last) = (false, String::new());
    loop {
        let database = Arc::clone(database);
        let Some(mut looking) = candidate.take() else {
            anyhow::bail!("the look at the cell was interrupted");
        };
        if let Some(ended) = member.take_ended() {
            looking.on_ended(ended);
        }
        let gives_way = member.gives_way();
        let objects = objects.cloned();
        let looked = spawn_blocking(move || {
            let prepare = || {
                database.prepare()?;
                check_store(&*database, objects.as_ref())
            };
            if !is_prepared && let Err(error) = prepare() {
                return (looking, Err(error));
            }
            if gives_way {
                return (looking, Ok(Look::Owned));
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
        tokio::select! {
            () = sleep(interval) => {}
            () = member.news.notified() => {}
        }
    }
}

fn open_claimed(
    postgres: &Arc<Postgres>,
    claim: Claim,
    member: &Arc<Member>,
    scratch: &Path,
    settings: stafett_cluster::Settings,
    journal: JournalSettings,
    metrics: Metrics,
) -> anyhow::Result<(DiskJournal, Ownership)> {
    let database: Arc<dyn Database> = Arc::<Postgres>::clone(postgres);
    let directory =
        open_directory(scratch).with_context(|| format!("{} cannot be used", scratch.display()))?;
    let folder = LocalFolder::new(scratch);
    // First, as the local folder may have much that is removed.
    let cutoff: Arc<OnceLock<Cutoff>> = Arc::default();
    let (cut, line, losing) = (Arc::clone(&cutoff), Arc::clone(postgres), Arc::clone(member));
    let lease = Lease::keep(Arc::clone(&database), claim, member.lease, move |reason| {
        tracing::error!(target: EVENTS, kind = "cluster.lost", %reason, "this node does not own the cell any more");
        losing.on_lost();
        if let Some(cutoff) = cut.get() {
            cutoff.cut_off(reason);
        }
        // No call holds up the end of the journal.
        line.hang_up();
    })?;
    let storage = SharedStorage::open(database, claim, directory, settings)
        .context("the files of the cell cannot be listed")?;
    let storage = Arc::new(storage);
    let cutoff = cutoff.get_or_init(|| storage.cutoff()).clone();
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
    let ownership = Ownership {
        lease: lease.of(storage),
        cutoff,
        folder,
    };
    Ok((opened, ownership))
}
