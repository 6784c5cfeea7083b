//! The waiting time of one connection's requests.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Shedding;

/// Requests of one connection, before they begin. Empty, and free, where nothing is shed.
#[derive(Debug, Default)]
pub struct Intake(Option<Box<State>>);

#[derive(Debug)]
struct State {
    shedding: Arc<Shedding>,
    /// Since when there was always something left to read or to execute.
    since: Option<Instant>,
    /// Requests counted as read and unanswered.
    requests: i64,
}

impl Intake {
    #[must_use]
    pub fn new(shedding: Option<&Arc<Shedding>>) -> Self {
        Self(shedding.map(|shedding| {
            Box::new(State {
                shedding: Arc::clone(shedding),
                since: None,
                requests: 0,
            })
        }))
    }

    /// Returns the listener's state, if it sheds.
    #[inline]
    #[must_use]
    pub fn shedding(&self) -> Option<&Arc<Shedding>> {
        self.0.as_ref().map(|state| &state.shedding)
    }

    /// True if the listener sheds: only then there is something to tell this.
    #[inline]
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.0.is_some()
    }

    /// Something is left to read or to execute, or the connection does not look whether there is.
    pub fn on_left(&mut self, now: Instant) {
        if let Some(state) = &mut self.0 {
            state.since.get_or_insert(now);
        }
    }

    /// All that came was read and executed.
    pub fn on_drained(&mut self) {
        if let Some(state) = &mut self.0 {
            state.since = None;
        }
    }

    /// Returns true if new work is refused. `oldest_write` is when the oldest write that is
    /// not stored yet began.
    pub fn refuses(&self, now: Instant, oldest_write: Option<Instant>) -> bool {
        let Some(state) = &self.0 else { return false };
        let since = match (state.since, oldest_write) {
            (Some(since), Some(write)) => Some(since.min(write)),
            (since, write) => since.or(write),
        };
        let waited = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        state.shedding.refuses(now, waited)
    }

    /// Counts refused work; `what` is one of a fixed set of words.
    pub fn refused(&self, what: &'static str, count: u64) {
        if let Some(state) = &self.0 {
            state.shedding.count(what, count);
        }
    }

    /// Tells how many of this connection's requests are read and unanswered.
    pub fn set_requests(&mut self, count: usize) {
        if let Some(state) = &mut self.0 {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            if count != state.requests {
                state.shedding.add_requests(count - state.requests);
                state.requests = count;
            }
        }
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.set_requests(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::NetMetrics;
    use crate::shedding::{Overload, SheddingSettings};

    fn shedding() -> Arc<Shedding> {
        let settings = SheddingSettings {
            waiting: Duration::from_millis(100),
            requests_max: 0,
        };
        Shedding::of(Overload::Shed(settings), "test", &NetMetrics::default()).unwrap()
    }

    /// One step of a script.
    enum Step {
        Left,
        Drained,
        /// A read may begin new work; refused or not.
        Work(bool),
        /// The same, with a write that is not stored since so many ms.
        Write(u64, bool),
    }

    fn run(script: &[(u64, Step)]) {
        let shedding = shedding();
        let mut intake = Intake::new(Some(&shedding));
        let start = Instant::now();
        for (at, step) in script {
            let now = start + Duration::from_millis(*at);
            match step {
                Step::Left => intake.on_left(now),
                Step::Drained => intake.on_drained(),
                Step::Work(refused) => assert_eq!(intake.refuses(now, None), *refused, "at {at}"),
                Step::Write(ms, refused) => {
                    let write = now - Duration::from_millis(*ms);
                    assert_eq!(intake.refuses(now, Some(write)), *refused, "at {at}");
                }
            }
        }
    }

    #[test]
    fn work_waits_since_its_connection_had_nothing_left() {
        run(&[
            (0, Step::Left),
            (150, Step::Work(false)),
            (200, Step::Left),
            (499, Step::Work(false)),
            (700, Step::Work(true)),
            (701, Step::Drained),
            (702, Step::Work(false)),
            (710, Step::Left),
            (809, Step::Work(false)),
            (811, Step::Work(true)),
        ]);
    }

    #[test]
    fn work_behind_a_write_that_is_not_stored_waits_for_it() {
        run(&[
            (0, Step::Write(300, false)),
            (600, Step::Write(300, true)),
            (601, Step::Write(99, false)),
        ]);
    }

    #[test]
    fn requests_of_a_connection_that_ends_do_not_wait_any_more() {
        let shedding = shedding();
        let mut intake = Intake::new(Some(&shedding));
        intake.set_requests(5);
        intake.set_requests(3);
        assert_eq!(shedding.waiting.get(), 3);
        drop(intake);
        assert_eq!(shedding.waiting.get(), 0);
    }

    #[test]
    fn without_shedding_nothing_is_kept_and_nothing_refused() {
        let mut intake = Intake::new(None);
        let now = Instant::now();
        intake.on_left(now);
        intake.set_requests(7);
        assert!(!intake.refuses(now + Duration::from_secs(9), Some(now)));
        assert!(!intake.is_used());
        assert_eq!(size_of::<Intake>(), 8);
    }
}
