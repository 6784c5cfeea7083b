//! Counts of each app, and the metrics of all. They have the label `app`; tasks are shown over HTTP.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use crate::app::App;
use crate::filter::Passed;
use crate::machine::Reason;
use crate::registry::Apps;

/// A count that only grows.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn inc(&self) {
        self.inc_by(1);
    }

    pub(crate) fn inc_by(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts of an app in this run of the broker.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) delivered: Count,
    /// Of these, records that were delivered before.
    pub(crate) again: Count,
    pub(crate) ignored: Count,
    pub(crate) filtered: Count,
    pub(crate) filter_errors: Count,
    pub(crate) late: Count,
    pub(crate) gaps: Count,
    pub(crate) commits: Count,
    pub(crate) repeated: Count,
    pub(crate) fenced: Count,
    pub(crate) refused: Count,
    /// Records that commits have passed.
    pub(crate) committed: Count,
    pub(crate) emitted: Count,
    pub(crate) expired: Count,
    pub(crate) failed: Count,
    pub(crate) deaths: Count,
    pub(crate) dead_lettered: Count,
    pub(crate) overdue: Count,
    times: OnceLock<Box<Times>>,
}

/// Times of an app, once there is one.
#[derive(Debug)]
struct Times {
    takeover: Histogram,
    handover: Histogram,
    commit: Histogram,
}

impl Counts {
    /// Returns the number of results so far.
    pub(crate) fn results(&self) -> u64 {
        self.emitted.get()
    }

    fn times(&self) -> &Times {
        self.times.get_or_init(|| {
            Box::new(Times {
                takeover: Histogram::new(exponential_buckets(0.1, 2.0, 12)),
                handover: Histogram::new(exponential_buckets(0.001, 2.0, 16)),
                commit: Histogram::new(exponential_buckets(0.000_1, 2.0, 16)),
            })
        })
    }

    /// Notes a claim, and the time for which its task was without a worker.
    pub(crate) fn on_claimed(&self, reason: Reason, gap_ms: i64) {
        let seconds = gap_ms.max(0) as f64 / 1000.0;
        match reason {
            Reason::Start => {}
            Reason::Takeover => self.times().takeover.observe(seconds),
            Reason::Balance | Reason::Handover | Reason::Assigned | Reason::Split | Reason::Merge => {
                self.times().handover.observe(seconds);
            }
        }
    }

    /// Notes records that were passed over.
    pub(crate) fn on_passed(&self, passed: Passed) {
        self.ignored.inc_by(passed.ignored);
        self.filtered.inc_by(passed.filtered);
        self.filter_errors.inc_by(passed.failed);
    }

    pub(crate) fn on_commit(&self, took: Duration, records: u64, results: u64) {
        self.commits.inc();
        self.committed.inc_by(records);
        self.emitted.inc_by(results);
        self.times().commit.observe(took.as_secs_f64());
    }
}

type OfCounts = fn(&Counts) -> &Count;

const COUNTERS: [(&str, &str, OfCounts); 14] = [
    ("apps_records_delivered", "Records delivered to workers", |it| {
        &it.delivered
    }),
    ("apps_records_again", "Records delivered again", |it| &it.again),
    (
        "apps_ignored",
        "Records of finished keys that were left out",
        |it| &it.ignored,
    ),
    (
        "apps_filtered",
        "Records that the filter of their app refused",
        |it| &it.filtered,
    ),
    (
        "apps_filter_errors",
        "Of these, records for which the filter failed",
        |it| &it.filter_errors,
    ),
    (
        "apps_late",
        "Records behind the end of their key, or before task time",
        |it| &it.late,
    ),
    ("apps_gaps", "Gaps that stopped a task", |it| &it.gaps),
    ("apps_commit_records", "Records that commits have passed", |it| {
        &it.committed
    }),
    ("apps_emitted", "Results stored by commits", |it| &it.emitted),
    ("apps_expired", "Entries removed because they expired", |it| {
        &it.expired
    }),
    ("apps_failed", "Attempts at records that failed", |it| &it.failed),
    (
        "apps_deaths",
        "Workers that fell silent with a record that was not done",
        |it| &it.deaths,
    ),
    (
        "apps_dead_lettered",
        "Records that went to a topic of dead letters",
        |it| &it.dead_lettered,
    ),
    (
        "apps_revokes_overdue",
        "Claims taken from workers that did not release them in time",
        |it| &it.overdue,
    ),
];

const RESULTS: [(&str, OfCounts); 4] = [
    ("stored", |it| &it.commits),
    ("repeated", |it| &it.repeated),
    ("fenced", |it| &it.fenced),
    ("refused", |it| &it.refused),
];

type OfTimes = fn(&Times) -> &Histogram;

const TIMES: [(&str, &str, OfTimes); 3] = [
    (
        "apps_takeover_seconds",
        "Time from the last sign of life of a worker until another has its task",
        |it| &it.takeover,
    ),
    (
        "apps_handover_gap_seconds",
        "Time for which a task that was handed over had no worker",
        |it| &it.handover,
    ),
    ("apps_commit_seconds", "Time to check and store a commit", |it| {
        &it.commit
    }),
];

