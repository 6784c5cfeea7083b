//! The `OpenAPI` document (3.1) of described routes.

use std::collections::{BTreeMap, BTreeSet};

use schemars::generate::{Contract, SchemaSettings};
use schemars::transform::ReplaceBoolSchemas;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use crate::api::{Endpoint, Kind, Parameter};
use crate::code::Code;

/// Refusals of requests that no described route takes, or that any route may give. Endpoints of events, whose
/// paths are the operator's, are not described.
pub const BEYOND_ROUTES: [Code; 4] = [
    Code::NoSuchPath,
    Code::MethodNotAllowed,
    Code::Schema,
    Code::TooMany,
];
/// Refusals of every route but those that answer before a login.
const OF_LOGINS: [Code; 3] = [Code::Unauthenticated, Code::Forbidden, Code::OverQuota];
/// Refusals of the lab's API, which no broker gives.
pub const OF_THE_LAB: [Code; 3] = [Code::NoSuchExperiment, Code::NoSuchRun, Code::NoSuchAgent];

/// Returns the document of an API.
///
/// # Panics
///
/// If two shapes have the same name.
#[must_use]
pub fn document(title: &str, version: &str, about: &str, endpoints: &[Endpoint]) -> Value {
    let mut shapes = Shapes::new();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for endpoint in endpoints {
        let operations = paths.entry(endpoint.path).or_default();
        operations.insert(
            endpoint.method.as_str().to_lowercase(),
            operation(endpoint, &mut shapes),
        );
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": title, "version": version, "description": about },
        "security": security(),
        "paths": paths,
        "components": { "schemas": shapes.into_schemas(), "securitySchemes": security_schemes() },
        "x-problems": problems(),
    })
}

/// Returns the logins, of which one is needed. Until a user is an administrator, none is.
fn security() -> Value {
    json!([{ "basic": [] }, { "bearer": [] }, { "session": [] }, {}])
}

fn security_schemes() -> Value {
    json!({
        "basic": { "type": "http", "scheme": "basic", "description": "Name and password of a user." },
        "bearer": {
            "type": "http",
            "scheme": "bearer",
            "description": "A token of POST /v1/tokens, or one of an authorization server.",
        },
        "session": {
            "type": "apiKey",
            "in": "cookie",
            "name": "stafett",
            "description": "The cookie that POST /v1/login sets, for pages.",
        },
    })
}

/// Generators of schemas: a shape that is read has other required fields than one that is written.
struct Shapes {
    read: SchemaGenerator,
    written: SchemaGenerator,
}

impl Shapes {
    fn new() -> Self {
        let generator = |contract: Contract| {
            let settings = SchemaSettings::draft2020_12().with(|it| {
                it.definitions_path = "/components/schemas".into();
                it.meta_schema = None;
                it.contract = contract;
            });
            // Generators of clients expect an object, also for any value.
            let mut objects = ReplaceBoolSchemas::default();
            objects.skip_additional_properties = true;
            let settings = settings.with_transform(objects);
            settings.into_generator()
        };
        Self {
            read: generator(Contract::Deserialize),
            written: generator(Contract::Serialize),
        }
    }

    fn into_schemas(mut self) -> Map<String, Value> {
        let mut all = self.written.take_definitions(true);
        for (name, schema) in self.read.take_definitions(true) {
            let other = all.insert(name.clone(), schema.clone());
            assert!(
                other.is_none_or(|other| other == schema),
                "two shapes are named {name}"
            );
        }
        all.insert("Problem".to_owned(), problem_schema());
        all.insert("Code".to_owned(), code_schema());
        all
    }
}

fn operation(endpoint: &Endpoint, shapes: &mut Shapes) -> Value {
    let client = Parameter::text(
        "Stafett-Client",
        "Client for which the request is made; users name themselves alone.",
    );
    let of_all = (!endpoint.is_open).then_some(&client);
    let headers = endpoint.headers.iter().chain(of_all);
    let parameters = path_parameters(endpoint.path)
        .chain(endpoint.parameters.iter().map(|it| parameter(it, "query")))
        .chain(headers.map(|it| parameter(it, "header")));
    let mut responses = Map::new();
    for (status, content_type, schema) in &endpoint.answers {
        let schema = object(schema(&mut shapes.written));
        let answer = json!({
            "description": "The answer.",
            "content": { *content_type: { "schema": schema } },
        });
        responses.insert(status.to_string(), answer);
    }
    if endpoint.answers.is_empty() {
        let goes_on = json!({ "description": "The connection goes on as a WebSocket." });
        responses.insert("101".to_owned(), goes_on);
    }
    let of_logins: &[Code] = if endpoint.is_open { &[] } else { &OF_LOGINS };
    responses.extend(refusals(&[&endpoint.refusals, of_logins].concat()));
    let (summary, _) = endpoint.about.split_once(". ").unwrap_or((endpoint.about, ""));
    let mut operation = json!({
        "operationId": operation_id(endpoint),
        "tags": [tag(endpoint.path)],
        "summary": summary.trim_end_matches('.'),
        "description": endpoint.about,
        "parameters": parameters.collect::<Vec<_>>(),
        "responses": responses,
    });
    if let Some(operation) = operation.as_object_mut() {
        if endpoint.is_open {
            operation.insert("security".to_owned(), json!([{}]));
        }
        if let Some(content) = bodies(endpoint, shapes) {
            operation.insert("requestBody".to_owned(), json!({ "content": content }));
        }
    }
    operation
}

