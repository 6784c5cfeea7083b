//! Lists consumers of queues and of topics, and cancels one.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_broker::Broker;
use stafett_http::api::{delete, get};
use stafett_http::list::List;
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot};
use stafett_messaging::{ConsumerEntry, ConsumerSource};

use crate::queues::{self, NAMESPACE};
use crate::{Routes, answer, namespace};

/// A consumer with the text that gives its place in a list.
struct Row {
    entry: Arc<ConsumerEntry>,
    /// The id with zeros in front, so that its order is that of numbers.
    order: String,
}

const LIST: List<Row, Consumer> = List {
    name: |row| (&row.order, &row.entry.facts.name),
    sorts: &[
        ("in_flight", |row| in_flight(&row.entry)),
        ("connection", |row| row.entry.facts.connection),
    ],
    shown: |row| shown(&row.entry),
};

/// A consumer.
#[derive(Debug, Serialize, JsonSchema)]
struct Consumer {
    /// Number of the consumer, which no other has until the broker starts again.
    id: String,
    /// Name that its client knows it by.
    name: String,
    /// Id of the connection.
    connection: String,
    /// Number of the channel on it.
    channel: u16,
    namespace: String,
    /// Name of the queue; null if it reads a topic.
    queue: Option<String>,
    /// Name of the topic in the namespace; null if it consumes a queue.
    topic: Option<String>,
    /// True if it settles its messages; false if delivery settles them.
    settles: bool,
    /// True if no other consumer is allowed.
    exclusive: bool,
    /// The highest is served first.
    priority: i32,
    /// Messages that it may have in flight; null for any number.
    prefetch: Option<u32>,
    /// Messages that it has or that wait for it, and are not settled.
    in_flight: u64,
    /// False if another consumer gets all messages.
    active: bool,
}

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get(
                "/v1/consumers",
                "Lists consumers of queues and of topics, the oldest first. `name` in the order is their age.",
            )
            .query(&[
                Parameter::text("queue", "Only those of this queue of the namespace."),
                Parameter::text("topic", "Only those of this topic."),
                Parameter::text("connection", "Only those of the connection with this id."),
                Parameter::text("namespace", "Namespace of the queue, / if it is absent; without `queue`, only those in it."),
            ])
            .lists(&LIST)
            .refuses(&[Code::NotServing, Code::NoSuchQueue, Code::NoSuchTopic]),
            list,
        )
        .route(
            delete(
                "/v1/consumers/{id}",
                "Cancels a consumer and tells its client. Messages that wait for it return to the queue; those that the client has stay its own until it settles them.",
            )
            .answers::<Consumer>(200)
            .refuses(&[Code::NotServing, Code::NoSuchConsumer]),
            cancel,
        )
        .route(
            get("/v1/queues/{queue}/consumers", "Lists the consumers of a queue, the oldest first.")
                .query(&[NAMESPACE])
                .lists(&LIST)
                .refuses(&[Code::NotServing, Code::NoSuchQueue]),
            of_queue,
        )
}

async fn list(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let consumers = broker.messaging().consumers();
    let mut found = match (query.get("queue"), query.get("topic")) {
        (Some(_), Some(_)) => {
            return Err(Problem::bad_request(
                "a consumer has a queue or a topic, not both",
            ));
        }
        (Some(queue), None) => {
            let queue = queues::find(&broker, &namespace(&query), queue)?;
            consumers.of(ConsumerSource::Queue(queue.id))
        }
        (None, Some(topic)) => {
            let found = broker.topics().named(topic).ok_or_else(|| {
                let why = format!("there is no topic {topic:?}");
                Problem::new(Code::NoSuchTopic, why)
            })?;
            consumers.of(ConsumerSource::Topic(found.id))
        }
        (None, None) => {
            let mut all = consumers.all();
            if let Some(wanted) = query.get("namespace") {
                all.retain(|entry| entry.facts.namespace.as_str() == wanted);
            }
            all
        }
    };
    if let Some(wanted) = query.get("connection") {
        found.retain(|entry| entry.facts.connection.to_string() == wanted);
    }
    page(&query, found)
}

async fn of_queue(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let queue = queues::find(&broker, &namespace(&query), &name)?;
    let found = broker.messaging().consumers().of(ConsumerSource::Queue(queue.id));
    page(&query, found)
}

fn page(query: &Query, found: Vec<Arc<ConsumerEntry>>) -> Result<Response, Problem> {
    let row = |entry: Arc<ConsumerEntry>| Row {
        order: format!("{:020}", entry.id),
        entry,
    };
    let rows = found.into_iter().map(row).collect();
    Ok(answer(StatusCode::OK, &LIST.page(query, rows)?))
}

async fn cancel(State(broker): State<Slot<Broker>>, Path(id): Path<String>) -> Result<Response, Problem> {
    let none = || {
        let why = format!("there is no consumer {id:?}");
        Problem::new(Code::NoSuchConsumer, why)
    };
    let broker = broker.get()?;
    let number = id.parse().map_err(|_| none())?;
    let entry = broker.messaging().consumers().get(number).ok_or_else(none)?;
    let before = shown(&entry);
    if !entry.cancel() {
        return Err(none());
    }
    Ok(answer(StatusCode::OK, &before))
}

fn in_flight(entry: &ConsumerEntry) -> u64 {
    entry.state().map_or(0, |state| state.in_flight.into())
}

fn shown(entry: &ConsumerEntry) -> Consumer {
    let facts = &entry.facts;
    let state = entry.state();
    let source = || Some(facts.source_name.to_string());
    let (queue, topic) = match facts.source {
        ConsumerSource::Queue(_) => (source(), None),
        ConsumerSource::Topic(_) => (None, source()),
    };
    Consumer {
        id: entry.id.to_string(),
        name: facts.name.to_string(),
        connection: facts.connection.to_string(),
        channel: facts.channel,
        namespace: facts.namespace.to_string(),
        queue,
        topic,
        settles: facts.settles,
        exclusive: facts.exclusive,
        priority: facts.priority,
        prefetch: facts.credit,
        in_flight: state.map_or(0, |state| state.in_flight.into()),
        active: state.is_some_and(|state| state.is_active),
    }
}
