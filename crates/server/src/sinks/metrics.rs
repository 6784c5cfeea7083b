//! Metrics of sinks: those of the broker, as their runner told them last, and those of a process that runs
//! sinks by itself.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use stafett_admin::sinks::{SinkDesk, SinkPlace, SinkState};
use stafett_sinks::status::{FLUSH_MS_BOUNDS, Snapshot};

use super::SinksHere;

type Value = fn(&SinkState) -> u64;

const COUNTERS: [(&str, &str, Value); 6] = [
    ("sink_rows", "Rows written", |state| state.rows),
    ("sink_bytes", "Bytes of rows written", |state| state.bytes),
    ("sink_dropped", "Records that conditions left out", |state| {
        state.dropped
    }),
    (
        "sink_expression_errors",
        "Records of which a condition was neither true nor false; they are left out",
        |state| state.expression_errors,
    ),
    ("sink_flush_ms", "Time spent on flushes", |state| state.flush_ms),
    (
        "sink_fenced",
        "Times that another writer had a partition",
        |state| state.fenced,
    ),
];
type Words = fn(&SinkState) -> &BTreeMap<String, u64>;

/// Counters with one more label.
const LABELLED: [(&str, &str, &str, Words); 4] = [
    ("sink_flushes", "Flushes by cause", "cause", |state| {
        &state.flushes
    }),
    ("sink_retries", "Failed attempts by class", "class", |state| {
        &state.retries
    }),
    (
        "sink_poison",
        "Records that went to the dead letters, by class",
        "class",
        |state| &state.poison_classes,
    ),
    (
        "sink_limited_ms",
        "Time spent waiting before flushes, by reason",
        "why",
        |state| &state.limits_ms,
    ),
];
const STATES: [&str; 6] = ["running", "retrying", "paused", "quiet", "stopped", "waiting"];

/// A sink at one time.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    /// Kind of its target.
    pub(crate) to: &'static str,
    pub(crate) state: SinkState,
}

/// Registers the metrics.
pub(super) fn register(registry: &mut Registry, desk: &Arc<SinksHere>) {
    registry.register_collector(Box::new(SinkMetrics(Arc::clone(desk))));
}

#[derive(Debug)]
struct SinkMetrics(Arc<SinksHere>);

impl Collector for SinkMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let restarts = self.0.restarts();
        let samples = self.0.measured();
        if samples.is_empty() && restarts == 0 {
            return Ok(());
        }
        let help = "Starts of the runner of the sinks after a failure";
        let metric = ConstCounter::new(restarts);
        let kind = metric.metric_type();
        metric.encode(encoder.encode_descriptor("sink_runner_restarts", help, None, kind)?)?;
        if let Some(silence) = self.0.silence() {
            let help = "Time since the runner told the states of the sinks";
            let mut metric = encoder.encode_descriptor("sink_silence_ms", help, None, MetricType::Gauge)?;
            gauge(&mut metric, &[], u64::try_from(silence.as_millis()).unwrap_or(0))?;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        encode(&samples, wall_ms, &mut encoder)
    }
}

/// Writes the metrics of sinks, by their names.
pub(crate) fn encode(
    samples: &BTreeMap<String, Sample>,
    wall_ms: i64,
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), fmt::Error> {
    let help = "1 for the kind of the target";
    let mut metric = encoder.encode_descriptor("sink_target", help, None, MetricType::Gauge)?;
    for (sink, sample) in samples {
        gauge(&mut metric, &[("sink", sink), ("to", sample.to)], 1)?;
    }
    for (name, help, value) in COUNTERS {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (sink, sample) in samples {
            count(&mut metric, &[("sink", sink)], value(&sample.state))?;
        }
    }
    for (name, help, label, words) in LABELLED {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (sink, sample) in samples {
            for (word, value) in words(&sample.state) {
                count(&mut metric, &[("sink", sink), (label, word)], *value)?;
            }
        }
    }
    let help = "Flushes at a time, as the target bears them";
    let mut metric = encoder.encode_descriptor("sink_parallel", help, None, MetricType::Gauge)?;
    for (sink, sample) in samples {
        gauge(&mut metric, &[("sink", sink)], sample.state.parallel)?;
    }
    let mut metric = encoder.encode_descriptor("sink_state", "1 for the state", None, MetricType::Gauge)?;
    for (sink, sample) in samples {
        for word in STATES {
            let is_it = u64::from(sample.state.state == word);
            gauge(&mut metric, &[("sink", sink), ("state", word)], is_it)?;
        }
    }
    encode_tables(samples, encoder)?;
    encode_times(samples, encoder)?;
    encode_progress(samples, wall_ms, encoder)
}

