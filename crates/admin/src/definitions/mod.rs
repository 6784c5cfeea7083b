//! `/v1/definitions`: all that is defined, as one document, and its import.
//!
//! ```text
//! { "form": "stafett definitions 1", "topics": [{ "name", "partitions", "settings" }], "queues": [], … }
//! ```
//!
//! It has a list per kind ([`kinds::KINDS`]). The things are read from the lists of the API where these show
//! all, and made by its routes, as the caller: rights, checks and events are as of single requests.
//! Messages, records, positions, tokens and the configuration of the node are no definitions.
//!
//! In a cluster of several cells the first one has the whole: it asks the others for exports of theirs, and
//! an import makes each thing through its owner.
//!
//! - `kinds`: the kinds, their routes and fields
//! - `item`: one thing of a document, and its comparison with another
//! - `export`: all things of the broker
//! - `document`: a document as it comes
//! - `import`: the plan of an import, and its execution
//! - `outcome`: results of an import

mod document;
mod export;
mod import;
mod item;
mod kinds;
mod outcome;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use stafett_access::Caller;
use stafett_broker::Broker;
use stafett_http::api::{get, post};
use stafett_http::query::encoded;
use stafett_http::{Api, Code, Draining, Parameter, Problem, Query, Slot, body};
use stafett_model::Namespace;
use stafett_net::ByteBudget;

use crate::caller::Caller as Client;
use crate::operations::{self, Operations, Plan, Progress};
use crate::ws::routed::{Routes, request_of};
use crate::{access, answer};
use export::refusal;
use kinds::{KINDS, Kind};

/// Value of `form`: the version of the document.
const FORM: &str = "stafett definitions 1";
/// Bound on a document that is imported: about 200,000 queues.
const DOCUMENT: body::Limit = body::Limit {
    bytes_max: 64 << 20,
    setting: "of definitions",
};

/// Parts behind the routes.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    pub(crate) broker: Slot<Broker>,
    pub(crate) operations: Operations,
    /// The other routes.
    pub(crate) router: Router,
}

/// A request about definitions: its caller, and its choice.
#[derive(Clone)]
struct Asked {
    broker: Arc<Broker>,
    routes: Routes,
    by: Arc<Caller>,
    namespace: Option<Namespace>,
    kinds: Vec<&'static Kind>,
}

/// All that is defined. Each kind is a list; the fields of a thing are those of the body that makes it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Definitions")]
struct Document {
    /// `stafett definitions 1`.
    form: &'static str,
    /// `namespaces`, `topics`, `exchanges`, `queues`, `policies`, `operator_policies`, `clients`, `bindings`,
    /// `apps`, `sinks`, `rules`, `limits`, `quotas` and `users`.
    #[serde(flatten)]
    lists: Map<String, Value>,
    /// Kinds and things that are not in the document, and states that an import does not make.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<LeftOut>,
}

/// A kind, or a thing of it, that an export leaves out.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "LeftOutDefinition")]
struct LeftOut {
    kind: &'static str,
    /// Null for all of the kind.
    name: Option<String>,
    why: String,
}

const NAMESPACE: Parameter = Parameter::text(
    "namespace",
    "Only things of this namespace. They do not name it, so that they can be imported into another one.",
);
const CHOSEN: Parameter = Parameter::text("kinds", "Only these kinds, with commas.");

/// Returns the names of all kinds.
#[cfg(test)]
pub(crate) fn kind_names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name)
}

pub(crate) fn routes() -> Api<Parts> {
    const PATH: &str = "/v1/definitions";
    Api::default()
        .route(
            get(
                PATH,
                "Shows all that is defined as one document. The verifiers of users' passwords are in it, for an \
                 administrator.",
            )
            .query(&[NAMESPACE, CHOSEN])
            .answers::<Document>(200)
            .refuses(&[Code::NotServing, Code::NoSuchNamespace]),
            export,
        )
        .route(
            operations::begins::<outcome::Imported>(post(
                PATH,
                "Imports such a document: makes the things that are missing, by the rights of the caller for each. \
                 Nothing is deleted, and the same import again does nothing.",
            ))
            .query(&[
                Parameter::text("namespace", "Namespace of things that name none; / if it is absent."),
                CHOSEN,
                Parameter::flag("change", "Also changes things that are there and differ."),
                Parameter::flag("dry_run", "Only compares; nothing is made or changed."),
            ])
            .body::<document::Described>()
            .refuses(&[Code::NotServing, Code::NoSuchNamespace]),
            import,
        )
}

