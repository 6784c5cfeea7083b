//! State of tasks: read by the worker that has them, and from outside.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_apps::{App, AppError, Claim, Entry, Format, Session, TaskId};
use stafett_broker::Broker;
use stafett_http::api::{get, post};
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot, body};
use stafett_model::partition_of;

use super::shape::{Key, ShownOffsets, Value, by_topic};
use super::worker::{NamedClaim, Names, command};
use super::{WORKERS, find, of_app, session, task};
use crate::content::Text;
use crate::{Routes, answer};

const COUNT: usize = 100;
const COUNT_MAX: usize = 10_000;
const KEYS_MAX: usize = 10_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AppGet")]
struct Get {
    task: String,
    epoch: u64,
    table: String,
    keys: Vec<Key>,
}

/// Values as of the last commit, in the order of the keys; null where there is none.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppValues")]
struct Values {
    values: Vec<Option<Value<'static>>>,
    seq: u64,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AppScan")]
struct Scan {
    task: String,
    epoch: u64,
    table: String,
    #[serde(default)]
    prefix: String,
    /// `next` of the page before.
    after: Option<u64>,
    count: Option<usize>,
}

/// A page of entries in the order in which they were changed last. An entry that changes between two pages
/// comes again; none is left out.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppEntries")]
struct TablePage {
    entries: Vec<EntryShown>,
    /// Keys whose entries were deleted behind `after`.
    deleted: Vec<Text>,
    /// Place to go on from; null at the end. A page may have no entry and a next one.
    next: Option<u64>,
    /// Place behind this page. A later scan from there has the changes since.
    place: u64,
    seq: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppStateEntry")]
struct EntryShown {
    key: Text,
    #[serde(flatten)]
    value: Value<'static>,
}

/// An entry, and where it stands.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppState")]
struct Found {
    key: Text,
    #[serde(flatten)]
    value: Value<'static>,
    task: String,
    seq: u64,
    /// Position of the task that the value is of.
    next: ShownOffsets,
}

/// A page of a table's entries, task by task.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppStateList")]
struct FoundList {
    items: Vec<ItemShown>,
    /// Value of `after` for the next page; null on the last one. A page may have no entry and a next one.
    next: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppStateItem")]
struct ItemShown {
    key: Text,
    #[serde(flatten)]
    value: Value<'static>,
    task: String,
}

pub(super) fn routes(routes: Routes) -> Routes {
    let reads = [Code::NoSuchTable, Code::Unreadable];
    routes
        .route(
            post(command!("get"), "Reads entries of a claimed task by their keys.")
                .body::<Get>()
                .answers::<Values>(200)
                .refuses(&WORKERS)
                .refuses(&reads),
            get_values,
        )
        .route(
            post(command!("scan"), "Reads a table of a claimed task, page by page.")
                .body::<Scan>()
                .answers::<TablePage>(200)
                .refuses(&WORKERS)
                .refuses(&reads),
            scan,
        )
        .route(
            get(
                "/v1/apps/{app}/state/{table}/{key}",
                "Shows the entry of a key, as of the last commit.",
            )
            .query(&[Parameter::text(
                "task",
                "Task of the entry; the key decides if it is absent.",
            )])
            .answers::<Found>(200)
            .refuses(&[
                Code::NotServing,
                Code::NoSuchApp,
                Code::NoSuchTask,
                Code::NoSuchKey,
            ])
            .refuses(&reads),
            show,
        )
        .route(
            get(
                "/v1/apps/{app}/state/{table}",
                "Lists a table's entries, as of the last commits of its tasks.",
            )
            .query(&[
                Parameter::number(
                    "count",
                    COUNT_MAX as u64,
                    "Entries of a page; 100 if it is absent.",
                ),
                Parameter::text("after", "The `next` of the page before."),
                Parameter::text("prefix", "Beginning of the key."),
            ])
            .answers::<FoundList>(200)
            .refuses(&[Code::NotServing, Code::NoSuchApp])
            .refuses(&reads),
            list,
        )
}

fn format(app: &App, table: &str) -> Format {
    let known = app.stored().definition.table(table);
    known.map_or(Format::Json, |(_, table)| table.format)
}

fn value(entry: &Entry, format: Format) -> Value<'static> {
    let value = match format {
        Format::Json => Value::of(Some(&entry.value), false),
        Format::Bytes => Value::bytes(&entry.value),
    };
    value.into_owned()
}

/// Refuses a read of a claim. One of a task that was split or merged meanwhile is lost.
fn of_read(app: &App, session: Session<'_>, claim: Claim, why: &AppError) -> Problem {
    of_app(app.check_read(session, claim).as_ref().err().unwrap_or(why))
}

async fn get_values(
    State(broker): State<Slot<Broker>>,
    Path((name, worker)): Names,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Get = body::json(request).await?;
    let session = session(&worker, &headers)?;
    let app = find(&*broker.get()?, &name)?;
    if wanted.keys.len() > KEYS_MAX {
        return Err(
            Problem::bad_request(format!("a request asks for {KEYS_MAX} keys at most")).with("field", "keys"),
        );
    }
    let claim = NamedClaim {
        task: wanted.task,
        epoch: wanted.epoch,
    };
    let claim = claim.read()?;
    app.check_read(session, claim).map_err(|why| of_app(&why))?;
    let keys = wanted
        .keys
        .into_iter()
        .map(Key::bytes)
        .collect::<Result<Vec<_>, _>>()?;
    let found = Box::pin(app.get(claim.task, &wanted.table, &keys)).await;
    let (found, seq) = found.map_err(|why| of_read(&app, session, claim, &why))?;
    let format = format(&app, &wanted.table);
    let values = found
        .iter()
        .map(|entry| Some(value(entry.as_ref()?, format)))
        .collect();
    Ok(answer(StatusCode::OK, &Values { values, seq }))
}

async fn scan(
    State(broker): State<Slot<Broker>>,
    Path((name, worker)): Names,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Scan = body::json(request).await?;
    let session = session(&worker, &headers)?;
    let app = find(&*broker.get()?, &name)?;
    let claim = NamedClaim {
        task: wanted.task,
        epoch: wanted.epoch,
    };
    let claim = claim.read()?;
    app.check_read(session, claim).map_err(|why| of_app(&why))?;
    let count = wanted.count.unwrap_or(COUNT).clamp(1, COUNT_MAX);
    let prefix = wanted.prefix.as_bytes();
    let found = Box::pin(app.scan(claim.task, &wanted.table, prefix, wanted.after, count)).await;
    let (found, seq) = found.map_err(|why| of_read(&app, session, claim, &why))?;
    let format = format(&app, &wanted.table);
    let entries = found.entries.iter().map(|entry| EntryShown {
        key: Text::of(&entry.key),
        value: value(entry, format),
    });
    let page = TablePage {
        entries: entries.collect(),
        deleted: found.deleted.iter().map(|key| Text::of(key)).collect(),
        next: found.next,
        place: found.end,
        seq,
    };
    Ok(answer(StatusCode::OK, &page))
}

async fn show(
    State(broker): State<Slot<Broker>>,
    Path((name, table, key)): Path<(String, String, String)>,
    query: Query,
) -> Result<Response, Problem> {
    let app = find(&*broker.get()?, &name)?;
    let id = match query.get("task") {
        Some(name) => task(name)?,
        None => task_of(&app, key.as_bytes())?,
    };
    let keys = [Bytes::from(key.clone())];
    let found = Box::pin(app.get(id, &table, &keys)).await;
    let (mut found, seq) = found.map_err(|why| of_app(&why))?;
    let entry = found.pop().flatten().ok_or_else(|| {
        let why = format!("task {id} has no entry {key:?} in table {table:?}");
        Problem::new(Code::NoSuchKey, why).with("task", id.to_string())
    })?;
    let position = app.position(id).await.map_err(|why| of_app(&why))?;
    let found = Found {
        key: Text::of(&entry.key),
        value: value(&entry, format(&app, &table)),
        task: id.to_string(),
        seq,
        next: by_topic(&app.stored().definition, &position.next),
    };
    Ok(answer(StatusCode::OK, &found))
}

/// Returns the task of a key.
fn task_of(app: &App, key: &[u8]) -> Result<TaskId, Problem> {
    let partition = partition_of(key, app.partitions());
    let stored = app.stored();
    let mut tasks = stored.tasks.keys().copied();
    let found = tasks.find(|task| task.partition == partition && task.slice().has(Some(key)));
    found.ok_or_else(|| {
        Problem::new(
            Code::NoSuchTask,
            format!("the app has no task of partition {partition}"),
        )
    })
}

async fn list(
    State(broker): State<Slot<Broker>>,
    Path((name, table)): Path<(String, String)>,
    query: Query,
) -> Result<Response, Problem> {
    let app = find(&*broker.get()?, &name)?;
    let count = query
        .number("count", COUNT_MAX as u64)?
        .unwrap_or(COUNT as u64)
        .max(1);
    let count = usize::try_from(count).unwrap_or(COUNT);
    let stored = app.stored();
    let (first, mut after) = match query.get("after") {
        None => (stored.tasks.keys().next().copied(), None),
        Some(place) => {
            let bad =
                || Problem::bad_request("after is the `next` of the page before").with("field", "after");
            let (name, offset) = place.split_once(':').ok_or_else(bad)?;
            (Some(task(name)?), Some(offset.parse().map_err(|_| bad())?))
        }
    };
    let format = format(&app, &table);
    let prefix = query.get("prefix").unwrap_or_default().as_bytes();
    let (mut items, mut next) = (Vec::new(), None);
    for id in stored.tasks.keys().filter(|id| Some(**id) >= first) {
        if items.len() >= count {
            next = Some(format!("{id}:0"));
            break;
        }
        let found = Box::pin(app.scan(*id, &table, prefix, after.take(), count - items.len())).await;
        let (found, _) = found.map_err(|why| of_app(&why))?;
        items.extend(found.entries.iter().map(|entry| ItemShown {
            key: Text::of(&entry.key),
            value: value(entry, format),
            task: id.to_string(),
        }));
        if let Some(offset) = found.next {
            next = Some(format!("{id}:{offset}"));
            break;
        }
    }
    Ok(answer(StatusCode::OK, &FoundList { items, next }))
}
