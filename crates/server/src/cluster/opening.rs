//! The wait for the cell, and its journal over the database.

use std::path::{Path, PathBuf};
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
use tokio_util::sync::CancellationToken;

use super::audit::Stores;
use super::folder::LocalFolder;
use super::member::{Member, NODE};
use crate::config::Settings;

/// The cell, for as long as this node has it.
#[derive(Debug)]
pub(crate) struct Ownership {
    /// `None` once it is let go.
    lease: Option<Lease>,
    cutoff: Cutoff,
    folder: LocalFolder,
    health: Health,
    stored: stafett_cluster::Metrics,
}

impl Ownership {
    /// Has the health of the process show lost objects.
    pub(crate) fn show(&self) {
        self.health.set_lost_objects(self.stored.lost_objects());
    }

    /// Returns why this node cannot go on as the owner.
    pub(crate) fn loss(&self) -> Option<String> {
        let loss = self.lease.as_ref().and_then(Lease::loss);
        let loss = loss.or_else(|| self.folder.loss())?;
        // Nothing waits for files that cannot be made.
        self.cutoff.cut_off(&loss);
        Some(loss)
    }

    /// Lets go of the cell, once nothing is written to it any more.
    pub(crate) fn release(mut self) {
        self.let_go();
    }

    fn let_go(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.release();
        }
    }
}

