//! Bound on request bytes in memory, for the whole process.
//!
//! Bytes are reserved *before* they are read, so that announced sizes never allocate memory beyond the bound.
//! There are three pools, by the size of the request, each first come, first served. No request queues behind
//! larger ones or is starved by a stream of smaller ones:
//!
//! | pool | requests | share | reserved |
//! |---|---|---|---|
//! | small | up to [`SMALL_BYTES_MAX`] | a quarter | whole |
//! | medium | up to [`MEDIUM_BYTES_MAX`] | a quarter | whole |
//! | large | beyond | half | in steps, as bytes arrive ([`crate::Arrival`]) |
//!
//! The first bytes of requests that wait for their memory are in the small pool. If these fill it, small
//! requests wait as well, until the others make progress.
//!
//! **No deadlock.** Holders of bytes of the medium pool wait for no more. Holders of bytes of the large pool
//! wait for the next step of the same request only. One of them at a time has the *overdraft*: all that it
//! lacks, beyond the pool, so it waits only for its peer. Holders of bytes of the small pool may wait for the
//! other pools, and for nothing else. A request that its peer does not finish is ended by deadlines, which
//! are short while others wait ([`crate::Arrival::gives_way`]).

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::{AcquireError, Semaphore};

/// Reservations up to this size come from the small pool.
pub const SMALL_BYTES_MAX: usize = 64 * 1024;
/// Reservations up to this size, or the size of the medium pool, come from the medium pool.
pub const MEDIUM_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Size of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetSettings {
    /// Total without the overdraft; at least 1 MiB is used.
    pub bytes: usize,
}

/// Reasons why a reservation fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    #[error("a request needs {asked} bytes of memory, more than the {max} that there are for one")]
    TooLarge { asked: usize, max: usize },
    #[error("the process is stopping")]
    Closed,
}

/// Shared by all listeners.
#[derive(Debug)]
pub struct ByteBudget {
    small: Pool,
    medium: Pool,
    large: Pool,
    /// Single permit: the right to take bytes beyond the large pool.
    overdraft: Semaphore,
    /// Bytes taken beyond the large pool, all by one request.
    overdrawn: AtomicUsize,
    in_use: Gauge,
    waiting: Gauge,
}

/// Bytes for requests of one size class.
#[derive(Debug)]
struct Pool {
    free: Semaphore,
    bytes: usize,
    waiting: AtomicUsize,
}

/// Size class of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Small,
    Medium,
    Large,
}

impl Pool {
    fn new(bytes: usize) -> Self {
        Self {
            free: Semaphore::new(bytes),
            bytes,
            waiting: AtomicUsize::new(0),
        }
    }

    fn in_use(&self) -> usize {
        self.bytes - self.free.available_permits()
    }
}

impl ByteBudget {
    /// Gives a quarter of the bytes, at least eight small reservations, to small requests, and a third of the
    /// rest to medium ones.
    #[must_use]
    pub fn new(settings: BudgetSettings) -> Arc<Self> {
        let bytes = settings.bytes.clamp(1024 * 1024, Semaphore::MAX_PERMITS);
        let small_bytes = (bytes / 4).max(8 * SMALL_BYTES_MAX);
        let medium_bytes = (bytes - small_bytes) / 3;
        Arc::new(Self {
            small: Pool::new(small_bytes),
            medium: Pool::new(medium_bytes),
            large: Pool::new(bytes - small_bytes - medium_bytes),
            overdraft: Semaphore::new(1),
            overdrawn: AtomicUsize::new(0),
            in_use: Gauge::default(),
            waiting: Gauge::default(),
        })
    }

