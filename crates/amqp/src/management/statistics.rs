//! Numbers that every tool expects: each is present, 0 where nothing was counted.
//!
//! A number has `…_details` with its rate per second, and with samples where the request asks for them:
//! `lengths_age` and `lengths_incr` for lengths, `msg_rates_age` and `msg_rates_incr` for counts, in seconds.
//! Samples are newest first. Before the beginning of a history, lengths are the earliest known, and counts do
//! not move.

use serde_json::{Map, Value, json};
use stafett_broker::{STEP_MS, STEPS_MAX, Timeline};
use stafett_delivery::{MessageCounts, QueueSeries};
use stafett_messaging::queues::Queue;

use super::call::Call;

/// Samples of one number in an answer, as in RabbitMQ.
const SAMPLES_MAX: u32 = 500;
/// Seconds of a step of the broker's histories.
const STEP_S: i64 = STEP_MS / 1000;

/// Series of messages given out in any way.
const GIVEN: [QueueSeries; 3] = [
    QueueSeries::Delivered,
    QueueSeries::DeliveredUnsettled,
    QueueSeries::Got,
];

/// Counts that are not kept by queue.
const NOT_BY_QUEUE: [&str; 6] = [
    "publish_in",
    "publish_out",
    "confirm",
    "get_empty",
    "return_unroutable",
    "drop_unroutable",
];

/// Rate of a count, and the series of its samples.
type Part = (f64, &'static [QueueSeries]);

/// Name, count, rate, and the series of the samples.
type Row = (&'static str, u64, f64, &'static [QueueSeries]);

/// Samples that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    /// Steps of 5 s between two samples.
    pub(super) length: u32,
    pub(super) count: u32,
    /// Time of the newest sample, in ms.
    newest_ms: i64,
}

impl Window {
    /// Returns the samples of lengths that a request asks for.
    pub(super) fn lengths(call: &Call) -> Option<Self> {
        Self::read(call, "lengths_age", "lengths_incr")
    }

    /// Returns the samples of counts that a request asks for.
    pub(super) fn rates(call: &Call) -> Option<Self> {
        Self::read(call, "msg_rates_age", "msg_rates_incr")
    }

    fn read(call: &Call, age: &str, step: &str) -> Option<Self> {
        let seconds = |key| call.query(key).and_then(|text| text.parse::<u32>().ok());
        Self::of(seconds(age)?, seconds(step)?, call.swept_ms())
    }

    fn of(age_s: u32, step_s: u32, newest_ms: i64) -> Option<Self> {
        let step_s = (step_s > 0).then_some(step_s)?;
        let unit = u32::try_from(STEP_S).unwrap_or(1);
        let length = step_s.div_ceil(unit).min(STEPS_MAX);
        let count = (age_s / (length * unit)).saturating_add(1).min(SAMPLES_MAX);
        Some(Self {
            length,
            count,
            newest_ms,
        })
    }

    fn shown(self, values: impl Iterator<Item = u64>) -> (Value, f64, f64) {
        let step_ms = i64::from(self.length) * STEP_MS;
        let values: Vec<u64> = values.collect();
        let mut timestamp = self.newest_ms;
        let mut samples = Vec::with_capacity(values.len());
        for value in &values {
            samples.push(json!({ "sample": value, "timestamp": timestamp }));
            timestamp = timestamp.saturating_sub(step_ms);
        }
        let spans = values.len().saturating_sub(1).max(1) as f64;
        let (newest, oldest) = (values.first().copied(), values.last().copied());
        let change = newest.unwrap_or_default() as f64 - oldest.unwrap_or_default() as f64;
        let average = values.iter().map(|value| *value as f64).sum::<f64>() / values.len().max(1) as f64;
        (
            Value::from(samples),
            change * 1000.0 / (spans * step_ms as f64),
            average,
        )
    }
}

/// A number, its rate per second, and its samples, newest first.
#[derive(Debug, Clone, Default)]
pub(super) struct Statistic {
    pub(super) count: u64,
    pub(super) rate: f64,
    pub(super) samples: Option<Vec<u64>>,
}

impl Statistic {
    pub(super) fn new(count: u64, rate: f64) -> Self {
        Self {
            count,
            rate,
            samples: None,
        }
    }

