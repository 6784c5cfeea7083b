//! Lists, purges, moves and deletes queues.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_broker::Broker;
use stafett_http::api::{delete, get, post};
use stafett_http::list::List;
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot, body};
use stafett_messaging::queues::{Queue, QueueId};
use stafett_model::Namespace;

use crate::definition::Settings;
use crate::operations::{self, Operations, Plan, Progress};
use crate::refusals::{self, of_deletion, of_move};
use crate::{Routes, answer, namespace};

/// Maximum number of messages that one request moves.
const MOVED_MAX: u64 = 1_000_000_000;
/// Number of messages that move before an operation looks whether it is to stop.
const MOVED_AT_A_TIME: u64 = 10_000;

/// Namespace of the queue of a request.
pub(crate) const NAMESPACE: Parameter =
    Parameter::text("namespace", "Namespace of the queue; / if it is absent.");

const LIST: List<Arc<Queue>, QueueStatus> = List {
    name: |queue| (queue.namespace.as_str(), &queue.name),
    sorts: &[
        ("ready", |queue| queue.counts().ready),
        ("in_flight", |queue| queue.counts().in_flight as u64),
        ("consumers", |queue| queue.counts().consumers as u64),
    ],
    shown: |queue| shown(queue),
};

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
    /// True if it is the queue of a registered client.
    personal: bool,
    #[serde(flatten)]
    settings: Settings,
}

/// Number of messages that a request concerned.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MessageCount {
    pub(crate) messages: u64,
}

/// A move.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Move {
    to: MoveTarget,
    /// Messages to move at most; if it is absent, as many as wait now.
    #[schemars(range(max = MOVED_MAX))]
    count: Option<u64>,
}

/// Target of a move.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MoveTarget {
    /// Name of a queue of the same namespace.
    queue: String,
}

/// Result of a move.
#[derive(Debug, Serialize, JsonSchema)]
struct Moved {
    messages: u64,
    /// Reason why a request ended the move early. A move that an error ends is refused, with the number of
    /// messages that moved.
    stopped: Option<&'static str>,
}

