//! Sending messages to queues and clients.

use std::collections::BTreeMap;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use stafett_broker::Broker;
use stafett_http::api::post;
use stafett_http::{Code, Path, Problem, Query, Slot, body};
use stafett_journal::RequestId;
use stafett_messaging::{QUEUES_MAX, Send};
use stafett_model::{Durability, Message, Namespace};
use stafett_store::wall_ms;
use uuid::Uuid;

use crate::caller::{self, Caller, queue_name};
use crate::content::{self, Headers, JSON};
use crate::message::{CONTENT_TYPE, CONTEXT, MESSAGE_ID, REPLY_TO, SENDER};
use crate::queues::{NAMESPACE, find};
use crate::refusals::{self, of_sending};
use crate::{Routes, answer, namespace};

/// Bytes of a body with messages.
const BODY_BYTES_MAX: usize = 16 << 20;
/// Contexts are below this.
const CONTEXT_MAX: u64 = 1 << 53;
const NDJSON: &str = "application/x-ndjson";
const HEADER: &str = "stafett-header-";

/// A message to be sent.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Outgoing {
    #[serde(default)]
    pub(crate) to: To,
    /// A text stands for itself, any other value for its JSON.
    #[schemars(with = "Option<serde_json::Value>")]
    pub(crate) content: Option<Box<RawValue>>,
    pub(crate) content_base64: Option<String>,
    /// 0, the default, up to `priority_max` of the queues.
    pub(crate) priority: Option<u8>,
    /// Context of the request to which this is the response.
    #[schemars(range(max = 0x20_0000_0000_0000_u64))]
    pub(crate) context: Option<u64>,
    /// True to make a context, and to have responses sent to the sender's own queue.
    #[serde(default)]
    pub(crate) request: bool,
    /// Longest time in the queue.
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) content_type: Option<String>,
    /// One is made if it is absent.
    pub(crate) message_id: Option<String>,
    #[serde(default)]
    pub(crate) headers: Headers,
}

/// Targets of a message: all of them get it, or none.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct To {
    #[serde(default)]
    pub(crate) queues: Vec<QueueRef>,
    #[serde(default)]
    pub(crate) clients: Vec<QueueRef>,
}

/// A queue or a client, by name or by id.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum QueueRef {
    Name(String),
    Id { id: String },
}

/// Several messages.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Several {
    messages: Vec<Outgoing>,
    /// True if all of them are stored, or none.
    #[serde(default)]
    atomic: bool,
}

/// One message, a list of messages, or a list that is stored as a whole.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes the body, which is read by its first key")]
enum Body {
    One(Box<Outgoing>),
    Several(Vec<Outgoing>),
    Together { messages: Vec<Outgoing>, atomic: bool },
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("read by `read_messages`"))
    }
}

/// A message that is sent.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Sent {
    message_id: String,
    /// Context of a request or a response.
    pub(crate) context: Option<u64>,
    /// Names of the queues that have it.
    queues: Vec<String>,
    /// Durability of the strictest of these queues, which the message has now.
    durability: String,
}

/// Result of each message of a list.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum SentOrRefused {
    Sent(Sent),
    /// The refusal, as an answer of its own would have it.
    Refused(serde_json::Value),
}

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            post(
                "/v1/messages",
                "Sends a message, a list of messages, or lines of NDJSON. Each reaches all of its targets or none. With \
                 {\"messages\": […], \"atomic\": true}, all messages are stored or none. With the header \
                 Idempotency-Key, sending again stores once.",
            )
            .query(&[NAMESPACE])
            .body::<Body>()
            .answers::<Sent>(201)
            .answers::<Vec<SentOrRefused>>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&refusals::SENDING),
            send,
        )
        .route(
            post(
                "/v1/queues/{queue}/messages",
                "Sends the body as it is, whatever its type; of application/x-ndjson each line is the content of a \
                 message. Headers: Stafett-Priority, Stafett-Context, Stafett-Ttl, Stafett-To (further queues), \
                 Stafett-Header-NAME, Idempotency-Key.",
            )
            .query(&[NAMESPACE])
            .answers::<Sent>(201)
            .answers::<Vec<SentOrRefused>>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&refusals::SENDING)
            .refuses(&[Code::TooLarge, Code::SlowBody, Code::BadJson]),
            send_raw,
        )
}

async fn send(
    State(broker): State<Slot<Broker>>,
    caller: Caller,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let key = idempotency_key(request.headers(), &caller, &namespace(&query))?;
    let is_ndjson = content_type(request.headers()) == Some(NDJSON);
    let body = body::read(request, LIMIT).await?;
    let (messages, atomic, is_one) = read_messages(body.bytes(), is_ndjson)?;
    let broker = broker.get()?;
    let sender = Sender::new(&broker, caller, namespace(&query))?;
    sender.send_all(messages, atomic, is_one, key).await
}

