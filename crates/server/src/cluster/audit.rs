//! The comparison of the cell's database with its object store, when an operator asks for it.

use std::path::PathBuf;
use std::sync::Arc;

use stafett_admin::cluster::ClusterObjects;
use stafett_cluster::{Agreement, Lease, Objects, Postgres, agreement};
use stafett_http::{Code, Problem};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::member::Member;
use crate::config::Settings;
use crate::config::cluster::DatabaseAddress;

/// Both stores of the cell.
#[derive(Debug)]
pub(super) struct Stores {
    database: DatabaseAddress,
    ca: Option<PathBuf>,
    objects: Option<Arc<dyn Objects>>,
    /// One comparison at a time.
    turn: Arc<Semaphore>,
}

impl Stores {
    pub(super) fn new(settings: &Settings, objects: Option<Arc<dyn Objects>>) -> Option<Self> {
        let cluster = &settings.cluster;
        Some(Self {
            database: cluster.database.clone()?,
            ca: cluster.database_ca.clone(),
            objects,
            turn: Arc::new(Semaphore::new(1)),
        })
    }
}

/// Compares the stores of the cell that this node owns: connections for it are opened and closed again.
pub(crate) async fn compare(member: Arc<Member>) -> Result<ClusterObjects, Problem> {
    let stores = member.stores.lock().clone();
    let Some(stores) = stores else {
        return Err(Problem::new(Code::NotServing, "this node does not serve yet"));
    };
    if stores.objects.is_none() {
        return Ok(ClusterObjects::default());
    }
    let Ok(turn) = Arc::clone(&stores.turn).try_acquire_owned() else {
        let why = "the stores are being compared already";
        return Err(Problem::new(Code::Overloaded, why));
    };
    let lease = member.lease;
    let cell = i32::try_from(member.cell).unwrap_or_default();
    let compared = spawn_blocking(move || {
        // It ends with the comparison, also for a client that is gone.
        let _turn = turn;
        let Stores {
            database,
            ca,
            objects,
            ..
        } = &*stores;
        let opened = Postgres::trusting(database.as_str(), ca.as_deref(), cell, Lease::patience(lease));
        let database = opened.map_err(|error| error.to_string())?;
        let Some(objects) = objects else {
            return Ok(Agreement::default());
        };
        agreement(&database, &**objects).map_err(|error| error.to_string())
    });
    let compared = compared.await;
    let agreed = compared
        .map_err(|error| error.to_string())
        .and_then(|agreed| agreed)
        .map_err(|why| Problem::new(Code::Unreadable, why))?;
    Ok(ClusterObjects {
        is_set: true,
        objects: agreed.objects,
        bytes: agreed.bytes,
        missing: agreed.missing,
        missing_names: agreed.missing_names,
        garbage: agreed.garbage,
        garbage_bytes: agreed.garbage_bytes,
        unknown: agreed.unknown,
        unknown_bytes: agreed.unknown_bytes,
    })
}
