//! Limits how long a connection keeps its thread before other tasks run.
//!
//! Reads tried on a socket that is reported as ready take nothing from the runtime's cooperative budget. A
//! peer that sends faster than its bytes are processed would keep the thread, and with it the timers and all
//! other connections of that thread.

use tokio::task::consume_budget;

/// Bytes that cost one of the 128 units that a task may use in a row.
const UNIT_BYTES: usize = 4 * 1024;

/// Yields if needed after `bytes` were read and processed: returns at once, or after other tasks ran if this
/// task has processed half a mebibyte without waiting.
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