    /// Adds samples: those of a counter with these increases, newest first.
    pub(super) fn with_increases(mut self, increases: impl Iterator<Item = u64>) -> Self {
        let mut value = self.count;
        let samples = increases.map(|increase| {
            let sample = value;
            value = value.saturating_sub(increase);
            sample
        });
        self.samples = Some(samples.collect());
        self
    }

    /// Adds the number to an object.
    pub(super) fn put(self, fields: &mut Map<String, Value>, name: &str, window: Option<Window>) {
        let details = match (self.samples, window) {
            (Some(samples), Some(window)) => {
                let (samples, avg_rate, avg) = window.shown(samples.into_iter());
                json!({ "rate": self.rate, "samples": samples, "avg_rate": avg_rate, "avg": avg })
            }
            _ => json!({ "rate": self.rate }),
        };
        fields.insert(name.to_owned(), json!(self.count));
        fields.insert(format!("{name}_details"), details);
    }
}

/// Adds a number that has no rate.
pub(super) fn put(fields: &mut Map<String, Value>, name: &str, count: u64) {
    Statistic::new(count, 0.0).put(fields, name, None);
}

/// Counts of messages since the start, and per second.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Messages {
    pub(super) counts: MessageCounts,
    published: f64,
    delivered: f64,
    delivered_unsettled: f64,
    got: f64,
    completed: f64,
    redelivered: f64,
}

impl Messages {
    pub(super) fn of(queue: &Queue) -> Self {
        let counts = queue.message_counts();
        if counts == MessageCounts::default() {
            return Self::default();
        }
        Self {
            counts,
            published: queue.rate(&[QueueSeries::Published]),
            delivered: queue.rate(&[QueueSeries::Delivered]),
            delivered_unsettled: queue.rate(&[QueueSeries::DeliveredUnsettled]),
            got: queue.rate(&[QueueSeries::Got]),
            completed: queue.rate(&[QueueSeries::Completed]),
            redelivered: queue.rate(&[QueueSeries::Redelivered]),
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.counts += other.counts;
        self.published += other.published;
        self.delivered += other.delivered;
        self.delivered_unsettled += other.delivered_unsettled;
        self.got += other.got;
        self.completed += other.completed;
        self.redelivered += other.redelivered;
    }

    /// Returns `message_stats`. `timeline` has the samples of a queue.
    pub(super) fn shown(&self, window: Option<Window>, timeline: Option<&Timeline>) -> Value {
        let mut fields = Map::new();
        for (name, count, rate, series) in self.rows() {
            let mut statistic = Statistic::new(count, rate);
            if let (Some(window), Some(timeline)) = (window, timeline) {
                statistic = statistic.with_increases(increases(timeline, series, window).into_iter());
            }
            statistic.put(&mut fields, name, window);
        }
        for name in NOT_BY_QUEUE {
            put(&mut fields, name, 0);
        }
        Value::Object(fields)
    }

    /// Returns names, counts, rates, and the series of the samples.
    fn rows(&self) -> [Row; 8] {
        let counts = &self.counts;
        let got = counts.got + counts.got_unsettled;
        let given = counts.delivered + counts.delivered_unsettled + got;
        let given_rate = self.delivered + self.delivered_unsettled + self.got;
        // Requests of both kinds have one series, which is shown for the more frequent kind.
        let (none, both): (Part, Part) = ((0.0, &[]), (self.got, &[QueueSeries::Got]));
        let (settled, unsettled) = if counts.got >= counts.got_unsettled {
            (both, none)
        } else {
            (none, both)
        };
        let no_ack = counts.delivered_unsettled;
        [
            (
                "publish",
                counts.published,
                self.published,
                &[QueueSeries::Published],
            ),
            (
                "deliver",
                counts.delivered,
                self.delivered,
                &[QueueSeries::Delivered],
            ),
            (
                "deliver_no_ack",
                no_ack,
                self.delivered_unsettled,
                &[QueueSeries::DeliveredUnsettled],
            ),
            ("deliver_get", given, given_rate, &GIVEN),
            ("get", counts.got, settled.0, settled.1),
            ("get_no_ack", counts.got_unsettled, unsettled.0, unsettled.1),
            ("ack", counts.completed, self.completed, &[QueueSeries::Completed]),
            ("redeliver", counts.redelivered, self.redelivered, &[]),
        ]
    }

    /// Returns the arrivals of a queue by exchange: all in one entry.
    pub(super) fn incoming(&self, vhost: &str, window: Option<Window>, timeline: Option<&Timeline>) -> Value {
        if self.counts.published == 0 {
            return json!([]);
        }
        let mut statistic = Statistic::new(self.counts.published, self.published);
        if let (Some(window), Some(timeline)) = (window, timeline) {
            statistic =
                statistic.with_increases(increases(timeline, &[QueueSeries::Published], window).into_iter());
        }
        let mut stats = Map::new();
        statistic.put(&mut stats, "publish", window);
        json!([{ "stats": stats, "exchange": { "name": "", "vhost": vhost } }])
    }
}

/// Returns the increases of some series of a queue together, newest first.
fn increases(timeline: &Timeline, series: &[QueueSeries], window: Window) -> Vec<u64> {
    let count = usize::try_from(window.count).unwrap_or(usize::MAX);
    let mut sums = vec![0; count];
    for of in series {
        let samples = timeline.samples(of.at(), window.length, count);
        for (sum, sample) in sums.iter_mut().zip(samples) {
            *sum += sample.increase;
        }
    }
    sums
}

/// Messages in queues.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lengths {
    pub(super) ready: u64,
    pub(super) unacknowledged: u64,
    pub(super) consumers: u64,
    pub(super) messages: Messages,
}

