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

use super::declare::{BALANCES, CLOCKS, GAPS, REBALANCES, Time, filter, word};
use super::worker::Done;
use super::{find, of_app};
use crate::topics::given;
use crate::{Routes, answer, refusals};

/// Settings to change. A field that is absent stays as it is.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "AppChange")]
struct Change {
    /// A condition, or null for none.
    #[serde(deserialize_with = "given")]
    #[schemars(with = "Option<String>")]
    filter: Option<Option<String>>,
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
    find(&broker, &name)?;
    let changed = broker.apps().change(&name, wanted.read()?).await;
    changed.map_err(|why| of_app(&why))?;
    Ok(answer(StatusCode::OK, &Done {}))
}

impl Change {
    /// Returns the change, which touches no other settings.
    fn read(self) -> Result<impl FnOnce(&mut Definition) + Send + 'static, Problem> {
        let Object(time) = self.time.unwrap_or_default();
        let balance = chosen("balance", self.balance.as_deref(), &BALANCES)?;
        let manual = chosen("rebalance", self.rebalance.as_deref(), &REBALANCES)?;
        let stops = chosen("on_gap", self.on_gap.as_deref(), &GAPS)?;
        let of_records = chosen("time.clock", time.clock.as_deref(), &CLOCKS)?;
        let wanted = self.filter.map(|source| filter(source.as_deref())).transpose()?;
        Ok(move |it: &mut Definition| {
            set(&mut it.filter, wanted);
            set(&mut it.balance, balance);
            set(&mut it.manual_rebalance, manual);
            set(&mut it.stops_at_gap, stops);
            set(&mut it.time.of_records, of_records);
            set(&mut it.time.grace_ms, time.grace_ms);
            set(&mut it.time.idle_ms, time.idle_ms);
            set(&mut it.worker_timeout_ms, self.worker_timeout_ms);
            set(&mut it.revoke_ms, self.revoke_ms);
            set(&mut it.state_bytes_max, self.state_bytes_max);
            set(&mut it.attempts_max, self.attempts_max);
            set(
                &mut it.dead_letter,
                self.dead_letter.map(|topic| topic.map(Into::into)),
            );
        })
    }
}

/// Reads a word, if there is one.
fn chosen<T: Copy>(
    field: &'static str,
    given: Option<&str>,
    words: &[(&str, T)],
) -> Result<Option<T>, Problem> {
    given.map(|given| word(field, Some(given), words)).transpose()
}

fn set<T>(setting: &mut T, wanted: Option<T>) {
    if let Some(wanted) = wanted {
        *setting = wanted;
    }
}
