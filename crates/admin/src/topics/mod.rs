//! Topics: listed, shown, made, changed and deleted.
//!
//! - `settings`: settings in requests and answers
//! - `changes`: making, changing and deleting
//! - `partitions`: partitions, their producers, and truncation

mod changes;
mod partitions;
mod settings;

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_broker::Broker;
use stafett_http::api::get;
use stafett_http::list::{self, List, NumberOrder, Ordered};
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot};
use stafett_messaging::queues::{Queue, QueueId};
use stafett_model::{LogId, NameRange};
use stafett_topics::{Bounds, Topic, TopicCatalog, TopicKind, TopicPage, TopicRange, is_internal};

pub(crate) use self::settings::given;
use crate::{Routes, answer};
pub(crate) use changes::RefusedEdit;
pub(crate) use partitions::no_such_partition;
use settings::Settings;

/// A topic in a list, with totals that are computed only if a request needs them.
pub(crate) struct Row {
    catalog: Arc<TopicCatalog>,
    topic: Arc<Topic>,
    totals: OnceCell<Totals>,
}

/// Records and bytes of all partitions.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    records: u64,
    bytes: u64,
}

const LIST: List<Row, TopicEntry> = List {
    name: |row| ("", &row.topic.name),
    sorts: &[
        ("partitions", |row| row.topic.partitions().into()),
        ("records", |row| row.totals().records),
        ("bytes", |row| row.totals().bytes),
    ],
    shown: |row| TopicEntry::of(&row.catalog, &row.topic, row.totals()),
};

/// Kind of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "TopicKind")]
#[serde(rename_all = "snake_case")]
enum KindShown {
    Stored,
    /// It shows a queue; each partition is a priority.
    Queue,
    /// Declared by a client of queues.
    Declared,
}

impl From<TopicKind> for KindShown {
    fn from(kind: TopicKind) -> Self {
        match kind {
            TopicKind::Stored => Self::Stored,
            TopicKind::Queue => Self::Queue,
            TopicKind::Declared => Self::Declared,
        }
    }
}

fn kind_of(word: &str) -> Result<TopicKind, Problem> {
    match word {
        "stored" => Ok(TopicKind::Stored),
        "queue" => Ok(TopicKind::Queue),
        "declared" => Ok(TopicKind::Declared),
        other => Err(Problem::bad_request(format!(
            "kind is stored, queue or declared, not {other:?}"
        ))),
    }
}

/// A topic and its totals.
#[derive(Debug, Serialize, JsonSchema)]
struct TopicEntry {
    name: String,
    /// Hexadecimal digits. A topic that is made again under a name has another id.
    id: String,
    kind: KindShown,
    /// True if only the broker writes into it.
    internal: bool,
    partitions: u32,
    /// Offsets between start and end; compaction and damage leave some without a record.
    records: u64,
    /// Stored bytes, approximately.
    bytes: u64,
    /// `sync`, `os`, `memory` or `interval:…`; null if it is that of a queue.
    durability: Option<String>,
    /// Age at which records go; null without a bound.
    retention_ms: Option<u64>,
    /// Bytes of a partition beyond which its oldest records go; null without a bound.
    retention_bytes: Option<u64>,
    /// Null if the topic shows a queue.
    settings: Option<Settings>,
    /// Settings that the topic has set for itself. The others follow the broker.
    set: Vec<&'static str>,
    counters: Counters,
    rates: Rates,
}

/// Records and bytes since the start of the broker.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "TopicCounters")]
struct Counters {
    records_in: u64,
    bytes_in: u64,
    records_out: u64,
    bytes_out: u64,
}

/// Records and bytes per second, within the latest 5 s.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "TopicRates")]
struct Rates {
    records_in: f64,
    bytes_in: f64,
    records_out: f64,
    bytes_out: f64,
}