impl Lengths {
    pub(super) fn add(&mut self, other: Self) {
        self.ready += other.ready;
        self.unacknowledged += other.unacknowledged;
        self.consumers += other.consumers;
        self.messages.add(&other.messages);
    }

    /// Adds the lengths and their rates; `timeline` has the samples of a queue.
    pub(super) fn show(
        &self,
        fields: &mut Map<String, Value>,
        window: Option<Window>,
        timeline: Option<&Timeline>,
    ) {
        let of = &self.messages;
        let given = of.delivered + of.delivered_unsettled + of.got;
        let settled_now = of.delivered_unsettled;
        let mut ready = Statistic::new(self.ready, of.published - given);
        let mut unacknowledged = Statistic::new(self.unacknowledged, given - settled_now - of.completed);
        let mut messages = Statistic::new(
            self.ready + self.unacknowledged,
            of.published - settled_now - of.completed,
        );
        if let (Some(window), Some(timeline)) = (window, timeline) {
            let count = usize::try_from(window.count).unwrap_or(usize::MAX);
            let levels = |series: QueueSeries| -> Vec<u64> {
                let samples = timeline.samples(series.at(), window.length, count);
                samples.iter().map(|sample| sample.value).collect()
            };
            let (waiting, taken) = (levels(QueueSeries::Ready), levels(QueueSeries::InFlight));
            let together = waiting.iter().zip(&taken).map(|(ready, taken)| ready + taken);
            messages.samples = Some(together.collect());
            (ready.samples, unacknowledged.samples) = (Some(waiting), Some(taken));
        }
        messages.put(fields, "messages", window);
        ready.put(fields, "messages_ready", window);
        unacknowledged.put(fields, "messages_unacknowledged", window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_as_many_as_the_age_has_steps_and_one_more() {
        for (age, step, expected) in [
            (800, 5, Some((1, 161))),
            (800, 60, Some((12, 14))),
            (60, 1, Some((1, 13))),
            (0, 5, Some((1, 1))),
            (u32::MAX, 1, Some((1, 500))),
            (u32::MAX, u32::MAX, Some((720, 500))),
            (800, 0, None),
        ] {
            let window = Window::of(age, step, 0);
            assert_eq!(
                window.map(|window| (window.length, window.count)),
                expected,
                "{age} {step}"
            );
        }
    }

    #[test]
    fn a_counter_is_shown_as_it_was_at_each_sample() {
        let window = Window::of(10, 5, 20_000);
        let mut fields = Map::new();
        let statistic = Statistic::new(100, 1.5).with_increases([10, 30, 0].into_iter());
        statistic.put(&mut fields, "publish", window);
        assert_eq!(fields["publish"], 100);
        let details = &fields["publish_details"];
        assert_eq!(
            details["samples"],
            json!([
                { "sample": 100, "timestamp": 20_000 },
                { "sample": 90, "timestamp": 15_000 },
                { "sample": 60, "timestamp": 10_000 },
            ])
        );
        assert_eq!(
            (&details["rate"], &details["avg_rate"]),
            (&json!(1.5), &json!(4.0))
        );
    }
}
