//! Moves messages of a queue to another one, to an exchange, or to where they were before they died: from the
//! front, by id, or by a choice.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use stafett_access::{Action, Resource};
use stafett_broker::Broker;
use stafett_delivery::{DeliveryId, SearchBounds, SearchOrder};
use stafett_http::api::post;
use stafett_http::query::encoded;
use stafett_http::{Code, Path, Problem, Query, Slot, body};
use stafett_messaging::queues::Queue;
use stafett_messaging::{MoveTarget, Stopped};
use stafett_model::Namespace;

use crate::access;
use crate::exchanges;
use crate::message::{Choice, parse_message_id};
use crate::operations::{self, Operations, Progress};
use crate::queues::{NAMESPACE, find, plan};
use crate::refusals::{self, of_move};
use crate::{Routes, namespace};

/// Maximum number of messages that one request moves.
const MOVED_MAX: u64 = 1_000_000_000;
/// Number of messages that move before an operation looks whether it is to stop.
const MOVED_AT_A_TIME: u64 = 10_000;

/// Messages that are searched for before they move.
const FOUND_TOGETHER: u64 = 1000;
/// Bound on the ids of a request.
const IDS_MAX: usize = 10_000;
/// Reason of an operation that was stopped.
const STOPPED: &str = "stopped by a request";

/// A move.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Move {
    to: MoveTo,
    /// Messages to move at most; if it is absent, as many as wait now.
    #[schemars(range(max = MOVED_MAX))]
    count: Option<u64>,
    /// Ids of the messages, of which those move that wait.
    #[serde(default)]
    #[schemars(length(max = IDS_MAX))]
    ids: Vec<String>,
    /// Choice of the messages, with the keys that receiving has: `{"died_in": "orders", "priority_min": 5}`.
    #[serde(default)]
    query: BTreeMap<String, Value>,
}

/// Target of a move, in the same namespace.
#[derive(JsonSchema)]
#[serde(untagged)]
enum MoveTo {
    Place(MovePlace),
    Origin(MoveOrigin),
}

/// A queue or an exchange, one of them.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MovePlace {
    /// Name of the queue.
    queue: Option<String>,
    /// Name of the exchange; that of the default exchange is empty.
    exchange: Option<String>,
    /// Routing key at the exchange; if it is absent, messages keep theirs.
    routing_key: Option<String>,
}

/// Exchange and routing key of the first death of each message.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum MoveOrigin {
    Origin,
}

// By hand: derived, it would not say which field is unknown.
impl<'de> Deserialize<'de> for MoveTo {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Target;

        impl<'de> Visitor<'de> for Target {
            type Value = MoveTo;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"{"queue": …}, {"exchange": …, "routing_key": …} or "origin""#)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<MoveTo, E> {
                MoveOrigin::deserialize(text.into_deserializer()).map(MoveTo::Origin)
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<MoveTo, A::Error> {
                MovePlace::deserialize(MapAccessDeserializer::new(fields)).map(MoveTo::Place)
            }
        }

        from.deserialize_any(Target)
    }
}

/// Result of a move.
#[derive(Debug, Serialize, JsonSchema)]
struct Moved {
    messages: u64,
    /// Reason why a request ended the move early. A move that an error ends is refused, with the number of
    /// messages that moved.
    stopped: Option<&'static str>,
}

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            operations::begins::<Moved>(post(
                "/v1/queues/{queue}/move",
                "Moves messages to another queue, to an exchange, or as dead letters to where they were published to first: \
                 from the front, or chosen ones. Each message is stored there and settled here by one append.",
            ))
            .event("queue.moved")
            .query(&[NAMESPACE])
            .body::<Move>()
            .refuses(&refusals::STORAGE)
            .refuses(&refusals::MOVE)
            .refuses(&[Code::NoSuchQueue, Code::NoSuchExchange]),
            move_messages,
        )
}

