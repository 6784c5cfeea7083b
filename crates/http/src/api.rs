//! Routes with their descriptions: a route is declared once, and [`crate::openapi`] makes a document of all.
//!
//! A described route refuses keys in its query that it does not describe, and values out of their bounds. Its
//! handler takes the query as an argument of type [`Query`], and names in the path as [`Path`].

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{self, FromRequestParts, Request, State};
use axum::handler::Handler;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use stafett_access::Caller;
use stafett_net::EVENTS;

use crate::code::Code;
use crate::list::{self, List};
use crate::problem::Problem;
use crate::query::Query;
use crate::server::peer;
use crate::stamp::RequestId;

/// Refusals of every described route.
const COMMON: [Code; 4] = [
    Code::BadRequest,
    Code::UnknownField,
    Code::CrossSite,
    Code::BadHost,
];
/// Refusals of routes that take a body.
const OF_BODIES: [Code; 3] = [Code::BadJson, Code::TooLarge, Code::SlowBody];

pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Key of a query.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// A name that ends with a dot stands for all that begin with it.
    pub name: &'static str,
    pub about: &'static str,
    pub kind: Kind,
}

/// Values of a [`Parameter`].
#[derive(Debug, Clone)]
pub enum Kind {
    Text,
    /// `true` or `false`, the default.
    Flag,
    Number {
        max: u64,
    },
    /// `20s`; a plain number is milliseconds.
    Duration {
        max: Duration,
    },
    /// Texts: the key may be there several times.
    Texts,
    /// Words, each also with `-` in front.
    Sort(Vec<&'static str>),
}

impl Parameter {
    #[must_use]
    pub const fn text(name: &'static str, about: &'static str) -> Self {
        let kind = Kind::Text;
        Self { name, about, kind }
    }

    /// Describes a key that may be there several times.
    #[must_use]
    pub const fn texts(name: &'static str, about: &'static str) -> Self {
        let kind = Kind::Texts;
        Self { name, about, kind }
    }

    #[must_use]
    pub const fn flag(name: &'static str, about: &'static str) -> Self {
        let kind = Kind::Flag;
        Self { name, about, kind }
    }

    #[must_use]
    pub const fn duration(name: &'static str, max: Duration, about: &'static str) -> Self {
        let kind = Kind::Duration { max };
        Self { name, about, kind }
    }

    #[must_use]
    pub const fn number(name: &'static str, max: u64, about: &'static str) -> Self {
        let kind = Kind::Number { max };
        Self { name, about, kind }
    }

    /// Refuses a query in which the value of this key is malformed or out of its bounds.
    fn check(&self, query: &Query) -> Result<(), Problem> {
        match &self.kind {
            Kind::Text | Kind::Texts | Kind::Sort(_) => Ok(()),
            Kind::Flag => query.flag(self.name).map(drop),
            Kind::Number { max } => query.number(self.name, *max).map(drop),
            Kind::Duration { max } => query.duration(self.name, *max).map(drop),
        }
    }
}

/// Description of a route: one method on one path.
#[derive(Debug, Clone)]
pub struct Endpoint {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) about: &'static str,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) headers: Vec<Parameter>,
    pub(crate) body: Option<SchemaOf>,
    /// Content types of bodies that are not JSON of that shape.
    pub(crate) other_bodies: Vec<&'static str>,
    /// True if it answers before a login.
    pub(crate) is_open: bool,
    /// Status, content type and shape.
    pub(crate) answers: Vec<(u16, &'static str, SchemaOf)>,
    pub(crate) refusals: Vec<Code>,
    /// Kind of the event that each success is.
    event: Option<&'static str>,
}

impl Endpoint {
    #[must_use]
    pub fn new(method: Method, path: &'static str, about: &'static str) -> Self {
        Self {
            method,
            path,
            about,
            parameters: Vec::new(),
            headers: Vec::new(),
            body: None,
            other_bodies: Vec::new(),
            is_open: false,
            answers: Vec::new(),
            refusals: COMMON.to_vec(),
            event: None,
        }
    }

    #[must_use]
    pub fn method(&self) -> &Method {
        &self.method
    }

    #[must_use]
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// Returns true if the query has this key.
    #[must_use]
    pub fn has_key(&self, name: &str) -> bool {
        self.parameters.iter().any(|known| known.name == name)
    }

