//! One queue, with numbers that lists do not have; and the deletion of a queue by id.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_access::Action;
use stafett_broker::{Broker, STEP_MS};
use stafett_delivery::{SearchBounds, SearchOrder};
use stafett_http::api::{delete, get};
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot};
use stafett_messaging::queues::{DeleteConditions, Queue};
use stafett_net::EVENTS;
use stafett_topics::TopicId;

use crate::queues::{MessageCount, NAMESPACE, QueueStatus, find, shown, with_id};
use crate::refusals::{self, of_deletion};
use crate::time::rfc3339;
use crate::{Routes, access, answer, namespace};

/// Messages read in search of the oldest one.
const READ_MAX: u64 = 1 << 8;

/// A queue, its counts, and its front.
#[derive(Debug, Serialize, JsonSchema)]
struct QueueDetails {
    #[serde(flatten)]
    status: QueueStatus,
    /// Topic over which the queue lies. Null for one with messages of its own.
    over: Option<String>,
    /// Topic whose records are its messages: that of `over`, or the one that shows it. Null if
    /// none does. The second part of a message's id is the partition, the third one the offset.
    topic: Option<String>,
    /// Messages that wait, by priority; empty for a queue over a topic.
    by_priority: BTreeMap<String, u64>,
    highest_priority: Option<u32>,
    /// Time at which the oldest message that waits came.
    oldest: Option<String>,
    /// Time of the last change of its counts, to 5 s. Null while it is in use, or unused since the start.
    idle_since: Option<String>,
}

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get("/v1/queues/{queue}", "Shows a queue.")
                .query(&[NAMESPACE])
                .answers::<QueueDetails>(200)
                .refuses(&[Code::NotServing, Code::NoSuchQueue]),
            show,
        )
        .route(
            delete("/v1/queues", "Deletes the queue of an id with its messages.")
                .query(&[Parameter::text("id", "Id of the queue.")])
                .answers::<MessageCount>(200)
                .refuses(&refusals::STORAGE)
                .refuses(&refusals::DELETION),
            delete_by_id,
        )
}

async fn show(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let queue = find(&broker, &namespace(&query), &name)?;
    let lanes = if queue.over.is_none() {
        queue.ready_by_lane()
    } else {
        Vec::new()
    };
    let named = |id| broker.topics().with_id(id).map(|topic| topic.name.to_string());
    let details = QueueDetails {
        status: shown(&queue),
        over: queue.over.and_then(named),
        topic: named(queue.over.unwrap_or_else(|| TopicId::of_queue(queue.id.0))),
        highest_priority: lanes.first().map(|(priority, _)| *priority),
        by_priority: lanes
            .into_iter()
            .map(|(priority, ready)| (priority.to_string(), ready))
            .collect(),
        oldest: oldest(&queue).await,
        idle_since: idle_since(&broker, &queue),
    };
    Ok(answer(StatusCode::OK, &details))
}

fn idle_since(broker: &Broker, queue: &Queue) -> Option<String> {
    let steps = queue.idle_steps().filter(|steps| *steps > 0)?;
    let swept = broker.histories().swept_ms()?;
    Some(rfc3339(swept - i64::from(steps) * STEP_MS))
}

/// Returns the time at which the oldest waiting message came.
pub(crate) async fn oldest(queue: &Arc<Queue>) -> Option<String> {
    let bounds = SearchBounds {
        messages: READ_MAX,
        bytes: usize::MAX,
    };
    let mut search = queue.search(SearchOrder::Oldest, bounds, &[])?;
    let (_, message) = search.next(|_| true).await?;
    Some(rfc3339(message.arrived_ms()))
}

async fn delete_by_id(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let (broker, id) = (broker.get()?, query.wanted("id")?);
    let none = || Problem::new(Code::NoSuchQueue, format!("there is no queue with the id {id:?}"));
    let queue = with_id(&broker, id).ok_or_else(none)?;
    access::check_queue(&broker, Action::Delete, &queue.namespace, &queue.name)?;
    let conditions = DeleteConditions {
        if_unused: false,
        ready_max: None,
    };
    let deleted = broker.messaging().queues().delete_this(&queue, conditions);
    let messages = deleted.await.map_err(of_deletion)?;
    // The path has no name, by which routes make events.
    let by = access::caller(&broker);
    let (by, from) = (by.name().unwrap_or("operator"), by.peer());
    tracing::info!(target: EVENTS, kind = "queue.deleted", name = %queue.name, namespace = %queue.namespace, by,
        %from, via = "http", "deleted");
    Ok(answer(StatusCode::OK, &MessageCount { messages }))
}
