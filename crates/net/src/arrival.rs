//! The memory of one request while it arrives.
//!
//! ```text
//! announced ─▶ all of it, if it is small or medium
//!           └▶ large: 1 MiB ─▶ as much again, when that has arrived ─▶ … ─▶ all of it
//! ```
//!
//! A request thus holds no more than 1 MiB, or twice what has arrived of it. While others wait for memory of
//! the same pool, a request that does not make progress gives way: its connection is ended.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::budget::{BudgetError, ByteBudget, Class, Permit};

/// The first step of a large request.
const STEP_BYTES: usize = 1024 * 1024;
/// How long a request may be without progress while others wait.
pub const WINDOW: Duration = Duration::from_secs(2);
/// What counts as progress in that time.
pub const WINDOW_BYTES_MIN: usize = 64 * 1024;

/// Reserved memory that grows with what has arrived of a request.
#[derive(Debug)]
pub struct Arrival {
    permit: Permit,
    class: Class,
    expected: usize,
    window_end: Option<Instant>,
    /// What had arrived when the window began.
    received_before: usize,
}

impl Arrival {
    /// Reserves the first step of a request of `expected` bytes if it is free and nobody waits for it.
    #[must_use]
    pub fn try_begin(budget: &Arc<ByteBudget>, expected: usize) -> Option<Self> {
        let class = budget.class(expected);
        if class == Class::Large && expected > budget.reservation_max() {
            return None;
        }
        let permit = budget.try_take(class, first_step(class, expected))?;
        Some(Self::new(permit, class, expected))
    }

    /// Waits for the first step of a request of `expected` bytes. Safe to cancel. The caller may hold bytes
    /// of the small pool, therefore nothing is taken from there.
    ///
    /// # Errors
    /// Fails at once if there will never be as much.
    pub async fn begin(budget: &Arc<ByteBudget>, expected: usize) -> Result<Self, BudgetError> {
        let class = match budget.class(expected) {
            Class::Small => Class::Medium,
            class @ (Class::Medium | Class::Large) => class,
        };
        let permit = budget.wait(class, first_step(class, expected), expected).await?;
        Ok(Self::new(permit, class, expected))
    }

    fn new(permit: Permit, class: Class, expected: usize) -> Self {
        Self {
            permit,
            class,
            expected,
            window_end: None,
            received_before: 0,
        }
    }

    /// How large the request will be.
    #[must_use]
    pub fn expected(&self) -> usize {
        self.expected
    }

    /// How many bytes of the request may be in memory now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.permit.bytes()
    }

    /// Whether all of the request may be in memory.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.room() >= self.expected
    }

    /// Reserves the next step if it is free and nobody waits for it.
    pub fn try_grow(&mut self) -> bool {
        let more = self.permit.budget().try_take(self.class, self.step());
        more.map(|more| self.permit.merge(more)).is_some()
    }

    /// Waits for the next step. Safe to cancel.
    ///
    /// # Errors
    /// Fails if the process is stopping.
    pub async fn grow(&mut self) -> Result<(), BudgetError> {
        let missing = self.expected.saturating_sub(self.room());
        let budget = Arc::clone(self.permit.budget());
        let more = budget.wait(self.class, self.step(), missing).await?;
        self.permit.merge(more);
        Ok(())
    }

    fn step(&self) -> usize {
        self.room().min(self.expected.saturating_sub(self.room()))
    }

    /// When to ask [`Self::gives_way`] next, `received` bytes having arrived.
    pub fn window_end(&mut self, now: Instant, received: usize) -> Instant {
        match self.window_end {
            Some(end) if now < end => end,
            // Either it begins, or nobody was waiting for the peer when it ended.
            _ => self.begin_window(now, received),
        }
    }

    /// Whether a window has begun and ended.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        self.window_end.is_some_and(|end| end <= now)
    }

    /// Whether, at the end of a window, the request is to be ended: others wait, and it made no progress.
    #[must_use]
    pub fn gives_way(&mut self, now: Instant, received: usize) -> bool {
        let progress = received.saturating_sub(self.received_before);
        self.begin_window(now, received);
        progress < WINDOW_BYTES_MIN && self.permit.budget().has_waiting(self.class)
    }

    fn begin_window(&mut self, now: Instant, received: usize) -> Instant {
        let end = now + WINDOW;
        self.window_end = Some(end);
        self.received_before = received;
        end
    }

    /// The memory of a request that has arrived.
    #[must_use]
    pub fn into_permit(self) -> Permit {
        self.permit
    }
}

fn first_step(class: Class, expected: usize) -> usize {
    match class {
        Class::Small | Class::Medium => expected,
        Class::Large => expected.min(STEP_BYTES),
    }
}