    /// Returns true if this shows a state in JSON, at once and without any effect.
    #[must_use]
    pub fn shows_state(&self) -> bool {
        let is_json = |(_, kind, _): &(u16, &str, SchemaOf)| *kind == "application/json";
        let waits = |known: &Parameter| known.name == "wait";
        self.method == Method::GET
            && !self.answers.is_empty()
            && self.answers.iter().all(is_json)
            && !self.parameters.iter().any(waits)
    }

    /// Adds keys of the query.
    #[must_use]
    pub fn query(mut self, parameters: &[Parameter]) -> Self {
        self.parameters.extend_from_slice(parameters);
        self
    }

    /// Adds headers that have a meaning.
    #[must_use]
    pub fn headers(mut self, headers: &[Parameter]) -> Self {
        self.headers.extend_from_slice(headers);
        self
    }

    /// Adds bodies of other content types: lines, events, or bytes as they are.
    #[must_use]
    pub fn takes(mut self, content_types: &[&'static str]) -> Self {
        self.other_bodies.extend_from_slice(content_types);
        self
    }

    /// Answers before a login.
    #[must_use]
    pub fn open(mut self) -> Self {
        self.is_open = true;
        self
    }

    /// Adds a JSON body.
    #[must_use]
    pub fn body<T: DeserializeOwned + JsonSchema>(mut self) -> Self {
        self.body = Some(SchemaGenerator::subschema_for::<T>);
        self.refuses(&OF_BODIES)
    }

    /// Adds an answer.
    #[must_use]
    pub fn answers<T: Serialize + JsonSchema>(mut self, status: u16) -> Self {
        let schema = SchemaGenerator::subschema_for::<T>;
        self.answers.push((status, "application/json", schema));
        self
    }

    /// Adds an answer that is a stream of another content type, whose parts have this shape.
    #[must_use]
    pub fn streams<T: Serialize + JsonSchema>(mut self, content_type: &'static str) -> Self {
        let schema = SchemaGenerator::subschema_for::<T>;
        self.answers.push((200, content_type, schema));
        self
    }

    /// Makes this a list: adds its keys and its answer.
    #[must_use]
    pub fn lists<T: 'static, E: Serialize + JsonSchema>(mut self, list: &List<T, E>) -> Self {
        self.parameters.extend(list::parameters(list.sorts));
        self.answers::<list::Page<E>>(200)
    }

    /// Makes each success an event, such as `queue.deleted`; of a `PUT`, only if it made something (201).
    #[must_use]
    pub fn event(mut self, kind: &'static str) -> Self {
        debug_assert!(self.method != Method::GET, "looking is no event");
        debug_assert!(self.event.is_none(), "a request is one event");
        self.event = Some(kind);
        self
    }

    /// Adds codes of refusals.
    #[must_use]
    pub fn refuses(mut self, codes: &[Code]) -> Self {
        self.refusals.extend(codes);
        self
    }
}

/// Describes a `GET`.
#[must_use]
pub fn get(path: &'static str, about: &'static str) -> Endpoint {
    Endpoint::new(Method::GET, path, about)
}

/// Describes a `PUT`.
#[must_use]
pub fn put(path: &'static str, about: &'static str) -> Endpoint {
    Endpoint::new(Method::PUT, path, about)
}

/// Describes a `POST`.
#[must_use]
pub fn post(path: &'static str, about: &'static str) -> Endpoint {
    Endpoint::new(Method::POST, path, about)
}

/// Describes a `PATCH`.
#[must_use]
pub fn patch(path: &'static str, about: &'static str) -> Endpoint {
    Endpoint::new(Method::PATCH, path, about)
}

/// Describes a `DELETE`.
#[must_use]
pub fn delete(path: &'static str, about: &'static str) -> Endpoint {
    Endpoint::new(Method::DELETE, path, about)
}

/// Routes and their descriptions.
#[derive(Debug, Clone)]
pub struct Api<S = ()> {
    router: Router<S>,
    endpoints: Vec<Endpoint>,
}

impl<S: Clone + Send + Sync + 'static> Default for Api<S> {
    fn default() -> Self {
        Self {
            router: Router::new(),
            endpoints: Vec::new(),
        }
    }
}

