//! The bound on bytes of requests in memory, for the whole process.
//!
//! Bytes are reserved *before* a payload is read, so that what peers announce never becomes memory that is not there.
//! There are two pools, each first come, first served: one for reservations up to [`SMALL_BYTES_MAX`], one for larger
//! ones. A small request thus does not queue behind large ones, and a large one is not starved by a stream of small
//! ones. (The first bytes of large requests that wait for their memory are in the small pool; so many of them that it
//! is full, and small requests wait as well, until the large ones make progress.)
//!
//! **No deadlock.** Whoever holds bytes of the large pool must not wait for more. Whoever holds bytes of the small
//! pool may wait for the large pool, and for nothing else. [`crate::FrameReader`] keeps to this.

use std::mem;
use std::sync::Arc;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;

/// Reservations up to this size come from the small pool.
pub const SMALL_BYTES_MAX: usize = 64 * 1024;

/// How much there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetSettings {
    /// All of it. At least 1 MiB is used.
    pub bytes: usize,
}

/// Why nothing was reserved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    #[error("a request needs {asked} bytes of memory, more than the {max} that there are for one")]
    TooLarge { asked: usize, max: usize },
    #[error("the process is stopping")]
    Closed,
}

/// The budget; shared by all listeners.
#[derive(Debug)]
pub struct ByteBudget {
    small: Semaphore,
    large: Semaphore,
    small_bytes: usize,
    large_bytes: usize,
    in_use: Gauge,
    waiting: Gauge,
}

impl ByteBudget {
    /// A quarter of the bytes, and never less than eight small reservations, is for small requests.
    #[must_use]
    pub fn new(settings: BudgetSettings) -> Arc<Self> {
        let bytes = settings.bytes.clamp(1024 * 1024, Semaphore::MAX_PERMITS);
        let small_bytes = (bytes / 4).max(8 * SMALL_BYTES_MAX);
        let large_bytes = bytes - small_bytes;
        Arc::new(Self {
            small: Semaphore::new(small_bytes),
            large: Semaphore::new(large_bytes),
            small_bytes,
            large_bytes,
            in_use: Gauge::default(),
            waiting: Gauge::default(),
        })
    }