    /// Registers the gauges.
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
        all.set(gauge(self.small.bytes + self.medium.bytes + self.large.bytes));
        registry.register(
            "request_memory_bytes_max",
            "Bytes that requests may take in memory",
            all,
        );
    }

    /// Returns the largest reservation that can ever succeed.
    #[must_use]
    pub fn reservation_max(&self) -> usize {
        // The semaphore takes at most u32::MAX at once.
        (self.medium.bytes + self.large.bytes).min(u32::MAX as usize)
    }

    /// Returns the bytes that are reserved now.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.small.in_use()
            + self.medium.in_use()
            + self.large.in_use()
            + self.overdrawn.load(Ordering::Relaxed)
    }

    /// Returns the number of connections that wait for bytes.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        u64::try_from(self.waiting.get()).unwrap_or_default()
    }

    /// Reserves `bytes`, after earlier callers of the same class. Safe to cancel.
    ///
    /// # Errors
    /// Fails at once if the budget can never hold `bytes`.
    pub async fn reserve(self: &Arc<Self>, bytes: usize) -> Result<Permit, BudgetError> {
        match self.try_reserve(bytes) {
            Some(permit) => Ok(permit),
            None => self.wait(self.class(bytes), bytes, bytes).await,
        }
    }

    /// Reserves `bytes` if they are free and no request waits for them.
    #[must_use]
    pub fn try_reserve(self: &Arc<Self>, bytes: usize) -> Option<Permit> {
        self.try_take(self.class(bytes), bytes)
    }

    pub(crate) fn class(&self, bytes: usize) -> Class {
        if bytes <= SMALL_BYTES_MAX {
            Class::Small
        } else if bytes <= MEDIUM_BYTES_MAX.min(self.medium.bytes) {
            Class::Medium
        } else {
            Class::Large
        }
    }

    pub(crate) fn has_waiting(&self, class: Class) -> bool {
        self.pool(class).waiting.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn try_take(self: &Arc<Self>, class: Class, bytes: usize) -> Option<Permit> {
        let asked = u32::try_from(bytes).ok()?;
        self.pool(class).free.try_acquire_many(asked).ok()?.forget();
        Some(self.granted(class, bytes, 0))
    }

    /// Waits for `bytes` of a pool or, in the large one, for the overdraft, which gives `missing` bytes.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        class: Class,
        bytes: usize,
        missing: usize,
    ) -> Result<Permit, BudgetError> {
        let max = self.reservation_max();
        let asked = u32::try_from(bytes).ok().filter(|_| missing <= max);
        let asked = asked.ok_or(BudgetError::TooLarge { asked: missing, max })?;
        let _waiting = Waiting::start(&self.waiting, &self.pool(class).waiting);
        let closed = |_: AcquireError| BudgetError::Closed;
        tokio::select! {
            biased;
            taken = self.pool(class).free.acquire_many(asked) => {
                taken.map_err(closed)?.forget();
                Ok(self.granted(class, bytes, 0))
            }
            overdraft = self.overdraft.acquire(), if class == Class::Large => {
                overdraft.map_err(closed)?.forget();
                self.overdrawn.store(missing, Ordering::Relaxed);
                Ok(self.granted(class, 0, missing))
            }
        }
    }

    fn granted(self: &Arc<Self>, class: Class, bytes: usize, overdrawn: usize) -> Permit {
        self.in_use.inc_by(gauge(bytes + overdrawn));
        let mut permit = Permit {
            budget: Arc::clone(self),
            small: 0,
            medium: 0,
            large: 0,
            overdrawn,
        };
        *permit.share(class) = bytes;
        permit
    }

    fn pool(&self, class: Class) -> &Pool {
        match class {
            Class::Small => &self.small,
            Class::Medium => &self.medium,
            Class::Large => &self.large,
        }
    }

    /// Returns bytes of the overdraft. With the last of them it is free for another request.
    fn repay(&self, bytes: usize) {
        if self.overdrawn.fetch_sub(bytes, Ordering::AcqRel) == bytes {
            self.overdraft.add_permits(1);
        }
    }
}

/// Counts a waiting request, correct even if the wait is cancelled.
struct Waiting<'a> {
    all: &'a Gauge,
    of_pool: &'a AtomicUsize,
}

