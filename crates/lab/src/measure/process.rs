//! The kernel's figures of a process: `/proc` (proc(5)). Absent ones count as nothing.

use std::fs;

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
    let folder = format!("/proc/{pid}");
    let of = |name: &str| fs::read_to_string(format!("{folder}/{name}")).unwrap_or_default();
    let stat = fs::read_to_string(format!("{folder}/stat")).ok()?;
    let (cpu_user_s, cpu_system_s, threads) = of_stat(&stat)?;
    let status = of("status");
    let io = of("io");
    let (network_received_bytes, network_sent_bytes) = of_network(&of("net/dev"));
    let open_files = fs::read_dir(format!("{folder}/fd")).map_or(0, Iterator::count);
    Some(ProcessSample {
        cpu_user_s,
        cpu_system_s,
        memory_bytes: field(&status, "VmRSS:") * 1024,
        disk_read_bytes: field(&io, "read_bytes:"),
        disk_written_bytes: field(&io, "write_bytes:"),
        network_received_bytes,
        network_sent_bytes,
        open_files: u32::try_from(open_files).unwrap_or(u32::MAX),
        threads,
        context_switches: context_switches(&folder),
        ..ProcessSample::default()
    })
}

/// CPU seconds in user and system mode, and threads.
fn of_stat(stat: &str) -> Option<(f64, f64, u32)> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = behind_name.split_ascii_whitespace().collect();
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let seconds = |at: usize| Some(fields.get(at)?.parse::<f64>().ok()? / ticks);
    Some((seconds(11)?, seconds(12)?, fields.get(17)?.parse().ok()?))
}

/// Of all threads: the file of the process itself counts its first one alone.
fn context_switches(folder: &str) -> u64 {
    let threads = fs::read_dir(format!("{folder}/task"))
        .into_iter()
        .flatten()
        .flatten();
    threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok())
        .map(|status| {
            field(&status, "voluntary_ctxt_switches:") + field(&status, "nonvoluntary_ctxt_switches:")
        })
        .sum()
}

fn field(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_ascii_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// Bytes received and sent by all interfaces of the process's network namespace.
fn of_network(text: &str) -> (u64, u64) {
    let mut sums = (0, 0);
    for line in text.lines() {
        let Some((_, counters)) = line.split_once(':') else {
            continue;
        };
        let counters: Vec<u64> = counters
            .split_ascii_whitespace()
            .filter_map(|number| number.parse().ok())
            .collect();
        sums.0 += counters.first().copied().unwrap_or(0);
        sums.1 += counters.get(8).copied().unwrap_or(0);
    }
    sums
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

    #[test]
    fn names_with_spaces_and_brackets_do_not_confuse() {
        let stat = "12 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 7 0 99";
        let (user, system, threads) = of_stat(stat).unwrap();
        assert!((user / system - 5.0).abs() < 1e-9);
        assert_eq!(threads, 7);
        let net = "Inter-|\n face |bytes\n    lo: 10 1 0 0 0 0 0 0 20 1 0\n  eth0: 1 1 0 0 0 0 0 0 2 1 0\n";
        assert_eq!(of_network(net), (11, 22));
    }
}
