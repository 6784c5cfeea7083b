//! Results of the clients of one role.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::super::choose::Chooser;
use super::super::derived_numbers::is_bounded;
use super::super::ledger;
use super::super::load::Actor;
use super::super::together::{RoleBooks, RoleProgress};
use crate::experiment::{Does, Plan};
use crate::results::{Counts, RoleResult};

impl Actor {
    /// Returns the progress of its clients here.
    pub(in super::super) fn progress(&self) -> RoleProgress {
        // First: a role that has ended makes no more.
        let has_ended = self.ended.is_cancelled();
        RoleProgress {
            made: self.made(),
            received: self.recorder.totals().received,
            spent: self.spent(),
            has_ended,
        }
    }

    fn spent(&self) -> Option<Duration> {
        let began = self.began.load(Ordering::Relaxed);
        let latest = self.recorder.latest();
        (began != u64::MAX).then(|| Duration::from_nanos(latest.saturating_sub(began)))
    }

    /// Returns its messages one by one, for the controller to put the books of all hosts together.
    pub(in super::super) fn books(&self) -> RoleBooks {
        // Others take part in no audience.
        let ledgers = self.ledgers.iter().filter(|_| self.role.does == Does::Consume);
        let came = (0..).zip(ledgers).flat_map(|(audience, ledger)| {
            let ledger = ledger.lock();
            ledger.pieces(audience)
        });
        let sent = |(stream, sequence): &(u32, Arc<AtomicU64>)| (*stream, sequence.load(Ordering::Relaxed));
        let given_up = self.recorder.all_given_up().into_iter();
        RoleBooks {
            came: came.collect(),
            streams: self.streams.iter().map(sent).collect(),
            given_up: given_up
                .map(|(stream, all)| (stream, ledger::encode(&all)))
                .collect(),
            active: self.recorder.active(),
        }
    }

    /// Different messages that were made and not given up.
    pub(in super::super) fn made(&self) -> u64 {
        let made: u64 = self
            .streams
            .iter()
            .map(|(_, sequence)| sequence.load(Ordering::Relaxed))
            .sum();
        made.saturating_sub(self.recorder.given_up())
    }

    /// One for all clients: shares of many topics take memory.
    pub(super) fn chooser(&self, count: u32, zipf: f64) -> Chooser {
        self.chooser.get_or_init(|| Chooser::new(count, zipf)).clone()
    }

    pub(super) fn result(&self, plan: &Plan, measured_s: f64, lost: u64) -> RoleResult {
        let finished = self.recorder.finish();
        let does = self.role.does;
        let own_time = self.recorder.active().filter(|_| is_bounded(plan, &self.role));
        let own_time = own_time.map(seconds).filter(|seconds| *seconds > 0.0);
        let (rate, bytes) = match own_time {
            Some(seconds) => rates(does, &finished.totals, seconds),
            None => rates(does, &finished.measured, measured_s),
        };
        let main = match does {
            Does::Produce => "acknowledged",
            Does::Consume | Does::Relay | Does::Respond => "delivery",
            Does::Request => "round_trip",
            Does::Filter | Does::Assemble | Does::Peek | Does::Idle => "none",
        };
        let latencies = [
            (main, finished.latency),
            ("lateness", finished.lateness),
            ("poll", finished.polls),
        ];
        let present = latencies
            .into_iter()
            .filter_map(|(name, latencies)| Some((name.to_owned(), latencies?)));
        RoleResult {
            name: self.name.clone(),
            does: does.name().to_owned(),
            clients: self.clients,
            counts: finished.measured,
            totals: Counts {
                lost,
                ..finished.totals
            },
            rate,
            bytes_rate: bytes,
            latencies: present.collect(),
            samples: finished.samples,
            windows: finished.windows,
        }
    }
}

/// Returns the time between two moments.
pub(crate) fn seconds((first, last): (u64, u64)) -> f64 {
    Duration::from_nanos(last.saturating_sub(first)).as_secs_f64()
}

/// Messages and bytes per second.
pub(crate) fn rates(does: Does, counts: &Counts, seconds: f64) -> (f64, f64) {
    if seconds <= 0.0 {
        return (0.0, 0.0);
    }
    let (messages, bytes) = match does {
        // Messages without an acknowledgement are not throughput; sizes are alike on average.
        Does::Produce => {
            let share = counts.acknowledged as f64 / counts.sent.max(1) as f64;
            (counts.acknowledged as f64, counts.bytes_sent as f64 * share)
        }
        Does::Consume
        | Does::Relay
        | Does::Request
        | Does::Respond
        | Does::Filter
        | Does::Assemble
        | Does::Peek
        | Does::Idle => (counts.received as f64, counts.bytes_received as f64),
    };
    (messages / seconds, bytes / seconds)
}
