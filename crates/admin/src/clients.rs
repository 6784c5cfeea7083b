//! Registered clients, each with a queue of its own; queues with waiting messages; calls.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_broker::Broker;
use stafett_delivery::SearchOrder;
use stafett_http::api::{delete, get, post, put};
use stafett_http::list::List;
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot, body, stamp};
use stafett_live_topics::ClientName;
use stafett_messaging::queues::{Acknowledge, Declare, DeclareError, Queue, QueueSettings};
use stafett_model::Namespace;

use crate::caller::{self, Caller, NAME_BYTES_MAX, client_name, queue_name};
use crate::content::Form;
use crate::key::{self, Key};
use crate::message::{Choice, MessageOf};
use crate::queue_details::oldest;
use crate::queues::{MessageCount, NAMESPACE};
use crate::receive::{Wanted, with_messages};
use crate::refusals::{self, of_deletion, of_storage};
use crate::sender::{Outgoing, Sender, to_client};
use crate::time::rfc3339;
use crate::{Routes, answer, namespace};

/// Highest priority of a client's queue.
const PRIORITY_MAX: u8 = 10;
const PENDING_MAX: u64 = 1000;
const PENDING: u64 = 50;
const WAIT: Duration = Duration::from_secs(10);
const WAIT_MAX: Duration = Duration::from_mins(1);

const LIST: List<Row, Client> = List {
    name: |row| (row.queue.namespace.as_str(), client_name(&row.queue)),
    sorts: &[
        ("ready", |row| row.queue.counts().ready),
        ("registered_at", |row| row.queue.registered_ms.unwrap_or(0)),
    ],
    shown: |row| shown(&row.broker, &row.queue),
};

/// A client in a list.
struct Row {
    broker: Arc<Broker>,
    queue: Arc<Queue>,
}

/// A registered client.
#[derive(Debug, Serialize, JsonSchema)]
struct Client {
    name: String,
    /// The id of its queue.
    id: String,
    /// Null if an earlier version registered it.
    registered_at: Option<String>,
    queue: ClientQueue,
    /// True if a client of live topics with this name listens.
    listening: bool,
    /// Subscriptions of that client.
    subscriptions: usize,
}

/// The queue of a client.
#[derive(Debug, Serialize, JsonSchema)]
struct ClientQueue {
    name: String,
    id: String,
    priority_max: u8,
    ready: u64,
}

/// Queues with waiting messages.
#[derive(Debug, Serialize, JsonSchema)]
struct Pending {
    /// Messages in the queue of the client that asks; null for an operator.
    own: Option<u64>,
    queues: Vec<PendingQueue>,
    /// True if there are more such queues.
    more: bool,
}

/// A queue with waiting messages.
#[derive(Debug, Serialize, JsonSchema)]
struct PendingQueue {
    name: String,
    id: String,
    ready: u64,
    highest_priority: Option<u32>,
    /// Arrival of the oldest message.
    oldest: Option<String>,
}

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get("/v1/clients", "Lists registered clients.")
                .query(&[
                    NAMESPACE,
                    Parameter::text("name", "Names, with commas: only these clients."),
                    Parameter::text("id", "Only the client with this id."),
                ])
                .lists(&LIST)
                .refuses(&[Code::NotServing]),
            list,
        )
        .route(
            put(
                "/v1/clients/{client}",
                "Registers a client, and makes its queue. A client that is registered stays as it is.",
            )
            .event("client.made")
            .query(&[NAMESPACE])
            .answers::<Client>(201)
            .answers::<Client>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::NoSuchNamespace, Code::NameTaken, Code::LimitReached]),
            register,
        )
        .route(
            get("/v1/clients/{client}", "Shows a registered client.")
                .query(&[NAMESPACE])
                .answers::<Client>(200)
                .refuses(&[Code::NotServing, Code::NoSuchClient]),
            show,
        )
        .route(
            delete("/v1/clients/{client}", "Deletes a client and its queue.")
                .event("client.deleted")
                .query(&[
                    NAMESPACE,
                    Parameter::flag("if_empty", "Only if no message waits for it."),
                ])
                .answers::<MessageCount>(200)
                .refuses(&refusals::STORAGE)
                .refuses(&refusals::DELETION)
                .refuses(&[Code::NoSuchClient]),
            remove,
        )
        .route(
            get(
                "/v1/pending",
                "Lists queues in which messages wait that the caller may receive.",
            )
            .query(&[
                NAMESPACE,
                Parameter::number(
                    "count",
                    PENDING_MAX,
                    "Number of queues, at most; 50 if it is absent.",
                ),
            ])
            .answers::<Pending>(200)
            .refuses(&[Code::NotServing, Code::NotRegistered]),
            pending,
        )
        .with(call_route)
}