const LIMIT: body::Limit = body::Limit {
    bytes_max: BODY_BYTES_MAX,
    setting: "of a body with messages",
};

async fn send_raw(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    caller: Caller,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let namespace = namespace(&query);
    let key = idempotency_key(request.headers(), &caller, &namespace)?;
    let template = of_headers(request.headers(), name)?;
    let kind = content_type(request.headers()).map(str::to_owned);
    let body = body::read(request, LIMIT).await?;
    let broker = broker.get()?;
    let sender = Sender::new(&broker, caller, namespace)?;
    if kind.as_deref() != Some(NDJSON) {
        let (ready, sent) = sender.prepare(&template, body.bytes().to_vec().into(), kind)?;
        sender.store(vec![ready], key).await?;
        return Ok(answer(StatusCode::CREATED, &sent));
    }
    let text = body.text()?;
    let mut messages = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (content, is_json) = line_content(line, messages.len())?;
        let kind = is_json.then(|| JSON.to_owned());
        messages.push(sender.prepare(&template, content, kind));
    }
    sender.send_each(messages, key).await
}

fn line_content(line: &str, at: usize) -> Result<(bytes::Bytes, bool), Problem> {
    let json: Box<RawValue> = serde_json::from_str(line).map_err(|why| {
        let said = format!("line {}: {why}", at + 1);
        Problem::new(Code::BadJson, said).with("line", at + 1)
    })?;
    content::read(Some(&json), None)
}

/// Returns the messages of a body, true if they are stored as a whole, and true if it is one alone.
fn read_messages(bytes: &[u8], is_ndjson: bool) -> Result<(Vec<Outgoing>, bool, bool), Problem> {
    if is_ndjson {
        let text = std::str::from_utf8(bytes).map_err(|_| Problem::bad_request("the body is not UTF-8"))?;
        let lines = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty());
        let read = |(at, line): (usize, &str)| {
            body::parse::<Outgoing>(line.as_bytes()).map_err(|why| why.with("line", at + 1))
        };
        let messages = lines.map(read).collect::<Result<Vec<_>, _>>()?;
        return Ok((messages, false, false));
    }
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Ok((body::parse(bytes)?, false, false));
    }
    let keys: Result<BTreeMap<String, &RawValue>, _> = serde_json::from_slice(bytes);
    if keys.is_ok_and(|keys| keys.contains_key("messages")) {
        let Several { messages, atomic } = body::parse(bytes)?;
        return Ok((messages, atomic, false));
    }
    Ok((vec![body::parse(bytes)?], false, true))
}

/// Returns the message that the headers of a raw request describe.
fn of_headers(headers: &HeaderMap, queue: String) -> Result<Outgoing, Problem> {
    let mut message = Outgoing::default();
    message.to.queues.push(QueueRef::Name(queue));
    for (name, value) in headers {
        let name = name.as_str();
        let value = || {
            let text = std::str::from_utf8(value.as_bytes());
            text.map_err(|_| Problem::bad_request(format!("{name} is not UTF-8")))
        };
        match name {
            "stafett-priority" => message.priority = Some(number(name, value()?, u8::MAX.into())?),
            "stafett-context" => message.context = Some(number(name, value()?, CONTEXT_MAX - 1)?),
            "stafett-ttl" => message.ttl_ms = Some(number(name, value()?, u64::MAX)?),
            "stafett-to" => {
                let names = value()?.split(',').map(str::trim).filter(|name| !name.is_empty());
                let names = names.map(|name| QueueRef::Name(name.to_owned()));
                message.to.queues.extend(names);
            }
            _ => {
                if let Some(name) = name.strip_prefix(HEADER) {
                    let text = content::HeaderValue::Text(value()?.to_owned());
                    message.headers.insert(name.to_owned(), Some(text));
                }
            }
        }
    }
    Ok(message)
}

fn number<T: TryFrom<u64>>(name: &str, text: &str, max: u64) -> Result<T, Problem> {
    let number = text.trim().parse::<u64>().ok().filter(|number| *number <= max);
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| Problem::bad_request(format!("{name} is a number of at most {max}, not {text:?}")))
}

fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::CONTENT_TYPE)?.to_str().ok()
}