impl<S: Clone + Send + Sync + 'static> Api<S> {
    /// Adds a route.
    #[must_use]
    pub fn route<H, T>(mut self, endpoint: Endpoint, handler: H) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        let method = MethodFilter::try_from(endpoint.method.clone()).unwrap_or(MethodFilter::GET);
        let keys = Arc::new(Keys::of(&endpoint));
        let route = on(method, handler).route_layer(middleware::from_fn_with_state(keys, read_query));
        self.router = self.router.route(endpoint.path, route);
        self.endpoints.push(endpoint);
        self
    }

    /// Adds the routes of a resource.
    #[must_use]
    pub fn with(self, resource: fn(Self) -> Self) -> Self {
        resource(self)
    }

    #[must_use]
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Returns the routes. Other methods on their paths are refused.
    pub fn into_router(self) -> Router<S> {
        self.router.method_not_allowed_fallback(method_not_allowed)
    }
}

/// Known keys of a query.
struct Keys {
    names: Vec<&'static str>,
    /// Those that may be there several times.
    repeated: Vec<&'static str>,
    parameters: Vec<Parameter>,
    path: &'static str,
    event: Option<&'static str>,
}

impl Keys {
    fn of(endpoint: &Endpoint) -> Self {
        Self {
            names: endpoint.parameters.iter().map(|it| it.name).collect(),
            repeated: endpoint
                .parameters
                .iter()
                .filter(|it| matches!(it.kind, Kind::Texts))
                .map(|it| it.name)
                .collect(),
            parameters: endpoint.parameters.clone(),
            path: endpoint.path,
            event: endpoint.event,
        }
    }
}

async fn read_query(
    State(keys): State<Arc<Keys>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let query = Query::strict_but(request.uri().query(), &keys.names, &keys.repeated)?;
    for parameter in &keys.parameters {
        parameter.check(&query)?;
    }
    let Some(kind) = keys.event else {
        request.extensions_mut().insert(query);
        return Ok(next.run(request).await);
    };
    let asked = Asked::of(keys.path, &request, &query);
    request.extensions_mut().insert(query);
    let response = next.run(request).await;
    asked.record(kind, response.status());
    Ok(response)
}

/// A request that may become an event.
struct Asked {
    method: Method,
    /// The last name in the path.
    name: String,
    namespace: String,
    by: String,
    from: String,
    request: String,
}

impl Asked {
    fn of(path: &str, request: &Request, query: &Query) -> Self {
        let (headers, extensions) = (request.headers(), request.extensions());
        let client = headers.get("stafett-client").and_then(|name| name.to_str().ok());
        let user = extensions.get::<Arc<Caller>>().and_then(|caller| caller.name());
        let by = user.or(client);
        let pairs = path.split('/').zip(request.uri().path().split('/'));
        let names = pairs.filter(|(known, _)| known.starts_with('{'));
        let name = names.last().and_then(|(_, name)| crate::query::decoded(name));
        Self {
            method: request.method().clone(),
            name: name.unwrap_or_default(),
            namespace: query.get("namespace").unwrap_or("/").to_owned(),
            by: by.unwrap_or("operator").to_owned(),
            from: peer(request)
                .map(|address| address.to_string())
                .unwrap_or_default(),
            request: extensions
                .get::<RequestId>()
                .map(|id| id.0.clone())
                .unwrap_or_default(),
        }
    }

    fn record(self, kind: &'static str, status: StatusCode) {
        let has_effect = status.is_success() && (self.method != Method::PUT || status == StatusCode::CREATED);
        if has_effect {
            let Self {
                name,
                namespace,
                by,
                from,
                request,
                ..
            } = self;
            let done = kind.rsplit('.').next().unwrap_or_default();
            tracing::info!(target: EVENTS, kind, name, namespace, by, from, via = "http", request, "{done}");
        }
    }
}

/// The header `Allow` is added by the router.
async fn method_not_allowed(method: Method) -> Problem {
    let why = format!("{method} is not possible here; the header Allow lists the methods that are");
    Problem::new(Code::MethodNotAllowed, why)
}

/// Refuses a path that no route has.
pub(crate) async fn no_such_path(uri: axum::http::Uri) -> Problem {
    let why = format!(
        "there is no {}; /v1/openapi.json describes what there is",
        uri.path()
    );
    Problem::new(Code::NoSuchPath, why)
}

/// Names in the path of a request, percent-decoded.
#[derive(Debug)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = extract::Path::from_request_parts(parts, state).await;
        let refused = |why: PathRejection| {
            Problem::bad_request(format!("the path: expected percent-encoded UTF-8 ({why})"))
        };
        read.map(|extract::Path(names)| Self(names)).map_err(refused)
    }
}
