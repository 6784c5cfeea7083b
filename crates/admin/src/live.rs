//! Live topics: counts, topics with subscribers, and clients with their subscriptions.
//!
//! Pages are in the order of the broker's tables. They are bounded in the entries examined too: a page may be
//! short, or even empty, and not be the last.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_broker::Broker;
use stafett_http::api::{delete, get};
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot};
use stafett_live_topics::{
    CLIENT_NAME_BYTES_MAX, ChangeError, ClientName, ClientPresence, Live, Page, Subscription,
};

use crate::refusals::{self, of_storage};
use crate::{Routes, answer};

const COUNT: u64 = 50;
const COUNT_MAX: u64 = 1000;
const PAGE: [Parameter; 2] = [
    Parameter::number("count", COUNT_MAX, "Entries of a page; 50 if it is absent."),
    Parameter::text("from", "The `next` of the page before."),
];
const NUMBER: Parameter = Parameter::flag(
    "number",
    "True if the client's id is a number: 1 and \"1\" are two.",
);

/// Counts of live topics.
#[derive(Debug, Serialize, JsonSchema)]
struct LiveStatus {
    /// Clients that listen.
    listening: usize,
    /// Clients that listen or have subscriptions.
    clients: usize,
    /// Topics with subscribers.
    topics: usize,
    subscriptions: usize,
    /// Patterns with subscribers.
    patterns: usize,
    counters: Counters,
}

/// Messages since the start of the broker.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "LiveCounters")]
struct Counters {
    published: u64,
    /// One for each receiver.
    delivered: u64,
    /// Messages dropped for receivers that were too slow.
    dropped: u64,
    /// Messages filtered as duplicates.
    duplicates: u64,
}

/// A topic, with the clients that subscribe to it by name.
#[derive(Debug, Serialize, JsonSchema)]
struct LiveTopic {
    name: String,
    subscribers: usize,
}

/// A pattern of topics.
#[derive(Debug, Serialize, JsonSchema)]
struct LivePattern {
    pattern: String,
    subscribers: usize,
}

/// A client.
#[derive(Debug, Serialize, JsonSchema)]
struct LiveClient {
    client: String,
    /// True if the id is a number.
    number: bool,
    listening: bool,
    subscriptions: usize,
}

/// A topic and its subscribers.
#[derive(Debug, Serialize, JsonSchema)]
struct LiveTopicShown {
    name: String,
    /// Clients that subscribe by name, and those of them that listen.
    subscribers: usize,
    listening: usize,
    /// Patterns that match, 100 at most.
    patterns: Vec<LivePattern>,
    /// Clients that subscribe by name.
    clients: Vec<LiveClient>,
    next: Option<String>,
}

/// Topics of a page.
#[derive(Debug, Serialize, JsonSchema)]
struct LiveTopicPage {
    items: Vec<LiveTopic>,
    /// Value of `from` for the next page; null on the last one.
    next: Option<String>,
}

/// Clients of a page.
#[derive(Debug, Serialize, JsonSchema)]
struct LiveClientPage {
    items: Vec<LiveClient>,
    /// Value of `from` for the next page; null on the last one.
    next: Option<String>,
}

/// Subscriptions of a client: topics, then patterns.
#[derive(Debug, Serialize, JsonSchema)]
struct LiveSubscriptions {
    topics: Vec<String>,
    patterns: Vec<String>,
    /// Value of `from` for the next page; null on the last one.
    next: Option<String>,
}

pub(crate) fn routes(routes: Routes) -> Routes {
    const CLIENT: &str = "/v1/live/clients/{client}";
    routes
        .route(
            get("/v1/live", "Shows counts of live topics.")
                .answers::<LiveStatus>(200)
                .refuses(&[Code::NotServing]),
            status,
        )
        .route(
            get(
                "/v1/live/topics",
                "Lists live topics with subscribers, in no order.",
            )
            .query(&PAGE)
            .query(&[Parameter::text("q", "Only the topic of this name.")])
            .answers::<LiveTopicPage>(200)
            .refuses(&[Code::NotServing]),
            topics,
        )
        .route(
            get(
                "/v1/live/topics/{topic}",
                "Shows a live topic: its subscribers, and the patterns that match it. Any name is one.",
            )
            .query(&PAGE)
            .answers::<LiveTopicShown>(200)
            .refuses(&[Code::NotServing]),
            topic,
        )
        .route(
            get(
                "/v1/live/clients",
                "Lists clients that listen or have subscriptions, in no order.",
            )
            .query(&PAGE)
            .query(&[Parameter::flag("listening", "Only clients that listen.")])
            .answers::<LiveClientPage>(200)
            .refuses(&[Code::NotServing]),
            clients,
        )
        .route(
            get(CLIENT, "Shows a client of live topics.")
                .query(&[NUMBER])
                .answers::<LiveClient>(200)
                .refuses(&[Code::NotServing, Code::NoSuchClient]),
            client,
        )
        .route(
            get(
                "/v1/live/clients/{client}/subscriptions",
                "Lists the subscriptions of a client.",
            )
            .query(&PAGE)
            .query(&[NUMBER])
            .answers::<LiveSubscriptions>(200)
            .refuses(&[Code::NotServing, Code::NoSuchClient]),
            subscriptions,
        )
        .route(
            delete(CLIENT, "Ends the listening of a client, and its subscriptions.")
                .event("live.client_deleted")
                .query(&[NUMBER])
                .answers::<LiveClient>(200)
                .refuses(&refusals::STORAGE)
                .refuses(&[Code::NoSuchClient]),
            remove,
        )
}