/// Returns the routes of queues.
pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get("/v1/queues", "Lists queues, those of one namespace or of all.")
                .query(&[
                    Parameter::text("namespace", "Only the queues of this namespace."),
                    Parameter::flag("ready", "Only queues in which messages wait."),
                ])
                .lists(&LIST)
                .refuses(&[Code::NotServing]),
            list,
        )
        .route(
            get("/v1/queues/{queue}", "Shows a queue.")
                .query(&[NAMESPACE])
                .answers::<QueueStatus>(200)
                .refuses(&[Code::NotServing, Code::NoSuchQueue]),
            show,
        )
        .route(
            delete("/v1/queues/{queue}", "Deletes a queue with its messages. One that belongs to a connection too.")
                .event("queue.deleted")
                .query(&[
                    NAMESPACE,
                    Parameter::flag("if_unused", "Only if it has no consumers."),
                    Parameter::flag("if_empty", "Only if no message waits."),
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
            .query(&[NAMESPACE])
            .refuses(&[Code::NotServing, Code::NoSuchQueue]),
            purge,
        )
        .route(
            operations::begins::<Moved>(post(
                "/v1/queues/{queue}/move",
                "Moves messages from the front to another queue. Each message is stored there and settled here by one \
                 append.",
            ))
            .event("queue.moved")
            .query(&[NAMESPACE])
            .body::<Move>()
            .refuses(&refusals::STORAGE)
            .refuses(&refusals::MOVE)
            .refuses(&[Code::NoSuchQueue]),
            move_messages,
        )
}

async fn list(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let only = query.get("namespace").map(Namespace::new);
    let is_ready = query.flag("ready")?;
    let mut queues = broker.get()?.messaging().queues().all();
    queues.retain(|queue| {
        only.as_ref().is_none_or(|only| queue.namespace == *only) && (!is_ready || queue.counts().ready > 0)
    });
    Ok(answer(StatusCode::OK, &LIST.page(&query, queues)?))
}

async fn show(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let queue = find(&*broker.get()?, &namespace(&query), &name)?;
    Ok(answer(StatusCode::OK, &shown(&queue)))
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
        personal: queue.personal,
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
    let (if_unused, if_empty) = (query.flag("if_unused")?, query.flag("if_empty")?);
    // An exclusive queue is deleted as if by its owner.
    let owner = queue
        .exclusive
        .unwrap_or_else(|| broker.messaging().queues().new_owner());
    let deleted =
        broker
            .messaging()
            .queues()
            .delete(&queue.namespace, &queue.name, if_unused, if_empty, owner);
    let messages = deleted.await.map_err(of_deletion)?;
    Ok(answer(StatusCode::OK, &MessageCount { messages }))
}

async fn purge(
    State(broker): State<Slot<Broker>>,
    State(operations): State<Operations>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let queue = find(&*broker.get()?, &namespace(&query), &name)?;
    let plan = plan("purge", &queue, false);
    let work = async move |_: Arc<Progress>| {
        Ok(MessageCount {
            messages: queue.purge(),
        })
    };
    operations.run(plan, &query, work).await
}

fn plan(what: &'static str, queue: &Queue, stops: bool) -> Plan {
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

async fn move_messages(
    State(broker): State<Slot<Broker>>,
    State(operations): State<Operations>,
    Path(name): Path<String>,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Move = body::json(request).await?;
    let broker = broker.get()?;
    let namespace = namespace(&query);
    let (from, to) = (
        find(&broker, &namespace, &name)?,
        find(&broker, &namespace, &wanted.to.queue)?,
    );
    if Arc::ptr_eq(&from, &to) {
        return Err(Problem::bad_request("the messages are in this queue already"));
    }
    if from.over.is_some() && from.over == to.over {
        return Err(Problem::bad_request(
            "both queues lie over the same topic: what moves would come back",
        ));
    }
    let count = wanted.count.unwrap_or_else(|| from.counts().ready);
    if count > MOVED_MAX {
        return Err(Problem::bad_request(format!("count is at most {MOVED_MAX}")));
    }
    let plan = plan("move", &from, true);
    let work = async move |progress: Arc<Progress>| move_steps(&broker, (&from, &to), count, &progress).await;
    operations.run(plan, &query, work).await
}

/// Moves messages in steps, between which the operation can be stopped.
async fn move_steps(
    broker: &Broker,
    (from, to): (&Arc<Queue>, &Arc<Queue>),
    count: u64,
    progress: &Progress,
) -> Result<Moved, Problem> {
    let (mut messages, mut stopped) = (0, None);
    progress.set(0, count);
    while messages < count {
        if progress.stops() {
            stopped = Some("stopped by a request");
            break;
        }
        let step = (count - messages).min(MOVED_AT_A_TIME);
        let moved = broker.messaging().move_messages(from, to, step).await;
        let moved = moved.map_err(|error| of_move(messages, error.into()))?;
        messages += moved.messages;
        progress.set(messages, count);
        match moved.stopped {
            Some(why) => return Err(of_move(messages, why)),
            None if moved.messages < step => break,
            None => {}
        }
    }
    Ok(Moved { messages, stopped })
}

/// Returns a queue by its id.
pub(crate) fn with_id(broker: &Broker, id: &str) -> Option<Arc<Queue>> {
    let id = QueueId(id.parse().ok()?);
    let mut queues = broker.messaging().queues().all().into_iter();
    queues.find(|queue| queue.id == id)
}

/// Returns a queue by name.
pub(crate) fn find(broker: &Broker, namespace: &Namespace, name: &str) -> Result<Arc<Queue>, Problem> {
    let found = broker.messaging().queues().get(namespace, name);
    found.ok_or_else(|| {
        let why = format!("there is no queue {name:?} in namespace {namespace}");
        Problem::new(Code::NoSuchQueue, why)
    })
}
