//! Lists of things in namespaces, when no namespace is named, and the overview: the owners of all cells are
//! asked, and their answers become one.

use std::cmp::Reverse;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::uri::PathAndQuery;
use axum::http::{Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stafett_http::list::Page;
use stafett_http::query::decoded;
use stafett_http::{Problem, slot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Forward, value};

/// Lists of this API, in pages.
const PAGED: [&str; 5] = ["bindings", "exchanges", "namespaces", "policies", "queues"];
/// Lists of RabbitMQ's API.
const WHOLE: [&str; 6] = [
    "bindings",
    "exchanges",
    "operator-policies",
    "policies",
    "queues",
    "vhosts",
];
/// Numbers of the overview of which each cell has its own; others are of the node, or the same in all cells.
const SUMMED: [(&str, &[&str]); 2] = [
    ("totals", &["queues", "ready", "in_flight", "consumers"]),
    (
        "rates",
        &[
            "records_in",
            "records_out",
            "bytes_in",
            "bytes_out",
            "published",
            "delivered",
            "settled",
            "redelivered",
            "returned",
            "queues_declared",
            "queues_created",
            "queues_deleted",
        ],
    ),
];
/// Backlogs of queues in the overview.
const BACKLOGS: usize = 10;
/// Time for the answer of another owner. Entries of one that takes longer are missing.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Largest answer of a cell: of 1,000 entries a page has at most, or of a whole list.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Kind of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Gathered {
    Pages {
        sort: String,
        count: usize,
        /// The client asked for the cursors of entries.
        wants_cursors: bool,
    },
    Whole,
    Overview,
}

impl Gathered {
    /// Returns the list that a request is for. `None` if it is for something else, or for a part of a list.
    pub(super) fn of(method: &Method, uri: &Uri) -> Option<Self> {
        let has = |key| value(uri, key).is_some();
        if method != Method::GET || has("cell") || has("namespace") {
            return None;
        }
        let path = uri.path();
        if path == "/v1/overview" {
            return Some(Self::Overview);
        }
        if path
            .strip_prefix("/v1/")
            .is_some_and(|list| PAGED.contains(&list))
        {
            // Malformed values are refused by the list itself.
            let count = value(uri, "count").and_then(|count| count.parse().ok());
            return Some(Self::Pages {
                sort: value(uri, "sort").and_then(decoded).unwrap_or_default(),
                count: count.unwrap_or(stafett_http::list::COUNT),
                wants_cursors: value(uri, "cursors") == Some("true"),
            });
        }
        let is_whole = path
            .strip_prefix("/api/")
            .is_some_and(|list| WHOLE.contains(&list));
        // A page of RabbitMQ's has a number, and is one of the first cell.
        (is_whole && !has("page") && !has("sort")).then_some(Self::Whole)
    }
}

/// Answer of a cell.
struct Answer<T> {
    cell: u32,
    /// `None` if the cell does not answer.
    list: Option<T>,
}

/// An answer on its way; `None` if there is none.
type Asking = JoinHandle<Option<Response>>;