async fn status(State(broker): State<Slot<Broker>>) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let (counts, metrics) = (broker.live_topics().presence(), broker.live_topics().metrics());
    let [published, delivered, dropped, duplicates] = metrics.messages();
    let status = LiveStatus {
        listening: counts.listening,
        clients: counts.clients,
        topics: counts.topics,
        subscriptions: counts.subscriptions,
        patterns: counts.patterns,
        counters: Counters {
            published,
            delivered,
            dropped,
            duplicates,
        },
    };
    Ok(answer(StatusCode::OK, &status))
}

async fn topics(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let (from, count) = wanted(&query)?;
    let page = match query.get("q") {
        None => broker.live_topics().subscribed_topics(from, count),
        Some(name) => {
            let subscribers = broker.live_topics().topic_audience(name).subscribers;
            let found = (subscribers > 0).then(|| stafett_live_topics::SubscriberCount {
                name: name.to_owned(),
                subscribers,
            });
            Page {
                items: found.into_iter().collect(),
                next: None,
            }
        }
    };
    let next = next(&page);
    let topics = page.items.into_iter().map(|topic| LiveTopic {
        name: topic.name,
        subscribers: topic.subscribers,
    });
    let items = topics.collect();
    Ok(answer(StatusCode::OK, &LiveTopicPage { items, next }))
}

async fn topic(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let live = broker.live_topics();
    let (from, count) = wanted(&query)?;
    let (audience, page) = (live.topic_audience(&name), live.subscribers(&name, from, count));
    let patterns = live
        .patterns_matching(&name)
        .into_iter()
        .map(|found| LivePattern {
            pattern: found.name,
            subscribers: found.subscribers,
        });
    let shown = LiveTopicShown {
        subscribers: audience.subscribers,
        listening: audience.listening,
        patterns: patterns.collect(),
        next: next(&page),
        clients: page.items.into_iter().map(LiveClient::of).collect(),
        name,
    };
    Ok(answer(StatusCode::OK, &shown))
}

async fn clients(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let (from, count) = wanted(&query)?;
    let page = if query.flag("listening")? {
        broker.live_topics().listening(from, count)
    } else {
        broker.live_topics().present(from, count)
    };
    let next = next(&page);
    let items = page.items.into_iter().map(LiveClient::of).collect();
    Ok(answer(StatusCode::OK, &LiveClientPage { items, next }))
}

async fn client(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let found = find(broker.live_topics(), &client_name(&name, &query)?)?;
    Ok(answer(StatusCode::OK, &LiveClient::of(found)))
}

async fn subscriptions(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let name = client_name(&name, &query)?;
    find(broker.live_topics(), &name)?;
    let (from, count) = wanted(&query)?;
    let page = broker.live_topics().subscriptions(&name, from, count);
    let next = next(&page);
    let (mut topics, mut patterns) = (Vec::new(), Vec::new());
    for item in page.items {
        match item {
            Subscription::Topic(name) => topics.push(name),
            Subscription::Pattern(text) => patterns.push(text),
        }
    }
    let shown = LiveSubscriptions {
        topics,
        patterns,
        next,
    };
    Ok(answer(StatusCode::OK, &shown))
}

async fn remove(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let name = client_name(&name, &query)?;
    let found = find(broker.live_topics(), &name)?;
    let removed = broker.live_topics().remove_client(name).await;
    removed.map_err(|why| match why {
        ChangeError::NotStored(error) => of_storage(error, error),
        ChangeError::TooManySubscriptions { .. }
        | ChangeError::TooManyPatterns { .. }
        | ChangeError::TooManyClients(_) => Problem::new(Code::NotStored, why),
    })?;
    Ok(answer(StatusCode::OK, &LiveClient::of(found)))
}

fn find(live: &Live, name: &ClientName) -> Result<ClientPresence, Problem> {
    live.client(name).ok_or_else(|| {
        let why =
            "no client of this id listens or has subscriptions; `number=true` is for ids that are numbers";
        Problem::new(Code::NoSuchClient, why)
    })
}

fn client_name(text: &str, query: &Query) -> Result<ClientName, Problem> {
    if query.flag("number")? {
        let number = text.parse().map(ClientName::Number);
        return number.map_err(|_| Problem::bad_request(format!("the client is a number, not {text:?}")));
    }
    if text.len() > CLIENT_NAME_BYTES_MAX {
        let why = format!("a client's id has {CLIENT_NAME_BYTES_MAX} bytes at most");
        return Err(Problem::bad_request(why));
    }
    Ok(ClientName::Text(text.into()))
}

/// Returns the place and the number of entries of the page that a query asks for.
fn wanted(query: &Query) -> Result<(u64, usize), Problem> {
    let from = query.get("from").map_or(Ok(0), str::parse);
    let from = from.map_err(|_| Problem::bad_request("from is the `next` of the page before, as it was"))?;
    let count = query.number("count", COUNT_MAX)?.unwrap_or(COUNT);
    Ok((from, usize::try_from(count).unwrap_or(usize::MAX)))
}

fn next<T>(page: &Page<T>) -> Option<String> {
    page.next.map(|next| next.to_string())
}

impl LiveClient {
    fn of(found: ClientPresence) -> Self {
        let (client, number) = match found.client {
            ClientName::Number(number) => (number.to_string(), true),
            ClientName::Text(text) => (text.into(), false),
        };
        Self {
            client,
            number,
            listening: found.listening,
            subscriptions: found.subscriptions,
        }
    }
}
