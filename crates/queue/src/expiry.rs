//! Expiry of messages.
//!
//! The time to live starts with the arrival in the broker and runs on while the broker is down. A message
//! that moves to another queue arrives again.

use crate::settings::QueueSettings;

/// Returns how long a message may wait in a queue, in ms; `None` if there is no limit.
pub fn lifetime_ms(settings: &QueueSettings, ttl_ms: Option<u64>) -> Option<i64> {
    let ttl = match (settings.ttl_ms, ttl_ms) {
        (Some(queue), Some(message)) => queue.min(message),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => return None,
    };
    Some(i64::try_from(ttl).unwrap_or(i64::MAX))
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
        assert_eq!(lifetime_ms(&with(None), None), None);
        assert_eq!(lifetime_ms(&with(Some(10)), None), Some(10));
        assert_eq!(lifetime_ms(&with(Some(10)), Some(3)), Some(3));
        assert_eq!(lifetime_ms(&with(Some(1)), Some(3)), Some(1));
        assert_eq!(lifetime_ms(&with(None), Some(u64::MAX)), Some(i64::MAX));
    }
}
