//! Commands that are requests of routes: their fields are the names of the path, the keys of the query, and
//! the fields of the body.

use std::fmt::Write;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, Method, Request, header};
use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use stafett_http::query::encoded;
use stafett_http::{Draining, Problem, slot};
use stafett_net::ByteBudget;
use tower::ServiceExt;

use super::command::{Fields, Op};
use crate::caller::{CLIENT, Caller};
use crate::content::JSON;

/// Answer of a route: its body, which is a refusal if the request was refused.
pub(crate) type Answered = Result<Bytes, Bytes>;

/// Routes, called within the process.
#[derive(Debug, Clone)]
pub(crate) struct Routes {
    pub(crate) router: Router,
    pub(crate) budget: Option<Arc<ByteBudget>>,
    pub(crate) draining: Draining,
}

/// Route of an operation.
pub(super) struct Route {
    pub(super) method: Method,
    /// With the name of a field in braces.
    pub(super) path: &'static str,
    /// Fields that are keys of the query. A name that ends with a dot stands for all that begin with it.
    pub(super) query: &'static [&'static str],
    /// Query of every request.
    fixed: &'static str,
    /// Field that is the whole body if it is there alone.
    list: &'static str,
    has_body: bool,
    is_in_namespace: bool,
}

const RECEIVE: &[&str] = &[
    "count",
    "wait",
    "ack",
    "settled",
    "after",
    "sender",
    "context",
    "priority",
    "priority_min",
    "header.",
    "died_in",
    "died_of",
    "order",
    "as",
];
const RECEIVE_ANY: &[&str] = &[
    "queue",
    "count",
    "wait",
    "ack",
    "settled",
    "sender",
    "context",
    "priority",
    "priority_min",
    "header.",
    "died_in",
    "died_of",
    "order",
    "as",
];
const PEEK: &[&str] = &[
    "count",
    "after",
    "sender",
    "context",
    "priority",
    "priority_min",
    "header.",
    "died_in",
    "died_of",
    "order",
    "as",
];

impl Route {
    /// Returns the route of an operation; `has_queue` if a single queue is named. `None` if the session has
    /// the operation itself.
    pub(super) fn of(op: Op, has_queue: bool) -> Option<Self> {
        let get = |path, query| Self {
            method: Method::GET,
            path,
            query,
            fixed: "",
            list: "",
            has_body: false,
            is_in_namespace: true,
        };
        let post = |path, query, has_body| Self {
            method: Method::POST,
            has_body,
            ..get(path, query)
        };
        Some(match op {
            Op::Register => Self {
                method: Method::PUT,
                ..get("/v1/clients/{client}", &[])
            },
            Op::Call => post("/v1/clients/{client}/call", &["wait", "as"], true),
            Op::Receive if has_queue => post("/v1/queues/{queue}/receive", RECEIVE, false),
            Op::Receive => post("/v1/receive", RECEIVE_ANY, false),
            Op::Peek => get("/v1/queues/{queue}/messages", PEEK),
            Op::Settle => post("/v1/queues/{queue}/settle", &["settled"], true),
            Op::Pending => get("/v1/pending", &["count"]),
            Op::Publish => post("/v1/exchanges/{exchange}/publish", &[], true),
            Op::Produce => Self {
                fixed: "as=record",
                list: "records",
                is_in_namespace: false,
                ..post("/v1/topics/{topic}/records", &["ack"], true)
            },
            // Of a namespace in another cell.
            Op::Send => post("/v1/messages", &[], true),
            Op::Consume | Op::Cancel | Op::Watch | Op::Unwatch | Op::Ping => return None,
        })
    }

