//! A smaller or larger run of the same experiment: durations and totals are multiplied, rates and sizes are
//! not.

use std::time::Duration;

use super::units::Span;
use super::{Plan, Rate};

/// No time becomes shorter than this.
const SHORTEST: Duration = Duration::from_millis(100);
/// A point is sampled every second, so it lasts at least one.
const DURATION_MIN: Duration = Duration::from_secs(1);
/// Late messages come late however short the load was: less patience would call them lost.
const SETTLE_MIN: Duration = Duration::from_secs(2);

impl Plan {
    /// Returns the time that a session may take after its last message. It is the same at each scale.
    fn sessions_come_within(&self) -> Duration {
        let sessions = self.roles.values().filter_map(|role| role.session.as_ref());
        let times = sessions.map(|session| session.timeout.0 + session.worker_timeout.0);
        times.max().unwrap_or_default()
    }

    /// Takes the settings of all clients together, and of each of them, into the roles.
    pub(super) fn multiply(&mut self) {
        for role in self.roles.values_mut() {
            role.clients = role.clients.saturating_mul(self.run.clients_factor);
            if let Some(each) = role.rate_each.take() {
                role.rate = Rate::Fixed(each * f64::from(role.clients));
            }
        }
        self.run.clients_factor = 1;
    }

    pub(super) fn scale(&mut self, scale: f64) {
        let by = |span: &mut Span, least: Duration| {
            let least = least.min(span.0);
            span.0 = span.0.mul_f64(scale).max(least);
        };
        by(&mut self.run.duration, DURATION_MIN);
        by(&mut self.run.warmup, SHORTEST);
        by(&mut self.run.break_in, SHORTEST);
        // Messages that a fault held up come late however short the load was.
        let settle_min = if self.faults.is_empty() {
            SETTLE_MIN + self.sessions_come_within()
        } else {
            self.run.settle.0
        };
        by(&mut self.run.settle, settle_min);
        for fault in self.faults.values_mut() {
            by(&mut fault.at, SHORTEST);
            by(&mut fault.away, SHORTEST);
            fault.every.iter_mut().for_each(|every| by(every, SHORTEST));
        }
        for role in self.roles.values_mut() {
            if let Some(total) = &mut role.total {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a positive count"
                )]
                let scaled = (*total as f64 * scale).round() as u64;
                *total = scaled.max(1);
            }
            if let Some(arrive) = &mut role.arrive {
                by(&mut arrive.every, SHORTEST);
            }
            if let Some(commit) = &mut role.commit {
                by(commit, SHORTEST);
            }
            if let Some(kill) = &mut role.kill {
                by(&mut kill.after, SHORTEST);
                by(&mut kill.every, SHORTEST);
                by(&mut kill.away, SHORTEST);
            }
            match &mut role.rate {
                Rate::Steps(steps) => by(&mut steps.every, SHORTEST),
                Rate::Adaptive(adaptive) => by(&mut adaptive.every, SHORTEST),
                Rate::Closed | Rate::Fixed(_) | Rate::Poisson(_) => {}
            }
        }
    }
}
