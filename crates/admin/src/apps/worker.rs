//! Workers: they join, learn of their tasks, and leave.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_apps::machine::JoinSpec;
use stafett_apps::{App, Claim, NAME_BYTES_MAX, Session};
use stafett_broker::Broker;
use stafett_http::api::post;
use stafett_http::{Code, Draining, Path, Problem, Slot, body};

use super::declare::word;
use super::event::EventShown;
use super::shape::token;
use super::{WORKERS, find, of_app, session, task};
use crate::{Routes, answer};

const EVENTS_MAX: usize = 1000;
const STATES: [(&str, bool); 2] = [("lazy", false), ("eager", true)];

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Join {
    /// 1 by default.
    weight: Option<u32>,
    /// Bound on the worker's share.
    tasks_max: Option<u32>,
    /// False for a worker that reads the topics by itself.
    deliver: Option<bool>,
    /// `lazy`, the default, or `eager`: before a planned move brings a task, its state may be read.
    state: Option<String>,
}

/// A worker's session.
#[derive(Debug, Serialize, JsonSchema)]
struct JoinedApp {
    /// Value of the header `Stafett-Worker` of later requests.
    token: String,
    worker_timeout_ms: u64,
    tasks: usize,
    /// Share of the worker.
    target: u32,
    /// Claims that an earlier session of the worker had, and that stay.
    resumed: Vec<Resumed>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Resumed {
    task: String,
    epoch: u64,
    /// Number of the last commit.
    seq: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Poll {
    /// Number of the last event that was handled; 0 by default.
    #[serde(default)]
    after: u64,
    /// Time to wait for an event, up to half of the worker's time-out.
    #[serde(default)]
    wait_ms: u64,
    events_max: Option<usize>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppEvents")]
struct Events {
    /// Events behind `after`; those up to it are forgotten.
    events: Vec<EventShown>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WantedClaims {
    /// Certain tasks.
    #[serde(default)]
    tasks: Vec<String>,
    /// Up to this many free tasks.
    #[serde(default)]
    count: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ClaimedTasks {
    /// Tasks whose claims come as events.
    claimed: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AppClaim")]
pub(super) struct NamedClaim {
    pub(super) task: String,
    pub(super) epoch: u64,
}

impl NamedClaim {
    pub(super) fn read(&self) -> Result<Claim, Problem> {
        let (task, epoch) = (task(&self.task)?, self.epoch);
        Ok(Claim { task, epoch })
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Beat {
    /// Load of tasks, as shares of a core.
    #[serde(default)]
    load: BTreeMap<String, f64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Answer to a command that has nothing to say.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "AppDone")]
pub(super) struct Done {}

/// Path of all commands, which their names follow.
pub(crate) const COMMAND_PATH: &str = "/v1/apps/{app}/workers/{worker}/";

macro_rules! command {
    ($word:literal) => {
        concat!("/v1/apps/{app}/workers/{worker}/", $word)
    };
}
pub(super) use command;

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            post(
                command!("join"),
                "Joins an app. A later session under the name takes over from an earlier one.",
            )
            .body::<Join>()
            .answers::<JoinedApp>(200)
            .refuses(&[Code::NotServing, Code::NoSuchApp, Code::TooManyWorkers]),
            join,
        )
        .route(
            post(
                command!("poll"),
                "Fetches events of a worker. It is a sign of life, as every command.",
            )
            .body::<Poll>()
            .answers::<Events>(200)
            .refuses(&WORKERS),
            poll,
        )
        .route(
            post(
                command!("claim"),
                "Claims free tasks. As a rule the broker gives them.",
            )
            .body::<WantedClaims>()
            .answers::<ClaimedTasks>(200)
            .refuses(&WORKERS)
            .refuses(&[Code::Taken, Code::OverShare, Code::Pinned, Code::Draining]),
            claim,
        )
        .with(claim_routes)
}

fn claim_routes(routes: Routes) -> Routes {
    routes
        .route(
            post(command!("release"), "Gives a task back, after its last commit.")
                .body::<NamedClaim>()
                .answers::<Done>(200)
                .refuses(&WORKERS),
            release,
        )
        .route(
            post(
                command!("prepared"),
                "Says that the state of a task that is about to come was read.",
            )
            .body::<NamedClaim>()
            .answers::<Done>(200)
            .refuses(&WORKERS),
            prepared,
        )
        .route(
            post(
                command!("beat"),
                "Gives a sign of life, and reports the load of tasks.",
            )
            .body::<Beat>()
            .answers::<Done>(200)
            .refuses(&WORKERS),
            beat,
        )
        .route(
            post(
                command!("leave"),
                "Leaves the app: all tasks go to others at once.",
            )
            .body::<Nothing>()
            .answers::<Done>(200)
            .refuses(&WORKERS),
            leave,
        )
        .route(
            post(
                command!("accept_gap"),
                "Goes on behind a range of records that is gone.",
            )
            .body::<NamedClaim>()
            .answers::<Done>(200)
            .refuses(&WORKERS),
            accept_gap,
        )
}

/// Names of an app and of a worker.
pub(super) type Names = Path<(String, String)>;

async fn join(
    State(broker): State<Slot<Broker>>,
    Path((name, worker)): Names,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Join = body::json(request).await?;
    check_name(&worker)?;
    let app = find(&*broker.get()?, &name)?;
    let spec = JoinSpec {
        weight: wanted.weight.unwrap_or(1),
        tasks_max: wanted.tasks_max,
        deliver: wanted.deliver.unwrap_or(true),
        eager: word("state", wanted.state.as_deref(), &STATES)?,
    };
    let joined = app.join(&worker, spec).map_err(|why| of_app(&why))?;
    app.settled(&joined).await;
    let number = joined.session;
    let session = Session::new(&worker, number);
    let resumed = joined.resumed.iter().map(|(task, epoch)| {
        let (task, epoch) = (*task, *epoch);
        let view = app.claim_view(session, Claim { task, epoch });
        Resumed {
            task: task.to_string(),
            epoch,
            seq: view.map(|view| view.position.seq),
        }
    });
    let stored = app.stored();
    let shown = JoinedApp {
        token: token(number),
        worker_timeout_ms: stored.definition.worker_timeout_ms,
        tasks: stored.tasks.len(),
        target: joined.target,
        resumed: resumed.collect(),
    };
    Ok(answer(StatusCode::OK, &shown))
}

/// Refuses names that no worker can have.
pub(super) fn check_name(worker: &str) -> Result<(), Problem> {
    if worker.is_empty() || worker.len() > NAME_BYTES_MAX || worker.chars().any(char::is_control) {
        let why = "a worker's name has 1 to 249 bytes and no control characters";
        return Err(Problem::bad_request(why).with("field", "worker"));
    }
    Ok(())
}

/// Returns the wait of a command, which ends before the worker counts as silent.
pub(super) fn wait_of(app: &App, wait_ms: u64) -> Duration {
    Duration::from_millis(wait_ms.min(app.stored().definition.worker_timeout_ms / 2))
}

async fn poll(
    State(broker): State<Slot<Broker>>,
    Draining(draining): Draining,
    Path((name, worker)): Names,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Poll = body::json(request).await?;
    let session = session(&worker, &headers)?;
    let app = find(&*broker.get()?, &name)?;
    let max = wanted.events_max.unwrap_or(100).clamp(1, EVENTS_MAX);
    let wait = wait_of(&app, wanted.wait_ms);
    let wait = async {
        let _ended = draining.run_until_cancelled(tokio::time::sleep(wait)).await;
    };
    let events = app.poll(session, wanted.after, max, wait).await;
    let mut shown = Vec::new();
    for event in events.map_err(|why| of_app(&why))? {
        shown.push(EventShown::of(&app, session, event).await);
    }
    Ok(answer(StatusCode::OK, &Events { events: shown }))
}

async fn claim(
    State(broker): State<Slot<Broker>>,
    Path((name, worker)): Names,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: WantedClaims = body::json(request).await?;
    let session = session(&worker, &headers)?;
    let app = find(&*broker.get()?, &name)?;
    let tasks = wanted
        .tasks
        .iter()
        .map(|name| task(name))
        .collect::<Result<_, _>>()?;
    let claimed = app
        .claim(session, tasks, wanted.count)
        .map_err(|why| of_app(&why))?;
    let claimed = claimed.iter().map(ToString::to_string).collect();
    Ok(answer(StatusCode::OK, &ClaimedTasks { claimed }))
}

async fn release(
    State(broker): State<Slot<Broker>>,
    Path((name, worker)): Names,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: NamedClaim = body::json(request).await?;
    let session = session(&worker, &headers)?;
    let app = find(&*broker.get()?, &name)?;
    let released = app.release(session, wanted.read()?).await;
    released.map_err(|why| of_app(&why))?;
    Ok(answer(StatusCode::OK, &Done {}))
}

async fn prepared(
    State(broker): State<Slot<Broker>>,
    Path((name, worker)): Names,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: NamedClaim = body::json(request).await?;
    let session = session(&worker, &headers)?;
    let app = find(&*broker.get()?, &name)?;
    let claim = wanted.read()?;
    app.prepared(session, claim.task).map_err(|why| of_app(&why))?;
    Ok(answer(StatusCode::OK, &Done {}))
}

async fn beat(
    State(broker): State<Slot<Broker>>,
    Path((name, worker)): Names,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Beat = body::json(request).await?;
    let session = session(&worker, &headers)?;
    let app = find(&*broker.get()?, &name)?;
    let mut loads = Vec::with_capacity(wanted.load.len());
    for (name, load) in &wanted.load {
        if !(0.0..=1e6).contains(load) {
            return Err(Problem::bad_request("a load is a share of a core, from 0").with("field", "load"));
        }
        let thousandths = Duration::from_secs_f64(*load).as_millis();
        loads.push((task(name)?, u64::try_from(thousandths).unwrap_or(u64::MAX)));
    }
    app.report_load(session, &loads).map_err(|why| of_app(&why))?;
    Ok(answer(StatusCode::OK, &Done {}))
}

async fn leave(
    State(broker): State<Slot<Broker>>,
    Path((name, worker)): Names,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let Nothing {} = body::json(request).await?;
    let session = session(&worker, &headers)?;
    let app = find(&*broker.get()?, &name)?;
    app.leave(session).map_err(|why| of_app(&why))?;
    Ok(answer(StatusCode::OK, &Done {}))
}

async fn accept_gap(
    State(broker): State<Slot<Broker>>,
    Path((name, worker)): Names,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: NamedClaim = body::json(request).await?;
    let session = session(&worker, &headers)?;
    let app = find(&*broker.get()?, &name)?;
    let claim = wanted.read()?;
    app.check(session, claim).map_err(|why| of_app(&why))?;
    app.accept_gap(claim.task).map_err(|why| of_app(&why))?;
    Ok(answer(StatusCode::OK, &Done {}))
}
