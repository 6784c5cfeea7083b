//! Records and bytes that were appended to the logs of topics and read from them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stafett_counters::{Measured, Sampler, Series, Timeline, Tracked, Words};
use stafett_journal::{Append, Frame};
use stafett_model::{BatchHeader, LogId, SharedLock};

use crate::homes::cell_of;
use crate::topic::Topic;

const RECORDS_IN: usize = 0;
const BYTES_IN: usize = 1;
const RECORDS_OUT: usize = 2;
const BYTES_OUT: usize = 3;

/// Traffic of one log. One that was not used has none.
#[derive(Debug, Default)]
pub struct LogTraffic {
    counters: Words<4>,
    is_gone: AtomicBool,
}

/// Records and bytes since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrafficCounts {
    pub records_in: u64,
    pub bytes_in: u64,
    pub records_out: u64,
    pub bytes_out: u64,
}

/// Traffic of all logs.
#[derive(Debug, Default)]
pub struct Traffic {
    logs: SharedLock<HashMap<LogId, Arc<LogTraffic>>>,
    sampler: Sampler<LogTraffic>,
}

impl Measured for LogTraffic {
    const SERIES: &'static [Series] = &[
        Series::counts("records_in", &[RECORDS_IN]),
        Series::counts("bytes_in", &[BYTES_IN]),
        Series::counts("records_out", &[RECORDS_OUT]),
        Series::counts("bytes_out", &[BYTES_OUT]),
    ];

    fn tracked(&self) -> Option<&Tracked> {
        self.counters.tracked()
    }

    fn word(&self, at: usize) -> u64 {
        self.counters.get(at)
    }

    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }
}

impl LogTraffic {
    pub fn counts(&self) -> TrafficCounts {
        let [records_in, bytes_in, records_out, bytes_out] = self.counters.all();
        TrafficCounts {
            records_in,
            bytes_in,
            records_out,
            bytes_out,
        }
    }
}

impl Traffic {
    /// Counts the batches of appends.
    pub fn count_appends(&self, appends: &[Append]) {
        for append in appends {
            for frame in &append.frames {
                let Frame::Batch(batch) = frame else { continue };
                let records = BatchHeader::parse(&batch.body).map_or(0, |header| header.record_count);
                let records = u64::try_from(records).unwrap_or_default();
                for target in &batch.targets {
                    self.count_in(target.log, records, batch.body.len() as u64);
                }
            }
        }
    }

    /// Counts records that were appended.
    pub fn count_in(&self, log: LogId, records: u64, bytes: u64) {
        self.count(log, [(RECORDS_IN, records), (BYTES_IN, bytes)]);
    }

    /// Counts records that were given to readers.
    pub fn count_out(&self, log: LogId, records: u64, bytes: u64) {
        if records > 0 {
            self.count(log, [(RECORDS_OUT, records), (BYTES_OUT, bytes)]);
        }
    }

    fn count(&self, log: LogId, adds: [(usize, u64); 2]) {
        // It counts in its own cell.
        if cell_of(log).is_some() {
            return;
        }
        let known = self.logs.read();
        let Some(traffic) = known.get(&log) else {
            drop(known);
            let traffic = Arc::clone(self.logs.write().entry(log).or_default());
            self.sampler
                .note(traffic.counters.add(adds), || Arc::clone(&traffic));
            return;
        };
        self.sampler
            .note(traffic.counters.add(adds), || Arc::clone(traffic));
    }

    /// Returns the traffic of a log; `None` if there was none.
    pub fn of_log(&self, log: LogId) -> Option<Arc<LogTraffic>> {
        self.logs.read().get(&log).cloned()
    }

    /// Returns the traffic of a topic's partitions that have any.
    pub fn of_topic(&self, topic: &Topic) -> Vec<(u32, Arc<LogTraffic>)> {
        let logs = self.logs.read();
        let of = |partition| Some((partition, Arc::clone(logs.get(&topic.log(partition)?)?)));
        (0..topic.partitions()).filter_map(of).collect()
    }

    /// Returns the sum of a topic's partitions.
    pub fn total(&self, topic: &Topic) -> TrafficCounts {
        let mut total = TrafficCounts::default();
        for (_, traffic) in self.of_topic(topic) {
            let counts = traffic.counts();
            total.records_in += counts.records_in;
            total.bytes_in += counts.bytes_in;
            total.records_out += counts.records_out;
            total.bytes_out += counts.bytes_out;
        }
        total
    }

    /// Returns the rates of a topic per second, of the latest 5 s, in the order of the series.
    pub fn rates(&self, topic: &Topic) -> [f64; 4] {
        let mut rates = [0.0; 4];
        for (_, traffic) in self.of_topic(topic) {
            for (at, rate) in rates.iter_mut().enumerate() {
                *rate += self.sampler.rate(&traffic, at);
            }
        }
        rates
    }

    /// Returns the steps of 5 s since the latest traffic of a topic; `None` if there was none.
    pub fn idle_steps(&self, topic: &Topic) -> Option<u32> {
        let traffic = self.of_topic(topic);
        traffic
            .iter()
            .filter_map(|(_, traffic)| self.sampler.idle_steps(traffic))
            .min()
    }

    /// Returns the samples of a topic's partitions that have any.
    pub fn timelines(&self, topic: &Topic) -> Vec<Timeline> {
        let traffic = self.of_topic(topic);
        let timeline = |(_, traffic): &(u32, Arc<LogTraffic>)| self.sampler.timeline(traffic);
        traffic.iter().map(timeline).collect()
    }

    pub fn sampler(&self) -> &Sampler<LogTraffic> {
        &self.sampler
    }

    /// Forgets the logs of a topic that is deleted.
    pub(crate) fn forget(&self, topic: &Topic) {
        let mut logs = self.logs.write();
        if logs.is_empty() {
            return;
        }
        for log in (0..topic.partitions()).filter_map(|partition| topic.log(partition)) {
            if let Some(traffic) = logs.remove(&log) {
                traffic.is_gone.store(true, Ordering::Relaxed);
            }
        }
    }
}
