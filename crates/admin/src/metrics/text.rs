//! Counters of single objects as `OpenMetrics`: `/metrics/queues`, `/metrics/topics`, `/metrics/groups`.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use stafett_broker::{Broker, STEP_MS};
use stafett_http::{Problem, Query, Slot};
use stafett_messaging::queues::Queue;
use stafett_model::Namespace;
use stafett_topics::{Topic, cell_of};

use crate::{Backend, groups};

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Objects of an answer.
const COUNT: u64 = 10_000;
const COUNT_MAX: u64 = 100_000;
const HOUR: Duration = Duration::from_hours(1);
const KEYS: [&str; 4] = ["namespace", "prefix", "count", "active"];

/// Returns the routes of metrics of single objects.
pub(crate) fn router() -> Router<Backend> {
    Router::new()
        .route("/metrics/queues", get(queues))
        .route("/metrics/topics", get(topics))
        .route("/metrics/groups", get(groups))
}

/// Objects that a request chooses.
struct Choice {
    namespace: Option<Namespace>,
    prefix: String,
    count: usize,
    /// Longest time since the last change, in steps of 5 s.
    active: Option<u32>,
}

impl Choice {
    fn read(uri: &Uri) -> Result<Self, Problem> {
        let query = Query::strict(uri.query(), &KEYS)?;
        let active = query.duration("active", HOUR)?;
        let steps = |time: Duration| u32::try_from(time.as_millis() / u128::from(STEP_MS.unsigned_abs()));
        let count = query.number("count", COUNT_MAX)?.unwrap_or(COUNT);
        Ok(Self {
            namespace: query.get("namespace").map(Namespace::new),
            prefix: query.get("prefix").unwrap_or_default().to_owned(),
            count: usize::try_from(count).unwrap_or(usize::MAX),
            active: active.map(|time| steps(time).unwrap_or(u32::MAX)),
        })
    }

    fn has(&self, name: &str, idle: impl FnOnce() -> Option<u32>) -> bool {
        name.starts_with(&self.prefix)
            && self
                .active
                .is_none_or(|active| idle().is_some_and(|idle| idle <= active))
    }
}

/// Metric families, each with the lines of all objects.
struct Families<T> {
    rows: &'static [(&'static str, &'static str, &'static str)],
    value: fn(&T, usize) -> u64,
}

impl<T> Families<T> {
    fn write(&self, objects: &[(String, T)]) -> Response {
        let mut text = String::new();
        for (at, (name, kind, help)) in self.rows.iter().enumerate() {
            let suffix = if *kind == "counter" { "_total" } else { "" };
            // Writing to a text does not fail.
            let _ = write!(
                text,
                "# HELP stafett_{name} {help}.\n# TYPE stafett_{name} {kind}\n"
            );
            for (labels, object) in objects {
                let value = (self.value)(object, at);
                let _ = writeln!(text, "stafett_{name}{suffix}{{{labels}}} {value}");
            }
        }
        text.push_str("# EOF\n");
        ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response()
    }
}

/// Writes a label; the value is escaped.
fn label(name: &str, value: &str) -> String {
    let mut text = format!("{name}=\"");
    for letter in value.chars() {
        match letter {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            letter => text.push(letter),
        }
    }
    text.push('"');
    text
}

const QUEUES: Families<[u64; 14]> = Families {
    rows: &[
        ("queue_ready", "gauge", "Messages that wait"),
        ("queue_in_flight", "gauge", "Messages that consumers have"),
        ("queue_consumers", "gauge", "Consumers"),
        ("queue_published", "counter", "Messages added"),
        ("queue_published_bytes", "counter", "Bytes of the messages added"),
        ("queue_delivered", "counter", "Messages given out"),
        ("queue_got", "counter", "Messages of these given to requests"),
        ("queue_redelivered", "counter", "Messages given out once more"),
        ("queue_completed", "counter", "Messages completed"),
        ("queue_requeued", "counter", "Messages that came back"),
        ("queue_discarded", "counter", "Messages that consumers refused"),
        ("queue_expired", "counter", "Messages that waited for too long"),
        (
            "queue_overflowed",
            "counter",
            "Messages dropped as there were too many",
        ),
        (
            "queue_dead_lettered",
            "counter",
            "Messages stored where dead letters go",
        ),
    ],
    value: |values, at| values.get(at).copied().unwrap_or_default(),
};