impl<'a> Waiting<'a> {
    fn start(all: &'a Gauge, of_pool: &'a AtomicUsize) -> Self {
        all.inc();
        of_pool.fetch_add(1, Ordering::Relaxed);
        Self { all, of_pool }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.all.dec();
        self.of_pool.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reserved bytes, released on drop. Splitting and merging are plain arithmetic.
#[derive(Debug)]
pub struct Permit {
    budget: Arc<ByteBudget>,
    small: usize,
    medium: usize,
    large: usize,
    overdrawn: usize,
}

impl Permit {
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.small + self.medium + self.large + self.overdrawn
    }

    pub(crate) fn budget(&self) -> &Arc<ByteBudget> {
        &self.budget
    }

    /// Moves `bytes` (or all, if there are fewer) from this permit into a new one.
    #[must_use]
    pub fn split(&mut self, bytes: usize) -> Self {
        let mut left = bytes;
        let mut take = |from: &mut usize| {
            let taken = left.min(*from);
            *from -= taken;
            left -= taken;
            taken
        };
        Self {
            budget: Arc::clone(&self.budget),
            overdrawn: take(&mut self.overdrawn),
            small: take(&mut self.small),
            medium: take(&mut self.medium),
            large: take(&mut self.large),
        }
    }

    /// Adds another permit of the same budget to this one.
    pub fn merge(&mut self, mut other: Self) {
        debug_assert!(
            Arc::ptr_eq(&self.budget, &other.budget),
            "permits of two budgets do not mix"
        );
        self.small += mem::take(&mut other.small);
        self.medium += mem::take(&mut other.medium);
        self.large += mem::take(&mut other.large);
        self.overdrawn += mem::take(&mut other.overdrawn);
    }

    /// Releases the bytes beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let over = self.bytes().saturating_sub(bytes);
        drop(self.split(over));
    }

    fn share(&mut self, class: Class) -> &mut usize {
        match class {
            Class::Small => &mut self.small,
            Class::Medium => &mut self.medium,
            Class::Large => &mut self.large,
        }
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
            self.budget.small.free.add_permits(self.small);
        }
        if self.medium > 0 {
            self.budget.medium.free.add_permits(self.medium);
        }
        if self.large > 0 {
            self.budget.large.free.add_permits(self.large);
        }
        if self.overdrawn > 0 {
            self.budget.repay(self.overdrawn);
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
    async fn requests_of_one_pool_are_served_in_the_order_they_came() {
        let budget = budget();
        let held = budget.reserve(MIB / 2).await.unwrap();
        let mut first = Box::pin(budget.reserve(MIB));
        assert!(!is_ready(&mut first).await);
        let mut second = Box::pin(budget.reserve(MIB / 2));
        assert!(
            !is_ready(&mut second).await,
            "the second does not overtake, though there is room for it"
        );
        assert!(budget.try_reserve(MIB / 2).is_none());
        drop(held);
        let first = first.await.unwrap();
        assert!(!is_ready(&mut second).await);
        drop(first);
        assert_eq!(second.await.unwrap().bytes(), MIB / 2);
        assert_eq!(budget.in_use(), 0);
    }

    #[tokio::test]
    async fn small_and_medium_requests_never_starve_behind_large_ones() {
        let budget = budget();
        let _all = budget.reserve(2 * MIB).await.unwrap();
        let _more = budget.reserve(2 * MIB).await.unwrap();
        let mut next = Box::pin(budget.reserve(2 * MIB));
        assert!(!is_ready(&mut next).await);
        let _medium = budget.reserve(MIB).await.unwrap();
        let mut medium = Box::pin(budget.reserve(MIB));
        assert!(!is_ready(&mut medium).await);
        assert_eq!(budget.reserve(1000).await.unwrap().bytes(), 1000);
        assert_eq!(budget.waiting.get(), 2);
    }

    #[tokio::test]
    async fn of_large_requests_that_wait_one_goes_beyond_the_pool_and_the_next_when_it_is_done() {
        let budget = budget();
        let held = budget.reserve(2 * MIB).await.unwrap();
        let mut first = budget.reserve(3 * MIB).await.unwrap();
        assert_eq!((first.bytes(), budget.in_use()), (3 * MIB, 5 * MIB));
        let mut second = Box::pin(budget.reserve(3 * MIB));
        assert!(!is_ready(&mut second).await);
        drop(first.split(MIB));
        assert!(!is_ready(&mut second).await, "a part is still beyond the pool");
        drop(first);
        drop(second.await.unwrap());
        drop(held);
        assert_eq!(budget.in_use(), 0);
        assert_eq!(budget.in_use.get(), 0);
    }

    #[tokio::test]
    async fn a_cancelled_wait_leaves_nothing_behind() {
        let budget = budget();
        let held = budget.reserve(MIB / 2).await.unwrap();
        let mut waiting = Box::pin(budget.reserve(MIB));
        assert!(!is_ready(&mut waiting).await);
        drop(waiting);
        assert_eq!(budget.waiting.get(), 0);
        assert!(!budget.has_waiting(Class::Medium));
        assert_eq!(
            budget.try_reserve(MIB / 2).unwrap().bytes(),
            MIB / 2,
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
