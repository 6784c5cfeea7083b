//! `/v1/search`: names of all kinds of things that have a text in them.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_broker::Broker;
use stafett_http::api::get;
use stafett_http::list::choice;
use stafett_http::{Code, Parameter, Problem, Query, Slot};

use crate::caller::client_name;
use crate::{Routes, answer};

const COUNT: u64 = 20;
const COUNT_MAX: u64 = 200;

/// A thing that was found.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
struct Found {
    /// `queue`, `client`, `topic`, `group`, `exchange`, `app`, `sink` or `namespace`.
    kind: &'static str,
    name: String,
    /// Of a queue, a client or an exchange.
    namespace: Option<String>,
}

/// Things that were found: those of this name, then names that begin with it, then the others.
#[derive(Debug, Serialize, JsonSchema)]
struct FoundList {
    items: Vec<Found>,
    /// Cells of the cluster in which nothing was looked for: they do not answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    away: Vec<u32>,
}

pub(crate) fn routes(routes: Routes) -> Routes {
    routes.route(
        get(
            "/v1/search",
            "Finds queues, clients, topics, groups, exchanges, apps, sinks and namespaces by a part of the name.",
        )
        .query(&[
            Parameter::text("q", "Part of the name, without regard to case."),
            Parameter::number("count", COUNT_MAX, "Things, at most; 20 if it is absent."),
        ])
        .answers::<FoundList>(200)
        .refuses(&[Code::NotServing]),
        search,
    )
}

/// Things found so far, the best ones first.
struct Best {
    count: usize,
    part: String,
    kept: Vec<(Rank, Found)>,
}

/// Place of a name: the name itself, one that begins with the text, another one; then by length.
type Rank = (u8, usize);

impl Best {
    fn add(&mut self, kind: &'static str, name: &str, namespace: Option<&str>) {
        let lower = name.to_lowercase();
        let fit = match lower.strip_prefix(&self.part) {
            Some("") => 0,
            Some(_) => 1,
            None => 2,
        };
        let found = Found {
            kind,
            name: name.to_owned(),
            namespace: namespace.map(str::to_owned),
        };
        self.kept.push(((fit, name.len()), found));
        // Bounded, without a sort for each.
        if self.kept.len() > 2 * self.count + 64 {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.kept.sort_unstable();
        self.kept.truncate(self.count);
    }
}

async fn search(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let part = query.wanted("q")?;
    let count = query.number("count", COUNT_MAX)?.unwrap_or(COUNT);
    let mut best = Best {
        count: usize::try_from(count).unwrap_or(usize::MAX),
        part: part.to_lowercase(),
        kept: Vec::new(),
    };
    let has_part = choice(&query);
    for queue in broker.messaging().queues().all() {
        let (kind, name) = if queue.personal {
            ("client", client_name(&queue))
        } else {
            ("queue", &*queue.name)
        };
        if has_part(name) {
            best.add(kind, name, Some(queue.namespace.as_str()));
        }
    }
    // A topic that shows a queue is found as the queue.
    let wanted = broker
        .topics()
        .chosen(|topic| topic.id.queue().is_none() && has_part(&topic.name));
    for topic in wanted {
        best.add("topic", &topic.name, None);
    }
    broker.groups().each(|group| {
        if has_part(&group.name) {
            best.add("group", &group.name, None);
        }
    });
    let exchanges = broker.messaging().exchanges();
    for namespace in exchanges.namespaces() {
        if has_part(namespace.as_str()) {
            best.add("namespace", namespace.as_str(), None);
        }
        for exchange in exchanges.list(&namespace) {
            if has_part(&exchange.name) {
                best.add("exchange", &exchange.name, Some(namespace.as_str()));
            }
        }
    }
    let apps = broker.apps().all();
    for app in apps.iter().filter(|app| has_part(&app.name)) {
        best.add("app", &app.name, None);
    }
    for name in broker.sinks().all().keys().filter(|name| has_part(name)) {
        best.add("sink", name, None);
    }
    best.cut();
    let items = best.kept.into_iter().map(|(_, found)| found).collect();
    let away = Vec::new();
    Ok(answer(StatusCode::OK, &FoundList { items, away }))
}
