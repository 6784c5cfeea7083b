//! The routes of endpoints: a token is checked before the body is read, and an answer has no body.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use stafett_broker::Broker;
use stafett_http::coding::packing;
use stafett_http::query::decoded;
use stafett_http::{Code, Origins, Policy, Problem, Slot, body};
use stafett_store::{NotStored, NotStoredKind, wall_ms};
use stafett_topics::{Append, NewRecord, Outcome, RecordError, RecordsAppend};
use tracing::warn;

use crate::definition::{Added, Endpoint, Target};
use crate::events::{self, Additions, Rules};
use crate::limit::Limiter;
use crate::token::{Claims, TokenError, TokenPlace};

/// Results that are counted.
const STORED: &str = "stored";
const REFUSED: &str = "refused";
const UNAUTHENTICATED: &str = "unauthenticated";
const LIMITED: &str = "limited";
/// Counted as stored before, as the answer does not wait with `ack = "none"`.
const LOST: &str = "lost";

/// Labels of a counter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    endpoint: Arc<str>,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndpointLabel {
    endpoint: Arc<str>,
}

/// Counters of all endpoints.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    requests: Family<Labels, Counter>,
    records: Counter,
    left_out: Family<EndpointLabel, Counter>,
    filter_errors: Family<EndpointLabel, Counter>,
}

/// Records of one topic.
#[derive(Debug, Clone, Default)]
struct Batch {
    /// Numbers of their events in the body.
    lines: Vec<usize>,
    records: Vec<NewRecord>,
}

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "ingest_requests",
            "Requests to endpoints, by their result",
            metrics.requests.clone(),
        );
        registry.register(
            "ingest_records",
            "Records that endpoints took",
            metrics.records.clone(),
        );
        registry.register(
            "ingest_left_out",
            "Events that the filter of their endpoint left out",
            metrics.left_out.clone(),
        );
        registry.register(
            "ingest_filter_errors",
            "Evaluations of an endpoint's filter that was neither true nor false",
            metrics.filter_errors.clone(),
        );
        metrics
    }
}

/// An endpoint and its surroundings.
struct Door {
    endpoint: Endpoint,
    broker: Slot<Broker>,
    records: Counter,
    left_out: Counter,
    filter_errors: Counter,
    stored: Counter,
    refused: Counter,
    unauthenticated: Counter,
    limited: Counter,
    limiter: Option<Limiter>,
    losses: Arc<Losses>,
}

/// Requests of an endpoint that were answered, and whose records were not stored.
#[derive(Debug)]
struct Losses {
    endpoint: Arc<str>,
    lost: Counter,
    is_losing: AtomicBool,
}

impl Losses {
    /// Notes the outcome of a request that was answered. The first loss of a row of them is logged.
    fn note(&self, outcome: Result<(), Problem>) {
        let was_losing = self.is_losing.swap(outcome.is_err(), Ordering::Relaxed);
        let Err(why) = outcome else {
            return;
        };
        self.lost.inc();
        if !was_losing {
            let endpoint = &*self.endpoint;
            warn!(
                endpoint,
                "events that were answered are not stored: {}", why.detail
            );
        }
    }
}

/// Returns the routes of endpoints.
pub fn router(endpoints: Vec<Endpoint>, broker: &Slot<Broker>, metrics: &Metrics) -> Router {
    let mut all = Router::new();
    for endpoint in endpoints {
        let name: Arc<str> = endpoint.name.as_str().into();
        let counter = |result| {
            let endpoint = Arc::clone(&name);
            metrics
                .requests
                .get_or_create(&Labels { endpoint, result })
                .clone()
        };
        let of_endpoint = |family: &Family<EndpointLabel, Counter>| {
            let endpoint = Arc::clone(&name);
            family.get_or_create(&EndpointLabel { endpoint }).clone()
        };
        let policy = if endpoint.origins.is_empty() {
            Policy::Origins {
                allowed: Origins::Near,
                setting: "origins of the endpoint",
            }
        } else {
            Policy::Origins {
                allowed: Origins::Listed(endpoint.origins.clone()),
                setting: "origins of the endpoint",
            }
        };
        let path = endpoint.path.clone();
        let limiter = endpoint.limit.map(Limiter::new);
        let door = Arc::new(Door {
            endpoint,
            broker: broker.clone(),
            records: metrics.records.clone(),
            left_out: of_endpoint(&metrics.left_out),
            filter_errors: of_endpoint(&metrics.filter_errors),
            stored: counter(STORED),
            refused: counter(REFUSED),
            unauthenticated: counter(UNAUTHENTICATED),
            limited: counter(LIMITED),
            limiter,
            losses: Arc::new(Losses {
                endpoint: Arc::clone(&name),
                lost: counter(LOST),
                is_losing: AtomicBool::new(false),
            }),
        });
        let routes = Router::new()
            .route(&path, post(take).options(preflight))
            .with_state(door);
        all = all.merge(policy.guard(routes));
    }
    all
}

