//! The share of its thread that a connection takes before others have their turn.
//!
//! Reads that are tried when a socket is said to be ready take nothing from the runtime's cooperative budget.
//! A peer that sends faster than its bytes are dealt with would keep the thread for as long as it likes, and
//! with it the timers and all other connections of that thread.

use tokio::task::consume_budget;

/// What is worth one of the 128 units of which a task may take in a row.
const UNIT_BYTES: usize = 4 * 1024;

/// To be called after so many bytes were read and dealt with: returns at once, or after others had their turn
/// if this task has dealt with half a mebibyte without waiting for anything.
pub async fn after(bytes: usize) {
    for _ in 0..=bytes / UNIT_BYTES {
        consume_budget().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio_util::task::TaskTracker;

    use super::*;

    #[tokio::test]
    async fn who_never_waits_lets_others_have_their_turn_after_half_a_mebibyte() {
        let turns = Arc::new(AtomicUsize::new(0));
        let other = TaskTracker::new().spawn({
            let turns = Arc::clone(&turns);
            async move {
                loop {
                    turns.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            }
        });
        let before = turns.load(Ordering::Relaxed);
        let mut read = 0;
        while turns.load(Ordering::Relaxed) == before {
            after(64 * 1024).await;
            read += 64 * 1024;
            assert!(read <= 512 * 1024, "nobody else had a turn");
        }
        other.abort();
    }
}
