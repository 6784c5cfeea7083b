//! Samples of every second, of roles and of processes.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::histogram;

/// The series that a figure of the kind `time` can draw, by name. Those of processes without another's name
/// are the broker's.
pub const SERIES: &[&str] = &[
    "rate",
    "band",
    "p2_5",
    "p50",
    "mean",
    "p97_5",
    "p99",
    "max",
    "clients",
    "timed_out",
    "failed",
    "reconnects",
    "backlog",
    "broker_cpu",
    "broker_cpu_user",
    "broker_cpu_system",
    "client_cpu",
    "client_cpu_user",
    "client_cpu_system",
    "broker_memory",
    "network_in",
    "network_out",
    "disk_read",
    "disk_written",
    "threads",
    "open_files",
    "context_switches",
];
/// Length of the windows whose latencies are kept whole.
pub const WINDOW_S: f64 = 10.0;

/// One second of a role. Counts are of that second alone.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct RateSample {
    /// The end of the second, since the load began; warm-up included.
    pub at_s: f64,
    /// Its length: about 1.
    pub seconds: f64,
    /// Clients that were at work at its end.
    pub clients: u32,
    pub sent: u64,
    pub acknowledged: u64,
    pub received: u64,
    pub failed: u64,
    pub timed_out: u64,
    pub reconnects: u64,
    /// Of the role's main latency, in microseconds; absent in a second without one.
    pub p50_us: Option<u64>,
    pub p99_us: Option<u64>,
    pub max_us: Option<u64>,
    /// Ends of the band that holds 95 % of them; absent in results of earlier programs.
    #[serde(default)]
    pub p2_5_us: Option<u64>,
    #[serde(default)]
    pub p97_5_us: Option<u64>,
    #[serde(default)]
    pub mean_us: Option<u64>,
}

/// The main latency of a role in ten seconds, of which any quantile can be taken, also of several windows
/// together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// The end of the window, since the load began.
    pub at_s: f64,
    /// In the encoding of [`histogram::encode`].
    pub histogram: String,
}

/// The windows of a role, the last one open.
#[derive(Debug, Default)]
pub struct Windows {
    open: Option<(f64, Histogram<u64>)>,
    closed: Vec<Window>,
}

impl Windows {
    /// Adds the latencies of the second that ends at `at_s`.
    pub fn add(&mut self, at_s: f64, latencies: &Histogram<u64>) {
        if latencies.is_empty() {
            return;
        }
        // A sample that is a little late is of the window before.
        let end = ((at_s - 0.5) / WINDOW_S).floor().max(0.0) * WINDOW_S + WINDOW_S;
        if self.open.as_ref().is_some_and(|(open, _)| *open < end) {
            self.close();
        }
        let (_, open) = self.open.get_or_insert_with(|| (end, histogram::empty()));
        // Both have the lab's own bounds.
        let _ = open.add(latencies);
    }

    fn close(&mut self) {
        self.closed.extend(self.open.take().map(|(at_s, all)| Window {
            at_s,
            histogram: histogram::encode(&all),
        }));
    }

    /// Returns all windows with a latency.
    pub fn finish(&mut self) -> Vec<Window> {
        self.close();
        std::mem::take(&mut self.closed)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessKind {
    Broker,
    Client,
}

/// One process over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessSeries {
    pub kind: ProcessKind,
    /// The program's name.
    pub name: String,
    pub pid: u32,
    /// Resident memory before the load.
    pub first_memory_bytes: u64,
    pub samples: Vec<ProcessSample>,
}

impl RateSample {
    /// Takes the quantiles of the latencies of that second.
    pub fn take_quantiles(&mut self, latencies: &Histogram<u64>) {
        let of = |quantile| (!latencies.is_empty()).then(|| latencies.value_at_quantile(quantile));
        self.p2_5_us = of(0.025);
        self.p50_us = of(0.5);
        self.p97_5_us = of(0.975);
        self.p99_us = of(0.99);
        self.max_us = of(1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between the least and the longest latency"
        )]
        let mean = latencies.mean().round() as u64;
        self.mean_us = (!latencies.is_empty()).then_some(mean);
    }
}

/// One second of a process. Sums are of that second alone; the others are as they are at its end.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ProcessSample {
    pub at_s: f64,
    pub seconds: f64,
    /// CPU seconds.
    pub cpu_user_s: f64,
    pub cpu_system_s: f64,
    /// Resident memory.
    pub memory_bytes: u64,
    /// To and from the device, not the page cache.
    pub disk_read_bytes: u64,
    pub disk_written_bytes: u64,
    /// The whole machine's network interface or, on one machine, loopback: the kernel does not count by
    /// process.
    pub network_received_bytes: u64,
    pub network_sent_bytes: u64,
    pub open_files: u32,
    pub threads: u32,
    pub context_switches: u64,
}