/// Writes the metrics of sinks that look records up.
fn encode_tables(
    samples: &BTreeMap<String, Sample>,
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), fmt::Error> {
    let has_tables = |(_, sample): &(&String, &Sample)| !sample.state.lookups.is_empty();
    let help = "Records that were looked up in tables, by result";
    let mut metric = encoder.encode_descriptor("sink_lookups", help, None, MetricType::Counter)?;
    for (sink, sample) in samples.iter().filter(has_tables) {
        for (result, lookups) in &sample.state.lookups {
            count(&mut metric, &[("sink", sink), ("result", result)], *lookups)?;
        }
    }
    let sizes: [(&str, &str, Value); 2] = [
        ("sink_table_rows", "Rows of tables for look-ups", |state| {
            state.table_rows
        }),
        ("sink_table_bytes", "Memory of tables for look-ups", |state| {
            state.table_bytes
        }),
    ];
    for (name, help, value) in sizes {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (sink, sample) in samples.iter().filter(has_tables) {
            gauge(&mut metric, &[("sink", sink)], value(&sample.state))?;
        }
    }
    Ok(())
}

fn encode_times(
    samples: &BTreeMap<String, Sample>,
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), fmt::Error> {
    let help = "Time of a flush, from its begin to the answer of the target";
    let mut metric = encoder.encode_descriptor("sink_flush_seconds", help, None, MetricType::Histogram)?;
    for (sink, Sample { state, .. }) in samples {
        let bounds = FLUSH_MS_BOUNDS.iter().map(|bound| *bound as f64 / 1000.0);
        let classes = bounds.chain([f64::MAX]).zip(state.flush_times.iter().copied());
        let classes: Vec<_> = classes.collect();
        let count = state.flush_times.iter().sum();
        let labels = [("sink", sink)];
        let mut metric = metric.encode_family(&labels)?;
        metric.encode_histogram::<NoLabelSet>(state.flush_ms as f64 / 1000.0, count, &classes, None)?;
    }
    Ok(())
}

fn encode_progress(
    samples: &BTreeMap<String, Sample>,
    wall_ms: i64,
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), fmt::Error> {
    let help = "Records that the target does not have";
    let mut metric = encoder.encode_descriptor("sink_lag_records", help, None, MetricType::Gauge)?;
    for (sink, sample) in samples {
        let places = sample.state.places.iter();
        let lag = places.map(|place| place.end.saturating_sub(place.next));
        gauge(&mut metric, &[("sink", sink)], lag.sum())?;
    }
    let help = "Age of the oldest record that the target does not have, by its time stamp";
    let mut metric = encoder.encode_descriptor("sink_lag_seconds", help, None, MetricType::Gauge)?;
    for (sink, sample) in samples {
        if let Some(lag_ms) = lag_ms(&sample.state, wall_ms) {
            let labels = [("sink", sink)];
            ConstGauge::new(lag_ms as f64 / 1000.0).encode(metric.encode_family(&labels)?)?;
        }
    }
    let help = "Age of the newest record in the target, by its time stamp";
    let mut metric = encoder.encode_descriptor("sink_freshness_seconds", help, None, MetricType::Gauge)?;
    for (sink, sample) in samples {
        if let Some(newest_ms) = sample
            .state
            .places
            .iter()
            .filter_map(|place| place.newest_ms)
            .max()
        {
            let age_ms = wall_ms.saturating_sub(newest_ms).max(0);
            ConstGauge::new(age_ms as f64 / 1000.0).encode(metric.encode_family(&[("sink", sink)])?)?;
        }
    }
    let help = "Next offset that the target does not have";
    let mut metric = encoder.encode_descriptor("sink_position", help, None, MetricType::Gauge)?;
    for (sink, sample) in samples {
        for place in &sample.state.places {
            let partition = place.partition.to_string();
            let labels = [
                ("sink", &**sink),
                ("topic", &place.topic),
                ("partition", &partition),
            ];
            gauge(&mut metric, &labels, place.next)?;
        }
    }
    Ok(())
}

/// Returns the lag in time: that of the partition with the oldest record. `None` if records wait and none of
/// them has been read, so that their age is not known.
fn lag_ms(state: &SinkState, wall_ms: i64) -> Option<u64> {
    let age = |place: &SinkPlace| {
        let age = wall_ms.saturating_sub(place.oldest_ms?);
        Some(u64::try_from(age).unwrap_or(0))
    };
    let mut waiting = state
        .places
        .iter()
        .filter(|place| place.next < place.end)
        .peekable();
    // The newest records are on their way to a sink that runs.
    let is_up_to_date = waiting.peek().is_none() || state.state == "running";
    let oldest = waiting.filter_map(age).max();
    oldest.or_else(|| is_up_to_date.then_some(0))
}