/// Answers the CORS preflight of a page that may post.
async fn preflight() -> Response {
    let told = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "POST"),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "authorization, content-encoding, content-type",
        ),
    ];
    (StatusCode::NO_CONTENT, told).into_response()
}

async fn take(State(door): State<Arc<Door>>, request: Request) -> Response {
    let now_ms = wall_ms();
    let claims = match door.authenticate(&request, now_ms / 1000) {
        Ok(claims) => claims,
        Err(why) => {
            door.unauthenticated.inc();
            return Problem::new(Code::Unauthenticated, why).into_response();
        }
    };
    if let Err(wait_s) = door.limit(&claims) {
        door.limited.inc();
        let why = "the token made more requests than the endpoint allows";
        let mut response = Problem::new(Code::TooMany, why).into_response();
        response.headers_mut().insert(header::RETRY_AFTER, wait_s.into());
        return response;
    }
    match door.store(request, claims, now_ms).await {
        Ok(count) => {
            door.stored.inc();
            door.records.inc_by(count);
            door.endpoint.answer.into_response()
        }
        Err(problem) => {
            door.refused.inc();
            problem.into_response()
        }
    }
}

/// Returns the value of a parameter, decoded.
fn parameter(request: &Request, name: &str) -> Option<String> {
    let pairs = request.uri().query()?.split('&');
    let found = pairs
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name);
    decoded(found?.1)
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// True for a body with an event in each line. Text is JSON as well, as a browser's beacon sends it.
fn is_lines(headers: &HeaderMap) -> Result<bool, Problem> {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let kind = kind.map(|kind| {
        kind.split(|byte| *byte == b';')
            .next()
            .unwrap_or_default()
            .trim_ascii()
    });
    match kind.map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"application/json" | b"text/plain") => Ok(false),
        Some(b"application/x-ndjson") => Ok(true),
        Some(other) => {
            let other = String::from_utf8_lossy(other).into_owned();
            let why = format!("{other:?} is not application/json, application/x-ndjson or text/plain");
            Err(Problem::new(Code::UnsupportedType, why))
        }
    }
}

impl Door {
    fn authenticate(&self, request: &Request, now_s: i64) -> Result<Claims, TokenError> {
        let Some((place, check)) = &self.endpoint.check else {
            return Ok(Claims::new());
        };
        let headers = request.headers();
        let bearer = || {
            header_text(headers, "authorization")?
                .strip_prefix("Bearer ")
                .map(str::to_owned)
        };
        let token = match place {
            TokenPlace::Query(name) => parameter(request, name),
            TokenPlace::Header(name) => header_text(headers, name).map(str::to_owned),
            TokenPlace::Bearer => bearer(),
        };
        check.verify(&token.ok_or(TokenError::Missing)?, now_s)
    }

    /// Counts a request of the token's subject, or of the token, if it has none.
    fn limit(&self, claims: &Claims) -> Result<(), u64> {
        let Some(limiter) = &self.limiter else {
            return Ok(());
        };
        match claims.get("sub") {
            Some(Value::String(subject)) => limiter.take(subject),
            Some(_) | None => limiter.take(&Value::Object(claims.clone()).to_string()),
        }
    }

    fn additions(&self, claims: &Claims, headers: &HeaderMap, now_ms: i64) -> Additions {
        let added = self.endpoint.add.iter().map(|(name, source)| {
            let value = match source {
                Added::Token(claim) => claims.get(claim).cloned(),
                Added::Header(header) => header_text(headers, header.as_str()).map(Value::from),
                Added::Now => Some(time(now_ms).into()),
            };
            (name.clone(), value.unwrap_or_default().to_string())
        });
        added.collect()
    }

