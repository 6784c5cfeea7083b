//! Counters of the sinks, as their runner told them last.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use stafett_admin::sinks::{SinkDesk, SinkState};

use super::SinksHere;

type Value = fn(&SinkState) -> u64;

const COUNTERS: [(&str, &str, Value); 8] = [
    ("sink_rows", "Rows written", |state| state.rows),
    ("sink_bytes", "Bytes of rows written", |state| state.bytes),
    ("sink_poison", "Records that went to the dead letters", |state| {
        state.poison
    }),
    ("sink_dropped", "Records that conditions left out", |state| {
        state.dropped
    }),
    (
        "sink_expression_errors",
        "Records of which a condition was neither true nor false; they are left out",
        |state| state.expression_errors,
    ),
    ("sink_flush_ms", "Time spent on flushes", |state| state.flush_ms),
    ("sink_limited_ms", "Time spent waiting for limits", |state| {
        state.limited_ms
    }),
    (
        "sink_fenced",
        "Times that another writer had a partition",
        |state| state.fenced,
    ),
];
const STATES: [&str; 5] = ["running", "retrying", "paused", "stopped", "waiting"];

/// Registers the metrics.
pub(super) fn register(registry: &mut Registry, desk: &Arc<SinksHere>) {
    registry.register_collector(Box::new(SinkMetrics(Arc::clone(desk))));
}

#[derive(Debug)]
struct SinkMetrics(Arc<SinksHere>);

impl Collector for SinkMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let restarts = self.0.restarts();
        let states = self.0.measured();
        if states.is_empty() && restarts == 0 {
            return Ok(());
        }
        let help = "Starts of the runner of the sinks after a failure";
        let metric = ConstCounter::new(restarts);
        let kind = metric.metric_type();
        metric.encode(encoder.encode_descriptor("sink_runner_restarts", help, None, kind)?)?;
        for (name, help, value) in COUNTERS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (sink, state) in &states {
                count(&mut metric, &[("sink", sink)], value(state))?;
            }
        }
        let mut metric =
            encoder.encode_descriptor("sink_flushes", "Flushes by cause", None, MetricType::Counter)?;
        for (sink, state) in &states {
            for (cause, flushes) in &state.flushes {
                count(&mut metric, &[("sink", sink), ("cause", cause)], *flushes)?;
            }
        }
        let help = "Failed attempts by class";
        let mut metric = encoder.encode_descriptor("sink_retries", help, None, MetricType::Counter)?;
        for (sink, state) in &states {
            for (class, retries) in &state.retries {
                count(&mut metric, &[("sink", sink), ("class", class)], *retries)?;
            }
        }
        if let Some(silence) = self.0.silence() {
            let help = "Time since the runner told the states of the sinks";
            let mut metric = encoder.encode_descriptor("sink_silence_ms", help, None, MetricType::Gauge)?;
            gauge(&mut metric, &[], u64::try_from(silence.as_millis()).unwrap_or(0))?;
        }
        let help = "Records that the target does not have";
        let mut metric = encoder.encode_descriptor("sink_lag_records", help, None, MetricType::Gauge)?;
        for (sink, state) in &states {
            let lag = state
                .places
                .iter()
                .map(|place| place.end.saturating_sub(place.next));
            gauge(&mut metric, &[("sink", sink)], lag.sum())?;
        }
        let mut metric =
            encoder.encode_descriptor("sink_state", "1 for the state", None, MetricType::Gauge)?;
        for (sink, state) in &states {
            for word in STATES {
                gauge(
                    &mut metric,
                    &[("sink", sink), ("state", word)],
                    u64::from(state.state == word),
                )?;
            }
        }
        Ok(())
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
