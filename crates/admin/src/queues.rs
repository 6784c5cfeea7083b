//! Lists, purges, moves and deletes queues.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use stafett_broker::Broker;
use stafett_http::{Problem, Query, Slot, page};
use stafett_messaging::queues::Queue;
use stafett_model::Namespace;

use crate::refusals::{no_such_queue, not_stored, of_deletion, of_move};
use crate::{answer, namespace};

/// Maximum number of queues in one response.
const LISTED_MAX: usize = 10_000;
/// Maximum number of messages that one request moves.
const MOVED_MAX: u64 = 1_000_000_000;

/// Lists a page of queues by namespace and name; `next` in the response has the parameters of the next page.
pub(crate) async fn list(
    State(broker): State<Slot<Broker>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::strict(
        query.as_deref(),
        &["namespace", "count", "after_namespace", "after"],
    )?;
    let only = query.get("namespace").map(Namespace::new);
    let count = page::count(&query, LISTED_MAX)?;
    let after = match (query.get("after_namespace"), query.get("after")) {
        (None, None) => None,
        (Some(namespace), after) => Some((Namespace::new(namespace), after.unwrap_or_default())),
        // In the only namespace that is listed, or in the default one.
        (None, Some(after)) => Some((only.clone().unwrap_or_default(), after)),
    };
    let after = after.as_ref().map(|(namespace, name)| (namespace, *name));
    let broker = broker.get()?;
    let queues = broker.messaging().queues().page(only.as_ref(), after, count);
    let next =
        |last: &Arc<Queue>| json!({ "after_namespace": last.namespace.as_str(), "after": &*last.name });
    let listed = page::told("queues", &queues, count, |queue| told(queue), next);
    Ok(answer(StatusCode::OK, &listed))
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
    State(broker): State<Slot<Broker>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::strict(query.as_deref(), &["namespace", "queue", "if_unused", "if_empty"])?;
    let broker = broker.get()?;
    let queue = find(&broker, &query, "queue")?;
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
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::strict(query.as_deref(), &["namespace", "queue"])?;
    let broker = broker.get()?;
    let queue = find(&broker, &query, "queue")?;
    Ok(answer(StatusCode::OK, &json!({ "messages": queue.purge() })))
}

pub(crate) async fn move_messages(
    State(broker): State<Slot<Broker>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::strict(query.as_deref(), &["namespace", "queue", "to", "count"])?;
    let broker = broker.get()?;
    let (from, to) = (find(&broker, &query, "queue")?, find(&broker, &query, "to")?);
    if Arc::ptr_eq(&from, &to) {
        return Err(Problem::bad_request("the messages are in this queue already"));
    }
    if from.over.is_some() && from.over == to.over {
        return Err(Problem::bad_request(
            "both queues lie over the same topic: what moves would come back",
        ));
    }
    let count = query.number("count", MOVED_MAX)?;
    let count = count.unwrap_or_else(|| from.counts().ready);
    let moved = broker.messaging().move_messages(&from, &to, count).await;
    let moved = moved.map_err(not_stored)?;
    match moved.stopped {
        None => Ok(answer(StatusCode::OK, &json!({ "messages": moved.messages }))),
        Some(why) => Err(of_move(moved.messages, why)),
    }
}

/// Returns the queue that a request names.
pub(crate) fn find(broker: &Broker, query: &Query, key: &str) -> Result<Arc<Queue>, Problem> {
    let (namespace, name) = (namespace(query), query.wanted(key)?);
    broker
        .messaging()
        .queues()
        .get(&namespace, name)
        .ok_or_else(|| no_such_queue(format!("there is no queue {name:?} in namespace {namespace}")))
}
