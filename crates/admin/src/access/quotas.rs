//! `/v1/quotas`, and the quotas of requests: bodies of routes that store content, and answers of those that
//! show it, are taken from the buckets of the user and its client, as each request is. A request while there
//! is a debt is refused.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_core::Stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_access::{Bucket, Caller, Entity, Meter, Part, Rate, Rates, Who};
use stafett_broker::{Broker, ConnectionQuota, NewQuota};
use stafett_http::api::{get, put};
use stafett_http::list::List;
use stafett_http::{Code, Problem, Query, Slot, body};
use stafett_model::Lock;
use tokio::time::Sleep;

use super::routes::of_access;
use crate::caller::{CLIENT, OnlyIfAbsent};
use crate::refusals;
use crate::{Routes, answer};

/// Name of the default in requests and answers.
const DEFAULT: &str = "*";

const LIST: List<Named, Quota> = List {
    name: |quota| (&quota.user, &quota.client),
    sorts: &[],
    shown: |quota| quota.quota.clone(),
};

/// A quota, with the names by which it is listed.
struct Named {
    user: String,
    client: String,
    quota: Quota,
}

/// Rates of a user, a client, or both.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RateQuota")]
#[serde(deny_unknown_fields)]
struct Quota {
    /// Name of a user; `*` for all that have no quota of their own. One of `user` and `client` is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// Client id of Kafka's clients, or the client that `Stafett-Client` names; `*` as for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    /// Absent or null for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    produced_bytes_per_second: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fetched_bytes_per_second: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    requests_per_second: Option<f64>,
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get("/v1/quotas", "Lists quotas.")
                .lists(&LIST)
                .refuses(&[Code::NotServing]),
            list,
        )
        .route(
            put(
                "/v1/quotas",
                "Sets the rates of a user, a client, or both; without rates the quota is removed.",
            )
            .body::<Quota>()
            .answers::<Quota>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::Overloaded]),
            set,
        )
}

fn shown(entity: &Entity, rates: &Rates) -> Named {
    let text = |part: &Option<Part>| {
        part.as_ref().map(|part| match part {
            Part::Default => DEFAULT.to_owned(),
            Part::Named(name) => name.to_string(),
        })
    };
    let (user, client) = (text(&entity.user), text(&entity.client));
    Named {
        user: user.clone().unwrap_or_default(),
        client: client.clone().unwrap_or_default(),
        quota: Quota {
            user,
            client,
            produced_bytes_per_second: rates.get(&Rate::Produced).copied(),
            fetched_bytes_per_second: rates.get(&Rate::Fetched).copied(),
            requests_per_second: rates.get(&Rate::Requests).copied(),
        },
    }
}

async fn list(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let quotas = broker.access().directory().with_quotas(|quotas| {
        let all = quotas.iter();
        all.map(|(entity, rates)| shown(entity, rates))
            .collect::<Vec<_>>()
    });
    Ok(answer(StatusCode::OK, &LIST.page(&query, quotas)?))
}

async fn set(State(broker): State<Slot<Broker>>, request: Request) -> Result<Response, Problem> {
    let only_if_absent = OnlyIfAbsent::is_in(&request);
    let wanted: Quota = body::json(request).await?;
    let broker = broker.get()?;
    let part = |text: &Option<String>| {
        text.as_deref().map(|text| match text {
            DEFAULT => Part::Default,
            name => Part::Named(name.into()),
        })
    };
    let quota = NewQuota {
        entity: Entity {
            user: part(&wanted.user),
            client: part(&wanted.client),
        },
        rates: vec![
            (Rate::Produced, wanted.produced_bytes_per_second),
            (Rate::Fetched, wanted.fetched_bytes_per_second),
            (Rate::Requests, wanted.requests_per_second),
        ],
    };
    let by = super::caller(&broker);
    if only_if_absent {
        let made = broker.access().make_quota(&by, quota).await;
        OnlyIfAbsent::check(made.map_err(of_access)?)?;
    } else {
        let set = broker.access().set_quotas(&by, vec![quota], false).await;
        set.map_err(of_access)?;
    }
    Ok(answer(StatusCode::OK, &wanted))
}

