//! Records of topics over HTTP.
//!
//! - `produce`: storing records; `incoming`: records in a body
//! - `read`: reading a partition on; `record`: a record in answers
//! - `search`: looking over all partitions; `lane`: one of them; `choice`: conditions on records
//! - `events`: records as they come
//! - `position`: places in a partition, in requests; `cursor`: a place in all partitions

mod choice;
mod cursor;
mod events;
mod incoming;
mod lane;
pub(crate) mod position;
mod produce;
mod read;
mod record;
mod search;

use std::sync::Arc;

use stafett_http::{Problem, slot};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Routes;

/// Bound on requests that read records at the same time: each may hold a decompressed batch. Those that only
/// wait for records are not counted.
const READS_MAX: usize = 16;

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
    async fn turn(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let turn = Arc::clone(&self.0).acquire_owned().await;
        turn.map_err(|_| slot::closed())
    }
}

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .with(produce::routes)
        .with(read::routes)
        .with(search::routes)
        .with(events::routes)
}