async fn move_messages(
    State(broker): State<Slot<Broker>>,
    State(operations): State<Operations>,
    Path(name): Path<String>,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Move = body::json(request).await?;
    let broker = broker.get()?;
    let namespace = namespace(&query);
    let from = find(&broker, &namespace, &name)?;
    let to = target(&broker, &namespace, &from, &wanted.to)?;
    let all = || {
        if wanted.ids.is_empty() {
            from.counts().ready
        } else {
            IDS_MAX as u64
        }
    };
    let count = wanted.count.unwrap_or_else(all);
    if count > MOVED_MAX {
        return Err(Problem::bad_request(format!("count is at most {MOVED_MAX}")));
    }
    let pick = Pick::of(&wanted, &from)?;
    let plan = plan("move", &from, true);
    let work = async move |progress: Arc<Progress>| {
        Steps {
            broker: &broker,
            from: &from,
            to: &to,
            progress: &progress,
        }
        .run(pick, count)
        .await
    };
    operations.run(plan, &query, work).await
}

/// Returns the target of a move, if the caller may write there.
fn target(
    broker: &Broker,
    namespace: &Namespace,
    from: &Arc<Queue>,
    to: &MoveTo,
) -> Result<MoveTarget, Problem> {
    match to {
        MoveTo::Place(MovePlace {
            queue: Some(name),
            exchange: None,
            routing_key: None,
        }) => {
            let to = find(broker, namespace, name)?;
            access::check_queue(broker, Action::Write, namespace, name)?;
            if Arc::ptr_eq(from, &to) {
                return Err(Problem::bad_request("the messages are in this queue already"));
            }
            if from.over.is_some() && from.over == to.over {
                return Err(Problem::bad_request(
                    "both queues lie over the same topic: what moves would come back",
                ));
            }
            Ok(MoveTarget::Queue(to))
        }
        MoveTo::Place(MovePlace {
            queue: None,
            exchange: Some(exchange),
            routing_key,
        }) => {
            let routing_key = routing_key.as_deref();
            access::check_forwarding(broker, namespace, exchange, routing_key)?;
            if !exchange.is_empty() {
                exchanges::find(broker, namespace, exchange)?;
            }
            Ok(MoveTarget::Exchange {
                name: exchange.as_str().into(),
                routing_key: routing_key.map(Into::into),
            })
        }
        MoveTo::Place(_) => Err(Problem::bad_request(
            "to names a queue, or an exchange with or without a routing key",
        )),
        MoveTo::Origin(MoveOrigin::Origin) => {
            // The names are in the messages: this takes the right to all.
            let all = Resource::exchange(namespace.as_str(), "");
            access::check(broker, Action::Write, &all)?;
            access::check_forwarding(broker, namespace, "", None)?;
            Ok(MoveTarget::Origin)
        }
    }
}

/// Messages that move.
enum Pick {
    Front,
    These(Vec<DeliveryId>),
    Chosen(Box<Choice>),
}

impl Pick {
    fn of(wanted: &Move, from: &Queue) -> Result<Self, Problem> {
        if !wanted.ids.is_empty() && !wanted.query.is_empty() {
            return Err(Problem::bad_request("ids and query are both given"));
        }
        if wanted.ids.len() > IDS_MAX {
            return Err(Problem::bad_request(format!("there are {IDS_MAX} ids at most")));
        }
        if !wanted.query.is_empty() {
            return Ok(Self::Chosen(Box::new(choice(&wanted.query)?)));
        }
        if wanted.ids.is_empty() {
            return Ok(Self::Front);
        }
        let id = |text: &String| {
            let id = parse_message_id(from.id, text);
            id.ok_or_else(|| Problem::bad_request(format!("there can be no message {text:?} in this queue")))
        };
        Ok(Self::These(wanted.ids.iter().map(id).collect::<Result<_, _>>()?))
    }
}

