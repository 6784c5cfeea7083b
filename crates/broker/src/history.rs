//! The last hour in memory: a sweep every 5 s takes samples of all changed counters, and of the node.
//!
//! Objects have histories while they are among those that changed last and all histories together fit into
//! [`Histories::set_bytes_max`]; a history is gone with its object. Times of samples are counted back from
//! the latest sweep, so a clock that is set moves the times of all samples and never their order.

use std::sync::atomic::{AtomicUsize, Ordering};

use stafett_counters::{Advance, History, STEP_MS, STEPS_MAX, Series, Ticks};
use stafett_delivery::QueueSeries;
use stafett_model::Lock;

use crate::broker::Broker;

/// Bound on the memory of all histories, unless it is set.
const BYTES_MAX: usize = 64 << 20;
/// Part of the bound by which new histories may exceed it until the coldest are removed.
const OVER: usize = 16;

/// Levels and counters that the process knows beside the broker.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NodeReading {
    pub connections: u64,
    /// Connections since the start.
    pub connections_opened: u64,
    /// Shares of all processors, from 0 to 1.
    pub cpu_user: f64,
    pub cpu_system: f64,
    pub cpu_wait: f64,
    pub memory_available_bytes: u64,
    pub disk_free_bytes: u64,
    /// Bytes per second.
    pub disk_read_rate: f64,
    pub disk_written_rate: f64,
    pub network_received_rate: f64,
    pub network_sent_rate: f64,
    /// Processors that the process uses.
    pub process_cpu: f64,
    pub resident_bytes: u64,
    pub descriptors: u64,
}

/// Series of the node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeSeries {
    /// Name in the core; a counter's rate has the suffix `_rate`.
    pub name: &'static str,
    pub about: &'static str,
    pub unit: &'static str,
    /// True if the samples are increases of a counter.
    pub is_counter: bool,
    /// Value of one unit of a stored sample.
    scale: f64,
}

const fn counter(name: &'static str, about: &'static str, unit: &'static str) -> NodeSeries {
    NodeSeries {
        name,
        about,
        unit,
        is_counter: true,
        scale: 1.0,
    }
}

const fn level(name: &'static str, about: &'static str, unit: &'static str) -> NodeSeries {
    NodeSeries {
        name,
        about,
        unit,
        is_counter: false,
        scale: 1.0,
    }
}

impl NodeSeries {
    const fn scaled(self, scale: f64) -> Self {
        Self { scale, ..self }
    }
}

/// Size of a unit of samples of memory and space.
const KIB: f64 = 1024.0;
/// Size of a unit of samples of shares.
const SHARE: f64 = 1e-6;

/// All series of the node.
pub const NODE_SERIES: &[NodeSeries] = &[
    counter("records_in", "Records appended to topics", "1/s"),
    counter("bytes_in", "Bytes appended to topics", "B/s"),
    counter("records_out", "Records that readers of topics got", "1/s"),
    counter("bytes_out", "Bytes that readers of topics got", "B/s"),
    counter("published", "Messages added to queues", "1/s"),
    counter("delivered", "Messages given to consumers of queues", "1/s"),
    counter("got", "Messages of queues given to requests", "1/s"),
    counter("completed", "Messages that consumers completed", "1/s"),
    counter("redelivered", "Messages given out once more", "1/s"),
    counter(
        "routed",
        "Messages published to exchanges that led somewhere",
        "1/s",
    ),
    counter(
        "unroutable",
        "Messages published to exchanges that led nowhere",
        "1/s",
    ),
    counter("commits", "Offsets that groups committed", "1/s"),
    counter("connections_opened", "Connections that were opened", "1/s"),
    counter("queues_declared", "Declarations of queues", "1/s"),
    counter("queues_created", "Queues that were created", "1/s"),
    counter("queues_deleted", "Queues that were deleted", "1/s"),
    level("ready", "Messages that wait in queues", ""),
    level("in_flight", "Messages of queues that consumers have", ""),
    level("lag", "Records between the commits of groups and the ends", ""),
    level("queues", "Queues", ""),
    level("topics", "Topics, those that show queues included", ""),
    level("connections", "Open connections", ""),
    level("cpu_user", "Processors' time for programs", "share").scaled(SHARE),
    level("cpu_system", "Processors' time for the system", "share").scaled(SHARE),
    level("cpu_wait", "Processors' time waiting for disks", "share").scaled(SHARE),
    level(
        "memory_available_bytes",
        "Memory that programs can still get",
        "B",
    )
    .scaled(KIB),
    level("disk_free_bytes", "Free space of the data directory's disk", "B").scaled(KIB),
    level("disk_read", "Bytes read from disks", "B/s").scaled(KIB),
    level("disk_written", "Bytes written to disks", "B/s").scaled(KIB),
    level("network_received", "Bytes received by network interfaces", "B/s").scaled(KIB),
    level("network_sent", "Bytes sent by network interfaces", "B/s").scaled(KIB),
    level("process_cpu", "Processors that the broker uses", "processors").scaled(SHARE),
    level("resident_bytes", "Memory of the broker", "B").scaled(KIB),
    level("descriptors", "Open files and sockets of the broker", ""),
];