const STATES: [&str; 4] = ["free", "claiming", "held", "revoking"];

/// Values of an app at one moment.
struct Now {
    app: Arc<App>,
    tasks: [i64; STATES.len()],
    moved: [u64; Reason::ALL.len()],
    workers: i64,
    events: i64,
    standing: Standing,
}

/// Lag and state of all tasks of an app.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Standing {
    pub(crate) lag: u64,
    pub(crate) lag_ms: i64,
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
    pub(crate) timers: u64,
}

type OfNow = fn(&Now) -> f64;

const GAUGES: [(&str, &str, OfNow); 7] = [
    ("apps_workers", "Workers", |it| it.workers as f64),
    (
        "apps_events_waiting",
        "Events that workers have not fetched",
        |it| it.events as f64,
    ),
    ("apps_lag_records", "Records between positions and ends", |it| {
        it.standing.lag as f64
    }),
    (
        "apps_lag_seconds",
        "Age of the latest record done by the task that is most behind, 0 if none is",
        |it| it.standing.lag_ms as f64 / 1000.0,
    ),
    (
        "apps_state_bytes",
        "Keys and values of entries, timers and finished keys",
        |it| it.standing.bytes as f64,
    ),
    ("apps_state_entries", "Entries of tables", |it| {
        it.standing.entries as f64
    }),
    ("apps_timers", "Timers", |it| it.standing.timers as f64),
];

impl Now {
    fn of(app: Arc<App>) -> Self {
        let mut tasks = [0; STATES.len()];
        let (moved, workers) = app.with_machine(|machine| {
            for task in machine.tasks() {
                let at = STATES.iter().position(|state| *state == task.state);
                if let Some(count) = at.and_then(|at| tasks.get_mut(at)) {
                    *count += 1;
                }
            }
            (machine.moved(), machine.workers())
        });
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        Self {
            standing: app.standing(),
            app,
            tasks,
            moved,
            workers: count(workers.len()),
            events: count(workers.iter().map(|worker| worker.events_waiting).sum()),
        }
    }

    fn label(&self) -> (&'static str, &str) {
        ("app", &self.app.name)
    }
}

/// Metrics of all apps, gathered when they are asked for.
#[derive(Debug)]
pub(crate) struct AppMetrics(pub(crate) Weak<Apps>);

impl Collector for AppMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(apps) = self.0.upgrade() else {
            return Ok(());
        };
        let now: Vec<Now> = apps.all().into_iter().map(Now::of).collect();
        encode_counters(&now, &mut encoder)?;
        let mut metric =
            encoder.encode_descriptor("apps_tasks", "Tasks by their state", None, MetricType::Gauge)?;
        for it in &now {
            for (state, count) in STATES.iter().zip(it.tasks) {
                put(
                    &mut metric,
                    &[it.label(), ("state", state)],
                    &ConstGauge::new(count),
                )?;
            }
        }
        for (name, help, value) in GAUGES {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for it in &now {
                put(&mut metric, &[it.label()], &ConstGauge::new(value(it)))?;
            }
        }
        for (name, help, of) in TIMES {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for it in &now {
                if let Some(times) = it.app.counts.times.get() {
                    put(&mut metric, &[it.label()], of(times))?;
                }
            }
        }
        Ok(())
    }
}

/// Encodes the counts; those that are 0 are left out.
fn encode_counters(now: &[Now], encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    for (name, help, of) in COUNTERS {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for it in now {
            count(&mut metric, &[it.label()], of(&it.app.counts).get())?;
        }
    }
    let help = "Commits by their result";
    let mut metric = encoder.encode_descriptor("apps_commits", help, None, MetricType::Counter)?;
    for it in now {
        for (result, of) in RESULTS {
            count(
                &mut metric,
                &[it.label(), ("result", result)],
                of(&it.app.counts).get(),
            )?;
        }
    }
    let help = "Claims of tasks by their reason";
    let mut metric = encoder.encode_descriptor("apps_claims_moved", help, None, MetricType::Counter)?;
    for it in now {
        for (reason, moved) in Reason::ALL.iter().zip(it.moved) {
            count(&mut metric, &[it.label(), ("reason", reason.word())], moved)?;
        }
    }
    Ok(())
}

fn count<const N: usize>(
    metric: &mut MetricEncoder<'_>,
    labels: &[(&str, &str); N],
    value: u64,
) -> Result<(), fmt::Error> {
    if value == 0 {
        return Ok(());
    }
    put(metric, labels, &ConstCounter::new(value))
}

fn put<const N: usize>(
    metric: &mut MetricEncoder<'_>,
    labels: &[(&str, &str); N],
    value: &impl EncodeMetric,
) -> Result<(), fmt::Error> {
    value.encode(metric.encode_family(labels)?)
}
