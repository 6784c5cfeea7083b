//! Metrics of the process's resources, read from `/proc` when they are scraped. They are absent without
//! `/proc`, which is specific to Linux (proc(5)).

use std::fmt;
use std::fs;
use std::path::Path;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

/// Returns the name of the machine.
pub(crate) fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Registers the metrics.
pub(crate) fn register(registry: &mut Registry) {
    registry.register_collector(Box::new(Usage));
}

#[derive(Debug)]
struct Usage;

impl Collector for Usage {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        if let Some(bytes) = resident_bytes() {
            let gauge = ConstGauge::new(bytes);
            let kind = gauge.metric_type();
            let unit = Some(&Unit::Bytes);
            gauge.encode(encoder.encode_descriptor(
                "process_resident_memory",
                "Memory in use.",
                unit,
                kind,
            )?)?;
        }
        if let Some(seconds) = cpu_seconds() {
            let counter = ConstCounter::new(seconds);
            let kind = counter.metric_type();
            let unit = Some(&Unit::Seconds);
            counter.encode(encoder.encode_descriptor(
                "process_cpu",
                "Processor time taken.",
                unit,
                kind,
            )?)?;
        }
        if let Some(count) = open_descriptors() {
            let gauge = ConstGauge::new(count);
            let kind = gauge.metric_type();
            let help = "Open files and sockets.";
            gauge.encode(encoder.encode_descriptor("process_descriptors_open", help, None, kind)?)?;
        }
        Ok(())
    }
}

/// Returns the memory in use.
pub(crate) fn resident_bytes() -> Option<i64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

fn cpu_seconds() -> Option<f64> {
    let (user, system) = cpu_ticks()?;
    Some((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Returns the ticks that the process has taken, for itself and in the system.
pub(crate) fn cpu_ticks() -> Option<(u64, u64)> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program is in parentheses and may contain spaces; behind it, user and system time are
    // the 12th and 13th field.
    let fields = stat.get(stat.rfind(')')? + 1..)?;
    let mut ticks = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    Some((ticks.next()?.ok()?, ticks.next()?.ok()?))
}

/// Returns the number of open files and sockets.
pub(crate) fn open_descriptors() -> Option<i64> {
    // One of them is for reading the folder.
    i64::try_from(fs::read_dir("/proc/self/fd").ok()?.count())
        .ok()
        .map(|count| count - 1)
}

/// Returns the memory of the machine.
pub(crate) fn machine_bytes() -> Option<u64> {
    let memory = fs::read_to_string("/proc/meminfo").ok()?;
    let line = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Returns the free space of the disk of a folder.
pub(crate) fn disk_free_bytes(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    disk.f_bavail.checked_mul(disk.f_frsize)
}