impl Forward {
    /// Asks all cells for a list.
    pub(super) async fn gather(
        &self,
        list: Gathered,
        cells: u32,
        mut request: Request,
        next: Next,
    ) -> Result<Response, Problem> {
        if let Gathered::Pages { .. } = list {
            add_cursors(request.uri_mut());
        }
        // Answers are read here.
        for name in [
            header::ACCEPT_ENCODING,
            header::IF_NONE_MATCH,
            header::IF_MODIFIED_SINCE,
        ] {
            request.headers_mut().remove(name);
        }
        let (parts, body) = request.into_parts();
        let others = self.ask_others(cells, &parts);
        let own = next.run(Request::from_parts(parts, body)).await;
        if !own.status().is_success() {
            return Ok(own);
        }
        let mut answered = Vec::new();
        for (cell, asked) in others {
            match asked.await.ok().flatten() {
                // Such as one that is busy, or whose users are not as new.
                Some(response) if response.status().is_server_error() => answered.push((cell, None)),
                Some(response) if !response.status().is_success() => return Ok(response),
                response => answered.push((cell, response)),
            }
        }
        match list {
            Gathered::Pages {
                sort,
                count,
                wants_cursors,
            } => {
                let (own, answers) = read::<Page<Value>>(own, answered).await?;
                let away = answers.iter().filter(|answer| answer.list.is_none());
                let away = away.map(|answer| answer.cell).collect();
                let pages = answers.into_iter().filter_map(|answer| answer.list);
                let mut page = Page::merged(&sort, count, [own.1].into_iter().chain(pages).collect())?;
                page.away = away;
                if !wants_cursors {
                    page.cursors.clear();
                }
                Ok(written(own.0, &page))
            }
            Gathered::Overview => {
                let (mut own, answers) = read::<Value>(own, answered).await?;
                let mut away = Vec::new();
                for Answer { cell, list } in answers {
                    match list {
                        Some(other) => add_overview(&mut own.1, cell, other),
                        None => away.push(cell),
                    }
                }
                if let Some(own) = own.1.as_object_mut().filter(|_| !away.is_empty()) {
                    own.insert("away".to_owned(), away.into());
                }
                Ok(written(own.0, &own.1))
            }
            Gathered::Whole => {
                let (own, answers) = read::<Vec<Value>>(own, answered).await?;
                let mut all = own.1;
                all.extend(answers.into_iter().filter_map(|answer| answer.list).flatten());
                Ok(written(own.0, &all))
            }
        }
    }

    /// Begins to ask all cells but the first.
    fn ask_others(&self, cells: u32, parts: &axum::http::request::Parts) -> Vec<(u32, Asking)> {
        let view = self.member.view();
        let ask = |cell| {
            let asked = Request::from_parts(parts.clone(), Body::empty());
            let forward = self.clone();
            let is_owned = view.of_cell(cell).owner().is_some();
            let asking = async move {
                if !is_owned {
                    return None;
                }
                timeout(ANSWER_MAX, forward.pass(cell, asked)).await.ok()?.ok()
            };
            (cell, self.tasks.spawn(asking))
        };
        (1..cells).map(ask).collect()
    }
}

/// Reads the answers: the own one, and those of other cells.
async fn read<T: DeserializeOwned>(
    own: Response,
    others: Vec<(u32, Option<Response>)>,
) -> Result<((axum::http::response::Parts, T), Vec<Answer<T>>), Problem> {
    let (parts, body) = own.into_parts();
    let own = list(body).await.ok_or_else(slot::closed)?;
    let mut answers = Vec::with_capacity(others.len());
    for (cell, response) in others {
        let list = match response {
            Some(response) => timeout(ANSWER_MAX, list(response.into_body()))
                .await
                .ok()
                .flatten(),
            None => None,
        };
        answers.push(Answer { cell, list });
    }
    Ok(((parts, own), answers))
}

async fn list<T: DeserializeOwned>(body: Body) -> Option<T> {
    let bytes = to_bytes(body, ANSWER_BYTES_MAX).await.ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Answers with the head of the own answer, and another body.
fn written(mut parts: axum::http::response::Parts, list: &impl Serialize) -> Response {
    parts.headers.remove(header::CONTENT_LENGTH);
    match serde_json::to_vec(list) {
        Ok(mut json) => {
            json.push(b'\n');
            Response::from_parts(parts, json.into())
        }
        Err(_) => slot::closed().into_response(),
    }
}

/// Adds the overview of another cell.
fn add_overview(own: &mut Value, cell: u32, mut other: Value) {
    for (part, fields) in SUMMED {
        for field in fields {
            let [Some(own), Some(other)] =
                [&mut *own, &mut other].map(|it| it.get_mut(part).and_then(|part| part.get_mut(field)))
            else {
                continue;
            };
            *own = match (own.as_u64(), other.as_u64()) {
                (Some(own), Some(other)) => own.saturating_add(other).into(),
                _ => (own.as_f64().unwrap_or(0.0) + other.as_f64().unwrap_or(0.0)).into(),
            };
        }
    }
    let list = |of: &mut Value, path: &str| match of.pointer_mut(path).map(Value::take) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    };
    let mut queues = list(own, "/top/queues");
    queues.extend(list(&mut other, "/top/queues"));
    queues.sort_by_key(|queue| Reverse(queue.get("ready").and_then(Value::as_u64)));
    queues.truncate(BACKLOGS);
    let mut alarms = list(own, "/alarms");
    for mut alarm in list(&mut other, "/alarms") {
        if let Some(alarm) = alarm.as_object_mut() {
            alarm.insert("cell".to_owned(), cell.into());
        }
        alarms.push(alarm);
    }
    for (path, list) in [("/top/queues", queues), ("/alarms", alarms)] {
        if let Some(place) = own.pointer_mut(path) {
            *place = list.into();
        }
    }
}

