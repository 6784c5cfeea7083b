//! Commits of a claimed task.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use stafett_access::{Action, Kind, Resource};
use stafett_apps::{App, Claim, Committed, Definition, Emitted, Format, NewCommit, NewEntry, TaskId};
use stafett_broker::Broker;
use stafett_http::api::post;
use stafett_http::body::{self, Object};
use stafett_http::{Code, Path, Problem, Slot};
use stafett_model::{Lock, Message, Namespace};
use stafett_store::wall_ms;
use stafett_topics::NewRecord;

use super::shape::{Decoded, Key, Offsets, decoded};
use super::together::{Answer, Wanted};
use super::worker::{NamedClaim, Names, command};
use super::{WORKERS, find, of_app, session};
use crate::content::{self, Headers};
use crate::key;
use crate::message::{CONTENT_TYPE, MESSAGE_ID};
use crate::{Routes, access, answer, refusals};

/// A commit: all of it is stored together, or nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AppCommit")]
pub(super) struct Commit {
    task: String,
    epoch: u64,
    /// The last one and 1. The same again is answered as before and stores nothing.
    seq: u64,
    /// Next offset to do; without it, it stays.
    next: Option<Offsets>,
    /// Offset from which a new owner has to read; without it, as `next`.
    safe: Option<Offsets>,
    /// Finished keys with the offset of their last record.
    #[serde(default)]
    done: Vec<(Key, Offsets)>,
    /// Entries by table: key, value, and an optional object with `ttl_ms`.
    #[serde(default)]
    put: BTreeMap<String, Vec<Put>>,
    /// Keys by table.
    #[serde(default)]
    delete: BTreeMap<String, Vec<Key>>,
    /// Timers: key, time in ms since 1970 (null to clear it), and an optional name.
    #[serde(default)]
    timers: Vec<Timer>,
    /// Results.
    #[serde(default)]
    emit: Vec<Object<Emit>>,
}

/// An entry: a list of key, value and, if it has one of its own, lifetime.
#[derive(Debug)]
struct Put {
    key: Key,
    value: Box<RawValue>,
    lifetime: Option<Lifetime>,
}

impl<'de> Deserialize<'de> for Put {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_seq(PutVisitor)
    }
}

struct PutVisitor;

impl<'de> Visitor<'de> for PutVisitor {
    type Value = Put;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of key, value and optional lifetime")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Put, A::Error> {
        let missing = |count| de::Error::invalid_length(count, &self);
        let key = list.next_element()?.ok_or_else(|| missing(0))?;
        let value = list.next_element()?.ok_or_else(|| missing(1))?;
        let lifetime = list.next_element()?;
        if list.next_element::<de::IgnoredAny>()?.is_some() {
            return Err(missing(4));
        }
        Ok(Put { key, value, lifetime })
    }
}

