//! A request: its path, query and body.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use stafett_http::query::decoded;
use stafett_http::{Code, answer, body};
use stafett_model::Namespace;
use stafett_net::Connections;

use super::refusal::{Answered, Refusal};
use super::{NodeFacts, rights};
use crate::auth::LoggedIn;
use crate::context::AmqpContext;

/// Least bound on the bytes of a body.
const BODY_BYTES_MAX: usize = 20_000_000;
/// Longest short string of AMQP.
const NAME_BYTES_MAX: usize = 255;

/// A request of a caller with valid credentials.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) context: Arc<AmqpContext>,
    pub(super) user: LoggedIn,
    pub(super) node: NodeFacts,
    pub(super) connections: Arc<Connections>,
    pub(super) method: Method,
    /// Decoded segments behind `/api`.
    pub(super) path: Vec<String>,
    query: Vec<(String, String)>,
    pub(super) headers: HeaderMap,
    body: body::Body,
}

impl Call {
    pub(super) async fn read(
        context: Arc<AmqpContext>,
        user: LoggedIn,
        node: NodeFacts,
        connections: Arc<Connections>,
        request: Request,
    ) -> Result<Self, Refusal> {
        let path = segments(request.uri().path())?;
        let query = pairs(request.uri().query())?;
        let method = match request.method() {
            &Method::HEAD => Method::GET,
            other => other.clone(),
        };
        let headers = request.headers().clone();
        let bytes_max = body_bytes_max(context.settings.message_bytes_max);
        let limit = body::Limit {
            bytes_max,
            setting: "of /api",
        };
        let body = body::read(request, limit).await.map_err(|problem| {
            if problem.code == Code::TooLarge {
                Refusal::too_large(bytes_max)
            } else if problem.code == Code::SlowBody {
                Refusal::slow()
            } else {
                Refusal::malformed()
            }
        })?;
        Ok(Self {
            context,
            user,
            node,
            connections,
            method,
            path,
            query,
            headers,
            body,
        })
    }

    /// Checks the method, in the order in which RabbitMQ lists methods.
    pub(super) fn allow(&self, methods: &[Method]) -> Result<&Method, Refusal> {
        if methods.contains(&self.method) {
            return Ok(&self.method);
        }
        let mut allow = String::new();
        if methods.contains(&Method::GET) {
            allow.push_str("HEAD, ");
        }
        for method in methods {
            allow.push_str(method.as_str());
            allow.push_str(", ");
        }
        allow.push_str("OPTIONS");
        if self.method == Method::OPTIONS {
            return Err(Refusal::options(&allow));
        }
        Err(Refusal::wrong_method(&allow))
    }

    /// Answers a resource that can only be read.
    pub(super) fn only_get(&self, answer: impl FnOnce() -> Answered) -> Answered {
        self.allow(&[Method::GET])?;
        answer()
    }

    /// Returns the last value of a key.
    pub(super) fn query(&self, key: &str) -> Option<&str> {
        let mut pairs = self.query.iter();
        pairs
            .rfind(|(known, _)| known == key)
            .map(|(_, value)| value.as_str())
    }

    /// Returns true if an answer needs a field that `is_field` accepts: columns name it or a part of it, the
    /// order depends on it, or there are no columns.
    pub(super) fn needs(&self, is_field: impl Fn(&str) -> bool) -> bool {
        let first = |path: &str| is_field(path.split('.').next().unwrap_or_default());
        self.query("columns")
            .is_none_or(|columns| columns.split(',').any(first))
            || self.query("sort").is_some_and(first)
    }

    /// Returns true if a key has the value `true`.
    pub(super) fn flag(&self, key: &str) -> bool {
        self.query(key) == Some("true")
    }

    /// Returns the time of the newest samples, in ms since 1970.
    pub(super) fn swept_ms(&self) -> i64 {
        let swept = self.context.broker.histories().swept_ms();
        swept.unwrap_or_else(stafett_store::wall_ms)
    }

    pub(super) fn body(&self) -> &Bytes {
        self.body.bytes()
    }

    /// Returns the fields of the body, which may be empty.
    pub(super) fn fields(&self) -> Result<Fields, Refusal> {
        let not_json = || Refusal::bad_request("not_json");
        let body = self.body();
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Fields(Map::new()));
        }
        match serde_json::from_slice(body).map_err(|_| not_json())? {
            Value::Object(fields) => Ok(Fields(fields)),
            Value::Null => Ok(Fields(Map::new())),
            Value::String(_) => {
                let reason = "invalid payload: the request body JSON-decoded to a string. Is the input \
                              doubly-JSON-encoded?";
                Err(Refusal::bad_request(reason))
            }
            Value::Bool(_) | Value::Number(_) | Value::Array(_) => Err(not_json()),
        }
    }

    /// Returns a virtual host that exists. An empty name is `/`.
    pub(super) fn vhost(&self, name: &str) -> Option<Namespace> {
        let namespace = Namespace::new(if name.is_empty() { Namespace::DEFAULT } else { name });
        self.context
            .exchanges()
            .has_namespace(&namespace)
            .then_some(namespace)
    }

    /// Returns a virtual host that exists, or may exist in another cell of the cluster: rights and limits of
    /// all of them are kept here.
    pub(super) fn any_vhost(&self, name: &str) -> Option<Namespace> {
        let elsewhere = self.context.is_elsewhere(name).then(|| Namespace::new(name));
        elsewhere.or_else(|| self.vhost(name))
    }

    /// Returns the given virtual host or all.
    pub(super) fn vhosts(&self, name: Option<&str>) -> Result<Vec<Namespace>, Refusal> {
        if let Some(name) = name {
            return Ok(vec![self.vhost(name).ok_or_else(Refusal::no_object)?]);
        }
        let mut all = self.context.exchanges().namespaces();
        all.retain(|vhost| rights::may_see(&self.user.caller, vhost.as_str()));
        Ok(all)
    }
}