    /// Builds the request of a command.
    pub(super) fn request(
        &self,
        mut fields: Fields<'_>,
        caller: &Caller,
        namespace: Option<&str>,
    ) -> Result<Request<String>, Problem> {
        let mut uri = self.path.to_owned();
        if let (Some(start), Some(end)) = (uri.find('{'), uri.find('}')) {
            let name = uri.get(start + 1..end).unwrap_or_default().to_owned();
            let value = fields.remove(name.as_str());
            let value = value.ok_or_else(|| Problem::bad_request(format!("{name} is missing")))?;
            let value = plain(&name, value)?;
            if value.is_empty() {
                // The route is of a path with a name.
                return Err(Problem::bad_request(format!("{name} is empty")));
            }
            uri.replace_range(start..=end, &encoded(&value).to_string());
        }
        uri.push('?');
        uri.push_str(self.fixed);
        let own = fields.remove("namespace");
        let own = own.map(|value| plain("namespace", value)).transpose()?;
        if self.is_in_namespace
            && let Some(namespace) = own.as_deref().or(namespace)
        {
            // Writing to memory does not fail.
            let _ = write!(uri, "&namespace={}", encoded(namespace));
        }
        let key = fields.remove("idempotency_key");
        let mut refused = Ok(());
        fields.retain(|name, value| {
            let is_key = |key: &str| key == name || key.ends_with('.') && name.starts_with(key);
            if !self.query.iter().any(|key| is_key(key)) {
                return true;
            }
            match plain(name, value) {
                Ok(value) => drop(write!(uri, "&{}={}", encoded(name), encoded(&value))),
                Err(why) => refused = Err(why),
            }
            false
        });
        refused?;
        if !self.has_body
            && let Some(name) = fields.keys().next()
        {
            return Err(Problem::unknown_field(name, self.query));
        }
        let body = match fields.remove(self.list).filter(|_| fields.is_empty()) {
            Some(list) => list.get().to_owned(),
            None if self.has_body => object(&fields),
            None => String::new(),
        };
        let mut request = request_of(self.method.clone(), &uri, caller, body)?;
        if let Some(key) = key {
            let key = plain("idempotency_key", key)?;
            let key = HeaderValue::from_bytes(key.as_bytes());
            let key =
                key.map_err(|_| Problem::bad_request("idempotency_key: expected no control characters"))?;
            request.headers_mut().insert("idempotency-key", key);
        }
        Ok(request)
    }
}

impl Routes {
    /// Asks a route for a caller.
    pub(crate) async fn ask(self, request: Request<String>, by: Arc<stafett_access::Caller>) -> Answered {
        let mut request = request.map(Body::from);
        request.extensions_mut().insert(by);
        if let Some(budget) = self.budget {
            request.extensions_mut().insert(budget);
        }
        request.extensions_mut().insert(self.draining);
        let response = match self.router.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let is_success = response.status().is_success();
        // Routes bound their answers.
        let body = to_bytes(response.into_body(), usize::MAX).await;
        let body = body.map_err(|_| Bytes::from(slot::closed().to_value().to_string()))?;
        if is_success { Ok(body) } else { Err(body) }
    }
}

/// Builds a request for a caller.
pub(crate) fn request_of(
    method: Method,
    uri: &str,
    caller: &Caller,
    body: String,
) -> Result<Request<String>, Problem> {
    let mut request = Request::builder().method(method).uri(uri);
    if let Some(client) = &caller.0 {
        request = request.header(
            CLIENT,
            HeaderValue::from_bytes(client.as_bytes()).map_err(Problem::bad_request)?,
        );
    }
    let request = request.header(header::CONTENT_TYPE, JSON).body(body);
    request.map_err(Problem::bad_request)
}

/// Returns the text of a field for a path or a query: a text, a number, a truth value, or a list of texts.
fn plain(name: &str, value: &RawValue) -> Result<String, Problem> {
    let read: Value = serde_json::from_str(value.get()).map_err(Problem::bad_request)?;
    match read {
        Value::String(text) => Ok(text),
        Value::Number(_) | Value::Bool(_) => Ok(read.to_string()),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            let texts: Vec<_> = items.iter().filter_map(Value::as_str).collect();
            Ok(texts.join(","))
        }
        Value::Array(_) | Value::Object(_) | Value::Null => Err(Problem::bad_request(format!(
            "{name}: expected a text or a number"
        ))),
    }
}

/// Writes fields as an object, each as it came.
pub(super) fn object(fields: &Fields<'_>) -> String {
    let bytes = fields
        .iter()
        .map(|(name, value)| name.len() + value.get().len() + 4);
    let mut body = String::with_capacity(bytes.sum::<usize>() + 2);
    body.push('{');
    for (name, value) in fields {
        if body.len() > 1 {
            body.push(',');
        }
        let _ = write!(body, "{}:{}", Value::from(&**name), value.get());
    }
    body.push('}');
    body
}
