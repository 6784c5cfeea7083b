//! Memory of one request while it arrives.
//!
//! ```text
//! announced ─▶ all of it, if it is small or medium
//!           └▶ large: 1 MiB ─▶ as much again, when that has arrived ─▶ … ─▶ all of it
//! ```
//!
//! A large request thus holds at most 1 MiB, or twice the bytes that have arrived of it. While others wait
//! for memory of the same pool, a request without progress gives way: its connection is ended.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::budget::{BudgetError, ByteBudget, Class, Permit};

/// First step of a large request.
const STEP_BYTES: usize = 1024 * 1024;
/// Time that a request may be without progress while others wait.
pub const WINDOW: Duration = Duration::from_secs(2);
/// Bytes that count as progress in that time.
pub const WINDOW_BYTES_MIN: usize = 64 * 1024;

/// Reserved memory that grows with the bytes that have arrived of a request.
#[derive(Debug)]
pub struct Arrival {
    permit: Permit,
    class: Class,
    expected: usize,
    window_end: Option<Instant>,
    /// Bytes that had arrived when the window began.
    received_before: usize,
}

impl Arrival {
    /// Reserves the first step of a request of `expected` bytes if it is free and no request waits for it.
    /// `None` otherwise.
    #[must_use]
    pub fn try_begin(budget: &Arc<ByteBudget>, expected: usize) -> Option<Self> {
        let class = budget.class(expected);
        if class == Class::Large && expected > budget.reservation_max() {
            return None;
        }
        let permit = budget.try_take(class, first_step(class, expected))?;
        Some(Self::new(permit, class, expected))
    }

    /// Waits for the first step of a request of `expected` bytes. Safe to cancel. Takes nothing from the
    /// small pool, because the caller may already hold bytes of it.
    ///
    /// # Errors
    /// Fails at once if the budget can never hold `expected` bytes.
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

    /// Returns the size of the complete request.
    #[must_use]
    pub fn expected(&self) -> usize {
        self.expected
    }

    /// Returns how many bytes of the request may be in memory now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.permit.bytes()
    }

    /// Returns true if all of the request may be in memory.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.room() >= self.expected
    }

    /// Reserves the next step if it is free and no request waits for it.
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

    /// Returns the time for the next [`Self::gives_way`], given that `received` bytes have arrived.
    pub fn window_end(&mut self, now: Instant, received: usize) -> Instant {
        match self.window_end {
            Some(end) if now < end => end,
            // No window yet, or it ended while the connection was not reading.
            _ => self.begin_window(now, received),
        }
    }

    /// Returns true if a window has begun and ended.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        self.window_end.is_some_and(|end| end <= now)
    }

    /// Returns true if the request is to be ended at the end of a window: others wait, and it made no
    /// progress.
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

    /// Returns the memory of a request that has arrived.
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