/// A topic.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Topic")]
struct TopicShown {
    #[serde(flatten)]
    entry: TopicEntry,
    /// Queues whose messages are the records of this topic.
    queues_over: Vec<QueueName>,
    /// Queue that it shows. Null of other topics.
    shows: Option<QueueName>,
    /// Beginnings of live topics whose messages are stored here.
    live_prefixes: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct QueueName {
    namespace: String,
    name: String,
    /// A message of the queue has the id `ID-PARTITION-OFFSET` of its record.
    id: String,
}

impl QueueName {
    fn of(queue: &Queue) -> Self {
        Self {
            namespace: queue.namespace.to_string(),
            name: queue.name.to_string(),
            id: queue.id.0.to_string(),
        }
    }
}

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get(
                "/v1/topics",
                "Lists topics. The broker's own are left out unless internal is true.",
            )
            .query(&[
                Parameter::text("kind", "Only topics that are `stored`, `queue` or `declared`."),
                Parameter::flag("internal", "With the broker's own topics."),
            ])
            .lists(&LIST)
            .refuses(&[Code::NotServing]),
            list,
        )
        .route(
            get("/v1/topics/{topic}", "Shows a topic.")
                .answers::<TopicShown>(200)
                .refuses(&[Code::NotServing, Code::NoSuchTopic]),
            show,
        )
        .with(changes::routes)
        .with(partitions::routes)
}

async fn list(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let mut range = TopicRange {
        kind: query.get("kind").map(kind_of).transpose()?,
        with_internal: query.flag("internal")?,
        ..TopicRange::default()
    };
    let broker = broker.get()?;
    let (topics, catalog) = (broker.topics(), broker.catalog());
    let row = |topic: Arc<Topic>| Row {
        catalog: Arc::clone(catalog),
        topic,
        totals: OnceCell::new(),
    };
    let page = if let Some(order) = LIST.name_order(&query)? {
        let after = order.after.as_ref();
        range.names = NameRange {
            prefix: &order.prefix,
            after: after.map(|(_, name)| name.as_str()),
            descends: order.descends,
        };
        range.count = order.count;
        found(topics.page(&range), row)
    } else if let Some(order) = LIST.number_order(&query)? {
        range.names.descends = order.descends;
        range.count = order.count;
        let after = order
            .after
            .as_ref()
            .map(|(number, name)| (*number, name.as_str()));
        found(topics.page_by(&range, after, number(&order, catalog)), row)
    } else {
        let is_chosen = list::choice(&query);
        let wants = |topic: &Topic| range.wants(topic) && is_chosen(&topic.name);
        let rows = topics.chosen(wants).into_iter().map(row).collect();
        let mut page = LIST.page_of_sorted(&query, rows)?;
        page.total = topics.page(&range).total;
        return Ok(answer(StatusCode::OK, &page));
    };
    Ok(answer(StatusCode::OK, &LIST.ordered_page(&query, &page)?))
}

fn found(page: TopicPage, row: impl Fn(Arc<Topic>) -> Row) -> Ordered<Row> {
    Ordered {
        entries: page.topics.into_iter().map(row).collect(),
        has_more: page.has_more,
        matched: page.matched,
        total: page.total,
    }
}

/// Returns the number by which topics are sorted. Bounds are asked for once, those of logs that have records:
/// most have none.
fn number(order: &NumberOrder, catalog: &TopicCatalog) -> impl Fn(&Topic) -> u64 {
    let field = order.field;
    let filled = if field == "partitions" {
        HashMap::new()
    } else {
        catalog.filled()
    };
    move |topic| {
        let totals = || Totals::sum(topic, |log| filled.get(&log).copied());
        match field {
            "records" => totals().records,
            "bytes" => totals().bytes,
            _ => topic.partitions().into(),
        }
    }
}

async fn show(State(broker): State<Slot<Broker>>, Path(name): Path<String>) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let topic = find(&broker, &name)?;
    Ok(answer(StatusCode::OK, &TopicShown::of(&broker, &topic)))
}

/// Returns a topic by name.
pub(crate) fn find(broker: &Broker, name: &str) -> Result<Arc<Topic>, Problem> {
    broker.topics().named(name).ok_or_else(|| no_such_topic(name))
}

pub(crate) fn no_such_topic(name: &str) -> Problem {
    Problem::new(Code::NoSuchTopic, format!("there is no topic {name:?}"))
}

