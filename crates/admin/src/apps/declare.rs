//! Apps declared and deleted.

use std::collections::BTreeMap;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_apps::machine::Balance;
use stafett_apps::{Definition, Filter, Format, Guarantee, Start, Table, TimeRules};
use stafett_broker::Broker;
use stafett_http::api::{delete, put};
use stafett_http::body::{self, Object};
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot};

use super::{find, of_app};
use crate::records::position::time;
use crate::{Routes, answer, refusals};

/// Definition of an app.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AppDefinition")]
struct Wanted {
    /// Stored topics with equally many partitions: task 7 has partition 7 of each.
    topics: Vec<String>,
    /// `earliest`, the default, `latest`, or a time: where tasks begin that have never committed.
    from: Option<String>,
    /// Condition on records; others are passed over.
    filter: Option<String>,
    /// `exactly-once`, the default: results go within commits. `at-least-once`: they may go before.
    guarantee: Option<String>,
    /// Level of commits; the broker's by default.
    durability: Option<String>,
    /// `count`, the default, `weight`, `load` or `manual`.
    balance: Option<String>,
    /// `auto`, the default, or `manual`: held tasks move only on request.
    rebalance: Option<String>,
    /// Silence after which a worker's tasks go to others; 10,000 by default.
    worker_timeout_ms: Option<u64>,
    /// Time to release a task that goes to another worker; 30,000 by default.
    revoke_ms: Option<u64>,
    time: Option<Object<Time>>,
    #[serde(default)]
    tables: BTreeMap<String, Object<WantedTable>>,
    /// Limit on the state of a task; 256 MiB by default.
    state_bytes_max: Option<u64>,
    /// `stop`, the default, or `skip`, when retention has overtaken a task.
    on_gap: Option<String>,
    /// Attempts at a record that fails; 5 by default.
    attempts_max: Option<u32>,
    /// Topic of the records that failed for the last time. Without one their task stops.
    dead_letter: Option<String>,
    /// False to keep tasks whole partitions; true by default.
    splittable: Option<bool>,
}

pub(super) const BALANCES: [(&str, Balance); 4] = [
    ("count", Balance::Count),
    ("weight", Balance::Weight),
    ("load", Balance::Load),
    ("manual", Balance::Manual),
];
pub(super) const GUARANTEES: [(&str, Guarantee); 3] = [
    ("exactly-once", Guarantee::ExactlyOnce),
    ("at-least-once", Guarantee::AtLeastOnce),
    ("at-most-once", Guarantee::AtMostOnce),
];
pub(super) const FORMATS: [(&str, Format); 2] = [("json", Format::Json), ("bytes", Format::Bytes)];
pub(super) const REBALANCES: [(&str, bool); 2] = [("auto", false), ("manual", true)];
pub(super) const CLOCKS: [(&str, bool); 2] = [("record", true), ("wall", false)];
pub(super) const GAPS: [(&str, bool); 2] = [("stop", true), ("skip", false)];

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AppTime")]
pub(super) struct Time {
    /// `record`, the default, or `wall`.
    pub(super) clock: Option<String>,
    /// Time by which records may be out of order; 5,000 by default.
    pub(super) grace_ms: Option<u64>,
    /// Time without records after which the clock goes on; 1,000 by default.
    pub(super) idle_ms: Option<u64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AppTable")]
struct WantedTable {
    /// `json`, the default, or `bytes`.
    format: Option<String>,
    ttl_ms: Option<u64>,
    /// False for entries of the task as a whole, with which it is not split; true by default.
    keyed: Option<bool>,
}

/// An app that is declared.
#[derive(Debug, Serialize, JsonSchema)]
struct DeclaredApp {
    name: String,
    tasks: usize,
}

/// Name of an app that is gone.
#[derive(Debug, Serialize, JsonSchema)]
struct DeletedApp {
    name: String,
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            put(
                "/v1/apps/{app}",
                "Declares an app: a job over stored topics, done by workers that keep state by key. 200 if it is there and \
                 the same.",
            )
            .event("app.created")
            .body::<Wanted>()
            .answers::<DeclaredApp>(201)
            .answers::<DeclaredApp>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&[
                Code::NoSuchTopic,
                Code::ExistsDifferently,
                Code::NotCopartitioned,
                Code::TooManyApps,
            ]),
            declare,
        )
        .route(
            delete("/v1/apps/{app}", "Deletes an app with its state, once no worker holds a task.")
                .event("app.deleted")
                .query(&[Parameter::flag("force", "Also while workers hold tasks.")])
                .answers::<DeletedApp>(200)
                .refuses(&refusals::STORAGE)
                .refuses(&[Code::NoSuchApp, Code::InUse]),
            remove,
        )
}

