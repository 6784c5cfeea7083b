//! The system's clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the milliseconds since 1970 by the system's clock, which may be set forward or back.
pub fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
