//! Looking at messages, and receiving them.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use stafett_access::{Action, Resource};
use stafett_broker::Broker;
use stafett_delivery::{Delivery, DeliveryId, LeaseId, MessageState, SearchBounds, SearchOrder};
use stafett_http::api::{get, post};
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot};
use stafett_messaging::queues::{Acknowledge, Queue, Receive, Received};
use stafett_model::{Namespace, StoredMessage};

use crate::access;
use crate::caller::Caller;
use crate::content::Form;
use crate::mask::Masks;
use crate::message::{Choice, MessageOf, SHOWN_BYTES_MAX, Shown, after, order, parse_message_id, place_text};
use crate::queues::{NAMESPACE, find};
use crate::refusals::{self, of_receiving};
use crate::{Routes, answer, namespace};

const COUNT_MAX: u64 = 1000;
/// Default number of messages to look at.
const LOOKED_AT: u64 = 10;
/// Bytes of messages after which an answer ends.
const BYTES_MAX: usize = 4 << 20;
const BOUNDS: SearchBounds = SearchBounds {
    messages: 100_000,
    bytes: 256 << 20,
};
const WAIT_MAX: Duration = Duration::from_mins(1);
const LEASE_MIN: Duration = Duration::from_secs(1);
const LEASE_MAX: Duration = Duration::from_hours(12);

const COUNT: Parameter = Parameter::number("count", COUNT_MAX, "Number of messages, at most.");
const AFTER: Parameter = Parameter::text("after", "The next of an answer, to go on there.");
const RECEIVE: [Parameter; 4] = [
    COUNT,
    Parameter::duration("wait", WAIT_MAX, "Time to wait for a message; 0 if it is absent."),
    Parameter::text(
        "ack",
        "auto, the default: the messages are done with the answer. Or lease:30s: they are held until they are settled, \
         and come back after that time, of 1s to 12h.",
    ),
    Parameter::text(
        "settled",
        "soon, the default: after a crash a message may come again, as redelivered. Or stored: the answer comes when \
         the settlement is as durable as the queue.",
    ),
];

/// Messages of an answer.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Messages")]
struct Answer {
    messages: Vec<MessageOf>,
    /// Number of messages that were examined.
    looked_at: u64,
    /// Place to go on from, for `after`. Null if there are no more. It is there also if a bound ended the
    /// search.
    next: Option<String>,
}

impl Answer {
    fn none() -> Self {
        Self {
            messages: Vec::new(),
            looked_at: 0,
            next: None,
        }
    }
}

mod any;
mod held;

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get(
                "/v1/queues/{queue}/messages",
                "Shows messages that wait, without any effect on them; with state=in_flight those that consumers and \
                 leases have, with their holders.",
            )
                .query(&[NAMESPACE, COUNT, AFTER])
                .query(&[Parameter::text("state", "ready, the default, or in_flight.")])
                .query(&Choice::KEYS)
                .answers::<Answer>(200)
                .refuses(&[Code::NotServing, Code::NoSuchQueue, Code::Forbidden]),
            look,
        )
        .route(
            get("/v1/queues/{queue}/messages/{id}", "Shows one message, whatever its state.")
                .query(&[NAMESPACE, Parameter::text("as", "Form of the content: auto, text, json or base64.")])
                .answers::<MessageOf>(200)
                .refuses(&[Code::NotServing, Code::NoSuchQueue, Code::NoSuchMessage, Code::Forbidden]),
            show,
        )
        .route(
            post(
                "/v1/queues/{queue}/receive",
                "Takes the first messages that the query chooses. With Accept: application/octet-stream and one \
                 message, the body is its content, and 204 says that there is none.",
            )
            .query(&[NAMESPACE, AFTER])
            .query(&RECEIVE)
            .query(&Choice::KEYS)
            .answers::<Answer>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&refusals::RECEIVING),
            receive,
        )
        .route(
            post(
                "/v1/receive",
                "Takes from the first of the queues that has something; without queue=, from any queue by name.",
            )
            .query(&[NAMESPACE, Parameter::text("queue", "Names of queues, with commas.")])
            .query(&RECEIVE)
            .query(&Choice::KEYS)
            .answers::<Answer>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&refusals::RECEIVING),
            any::receive,
        )
}

