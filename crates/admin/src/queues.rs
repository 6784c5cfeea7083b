//! Queues: listed, emptied, moved, deleted.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use stafett_broker::Broker;
use stafett_broker::queues::{DeleteQueueError, Queue, Targets};

use crate::front::AdminFront;
use crate::query::Query;
use crate::{Refusal, answer, refuse};

/// Messages that one request moves.
const MOVED_MAX: u64 = 1_000_000_000;

pub(crate) async fn list(
    State(front): State<AdminFront>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let query = Query::read(query, &["namespace"])?;
    let wanted = query.get("namespace");
    let mut queues = front.broker()?.queues().all();
    queues.retain(|queue| wanted.is_none_or(|wanted| queue.namespace.as_str() == wanted));
    queues.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    let queues: Vec<Value> = queues.iter().map(|queue| told(queue)).collect();
    Ok(answer(StatusCode::OK, &json!({ "queues": queues })))
}

fn told(queue: &Queue) -> Value {
    let counts = queue.counts();
    json!({
        "namespace": queue.namespace.as_str(),
        "queue": &*queue.name,
        "ready": counts.ready,
        "in_flight": counts.in_flight,
        "consumers": counts.consumers,
        "durable": queue.durable,
        "exclusive": queue.exclusive.is_some(),
        "auto_delete": queue.auto_delete,
    })
}

pub(crate) async fn delete(
    State(front): State<AdminFront>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let query = Query::read(query, &["namespace", "queue", "if_unused", "if_empty"])?;
    let broker = front.broker()?;
    let queue = find(&broker, &query, "queue")?;
    let (if_unused, if_empty) = (query.flag("if_unused")?, query.flag("if_empty")?);
    // Whoever has it for himself loses it as well.
    let owner = queue.exclusive.unwrap_or_else(|| broker.queues().new_owner());
    let deleted = broker
        .queues()
        .delete(&queue.namespace, &queue.name, if_unused, if_empty, owner);
    let messages = deleted.await.map_err(refused)?;
    Ok(answer(StatusCode::OK, &json!({ "messages": messages })))
}

pub(crate) async fn purge(
    State(front): State<AdminFront>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let query = Query::read(query, &["namespace", "queue"])?;
    let broker = front.broker()?;
    let queue = find(&broker, &query, "queue")?;
    Ok(answer(StatusCode::OK, &json!({ "messages": queue.purge() })))
}

pub(crate) async fn move_messages(
    State(front): State<AdminFront>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let query = Query::read(query, &["namespace", "queue", "to", "count"])?;
    let broker = front.broker()?;
    let (from, to) = (find(&broker, &query, "queue")?, find(&broker, &query, "to")?);
    if Arc::ptr_eq(&from, &to) {
        return Err(refuse(
            StatusCode::BAD_REQUEST,
            "the messages are in this queue already",
        ));
    }
    let counts = from.counts();
    let count = query.number("count", MOVED_MAX)?.unwrap_or(counts.ready);
    let targets = Targets {
        queues: [to].into_iter().collect(),
        ..Targets::default()
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let messages = from.move_ready(&targets, count).await;
    Ok(answer(StatusCode::OK, &json!({ "messages": messages })))
}

/// The queue that a request names.
pub(crate) fn find(broker: &Broker, query: &Query, key: &str) -> Result<Arc<Queue>, Refusal> {
    let (namespace, name) = (query.namespace(), query.wanted(key)?);
    broker.queues().get(&namespace, name).ok_or_else(|| {
        let why = format!("there is no queue {name:?} in namespace {namespace}");
        refuse(StatusCode::NOT_FOUND, why)
    })
}

fn refused(error: DeleteQueueError) -> Refusal {
    let status = match error {
        DeleteQueueError::NoSuchQueue => StatusCode::NOT_FOUND,
        DeleteQueueError::InUse | DeleteQueueError::NotEmpty | DeleteQueueError::Locked => {
            StatusCode::CONFLICT
        }
        DeleteQueueError::NotStored(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    refuse(status, error)
}