/// Samples of the node, and the sweeps of everything else.
#[derive(Debug)]
pub struct Histories {
    state: Lock<State>,
    bytes_max: AtomicUsize,
}

#[derive(Debug)]
struct State {
    ticks: Ticks,
    latest: Option<Advance>,
    /// Wall time of the latest sweep.
    swept_ms: i64,
    /// Wall time of the first sweep that found space short, while it is.
    short_since_ms: Option<i64>,
    /// Counters at the latest sweep, in the order of the series.
    before: Vec<u64>,
    history: History,
}

/// Samples of the node's series for a request, newest last.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSamples {
    /// Time of the newest sample.
    pub swept_ms: i64,
    /// Per series, values of steps of 5 s: levels, or rates per second; `None` before the beginning.
    pub series: Vec<Vec<Option<f64>>>,
}

impl Default for Histories {
    fn default() -> Self {
        let series: Vec<Series> = NODE_SERIES
            .iter()
            .map(|series| {
                if series.is_counter {
                    Series::counts(series.name, &[])
                } else {
                    Series::level(series.name, 0)
                }
            })
            .collect();
        Self {
            state: Lock::new(State {
                ticks: Ticks::default(),
                latest: None,
                swept_ms: 0,
                short_since_ms: None,
                before: Vec::new(),
                history: History::whole(&series, 1),
            }),
            bytes_max: AtomicUsize::new(BYTES_MAX),
        }
    }
}

impl Histories {
    /// Sets the bound on the memory of all histories of objects.
    pub fn set_bytes_max(&self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Returns the wall time of the latest sweep; `None` if there was none.
    pub fn swept_ms(&self) -> Option<i64> {
        let state = self.state.lock();
        state.latest.map(|_| state.swept_ms)
    }

    /// Returns the time of the first sweep that found the disk short of space; `None` if the latest did not.
    pub fn short_since_ms(&self) -> Option<i64> {
        self.state.lock().short_since_ms
    }

    /// Returns the samples of the node of the last `steps` steps of 5 s.
    pub fn node(&self, steps: u32) -> NodeSamples {
        let state = self.state.lock();
        let ends = state.latest.map_or(0, |latest| latest.tick);
        let begins = if state.latest.is_some() {
            state.history.begins()
        } else {
            u32::MAX
        };
        let steps = steps.min(STEPS_MAX);
        let value = |at: usize, series: &NodeSeries, tick: u32| {
            let sample = f64::from(state.history.sample(tick, at)) * series.scale;
            if series.is_counter {
                sample * 1000.0 / STEP_MS as f64
            } else {
                sample
            }
        };
        let of = |(at, series): (usize, &NodeSeries)| {
            let back = (0..steps).rev();
            back.map(|back| {
                let tick = ends.checked_sub(back).filter(|tick| *tick >= begins)?;
                Some(value(at, series, tick))
            })
            .collect()
        };
        NodeSamples {
            swept_ms: state.swept_ms,
            series: NODE_SERIES.iter().enumerate().map(of).collect(),
        }
    }
}

impl Broker {
    /// Returns the bytes of the histories of all objects.
    pub fn history_bytes(&self) -> usize {
        self.messaging.queues().sampler().bytes()
            + self.messaging.exchanges().sampler().bytes()
            + self.topics().traffic().sampler().bytes()
            + self.groups.sampler().bytes()
    }

    /// Takes samples of all that has changed since the last call, and of the node. Must be called every
    /// [`STEP_MS`]; `steady_ms` is a time that is never set.
    pub fn sweep(&self, steady_ms: i64, wall_ms: i64, reading: &NodeReading) {
        let mut state = self.histories.state.lock();
        let advance = state.ticks.advance(steady_ms);
        self.sweep_objects(advance);
        let now = self.node_values(reading);
        let before = std::mem::replace(&mut state.before, now.clone());
        let samples: Vec<u32> = NODE_SERIES
            .iter()
            .enumerate()
            .map(|(at, series)| {
                let value = now.get(at).copied().unwrap_or_default();
                let before = before.get(at).copied().unwrap_or(value);
                let sample = if series.is_counter {
                    value.saturating_sub(before) / u64::from(advance.steps.max(1))
                } else {
                    value
                };
                u32::try_from(sample).unwrap_or(u32::MAX)
            })
            .collect();
        state.history.push(advance.tick, &samples);
        state.latest = Some(advance);
        state.swept_ms = wall_ms;
        let is_short = self.messaging.space().is_short();
        state.short_since_ms = is_short.then(|| state.short_since_ms.unwrap_or(wall_ms));
    }

