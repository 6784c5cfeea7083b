//! Lists, purges, moves and deletes queues.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use stafett_broker::Broker;
use stafett_messaging::Stopped;
use stafett_messaging::queues::{DeleteQueueError, Queue};
use stafett_model::Namespace;

use crate::front::AdminFront;
use crate::query::Query;
use crate::{Refusal, answer, refuse};

/// Maximum number of queues in one response.
const LISTED_MAX: u64 = 10_000;
/// Maximum number of messages that one request moves.
const MOVED_MAX: u64 = 1_000_000_000;

/// Lists a page of queues by namespace and name; `next` in the response has the parameters of the next page.
pub(crate) async fn list(
    State(front): State<AdminFront>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let query = Query::read(query, &["namespace", "count", "after_namespace", "after"])?;
    let only = query.get("namespace").map(Namespace::new);
    let count = query.number("count", LISTED_MAX)?.unwrap_or(LISTED_MAX);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let after = match (query.get("after_namespace"), query.get("after")) {
        (None, None) => None,
        (Some(namespace), after) => Some((Namespace::new(namespace), after.unwrap_or_default())),
        // In the only namespace that is listed, or in the default one.
        (None, Some(after)) => Some((only.clone().unwrap_or_default(), after)),
    };
    let after = after.as_ref().map(|(namespace, name)| (namespace, *name));
    let broker = front.broker()?;
    let page = broker.messaging().queues().page(only.as_ref(), after, count);
    let next = page.last().filter(|_| page.len() == count).map(|last| {
        json!({
            "after_namespace": last.namespace.as_str(),
            "after": &*last.name,
        })
    });
    let queues: Vec<Value> = page.iter().map(|queue| told(queue)).collect();
    let mut listed = json!({ "queues": queues });
    if let (Some(next), Some(listed)) = (next, listed.as_object_mut()) {
        listed.insert("next".to_owned(), next);
    }
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
    State(front): State<AdminFront>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let query = Query::read(query, &["namespace", "queue", "if_unused", "if_empty"])?;
    let broker = front.broker()?;
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
    if from.over.is_some() && from.over == to.over {
        return Err(refuse(
            StatusCode::BAD_REQUEST,
            "both queues lie over the same topic: what moves would come back",
        ));
    }
    let count = query.number("count", MOVED_MAX)?;
    let count = count.unwrap_or_else(|| from.counts().ready);
    let moved = broker.messaging().move_messages(&from, &to, count).await;
    let moved = moved.map_err(|why| refuse(StatusCode::INTERNAL_SERVER_ERROR, why))?;
    match moved.stopped {
        None => Ok(answer(StatusCode::OK, &json!({ "messages": moved.messages }))),
        Some(why) => {
            let said = format!("{} messages moved, and no more: {why}", moved.messages);
            Err(refuse(status_of(why), said))
        }
    }
}

/// Returns the queue that a request names.
pub(crate) fn find(broker: &Broker, query: &Query, key: &str) -> Result<Arc<Queue>, Refusal> {
    let (namespace, name) = (query.namespace(), query.wanted(key)?);
    broker.messaging().queues().get(&namespace, name).ok_or_else(|| {
        let why = format!("there is no queue {name:?} in namespace {namespace}");
        refuse(StatusCode::NOT_FOUND, why)
    })
}

fn status_of(why: Stopped) -> StatusCode {
    match why {
        Stopped::Full
        | Stopped::TargetGone
        | Stopped::SourceGone
        | Stopped::TooLarge
        | Stopped::NoSpace
        | Stopped::Unreadable => StatusCode::CONFLICT,
        Stopped::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        Stopped::NotStored(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
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
