//! Lists of things in namespaces, when no namespace is named, and the overview: the owners of all cells are
//! asked, and their answers become one.

use std::cmp::Reverse;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stafett_http::list::Page;
use stafett_http::query::decoded;
use stafett_http::{Problem, slot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Forward, is_definitions, value};

/// Lists of this API, in pages.
const PAGED: [&str; 5] = ["bindings", "exchanges", "namespaces", "policies", "queues"];
/// Lists of RabbitMQ's API.
const WHOLE: [&str; 7] = [
    "bindings",
    "exchanges",
    "operator-policies",
    "policies",
    "queues",
    "queues/detailed",
    "vhosts",
];
/// Lists of RabbitMQ's definitions of which each cell has a part. Rights and limits are the first cell's.
pub(super) const DEFINED: [&str; 6] = [
    "bindings",
    "exchanges",
    "parameters",
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
/// Things that a search finds in the cells of their namespaces.
const OF_CELLS: [&str; 4] = ["queue", "client", "exchange", "namespace"];
/// Things that a search gives, if the request does not say.
const FOUND: usize = 20;
/// Backlogs of queues in the overview.
const BACKLOGS: usize = 10;
/// Time for the answer of another owner. Entries of one that takes longer are missing.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Time for definitions, which are whole or none.
const DEFINITIONS_MAX: Duration = Duration::from_secs(30);
/// Largest answer of another cell.
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
    /// Definitions in RabbitMQ's form.
    Definitions,
    Overview,
    Search {
        /// Part of the name, in lower case.
        part: String,
        count: usize,
    },
}

