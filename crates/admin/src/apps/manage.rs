//! Apps looked after: pauses, drains, pins and rebalancing.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_apps::machine::{Absent, Machine};
use stafett_broker::Broker;
use stafett_http::api::{delete, post, put};
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot, body};

use super::worker::{Done, check_name};
use super::{find, of_app, task};
use crate::{Routes, answer, refusals};

const OVER_MAX: Duration = Duration::from_hours(1);

/// Moves of tasks.
#[derive(Debug, Serialize, JsonSchema)]
struct AppMoves {
    moves: Vec<AppMove>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct AppMove {
    task: String,
    from: String,
    to: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AppPin")]
struct Pin {
    worker: String,
    /// While the worker is not there: `wait`, the default, `balance` (others may have the task) or
    /// `refuse`.
    absent: Option<String>,
}

pub(super) fn routes(routes: Routes) -> Routes {
    let common = [Code::NotServing, Code::NoSuchApp];
    routes
        .route(
            post(
                "/v1/apps/{app}/pause",
                "Stops deliveries. Commits of what was delivered still count.",
            )
            .event("app.paused")
            .answers::<Done>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::NoSuchApp]),
            pause,
        )
        .route(
            post("/v1/apps/{app}/resume", "Continues deliveries.")
                .event("app.resumed")
                .answers::<Done>(200)
                .refuses(&refusals::STORAGE)
                .refuses(&[Code::NoSuchApp]),
            resume,
        )
        .route(
            post(
                "/v1/apps/{app}/rebalance",
                "Balances tasks now. The answer has the moves that begin.",
            )
            .query(&[Parameter::flag("dry_run", "Only says which moves it would be.")])
            .answers::<AppMoves>(200)
            .refuses(&common),
            rebalance,
        )
        .route(
            post(
                "/v1/apps/{app}/workers/{worker}/drain",
                "Hands over what a worker has, a task at a time; it is given nothing meanwhile.",
            )
            .event("app.drained")
            .query(&[
                Parameter::duration(
                    "over",
                    OVER_MAX,
                    "Time over which tasks are handed over; at once if it is absent.",
                ),
                Parameter::flag("cancel", "Ends a drain instead."),
            ])
            .answers::<Done>(200)
            .refuses(&common)
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::NoSuchWorker]),
            drain,
        )
        .with(task_routes)
}

fn task_routes(routes: Routes) -> Routes {
    let common = [Code::NotServing, Code::NoSuchApp];
    routes
        .route(
            put("/v1/apps/{app}/tasks/{task}/worker", "Pins a task to a worker.")
                .body::<Pin>()
                .answers::<Done>(200)
                .refuses(&common)
                .refuses(&refusals::STORAGE)
                .refuses(&[Code::NoSuchTask, Code::NoSuchWorker]),
            pin,
        )
        .route(
            delete("/v1/apps/{app}/tasks/{task}/worker", "Ends the pin of a task.")
                .answers::<Done>(200)
                .refuses(&common)
                .refuses(&refusals::STORAGE)
                .refuses(&[Code::NoSuchTask]),
            unpin,
        )
        .route(
            post(
                "/v1/apps/{app}/accept-gap",
                "Lets the app go on behind all that is gone: ranges of records, and topics that were deleted and made \
                 again, of which it reads the new one from its first record.",
            )
            .event("app.gaps_accepted")
            .answers::<Done>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::NoSuchApp, Code::NotCopartitioned, Code::Unreadable]),
            accept_gaps,
        )
        .route(
            post(
                "/v1/apps/{app}/tasks/{task}/accept-gap",
                "Lets a task go on behind a range of records that is gone.",
            )
            .event("app.gap_accepted")
            .answers::<Done>(200)
            .refuses(&common)
            .refuses(&[Code::NoSuchTask]),
            accept_gap,
        )
}

async fn pause(State(broker): State<Slot<Broker>>, Path(name): Path<String>) -> Result<Response, Problem> {
    let paused = broker.get()?.apps().pause(&name, true).await;
    paused.map_err(|why| of_app(&why))?;
    Ok(answer(StatusCode::OK, &Done {}))
}

async fn resume(State(broker): State<Slot<Broker>>, Path(name): Path<String>) -> Result<Response, Problem> {
    let resumed = broker.get()?.apps().pause(&name, false).await;
    resumed.map_err(|why| of_app(&why))?;
    Ok(answer(StatusCode::OK, &Done {}))
}

async fn rebalance(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let app = find(&*broker.get()?, &name)?;
    let moves = if query.flag("dry_run")? {
        app.with_machine(Machine::planned_moves)
    } else {
        app.step(Machine::rebalance_now)
    };
    let moves = moves.into_iter().map(|(task, from, to)| AppMove {
        task: task.to_string(),
        from: from.to_string(),
        to: to.to_string(),
    });
    let moves = moves.collect();
    Ok(answer(StatusCode::OK, &AppMoves { moves }))
}

async fn drain(
    State(broker): State<Slot<Broker>>,
    Path((name, worker)): Path<(String, String)>,
    query: Query,
) -> Result<Response, Problem> {
    let app = find(&*broker.get()?, &name)?;
    let over = query.duration("over", OVER_MAX)?.unwrap_or_default();
    let over_ms = u64::try_from(over.as_millis()).unwrap_or(u64::MAX);
    let cancels = query.flag("cancel")?;
    let drained = app.mark(move |machine, now, effects| {
        if cancels {
            machine.cancel_drain(&worker, now, effects)
        } else {
            machine.drain(&worker, over_ms, now, effects)
        }
    });
    drained.await.map_err(|why| of_app(&why))?;
    Ok(answer(StatusCode::OK, &Done {}))
}

async fn pin(
    State(broker): State<Slot<Broker>>,
    Path((name, id)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Pin = body::json(request).await?;
    let absent = match wanted.absent.as_deref() {
        None | Some("wait") => Absent::Wait,
        Some("balance") => Absent::Balance,
        Some("refuse") => Absent::Refuse,
        Some(other) => {
            let why = format!("absent is wait, balance or refuse, not {other:?}");
            return Err(Problem::bad_request(why).with("field", "absent"));
        }
    };
    check_name(&wanted.worker)?;
    let app = find(&*broker.get()?, &name)?;
    let id = task(&id)?;
    let pinned = app.mark(|machine, now, effects| machine.pin(id, &wanted.worker, absent, now, effects));
    pinned.await.map_err(|why| of_app(&why))?;
    Ok(answer(StatusCode::OK, &Done {}))
}

async fn unpin(
    State(broker): State<Slot<Broker>>,
    Path((name, id)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let app = find(&*broker.get()?, &name)?;
    let id = task(&id)?;
    let unpinned = app.mark(|machine, now, effects| machine.unpin(id, now, effects).map(drop));
    unpinned.await.map_err(|why| of_app(&why))?;
    Ok(answer(StatusCode::OK, &Done {}))
}

async fn accept_gaps(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let app = find(&*broker.get()?, &name)?;
    let accepted = app.accept_topics().await;
    accepted.map_err(|why| of_app(&why))?;
    for task in app.stored().tasks.keys() {
        app.accept_gap(*task).map_err(|why| of_app(&why))?;
    }
    Ok(answer(StatusCode::OK, &Done {}))
}

async fn accept_gap(
    State(broker): State<Slot<Broker>>,
    Path((name, id)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let app = find(&*broker.get()?, &name)?;
    app.accept_gap(task(&id)?).map_err(|why| of_app(&why))?;
    Ok(answer(StatusCode::OK, &Done {}))
}
