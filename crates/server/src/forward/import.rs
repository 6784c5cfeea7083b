//! Import of definitions in RabbitMQ's form: each cell is given the things of its virtual hosts.

use std::collections::BTreeMap;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use serde_json::{Map, Value};
use stafett_amqp::definitions_of;
use stafett_http::Problem;
use stafett_http::body::{self, Limit};

use super::Forward;
use crate::cluster::home;

const PATH: &str = "/api/definitions";
/// Bound on a document.
const DOCUMENT: Limit = Limit {
    bytes_max: 20_000_000,
    setting: "of definitions",
};
/// Lists of things that a cell has of its own. Rights and limits are the first cell's.
const OF_CELLS: [&str; 6] = [
    "bindings",
    "exchanges",
    "parameters",
    "policies",
    "queues",
    "vhosts",
];
/// Component of the parameters that are operator policies.
const OPERATOR_POLICY: &str = "operator_policy";

type Fields = Map<String, Value>;

/// Returns true for an import into all virtual hosts.
pub(super) fn is_one(request: &Request) -> bool {
    let is_of_all = request.uri().path() == PATH && super::value(request.uri(), "vhost").is_none();
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
            let field = if kind == "vhosts" { "name" } else { "vhost" };
            match value {
                Value::Array(items) if OF_CELLS.contains(&kind.as_str()) => {
                    for item in items {
                        let is_of_first = kind == "parameters"
                            && item
                                .get("component")
                                .is_none_or(|component| component != OPERATOR_POLICY);
                        let name = item.get(field).and_then(Value::as_str).filter(|_| !is_of_first);
                        let fields = match name.map_or(0, |name| home(name, cells)) {
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
                value => {
                    split.first.insert(kind, value);
                }
            }
        }
        split
    }
}

impl Forward {
    /// Has all cells import their parts of a document, the first one last: its users can end the rights of
    /// the caller. The first refusal ends it; things made until then stay, as at a single broker.
    pub(super) async fn import(&self, cells: u32, request: Request, next: Next) -> Result<Response, Problem> {
        let (mut parts, body) = request.into_parts();
        // Its share of the memory for requests is held with it.
        let document = body::read(Request::from_parts(parts.clone(), body), DOCUMENT).await?;
        let with = |parts: &Parts, body: Bytes| Request::from_parts(parts.clone(), Body::from(body));
        // The first cell says why a document is none.
        let Some(fields) = definitions_of(&parts.headers, document.bytes()) else {
            return Ok(next.run(with(&parts, document.bytes().clone())).await);
        };
        parts.headers.remove(header::CONTENT_LENGTH);
        let json = HeaderValue::from_static("application/json");
        parts.headers.insert(header::CONTENT_TYPE, json);
        let Split { first, others } = Split::of(fields, cells);
        for (cell, fields) in others {
            let part = Bytes::from(Value::Object(fields).to_string());
            let answer = self.pass(cell, with(&parts, part)).await?;
            if !answer.status().is_success() {
                return Ok(answer);
            }
        }
        let part = Bytes::from(Value::Object(first).to_string());
        Ok(next.run(with(&parts, part)).await)
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
