//! Sending messages to queues and clients.

use std::collections::BTreeMap;
use std::fmt;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use schemars::JsonSchema;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use stafett_broker::Broker;
use stafett_http::api::post;
use stafett_http::coding::packing;
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot, body};

use crate::caller::Caller;
use crate::content::{self, JSON};
use crate::key::{self, Key};
use crate::queues::NAMESPACE;
use crate::refusals;
use crate::sender::{CONTEXT_MAX, Outgoing, QueueRef, Sender, Sent, SentOrRefused};
use crate::{Routes, namespace};

/// Bytes of a body with messages.
const BODY_BYTES_MAX: usize = 16 << 20;
/// Bound on the messages of a body.
const MESSAGES_MAX: usize = 10_000;
pub(crate) const NDJSON: &str = "application/x-ndjson";
const HEADER: &str = "stafett-header-";

/// Several messages.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Several {
    messages: Bounded,
    /// True if all of them are stored, or none.
    #[serde(default)]
    atomic: bool,
}

/// A list of messages of bounded length: read one by one, so that a long list takes no memory.
#[derive(Debug)]
struct Bounded(Vec<Outgoing>);

impl<'de> Deserialize<'de> for Bounded {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_seq(Bounded(Vec::new()))
    }
}

impl<'de> Visitor<'de> for Bounded {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of {MESSAGES_MAX} messages at most")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Self, A::Error> {
        while let Some(message) = list.next_element()? {
            if self.0.len() == MESSAGES_MAX {
                return Err(de::Error::invalid_length(MESSAGES_MAX + 1, &self));
            }
            self.0.push(message);
        }
        Ok(self)
    }
}

/// One message, a list of messages, or a list that is stored as a whole.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes the body, which is read by its first key")]
enum Body {
    One(Box<Outgoing>),
    Several(Vec<Outgoing>),
    Together {
        messages: Vec<Outgoing>,
        /// True if all of them are stored, or none.
        #[serde(default)]
        atomic: bool,
    },
}

/// Answer where every message is sent: that of one message, or a list.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes the answer")]
enum AllSent {
    One(Sent),
    Several(Vec<Sent>),
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(de::Error::custom("read by `read_messages`"))
    }
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
            .headers(&[key::HEADER])
            // Lines of NDJSON are not declared: generators of clients fail at a second body beside a list.
            .body::<Body>()
            .answers::<AllSent>(201)
            .answers::<Vec<SentOrRefused>>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&refusals::SENDING)
            .refuses(&[Code::UnsupportedType]),
            send,
        )
        .route(
            post(
                "/v1/queues/{queue}/messages",
                "Sends the body as it is, whatever its type; of application/x-ndjson each line is the content of a \
                 message. Headers: Stafett-Priority, Stafett-Context, Stafett-Ttl, Stafett-Delay, Stafett-To (further queues), \
                 Stafett-Header-NAME, Idempotency-Key.",
            )
            .query(&[NAMESPACE])
            .headers(&[
                key::HEADER,
                Parameter::number("Stafett-Priority", 255, "Priority of the message."),
                Parameter::number("Stafett-Context", CONTEXT_MAX - 1, "Context of the message."),
                Parameter::number("Stafett-Ttl", 1 << 53, "Milliseconds that the message lives."),
                Parameter::number("Stafett-Delay", 1 << 53, "Milliseconds before the queues have it."),
                Parameter::text("Stafett-To", "Further queues, with commas."),
                Parameter::text("Stafett-Header-", "Header of the message."),
            ])
            .takes(&["application/octet-stream", NDJSON])
            .answers::<AllSent>(201)
            .answers::<Vec<SentOrRefused>>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&refusals::SENDING)
            .refuses(&[Code::TooLarge, Code::SlowBody, Code::BadJson, Code::UnsupportedType]),
            send_raw,
        )
}

async fn send(
    State(broker): State<Slot<Broker>>,
    caller: Caller,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let key = Key::of(request.headers(), &caller, &[namespace(&query).as_str()])?;
    let packing = packing(request.headers())?;
    let is_ndjson = content_type(request.headers()) == Some(NDJSON);
    let body = body::read_packed(request, LIMIT, packing).await?;
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
    let key = Key::of(request.headers(), &caller, &[namespace.as_str()])?;
    let packing = packing(request.headers())?;
    let template = of_headers(request.headers(), name)?;
    let kind = content_type(request.headers()).map(str::to_owned);
    let body = body::read_packed(request, LIMIT, packing).await?;
    let broker = broker.get()?;
    let sender = Sender::new(&broker, caller, namespace)?;
    if kind.as_deref() != Some(NDJSON) {
        let ready = sender.prepare(&template, body.bytes().to_vec().into(), kind, key)?;
        return sender.send_one(ready, key).await;
    }
    let text = body.text()?;
    let mut messages = Vec::new();
    for (at, line) in lines(text)? {
        let (content, is_json) = line_content(line, at)?;
        let kind = is_json.then(|| JSON.to_owned());
        let key = key.map(|key| key.of_part(messages.len()));
        messages.push(sender.prepare(&template, content, kind, key));
    }
    sender.send_each(messages, key).await
}

/// Returns the lines of NDJSON that are not empty, with their indexes.
fn lines(text: &str) -> Result<Vec<(usize, &str)>, Problem> {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let lines: Vec<_> = lines.take(MESSAGES_MAX + 1).collect();
    if lines.len() > MESSAGES_MAX {
        let why = format!("a body has {MESSAGES_MAX} lines at most");
        return Err(Problem::bad_request(why));
    }
    Ok(lines)
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
        let lines = lines(text)?.into_iter();
        let read = |(at, line): (usize, &str)| {
            body::parse::<Outgoing>(line.as_bytes()).map_err(|why| why.with("line", at + 1))
        };
        let messages = lines.map(read).collect::<Result<Vec<_>, _>>()?;
        return Ok((messages, false, false));
    }
    if bytes.trim_ascii_start().starts_with(b"[") {
        let Bounded(messages) = body::parse(bytes)?;
        return Ok((messages, false, false));
    }
    let keys: Result<BTreeMap<String, &RawValue>, _> = serde_json::from_slice(bytes);
    if keys.is_ok_and(|keys| keys.contains_key("messages")) {
        let Several {
            messages: Bounded(messages),
            atomic,
        } = body::parse(bytes)?;
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
            "stafett-delay" => message.delay_ms = Some(number(name, value()?, u64::MAX)?),
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

pub(crate) fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::CONTENT_TYPE)?.to_str().ok()
}
