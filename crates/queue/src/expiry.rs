//! When a message has waited for too long.
//!
//! A message's time runs from its arrival in the broker, by the wall clock, and goes on while the broker is down. The
//! clock that is asked never goes back within a run of the program: after it was set back, messages live longer by
//! that; after it was set forward, they expire early. A message that moves to another queue arrives anew.

use crate::settings::QueueSettings;

/// When a message that arrived at `arrived_ms` expires in a queue, ms since 1970; `None`: never.
pub fn expires_at(settings: &QueueSettings, arrived_ms: i64, ttl_ms: Option<u64>) -> Option<i64> {
    let ttl = match (settings.ttl_ms, ttl_ms) {
        (Some(queue), Some(message)) => queue.min(message),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => return None,
    };
    Some(arrived_ms.saturating_add(i64::try_from(ttl).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_of_the_queues_and_the_messages_time_counts() {
        let with = |ttl_ms| QueueSettings {
            ttl_ms,
            ..QueueSettings::default()
        };
        assert_eq!(expires_at(&with(None), 5, None), None);
        assert_eq!(expires_at(&with(Some(10)), 5, None), Some(15));
        assert_eq!(expires_at(&with(Some(10)), 5, Some(3)), Some(8));
        assert_eq!(expires_at(&with(Some(1)), 5, Some(3)), Some(6));
        assert_eq!(expires_at(&with(None), 5, Some(u64::MAX)), Some(i64::MAX));
    }
}