impl Asked {
    /// Refuses a namespace that does not exist.
    async fn check_namespace(&self) -> Result<(), Problem> {
        let Some(name) = &self.namespace else {
            return Ok(());
        };
        let exchanges = self.broker.messaging().exchanges();
        if exchanges.is_elsewhere(name) {
            let uri = format!("/v1/namespaces/{}", encoded(name.as_str()));
            return self.get(&uri).await.map(drop);
        }
        if exchanges.has_namespace(name) {
            return Ok(());
        }
        let why = format!("there is no namespace {:?}", name.as_str());
        Err(Problem::new(Code::NoSuchNamespace, why))
    }

    /// Asks a route.
    async fn get(&self, uri: &str) -> Result<Bytes, Problem> {
        let request = request_of(Method::GET, uri, &Client(None), String::new())?;
        let answer = self.routes.clone().ask(request, Arc::clone(&self.by)).await;
        answer.map_err(|refused| refusal(&refused))
    }

    /// Returns the cells that have things of a kind beside this broker.
    fn other_cells(&self, kind: &Kind) -> Range<u32> {
        let cells = self.broker.catalog().cells();
        if cells.own == 0 && kind.is_of_cells() {
            1..cells.count
        } else {
            0..0
        }
    }

    fn of(parts: &Parts, query: &Query, request: &Request) -> Result<Self, Problem> {
        let broker = parts.broker.get()?;
        let namespace = query.get("namespace").map(Namespace::new);
        let chosen = query
            .get("kinds")
            .map(|kinds| kinds.split(',').collect::<Vec<_>>());
        if let Some(unknown) = chosen.iter().flatten().find(|name| Kind::named(name).is_none()) {
            let known: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
            let why = format!("kinds: {unknown:?} is none of {}", known.join(", "));
            return Err(Problem::bad_request(why));
        }
        let is_chosen = |kind: &&Kind| chosen.as_ref().is_none_or(|chosen| chosen.contains(&kind.name));
        let extensions = request.extensions();
        Ok(Self {
            by: access::caller(&broker),
            broker,
            routes: Routes {
                router: parts.router.clone(),
                budget: extensions.get::<Arc<ByteBudget>>().cloned(),
                draining: extensions.get::<Draining>().cloned().unwrap_or_default(),
            },
            namespace,
            kinds: KINDS.iter().filter(is_chosen).collect(),
        })
    }
}

async fn export(State(parts): State<Parts>, query: Query, request: Request) -> Result<Response, Problem> {
    let request = Asked::of(&parts, &query, &request)?;
    request.check_namespace().await?;
    let mut document = Document {
        form: FORM,
        lists: Map::new(),
        left_out: Vec::new(),
    };
    let scope = request.namespace.clone().map(|name| [name].into());
    for kind in &request.kinds {
        if request.namespace.is_some() && !kind.is_namespaced {
            continue;
        }
        match export::all(&request, kind, &scope, &mut document.left_out).await {
            Ok(items) => {
                let items = items
                    .into_iter()
                    .map(|item| item.shown(request.namespace.is_some()));
                document.lists.insert(kind.name.to_owned(), items.collect());
            }
            // A document without the things of some cells looks whole.
            Err(refused) if refused.code == Code::NotServing => return Err(refused),
            Err(refused) => document.left_out.push(LeftOut {
                kind: kind.name,
                name: None,
                why: refused.detail.clone(),
            }),
        }
    }
    Ok(answer(StatusCode::OK, &document))
}

async fn import(State(parts): State<Parts>, query: Query, request: Request) -> Result<Response, Problem> {
    let asked = Asked::of(&parts, &query, &request)?;
    asked.check_namespace().await?;
    let (changes, dry_run) = (query.flag("change")?, query.flag("dry_run")?);
    let document = body::read(request, DOCUMENT).await?;
    let plan = import::Import::of(document, asked, changes, dry_run)?;
    if dry_run {
        return Ok(answer(StatusCode::OK, &plan.run(&Progress::default()).await));
    }
    let operation = Plan {
        what: "import",
        on: [].into(),
        unit: "definitions",
        stops: true,
    };
    let work = async move |progress: Arc<Progress>| Ok::<_, Problem>(plan.run(&progress).await);
    parts.operations.run(operation, &query, work).await
}