/// Returns the bodies of a request by content type.
fn bodies(endpoint: &Endpoint, shapes: &mut Shapes) -> Option<Map<String, Value>> {
    let mut content = Map::new();
    if let Some(schema) = endpoint.body {
        let schema: Schema = schema(&mut shapes.read);
        content.insert("application/json".to_owned(), json!({ "schema": schema }));
    }
    for content_type in &endpoint.other_bodies {
        let schema = if content_type.ends_with("/cloudevents+json") {
            json!({ "type": "object" })
        } else {
            json!({ "type": "string", "format": "binary" })
        };
        content.insert((*content_type).to_owned(), json!({ "schema": schema }));
    }
    (!content.is_empty()).then_some(content)
}

/// Returns a schema as an object, also that of any value: some generators of clients expect one.
fn object(schema: Schema) -> Value {
    let value = schema.to_value();
    if value == Value::Bool(true) {
        json!({})
    } else {
        value
    }
}

/// Returns the resource of a path: `queues` of `/v1/queues/{queue}`.
fn tag(path: &str) -> &str {
    path.split('/').nth(2).unwrap_or("api")
}

/// Returns a name for the method of a generated client: `get_queues_messages`.
fn operation_id(endpoint: &Endpoint) -> String {
    let parts = endpoint.path.split('/').skip(2).map(|part| {
        let name = part.strip_prefix('{').and_then(|part| part.strip_suffix('}'));
        name.map_or_else(|| part.replace(['.', '-'], "_"), |name| format!("by_{name}"))
    });
    let method = endpoint.method.as_str().to_lowercase();
    std::iter::once(method).chain(parts).collect::<Vec<_>>().join("_")
}

fn path_parameters(path: &str) -> impl Iterator<Item = Value> {
    let names = path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names.map(|name| {
        json!({
            "name": name,
            "in": "path",
            "required": true,
            "schema": { "type": "string", "minLength": 1 },
        })
    })
}

fn parameter(parameter: &Parameter, place: &str) -> Value {
    let schema = match &parameter.kind {
        Kind::Text => json!({ "type": "string" }),
        Kind::Flag => json!({ "type": "boolean", "default": false }),
        Kind::Texts => json!({ "type": "array", "items": { "type": "string" }, "maxItems": 200 }),
        Kind::Number { max } => json!({ "type": "integer", "minimum": 0, "maximum": max }),
        Kind::Duration { .. } => json!({ "type": "string", "pattern": "^[0-9]+(ms|s|m|h)?$" }),
        Kind::Sort(fields) => {
            let ascending = fields.iter().map(|field| (*field).to_owned());
            let descending = fields.iter().map(|field| format!("-{field}"));
            json!({ "type": "string", "enum": ascending.chain(descending).collect::<Vec<_>>() })
        }
    };
    let name = if parameter.name.ends_with(['.', '-']) {
        format!("{}NAME", parameter.name)
    } else {
        parameter.name.to_owned()
    };
    let mut described =
        json!({ "name": name, "in": place, "description": parameter.about, "schema": schema });
    if let (Kind::Flag, Some(fields)) = (&parameter.kind, described.as_object_mut()) {
        // A flag without a value is true.
        fields.insert("allowEmptyValue".to_owned(), true.into());
    }
    described
}

/// Returns the refusals of a route by status, each with its codes.
fn refusals(codes: &[Code]) -> Map<String, Value> {
    let mut by_status: BTreeMap<u16, BTreeSet<Code>> = BTreeMap::new();
    for code in codes {
        by_status.entry(code.status().as_u16()).or_default().insert(*code);
    }
    let response = |codes: &BTreeSet<Code>| {
        let words: Vec<&str> = codes.iter().map(|code| code.word()).collect();
        let schema = json!({
            "$ref": "#/components/schemas/Problem",
            "properties": { "code": { "enum": words } },
        });
        json!({
            "description": format!("Refused: {}.", words.join(", ")),
            "content": { "application/problem+json": { "schema": schema } },
        })
    };
    by_status
        .iter()
        .map(|(status, codes)| (status.to_string(), response(codes)))
        .collect()
}

/// Returns the schema of a refusal inside of an answer.
pub fn refusal(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "$ref": "#/components/schemas/Problem" })
}

fn problem_schema() -> Value {
    json!({
        "type": "object",
        "description": "A refusal (RFC 9457). Some codes have further fields.",
        "required": ["type", "title", "status", "code", "detail"],
        "properties": {
            "type": { "type": "string", "description": "Path of the code's explanation." },
            "title": { "type": "string" },
            "status": { "type": "integer", "minimum": 400, "maximum": 599 },
            "code": { "$ref": "#/components/schemas/Code" },
            "detail": { "type": "string", "description": "One line: the reason, and what would be accepted." },
        },
    })
}

fn code_schema() -> Value {
    let words: Vec<&str> = Code::ALL.iter().map(|code| code.word()).collect();
    json!({ "type": "string", "description": "Code of a refusal: x-problems explains each.", "enum": words })
}

/// Returns status, use of a retry and explanation of each code.
fn problems() -> Map<String, Value> {
    let row = |code: &Code| {
        let row = json!({
            "status": code.status().as_u16(),
            "retry": code.retry().word(),
            "text": code.text(),
        });
        (code.word().to_owned(), row)
    };
    Code::ALL.iter().map(row).collect()
}
