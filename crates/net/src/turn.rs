//! Limits how long a connection keeps its thread before other tasks run.
//!
//! A peer that sends faster than its bytes are processed would keep the thread, and with it the timers and all
//! other connections of that thread: the runtime's own budget counts reads and writes, each of which may bring
//! hundreds of requests.

use std::time::Duration;

use tokio::task::yield_now;

/// Work after which other tasks run.
const TURN: Duration = Duration::from_millis(1);

/// Work of one connection since other tasks ran last, at most: waiting is not noticed.
#[derive(Debug, Default)]
pub struct Turn {
    worked: Duration,
}

impl Turn {
    /// Yields if needed after work of so long: returns at once, or after all other tasks that can run did, those
    /// among them for which bytes came meanwhile.
    pub async fn after(&mut self, worked: Duration) {
        self.worked += worked;
        if self.worked >= TURN {
            self.worked = Duration::ZERO;
            yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio_util::task::TaskTracker;

    use super::*;

    #[tokio::test]
    async fn others_have_their_turn_after_a_millisecond_of_work_in_small_pieces() {
        let turns = Arc::new(AtomicUsize::new(0));
        let other = TaskTracker::new().spawn({
            let turns = Arc::clone(&turns);
            async move {
                loop {
                    turns.fetch_add(1, Ordering::Relaxed);
                    yield_now().await;
                }
            }
        });
        let mut turn = Turn::default();
        for round in 0..3 {
            let before = turns.load(Ordering::Relaxed);
            for _ in 0..9 {
                turn.after(TURN / 10).await;
                assert_eq!(turns.load(Ordering::Relaxed), before, "in round {round}");
            }
            turn.after(TURN / 10).await;
            assert!(turns.load(Ordering::Relaxed) > before, "in round {round}");
        }
        other.abort();
    }
}