/// Reads a choice whose keys are those of a query.
fn choice(fields: &BTreeMap<String, Value>) -> Result<Choice, Problem> {
    let mut text = String::new();
    for (name, value) in fields {
        let value = match value {
            Value::String(value) => value.clone(),
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                return Err(Problem::bad_request(format!(
                    "query: {name} is a text or a number"
                )));
            }
        };
        // Writing to memory does not fail.
        let _ = write!(text, "&{}={}", encoded(name), encoded(&value));
    }
    let known = Choice::KEYS.map(|key| key.name);
    let known: Vec<&str> = known
        .into_iter()
        .filter(|name| !["order", "as"].contains(name))
        .collect();
    Choice::of(&Query::strict(Some(&text), &known)?)
}

/// A move in steps, between which the operation can be stopped.
struct Steps<'a> {
    broker: &'a Broker,
    from: &'a Arc<Queue>,
    to: &'a MoveTarget,
    progress: &'a Progress,
}

impl Steps<'_> {
    async fn run(self, pick: Pick, count: u64) -> Result<Moved, Problem> {
        match pick {
            Pick::Front => self.front(count).await,
            Pick::Chosen(choice) => self.chosen(&choice, count).await,
            Pick::These(mut ids) => {
                ids.truncate(usize::try_from(count).unwrap_or(usize::MAX));
                self.progress.set(0, ids.len() as u64);
                let messages = self.these(0, ids).await?;
                let stopped = None;
                Ok(Moved { messages, stopped })
            }
        }
    }

    async fn front(self, count: u64) -> Result<Moved, Problem> {
        let (mut messages, mut stopped) = (0, None);
        self.progress.set(0, count);
        while messages < count {
            if self.progress.stops() {
                stopped = Some(STOPPED);
                break;
            }
            let step = (count - messages).min(MOVED_AT_A_TIME);
            let moved = self
                .broker
                .messaging()
                .move_messages(self.from, self.to.clone(), step)
                .await;
            let moved = moved.map_err(|error| of_move(messages, error.into()))?;
            messages += moved.messages;
            self.progress.set(messages, count);
            match moved.stopped {
                Some(why) => return Err(of_move(messages, why)),
                None if moved.messages < step => break,
                None => {}
            }
        }
        Ok(Moved { messages, stopped })
    }

    /// Moves messages by id; `before` others have moved. Returns how many moved.
    async fn these(&self, before: u64, ids: Vec<DeliveryId>) -> Result<u64, Problem> {
        let moved = self
            .broker
            .messaging()
            .move_chosen(self.from, self.to.clone(), ids)
            .await;
        let moved = moved.map_err(|error| of_move(before, error.into()))?;
        let all = before + moved.messages;
        self.progress.set(all, all);
        match moved.stopped {
            Some(why) => Err(of_move(all, why)),
            None => Ok(moved.messages),
        }
    }

    /// Searches for messages, and moves those that were found together.
    async fn chosen(self, choice: &Choice, count: u64) -> Result<Moved, Problem> {
        let (mut messages, mut stopped, mut place) = (0, None, Vec::new());
        let mut is_at_end = false;
        while messages < count && !is_at_end {
            if self.progress.stops() {
                stopped = Some(STOPPED);
                break;
            }
            let mut number = String::new();
            let narrow = choice.narrow(&mut number);
            let searching = self
                .from
                .begin_search(SearchOrder::Priority, SearchBounds::NONE, &place, narrow);
            let Some(mut search) = searching.await else {
                return Err(of_move(messages, Stopped::SourceGone));
            };
            let mut found = Vec::new();
            while (found.len() as u64) < (count - messages).min(FOUND_TOGETHER) {
                let Some((id, _)) = search.next(|message| choice.wants(message)).await else {
                    is_at_end = true;
                    break;
                };
                found.push(id);
            }
            if is_at_end && search.is_unreadable() && found.is_empty() {
                return Err(of_move(messages, Stopped::Unreadable));
            }
            place = search.place();
            drop(search);
            messages += self.these(messages, found).await?;
        }
        Ok(Moved { messages, stopped })
    }
}
