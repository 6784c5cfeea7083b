//! Tasks split into slices of their keys, and slices merged.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_apps::Cut;
use stafett_broker::Broker;
use stafett_http::api::post;
use stafett_http::{Code, Path, Problem, Slot, body};

use super::shape::{ShownOffsets, by_topic};
use super::{find, of_app, task};
use crate::{Routes, answer, refusals};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AppSplit")]
struct Wanted {
    /// Number of slices: 2, the default, or another power of 2.
    into: Option<u32>,
}

/// Tasks that were split or merged.
#[derive(Debug, Serialize, JsonSchema)]
struct AppCut {
    /// The new tasks.
    tasks: Vec<String>,
    /// Place at which they begin.
    at: ShownOffsets,
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            post(
                "/v1/apps/{app}/tasks/{task}/split",
                "Cuts a task into slices of its keys, which several workers can do. Its worker has all of them until the \
                 next balancing.",
            )
            .event("app.split")
            .body::<Wanted>()
            .answers::<AppCut>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&[
                Code::NoSuchApp,
                Code::NoSuchTask,
                Code::TooFine,
                Code::NotSplittable,
                Code::NotKeyed,
                Code::Unreadable,
            ]),
            split,
        )
        .route(
            post(
                "/v1/apps/{app}/tasks/{task}/merge",
                "Joins the slices of a task. It begins at the first of their places, and leaves out what others have done.",
            )
            .event("app.merged")
            .answers::<AppCut>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::NoSuchApp, Code::NoSuchTask, Code::NotKeyed, Code::Unreadable]),
            merge,
        )
}

async fn split(
    State(broker): State<Slot<Broker>>,
    Path((name, id)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Wanted = body::json(request).await?;
    let broker = broker.get()?;
    let cut = broker
        .apps()
        .split(&name, task(&id)?, wanted.into.unwrap_or(2))
        .await;
    shown(&broker, &name, &cut.map_err(|why| of_app(&why))?)
}

async fn merge(
    State(broker): State<Slot<Broker>>,
    Path((name, id)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let cut = broker.apps().merge(&name, task(&id)?).await;
    shown(&broker, &name, &cut.map_err(|why| of_app(&why))?)
}

fn shown(broker: &Broker, name: &str, cut: &Cut) -> Result<Response, Problem> {
    let stored = find(broker, name)?.stored();
    let cut = AppCut {
        tasks: cut.tasks.iter().map(ToString::to_string).collect(),
        at: by_topic(&stored.definition, &cut.at),
    };
    Ok(answer(StatusCode::OK, &cut))
}