impl JsonSchema for Put {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "AppPut".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "array", "items": {}, "minItems": 2, "maxItems": 3})
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Lifetime {
    ttl_ms: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Timer {
    Plain(Key, Option<i64>),
    Named(Key, Option<i64>, Key),
}

/// A result.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AppResult")]
pub(super) struct Emit {
    /// Topic or queue of the result.
    topic: Option<String>,
    queue: Option<String>,
    key: Option<Key>,
    #[schemars(with = "Option<serde_json::Value>")]
    value: Option<Box<RawValue>>,
    #[schemars(with = "Option<String>")]
    value_base64: Option<Decoded>,
    #[serde(default)]
    headers: Headers,
    partition: Option<u32>,
    /// Milliseconds since 1970; the time of the commit if it is absent.
    timestamp: Option<i64>,
    /// Priority in the queue.
    priority: Option<u8>,
    /// Longest time in the queue.
    ttl_ms: Option<u64>,
}

/// A result that was read.
enum Output {
    Record(Box<str>, NewRecord),
    Message(Box<str>, Message),
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppCommitted")]
pub(super) struct Stored {
    seq: u64,
    /// True if it was stored before. Places are not known then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    repeated: bool,
    durability: String,
    emitted: Vec<Place>,
}

/// Place of results that stand together.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppEmitted")]
#[serde(untagged)]
pub(super) enum Place {
    Topic {
        topic: String,
        partition: u32,
        base: u64,
        count: u32,
    },
    /// Messages of a queue have no places.
    Queue { queue: String, count: u32 },
}

/// Places that tasks have reached with a commit. A session puts it into the extensions of its request, and
/// reads it afterwards.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reached(Arc<Lock<Vec<ReachedPlace>>>);

/// A task, and the next offset of each input.
type ReachedPlace = (TaskId, Vec<Option<u64>>);

impl Reached {
    pub(crate) fn take(&self) -> Vec<ReachedPlace> {
        std::mem::take(&mut *self.0.lock())
    }
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes.route(
        post(
            command!("commit"),
            "Stores position, finished keys, entries, timers and results of a task, or of several, all or nothing.",
        )
        .body::<Wanted>()
        .answers::<Answer>(200)
        .refuses(&WORKERS)
        .refuses(&refusals::STORAGE)
        .refuses(&[
            Code::OutOfOrder,
            Code::BadOffset,
            Code::NoSuchTable,
            Code::NoSuchTopic,
            Code::NoSuchQueue,
            Code::QueueFull,
            Code::MessageTooLarge,
            Code::Forbidden,
            Code::Unreadable,
        ]),
        commit,
    )
}

async fn commit(
    State(broker): State<Slot<Broker>>,
    Path((name, worker)): Names,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let reached = request.extensions().get::<Reached>().cloned();
    let wanted: Wanted = body::json(request).await?;
    let session = session(&worker, &headers)?;
    let broker = broker.get()?;
    let app = find(&broker, &name)?;
    let (wanted, is_together) = wanted.commits();
    let (mut commits, mut queued) = (Vec::new(), Vec::new());
    for commit in wanted {
        check_targets(&broker, &commit.emit)?;
        let claim = NamedClaim {
            task: commit.task.clone(),
            epoch: commit.epoch,
        };
        let (claim, commit) = (claim.read()?, commit.read(&app)?);
        queued.push(queued_of(&commit.messages));
        commits.push((claim, commit));
    }
    let places = reached.is_some().then(|| {
        let place = |(claim, commit): &(Claim, NewCommit)| (claim.task, commit.next.clone());
        commits.iter().map(place).collect()
    });
    let stored = app.commit_together(session, commits).await;
    let stored = stored.map_err(|why| of_app(&why))?.into_iter().zip(queued);
    if let (Some(reached), Some(places)) = (reached, places) {
        *reached.0.lock() = places;
    }
    let mut stored: Vec<Stored> = stored
        .map(|(committed, queued)| Stored::of(&app, committed, queued))
        .collect();
    let shown = match stored.pop() {
        Some(only) if !is_together => Answer::One(only),
        last => Answer::Together {
            tasks: stored.into_iter().chain(last).collect(),
        },
    };
    Ok(answer(StatusCode::OK, &shown))
}

/// Returns the number of results for each queue.
pub(super) fn queued_of(messages: &[(Box<str>, Message)]) -> BTreeMap<String, u32> {
    let mut queued: BTreeMap<String, u32> = BTreeMap::new();
    for (queue, _) in messages {
        *queued.entry(queue.to_string()).or_default() += 1;
    }
    queued
}

impl Stored {
    fn of(app: &App, committed: Committed, queued: BTreeMap<String, u32>) -> Self {
        let queued = if committed.repeated {
            BTreeMap::new()
        } else {
            queued
        };
        Self {
            seq: committed.seq,
            repeated: committed.repeated,
            durability: app.level().to_string(),
            emitted: places(committed.emitted, queued),
        }
    }
}

/// Returns the places of results as they are shown.
pub(super) fn places(emitted: Vec<Emitted>, queued: BTreeMap<String, u32>) -> Vec<Place> {
    let queued = queued
        .into_iter()
        .map(|(queue, count)| Place::Queue { queue, count });
    let emitted = emitted.into_iter().map(|place| Place::Topic {
        topic: place.topic.into(),
        partition: place.partition,
        base: place.base,
        count: place.count,
    });
    emitted.chain(queued).collect()
}

impl Commit {
    fn read(self, app: &App) -> Result<NewCommit, Problem> {
        let stored = app.stored();
        let definition = &stored.definition;
        let offsets = |field: &str, given: Option<Offsets>| -> Result<_, Problem> {
            let read = given.map(|given| given.by_input(field, definition)).transpose()?;
            Ok(read.unwrap_or_default())
        };
        let mut entries = Vec::new();
        for (table, list) in self.put {
            for put in list {
                entries.push(put.read(&table, definition)?);
            }
        }
        for (table, keys) in self.delete {
            for key in keys {
                entries.push(NewEntry {
                    table: table.as_str().into(),
                    key: key.bytes()?,
                    value: None,
                    ttl_ms: None,
                });
            }
        }
        let done = self
            .done
            .into_iter()
            .map(|(key, last)| Ok::<_, Problem>((key.bytes()?, last.by_input("done", definition)?)));
        let timers = self.timers.into_iter().map(|timer| match timer {
            Timer::Plain(key, due) => Ok::<_, Problem>((key.bytes()?, Bytes::new(), due)),
            Timer::Named(key, due, name) => Ok((key.bytes()?, name.bytes()?, due)),
        });
        let (emit, messages) = results(self.emit)?;
        Ok(NewCommit {
            seq: self.seq,
            next: offsets("next", self.next)?,
            safe: offsets("safe", self.safe)?,
            done: done.collect::<Result<_, _>>()?,
            entries,
            timers: timers.collect::<Result<_, _>>()?,
            emit,
            messages,
        })
    }
}

/// Results for topics, and for queues.
type Results = (Vec<(Box<str>, NewRecord)>, Vec<(Box<str>, Message)>);

pub(super) fn results(emit: Vec<Object<Emit>>) -> Result<Results, Problem> {
    let (mut records, mut messages) = (Vec::new(), Vec::new());
    for Object(result) in emit {
        match result.read()? {
            Output::Record(topic, record) => records.push((topic, record)),
            Output::Message(queue, message) => messages.push((queue, message)),
        }
    }
    Ok((records, messages))
}

impl Put {
    fn read(self, table: &str, definition: &Definition) -> Result<NewEntry, Problem> {
        let Self { key, value, lifetime } = self;
        let ttl_ms = lifetime.and_then(|lifetime| lifetime.ttl_ms);
        let format = definition.table(table).map(|(_, table)| table.format);
        let value = match format {
            Some(Format::Bytes) => {
                let text: String = serde_json::from_str(value.get()).map_err(|_| {
                    let why = format!("values of table {table:?} are base64 texts");
                    Problem::bad_request(why).with("field", "put")
                })?;
                decoded(&text)?
            }
            Some(Format::Json) | None => Bytes::from(String::from(Box::<str>::from(value))),
        };
        Ok(NewEntry {
            table: table.into(),
            key: key.bytes()?,
            value: Some(value),
            ttl_ms,
        })
    }
}

/// Checks that the worker may write to the topics and queues of its results.
pub(super) fn check_targets(broker: &Broker, results: &[Object<Emit>]) -> Result<(), Problem> {
    let mut allowed = (None, None);
    for Object(result) in results {
        let target = (result.topic.as_deref(), result.queue.as_deref());
        if target == allowed {
            continue;
        }
        allowed = target;
        if let Some(topic) = target.0 {
            access::check(broker, Action::Write, &Resource::new(Kind::Topic, topic))?;
        }
        if let Some(queue) = target.1 {
            let namespace = Namespace::default();
            let resource = Resource::queue(namespace.as_str(), queue);
            access::check(broker, Action::Write, &resource)?;
        }
    }
    Ok(())
}

impl Emit {
    fn read(self) -> Result<Output, Problem> {
        let bad = |why: &str| Problem::bad_request(why).with("field", "emit");
        let is_json = self.value.is_some();
        let value = match (self.value, self.value_base64) {
            (Some(value), None) => Some(Bytes::from(String::from(Box::<str>::from(value)))),
            (None, Some(Decoded(bytes))) => Some(bytes),
            (None, None) => None,
            (Some(_), Some(_)) => {
                let why = "a result has value or value_base64";
                return Err(Problem::bad_request(why).with("field", "emit"));
            }
        };
        let headers = content::headers(self.headers)?;
        let topic = match (self.topic, self.queue) {
            (Some(topic), None) => topic,
            (None, Some(queue)) => {
                if self.partition.is_some() {
                    return Err(bad("a queue has no partitions"));
                }
                let fields = [
                    (CONTENT_TYPE, is_json.then(|| content::JSON.to_owned())),
                    (MESSAGE_ID, Some(key::message_id(None))),
                ];
                let mut headers = headers;
                for (name, value) in fields {
                    if let Some(value) = value.filter(|_| !headers.iter().any(|(known, _)| known == name)) {
                        headers.push((name.to_owned(), Some(value.into())));
                    }
                }
                let message = Message {
                    routing_key: queue.as_str().into(),
                    key: self.key.map(Key::bytes).transpose()?,
                    value: value.unwrap_or_default(),
                    timestamp_ms: self.timestamp.unwrap_or_else(wall_ms),
                    priority: self.priority.unwrap_or(0),
                    ttl_ms: self.ttl_ms,
                    persistent: true,
                    headers: headers
                        .into_iter()
                        .map(|(name, value)| (name.into(), value))
                        .collect(),
                    ..Message::default()
                };
                return Ok(Output::Message(queue.into(), message));
            }
            (Some(_), Some(_)) | (None, None) => return Err(bad("a result names a topic or a queue")),
        };
        if self.priority.is_some() || self.ttl_ms.is_some() {
            return Err(bad("priority and ttl_ms are of results for queues"));
        }
        let record = NewRecord {
            partition: self.partition,
            key: self.key.map(Key::bytes).transpose()?,
            value,
            headers: headers
                .into_iter()
                .map(|(name, value)| (name.into(), value))
                .collect(),
            timestamp: self.timestamp,
        };
        Ok(Output::Record(topic.into(), record))
    }
}