/// Fields of a body.
#[derive(Debug)]
pub(super) struct Fields(pub(super) Map<String, Value>);

impl Fields {
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Returns a boolean, which may be a text.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(Value::String(text)) if text == "true" => Ok(true),
            Some(Value::String(text)) if text == "false" => Ok(false),
            Some(other) => Err(Refusal::bad_request(json!(["not_boolean", other]))),
        }
    }

    /// Returns a text. Numbers are texts too, as in RabbitMQ.
    pub(super) fn text(&self, name: &str) -> Result<String, Refusal> {
        match self.get(name) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Number(number)) => Ok(number.to_string()),
            Some(other) => Err(Refusal::bad_request(json!(["not_string", other]))),
        }
    }

    /// Checks that all of these fields are there.
    pub(super) fn require(&self, names: &[&str]) -> Result<(), Refusal> {
        let missing: Vec<String> = names
            .iter()
            .filter(|name| self.get(name).is_none())
            .map(|name| format!("{{key_missing,{name}}}"))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        // RabbitMQ prints the list as Erlang does, which breaks lines of more than 80 letters.
        let line = format!("[{}]", missing.join(","));
        let broken = format!("[{}]", missing.join(",\n "));
        Err(Refusal::bad_request(if line.len() > 80 { broken } else { line }))
    }
}

/// Checks the length of a name. `field` is its name in AMQP.
pub(super) fn short<'a>(text: &'a str, field: &str) -> Result<&'a str, Refusal> {
    if text.len() > NAME_BYTES_MAX {
        let bytes = text.len();
        // RabbitMQ's words: 255 bytes are possible.
        let reason = format!("{field} should be less than {NAME_BYTES_MAX} bytes, actually was {bytes}\n");
        return Err(Refusal::bad_request(reason));
    }
    Ok(text)
}

pub(super) fn ok(value: &Value) -> Response {
    answer::json(StatusCode::OK, value.to_string())
}

/// Answers 201 or 204.
pub(super) fn changed(is_new: bool) -> Response {
    let status = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::NO_CONTENT
    };
    (status, Body::empty()).into_response()
}

/// Answers 201 with the place of the new object.
pub(super) fn created(location: &str) -> Response {
    let mut response = changed(true);
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// A body in base64 has a third more bytes.
fn body_bytes_max(message_bytes_max: u64) -> usize {
    let encoded = message_bytes_max.saturating_add(message_bytes_max / 3 + (1 << 20));
    usize::try_from(encoded).unwrap_or(usize::MAX).max(BODY_BYTES_MAX)
}

/// Splits a path behind `/api` and decodes the parts. A slash at the end is ignored, but for one behind which
/// a virtual host is expected: `/queues//` is that of the virtual host `/`.
fn segments(path: &str) -> Result<Vec<String>, Refusal> {
    let rest = path.strip_prefix("/api").unwrap_or(path);
    let mut parts: Vec<&str> = rest.split('/').skip(1).collect();
    parts.pop_if(|last| last.is_empty());
    while parts.len() > 2 && parts.last().is_some_and(|last| last.is_empty()) {
        parts.pop();
    }
    let segment = |part: &str| decoded(part).ok_or_else(|| undecodable(part));
    parts.into_iter().map(segment).collect()
}

/// Refuses a malformed escape, or a name that is not UTF-8, which nothing has.
fn undecodable(part: &str) -> Refusal {
    let is_escape = |rest: &str| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if part.split('%').skip(1).all(is_escape) {
        Refusal::no_object()
    } else {
        Refusal::malformed()
    }
}

fn pairs(query: Option<&str>) -> Result<Vec<(String, String)>, Refusal> {
    let pairs = query
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty());
    let text = |text: &str| decoded(&text.replace('+', " ")).ok_or_else(Refusal::malformed);
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((text(key)?, text(value)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_decoded_after_they_are_split() {
        for (path, expected) in [
            ("/api", &[][..]),
            ("/api/", &[]),
            ("/api/queues", &["queues"]),
            ("/api/queues/", &["queues"]),
            ("/api/queues//", &["queues", ""]),
            ("/api/queues///", &["queues", ""]),
            ("/api/queues/%2F/a%2fb/", &["queues", "/", "a/b"]),
            ("/api/queues/%2F/a+b//", &["queues", "/", "a+b"]),
            ("/api//queues", &["", "queues"]),
        ] {
            assert_eq!(segments(path).unwrap(), expected, "{path}");
        }
        assert!(segments("/api/%").is_err() && segments("/api/%ff").is_err());
    }
}
