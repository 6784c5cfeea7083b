//! Lists, purges and deletes queues.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_broker::Broker;
use stafett_delivery::{MessageCounts, QueueSeries};
use stafett_http::api::{delete, get, post};
use stafett_http::list::{List, Ordered};
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot};
use stafett_messaging::queues::{DeleteConditions, DeleteQueueError, Queue, QueueId, QueueRange};
use stafett_model::Namespace;
use stafett_topics::TopicId;

use crate::caller;
use crate::definition::Settings;
use crate::operations::{self, Operations, Plan, Progress};
use crate::refusals::{self, of_deletion};
use crate::{Routes, answer, namespace};

/// Namespace of the queue of a request.
pub(crate) const NAMESPACE: Parameter =
    Parameter::text("namespace", "Namespace of the queue; / if it is absent.");

/// Series of messages given out in any way.
const DELIVERED: [QueueSeries; 3] = [
    QueueSeries::Delivered,
    QueueSeries::DeliveredUnsettled,
    QueueSeries::Got,
];

const IF_ID: Parameter = Parameter::text("if_id", "Only if the queue has this id.");
const IF_READY_MAX: Parameter =
    Parameter::number("if_ready_max", READY_MAX, "Only if no more messages wait.");
const READY_MAX: u64 = (1 << 53) - 1;

const LIST: List<Arc<Queue>, QueueStatus> = List {
    name: |queue| (queue.namespace.as_str(), &queue.name),
    sorts: &[
        ("ready", |queue| if_listed(queue, |queue| queue.counts().ready)),
        ("in_flight", |queue| {
            if_listed(queue, |queue| queue.counts().in_flight as u64)
        }),
        ("consumers", |queue| queue.counts().consumers as u64),
        ("bytes_ready", |queue| {
            if_listed(queue, |queue| queue.bytes_ready())
        }),
        ("published_rate", |queue| {
            queue.increase(&[QueueSeries::Published])
        }),
        ("delivered_rate", |queue| queue.increase(&DELIVERED)),
    ],
    shown: |queue| shown(queue),
};

/// Returns a number of messages. A queue that has none is not looked at: most are.
fn if_listed(queue: &Queue, number: fn(&Queue) -> u64) -> u64 {
    if queue.may_have_messages() {
        number(queue)
    } else {
        0
    }
}

/// A queue and its counts.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Queue")]
#[expect(clippy::struct_excessive_bools, reason = "fields of an answer")]
pub(crate) struct QueueStatus {
    name: String,
    /// Number of the queue, which no other ever has.
    id: String,
    namespace: String,
    durable: bool,
    /// True if it belongs to a connection.
    exclusive: bool,
    /// True if it goes with its last consumer.
    auto_delete: bool,
    /// Messages that wait.
    ready: u64,
    /// Messages that consumers have and did not settle yet.
    in_flight: usize,
    consumers: usize,
    /// Bytes of the messages that wait; of a queue without limits an estimate from those that came since the
    /// start.
    bytes_ready: u64,
    counters: Counters,
    rates: Rates,
    /// True if it is the queue of a registered client.
    personal: bool,
    state: QueueState,
    #[serde(flatten)]
    settings: Settings,
}

/// Messages since the start of the broker, by their way.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[schemars(rename = "QueueCounters")]
pub(crate) struct Counters {
    published: u64,
    published_bytes: u64,
    /// Deliveries to consumers.
    delivered: u64,
    /// Messages given to requests.
    got: u64,
    /// Deliveries of messages that had been given out before.
    redelivered: u64,
    completed: u64,
    requeued: u64,
    discarded: u64,
    expired: u64,
    /// Messages dropped, as there were too many.
    overflowed: u64,
    /// Messages stored where dead letters go.
    dead_lettered: u64,
    /// Messages refused, as the queue was full.
    refused: u64,
    /// Messages that requests moved here and away.
    moved: u64,
}

/// Messages per second, within the latest 5 s.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[schemars(rename = "QueueRates")]
pub(crate) struct Rates {
    published: f64,
    /// Deliveries to consumers and to requests.
    delivered: f64,
    completed: f64,
    redelivered: f64,
}

impl Counters {
    pub(crate) fn of(counts: MessageCounts) -> Self {
        Self {
            published: counts.published,
            published_bytes: counts.published_bytes,
            delivered: counts.delivered + counts.delivered_unsettled,
            got: counts.got + counts.got_unsettled,
            redelivered: counts.redelivered,
            completed: counts.completed,
            requeued: counts.requeued,
            discarded: counts.discarded,
            expired: counts.expired,
            overflowed: counts.overflowed,
            dead_lettered: counts.dead_lettered,
            refused: counts.refused,
            moved: counts.moved_in + counts.moved_out,
        }
    }
}

