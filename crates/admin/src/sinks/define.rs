//! Definitions stored, changed and deleted.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use stafett_access::{Action, Resource};
use stafett_broker::{Broker, StoredSink};
use stafett_http::api::{delete, put};
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot, body};

use super::{Desk, SinkTerms, bad_definition, find, of_sink};
use crate::caller::OnlyIfAbsent;
use crate::{Routes, access, answer, refusals};

/// Bytes of a definition, at most.
const DEFINITION_BYTES_MAX: usize = 64 << 10;

/// A definition, as in a file: the fields of `[sink.NAME]`.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[schemars(rename = "SinkDefinition")]
#[serde(transparent)]
struct Wanted {
    #[schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")]
    definition: Box<RawValue>,
}

/// A sink that is defined.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DefinedSink")]
struct Defined {
    name: String,
    from: Vec<String>,
    to: &'static str,
    /// `exactly once` or `at least once`.
    promise: String,
    changed: bool,
}

/// Name of a sink that is gone.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DeletedSink")]
struct Deleted {
    name: String,
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            put(
                "/v1/sinks/{sink}",
                "Defines a sink, or changes its definition: records of topics are written into a database, files, another \
                 topic or a receiver, by a process beside the broker. It goes on where the target is.",
            )
            .event("sink.defined")
            .query(&[Parameter::flag("dry_run", "Only checks; nothing is stored.")])
            .body::<Wanted>()
            .answers::<Defined>(200)
            .answers::<Defined>(201)
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::BadDefinition, Code::TooManySinks, Code::Forbidden, Code::NoSuchTopic]),
            define,
        )
        .route(
            delete(
                "/v1/sinks/{sink}",
                "Deletes a sink. Its target stays as it is, positions included, and so do its app and its dead letters.",
            )
            .event("sink.deleted")
            .answers::<Deleted>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::NoSuchSink]),
            remove,
        )
}

/// Checks that the caller may read and write the topics of a definition.
fn check(broker: &Broker, terms: &SinkTerms) -> Result<(), Problem> {
    if terms.is_own {
        for topic in &terms.from {
            access::check(broker, Action::Read, &Resource::topic(topic))?;
            crate::topics::find(broker, topic)?;
        }
    }
    for topic in &terms.tables {
        access::check(broker, Action::Read, &Resource::topic(topic))?;
    }
    for topic in terms.topic.iter().chain([&terms.dead]) {
        access::check(broker, Action::Write, &Resource::topic(topic))?;
    }
    Ok(())
}

async fn define(
    State(broker): State<Slot<Broker>>,
    State(desk): State<Desk>,
    Path(name): Path<String>,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let dry_run = query.flag("dry_run")?;
    let only_if_absent = OnlyIfAbsent::is_in(&request);
    let Wanted { definition } = body::json(request).await?;
    let definition = definition.get();
    if definition.len() > DEFINITION_BYTES_MAX {
        return Err(bad_definition(format!(
            "it has more than {DEFINITION_BYTES_MAX} bytes"
        )));
    }
    let terms = desk.read(&name, definition).map_err(bad_definition)?;
    let broker = broker.get()?;
    check(&broker, &terms)?;
    let before = broker.sinks().named(&name);
    let changed = before
        .as_ref()
        .is_none_or(|before| *before.definition != *definition);
    if !dry_run {
        let definition = Box::<str>::from(definition);
        let edited = broker.edit_sink(&name, move |before| match before {
            Some(before) if only_if_absent => Ok(Some(before.clone())),
            _ => Ok(Some(StoredSink {
                definition,
                rests: before.is_some_and(|before| before.rests),
            })),
        });
        let before = edited.await.map_err(of_sink)?;
        OnlyIfAbsent::check(before.is_none() || !only_if_absent)?;
    }
    let status = match before {
        None if !dry_run => StatusCode::CREATED,
        _ => StatusCode::OK,
    };
    let defined = Defined {
        name,
        from: terms.from,
        to: terms.to,
        promise: terms.promise,
        changed,
    };
    Ok(answer(status, &defined))
}

async fn remove(State(broker): State<Slot<Broker>>, Path(name): Path<String>) -> Result<Response, Problem> {
    let broker = broker.get()?;
    find(&broker, &name)?;
    broker.edit_sink(&name, |_| Ok(None)).await.map_err(of_sink)?;
    Ok(answer(StatusCode::OK, &Deleted { name }))
}