async fn look(
    State(broker): State<Slot<Broker>>,
    State(masks): State<Masks>,
    Path(name): Path<String>,
    caller: Caller,
    query: Query,
) -> Result<Response, Problem> {
    let count = query.number("count", COUNT_MAX)?.unwrap_or(LOOKED_AT);
    let (choice, order) = (Choice::of(&query)?, order(&query)?);
    let shown = Shown {
        state: "ready",
        form: Form::of(query.get("as"))?,
        ..Shown::default()
    };
    let queue = find(&*broker.get()?, &namespace(&query), &name)?;
    caller.check_receives(&queue)?;
    let masks = masks.for_caller(&*broker.get()?);
    match query.get("state") {
        None | Some("ready") => {}
        Some("in_flight") => {
            return held::list(&*broker.get()?, &queue, &query, (&choice, count), &masks).await;
        }
        Some(other) => {
            let why = format!("state is ready or in_flight, not {other:?}");
            return Err(Problem::bad_request(why));
        }
    }
    let after = after(&query)?;
    let mut found = Answer {
        messages: Vec::new(),
        looked_at: 0,
        next: None,
    };
    let mut number = String::new();
    let searching = queue.begin_search(order, BOUNDS, &after, choice.narrow(&mut number));
    let Some(mut search) = searching.await else {
        return Ok(answer(StatusCode::OK, &found));
    };
    let mut bytes = 0;
    let mut is_at_end = false;
    while (found.messages.len() as u64) < count && bytes < BYTES_MAX {
        let Some((id, message)) = search.next(|message| choice.wants(message)).await else {
            is_at_end = !search.is_at_bound();
            break;
        };
        bytes += message.bytes().min(SHOWN_BYTES_MAX);
        let shown = MessageOf::of(&queue, id, &message, shown);
        found.messages.push(shown.masked(&masks));
    }
    if search.is_unreadable() && found.messages.is_empty() {
        return Err(Problem::new(
            Code::Unreadable,
            "a message of the queue cannot be read now",
        ));
    }
    found.looked_at = search.looked_at();
    found.next = (!is_at_end).then(|| place_text(&search.place()));
    Ok(answer(StatusCode::OK, &found))
}

async fn show(
    State(broker): State<Slot<Broker>>,
    State(masks): State<Masks>,
    Path((name, id)): Path<(String, String)>,
    caller: Caller,
    query: Query,
) -> Result<Response, Problem> {
    let form = Form::of(query.get("as"))?;
    let queue = find(&*broker.get()?, &namespace(&query), &name)?;
    caller.check_receives(&queue)?;
    let found = match parse_message_id(queue.id, &id) {
        Some(id) => queue.find(id).await.map(|found| (id, found)),
        None => None,
    };
    let Some((id, (message, status))) = found else {
        let why = format!("there is no message {id:?} in queue {name:?}");
        return Err(Problem::new(Code::NoSuchMessage, why));
    };
    let shown = Shown {
        state: state_word(status.state),
        delivery_count: status.returns,
        redelivered: status.redelivered,
        lease: None,
        form,
        is_whole: true,
    };
    let broker = broker.get()?;
    let mut shown = MessageOf::of(&queue, id, &message, shown);
    shown.holder = queue
        .holder(id)
        .map(|holder| held::holder_of(&broker, &queue, holder));
    let masks = masks.for_caller(&broker);
    Ok(answer(StatusCode::OK, &shown.masked(&masks)))
}

fn state_word(state: MessageState) -> &'static str {
    match state {
        MessageState::Ready => "ready",
        MessageState::InFlight => "in_flight",
        MessageState::Settled => "settled",
    }
}

/// Parameters of a receive request.
pub(crate) struct Wanted {
    pub(crate) count: usize,
    pub(crate) choice: Choice,
    pub(crate) order: SearchOrder,
    pub(crate) wait: Duration,
    pub(crate) ack: Acknowledge,
    pub(crate) form: Form,
}

impl Wanted {
    fn of(query: &Query) -> Result<Self, Problem> {
        let count = query.number("count", COUNT_MAX)?.unwrap_or(1);
        let is_stored = is_stored(query)?;
        let ack = match query.get("ack") {
            None | Some("auto") if is_stored => Acknowledge::Stored,
            None | Some("auto") => Acknowledge::Soon,
            Some(text) => Acknowledge::Lease {
                ms: text.strip_prefix("lease:").and_then(lease_ms).ok_or_else(|| {
                    Problem::bad_request(format!("ack is auto, or lease: and 1s to 12h, not {text:?}"))
                })?,
            },
        };
        Ok(Self {
            count: usize::try_from(count).unwrap_or(usize::MAX),
            choice: Choice::of(query)?,
            order: order(query)?,
            wait: query.duration("wait", WAIT_MAX)?.unwrap_or_default(),
            ack,
            form: Form::of(query.get("as"))?,
        })
    }

    pub(crate) async fn take(
        &self,
        queue: &Arc<Queue>,
        wait: Duration,
        after: Vec<DeliveryId>,
    ) -> Result<Received, Problem> {
        let wants = |message: &StoredMessage| self.choice.wants(message);
        let mut number = String::new();
        let request = Receive {
            count: self.count,
            bytes_max: BYTES_MAX,
            order: self.order,
            wanted: (!self.choice.is_all()).then_some(&wants as _),
            narrow: self.choice.narrow(&mut number),
            bounds: BOUNDS,
            after,
            wait,
            ack: self.ack,
        };
        queue.receive(request).await.map_err(of_receiving)
    }