impl Rates {
    pub(crate) fn of(queue: &Queue) -> Self {
        Self {
            published: queue.rate(&[QueueSeries::Published]),
            delivered: queue.rate(&DELIVERED),
            completed: queue.rate(&[QueueSeries::Completed]),
            redelivered: queue.rate(&[QueueSeries::Redelivered]),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.published += other.published;
        self.delivered += other.delivered;
        self.completed += other.completed;
        self.redelivered += other.redelivered;
    }
}

/// Condition of a queue.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum QueueState {
    Running,
    /// Nothing is handed out until it is resumed.
    Paused,
    /// Its log cannot be read now.
    Stalled,
    /// It is being deleted.
    Going,
}

impl QueueState {
    fn of(queue: &Queue) -> Self {
        if queue.is_deleted() {
            Self::Going
        } else if queue.is_paused() {
            Self::Paused
        } else if queue.is_stalled() {
            Self::Stalled
        } else {
            Self::Running
        }
    }
}

/// Number of messages that a request concerned.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MessageCount {
    pub(crate) messages: u64,
}

/// Returns the routes of queues.
pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get("/v1/queues", "Lists queues, those of one namespace or of all.")
                .query(&[
                    Parameter::text("namespace", "Only the queues of this namespace."),
                    Parameter::flag("ready", "Only queues in which messages wait."),
                    Parameter::text("id", "Only the queue with this id."),
                    Parameter::flag(
                        "personal",
                        "Only queues of registered clients, or with false only others.",
                    ),
                    Parameter::flag(
                        "exclusive",
                        "Only queues of connections, or with false only others.",
                    ),
                    Parameter::flag("unconsumed", "Only queues without a consumer."),
                    Parameter::flag("paused", "Only queues that hand nothing out."),
                    Parameter::flag(
                        "growing",
                        "Only queues to which more comes than is completed, within the latest 5 s.",
                    ),
                    Parameter::text("over", "Only queues over this topic."),
                    Parameter::text("client", "Only the queue of this registered client."),
                ])
                .lists(&LIST)
                .refuses(&[Code::NotServing, Code::NoSuchTopic]),
            list,
        )
        .route(
            delete(
                "/v1/queues/{queue}",
                "Deletes a queue with its messages. One that belongs to a connection too.",
            )
            .event("queue.deleted")
            .query(&[
                NAMESPACE,
                Parameter::flag("if_unused", "Only if it has no consumers."),
                Parameter::flag("if_empty", "Only if no message waits."),
                IF_ID,
                IF_READY_MAX,
            ])
            .answers::<MessageCount>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&refusals::DELETION),
            delete_queue,
        )
        .route(
            operations::begins::<MessageCount>(post(
                "/v1/queues/{queue}/purge",
                "Settles all messages that wait.",
            ))
            .event("queue.purged")
            .query(&[NAMESPACE, IF_ID, IF_READY_MAX])
            .refuses(&[Code::NotServing, Code::NoSuchQueue, Code::Changed]),
            purge,
        )
        .with(crate::queue_details::routes)
        .with(crate::moves::routes)
}

async fn list(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let queues = broker.messaging().queues();
    let only = query.get("namespace").map(Namespace::new);
    let choice = Choice::of(&broker, &query)?;
    if choice == Choice::default()
        && let Some(order) = LIST.name_order(&query)?
    {
        let after = order.after.as_ref();
        let page = queues.page(QueueRange {
            namespace: only.as_ref(),
            prefix: &order.prefix,
            after: after.map(|(namespace, name)| (namespace.as_str(), name.as_str())),
            descends: order.descends,
            count: order.count,
        });
        let found = Ordered {
            entries: page.queues,
            has_more: page.has_more,
            matched: page.matched,
            total: page.total,
        };
        return Ok(answer(StatusCode::OK, &LIST.ordered_page(&query, &found)?));
    }
    let mut found = if let Some(id) = choice.id {
        queues.with_id(id).into_iter().collect()
    } else if choice.is_ready {
        let waiting = queues.with_messages(only.as_ref()).into_iter();
        waiting.map(|(queue, _)| queue).collect()
    } else {
        queues.all_sorted()
    };
    found.retain(|queue| only.as_ref().is_none_or(|only| queue.namespace == *only) && choice.wants(queue));
    Ok(answer(StatusCode::OK, &LIST.page_of_sorted(&query, found)?))
}

/// Choice of the queues of a list.
#[derive(Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "conditions of a query")]
struct Choice {
    is_ready: bool,
    is_unconsumed: bool,
    is_paused: bool,
    is_growing: bool,
    id: Option<QueueId>,
    is_personal: Option<bool>,
    is_exclusive: Option<bool>,
    over: Option<TopicId>,
    client: Option<String>,
}

