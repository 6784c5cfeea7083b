//! Load shedding: a listener that is asked for more than it can do refuses new work at once, so that other
//! work is answered in time.
//!
//! The *waiting time* of a request is the time before it begins, as far as the broker sees it:
//!
//! - the time since its connection had nothing left to read or to execute ([`Intake`]). Under a load that one
//!   core cannot take, bytes stay in the sockets of all connections, and this grows without a bound;
//! - or, if that is longer, the time that its connection waits for the oldest write to be stored: the disk
//!   may be slow;
//! - and the time from when a task may run until it does, which a task without work measures
//!   ([`Shedding::measure`]). With many connections that ask for little, requests wait there.
//!
//! [`rule`] decides. With [`Overload::Backpressure`] there is no state at all: a connection's [`Intake`] is
//! empty.

mod intake;
pub mod rule;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::time::{Instant, sleep_until};

pub use self::intake::Intake;
use self::rule::Rule;
use crate::lock::lock;
use crate::metrics::{NetMetrics, ShedCounters};

/// Behaviour of a listener that is asked for more than it can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overload {
    /// Requests wait in the sockets, and their clients with them.
    #[default]
    Backpressure,
    /// New work that waited too long is refused.
    Shed(SheddingSettings),
}

impl Overload {
    /// Returns the word in settings.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Backpressure => "backpressure",
            Self::Shed(_) => "shed",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SheddingSettings {
    /// Time that a request may wait.
    pub waiting: Duration,
    /// Requests that may be read and unanswered. 0: any number.
    pub requests_max: u64,
}

/// Gauge of seconds.
pub(crate) type Seconds = Gauge<f64, AtomicU64>;

/// Load shedding of one listener.
#[derive(Debug)]
pub struct Shedding {
    settings: SheddingSettings,
    rule: Mutex<Rule>,
    /// Time that tasks wait for a thread, in µs.
    late_us: AtomicU64,
    /// Requests that are read and unanswered, of all connections.
    requests: AtomicI64,
    oldest: Seconds,
    waiting: Gauge,
    shed: ShedCounters,
}

impl Shedding {
    /// Returns the state for a listener of this name. `None` if nothing is shed.
    pub(crate) fn of(overload: Overload, name: &'static str, metrics: &NetMetrics) -> Option<Arc<Self>> {
        let Overload::Shed(settings) = overload else {
            return None;
        };
        let (oldest, waiting) = metrics.waiting(name);
        Some(Arc::new(Self {
            rule: Mutex::new(Rule::new(settings.waiting)),
            settings,
            late_us: AtomicU64::new(0),
            requests: AtomicI64::new(0),
            oldest,
            waiting,
            shed: metrics.shed(name),
        }))
    }

    /// Takes the waiting time of new work, as its connection sees it. Returns true if it is refused.
    pub fn refuses(&self, now: Instant, waited: Duration) -> bool {
        let late = Duration::from_micros(self.late_us.load(Ordering::Relaxed));
        let is_long = self.rule().refuses(now, waited.saturating_add(late));
        let max = self.settings.requests_max;
        let is_full = || u64::try_from(self.requests.load(Ordering::Relaxed)).is_ok_and(|count| count >= max);
        is_long || max > 0 && is_full()
    }

    /// True while requests are refused for their waiting time.
    #[must_use]
    pub fn is_shedding(&self) -> bool {
        self.rule().is_shedding()
    }

    /// Returns the time that a request may wait, which is how long clients are to hold back.
    #[must_use]
    pub fn waiting(&self) -> Duration {
        self.settings.waiting
    }

    /// Counts refused work; `what` is one of a fixed set of words.
    pub fn count(&self, what: &'static str, count: u64) {
        self.shed.add(what, count);
    }

    /// Adds requests that were read, or with a negative number takes answered ones away.
    pub fn add_requests(&self, count: i64) {
        let before = self.requests.fetch_add(count, Ordering::Relaxed);
        self.waiting.set(before + count);
    }

    /// Measures how long a task waits for a thread, at every tenth of the waiting time; never returns.
    pub(crate) async fn measure(&self) {
        let every = (self.settings.waiting / 10).clamp(Duration::from_millis(1), Duration::from_millis(100));
        loop {
            let due = Instant::now() + every;
            sleep_until(due).await;
            // A task that a timer wakes may run before others that waited longer. This puts it behind them.
            tokio::task::yield_now().await;
            self.on_measured(Instant::now(), due);
        }
    }

    fn rule(&self) -> MutexGuard<'_, Rule> {
        lock(&self.rule)
    }

    fn on_measured(&self, now: Instant, due: Instant) {
        /// Timers are no finer than this.
        const GRAIN: Duration = Duration::from_millis(2);
        let late = now.saturating_duration_since(due).saturating_sub(GRAIN);
        let late_us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        self.late_us.store(late_us, Ordering::Relaxed);
        let mut rule = self.rule();
        rule.advance(now);
        let oldest = rule.oldest().max(late);
        drop(rule);
        self.oldest.set(oldest.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: SheddingSettings = SheddingSettings {
        waiting: Duration::from_millis(100),
        requests_max: 3,
    };

    fn shedding() -> Arc<Shedding> {
        Shedding::of(Overload::Shed(SETTINGS), "test", &NetMetrics::default()).unwrap()
    }

    #[test]
    fn nothing_is_kept_for_a_listener_that_does_not_shed() {
        let none = Shedding::of(Overload::Backpressure, "test", &NetMetrics::default());
        assert!(none.is_none());
    }

    #[test]
    fn a_thread_that_is_late_makes_all_requests_wait() {
        let shedding = shedding();
        let now = Instant::now();
        shedding.on_measured(now, now - Duration::from_millis(250));
        assert!(shedding.oldest.get() > 0.2);
        let ms = Duration::from_millis;
        assert!((0..50).all(|at| !shedding.refuses(now + ms(at * 10), Duration::ZERO)));
        assert!(shedding.refuses(now + ms(500), Duration::ZERO));
        shedding.on_measured(now + ms(500), now + ms(500));
        assert!(!shedding.refuses(now + ms(510), Duration::ZERO));
        assert!(shedding.is_shedding(), "until an interval without a long wait");
    }

    #[test]
    fn more_requests_than_may_be_are_refused_whatever_they_waited() {
        let shedding = shedding();
        let now = Instant::now();
        shedding.add_requests(2);
        assert!(!shedding.refuses(now, Duration::ZERO));
        shedding.add_requests(1);
        assert!(shedding.refuses(now, Duration::ZERO));
        shedding.add_requests(-1);
        assert!(!shedding.refuses(now, Duration::ZERO));
        assert_eq!(shedding.waiting.get(), 2);
    }
}
