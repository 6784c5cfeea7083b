//! Settings of a cell's storage.

use std::sync::Arc;
use std::time::Duration;

use crate::metrics::Metrics;
use crate::objects::Objects;

/// Settings of the storage of a cell.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Pause before a call without an answer is tried again.
    pub pause: Duration,
    /// The object store. `None`: everything is in the database.
    pub objects: Option<Arc<dyn Objects>>,
    /// Largest commit, and largest file, within the database, if there is an object store.
    pub inline_bytes_max: usize,
    /// Bytes per second of commits within the database, if there is an object store.
    pub inline_bytes_per_second: u64,
    /// Time between the beginnings of two puts of commits.
    pub linger: Duration,
    /// Time after which a put gets another one beside it, at the earliest.
    pub slow_put_after: Duration,
    /// Bytes of local copies of stored files and objects.
    pub cache_bytes: u64,
    /// Age at which objects are deleted to which nothing refers any more.
    pub garbage_after: Duration,
    pub metrics: Metrics,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pause: Duration::from_millis(50),
            objects: None,
            inline_bytes_max: 64 << 10,
            inline_bytes_per_second: 4 << 20,
            linger: Duration::from_millis(50),
            slow_put_after: Duration::from_millis(300),
            cache_bytes: 4 << 30,
            garbage_after: Duration::from_hours(1),
            metrics: Metrics::default(),
        }
    }
}
