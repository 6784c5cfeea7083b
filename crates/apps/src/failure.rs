//! A record that keeps failing: its attempts, and the time of the next one. Stored with the task, so a
//! take-over does not begin to count anew.

use bytes::Bytes;
use stafett_model::codec::{get, get_text, put_text};

/// Last attempts of which worker and error are kept.
const KEPT_MAX: usize = 20;
/// Deaths with a record after which it is delivered alone.
const DEATHS_ALONE: u32 = 2;
/// The fewest deaths after which no other worker gets it: one at least has to happen while it is alone.
const DEATHS_LEAST: u32 = DEATHS_ALONE + 1;
/// Limit on the text of an error, in bytes; a longer one is cut.
pub(crate) const ERROR_BYTES_MAX: usize = 1000;
/// Place of a timer that fails, among the inputs whose records do.
pub(crate) const TIMER: u8 = u8::MAX;
/// Time of a retry that never comes.
const NEVER: i64 = i64::MAX;
const RETRY_MS_MAX: i64 = 60_000;

/// Record at the position of a task that failed, or a timer that did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Failure {
    /// Offset of the record; 0 for a timer.
    pub offset: u64,
    /// Time of the next attempt, ms since 1970; the largest number if there is none.
    pub retry_ms: i64,
    /// Number of attempts.
    pub attempts: u32,
    /// Of these, workers that fell silent with the record.
    pub deaths: u32,
    /// Records before this offset are delivered alone, as one of them may be deadly; 0 if none is.
    pub alone_before: u64,
    /// The last of them.
    pub history: Vec<Attempt>,
    pub timer: Option<FailedTimer>,
}

/// A timer that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedTimer {
    pub key: Bytes,
    pub name: Bytes,
    /// Milliseconds since 1970.
    pub due: i64,
}

/// An attempt at a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Milliseconds since 1970.
    pub at_ms: i64,
    pub worker: Box<str>,
    pub error: Box<str>,
}

impl Failure {
    /// Notes an attempt. The next one is 1, 2, 4, … s later, at most a minute.
    pub(crate) fn note(&mut self, attempt: Attempt, is_last: bool) {
        let wait_ms = 1000_i64
            .checked_shl(self.attempts)
            .unwrap_or(RETRY_MS_MAX)
            .clamp(1000, RETRY_MS_MAX);
        self.retry_ms = if is_last { NEVER } else { attempt.at_ms + wait_ms };
        self.attempts = self.attempts.saturating_add(1);
        if self.history.len() >= KEPT_MAX {
            self.history.remove(0);
        }
        self.history.push(attempt);
    }

    /// Notes that a worker fell silent with the record. Another may have it at once, unless this was the last
    /// of as many deaths as the app allows attempts. Returns true if it was.
    pub(crate) fn note_death(&mut self, attempt: Attempt, attempts_max: u32, reached: u64) -> bool {
        self.deaths = self.deaths.saturating_add(1);
        let is_last = self.deaths >= attempts_max.max(DEATHS_LEAST);
        self.note(attempt, is_last);
        if !is_last {
            self.retry_ms = 0;
        }
        if self.deaths >= DEATHS_ALONE {
            self.alone_before = self.alone_before.max(reached);
        }
        is_last
    }

    /// Returns the part that is left once the position has passed the record.
    pub(crate) fn rest(&self, next: u64) -> Option<Self> {
        (self.alone_before > next).then(|| Self {
            offset: next,
            alone_before: self.alone_before,
            ..Self::default()
        })
    }

    /// True for a timer that nothing else comes with.
    pub(crate) fn comes_alone(&self) -> bool {
        self.timer.is_some() && self.deaths >= DEATHS_ALONE && !self.is_last()
    }

    /// True if the task stops at the record.
    pub(crate) fn is_last(&self) -> bool {
        self.retry_ms == NEVER
    }

    /// True if the record or timer is not to be delivered now. One that failed for the last time is held
    /// only if the app `stops` at it. No attempt waits longer than a minute, though the clock is set back.
    pub(crate) fn is_held(&self, now_ms: i64, stops: bool) -> bool {
        if self.is_last() {
            stops
        } else {
            (1..=RETRY_MS_MAX).contains(&self.retry_ms.saturating_sub(now_ms))
        }
    }