pub(super) fn word<T: Copy>(
    field: &'static str,
    given: Option<&str>,
    words: &[(&str, T)],
) -> Result<T, Problem> {
    let first = words.first().map(|(_, value)| *value);
    let found = match given {
        None => first,
        Some(given) => words
            .iter()
            .find(|(word, _)| *word == given)
            .map(|(_, value)| *value),
    };
    found.ok_or_else(|| {
        let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let why = format!("{field} is one of {}", known.join(", "));
        Problem::bad_request(why).with("field", field)
    })
}

/// Reads a filter; an empty text is none.
pub(super) fn filter(source: Option<&str>) -> Result<Option<Filter>, Problem> {
    let source = source.filter(|source| !source.is_empty());
    let compiled = source.map(Filter::compile).transpose();
    compiled.map_err(|why| Problem::bad_request(format!("filter: {why}")).with("field", "filter"))
}

impl Wanted {
    fn read(self) -> Result<(Definition, Start), Problem> {
        let bad = |field: &'static str, why: String| Problem::bad_request(why).with("field", field);
        let from = self.from.filter(|from| from != "earliest").unwrap_or_default();
        let start = match &*from {
            "" => Start::Earliest,
            "latest" => Start::Latest,
            text => Start::Time(time(text).ok_or_else(|| {
                bad(
                    "from",
                    format!("from is earliest, latest or a time such as 2026-11-22T16:00:00Z, not {text:?}"),
                )
            })?),
        };
        let durability = self.durability.map(|level| level.parse()).transpose();
        let durability = durability.map_err(|why| bad("durability", format!("durability: {why}")))?;
        let defaults = Definition::default();
        let Object(time) = self.time.unwrap_or_default();
        let mut tables = BTreeMap::new();
        for (name, Object(table)) in self.tables {
            let format = word("tables", table.format.as_deref(), &FORMATS)?;
            let ttl_ms = table.ttl_ms;
            let keyed = table.keyed.unwrap_or(true);
            tables.insert(
                name.into(),
                Table {
                    format,
                    ttl_ms,
                    keyed,
                },
            );
        }
        let definition = Definition {
            topics: self.topics.into_iter().map(Into::into).collect(),
            from: from.into(),
            filter: filter(self.filter.as_deref())?,
            guarantee: word("guarantee", self.guarantee.as_deref(), &GUARANTEES)?,
            durability,
            balance: word("balance", self.balance.as_deref(), &BALANCES)?,
            manual_rebalance: word("rebalance", self.rebalance.as_deref(), &REBALANCES)?,
            worker_timeout_ms: self.worker_timeout_ms.unwrap_or(defaults.worker_timeout_ms),
            revoke_ms: self.revoke_ms.unwrap_or(defaults.revoke_ms),
            time: TimeRules {
                of_records: word("time.clock", time.clock.as_deref(), &CLOCKS)?,
                grace_ms: time.grace_ms.unwrap_or(defaults.time.grace_ms),
                idle_ms: time.idle_ms.unwrap_or(defaults.time.idle_ms),
            },
            tables,
            state_bytes_max: self.state_bytes_max.unwrap_or(defaults.state_bytes_max),
            stops_at_gap: word("on_gap", self.on_gap.as_deref(), &GAPS)?,
            attempts_max: self.attempts_max.unwrap_or(defaults.attempts_max),
            dead_letter: self.dead_letter.map(Into::into),
            splittable: self.splittable.unwrap_or(defaults.splittable),
        };
        Ok((definition, start))
    }
}

async fn declare(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Wanted = body::json(request).await?;
    let (definition, start) = wanted.read()?;
    let declared = broker.get()?.apps().declare(&name, definition, start).await;
    let (app, is_new) = declared.map_err(|why| of_app(&why))?;
    let status = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let tasks = app.stored().tasks.len();
    Ok(answer(status, &DeclaredApp { name, tasks }))
}

async fn remove(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    find(&broker, &name)?;
    let deleted = broker.apps().delete(&name, query.flag("force")?).await;
    deleted.map_err(|why| of_app(&why))?;
    Ok(answer(StatusCode::OK, &DeletedApp { name }))
}
