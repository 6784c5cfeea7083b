//! Records of topics over HTTP.
//!
//! - `produce`: storing records; `incoming`: records in a body; `cloud_events`: those of them that are events
//! - `read`: reading a partition on; `record`: a record in answers
//! - `search`: looking over all partitions; `lane`: one of them; `choice`: conditions on records
//! - `events`: records as they come; `copy`: records for another topic
//! - `position`: places in a partition, in requests; `cursor`: a place in all partitions

mod choice;
mod cloud_events;
mod copy;
mod cursor;
mod events;
mod incoming;
mod lane;
pub(crate) mod position;
mod produce;
pub(crate) mod read;
mod record;
mod search;

use std::sync::Arc;
use std::time::Duration;

use stafett_http::{Code, Problem, slot};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

pub(crate) use self::record::RecordShown;
use crate::Routes;

/// Bound on requests that read records at the same time: each may hold a decompressed batch. Those that only
/// wait for records are not counted.
const READS_MAX: usize = 16;

/// Longest time that a request waits for its turn.
const TURN_WAIT: Duration = Duration::from_secs(10);

/// Turns of requests that read records. Clones share them.
#[derive(Debug, Clone)]
pub struct Reads(Arc<Semaphore>);

impl Default for Reads {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(READS_MAX)))
    }
}

impl Reads {
    /// Waits for a turn.
    pub(crate) async fn turn(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let turn = timeout(TURN_WAIT, Arc::clone(&self.0).acquire_owned()).await;
        let turn = turn.map_err(|_| {
            let why = format!("{READS_MAX} requests read records, and more wait");
            Problem::new(Code::Overloaded, why)
        })?;
        turn.map_err(|_| slot::closed())
    }
}

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .with(produce::routes)
        .with(read::routes)
        .with(search::routes)
        .with(events::routes)
        .with(copy::routes)
}
