//! Requests that each token may make (the generic cell rate algorithm: one time per token).

use std::collections::HashMap;
use std::time::Duration;

use sha2::{Digest, Sha256};
use stafett_model::Lock;
use tokio::time::Instant;

/// Tokens that are remembered, at most. Those whose time is over are forgotten.
const TOKENS_MAX: usize = 100_000;
/// Interval of looks for those.
const LOOK: Duration = Duration::from_secs(1);

/// Rate of each token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Time between two requests at the rate.
    step: Duration,
    /// Requests that may come at once.
    burst: u32,
}

/// Requests of the tokens of an endpoint.
#[derive(Debug)]
pub(crate) struct Limiter {
    limit: Limit,
    begun: Instant,
    tokens: Lock<Tokens>,
}

#[derive(Debug, Default)]
struct Tokens {
    /// Time since the begin at which each token, by its hash, has its whole burst again.
    full_at: HashMap<[u8; 32], Duration>,
    /// Time of the next look for those that can be forgotten.
    look_at: Duration,
}

impl Limit {
    /// `rate` is `50/s`.
    pub(crate) fn new(rate: &str, burst: u32) -> Option<Self> {
        let per_second: f64 = rate.strip_suffix("/s")?.trim().parse().ok()?;
        let is_sound = (0.001..=1e6).contains(&per_second) && burst > 0;
        is_sound.then(|| Self {
            step: Duration::from_secs_f64(1.0 / per_second),
            burst,
        })
    }
}

impl Limiter {
    pub(crate) fn new(limit: Limit) -> Self {
        Self {
            limit,
            begun: Instant::now(),
            tokens: Lock::default(),
        }
    }

    /// Takes a request of a token, or returns the seconds until it may come.
    pub(crate) fn take(&self, token: &str) -> Result<(), u64> {
        let now = self.begun.elapsed();
        let token: [u8; 32] = Sha256::digest(token).into();
        let mut tokens = self.tokens.lock();
        let Tokens { full_at, look_at } = &mut *tokens;
        if full_at.len() >= TOKENS_MAX && !full_at.contains_key(&token) {
            if now >= *look_at {
                full_at.retain(|_, at| *at > now);
                *look_at = now + LOOK;
            }
            if full_at.len() >= TOKENS_MAX {
                return Err(1);
            }
        }
        let Limit { step, burst } = self.limit;
        let known = full_at.get(&token).copied().unwrap_or_default();
        let ahead = known.saturating_sub(now);
        let wait = ahead.saturating_sub(step * (burst - 1));
        if !wait.is_zero() {
            return Err(wait.as_secs() + u64::from(wait.subsec_nanos() > 0));
        }
        full_at.insert(token, now + ahead + step);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_token_has_its_burst_and_then_its_rate() {
        let limiter = Limiter::new(Limit::new("2/s", 3).unwrap());
        let taken = |token: &str| limiter.take(token);
        assert_eq!(
            [taken("a"), taken("a"), taken("a"), taken("a")],
            [Ok(()), Ok(()), Ok(()), Err(1)]
        );
        assert_eq!(taken("b"), Ok(()), "another token");
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!([taken("a"), taken("a")], [Ok(()), Err(1)]);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(
            [taken("a"), taken("a"), taken("a"), taken("a")],
            [Ok(()), Ok(()), Ok(()), Err(1)]
        );
        let slow = Limiter::new(Limit::new("0.1/s", 1).unwrap());
        assert_eq!([slow.take("a"), slow.take("a")], [Ok(()), Err(10)]);
    }

    #[test]
    fn a_rate_is_a_number_per_second() {
        for rate in ["50", "0/s", "-1/s", "x/s", "1/h", "inf/s"] {
            assert_eq!(Limit::new(rate, 1), None, "{rate}");
        }
        assert_eq!(Limit::new("50/s", 0), None);
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_are_forgotten_once_they_have_their_burst_again() {
        let limiter = Limiter::new(Limit::new("1/s", 1).unwrap());
        for number in 0..TOKENS_MAX {
            assert_eq!(limiter.take(&number.to_string()), Ok(()));
        }
        assert_eq!(limiter.take("more"), Err(1));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(limiter.take("more"), Ok(()));
        assert_eq!(limiter.tokens.lock().full_at.len(), 1);
    }
}