    /// Stores the events of a request and the record of the call, all or none. Returns their number.
    async fn store(&self, request: Request, claims: Claims, now_ms: i64) -> Result<u64, Problem> {
        let endpoint = &self.endpoint;
        let is_lines = is_lines(request.headers())?;
        let additions = self.additions(&claims, request.headers(), now_ms);
        let call = self.call(&request, &claims, now_ms);
        let limit = body::Limit {
            bytes_max: endpoint.body_bytes_max,
            setting: "body_bytes_max of the endpoint",
        };
        let packing = packing(request.headers())?;
        let body = body::read_packed(request, limit, packing).await?;
        let rules = Rules {
            key_field: endpoint.key_field.as_deref(),
            schema: endpoint.schema.as_deref(),
            unknown: endpoint.unknown,
            topic_field: match &endpoint.target {
                Target::Topic(_) => None,
                Target::Field { name, topics } => Some((name, topics)),
            },
            filter: endpoint.filter.as_deref(),
        };
        let events = events::records(body.bytes(), is_lines, rules, &additions)?;
        let broker = self.broker.get()?;
        let mut batches = vec![Batch::default(); endpoint.target.topics().len()];
        for event in events.records {
            if let Some(batch) = batches.get_mut(event.topic) {
                batch.lines.push(event.line);
                batch.records.push(event.record);
            }
        }
        let mut batches: Vec<_> = endpoint.target.topics().iter().zip(batches).collect();
        if let (Some(topic), Some(call)) = (&endpoint.calls, call) {
            let (lines, records) = (vec![1], vec![call]);
            batches.push((topic, Batch { lines, records }));
        }
        let count = batches.iter().map(|(_, batch)| batch.records.len() as u64).sum();
        let append = self.append_of(&broker, &batches, now_ms)?;
        let count_filtered = || {
            self.left_out.inc_by(events.left_out);
            self.filter_errors.inc_by(events.failed);
        };
        if append.frames.is_empty() {
            count_filtered();
            return Ok(0);
        }
        for (name, _) in &batches {
            if let Some(topic) = broker.topics().named(name) {
                // A topic that was just created comes to other cells a moment later.
                broker.catalog().reach(&topic).await;
            }
        }
        let ticket = broker.catalog().append(vec![append]);
        if endpoint.waits || ticket.glance().committed() == Some(false) {
            stored(ticket.await)?;
            count_filtered();
            return Ok(count);
        }
        count_filtered();
        // The memory of the body stays taken until its records are written.
        let losses = Arc::clone(&self.losses);
        drop(broker.catalog().changes().begin(async move {
            losses.note(stored(ticket.await));
            drop(body);
            Ok::<(), NotStored>(())
        }));
        Ok(count)
    }

    /// Returns one append of all batches.
    fn append_of(
        &self,
        broker: &Broker,
        batches: &[(&String, Batch)],
        now_ms: i64,
    ) -> Result<Append, Problem> {
        let mut all: Option<Append> = None;
        for (name, batch) in batches.iter().filter(|(_, batch)| !batch.records.is_empty()) {
            let topic = broker.topics().named(name).ok_or_else(|| {
                let why = format!(
                    "the endpoint {} writes into the topic {name}, which does not exist",
                    self.endpoint.name
                );
                Problem::new(Code::NoSuchTopic, why).with("topic", name.as_str())
            })?;
            let keyless = uuid::Uuid::new_v4().into_bytes();
            let keyless = keyless.first_chunk().copied().map_or(0, u32::from_le_bytes);
            let catalog = broker.catalog();
            let built = catalog.records_append(&topic, &batch.records, keyless, now_ms);
            let RecordsAppend { append, .. } = built.map_err(|RecordError { index, why }| {
                let line = batch.lines.get(index).copied().unwrap_or(index + 1);
                Problem::bad_request(format!("line {line}: {why}")).with("line", line)
            })?;
            match &mut all {
                None => all = Some(append),
                Some(all) => {
                    all.frames.extend(append.frames);
                    all.pinned_bytes += append.pinned_bytes;
                    all.is_divisible |= append.is_divisible;
                }
            }
        }
        Ok(all.unwrap_or_default())
    }

    /// Returns the record of the call: method, path, status and the token's subject.
    fn call(&self, request: &Request, claims: &Claims, now_ms: i64) -> Option<NewRecord> {
        self.endpoint.calls.as_ref()?;
        let method: &Method = request.method();
        let value = json!({
            "method": method.as_str(), "path": self.endpoint.path, "status": self.endpoint.answer.as_u16(),
            "at": time(now_ms), "subject": claims.get("sub"),
        });
        Some(NewRecord {
            value: Some(Bytes::from(value.to_string())),
            ..NewRecord::default()
        })
    }
}

fn time(now_ms: i64) -> String {
    let now = jiff::Timestamp::from_millisecond(now_ms).unwrap_or_default();
    now.to_string()
}

fn stored(outcomes: impl IntoIterator<Item = Outcome>) -> Result<(), Problem> {
    match outcomes.into_iter().next() {
        Some(Outcome::Committed(_)) => Ok(()),
        Some(Outcome::Refused(why)) => {
            let why = NotStored::Refused(why);
            Err(Problem::new(code_of(&why), why).with("stored", 0))
        }
        Some(Outcome::Unknown) | None => {
            let why = NotStored::Unknown;
            Err(Problem::new(code_of(&why), why))
        }
    }
}

fn code_of(error: &NotStored) -> Code {
    match error.kind() {
        NotStoredKind::Unknown => Code::OutcomeUnknown,
        NotStoredKind::DiskFull => Code::DiskFull,
        NotStoredKind::Closed => Code::NotServing,
        NotStoredKind::Refused => Code::NotStored,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_are_lost_behind_their_answer_are_counted() {
        let losses = Losses {
            endpoint: "e".into(),
            lost: Counter::default(),
            is_losing: AtomicBool::new(false),
        };
        losses.note(Ok(()));
        assert_eq!(losses.lost.get(), 0);
        for outcome in [Outcome::Unknown, Outcome::Unknown] {
            losses.note(stored([outcome]));
        }
        assert_eq!(losses.lost.get(), 2);
        assert!(losses.is_losing.load(Ordering::Relaxed));
    }
}
