//! Settings of an app changed.

#![expect(clippy::option_option, reason = "a field that is absent or null")]

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use stafett_apps::Definition;
use stafett_broker::Broker;
use stafett_http::api::patch;
use stafett_http::body::{self, Object};
use stafett_http::{Code, Path, Problem, Slot};

use super::declare::{BALANCES, CLOCKS, GAPS, REBALANCES, Time, word};
use super::worker::Done;
use super::{find, of_app};
use crate::topics::given;
use crate::{Routes, answer, refusals};

/// Settings to change. A field that is absent stays as it is.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "AppChange")]
struct Change {
    balance: Option<String>,
    rebalance: Option<String>,
    worker_timeout_ms: Option<u64>,
    revoke_ms: Option<u64>,
    time: Option<Object<Time>>,
    state_bytes_max: Option<u64>,
    on_gap: Option<String>,
    attempts_max: Option<u32>,
    /// A topic, or null for none.
    #[serde(deserialize_with = "given")]
    #[schemars(with = "Option<String>")]
    dead_letter: Option<Option<String>>,
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes.route(
        patch("/v1/apps/{app}", "Changes settings of an app. Workers go on.")
            .event("app.changed")
            .body::<Change>()
            .answers::<Done>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::NoSuchApp, Code::NoSuchTopic]),
        change,
    )
}

async fn change(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Change = body::json(request).await?;
    let broker = broker.get()?;
    let definition = find(&broker, &name)?.stored().definition.clone();
    let changed = broker.apps().change(&name, wanted.apply(definition)?).await;
    changed.map_err(|why| of_app(&why))?;
    Ok(answer(StatusCode::OK, &Done {}))
}

impl Change {
    fn apply(self, mut it: Definition) -> Result<Definition, Problem> {
        let Object(time) = self.time.unwrap_or_default();
        if let Some(given) = &self.balance {
            it.balance = word("balance", Some(given), &BALANCES)?;
        }
        if let Some(given) = &self.rebalance {
            it.manual_rebalance = word("rebalance", Some(given), &REBALANCES)?;
        }
        if let Some(given) = &self.on_gap {
            it.stops_at_gap = word("on_gap", Some(given), &GAPS)?;
        }
        if let Some(given) = &time.clock {
            it.time.of_records = word("time.clock", Some(given), &CLOCKS)?;
        }
        it.time.grace_ms = time.grace_ms.unwrap_or(it.time.grace_ms);
        it.time.idle_ms = time.idle_ms.unwrap_or(it.time.idle_ms);
        it.worker_timeout_ms = self.worker_timeout_ms.unwrap_or(it.worker_timeout_ms);
        it.revoke_ms = self.revoke_ms.unwrap_or(it.revoke_ms);
        it.state_bytes_max = self.state_bytes_max.unwrap_or(it.state_bytes_max);
        it.attempts_max = self.attempts_max.unwrap_or(it.attempts_max);
        if let Some(topic) = self.dead_letter {
            it.dead_letter = topic.map(Into::into);
        }
        Ok(it)
    }
}