impl Gathered {
    /// Returns the list that a GET request is for. `None` if it is for something else, or for a part of a
    /// list. Groups are listed if they are spread over cells.
    pub(super) fn of(uri: &Uri, are_groups_spread: bool) -> Option<Self> {
        let has = |key| value(uri, key).is_some();
        if has("cell") || has("namespace") {
            return None;
        }
        let path = uri.path();
        let text = |key| value(uri, key).and_then(|text| decoded(&text.replace('+', " ")));
        // Malformed values are refused by the first cell.
        let number = |key| text(key)?.parse::<usize>().ok();
        if path == "/v1/overview" {
            return Some(Self::Overview);
        }
        if is_definitions(uri) {
            return Some(Self::Definitions);
        }
        if path == "/v1/search" {
            return Some(Self::Search {
                part: text("q").unwrap_or_default().to_lowercase(),
                count: number("count").unwrap_or(FOUND),
            });
        }
        let is_paged = |list: &str| {
            let of_topic = || list.strip_prefix("topics/")?.strip_suffix("/groups");
            let is_of_groups = list == "groups" || of_topic().is_some_and(|topic| !topic.contains('/'));
            PAGED.contains(&list) || is_of_groups && are_groups_spread
        };
        if path.strip_prefix("/v1/").is_some_and(is_paged) {
            return Some(Self::Pages {
                sort: text("sort").unwrap_or_default(),
                count: number("count").unwrap_or(stafett_http::list::COUNT),
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

/// Answer of a search.
#[derive(Debug, Serialize, Deserialize)]
struct FoundList {
    items: Vec<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    away: Vec<u32>,
}

/// Answer of a cell on its way; `None` if there is none.
type Asking = JoinHandle<Option<Bytes>>;

impl Forward {
    /// Asks all cells for a list. Others are asked once this one has answered: then the client may ask.
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
        let own = next.run(Request::from_parts(parts.clone(), body)).await;
        if !own.status().is_success() {
            return Ok(own);
        }
        let answer_max = match list {
            Gathered::Definitions => DEFINITIONS_MAX,
            Gathered::Pages { .. } | Gathered::Whole | Gathered::Overview | Gathered::Search { .. } => {
                ANSWER_MAX
            }
        };
        let asked = self.ask_others(cells, &parts, answer_max);
        let (mut parts, body) = own.into_parts();
        parts.headers.remove(header::CONTENT_LENGTH);
        let own = to_bytes(body, usize::MAX).await.map_err(|_| slot::closed())?;
        let mut answers = Vec::with_capacity(asked.len());
        for (cell, asking) in asked {
            answers.push((cell, asking.await.ok().flatten()));
        }
        let all = match list {
            Gathered::Whole => joined(&own, &answers)?,
            Gathered::Definitions => definitions(&own, &answers)?,
            Gathered::Overview => overview(&own, answers)?,
            Gathered::Search { part, count } => found((&part, count), &own, answers)?,
            Gathered::Pages {
                sort,
                count,
                wants_cursors,
            } => {
                let mut page = merged((&sort, count), &own, answers)?;
                if !wants_cursors {
                    page.cursors.clear();
                }
                json(&page)?
            }
        };
        Ok(Response::from_parts(parts, all.into()))
    }

    /// Begins to ask all cells but the first.
    fn ask_others(&self, cells: u32, parts: &Parts, answer_max: Duration) -> Vec<(u32, Asking)> {
        let view = self.member.view();
        let ask = |cell| {
            let asked = Request::from_parts(parts.clone(), Body::empty());
            let forward = self.clone();
            let is_owned = view.of_cell(cell).owner().is_some();
            let answer = async move {
                let response = forward.pass(cell, asked).await.ok()?;
                if !response.status().is_success() {
                    tracing::debug!(cell, status = %response.status(), "a cell refuses a list");
                    return None;
                }
                to_bytes(response.into_body(), ANSWER_BYTES_MAX).await.ok()
            };
            let asking = async move {
                if !is_owned {
                    return None;
                }
                timeout(answer_max, answer).await.ok()?
            };
            (cell, self.tasks.spawn(asking))
        };
        (1..cells).map(ask).collect()
    }
}

/// Answers of other cells.
type Answers = Vec<(u32, Option<Bytes>)>;

fn read<T: DeserializeOwned>(own: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(own).map_err(|_| slot::closed())
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, Problem> {
    let mut json = serde_json::to_vec(value).map_err(|_| slot::closed())?;
    json.push(b'\n');
    Ok(json)
}

/// Makes one page of those of all cells.
fn merged((sort, count): (&str, usize), own: &[u8], answers: Answers) -> Result<Page<Value>, Problem> {
    let (mut pages, mut away) = (vec![read::<Page<Value>>(own)?], Vec::new());
    for (cell, answer) in answers {
        match answer.and_then(|answer| read(&answer).ok()) {
            Some(page) => pages.push(page),
            None => away.push(cell),
        }
    }
    let mut page = Page::merged(sort, count, pages)?;
    page.away = away;
    Ok(page)
}

/// Joins whole lists. They have no place for a word about missing cells, so there is none without all.
fn joined(own: &[u8], answers: &Answers) -> Result<Vec<u8>, Problem> {
    let mut parts = vec![inner(own).ok_or_else(slot::closed)?];
    for (cell, answer) in answers {
        let part = answer.as_ref().and_then(|answer| inner(answer));
        parts.push(part.ok_or_else(|| slot::not_serving(format!("cell {cell} does not answer")))?);
    }
    parts.retain(|part| !part.is_empty());
    Ok([b"[", &*parts.join(&b","[..]), b"]\n"].concat())
}

/// Joins definitions: things of virtual hosts are of all cells, others of the first one. A document without
/// the things of some cells looks whole, so there is none.
fn definitions(own: &[u8], answers: &Answers) -> Result<Vec<u8>, Problem> {
    let mut own = read::<Value>(own)?;
    for (cell, answer) in answers {
        let other = answer.as_ref().and_then(|answer| read::<Value>(answer).ok());
        let mut other = other.ok_or_else(|| slot::not_serving(format!("cell {cell} does not answer")))?;
        for list in DEFINED {
            let [Some(Value::Array(own)), Some(Value::Array(other))] =
                [&mut own, &mut other].map(|of| of.get_mut(list))
            else {
                return Err(slot::not_serving(format!("cell {cell} has no {list}")));
            };
            own.append(other);
        }
    }
    json(&own)
}

/// Returns the entries of a list as they stand there. `None` if it is none.
fn inner(list: &[u8]) -> Option<&[u8]> {
    let list = list.trim_ascii().strip_prefix(b"[")?.strip_suffix(b"]")?;
    Some(list.trim_ascii())
}

fn overview(own: &[u8], answers: Answers) -> Result<Vec<u8>, Problem> {
    let (mut own, mut away) = (read::<Value>(own)?, Vec::new());
    for (cell, answer) in answers {
        match answer.and_then(|answer| read(&answer).ok()) {
            Some(other) => add_overview(&mut own, cell, other),
            None => away.push(cell),
        }
    }
    if let Some(own) = own.as_object_mut().filter(|_| !away.is_empty()) {
        own.insert("away".to_owned(), away.into());
    }
    json(&own)
}

/// Returns the best of what all cells have found. Of other cells only things in namespaces count: the rest
/// is the same in all.
fn found((part, count): (&str, usize), own: &[u8], answers: Answers) -> Result<Vec<u8>, Problem> {
    let (mut own, mut away) = (read::<FoundList>(own)?, Vec::new());
    for (cell, answer) in answers {
        match answer.and_then(|answer| read::<FoundList>(&answer).ok()) {
            Some(other) => {
                let is_own = |item: &Value| {
                    item.get("kind")
                        .is_some_and(|kind| OF_CELLS.iter().any(|of| kind == of))
                };
                own.items.extend(other.items.into_iter().filter(is_own));
            }
            None => away.push(cell),
        }
    }
    // As each cell sorts them; the order of equals stays.
    own.items.sort_by_cached_key(|item| {
        let name = item.get("name").and_then(Value::as_str).unwrap_or_default();
        let fit = match name.to_lowercase().strip_prefix(part) {
            Some("") => 0,
            Some(_) => 1,
            None => 2,
        };
        (fit, name.len())
    });
    own.items.truncate(count);
    own.away = away;
    json(&own)
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
        let of = |uri: &str| Gathered::of(&uri.parse().unwrap(), false);
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
            ("/api/definitions", Some(Gathered::Definitions)),
            ("/api/definitions/", Some(Gathered::Definitions)),
            ("/api/all-configuration", Some(Gathered::Definitions)),
            ("/api/definitions/shop", None),
            ("/api/definitions//", None),
            ("/v1/overview", Some(Gathered::Overview)),
            ("/v1/overview?cell=1", None),
            (
                "/v1/search?q=A+b%2F&count=3",
                Some(Gathered::Search {
                    part: "a b/".to_owned(),
                    count: 3,
                }),
            ),
        ] {
            assert_eq!(of(uri), expected, "{uri}");
        }
        let groups = "/v1/groups".parse().unwrap();
        assert_eq!(Gathered::of(&groups, false), None);
        assert_eq!(Gathered::of(&groups, true), pages("", 50, false));
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
    fn the_best_things_of_all_cells_are_found() {
        let item = |kind: &str, name: &str| json!({ "kind": kind, "name": name });
        let list = |items: &[Value]| Bytes::from(json!({ "items": items }).to_string());
        let own = list(&[item("topic", "ab"), item("queue", "xab")]);
        let answers = vec![
            (
                1,
                Some(list(&[
                    item("topic", "ab"),
                    item("queue", "AB"),
                    item("exchange", "abc"),
                ])),
            ),
            (2, None),
        ];
        let best = found(("ab", 3), &own, answers).unwrap();
        let expected = [item("topic", "ab"), item("queue", "AB"), item("exchange", "abc")];
        let best: Value = serde_json::from_slice(&best).unwrap();
        assert_eq!(best, json!({ "items": expected, "away": [2] }));
    }

    #[test]
    fn whole_lists_are_joined_if_all_are_there() {
        let list = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
        let answers = vec![(1, list("[]\n")), (2, list(" [{\"b\":[2]}, 3 ]"))];
        assert_eq!(joined(b"[1]\n", &answers).unwrap(), b"[1,{\"b\":[2]}, 3]\n");
        assert_eq!(joined(b"[]", &vec![(1, list("[]"))]).unwrap(), b"[]\n");
        for missing in [None, list("{}")] {
            let why = joined(b"[1]", &vec![(1, list("[]")), (7, missing)]).unwrap_err();
            assert!(why.detail.contains("cell 7"), "{}", why.detail);
        }
    }

    #[test]
    fn definitions_are_whole_or_none() {
        let of = |name: &str| {
            let lists = DEFINED.map(|list| (list, json!([{ "name": name }])));
            let mut document = json!({ "users": [name] });
            let lists = lists.map(|(list, items)| (list.to_owned(), items));
            document.as_object_mut().unwrap().extend(lists);
            Some(Bytes::from(document.to_string()))
        };
        let own = of("a").unwrap();
        let joined = definitions(&own, &vec![(1, of("b")), (2, of("c"))]).unwrap();
        let joined: Value = serde_json::from_slice(&joined).unwrap();
        let names = json!([{ "name": "a" }, { "name": "b" }, { "name": "c" }]);
        assert_eq!(joined["queues"], names);
        assert_eq!(joined["users"], json!(["a"]));
        for missing in [None, Some(Bytes::from_static(b"{}"))] {
            let why = definitions(&own, &vec![(1, of("b")), (2, missing)]).unwrap_err();
            assert!(why.detail.contains("cell 2"), "{}", why.detail);
        }
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
