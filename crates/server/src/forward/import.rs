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
/// Lists of things that a cell has of its own, but `vhosts`. Rights and limits are the first cell's.
const OF_CELLS: [&str; 4] = ["policies", "exchanges", "queues", "bindings"];
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
    /// Other cells: their virtual hosts, and the things in these.
    others: BTreeMap<u32, (Fields, Fields)>,
}

impl Split {
    fn of(document: Fields, cells: u32) -> Self {
        let mut split = Self::default();
        for (kind, value) in document {
            let (field, is_split) = match kind.as_str() {
                "vhosts" => ("name", true),
                "parameters" => ("vhost", true),
                kind => ("vhost", OF_CELLS.contains(&kind)),
            };
            let Value::Array(items) = value else {
                split.first.insert(kind, value);
                continue;
            };
            if !is_split {
                split.first.insert(kind, items.into());
                continue;
            }
            for item in items {
                let is_of_first = kind == "parameters"
                    && item
                        .get("component")
                        .is_none_or(|component| component != OPERATOR_POLICY);
                let name = item.get(field).and_then(Value::as_str).filter(|_| !is_of_first);
                let list = split.fields(name.map_or(0, |name| home(name, cells)), kind == "vhosts");
                let list = list
                    .entry(kind.as_str())
                    .or_insert_with(|| Value::Array(Vec::new()));
                if let Some(list) = list.as_array_mut() {
                    list.push(item);
                }
            }
        }
        split
    }

    /// Returns the document of a cell, or the one with its virtual hosts.
    fn fields(&mut self, cell: u32, are_hosts: bool) -> &mut Fields {
        if cell == 0 {
            return &mut self.first;
        }
        let (hosts, rest) = self.others.entry(cell).or_default();
        if are_hosts { hosts } else { rest }
    }
}

impl Forward {
    /// Has all cells import their parts of a document: virtual hosts first, as rights name them. The first
    /// refusal ends it; things made until then stay, as at a single broker.
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
        let text = |fields: &Fields| Bytes::from(Value::Object(fields.clone()).to_string());
        let split = Split::of(fields, cells);
        for (cell, (hosts, _)) in &split.others {
            let answer = self.pass(*cell, with(&parts, text(hosts))).await?;
            if !answer.status().is_success() {
                return Ok(answer);
            }
        }
        let mut answer = next.run(with(&parts, text(&split.first))).await;
        for (cell, (_, rest)) in &split.others {
            if !answer.status().is_success() {
                break;
            }
            answer = self.pass(*cell, with(&parts, text(rest))).await?;
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
        let (hosts, rest) = &split.others[&9];
        assert_eq!(*hosts, object(json!({ "vhosts": [{ "name": "shop" }] })));
        assert_eq!(
            *rest,
            object(json!({ "queues": [{ "name": "q", "vhost": "shop" }] }))
        );
        let (_, rest) = &split.others[&12];
        let policy = json!({ "component": "operator_policy", "vhost": "a", "name": "p" });
        assert_eq!(*rest, object(json!({ "parameters": [policy] })));
        assert_eq!(split.others.len(), 2);
    }
}
