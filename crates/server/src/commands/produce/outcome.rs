//! Counts stored and failed records, and reports progress on a terminal, failures by line, and a summary.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use stafett_model::Lock;

use stafett_kafka_client::{ClientError, Delivery};

use crate::client::human;

/// Maximum number of failures reported one by one.
const TOLD_MAX: u64 = 20;
const CLEAR_LINE: &str = "\r\x1b[K";

/// Counts of records; updated by several threads.
#[derive(Debug)]
pub(super) struct Outcome {
    stored: AtomicU64,
    failed: AtomicU64,
    read_bytes: AtomicU64,
    input_bytes: Option<u64>,
    /// True after a failed delivery: sending stops.
    stop: AtomicBool,
    terminal: bool,
    told: Lock<u64>,
    since: Instant,
}

impl Outcome {
    pub(super) fn new(quiet: bool, input_bytes: Option<u64>) -> Self {
        Self {
            stored: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            input_bytes,
            stop: AtomicBool::new(false),
            terminal: !quiet && io::stderr().is_terminal(),
            told: Lock::new(0),
            since: Instant::now(),
        }
    }

    pub(super) fn read(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(0);
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn stored(&self) -> u64 {
        self.stored.load(Ordering::Relaxed)
    }

    pub(super) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    pub(super) fn seconds(&self) -> f64 {
        self.since.elapsed().as_secs_f64()
    }

    pub(super) fn must_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Counts a line that could not be sent, and reports it.
    pub(super) fn refuse(&self, line: u64, reason: &str) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.tell(&format!("line {line}: {reason}"));
    }

    pub(super) fn deliver(&self, delivery: &Delivery) {
        let Err(error) = &delivery.result else {
            self.stored.fetch_add(delivery.records, Ordering::Relaxed);
            return;
        };
        self.stop.store(true, Ordering::Relaxed);
        self.failed.fetch_add(delivery.records, Ordering::Relaxed);
        // The first failure of the partition has the reason.
        if matches!(error, ClientError::Behind) {
            return;
        }
        for (line, message) in &delivery.culprits {
            let reason = message.as_deref().unwrap_or("the broker refuses it");
            self.tell(&format!("line {line}: {reason}"));
        }
        let runs = delivery.marks.runs().iter().map(|(first, count)| match count {
            1 => first.to_string(),
            count => format!("{first}-{}", first + count - 1),
        });
        let runs: Vec<_> = runs.take(5).collect();
        let more = if delivery.marks.runs().len() > runs.len() {
            ", …"
        } else {
            ""
        };
        self.tell(&format!("lines {}{more}: {error}", runs.join(", ")));
    }

    fn tell(&self, failure: &str) {
        let mut told = self.told.lock();
        *told += 1;
        if *told <= TOLD_MAX {
            let clear = if self.terminal { CLEAR_LINE } else { "" };
            let _ = writeln!(io::stderr(), "{clear}stafett: {failure}");
        }
    }

    /// Returns the number of failures that were not reported.
    pub(super) fn untold(&self) -> u64 {
        let told = self.told.lock();
        told.saturating_sub(TOLD_MAX)
    }

    /// Shows progress if standard error is a terminal.
    pub(super) fn progress(&self) {
        if !self.terminal {
            return;
        }
        let (stored, read) = (self.stored(), self.read_bytes.load(Ordering::Relaxed));
        let of = self
            .input_bytes
            .filter(|all| *all > 0)
            .map_or_else(String::new, |all| {
                format!(" of {} ({}%)", human::size(all), read.saturating_mul(100) / all)
            });
        let _ = write!(
            io::stderr(),
            "{CLEAR_LINE}{} records stored, {} read{of}, {}/s",
            human::count(stored),
            human::size(read),
            human::count(self.rate())
        );
    }

    fn rate(&self) -> u64 {
        let rate = self.stored() as f64 / self.seconds().max(0.001);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate that is shown"
        )]
        let rate = rate as u64;
        rate
    }

    pub(super) fn summary(&self, topic: &str) {
        let clear = if self.terminal { CLEAR_LINE } else { "" };
        let records = if self.stored() == 1 { "record" } else { "records" };
        let _ = writeln!(
            io::stderr(),
            "{clear}{} {records} to {topic} in {:.2} s ({}/s)",
            human::count(self.stored()),
            self.seconds(),
            human::count(self.rate())
        );
    }
}
