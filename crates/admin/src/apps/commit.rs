//! Commits of a claimed task.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use stafett_access::{Action, Kind, Resource};
use stafett_apps::{App, Definition, Format, NewCommit, NewEntry};
use stafett_broker::Broker;
use stafett_http::api::post;
use stafett_http::body::{self, Object};
use stafett_http::{Code, Path, Problem, Slot};
use stafett_topics::NewRecord;

use super::shape::{Key, Offsets, decoded};
use super::worker::{NamedClaim, Names, command};
use super::{WORKERS, find, of_app, session};
use crate::content::{self, Headers};
use crate::{Routes, access, answer, refusals};

/// A commit: all of it is stored together, or nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AppCommit")]
struct Commit {
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

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Emit {
    topic: String,
    key: Option<Key>,
    #[schemars(with = "Option<serde_json::Value>")]
    value: Option<Box<RawValue>>,
    value_base64: Option<String>,
    #[serde(default)]
    headers: Headers,
    partition: Option<u32>,
    /// Milliseconds since 1970; the time of the commit if it is absent.
    timestamp: Option<i64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppCommitted")]
struct Stored {
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
struct Place {
    topic: String,
    partition: u32,
    base: u64,
    count: u32,
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes.route(
        post(
            command!("commit"),
            "Stores position, finished keys, entries, timers and results of a task, all or nothing.",
        )
        .body::<Commit>()
        .answers::<Stored>(200)
        .refuses(&WORKERS)
        .refuses(&refusals::STORAGE)
        .refuses(&[
            Code::OutOfOrder,
            Code::BadOffset,
            Code::NoSuchTable,
            Code::NoSuchTopic,
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
    let wanted: Commit = body::json(request).await?;
    let session = session(&worker, &headers)?;
    let broker = broker.get()?;
    let app = find(&broker, &name)?;
    let mut allowed = "";
    for Object(result) in &wanted.emit {
        if result.topic != allowed {
            allowed = &result.topic;
            access::check(&broker, Action::Write, &Resource::new(Kind::Topic, allowed))?;
        }
    }
    let claim = NamedClaim {
        task: wanted.task.clone(),
        epoch: wanted.epoch,
    };
    let claim = claim.read()?;
    let commit = wanted.read(&app)?;
    let committed = app
        .commit(session, claim, commit)
        .await
        .map_err(|why| of_app(&why))?;
    let emitted = committed.emitted.into_iter().map(|place| Place {
        topic: place.topic.into(),
        partition: place.partition,
        base: place.base,
        count: place.count,
    });
    let stored = Stored {
        seq: committed.seq,
        repeated: committed.repeated,
        durability: app.level().to_string(),
        emitted: emitted.collect(),
    };
    Ok(answer(StatusCode::OK, &stored))
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
        let emit = self.emit.into_iter().map(|Object(emit)| emit.read());
        Ok(NewCommit {
            seq: self.seq,
            next: offsets("next", self.next)?,
            safe: offsets("safe", self.safe)?,
            done: done.collect::<Result<_, _>>()?,
            entries,
            timers: timers.collect::<Result<_, _>>()?,
            emit: emit.collect::<Result<_, _>>()?,
        })
    }
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

impl Emit {
    fn read(self) -> Result<(Box<str>, NewRecord), Problem> {
        let value = match (self.value, self.value_base64) {
            (Some(value), None) => Some(Bytes::from(String::from(Box::<str>::from(value)))),
            (None, Some(base64)) => Some(decoded(&base64)?),
            (None, None) => None,
            (Some(_), Some(_)) => {
                let why = "a result has value or value_base64";
                return Err(Problem::bad_request(why).with("field", "emit"));
            }
        };
        let headers = content::headers(self.headers)?;
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
        Ok((self.topic.into(), record))
    }
}