/// Has a list give the cursors of its entries.
fn add_cursors(uri: &mut Uri) {
    let query = uri.query().unwrap_or_default();
    let pairs = query
        .split('&')
        .filter(|pair| !pair.is_empty() && !pair.starts_with("cursors="));
    let query: Vec<&str> = pairs.chain(["cursors=true"]).collect();
    let text = format!("{}?{}", uri.path(), query.join("&"));
    if let Ok(with) = text.parse::<PathAndQuery>() {
        *uri = Uri::from(with);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_without_a_namespace_are_of_all_cells() {
        let of = |method: Method, uri: &str| Gathered::of(&method, &uri.parse().unwrap());
        let pages = |sort: &str, count, wants_cursors| {
            Some(Gathered::Pages {
                sort: sort.to_owned(),
                count,
                wants_cursors,
            })
        };
        for (uri, expected) in [
            ("/v1/queues", pages("", 50, false)),
            (
                "/v1/queues?sort=%2Dready&count=7&cursors=true",
                pages("-ready", 7, true),
            ),
            ("/v1/namespaces?count=x", pages("", 50, false)),
            ("/v1/queues?namespace=shop", None),
            ("/v1/queues?cell=0", None),
            ("/v1/queues/q", None),
            ("/v1/topics", None),
            ("/api/queues", Some(Gathered::Whole)),
            ("/api/vhosts", Some(Gathered::Whole)),
            ("/api/queues?page=1", None),
            ("/api/queues/shop", None),
            ("/api/users", None),
            ("/v1/overview", Some(Gathered::Overview)),
            ("/v1/overview?cell=1", None),
        ] {
            assert_eq!(of(Method::GET, uri), expected, "{uri}");
            assert_eq!(of(Method::POST, uri), None, "{uri}");
        }
    }

    #[test]
    fn the_overview_adds_what_each_cell_has_of_its_own() {
        let of = |queues: u64, published: f64, top: Value, alarms: Value| {
            json!({
                "totals": { "queues": queues, "topics": 7 },
                "rates": { "published": published, "commits": 1.0 },
                "top": { "queues": top, "groups": [] },
                "alarms": alarms,
            })
        };
        let queue = |ready: usize| json!({ "name": "q", "ready": ready });
        let alarm = json!({ "code": "damaged" });
        let mut own = of(2, 0.5, json!([queue(9), queue(1)]), json!([alarm]));
        let many: Vec<_> = (2..12).rev().map(queue).collect();
        add_overview(&mut own, 3, of(40, 1.0, many.into(), json!([alarm])));
        let top: Vec<_> = [11, 10, 9, 9, 8, 7, 6, 5, 4, 3].map(queue).into();
        let alarms = json!([alarm, { "code": "damaged", "cell": 3 }]);
        assert_eq!(own, of(42, 1.5, top.into(), alarms));
        // An answer of another shape adds nothing.
        let before = own.clone();
        add_overview(&mut own, 1, json!([7]));
        assert_eq!(own, before);
    }

    #[test]
    fn cells_are_asked_for_cursors() {
        for (uri, expected) in [
            ("/v1/queues", "/v1/queues?cursors=true"),
            ("/v1/queues?cursors=false&q=a", "/v1/queues?q=a&cursors=true"),
        ] {
            let mut with = uri.parse().unwrap();
            add_cursors(&mut with);
            assert_eq!(with, *expected);
        }
    }
}