fn call_route(routes: Routes) -> Routes {
    routes
        .route(
            post(
                "/v1/clients/{client}/call",
                "Sends a request to a client and waits for the response. A response that comes later stays in the \
                 caller's own queue. Sent again with the same Idempotency-Key, it waits for the response to the \
                 first request.",
            )
            .query(&[
                NAMESPACE,
                Parameter::duration("wait", WAIT_MAX, "Time to wait; 10s if it is absent."),
                Parameter::text("as", "Form of the content: auto, text, json or base64."),
            ])
            .headers(&[key::HEADER])
            .body::<Outgoing>()
            .answers::<MessageOf>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&refusals::SENDING)
            .refuses(&refusals::RECEIVING)
            .refuses(&[Code::TimedOut]),
            call,
        )
}

async fn list(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let namespace = namespace(&query);
    let names: Option<Vec<&str>> = query.get("name").map(|names| names.split(',').collect());
    let id = query.get("id");
    let broker = broker.get()?;
    let mut clients = broker.messaging().queues().all();
    clients.retain(|queue| {
        queue.personal
            && queue.namespace == namespace
            && names
                .as_ref()
                .is_none_or(|names| names.contains(&client_name(queue)))
            && id.is_none_or(|id| id == queue.id.0.to_string())
    });
    let rows = clients.into_iter().map(|queue| Row {
        broker: Arc::clone(&broker),
        queue,
    });
    Ok(answer(StatusCode::OK, &LIST.page(&query, rows.collect())?))
}

fn shown(broker: &Broker, queue: &Queue) -> Client {
    // Live topics have no namespaces.
    let is_default = queue.namespace == Namespace::default();
    let live = ClientName::Text(client_name(queue).into());
    let live = broker.live_topics().client(&live).filter(|_| is_default);
    Client {
        listening: live.as_ref().is_some_and(|live| live.listening),
        subscriptions: live.map_or(0, |live| live.subscriptions),
        name: client_name(queue).to_owned(),
        id: queue.id.0.to_string(),
        registered_at: queue
            .registered_ms
            .and_then(|ms| i64::try_from(ms).ok())
            .map(rfc3339),
        queue: ClientQueue {
            name: queue.name.to_string(),
            id: queue.id.0.to_string(),
            priority_max: queue.declared.priority_max,
            ready: queue.counts().ready,
        },
    }
}