    fn sweep_objects(&self, advance: Advance) {
        let (queues, exchanges) = (
            self.messaging.queues().sampler(),
            self.messaging.exchanges().sampler(),
        );
        let (topics, groups) = (self.topics().traffic().sampler(), self.groups.sampler());
        let max = self.histories.bytes_max.load(Ordering::Relaxed);
        let used =
            || queues.forget_cold() + exchanges.forget_cold() + topics.forget_cold() + groups.forget_cold();
        let mut room = (max + max / OVER).saturating_sub(used());
        queues.sweep(advance, &mut room);
        exchanges.sweep(advance, &mut room);
        topics.sweep(advance, &mut room);
        self.measure_lags(advance);
        groups.sweep(advance, &mut room);
        let mut excess = used().saturating_sub(max);
        if excess == 0 {
            return;
        }
        let mut ages = queues.ages();
        ages.extend(exchanges.ages());
        ages.extend(topics.ages());
        ages.extend(groups.ages());
        ages.sort_unstable();
        let mut gone = 0;
        let limit = ages.iter().find(|(_, bytes)| {
            gone += bytes;
            gone >= excess
        });
        let Some(limit) = limit.map(|(tick, _)| *tick) else {
            return;
        };
        for until in [limit.saturating_sub(1), limit] {
            queues.forget_until(until, &mut excess);
            exchanges.forget_until(until, &mut excess);
            topics.forget_until(until, &mut excess);
            groups.forget_until(until, &mut excess);
        }
    }

    /// Measures the lags of groups. A record that was counted in the last sweep may have become visible
    /// since.
    fn measure_lags(&self, advance: Advance) {
        self.groups.measure_lags(|topic| {
            self.topics().with_id(topic).is_none_or(|topic| {
                // Records of other cells are counted there.
                if !topic.is_whole() {
                    return true;
                }
                let idle = self.topics().traffic().idle_steps(&topic);
                idle.is_some_and(|idle| idle <= advance.steps)
            })
        });
    }

    /// Returns the values of the node's series, in units of their samples.
    fn node_values(&self, reading: &NodeReading) -> Vec<u64> {
        let queue = |series: &[QueueSeries]| -> u64 {
            let totals = self.messaging.queues().sampler().totals();
            series.iter().map(|series| totals.get(series.at())).sum()
        };
        let traffic = self.topics().traffic().sampler().totals();
        let exchange = self.messaging.exchanges().sampler().totals();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the largest value of a series"
        )]
        let scaled = |value: f64, scale: f64| (value / scale).clamp(0.0, f64::from(u32::MAX)) as u64;
        let kib = |bytes: u64| bytes / 1024;
        vec![
            traffic.get(0),
            traffic.get(1),
            traffic.get(2),
            traffic.get(3),
            queue(&[QueueSeries::Published]),
            queue(&[QueueSeries::Delivered, QueueSeries::DeliveredUnsettled]),
            queue(&[QueueSeries::Got]),
            queue(&[QueueSeries::Completed]),
            queue(&[QueueSeries::Redelivered]),
            exchange.get(1),
            exchange.get(2),
            self.groups.sampler().totals().get(0),
            reading.connections_opened,
            self.messaging.queues().declared(),
            self.messaging.queues().created(),
            self.messaging.queues().deleted(),
            queue(&[QueueSeries::Ready]),
            queue(&[QueueSeries::InFlight]),
            self.groups.sampler().totals().get(1),
            self.messaging.queues().len() as u64,
            self.topics().len() as u64,
            reading.connections,
            scaled(reading.cpu_user, SHARE),
            scaled(reading.cpu_system, SHARE),
            scaled(reading.cpu_wait, SHARE),
            kib(reading.memory_available_bytes),
            kib(reading.disk_free_bytes),
            scaled(reading.disk_read_rate, KIB),
            scaled(reading.disk_written_rate, KIB),
            scaled(reading.network_received_rate, KIB),
            scaled(reading.network_sent_rate, KIB),
            scaled(reading.process_cpu, SHARE),
            kib(reading.resident_bytes),
            reading.descriptors,
        ]
    }
}