    /// Makes the gauges visible.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "request_memory_bytes",
            "Bytes reserved for requests in memory",
            self.in_use.clone(),
        );
        registry.register(
            "request_memory_waiting",
            "Connections that wait until memory for their request is free",
            self.waiting.clone(),
        );
        let all = Gauge::<i64>::default();
        all.set(gauge(self.small_bytes + self.large_bytes));
        registry.register(
            "request_memory_bytes_max",
            "Bytes that requests may take in memory",
            all,
        );
    }

    /// The largest reservation that can succeed at all.
    #[must_use]
    pub fn reservation_max(&self) -> usize {
        // The semaphore takes at most u32::MAX at once.
        self.large_bytes.min(u32::MAX as usize)
    }

    /// Bytes that are reserved now.
    #[must_use]
    pub fn in_use(&self) -> usize {
        (self.small_bytes - self.small.available_permits())
            + (self.large_bytes - self.large.available_permits())
    }

    /// Reserves `bytes`, after those who asked before. Safe to cancel.
    ///
    /// # Errors
    /// Fails at once if there will never be as much.
    pub async fn reserve(self: &Arc<Self>, bytes: usize) -> Result<Permit, BudgetError> {
        match self.try_reserve(bytes) {
            Some(permit) => Ok(permit),
            None => self.wait(Pool::of(bytes), bytes).await,
        }
    }

    /// Like [`Self::reserve`], but from the large pool whatever the size: for those who hold small bytes already.
    pub async fn reserve_large(self: &Arc<Self>, bytes: usize) -> Result<Permit, BudgetError> {
        self.wait(Pool::Large, bytes).await
    }

    /// Reserves `bytes` if they are free and nobody waits for them.
    #[must_use]
    pub fn try_reserve(self: &Arc<Self>, bytes: usize) -> Option<Permit> {
        let pool = Pool::of(bytes);
        self.semaphore(pool)
            .try_acquire_many(u32::try_from(bytes).ok()?)
            .ok()?
            .forget();
        Some(self.granted(pool, bytes))
    }

    async fn wait(self: &Arc<Self>, pool: Pool, bytes: usize) -> Result<Permit, BudgetError> {
        let max = self.reservation_max();
        let asked = u32::try_from(bytes).ok().filter(|_| bytes <= max);
        let asked = asked.ok_or(BudgetError::TooLarge { asked: bytes, max })?;
        let waiting = Waiting::start(&self.waiting);
        let acquired = self.semaphore(pool).acquire_many(asked).await;
        drop(waiting);
        acquired.map_err(|_| BudgetError::Closed)?.forget();
        Ok(self.granted(pool, bytes))
    }

    fn granted(self: &Arc<Self>, pool: Pool, bytes: usize) -> Permit {
        self.in_use.inc_by(gauge(bytes));
        let (small, large) = match pool {
            Pool::Small => (bytes, 0),
            Pool::Large => (0, bytes),
        };
        Permit {
            budget: Arc::clone(self),
            small,
            large,
        }
    }

    fn semaphore(&self, pool: Pool) -> &Semaphore {
        match pool {
            Pool::Small => &self.small,
            Pool::Large => &self.large,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Pool {
    Small,
    Large,
}

impl Pool {
    fn of(bytes: usize) -> Self {
        if bytes <= SMALL_BYTES_MAX {
            Self::Small
        } else {
            Self::Large
        }
    }
}

/// Counts one who waits, also when the wait is cancelled.
struct Waiting<'a>(&'a Gauge);

impl<'a> Waiting<'a> {
    fn start(gauge: &'a Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Bytes that were reserved; given back on drop. Splitting and merging are plain arithmetic.
#[derive(Debug)]
pub struct Permit {
    budget: Arc<ByteBudget>,
    small: usize,
    large: usize,
}

impl Permit {
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.small + self.large
    }

    /// Takes `bytes` (or all that there are, if less) out of this permit into one of their own.
    #[must_use]
    pub fn split(&mut self, bytes: usize) -> Self {
        let small = bytes.min(self.small);
        let large = (bytes - small).min(self.large);
        self.small -= small;
        self.large -= large;
        Self {
            budget: Arc::clone(&self.budget),
            small,
            large,
        }
    }

    /// Adds another permit of the same budget to this one.
    pub fn merge(&mut self, mut other: Self) {
        debug_assert!(
            Arc::ptr_eq(&self.budget, &other.budget),
            "permits of two budgets do not mix"
        );
        self.small += mem::take(&mut other.small);
        self.large += mem::take(&mut other.large);
    }

    /// Gives back what is beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let over = self.bytes().saturating_sub(bytes);
        drop(self.split(over));
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let bytes = self.bytes();
        if bytes == 0 {
            return;
        }
        self.budget.in_use.dec_by(gauge(bytes));
        if self.small > 0 {
            self.budget.small.add_permits(self.small);
        }
        if self.large > 0 {
            self.budget.large.add_permits(self.large);
        }
    }
}

fn gauge(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Poll;

    const MIB: usize = 1024 * 1024;

    fn budget() -> Arc<ByteBudget> {
        ByteBudget::new(BudgetSettings { bytes: 4 * MIB })
    }

    /// Polls once.
    async fn is_ready(future: &mut (impl Future + Unpin)) -> bool {
        std::future::poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_ready())).await
    }

    #[tokio::test]
    async fn more_than_there_is_fails_rather_than_hangs() {
        let budget = budget();
        let error = budget.reserve(4 * MIB).await.unwrap_err();
        assert_eq!(
            error,
            BudgetError::TooLarge {
                asked: 4 * MIB,
                max: 3 * MIB
            }
        );
        assert!(budget.reserve(usize::MAX).await.is_err());
        assert!(budget.try_reserve(usize::MAX).is_none());
        assert_eq!(budget.in_use(), 0);
    }

    #[tokio::test]
    async fn large_requests_are_served_in_the_order_they_came() {
        let budget = budget();
        let held = budget.reserve(2 * MIB).await.unwrap();
        let mut first = Box::pin(budget.reserve(3 * MIB));
        assert!(!is_ready(&mut first).await);
        let mut second = Box::pin(budget.reserve(MIB));
        assert!(
            !is_ready(&mut second).await,
            "the second does not overtake, though there is room for it"
        );
        assert!(budget.try_reserve(MIB).is_none());
        drop(held);
        let first = first.await.unwrap();
        assert!(!is_ready(&mut second).await);
        drop(first);
        assert_eq!(second.await.unwrap().bytes(), MIB);
        assert_eq!(budget.in_use(), 0);
    }

    #[tokio::test]
    async fn small_requests_never_starve_behind_large_ones() {
        let budget = budget();
        let _all = budget.reserve(budget.reservation_max()).await.unwrap();
        let mut next = Box::pin(budget.reserve(MIB));
        assert!(!is_ready(&mut next).await);
        assert_eq!(budget.reserve(1000).await.unwrap().bytes(), 1000);
        assert_eq!(budget.waiting.get(), 1);
    }

    #[tokio::test]
    async fn a_cancelled_wait_leaves_nothing_behind() {
        let budget = budget();
        let held = budget.reserve(2 * MIB).await.unwrap();
        let mut waiting = Box::pin(budget.reserve(3 * MIB));
        assert!(!is_ready(&mut waiting).await);
        drop(waiting);
        assert_eq!(budget.waiting.get(), 0);
        assert_eq!(
            budget.try_reserve(MIB).unwrap().bytes(),
            MIB,
            "what it had gathered is free again"
        );
        drop(held);
        assert_eq!(budget.in_use(), 0);
        assert_eq!(budget.in_use.get(), 0);
    }

    #[tokio::test]
    async fn permits_split_and_merge_without_losing_a_byte() {
        let budget = budget();
        let mut permit = budget.reserve(1000).await.unwrap();
        let part = permit.split(300);
        assert_eq!((permit.bytes(), part.bytes()), (700, 300));
        let mut both = budget.reserve(MIB).await.unwrap();
        both.merge(part);
        assert_eq!(budget.in_use(), MIB + 1000);
        both.shrink_to(MIB);
        assert_eq!(both.bytes(), MIB);
        drop(both);
        assert_eq!(budget.in_use(), 700);
        assert_eq!(permit.split(5000).bytes(), 700);
        assert_eq!(permit.bytes(), 0);
        drop(permit);
        assert_eq!(budget.in_use(), 0);
    }
}
