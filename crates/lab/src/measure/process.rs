//! The kernel's figures of a process: `/proc` (proc(5)). Absent ones count as nothing.

use std::fs;

use procfs::net::DeviceStatus;
use procfs::process::Process;

use crate::results::{ProcessKind, ProcessSample, ProcessSeries};

/// Watches one process.
#[derive(Debug)]
pub struct Watched {
    series: ProcessSeries,
    /// The last reading: counters are sums since the process began.
    last: Option<ProcessSample>,
}

impl Watched {
    pub fn new(kind: ProcessKind, pid: u32) -> Self {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let last = read(pid);
        Self {
            series: ProcessSeries {
                kind,
                name: name.trim().to_owned(),
                pid,
                first_memory_bytes: last.map_or(0, |reading| reading.memory_bytes),
                samples: Vec::new(),
            },
            last,
        }
    }

    /// Takes a sample of the `seconds` that end at `at_s`.
    pub fn sample(&mut self, at_s: f64, seconds: f64) {
        let (Some(now), Some(before)) = (read(self.series.pid), self.last) else {
            return;
        };
        let since = |of: fn(&ProcessSample) -> u64| of(&now).saturating_sub(of(&before));
        self.series.samples.push(ProcessSample {
            at_s,
            seconds,
            cpu_user_s: (now.cpu_user_s - before.cpu_user_s).max(0.0),
            cpu_system_s: (now.cpu_system_s - before.cpu_system_s).max(0.0),
            disk_read_bytes: since(|of| of.disk_read_bytes),
            disk_written_bytes: since(|of| of.disk_written_bytes),
            network_received_bytes: since(|of| of.network_received_bytes),
            network_sent_bytes: since(|of| of.network_sent_bytes),
            context_switches: since(|of| of.context_switches),
            ..now
        });
        self.last = Some(now);
    }

    pub fn kind(&self) -> ProcessKind {
        self.series.kind
    }

    /// Returns the sample of the second that ended at `at_s`; `None` if the process has none.
    pub fn last_sample(&self, at_s: f64) -> Option<ProcessSample> {
        let last = self.series.samples.last().copied();
        last.filter(|sample| sample.at_s.total_cmp(&at_s).is_eq())
    }

    pub fn finish(self) -> ProcessSeries {
        self.series
    }
}

/// Resident memory of a process.
pub fn memory_bytes(pid: u32) -> Option<u64> {
    read(pid).map(|reading| reading.memory_bytes)
}

/// Returns the figures of a process at this moment; counters are sums since it began.
fn read(pid: u32) -> Option<ProcessSample> {
    let process = Process::new(i32::try_from(pid).ok()?).ok()?;
    let stat = process.stat().ok()?;
    let memory_kib = process.status().ok().and_then(|status| status.vmrss);
    let io = process.io().ok();
    // All interfaces of the process's network namespace.
    let interfaces = process.dev_status().unwrap_or_default();
    let network = |of: fn(&DeviceStatus) -> u64| interfaces.values().map(of).sum();
    let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
    Some(ProcessSample {
        cpu_user_s: seconds(stat.utime),
        cpu_system_s: seconds(stat.stime),
        memory_bytes: memory_kib.unwrap_or(0) * 1024,
        disk_read_bytes: io.as_ref().map_or(0, |io| io.read_bytes),
        disk_written_bytes: io.as_ref().map_or(0, |io| io.write_bytes),
        network_received_bytes: network(|interface| interface.recv_bytes),
        network_sent_bytes: network(|interface| interface.sent_bytes),
        open_files: u32::try_from(process.fd_count().unwrap_or(0)).unwrap_or(u32::MAX),
        threads: u32::try_from(stat.num_threads).unwrap_or(0),
        context_switches: context_switches(&process),
        ..ProcessSample::default()
    })
}

/// Of all threads: the file of the process itself counts its first one alone.
fn context_switches(process: &Process) -> u64 {
    let threads = process.tasks().into_iter().flatten().flatten();
    let statuses = threads.filter_map(|thread| thread.status().ok());
    let switches =
        statuses.flat_map(|status| [status.voluntary_ctxt_switches, status.nonvoluntary_ctxt_switches]);
    switches.flatten().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_sees_what_it_does_itself() {
        let mut watched = Watched::new(ProcessKind::Client, std::process::id());
        let file = fs::File::open("/proc/self/status").unwrap();
        watched.sample(1.0, 1.0);
        drop(file);
        let series = watched.finish();
        let sample = series.samples[0];
        assert!(sample.memory_bytes > 1 << 20);
        assert!(sample.threads >= 1);
        assert!(sample.open_files >= 3);
        assert!(!series.name.is_empty());
    }

    #[test]
    fn a_process_that_is_gone_has_no_samples() {
        let mut watched = Watched::new(ProcessKind::Broker, u32::MAX);
        watched.sample(1.0, 1.0);
        assert!(watched.finish().samples.is_empty());
    }
}