async fn register(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(|letter: char| letter.is_control()) {
        let why = format!("a client's name has 1 to {NAME_BYTES_MAX} bytes, and no control characters");
        return Err(Problem::bad_request(why));
    }
    let declare = Declare {
        durable: true,
        personal: true,
        settings: QueueSettings {
            priority_max: PRIORITY_MAX,
            ..QueueSettings::default()
        },
        ..Declare::default()
    };
    let broker = broker.get()?;
    let declared =
        broker
            .messaging()
            .queues()
            .begin_declaring(&namespace(&query), &queue_name(&name), declare);
    let refused = |why: DeclareError| match why {
        DeclareError::NotStored(why) => of_storage(why, why),
        DeclareError::NoSuchNamespace => Problem::new(Code::NoSuchNamespace, why),
        DeclareError::TooMany { .. } => Problem::new(Code::LimitReached, why),
        DeclareError::Differs { .. } | DeclareError::Locked | DeclareError::NoSuchTopic => {
            let why = format!(
                "there is a queue {:?} already, which is no client's",
                queue_name(&name)
            );
            Problem::new(Code::NameTaken, why)
        }
    };
    let declared = declared.map_err(refused)?;
    let status = if declared.is_new() {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let queue = stamp::storing(declared.stored()).await.map_err(refused)?;
    Ok(answer(status, &shown(&broker, &queue)))
}

fn find(broker: &Broker, query: &Query, name: &str) -> Result<Arc<Queue>, Problem> {
    let found = caller::find(broker, &namespace(query), name);
    found.ok_or_else(|| Problem::new(Code::NoSuchClient, format!("there is no client {name:?}")))
}

async fn show(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let queue = find(&broker, &query, &name)?;
    Ok(answer(StatusCode::OK, &shown(&broker, &queue)))
}

async fn remove(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let queue = find(&broker, &query, &name)?;
    let if_empty = query.flag("if_empty")?;
    let queues = broker.messaging().queues();
    let deleting = queues.delete(&queue.namespace, &queue.name, false, if_empty, queues.new_owner());
    let messages = deleting.await.map_err(of_deletion)?;
    Ok(answer(StatusCode::OK, &MessageCount { messages }))
}

async fn pending(
    State(broker): State<Slot<Broker>>,
    caller: Caller,
    query: Query,
) -> Result<Response, Problem> {
    let count = query.number("count", PENDING_MAX)?.unwrap_or(PENDING);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let (broker, namespace) = (broker.get()?, namespace(&query));
    let own = match &caller.0 {
        Some(_) => Some(caller.own_queue(&broker, &namespace)?.counts().ready),
        None => None,
    };
    let all = with_messages(&broker, &namespace, &caller);
    let mut queues = Vec::with_capacity(count.min(all.len()));
    for queue in all.iter().take(count) {
        queues.push(PendingQueue {
            name: queue.name.to_string(),
            id: queue.id.0.to_string(),
            ready: queue.counts().ready,
            highest_priority: queue.highest_ready().filter(|_| queue.over.is_none()),
            oldest: oldest(queue).await,
        });
    }
    let more = all.len() > count;
    Ok(answer(StatusCode::OK, &Pending { own, queues, more }))
}

async fn call(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    caller: Caller,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let wait = query.duration("wait", WAIT_MAX)?.unwrap_or(WAIT);
    let form = Form::of(query.get("as"))?;
    let key = Key::of(request.headers(), &caller, &[namespace(&query).as_str(), "call"])?;
    let mut message: Outgoing = body::json(request).await?;
    if !message.to.queues.is_empty() || !message.to.clients.is_empty() {
        return Err(Problem::bad_request("to is the client of the path: leave it out"));
    }
    message.to.queues.push(to_client(&name));
    message.request = true;
    let (broker, namespace) = (broker.get()?, namespace(&query));
    find(&broker, &query, &name)?;
    let own = caller.own_queue(&broker, &namespace)?;
    let sender = Sender::new(&broker, caller, namespace)?;
    let (asking, answered) = sender.prepare_json(&message, key)?;
    sender.store(vec![asking], &mut [], key).await?;
    let context = answered.context.unwrap_or_default();
    let wanted = Wanted {
        count: 1,
        choice: Choice::of_context(context),
        order: SearchOrder::Priority,
        wait,
        ack: Acknowledge::Soon,
        form,
    };
    let received = wanted.take(&own, wait, Vec::new()).await?;
    if let Some(response) = wanted.show(&own, &received).pop() {
        return Ok(answer(StatusCode::OK, &response));
    }
    let why = format!(
        "no response came within {wait:?}; a late one comes to {:?}",
        &*own.name
    );
    Err(Problem::new(Code::TimedOut, why).with("context", context))
}