    pub(crate) fn show(&self, queue: &Queue, received: &Received) -> Vec<MessageOf> {
        let show = |(delivery, lease): &(Delivery, Option<LeaseId>)| {
            let shown = Shown {
                state: if lease.is_some() { "in_flight" } else { "settled" },
                delivery_count: delivery.delivery_count,
                redelivered: delivery.redelivered,
                lease: *lease,
                form: self.form,
                is_whole: true,
            };
            MessageOf::of(queue, delivery.id, &delivery.message, shown)
        };
        received.messages.iter().map(show).collect()
    }
}

pub(crate) fn is_stored(query: &Query) -> Result<bool, Problem> {
    match query.get("settled") {
        None | Some("soon") => Ok(false),
        Some("stored") => Ok(true),
        Some(other) => Err(Problem::bad_request(format!(
            "settled is soon or stored, not {other:?}"
        ))),
    }
}

/// Reads the time of a lease.
pub(crate) fn lease_ms(text: &str) -> Option<u64> {
    let time = stafett_http::query::duration(text)?;
    (LEASE_MIN..=LEASE_MAX)
        .contains(&time)
        .then(|| u64::try_from(time.as_millis()).ok())?
}

async fn receive(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    caller: Caller,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (wanted, after) = (Wanted::of(&query)?, after(&query)?);
    let queue = find(&*broker.get()?, &namespace(&query), &name)?;
    caller.check_receives(&queue)?;
    let is_raw = wanted.count == 1 && wants_raw(&headers);
    // A request that waits keeps neither the buffer of its head nor parts of it.
    drop((headers, query, name, caller));
    let received = wanted.take(&queue, wanted.wait, after).await?;
    if is_raw {
        return Ok(raw(&queue, &received));
    }
    Ok(answer(StatusCode::OK, &messages(&wanted, &queue, &received)))
}

fn messages(wanted: &Wanted, queue: &Queue, received: &Received) -> Answer {
    Answer {
        messages: wanted.show(queue, received),
        looked_at: received.looked_at,
        next: received.next.as_deref().map(place_text),
    }
}

fn wants_raw(headers: &HeaderMap) -> bool {
    headers
        .get(header::ACCEPT)
        .is_some_and(|accept| accept == "application/octet-stream")
}

/// Returns a message as a body, with its properties as headers.
fn raw(queue: &Queue, received: &Received) -> Response {
    let Some((delivery, lease)) = received.messages.first() else {
        return StatusCode::NO_CONTENT.into_response();
    };
    let message = &delivery.message;
    let text = |name: &str| {
        let value = message.header(name.as_bytes()).flatten()?;
        HeaderValue::from_bytes(value).ok()
    };
    let fields = [
        (
            "stafett-id",
            HeaderValue::from_str(&crate::message::message_id(queue.id, delivery.id)).ok(),
        ),
        (
            "stafett-priority",
            Some(HeaderValue::from(u16::from(message.priority()))),
        ),
        (
            "stafett-redelivered",
            Some(HeaderValue::from_static(if delivery.redelivered {
                "true"
            } else {
                "false"
            })),
        ),
        (
            "stafett-delivery-count",
            Some(HeaderValue::from(delivery.delivery_count)),
        ),
        ("stafett-sender", text(crate::message::SENDER)),
        ("stafett-context", text(crate::message::CONTEXT)),
        ("stafett-reply-to", text(crate::message::REPLY_TO)),
        ("stafett-message-id", text(crate::message::MESSAGE_ID)),
        (
            "stafett-lease",
            lease.and_then(|lease| HeaderValue::from_str(&crate::message::lease_text(lease)).ok()),
        ),
    ];
    let kind = text(crate::message::CONTENT_TYPE);
    let kind = kind.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    let mut response = message.value_bytes().into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    for (name, value) in fields {
        if let Some(value) = value {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// Returns the queues in which messages wait that the caller may receive, by name.
pub(crate) fn with_messages(broker: &Broker, namespace: &Namespace, caller: &Caller) -> Vec<Arc<Queue>> {
    let waiting = broker.messaging().queues().with_messages(Some(namespace));
    let queues = waiting.into_iter().map(|(queue, _)| queue).collect();
    receivable(queues, broker, caller)
}

/// Keeps the queues that the caller may receive from.
fn receivable(mut queues: Vec<Arc<Queue>>, broker: &Broker, caller: &Caller) -> Vec<Arc<Queue>> {
    let own = caller.0.as_deref().map(crate::caller::queue_name);
    let by = access::caller(broker);
    queues.retain(|queue| {
        let is_own = own.as_deref() == Some(&*queue.name);
        let resource = Resource::queue(queue.namespace.as_str(), &queue.name);
        let may_read = is_own || by.may(Action::Read, &resource);
        queue.exclusive.is_none() && (!queue.personal || is_own) && may_read
    });
    queues
}
