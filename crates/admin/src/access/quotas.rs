//! `/v1/quotas`, and the quotas of requests: bodies of routes that store content, and answers of those that
//! show it, are taken from the buckets of the user and its client. A request while there is a debt is
//! refused.

use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_access::{Bucket, Caller, Entity, Part, Rate, Rates};
use stafett_broker::{Broker, NewQuota};
use stafett_http::api::{get, put};
use stafett_http::list::List;
use stafett_http::{Code, Problem, Query, Slot, body};

use super::routes::of_access;
use crate::caller::CLIENT;
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
        ],
    };
    let by = super::caller(&broker);
    let set = broker.access().set_quotas(&by, vec![quota], false).await;
    set.map_err(of_access)?;
    Ok(answer(StatusCode::OK, &wanted))
}

/// Bucket that the answer of a request is taken from.
pub(super) type Charged = Option<Arc<Bucket>>;

/// Takes the body of a request from its quota. Refuses a request while there is a debt.
pub(super) fn charge(
    broker: &Broker,
    caller: &Caller,
    template: &str,
    request: &Request,
) -> Result<Charged, Box<Response>> {
    let access = broker.access();
    if !access.directory().has_quotas() {
        return Ok(None);
    }
    let rate = match (request.method(), template.strip_prefix("/v1")) {
        (
            &Method::POST,
            Some(
                "/messages"
                | "/clients/{client}/call"
                | "/queues/{queue}/messages"
                | "/topics/{topic}/records"
                | "/exchanges/{exchange}/publish",
            ),
        ) => Rate::Produced,
        (
            &Method::GET | &Method::POST,
            Some(
                "/topics/{topic}/records"
                | "/topics/{topic}/partitions/{partition}/records"
                | "/queues/{queue}/receive"
                | "/queues/{queue}/messages"
                | "/receive",
            ),
        ) => Rate::Fetched,
        _ => return Ok(None),
    };
    let client = request.headers().get(CLIENT).and_then(|name| name.to_str().ok());
    let Some(bucket) = access.bucket(caller.name(), client.unwrap_or_default(), rate) else {
        return Ok(None);
    };
    let debt = access.take(&bucket, 0);
    if debt > Duration::ZERO {
        return Err(Box::new(refused(debt)));
    }
    if rate == Rate::Produced {
        let length = request.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        access.take(&bucket, length.unwrap_or(0));
        return Ok(None);
    }
    Ok(Some(bucket))
}

/// Takes an answer from the quota.
pub(super) fn charge_answer(broker: &Broker, bucket: &Charged, response: &Response) {
    let bytes = response.body().size_hint().exact().unwrap_or(0);
    if let Some(bucket) = bucket {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        broker.access().take(bucket, bytes);
    }
}

fn refused(debt: Duration) -> Response {
    let seconds = debt.as_secs() + u64::from(debt.subsec_nanos() > 0);
    let why = format!("more bytes than the quota allows: it may go on in {seconds} s");
    let mut response = Problem::new(Code::OverQuota, why).into_response();
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}