/// Returns the journal's request id of the header `Idempotency-Key`.
fn idempotency_key(
    headers: &HeaderMap,
    caller: &Caller,
    namespace: &Namespace,
) -> Result<Option<[u8; 16]>, Problem> {
    let Some(key) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    if key.is_empty() || key.len() > 255 {
        return Err(Problem::bad_request("Idempotency-Key has 1 to 255 bytes"));
    }
    let mut hash = Sha256::new();
    for part in [namespace.as_str(), caller.0.as_deref().unwrap_or_default()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.update(key.as_bytes());
    let hash: [u8; 32] = hash.finalize().into();
    Ok(hash.first_chunk().copied())
}

/// A message that is ready to be stored, and its answer.
type Ready = (Send, Sent);

/// Sends messages of one request.
pub(crate) struct Sender<'a> {
    broker: &'a Broker,
    caller: Caller,
    namespace: Namespace,
}

impl<'a> Sender<'a> {
    /// Checks that the sender, if one is named, is registered.
    pub(crate) fn new(broker: &'a Broker, caller: Caller, namespace: Namespace) -> Result<Self, Problem> {
        if caller.0.is_some() {
            caller.own_queue(broker, &namespace)?;
        }
        Ok(Self {
            broker,
            caller,
            namespace,
        })
    }

    async fn send_all(
        &self,
        messages: Vec<Outgoing>,
        atomic: bool,
        is_one: bool,
        key: Option<[u8; 16]>,
    ) -> Result<Response, Problem> {
        let ready = messages.into_iter().map(|message| self.prepare_json(&message));
        if !atomic && !is_one {
            return self.send_each(ready.collect(), key).await;
        }
        let ready = ready.collect::<Result<Vec<Ready>, Problem>>()?;
        let (sends, mut sent): (Vec<Send>, Vec<Sent>) = ready.into_iter().unzip();
        self.store(sends, key).await?;
        match sent.pop().filter(|_| is_one) {
            Some(one) => Ok(answer(StatusCode::CREATED, &one)),
            None => Ok(answer(StatusCode::CREATED, &sent)),
        }
    }

    /// Sends each message for itself, in their order.
    async fn send_each(
        &self,
        messages: Vec<Result<Ready, Problem>>,
        key: Option<[u8; 16]>,
    ) -> Result<Response, Problem> {
        // All are staged before the first is waited for.
        let staged: Vec<_> = messages
            .into_iter()
            .enumerate()
            .map(|(at, ready)| {
                ready.map(|(send, sent)| {
                    let key = key.map(|key| key_of(key, at));
                    (self.begin(vec![send], key), sent)
                })
            })
            .collect();
        let mut status = StatusCode::CREATED;
        let mut results = Vec::with_capacity(staged.len());
        for one in staged {
            let result = match one {
                Ok((storing, sent)) => storing.await.map(|()| sent).map_err(|why| of_sending(&why)),
                Err(why) => Err(why),
            };
            results.push(match result {
                Ok(sent) => SentOrRefused::Sent(sent),
                Err(why) => {
                    status = StatusCode::OK;
                    SentOrRefused::Refused(why.to_value())
                }
            });
        }
        Ok(answer(status, &results).into_response())
    }

    pub(crate) async fn store(&self, sends: Vec<Send>, key: Option<[u8; 16]>) -> Result<(), Problem> {
        self.begin(sends, key).await.map_err(|why| of_sending(&why))
    }

    fn begin(
        &self,
        sends: Vec<Send>,
        key: Option<[u8; 16]>,
    ) -> impl Future<Output = Result<(), stafett_messaging::SendError>> + use<> {
        let request = key.map(RequestId);
        self.broker.messaging().send(&self.namespace, sends, request)
    }

    pub(crate) fn prepare_json(&self, message: &Outgoing) -> Result<Ready, Problem> {
        let (content, is_json) =
            content::read(message.content.as_deref(), message.content_base64.as_deref())?;
        let kind = message.content_type.clone();
        let kind = kind.or_else(|| is_json.then(|| JSON.to_owned()));
        self.prepare(message, content, kind)
    }

