//! Events: changes of definitions, doings of operators, alarms and changes of the node; and the log.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_http::api::get;
use stafett_http::{Draining, Parameter, Problem, Query, sse};

use crate::feed::Feed;
use crate::time::rfc3339;
use crate::{Routes, answer};

/// Target of the log lines that are events as well.
pub const TARGET: &str = stafett_net::EVENTS;

/// Events that are kept; those of connections apart, so that they do not push out the others.
const EVENTS_MAX: usize = 10_000;
const COUNT: u64 = 100;
const COUNT_MAX: u64 = 10_000;
/// Lines of the log that are kept.
const LINES_MAX: usize = 1000;
const LINES: u64 = 100;

/// Events and log lines of a process.
#[derive(Debug, Clone)]
pub struct Feeds {
    pub events: Feed<Event>,
    /// Connections that were opened or closed.
    pub connections: Feed<Event>,
    pub log: Feed<Line>,
}

impl Default for Feeds {
    fn default() -> Self {
        Self {
            events: Feed::new(EVENTS_MAX),
            connections: Feed::new(EVENTS_MAX),
            log: Feed::new(LINES_MAX),
        }
    }
}

/// An event.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct Event {
    /// Milliseconds since 1970.
    #[serde(skip)]
    pub at_ms: i64,
    /// Such as `queue.deleted`.
    pub kind: String,
    /// The object, by its kind: `{"queue": "orders", "namespace": "/"}`.
    pub on: BTreeMap<String, String>,
    /// Client or user. Null for the node itself.
    pub by: Option<String>,
    /// Address from which it was asked for.
    pub from: Option<String>,
    /// Protocol.
    pub via: Option<String>,
    pub text: String,
    /// `Stafett-Request-Id` of the request.
    pub request: Option<String>,
}

/// A line of the log.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct Line {
    /// Milliseconds since 1970.
    #[serde(skip)]
    pub at_ms: i64,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: &'static str,
    /// Part of the program.
    pub target: String,
    pub text: String,
    pub fields: BTreeMap<String, String>,
}

/// An entry with its number and its time.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "{T}Shown")]
struct Shown<T> {
    id: String,
    at: String,
    #[serde(flatten)]
    entry: T,
}

/// Events, the newest first.
#[derive(Debug, Serialize, JsonSchema)]
struct EventList {
    items: Vec<Shown<Event>>,
}

const CHOICE: [Parameter; 3] = [
    Parameter::text("since", "The id of an event: only later ones."),
    Parameter::text(
        "kind",
        "A kind such as queue.deleted, or its first word; connection for connections.",
    ),
    Parameter::text("on", "Name of the object."),
];

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get("/v1/events", "Lists the last events, the newest first.")
                .query(&CHOICE)
                .query(&[Parameter::number("count", COUNT_MAX, "Number of events, at most; 100 if it is absent.")])
                .answers::<EventList>(200),
            list,
        )
        .route(
            get(
                "/v1/events/stream",
                "Sends events while they come, as server-sent events. With the id of an event as since or as header \
                 Last-Event-ID, the stream goes on there.",
            )
            .query(&CHOICE)
            .streams::<Shown<Event>>(sse::TYPE),
            stream,
        )
        .route(
            get("/v1/node/log", "Sends the last lines of the log and then what comes, as server-sent events.")
                .query(&[
                    Parameter::number("lines", LINES_MAX as u64, "Number of lines; 100 if it is absent."),
                    Parameter::text("level", "error, warn, info, debug or trace: lines of this level and above."),
                ])
                .streams::<Shown<Line>>(sse::TYPE),
            log,
        )
}

/// Choice of events.
struct Choice {
    since: Option<u64>,
    kind: Option<String>,
    on: Option<String>,
}

impl Choice {
    fn of(query: &Query) -> Result<Self, Problem> {
        let since = query.get("since").map(id).transpose()?;
        let text = |name| query.get(name).map(str::to_owned);
        Ok(Self {
            since,
            kind: text("kind"),
            on: text("on"),
        })
    }

    fn feed(&self, feeds: &Feeds) -> Feed<Event> {
        let is_connection = self
            .kind
            .as_ref()
            .is_some_and(|kind| kind.starts_with("connection"));
        if is_connection {
            feeds.connections.clone()
        } else {
            feeds.events.clone()
        }
    }

    fn wants(&self, event: &Event) -> bool {
        let is_kind = |kind: &String| {
            let rest = event.kind.strip_prefix(kind.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.kind.as_ref().is_none_or(is_kind)
            && self
                .on
                .as_ref()
                .is_none_or(|name| event.on.values().any(|known| known == name))
    }
}

fn id(text: &str) -> Result<u64, Problem> {
    let id = text.parse();
    id.map_err(|_| Problem::bad_request(format!("since is the id of an event, not {text:?}")))
}

async fn list(State(feeds): State<Feeds>, query: Query) -> Result<Response, Problem> {
    let choice = Choice::of(&query)?;
    let count = query.number("count", COUNT_MAX)?.unwrap_or(COUNT);
    let newest = choice.feed(&feeds).newest(choice.since.unwrap_or(0));
    let wanted = newest.into_iter().filter(|(_, event)| choice.wants(event));
    let items = wanted.take(usize::try_from(count).unwrap_or(usize::MAX));
    let items = items.map(|(number, event)| shown(number, event.at_ms, (*event).clone()));
    Ok(answer(
        StatusCode::OK,
        &EventList {
            items: items.collect(),
        },
    ))
}

fn shown<T>(number: u64, at_ms: i64, entry: T) -> Shown<T> {
    Shown {
        id: number.to_string(),
        at: rfc3339(at_ms),
        entry,
    }
}

async fn stream(
    State(feeds): State<Feeds>,
    draining: Draining,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let choice = Choice::of(&query)?;
    let last = headers
        .get("last-event-id")
        .and_then(|id| id.to_str().ok())
        .map(id)
        .transpose()?;
    let feed = choice.feed(&feeds);
    let after = last.or(choice.since).unwrap_or_else(|| feed.last());
    Ok(
        feed.stream(after, "event", draining, move |number, event: &Event| {
            let wanted = choice
                .wants(event)
                .then(|| shown(number, event.at_ms, event.clone()))?;
            serde_json::to_string(&wanted).ok()
        }),
    )
}

const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

async fn log(State(feeds): State<Feeds>, draining: Draining, query: Query) -> Result<Response, Problem> {
    let rank = |level: &str| LEVELS.iter().position(|known| *known == level);
    let lowest = match query.get("level") {
        None => LEVELS.len(),
        Some(level) => {
            let refused =
                || Problem::bad_request(format!("level is one of {}, not {level:?}", LEVELS.join(", ")));
            rank(level).ok_or_else(refused)?
        }
    };
    let lines = query.number("lines", LINES_MAX as u64)?.unwrap_or(LINES);
    let after = feeds.log.before_last(lines);
    Ok(feeds
        .log
        .stream(after, "line", draining, move |number, line: &Line| {
            let is_wanted = rank(line.level).is_none_or(|rank| rank <= lowest);
            let wanted = is_wanted.then(|| shown(number, line.at_ms, line.clone()))?;
            serde_json::to_string(&wanted).ok()
        }))
}
