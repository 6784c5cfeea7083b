//! Rate limit of log lines that strangers can cause.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;

/// Time between two lines of one listener.
const EVERY: Duration = Duration::from_secs(10);

/// Lines of one listener.
#[derive(Debug, Default)]
pub(crate) struct Notices(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    left_out: u64,
}

impl Notices {
    /// Returns the number of lines left out since the last one, if another line is due.
    pub(crate) fn due(&self) -> Option<u64> {
        let mut state = lock(&self.0);
        let now = Instant::now();
        if state.last.is_some_and(|last| now.duration_since(last) < EVERY) {
            state.left_out += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_line_is_due_every_ten_seconds_and_says_how_many_were_left_out() {
        let notices = Notices::default();
        assert_eq!(notices.due(), Some(0));
        for _ in 0..5 {
            assert_eq!(notices.due(), None);
        }
        tokio::time::advance(EVERY).await;
        assert_eq!(notices.due(), Some(5));
        assert_eq!(notices.due(), None);
    }
}