    /// Returns the error of the last attempt.
    pub fn last_error(&self) -> &str {
        self.history.last().map_or("", |attempt| &attempt.error)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = self.offset.to_le_bytes().to_vec();
        out.extend_from_slice(&self.retry_ms.to_le_bytes());
        out.extend_from_slice(&self.attempts.to_le_bytes());
        out.push(u8::try_from(self.history.len()).unwrap_or(u8::MAX));
        for attempt in &self.history {
            out.extend_from_slice(&attempt.at_ms.to_le_bytes());
            put_text(&attempt.worker, &mut out);
            put_text(&attempt.error, &mut out);
        }
        out.extend_from_slice(&self.deaths.to_le_bytes());
        out.extend_from_slice(&self.alone_before.to_le_bytes());
        if let Some(FailedTimer { key, name, due }) = &self.timer {
            out.extend_from_slice(&due.to_le_bytes());
            out.extend_from_slice(&u32::try_from(key.len()).unwrap_or(u32::MAX).to_le_bytes());
            out.extend_from_slice(key);
            out.extend_from_slice(name);
        }
        out
    }

    pub(crate) fn decode(mut rest: &[u8]) -> Option<Self> {
        let rest = &mut rest;
        let offset = u64::from_le_bytes(get(rest)?);
        let retry_ms = i64::from_le_bytes(get(rest)?);
        let attempts = u32::from_le_bytes(get(rest)?);
        let [count] = get(rest)?;
        let mut history = Vec::new();
        for _ in 0..count {
            history.push(Attempt {
                at_ms: i64::from_le_bytes(get(rest)?),
                worker: get_text(rest)?.into(),
                error: get_text(rest)?.into(),
            });
        }
        // Earlier versions end here.
        let (mut deaths, mut alone_before) = (0, 0);
        if !rest.is_empty() {
            deaths = u32::from_le_bytes(get(rest)?);
            alone_before = u64::from_le_bytes(get(rest)?);
        }
        let timer = if rest.is_empty() {
            None
        } else {
            let due = i64::from_le_bytes(get(rest)?);
            let length = usize::try_from(u32::from_le_bytes(get(rest)?)).ok()?;
            let (key, name) = std::mem::take(rest).split_at_checked(length)?;
            let (key, name) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(name));
            Some(FailedTimer { key, name, due })
        };
        Some(Self {
            offset,
            retry_ms,
            attempts,
            deaths,
            alone_before,
            history,
            timer,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(at_ms: i64) -> Attempt {
        Attempt {
            at_ms,
            worker: "w".into(),
            error: format!("error {at_ms}").into(),
        }
    }

    #[test]
    fn retries_come_later_each_time_and_the_last_attempts_are_kept() {
        let mut failure = Failure::default();
        let mut waits = Vec::new();
        for at_ms in 0..40 {
            failure.note(attempt(at_ms), false);
            waits.push(failure.retry_ms - at_ms);
        }
        assert_eq!(waits[..7], [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000]);
        assert_eq!(waits[39], 60_000);
        assert_eq!((failure.attempts, failure.history.len()), (40, KEPT_MAX));
        assert_eq!(failure.last_error(), "error 39");
        assert!(failure.is_held(failure.retry_ms - 1, true) && !failure.is_held(failure.retry_ms, true));
        failure.note(attempt(50), true);
        assert!(failure.is_last() && failure.is_held(i64::MAX, true) && !failure.is_held(0, false));
    }

    #[test]
    fn a_failure_is_read_back_and_a_cut_one_refused() {
        let mut failure = Failure {
            offset: 7,
            deaths: 1,
            alone_before: 9,
            ..Failure::default()
        };
        failure.note(attempt(1), false);
        failure.note(attempt(2), true);
        let bytes = failure.encode();
        assert_eq!(Failure::decode(&bytes), Some(failure));
        let earlier = bytes.len() - 12;
        for end in (0..bytes.len()).filter(|end| *end != earlier) {
            assert_eq!(Failure::decode(&bytes[..end]), None);
        }
        let earlier = Failure::decode(&bytes[..earlier]).unwrap();
        assert_eq!((earlier.deaths, earlier.attempts), (0, 2));
        let timer = FailedTimer {
            key: "key".into(),
            name: "name".into(),
            due: 5,
        };
        let failure = Failure {
            timer: Some(timer),
            ..earlier
        };
        let bytes = failure.encode();
        assert_eq!(Failure::decode(&bytes), Some(failure));
        assert_eq!(Failure::decode(&bytes[..bytes.len() - 5]), None);
    }

    #[test]
    fn an_attempt_waits_a_minute_at_most_though_the_clock_is_set_back() {
        let mut failure = Failure::default();
        failure.note(attempt(3_600_000), false);
        assert!(failure.is_held(3_600_000, false));
        assert!(!failure.is_held(0, false), "an hour back");
    }
}