/// Bucket that the answer of a request is taken from.
pub(super) type Charged = Option<Arc<Bucket>>;

/// Takes a request from its quota, and its body: at once if its length is known, otherwise as it is read.
/// Refuses a request while there is a debt. The broker's own requests, and those outside of `/v1` and
/// `/live`, have no quota here.
pub(super) fn charge(
    broker: &Arc<Broker>,
    caller: &Caller,
    request: &mut Request,
) -> Result<Charged, Box<Response>> {
    let access = broker.access();
    let is_internal = matches!(caller.who(), Who::Internal);
    if is_internal || !access.directory().has_quotas() {
        return Ok(None);
    }
    let rate = rate_of(request);
    let client = request.headers().get(CLIENT).and_then(|name| name.to_str().ok());
    let client = client.unwrap_or_default();
    let of = |rate| access.bucket(caller.name(), client, rate);
    // A quota that is too low can be mended.
    let template = super::template(request);
    let is_counted =
        template != "/v1/quotas" && ["/v1/", "/live/"].iter().any(|begin| template.starts_with(begin));
    let requests = is_counted.then(|| of(Rate::Requests)).flatten();
    let bucket = rate.and_then(of);
    for bucket in [&requests, &bucket].into_iter().flatten() {
        check_debt(broker, bucket).map_err(|(problem, seconds)| {
            let mut response = problem.into_response();
            let wait = HeaderValue::from(seconds);
            response.headers_mut().insert(header::RETRY_AFTER, wait);
            Box::new(response)
        })?;
    }
    if let Some(requests) = requests {
        access.take(&requests, 1);
    }
    let Some(bucket) = bucket else { return Ok(None) };
    if rate == Some(Rate::Produced) {
        let body = std::mem::take(request.body_mut());
        *request.body_mut() = taken(broker, &bucket, body, false);
        return Ok(None);
    }
    Ok(Some(bucket))
}

/// Returns the rate that the bytes of a request or its answer count for.
fn rate_of(request: &Request) -> Option<Rate> {
    let template = super::template(request);
    match (request.method(), template.strip_prefix("/v1").unwrap_or(template)) {
        (
            &Method::POST,
            "/messages"
            | "/clients/{client}/call"
            | "/live/publish"
            | "/queues/{queue}/messages"
            | "/topics/{topic}/records"
            | "/exchanges/{exchange}/publish",
        ) => Some(Rate::Produced),
        (
            &Method::GET | &Method::POST,
            "/live/events"
            | "/topics/{topic}/events"
            | "/topics/{topic}/records"
            | "/topics/{topic}/partitions/{partition}/records"
            | "/queues/{queue}/events"
            | "/queues/{queue}/receive"
            | "/queues/{queue}/messages"
            | "/queues/{queue}/messages/{id}"
            | "/groups/{group}/members/{member}/poll"
            | "/receive",
        ) => Some(Rate::Fetched),
        _ => None,
    }
}

/// Takes an answer from the quota.
pub(super) fn charge_answer(broker: &Arc<Broker>, bucket: &Charged, response: Response) -> Response {
    match bucket {
        Some(bucket) => response.map(|body| taken(broker, bucket, body, true)),
        None => response,
    }
}

/// Takes a body from a bucket: at once if its length is known, otherwise as it passes. One that `waits` goes
/// on when the debt of the pieces before is gone.
fn taken(broker: &Arc<Broker>, bucket: &Arc<Bucket>, body: Body, waits: bool) -> Body {
    if let Some(bytes) = body.size_hint().exact() {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        broker.access().take(bucket, bytes);
        return body;
    }
    Body::from_stream(Counted {
        inner: body.into_data_stream(),
        broker: Arc::clone(broker),
        bucket: Arc::clone(bucket),
        waits,
        pause: None,
    })
}