impl Drop for Ownership {
    /// A node that could not begin to serve lets go, too: nothing that it still writes counts after the next
    /// claim.
    fn drop(&mut self) {
        self.let_go();
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
    uptime().context("a cluster needs the time since the machine started")?;
    member.on_waiting();
    let database = connect(settings, address.as_str(), member)?;
    // Clients are told of the node by its number.
    tokio::select! {
        _ = member.joined() => {}
        () = member.stopping.cancelled() => anyhow::bail!("this node stops"),
    }
    let claim = wait_for_claim(&database, member, storage.objects.as_ref()).await?;
    member.on_claimed(claim.epoch);
    *member.stores.lock() = Stores::new(settings, storage.objects.clone()).map(Arc::new);
    health.set(State::Recovering);
    let scratch = scratch(&settings.data_dir, member.cell);
    let member = Arc::clone(member);
    let (claimed, keeping) = (Arc::new(Claimed::new(database, claim)), Arc::clone(&member));
    let opening = Arc::clone(&claimed);
    let (health, stored) = (health.clone(), storage.metrics.clone());
    let mut opened = spawn_blocking(move || {
        let lease = opening.keep(&keeping)?;
        let opened = opening.open((&lease, &keeping.stopping), &scratch, storage, journal, metrics);
        match opened {
            Ok((journal, storage, cutoff, folder)) => {
                let lease = Some(lease.of(storage));
                let ownership = Ownership {
                    lease,
                    cutoff,
                    folder,
                    health,
                    stored,
                };
                Ok((journal, ownership))
            }
            Err(error) => {
                opening.cut_off("the journal was not opened");
                lease.release();
                Err(error)
            }
        }
    });
    let opened = tokio::select! {
        opened = &mut opened => opened,
        () = member.stopping.cancelled() => {
            claimed.cut_off("this node stops");
            opened.await
        }
    };
    opened.context("recovery was interrupted")?
}

/// Returns the database of a cell. Nothing is connected yet.
fn connect(settings: &Settings, address: &str, member: &Member) -> anyhow::Result<Arc<Postgres>> {
    let cell = i32::try_from(member.cell).context("a cell has a small number")?;
    let cells = u32::try_from(settings.cluster.cells).unwrap_or(u32::MAX);
    let ca = settings.cluster.database_ca.as_deref();
    let database = Postgres::trusting(address, ca, cell, Lease::patience(member.lease));
    let database = database.context("cluster.database")?.with_cells(cells);
    Ok(Arc::new(database.timed(member.metrics.on_commit())))
}

/// Returns the folder of a cell's local files.
fn scratch(data_dir: &Path, cell: u32) -> PathBuf {
    match cell {
        0 => data_dir.join("cluster"),
        _ => data_dir.join(format!("cluster-{cell}")),
    }
}

/// Returns the settings of the cell's storage.
pub(crate) fn storage_settings(settings: &Settings, cell: u32) -> anyhow::Result<stafett_cluster::Settings> {
    let cluster = &settings.cluster;
    let cell = i32::try_from(cell).context("a cell has a small number")?;
    let objects = match &cluster.objects {
        Some(location) => {
            let location = location.clone().with_login(cluster.objects_login.clone());
            Some(open_objects(location, cell).context("cluster.objects")?)
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

/// Logs why this node waits, unless it was said last.
fn say(last: &mut String, said: String) {
    if said != *last {
        tracing::info!(target: EVENTS, kind = "cluster.waiting", "{said}");
        *last = said;
    }
}

/// Returns the meaning of a refusal of the database: an error at the first start of a node, whose settings
/// may be wrong, and else a reason to wait. A database that is being restored, or has another password for a
/// while, must not end nodes that stood by.
fn refused(error: DatabaseError, was_ready: bool) -> Result<String, DatabaseError> {
    match error {
        DatabaseError::Refused(_) if !was_ready => Err(error),
        DatabaseError::Refused(_) | DatabaseError::Unreachable(_) => Ok(error.to_string()),
    }
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
        let looked_at = Arc::clone(database);
        let Some(mut looking) = candidate.take() else {
            anyhow::bail!("the look at the cell was interrupted");
        };
        if let Some(ended) = member.take_ended() {
            looking.on_ended(ended);
        }
        let gives_way = member.gives_way();
        let (objects, counting) = (objects.cloned(), Arc::clone(member));
        let looked = spawn_blocking(move || {
            let prepare = || -> Result<(), DatabaseError> {
                let cells = looked_at.prepare()?;
                check_store(&*looked_at, objects.as_ref())?;
                counting.set_cell_count(cells);
                Ok(())
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
        if member.stopping.is_cancelled() {
            if let Ok(Look::Claimed(claim)) = look {
                let database = Arc::clone(database);
                // The next owner waits for the lease if this fails.
                let _ = spawn_blocking(move || database.release(claim.epoch)).await;
            }
            anyhow::bail!("this node stops");
        }
        let interval = looking.interval();
        candidate = Some(looking);
        let said = match look {
            Ok(Look::Claimed(claim)) => {
                tracing::info!(target: EVENTS, kind = "cluster.claimed", cell = member.cell, epoch = claim.epoch,
                    "this node owns the cell");
                return Ok(claim);
            }
            Ok(Look::Owned) => {
                is_prepared = true;
                member.on_ready();
                "another node owns the cell: standing by".to_owned()
            }
            Err(error) => refused(error, member.was_ready()).context("cluster.database")?,
        };
        say(&mut last, said);
        tokio::select! {
            () = sleep(interval) => {}
            () = member.news.notified() => {}
            () = member.stopping.cancelled() => anyhow::bail!("this node stops"),
        }
    }
}

/// A claim, and the ways to end the work that it allows.
struct Claimed {
    database: Arc<Postgres>,
    claim: Claim,
    cutoff: OnceLock<Cutoff>,
}

type Opened = (DiskJournal, Arc<SharedStorage>, Cutoff, LocalFolder);

impl Claimed {
    fn new(database: Arc<Postgres>, claim: Claim) -> Self {
        Self {
            database,
            claim,
            cutoff: OnceLock::new(),
        }
    }

    /// Ends all calls but those of the lease: none holds up the end of the journal.
    fn cut_off(&self, reason: &str) {
        if let Some(cutoff) = self.cutoff.get() {
            cutoff.cut_off(reason);
        }
        self.database.hang_up();
    }

    /// Keeps the lease.
    fn keep(self: &Arc<Self>, member: &Arc<Member>) -> anyhow::Result<Lease> {
        let database: Arc<dyn Database> = Arc::<Postgres>::clone(&self.database);
        let (claimed, losing) = (Arc::clone(self), Arc::clone(member));
        let cell = member.cell;
        let kept = Lease::keep(
            database,
            self.claim,
            (member.lease, &member.tenure),
            move |reason| {
                tracing::error!(target: EVENTS, kind = "cluster.lost", cell, %reason, "this node does not own the cell any more");
                losing.on_lost();
                claimed.cut_off(reason);
            },
        );
        if kept.is_err() {
            // Its error is the first one.
            let _ = self.database.release(self.claim.epoch);
        }
        Ok(kept?)
    }

    fn open(
        &self,
        (lease, stopping): (&Lease, &CancellationToken),
        scratch: &Path,
        settings: stafett_cluster::Settings,
        journal: JournalSettings,
        metrics: Metrics,
    ) -> anyhow::Result<Opened> {
        let directory =
            open_directory(scratch).with_context(|| format!("{} cannot be used", scratch.display()))?;
        let folder = LocalFolder::new(scratch);
        let database: Arc<dyn Database> = Arc::<Postgres>::clone(&self.database);
        let storage = SharedStorage::open(database, self.claim, directory, settings)
            .context("the files of the cell cannot be listed")?;
        let storage = Arc::new(storage);
        let cutoff = self.cutoff.get_or_init(|| storage.cutoff()).clone();
        if stopping.is_cancelled() {
            anyhow::bail!("this node stops");
        }
        if let Some(reason) = lease.loss() {
            anyhow::bail!("the cell was lost while its files were listed: {reason}");
        }
        let journal = JournalSettings {
            // Data that was not committed is gone with the node, as after a loss of power.
            boot: nonce(),
            ..journal
        };
        let shared: Arc<dyn Storage> = Arc::<SharedStorage>::clone(&storage);
        storage.fetch_begins()?;
        let opened = DiskJournal::open_on(shared, journal, metrics);
        let opened = opened.context("the journal of the cell cannot be opened")?;
        storage.keep()?;
        Ok((opened, storage, cutoff, folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_ends_a_node_at_its_first_start_alone() {
        let refusal = || DatabaseError::Refused("no such table (42P01)".to_owned());
        assert!(refused(refusal(), false).is_err());
        let said = refused(refusal(), true).unwrap();
        assert!(said.contains("42P01"), "{said}");
        assert!(refused(DatabaseError::Unreachable("away".to_owned()), false).is_ok());
    }
}