async fn queues(State(broker): State<Slot<Broker>>, uri: Uri) -> Result<Response, Problem> {
    let choice = Choice::read(&uri)?;
    let mut found = broker.get()?.messaging().queues().all();
    found.retain(|queue| {
        choice
            .namespace
            .as_ref()
            .is_none_or(|only| queue.namespace == *only)
            && choice.has(&queue.name, || queue.idle_steps())
    });
    found.sort_unstable_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    let row = |queue: &Arc<Queue>| {
        let labels = [
            label("namespace", queue.namespace.as_str()),
            label("queue", &queue.name),
        ]
        .join(",");
        let (counts, messages) = (queue.counts(), queue.message_counts());
        let got = messages.got + messages.got_unsettled;
        let values = [
            counts.ready,
            counts.in_flight as u64,
            counts.consumers as u64,
            messages.published,
            messages.published_bytes,
            messages.delivered + messages.delivered_unsettled + got,
            got,
            messages.redelivered,
            messages.completed,
            messages.requeued,
            messages.discarded,
            messages.expired,
            messages.overflowed,
            messages.dead_lettered,
        ];
        (labels, values)
    };
    let rows: Vec<_> = found.iter().take(choice.count).map(row).collect();
    Ok(QUEUES.write(&rows))
}

const TOPICS: Families<[u64; 6]> = Families {
    rows: &[
        ("topic_records", "gauge", "Records between start and end"),
        ("topic_bytes", "gauge", "Bytes stored"),
        ("topic_records_in", "counter", "Records appended"),
        ("topic_bytes_in", "counter", "Bytes appended"),
        ("topic_records_out", "counter", "Records that readers got"),
        ("topic_bytes_out", "counter", "Bytes that readers got"),
    ],
    value: |values, at| values.get(at).copied().unwrap_or_default(),
};

async fn topics(State(broker): State<Slot<Broker>>, uri: Uri) -> Result<Response, Problem> {
    let choice = Choice::read(&uri)?;
    let broker = broker.get()?;
    let traffic = broker.topics().traffic();
    let mut found = broker.topics().all();
    found.retain(|topic| choice.has(&topic.name, || traffic.idle_steps(topic)));
    found.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let row = |topic: &Arc<Topic>| {
        let logs = (0..topic.partitions()).filter_map(|partition| topic.log(partition));
        // Each cell shows its own.
        let logs = logs.filter(|log| cell_of(*log).is_none());
        let (mut records, mut bytes) = (0, 0);
        for bounds in logs.filter_map(|log| broker.catalog().bounds(log)) {
            records += bounds.end.0.saturating_sub(bounds.start.0);
            bytes += bounds.bytes;
        }
        let counts = traffic.total(topic);
        let values = [
            records,
            bytes,
            counts.records_in,
            counts.bytes_in,
            counts.records_out,
            counts.bytes_out,
        ];
        (label("topic", &topic.name), values)
    };
    let rows: Vec<_> = found.iter().take(choice.count).map(row).collect();
    Ok(TOPICS.write(&rows))
}

const GROUPS: Families<[u64; 3]> = Families {
    rows: &[
        ("group_members", "gauge", "Members"),
        (
            "group_lag",
            "gauge",
            "Offsets from the commits to the ends of their partitions",
        ),
        ("group_commits", "counter", "Offsets committed"),
    ],
    value: |values, at| values.get(at).copied().unwrap_or_default(),
};

async fn groups(State(broker): State<Slot<Broker>>, uri: Uri) -> Result<Response, Problem> {
    let choice = Choice::read(&uri)?;
    let broker = broker.get()?;
    let mut found = groups::measured(&broker, |name, counts| {
        choice.has(name, || broker.groups().sampler().idle_steps(&**counts?))
    });
    found.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let rows: Vec<_> = found
        .iter()
        .take(choice.count)
        .map(|group| {
            (
                label("group", &group.name),
                [group.members, group.lag, group.commits],
            )
        })
        .collect();
    Ok(GROUPS.write(&rows))
}
