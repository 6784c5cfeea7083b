//! Lists, purges, moves and deletes queues.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use stafett_broker::Broker;
use stafett_http::list::List;
use stafett_http::{Problem, Query, Slot, body};
use stafett_messaging::queues::Queue;
use stafett_model::Namespace;

use crate::refusals::{no_such_queue, not_stored, of_deletion, of_move};
use crate::{answer, list_query, namespace};

/// Maximum number of messages that one request moves.
const MOVED_MAX: u64 = 1_000_000_000;

const LIST: List<Arc<Queue>> = List {
    name: |queue| (queue.namespace.as_str(), &queue.name),
    sorts: &[
        ("ready", |queue| queue.counts().ready),
        ("in_flight", |queue| queue.counts().in_flight as u64),
        ("consumers", |queue| queue.counts().consumers as u64),
    ],
    shown: |queue| shown(queue),
};

/// Body of a move.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Move {
    to: MoveTarget,
    count: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MoveTarget {
    queue: String,
}

/// Lists queues; with `ready=true` those in which messages wait.
pub(crate) async fn list(
    State(broker): State<Slot<Broker>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = list_query(query.as_deref(), &["namespace", "ready"])?;
    let only = query.get("namespace").map(Namespace::new);
    let is_ready = query.flag("ready")?;
    let mut queues = broker.get()?.messaging().queues().all();
    queues.retain(|queue| {
        only.as_ref().is_none_or(|only| queue.namespace == *only) && (!is_ready || queue.counts().ready > 0)
    });
    Ok(answer(StatusCode::OK, &LIST.page(&query, queues)?))
}

pub(crate) async fn show(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::strict(query.as_deref(), &["namespace"])?;
    let queue = find(&*broker.get()?, &namespace(&query), &name)?;
    Ok(answer(StatusCode::OK, &shown(&queue)))
}

fn shown(queue: &Queue) -> Value {
    let counts = queue.counts();
    json!({
        "name": &*queue.name,
        "id": queue.id.0.to_string(),
        "namespace": queue.namespace.as_str(),
        "durable": queue.durable,
        "exclusive": queue.exclusive.is_some(),
        "auto_delete": queue.auto_delete,
        "ready": counts.ready,
        "in_flight": counts.in_flight,
        "consumers": counts.consumers,
    })
}

pub(crate) async fn delete(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::strict(query.as_deref(), &["namespace", "if_unused", "if_empty"])?;
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
    Ok(answer(StatusCode::OK, &json!({ "messages": messages })))
}

pub(crate) async fn purge(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::strict(query.as_deref(), &["namespace"])?;
    let queue = find(&*broker.get()?, &namespace(&query), &name)?;
    Ok(answer(StatusCode::OK, &json!({ "messages": queue.purge() })))
}

pub(crate) async fn move_messages(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, Problem> {
    let query = Query::strict(query.as_deref(), &["namespace"])?;
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
    let moved = broker.messaging().move_messages(&from, &to, count).await;
    let moved = moved.map_err(not_stored)?;
    match moved.stopped {
        None => Ok(answer(
            StatusCode::OK,
            &json!({ "messages": moved.messages, "stopped": null }),
        )),
        Some(why) => Err(of_move(moved.messages, why)),
    }
}

/// Returns a queue by name.
pub(crate) fn find(broker: &Broker, namespace: &Namespace, name: &str) -> Result<Arc<Queue>, Problem> {
    let found = broker.messaging().queues().get(namespace, name);
    found.ok_or_else(|| no_such_queue(format!("there is no queue {name:?} in namespace {namespace}")))
}