/// Returns the state of a sink as the API and the metrics have it.
pub(crate) fn shown(snapshot: Snapshot) -> SinkState {
    let words = |counts: BTreeMap<&'static str, u64>| {
        counts
            .into_iter()
            .map(|(word, count)| (word.to_owned(), count))
            .collect()
    };
    let places = snapshot.places.into_iter().map(|(place, progress)| SinkPlace {
        topic: place.topic,
        partition: place.partition,
        next: progress.next,
        end: progress.end,
        oldest_ms: progress.oldest_ms,
        newest_ms: progress.newest_ms,
    });
    SinkState {
        state: snapshot.state.word().to_owned(),
        why: snapshot.why,
        rows: snapshot.rows,
        bytes: snapshot.bytes,
        poison: snapshot.poison.values().sum(),
        poison_classes: words(snapshot.poison),
        dropped: snapshot.dropped,
        expression_errors: snapshot.expression_errors,
        flush_ms: snapshot.flush_ms,
        limited_ms: snapshot.limited_ms.values().sum(),
        limits_ms: words(snapshot.limited_ms),
        parallel: snapshot.parallel,
        flushes: words(snapshot.flushes),
        retries: words(snapshot.retries),
        flush_times: snapshot.flush_times,
        lookups: snapshot.tables.map_or_else(BTreeMap::new, |tables| {
            let counts = [("found", tables.found), ("missing", tables.missing)];
            counts.map(|(word, count)| (word.to_owned(), count)).into()
        }),
        table_rows: snapshot.tables.map_or(0, |tables| tables.rows),
        table_bytes: snapshot.tables.map_or(0, |tables| tables.bytes),
        fenced: snapshot.fenced,
        places: places.collect(),
    }
}

fn count<const N: usize>(
    metric: &mut MetricEncoder<'_>,
    labels: &[(&str, &str); N],
    value: u64,
) -> Result<(), fmt::Error> {
    ConstCounter::new(value).encode(metric.encode_family(labels)?)
}

fn gauge<const N: usize>(
    metric: &mut MetricEncoder<'_>,
    labels: &[(&str, &str); N],
    value: u64,
) -> Result<(), fmt::Error> {
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    ConstGauge::new(value).encode(metric.encode_family(labels)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_in_time_is_that_of_the_oldest_record_and_absent_if_none_was_read() {
        let place = |next, end, oldest_ms| SinkPlace {
            topic: "t".to_owned(),
            partition: 0,
            next,
            end,
            oldest_ms,
            newest_ms: None,
        };
        let state = |word: &str, places: &[SinkPlace]| SinkState {
            state: word.to_owned(),
            places: places.to_vec(),
            ..SinkState::default()
        };
        for (word, places, expected) in [
            ("retrying", vec![place(5, 5, Some(1000))], Some(0)),
            (
                "retrying",
                vec![place(5, 9, Some(4000)), place(1, 2, Some(2500))],
                Some(7500),
            ),
            ("retrying", vec![place(5, 9, None)], None),
            ("running", vec![place(5, 9, None)], Some(0)),
            ("running", vec![place(5, 9, Some(20_000))], Some(0)),
        ] {
            assert_eq!(
                lag_ms(&state(word, &places), 10_000),
                expected,
                "{word} {places:?}"
            );
        }
    }

    #[derive(Debug)]
    struct One(BTreeMap<String, Sample>);

    impl Collector for One {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
            encode(&self.0, 10_000, &mut encoder)
        }
    }

    #[test]
    fn metrics_tell_freshness_and_the_reasons_of_poison_and_waits() {
        let place = SinkPlace {
            topic: "t".to_owned(),
            partition: 0,
            next: 1,
            end: 1,
            oldest_ms: None,
            newest_ms: Some(6000),
        };
        let state = SinkState {
            poison_classes: [("type".to_owned(), 2)].into(),
            limits_ms: [("rate".to_owned(), 7)].into(),
            places: vec![place],
            ..SinkState::default()
        };
        let sample = Sample { to: "files", state };
        let mut registry = Registry::default();
        registry.register_collector(Box::new(One([("s".to_owned(), sample)].into())));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "sink_poison_total{sink=\"s\",class=\"type\"} 2",
            "sink_limited_ms_total{sink=\"s\",why=\"rate\"} 7",
            "sink_freshness_seconds{sink=\"s\"} 4.0",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }
}
