//! Positions set by an operator.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_apps::{App, Reset, ResetTo, Start};
use stafett_broker::Broker;
use stafett_http::api::post;
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot, body};

use super::declare::word;
use super::shape::{Offsets, ShownOffsets, by_topic};
use super::{find, of_app, task};
use crate::records::position::time;
use crate::{Routes, answer, refusals};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AppReset")]
struct Wanted {
    to: To,
    /// The only task to reset; all of them if it is absent.
    task: Option<String>,
    /// `keep`, the default, or `drop`: tables and timers.
    state: Option<String>,
}

/// `earliest`, `latest`, a time, or an age such as `-1h`; or offsets.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "AppResetTo")]
enum To {
    Offsets(Offsets),
    Word(String),
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppResets")]
struct Resets {
    tasks: Vec<TaskReset>,
}

/// Positions of a task before and after.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppTaskReset")]
struct TaskReset {
    task: String,
    from: ShownOffsets,
    to: ShownOffsets,
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes.route(
        post(
            "/v1/apps/{app}/reset",
            "Sets the positions of a paused app. Workers claim its tasks again.",
        )
        .event("app.reset")
        .query(&[Parameter::flag(
            "dry_run",
            "Only says which positions it would be.",
        )])
        .body::<Wanted>()
        .answers::<Resets>(200)
        .refuses(&refusals::STORAGE)
        .refuses(&[
            Code::NoSuchApp,
            Code::NoSuchTask,
            Code::NoSuchTopic,
            Code::TopicMadeAgain,
            Code::NotPaused,
            Code::BadOffset,
            Code::Unreadable,
        ]),
        reset,
    )
}

async fn reset(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Wanted = body::json(request).await?;
    let broker = broker.get()?;
    let app = find(&broker, &name)?;
    let only_plans = query.flag("dry_run")?;
    let wanted = wanted.read(&app)?;
    let done = if only_plans {
        broker.apps().planned_reset(&name, &wanted).await
    } else {
        broker.apps().reset(&name, wanted).await
    };
    let done = done.map_err(|why| of_app(&why))?;
    let stored = app.stored();
    let tasks = done.into_iter().map(|reset| TaskReset {
        task: reset.task.to_string(),
        from: by_topic(&stored.definition, &reset.from),
        to: by_topic(&stored.definition, &reset.to),
    });
    let tasks = tasks.collect();
    Ok(answer(StatusCode::OK, &Resets { tasks }))
}

impl Wanted {
    fn read(self, app: &App) -> Result<Reset, Problem> {
        let to = match self.to {
            To::Offsets(offsets) => ResetTo::Offsets(offsets.by_input("to", &app.stored().definition)?),
            To::Word(text) => ResetTo::Place(place(app, &text)?),
        };
        let states = [("keep", false), ("drop", true)];
        Ok(Reset {
            to,
            task: self.task.as_deref().map(task).transpose()?,
            drops_state: word("state", self.state.as_deref(), &states)?,
        })
    }
}

fn place(app: &App, text: &str) -> Result<Start, Problem> {
    let age = || {
        let age: Duration = stafett_http::query::duration(text.strip_prefix('-')?)?;
        Some(
            app.wall_ms()
                .saturating_sub_unsigned(u64::try_from(age.as_millis()).ok()?),
        )
    };
    match text {
        "earliest" => Ok(Start::Earliest),
        "latest" => Ok(Start::Latest),
        _ => age().or_else(|| time(text)).map(Start::Time).ok_or_else(|| {
            let why = format!(
                "to is earliest, latest, a time such as 2026-11-22T16:00:00Z, an age such as -1h, or offsets, not {text:?}"
            );
            Problem::bad_request(why).with("field", "to")
        }),
    }
}