    /// Checks a message, and builds what is stored.
    fn prepare(
        &self,
        message: &Outgoing,
        value: bytes::Bytes,
        content_type: Option<String>,
    ) -> Result<Ready, Problem> {
        let (queues, level) = self.targets(message)?;
        let context = match message.context {
            Some(context) if context >= CONTEXT_MAX => {
                return Err(Problem::bad_request("context is a number below 2^53"));
            }
            Some(_) if message.request => {
                return Err(Problem::bad_request(
                    "a request gets its context here: leave it out",
                ));
            }
            Some(context) => Some(context),
            None => message.request.then(|| self.broker.messaging().new_context()),
        };
        let reply_to = if message.request {
            let own = self.caller.own_queue(self.broker, &self.namespace)?;
            Some(own.name.to_string())
        } else {
            None
        };
        let message_id = message.message_id.clone();
        let message_id = message_id.unwrap_or_else(|| Uuid::new_v4().to_string());
        let mut headers: Vec<(String, Option<bytes::Bytes>)> = content::headers(message.headers.clone())?;
        let fields = [
            (SENDER, self.caller.0.clone()),
            (CONTEXT, context.map(|context| context.to_string())),
            (REPLY_TO, reply_to),
            (CONTENT_TYPE, content_type),
            (MESSAGE_ID, Some(message_id.clone())),
        ];
        for (name, value) in fields {
            // Nobody sets the sender of a message.
            let is_fixed = name == SENDER || value.is_some();
            headers.retain(|(known, _)| !is_fixed || known != name);
            headers.extend(value.map(|value| (name.to_owned(), Some(value.into()))));
        }
        let stored = Message {
            routing_key: queues.first().cloned().unwrap_or_default().into(),
            value,
            timestamp_ms: wall_ms(),
            priority: message.priority.unwrap_or(0),
            ttl_ms: message.ttl_ms,
            persistent: true,
            headers: headers
                .into_iter()
                .map(|(name, value)| (name.into(), value))
                .collect(),
            ..Message::default()
        };
        let ready = Send {
            message: stored,
            queues: queues.iter().map(|name| name.as_str().into()).collect(),
        };
        let sent = Sent {
            message_id,
            context,
            queues,
            durability: level.to_string(),
        };
        Ok((ready, sent))
    }

    /// Returns the names of a message's queues, and the durability of the strictest.
    fn targets(&self, message: &Outgoing) -> Result<(Vec<String>, Durability), Problem> {
        let To { queues, clients } = &message.to;
        let count = queues.len() + clients.len();
        if count == 0 {
            return Err(Problem::bad_request("to names at least one queue or client"));
        }
        if count > QUEUES_MAX {
            let why = format!("a message goes to {QUEUES_MAX} queues at most");
            return Err(Problem::new(Code::TooManyTargets, why).with("max", QUEUES_MAX));
        }
        let (mut names, mut level) = (Vec::with_capacity(count), Durability::Memory);
        let queues = queues.iter().map(|queue| self.queue(queue));
        let clients = clients.iter().map(|client| self.client(client));
        for queue in queues.chain(clients) {
            let queue = queue?;
            let max = queue.settings.priority_max;
            let priority = message.priority.unwrap_or(0);
            if priority > max && !queue.settings.two_priorities && queue.over.is_none() {
                let why = format!(
                    "priority is at most {max} in queue {:?}, not {priority}",
                    &*queue.name
                );
                let problem = Problem::new(Code::OutOfRange, why).with("field", "priority");
                return Err(problem.with("min", 0).with("max", max));
            }
            level = level.or_higher(queue.durability().unwrap_or(Durability::Sync));
            names.push(queue.name.to_string());
        }
        Ok((names, level))
    }

    fn queue(&self, queue: &QueueRef) -> Result<std::sync::Arc<stafett_messaging::queues::Queue>, Problem> {
        match queue {
            QueueRef::Name(name) => find(self.broker, &self.namespace, name),
            QueueRef::Id { id } => crate::queues::with_id(self.broker, id)
                .filter(|queue| queue.namespace == self.namespace)
                .ok_or_else(|| Problem::new(Code::NoSuchQueue, format!("there is no queue with id {id:?}"))),
        }
    }

    fn client(&self, client: &QueueRef) -> Result<std::sync::Arc<stafett_messaging::queues::Queue>, Problem> {
        let (found, named) = match client {
            QueueRef::Name(name) => (caller::find(self.broker, &self.namespace, name), name),
            QueueRef::Id { id } => {
                let queue = crate::queues::with_id(self.broker, id);
                (
                    queue.filter(|queue| queue.personal && queue.namespace == self.namespace),
                    id,
                )
            }
        };
        found.ok_or_else(|| Problem::new(Code::NoSuchClient, format!("there is no client {named:?}")))
    }
}

/// Returns the id of one message of a list.
fn key_of(key: [u8; 16], at: usize) -> [u8; 16] {
    let hash: [u8; 32] = Sha256::new()
        .chain_update(key)
        .chain_update((at as u64).to_be_bytes())
        .finalize()
        .into();
    hash.first_chunk().copied().unwrap_or(key)
}

/// Returns the reference to a client's queue.
pub(crate) fn to_client(name: &str) -> QueueRef {
    QueueRef::Name(queue_name(name))
}