/// Refuses to change a topic that is the broker's own, or shows a queue.
pub(crate) fn check_mutable(topic: &Topic) -> Result<(), Problem> {
    let why = if is_internal(&topic.name) {
        format!("the topic {:?} is the broker's own", topic.name)
    } else if topic.id.is_queue() {
        format!("the topic {:?} shows a queue: change that", topic.name)
    } else {
        return Ok(());
    };
    Err(Problem::new(Code::Immutable, why))
}

/// Waits until the bounds of all partitions of a topic are known, which may lie in several cells.
pub(crate) async fn reach(broker: &Broker, topic: &Topic) -> Result<(), Problem> {
    if broker.catalog().reach(topic).await {
        return Ok(());
    }
    Err(away(&topic.name))
}

/// Refusal for partitions in another cell, which has no owner.
pub(crate) fn away(topic: &str) -> Problem {
    stafett_http::slot::not_serving(format!(
        "a cell of the cluster with partitions of topic {topic:?} has no owner"
    ))
}

impl Row {
    fn totals(&self) -> Totals {
        *self.totals.get_or_init(|| Totals::of(&self.catalog, &self.topic))
    }
}

impl Totals {
    fn of(catalog: &TopicCatalog, topic: &Topic) -> Self {
        Self::sum(topic, |log| catalog.bounds(log))
    }

    fn sum(topic: &Topic, bounds: impl Fn(LogId) -> Option<Bounds>) -> Self {
        let logs = (0..topic.partitions()).filter_map(|partition| topic.log(partition));
        let bounds = logs.filter_map(bounds);
        bounds.fold(Self::default(), |sum, bounds| Self {
            records: sum.records + bounds.end.0.saturating_sub(bounds.start.0),
            bytes: sum.bytes + bounds.bytes,
        })
    }
}

impl TopicEntry {
    fn of(catalog: &TopicCatalog, topic: &Topic, totals: Totals) -> Self {
        let kind = topic.kind();
        let traffic = catalog.topics().traffic();
        let counts = traffic.total(topic);
        let [records_in, bytes_in, records_out, bytes_out] = traffic.rates(topic);
        let settings = (kind != TopicKind::Queue).then(|| Settings::of(&catalog.defaults(), &topic.settings));
        Self {
            name: topic.name.to_string(),
            id: id_text(topic),
            kind: kind.into(),
            internal: is_internal(&topic.name),
            partitions: topic.partitions(),
            records: totals.records,
            bytes: totals.bytes,
            durability: settings.as_ref().map(|settings| settings.durability.clone()),
            retention_ms: settings
                .as_ref()
                .and_then(|settings| settings.retention_ms.number()),
            retention_bytes: settings
                .as_ref()
                .and_then(|settings| settings.retention_bytes.number()),
            set: settings::set(&topic.settings),
            settings,
            counters: Counters {
                records_in: counts.records_in,
                bytes_in: counts.bytes_in,
                records_out: counts.records_out,
                bytes_out: counts.bytes_out,
            },
            rates: Rates {
                records_in,
                bytes_in,
                records_out,
                bytes_out,
            },
        }
    }
}

impl TopicShown {
    fn of(broker: &Broker, topic: &Topic) -> Self {
        let catalog = broker.catalog();
        Self {
            entry: TopicEntry::of(catalog, topic, Totals::of(catalog, topic)),
            queues_over: queues_over(broker, topic),
            shows: topic.id.queue().and_then(|id| {
                let queue = broker.messaging().queues().with_id(QueueId(id))?;
                Some(QueueName::of(&queue))
            }),
            live_prefixes: live_prefixes(broker, topic),
        }
    }
}

fn queues_over(broker: &Broker, topic: &Topic) -> Vec<QueueName> {
    let queues = broker.messaging().queues().all();
    let over = queues.iter().filter(|queue| queue.over == Some(topic.id));
    let mut names: Vec<QueueName> = over.map(|queue| QueueName::of(queue)).collect();
    names.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    names
}

fn live_prefixes(broker: &Broker, topic: &Topic) -> Vec<String> {
    let prefixes = broker.live_topics().prefixes_over(topic.id);
    prefixes.into_iter().map(String::from).collect()
}

pub(crate) fn id_text(topic: &Topic) -> String {
    format!("{:032x}", topic.id.0)
}
