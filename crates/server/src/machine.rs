//! Readings of the machine and of the process, taken every 5 s from `/proc` (proc(5)). Readings that the
//! system does not give are 0.

use std::fs;
use std::path::PathBuf;

use stafett_admin::node::{MachineUsage, ProcessUsage, Usage};

use crate::usage;

/// Bytes of a sector in `/proc/diskstats`, whatever the disk.
const SECTOR: u64 = 512;
/// Limit of the control group's memory.
const GROUP_MEMORY_MAX: &str = "/sys/fs/cgroup/memory.max";

/// Counters of one reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counters {
    /// Ticks of all processors: for programs, for the system, waiting for disks, and all together.
    cpu: (u64, u64, u64, u64),
    disk: (u64, u64),
    network: (u64, u64),
    process: (u64, u64),
    process_disk: (u64, u64),
}

/// Reader of the machine.
#[derive(Debug)]
pub(crate) struct MachineReader {
    data_dir: PathBuf,
    descriptors_max: u64,
    before: Option<(f64, Counters)>,
}

impl MachineReader {
    pub(crate) fn new(data_dir: PathBuf, descriptors_max: u64) -> Self {
        Self {
            data_dir,
            descriptors_max,
            before: None,
        }
    }

    /// Takes a reading at `now_s` of a time that is never set; rates are those since the one before.
    pub(crate) fn read(&mut self, now_s: f64) -> Usage {
        let now = Counters::read();
        let before = self.before.replace((now_s, now));
        let (since, before) = before.unwrap_or((now_s, now));
        let seconds = (now_s - since).max(f64::EPSILON);
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let all = now.cpu.3.saturating_sub(before.cpu.3).max(1) as f64;
        let share = |now: u64, before: u64| now.saturating_sub(before) as f64 / all;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let (memory_bytes, memory_available_bytes) = memory();
        Usage {
            machine: MachineUsage {
                cores,
                cpu_user: share(now.cpu.0, before.cpu.0),
                cpu_system: share(now.cpu.1, before.cpu.1),
                cpu_wait: share(now.cpu.2, before.cpu.2),
                memory_bytes,
                memory_available_bytes,
                disk_free_bytes: usage::disk_free_bytes(&self.data_dir).unwrap_or_default(),
                disk_read_rate: rate(now.disk.0, before.disk.0),
                disk_written_rate: rate(now.disk.1, before.disk.1),
                network_received_rate: rate(now.network.0, before.network.0),
                network_sent_rate: rate(now.network.1, before.network.1),
            },
            process: ProcessUsage {
                cpu_user: rate(now.process.0, before.process.0) / ticks,
                cpu_system: rate(now.process.1, before.process.1) / ticks,
                resident_bytes: usage::resident_bytes()
                    .map_or(0, |bytes| u64::try_from(bytes).unwrap_or_default()),
                descriptors: usage::open_descriptors()
                    .map_or(0, |count| u64::try_from(count).unwrap_or_default()),
                descriptors_max: self.descriptors_max,
                disk_read_rate: rate(now.process_disk.0, before.process_disk.0),
                disk_written_rate: rate(now.process_disk.1, before.process_disk.1),
            },
        }
    }
}

impl Counters {
    fn read() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        Self {
            cpu: cpu(&text("/proc/stat")),
            disk: disks(&text("/proc/diskstats")),
            network: network(&text("/proc/net/dev")),
            process: usage::cpu_ticks().unwrap_or_default(),
            process_disk: process_disk(&text("/proc/self/io")),
        }
    }
}

/// Reads the line of all processors: user, nice, system, idle, iowait, irq, softirq, steal.
fn cpu(stat: &str) -> (u64, u64, u64, u64) {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let fields: Vec<u64> = numbers(line.unwrap_or_default());
    let at = |place: usize| fields.get(place).copied().unwrap_or_default();
    let all = (0..8).map(at).sum();
    (at(0) + at(1), at(2) + at(5) + at(6), at(4), all)
}

/// Sums up the sectors that whole disks have read and written.
fn disks(stats: &str) -> (u64, u64) {
    let (mut read, mut written) = (0, 0);
    for line in stats.lines() {
        let mut words = line.split_whitespace().skip(2);
        let name = words.next().unwrap_or_default();
        if is_disk(name) {
            let fields: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
            read += fields.get(2).copied().unwrap_or_default();
            written += fields.get(6).copied().unwrap_or_default();
        }
    }
    (read * SECTOR, written * SECTOR)
}

