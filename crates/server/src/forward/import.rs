//! Import of definitions in RabbitMQ's form: each cell is given the things of its virtual hosts.

use std::collections::BTreeMap;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use serde_json::{Map, Value};
use stafett_amqp::{PASSED_OVER, definitions_of, passed_over_header};
use stafett_http::Problem;
use stafett_http::body::{self, Limit};

use super::gather::DEFINED;
use super::{Forward, is_definitions, value};
use crate::cluster::home;

/// Bound on a document.
const DOCUMENT: Limit = Limit {
    bytes_max: 20_000_000,
    setting: "of definitions",
};
/// Component of the parameters that are operator policies.
const OPERATOR_POLICY: &str = "operator_policy";

type Fields = Map<String, Value>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Returns a request with another body.
fn with(parts: &Parts, body: Bytes) -> Request {
    let mut request = Request::from_parts(parts.clone(), Body::empty());
    request.headers_mut().remove(header::TRANSFER_ENCODING);
    request
        .headers_mut()
        .insert(header::CONTENT_LENGTH, body.len().into());
    *request.body_mut() = body.into();
    request
}

/// Returns true for an import into all virtual hosts.
pub(super) fn is_one(request: &Request) -> bool {
    let is_of_all = is_definitions(request.uri()) && value(request.uri(), "vhost").is_none();
    request.method() == Method::POST && is_of_all
}

/// Documents for the cells.
#[derive(Debug, Default, PartialEq)]
struct Split {
    /// That of the first cell, with everything that is none of others.
    first: Fields,
    others: BTreeMap<u32, Fields>,
}

impl Split {
    fn of(document: Fields, cells: u32) -> Self {
        let mut split = Self::default();
        for (kind, value) in document {
            let is_split = DEFINED.contains(&kind.as_str());
            let Value::Array(items) = value else {
                split.first.insert(kind, value);
                continue;
            };
            for item in items {
                let cell = if is_split { cell_of(&kind, &item, cells) } else { 0 };
                let fields = match cell {
                    0 => &mut split.first,
                    cell => split.others.entry(cell).or_default(),
                };
                let list = fields
                    .entry(kind.as_str())
                    .or_insert_with(|| Value::Array(Vec::new()));
                if let Some(list) = list.as_array_mut() {
                    list.push(item);
                }
            }
        }
        split
    }
}

/// Returns the cell of a thing. One that names no virtual host is refused by the first cell.
fn cell_of(kind: &str, item: &Value, cells: u32) -> u32 {
    let field = if kind == "vhosts" { "name" } else { "vhost" };
    let component = item.get("component").and_then(Value::as_str);
    if kind == "parameters" && component != Some(OPERATOR_POLICY) {
        return 0;
    }
    let name = item.get(field).and_then(Value::as_str);
    name.map_or(0, |name| home(name, cells))
}

impl Forward {
    /// Has all cells import their parts of a document, the first one last: its users can end the rights of
    /// the caller. The first refusal ends it; things made until then stay, as at a single broker.
    pub(super) async fn import(&self, cells: u32, request: Request, next: Next) -> Result<Response, Problem> {
        let (mut parts, body) = request.into_parts();
        let given = parts.clone();
        parts.headers.insert(header::CONTENT_TYPE, JSON);
        // An empty document makes nothing. A caller that may not import it may not have this one read either.
        let allowed = next.clone().run(with(&parts, Bytes::from_static(b"{}"))).await;
        if !allowed.status().is_success() {
            return Ok(allowed);
        }
        let document = body::read(Request::from_parts(given.clone(), body), DOCUMENT).await?;
        // The first cell says why a document is none.
        let Some(fields) = definitions_of(&given.headers, document.bytes()) else {
            return Ok(next.run(with(&given, document.bytes().clone())).await);
        };
        drop(document);
        let passed_over = passed_over_header(&fields);
        let Split { first, others } = Split::of(fields, cells);
        for (cell, fields) in others {
            let part = Bytes::from(Value::Object(fields).to_string());
            let answer = self.pass(cell, with(&parts, part)).await?;
            if !answer.status().is_success() {
                return Ok(answer);
            }
        }
        let part = Bytes::from(Value::Object(first).to_string());
        let mut answer = next.run(with(&parts, part)).await;
        if let Some(passed_over) = passed_over.filter(|_| answer.status().is_success()) {
            answer.headers_mut().insert(PASSED_OVER, passed_over);
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_cell_is_given_the_things_of_its_virtual_hosts() {
        let document = json!({
            "rabbit_version": "4.0.5",
            "users": [{ "name": "anna" }],
            "permissions": [{ "user": "anna", "vhost": "shop" }],
            "vhosts": [{ "name": "/" }, { "name": "shop" }, { "name": "a" }],
            "queues": [{ "name": "q", "vhost": "shop" }, { "name": "r", "vhost": "/" }, 7],
            "parameters": [
                { "component": "operator_policy", "vhost": "a", "name": "p" },
                { "component": "vhost-limits", "vhost": "a", "name": "limits" },
            ],
        });
        let object = |value: Value| value.as_object().unwrap().clone();
        let split = Split::of(object(document), 16);
        let first = json!({
            "rabbit_version": "4.0.5",
            "users": [{ "name": "anna" }],
            "permissions": [{ "user": "anna", "vhost": "shop" }],
            "vhosts": [{ "name": "/" }],
            "queues": [{ "name": "r", "vhost": "/" }, 7],
            "parameters": [{ "component": "vhost-limits", "vhost": "a", "name": "limits" }],
        });
        assert_eq!(split.first, object(first));
        let shop = json!({
            "queues": [{ "name": "q", "vhost": "shop" }],
            "vhosts": [{ "name": "shop" }],
        });
        let policy = json!({ "component": "operator_policy", "vhost": "a", "name": "p" });
        let a = json!({ "parameters": [policy], "vhosts": [{ "name": "a" }] });
        assert_eq!(split.others, [(9, object(shop)), (12, object(a))].into());
    }
}
