//! Limits how long a connection keeps its thread before other tasks run.
//!
//! A peer that sends faster than its bytes are processed would keep the thread, and with it the timers and
//! all other connections of that thread. The runtime's own budget counts operations on sockets: each may
//! bring hundreds of requests, and reads tried on a socket that is reported as ready are not in it.

use std::time::Duration;

use tokio::task::yield_now;

/// Work after which other tasks run.
const TURN: Duration = Duration::from_millis(2);
/// Bytes that count as much as the work of a turn, for a connection that does not measure its reads.
const TURN_BYTES: u32 = 2 << 20;

/// Work of one connection in its turn.
#[derive(Debug, Default)]
pub struct Turn {
    worked: Duration,
}

impl Turn {
    /// Adds work that took so long.
    pub fn add(&mut self, worked: Duration) {
        self.worked += worked;
    }

    /// Adds the reading of bytes.
    pub fn add_read(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.worked += TURN * bytes.div_ceil(TURN_BYTES / 128) / 128;
    }

    /// Returns at once while the turn lasts. When it is over, returns behind the other tasks that can run,
    /// those among them for which bytes came meanwhile, and begins the next one.
    pub async fn end(&mut self) {
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
    async fn others_have_their_turn_after_two_milliseconds_of_work_or_two_mebibytes_in_small_pieces() {
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
        let pieces: [fn(&mut Turn); 2] = [|turn| turn.add(TURN / 8), |turn| turn.add_read(256 * 1024)];
        for add in pieces {
            let before = turns.load(Ordering::Relaxed);
            for _ in 0..7 {
                add(&mut turn);
                turn.end().await;
                assert_eq!(turns.load(Ordering::Relaxed), before);
            }
            add(&mut turn);
            turn.end().await;
            assert!(turns.load(Ordering::Relaxed) > before);
        }
        other.abort();
    }

    #[test]
    fn no_number_of_bytes_is_too_large() {
        let mut turn = Turn::default();
        turn.add_read(usize::MAX);
        assert!(turn.worked > TURN);
    }
}
