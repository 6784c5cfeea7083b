//! Settings of a cell's storage.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::metrics::Metrics;
use crate::objects::Objects;

/// A clock that never goes back. Clones are the same one.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    /// A clock with the time since any moment.
    pub fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn now(&self) -> Duration {
        (self.0)()
    }
}

impl Default for Clock {
    /// The time since the call.
    fn default() -> Self {
        let start = Instant::now();
        Self::new(move || start.elapsed())
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({:?})", self.now())
    }
}

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
    /// Requests to the object store at a time of one piece of work.
    pub requests_max: usize,
    /// Clock of ages and pauses of objects.
    pub clock: Clock,
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
            requests_max: 16,
            clock: Clock::default(),
            metrics: Metrics::default(),
        }
    }
}