/// Returns true for a whole disk. Partitions, and disks made of others, would count twice.
fn is_disk(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if name.starts_with("nvme") || name.starts_with("mmcblk") {
        return !name.rsplit_once('p').is_some_and(|(_, rest)| is_number(rest));
    }
    let lettered = ["sd", "vd", "hd", "xvd"];
    lettered.iter().any(|start| {
        name.strip_prefix(start)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_lowercase()))
    })
}

/// Sums up the bytes that interfaces have received and sent, without the loopback one.
fn network(devices: &str) -> (u64, u64) {
    let (mut received, mut sent) = (0, 0);
    for line in devices.lines() {
        let Some((name, fields)) = line.split_once(':') else {
            continue;
        };
        if name.trim() != "lo" {
            let fields = numbers(fields);
            received += fields.first().copied().unwrap_or_default();
            sent += fields.get(8).copied().unwrap_or_default();
        }
    }
    (received, sent)
}

fn process_disk(io: &str) -> (u64, u64) {
    let field = |name: &str| {
        let value = io.lines().find_map(|line| line.strip_prefix(name));
        value
            .and_then(|value| value.trim().parse().ok())
            .unwrap_or_default()
    };
    (field("read_bytes:"), field("write_bytes:"))
}

/// Returns the memory, and that which programs can still get; of the control group, if it has less.
fn memory() -> (u64, u64) {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let (all, available) = (field_kib(&text, "MemTotal:"), field_kib(&text, "MemAvailable:"));
    let limit = fs::read_to_string(GROUP_MEMORY_MAX).ok();
    let limit: Option<u64> = limit.and_then(|limit| limit.trim().parse().ok());
    let all_here = limit.map_or(all, |limit| limit.min(all));
    (all_here, available.min(all_here))
}

fn field_kib(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib: Option<u64> = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.unwrap_or_default().saturating_mul(1024)
}

fn numbers(text: &str) -> Vec<u64> {
    text.split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_disks_and_interfaces_are_read() {
        let stat = "cpu  10 1 20 300 4 5 6 7 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(cpu(stat), (11, 31, 4, 353));
        let disk = "   8 0 sda 1 0 100 0 1 0 200 0 0 0 0\n   8 1 sda1 1 0 100 0 1 0 200 0 0 0 0\n 259 0 nvme0n1 1 0 10 0 \
                    1 0 20 0 0 0 0\n 259 1 nvme0n1p1 1 0 10 0 1 0 20 0 0 0 0\n 253 0 dm-0 1 0 100 0 1 0 200 0 0 0 0\n";
        assert_eq!(disks(disk), (110 * SECTOR, 220 * SECTOR));
        let devices =
            "Inter-|   Receive\n face |bytes\n    lo: 9 0 0 0 0 0 0 0 9 0\n  eth0: 70 1 0 0 0 0 0 0 80 1 0\n";
        assert_eq!(network(devices), (70, 80));
        assert_eq!(process_disk("rchar: 5\nread_bytes: 7\nwrite_bytes: 8\n"), (7, 8));
    }

    #[test]
    fn what_is_malformed_counts_as_nothing() {
        for text in ["", "cpu", "cpu x y", "a: b", "\0"] {
            assert_eq!(cpu(text), (0, 0, 0, 0));
            assert_eq!((disks(text), network(text)), ((0, 0), (0, 0)));
        }
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "no rate is exactly 0")]
    fn the_first_reading_has_no_rates_and_a_later_one_is_of_this_machine() {
        let mut reader = MachineReader::new(PathBuf::from("/"), 7);
        let first = reader.read(1.0);
        assert_eq!(first.machine.disk_written_rate, 0.0);
        assert_eq!(first.process.cpu_user, 0.0);
        let later = reader.read(6.0);
        assert!(later.machine.cores > 0);
        assert!(later.machine.cpu_user + later.machine.cpu_system + later.machine.cpu_wait <= 1.0);
        // A clock that stands still, or goes back.
        assert!(reader.read(6.0).process.cpu_user.is_finite());
        assert!(reader.read(2.0).machine.network_sent_rate.is_finite());
    }
}