/// A body of unknown length, of which each piece is taken from a bucket.
struct Counted {
    inner: BodyDataStream,
    broker: Arc<Broker>,
    bucket: Arc<Bucket>,
    waits: bool,
    /// Time until the next piece.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Stream for Counted {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(context));
            self.pause = None;
        }
        let piece = ready!(Pin::new(&mut self.inner).poll_next(context));
        if let Some(Ok(bytes)) = &piece {
            let debt = self.broker.access().take(&self.bucket, bytes.len());
            if self.waits && !debt.is_zero() {
                self.pause = Some(Box::pin(tokio::time::sleep(debt)));
            }
        }
        Poll::Ready(piece)
    }
}

/// Refuses content while there is a debt, with the seconds until it is gone.
fn check_debt(broker: &Broker, bucket: &Bucket) -> Result<(), (Problem, u64)> {
    let debt = broker.access().take(bucket, 0);
    if debt.is_zero() {
        return Ok(());
    }
    let seconds = debt.as_secs() + u64::from(debt.subsec_nanos() > 0);
    let why = format!("more than the quota allows: it may go on in {seconds} s");
    Err((Problem::new(Code::OverQuota, why), seconds))
}

/// Quota of a connection that goes on as another protocol.
#[derive(Debug)]
pub(super) struct ConnectionMeter {
    broker: Arc<Broker>,
    caller: Arc<Caller>,
    client: Box<str>,
    quota: Lock<ConnectionQuota>,
}

impl ConnectionMeter {
    /// Returns the quota of a request's connection.
    pub(super) fn of(broker: &Arc<Broker>, caller: &Arc<Caller>, request: &Request) -> Arc<dyn Meter> {
        let client = request.headers().get(CLIENT).and_then(|name| name.to_str().ok());
        Arc::new(Self {
            broker: Arc::clone(broker),
            caller: Arc::clone(caller),
            client: client.unwrap_or_default().into(),
            quota: Lock::default(),
        })
    }
}

impl Meter for ConnectionMeter {
    fn is_on(&self) -> bool {
        self.broker.access().directory().has_quotas()
    }

    fn charge(&self, rate: Rate, count: usize) -> Duration {
        let access = self.broker.access();
        let of = (self.caller.name(), &*self.client);
        access.charge(&mut self.quota.lock(), of, rate, count)
    }
}

/// Buckets of the messages that a connection sends.
#[derive(Debug, Default)]
pub(crate) struct SendQuota(Option<Buckets>);

#[derive(Debug)]
struct Buckets {
    /// Generation of the users and quotas that they are of.
    generation: u64,
    produced: Charged,
    requests: Charged,
}

impl SendQuota {
    /// Refuses a message while there is a debt.
    pub(crate) fn check(&mut self, broker: &Broker, client: Option<&str>) -> Result<(), Problem> {
        let access = broker.access();
        if !access.directory().has_quotas() {
            self.0 = None;
            return Ok(());
        }
        let generation = access.directory().generation();
        if self.0.as_ref().is_none_or(|known| known.generation != generation) {
            let caller = super::caller(broker);
            let of = |rate| access.bucket(caller.name(), client.unwrap_or_default(), rate);
            self.0 = Some(Buckets {
                generation,
                produced: of(Rate::Produced),
                requests: of(Rate::Requests),
            });
        }
        let Some(Buckets {
            produced, requests, ..
        }) = &self.0
        else {
            return Ok(());
        };
        for bucket in [requests, produced].into_iter().flatten() {
            check_debt(broker, bucket).map_err(|(problem, _)| problem)?;
        }
        if let Some(requests) = requests {
            access.take(requests, 1);
        }
        Ok(())
    }

    /// Takes the bytes of a message that was accepted.
    pub(crate) fn take(&self, broker: &Broker, bytes: usize) {
        let produced = self.0.as_ref().and_then(|known| known.produced.as_ref());
        if let Some(bucket) = produced {
            broker.access().take(bucket, bytes);
        }
    }
}