impl Choice {
    fn of(broker: &Broker, query: &Query) -> Result<Self, Problem> {
        let flag = |key| query.get(key).map(|_| query.flag(key)).transpose();
        let id = query.get("id").map(|id| {
            let id = id.parse().map(QueueId);
            id.map_err(|_| Problem::bad_request("id is the id of a queue, a number"))
        });
        let over = query.get("over").map(|name| {
            let topic = broker.topics().named(name);
            let why = || Problem::new(Code::NoSuchTopic, format!("there is no topic {name:?}"));
            topic.map(|topic| topic.id).ok_or_else(why)
        });
        Ok(Self {
            is_ready: query.flag("ready")?,
            is_unconsumed: query.flag("unconsumed")?,
            is_paused: query.flag("paused")?,
            is_growing: query.flag("growing")?,
            id: id.transpose()?,
            is_personal: flag("personal")?,
            is_exclusive: flag("exclusive")?,
            over: over.transpose()?,
            client: query.get("client").map(caller::queue_name),
        })
    }

    fn wants(&self, queue: &Queue) -> bool {
        let client = self.client.as_ref();
        (!self.is_ready || queue.may_have_messages() && queue.counts().ready > 0)
            && (!self.is_unconsumed || queue.counts().consumers == 0)
            && (!self.is_paused || queue.is_paused())
            && (!self.is_growing || is_growing(queue))
            && self.id.is_none_or(|id| queue.id == id)
            && self.is_personal.is_none_or(|is| queue.personal == is)
            && self.is_exclusive.is_none_or(|is| queue.exclusive.is_some() == is)
            && self.over.is_none_or(|topic| queue.over == Some(topic))
            && client.is_none_or(|name| queue.personal && *queue.name == **name)
    }
}

fn is_growing(queue: &Queue) -> bool {
    queue.increase(&[QueueSeries::Published]) > queue.increase(&[QueueSeries::Completed, QueueSeries::Got])
}

pub(crate) fn shown(queue: &Queue) -> QueueStatus {
    let counts = queue.counts();
    QueueStatus {
        name: queue.name.to_string(),
        id: queue.id.0.to_string(),
        namespace: queue.namespace.to_string(),
        durable: queue.durable,
        exclusive: queue.exclusive.is_some(),
        auto_delete: queue.auto_delete,
        ready: counts.ready,
        in_flight: counts.in_flight,
        consumers: counts.consumers,
        bytes_ready: queue.bytes_ready(),
        counters: Counters::of(queue.message_counts()),
        rates: Rates::of(queue),
        personal: queue.personal,
        state: QueueState::of(queue),
        settings: Settings::of(queue),
    }
}

async fn delete_queue(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let queue = find(&broker, &namespace(&query), &name)?;
    check_id(&query, &queue)?;
    let ready_max = query.number("if_ready_max", READY_MAX)?;
    let conditions = DeleteConditions {
        if_unused: query.flag("if_unused")?,
        ready_max: if query.flag("if_empty")? {
            Some(0)
        } else {
            ready_max
        },
    };
    // An exclusive queue is deleted as if by its owner.
    let deleted = broker.messaging().queues().delete_this(&queue, conditions);
    let messages = deleted.await.map_err(of_deletion)?;
    Ok(answer(StatusCode::OK, &MessageCount { messages }))
}

/// Refuses a request whose condition names another queue.
fn check_id(query: &Query, queue: &Queue) -> Result<(), Problem> {
    let id = queue.id.0.to_string();
    match query.get("if_id") {
        Some(wanted) if wanted != id => {
            let why = format!("the queue {:?} has the id {id}, not {wanted:?}", &*queue.name);
            Err(Problem::new(Code::Changed, why).with("id", id))
        }
        _ => Ok(()),
    }
}

async fn purge(
    State(broker): State<Slot<Broker>>,
    State(operations): State<Operations>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let queue = find(&*broker.get()?, &namespace(&query), &name)?;
    check_id(&query, &queue)?;
    let max = query.number("if_ready_max", READY_MAX)?.unwrap_or(u64::MAX);
    let plan = plan("purge", &queue, false);
    let work = async move |_: Arc<Progress>| match queue.purge_up_to(max) {
        Ok(messages) => Ok(MessageCount { messages }),
        Err(ready) => Err(of_deletion(DeleteQueueError::TooMany { ready })),
    };
    operations.run(plan, &query, work).await
}

pub(crate) fn plan(what: &'static str, queue: &Queue, stops: bool) -> Plan {
    Plan {
        what,
        on: BTreeMap::from([
            ("namespace", queue.namespace.to_string()),
            ("queue", queue.name.to_string()),
        ]),
        unit: "messages",
        stops,
    }
}

/// Returns a queue by its id.
pub(crate) fn with_id(broker: &Broker, id: &str) -> Option<Arc<Queue>> {
    broker.messaging().queues().with_id(QueueId(id.parse().ok()?))
}

/// Returns a queue by name.
pub(crate) fn find(broker: &Broker, namespace: &Namespace, name: &str) -> Result<Arc<Queue>, Problem> {
    let found = broker.messaging().queues().get(namespace, name);
    found.ok_or_else(|| no_such_queue(namespace, name))
}

pub(crate) fn no_such_queue(namespace: &Namespace, name: &str) -> Problem {
    let why = format!("there is no queue {name:?} in namespace {namespace}");
    Problem::new(Code::NoSuchQueue, why)
}
