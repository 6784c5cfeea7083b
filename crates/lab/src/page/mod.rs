//! The lab as a web page: experiments, runs and their results over HTTP, for the page of `stafett lab serve`
//! and for programs.
//!
//! Truth is in files; this keeps no state of its own but the queue, which is a file too. Each run is a
//! program of its own ([`queue`]), so that neither the end of this process ends a run, nor the reverse. A
//! run that was begun on the command line in the same folder is shown like any other.
//!
//! - [`experiments`]: experiments that come with the program, and own ones; `check`: plans of runs; `edit`:
//!   changes of a text
//! - [`runs`]: runs, their points and notes; `known`: runs that were read before; [`notes`]: remarks about a
//!   run; [`events`]: a run as it goes on
//! - [`agents`]: other machines that carry load; [`machines`]: their preparation over ssh; [`builds`]:
//!   programs of other revisions; [`jobs`]: such work, step by step; [`login`]: the logins of the page
//! - [`queue`]: runs that wait, and the one that is under way
//! - [`analysis`]: series of points and of performance logs, and [`charts`]: those that were kept
//! - [`compare`]: runs beside each other; [`files`]: logs and downloads; [`laws`], [`models`]: operational
//!   laws and queueing models

mod again;
mod agents;
mod analysis;
mod builds;
mod charts;
mod check;
mod compare;
mod edit;
mod events;
mod experiments;
mod files;
mod jobs;
mod known;
pub mod laws;
mod login;
mod machines;
pub mod models;
mod notes;
mod queue;
mod runs;

pub use login::Logins;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::response::Redirect;
use axum::routing::{any, get};
use prometheus_client::registry::Registry;
use serde_json::Value;
use stafett_http::openapi;
use stafett_http::stamped;
use stafett_http::{Access, Api, Code, HttpServer, Policy, Problem};
use stafett_net::{
    BindError, BudgetSettings, ByteBudget, Listener, ListenerSettings, NetMetrics, Shared, Shutdown,
};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Bytes of request bodies that are held at a time.
const BODIES_BYTES_MAX: usize = 64 << 20;
const CONNECTIONS_MAX: usize = 1000;

/// Settings of the page's process.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `HOST:PORT` of this machine's loopback.
    pub listen: String,
    /// Folder of all runs.
    pub runs: PathBuf,
    /// Folder of own experiments.
    pub experiments: PathBuf,
    /// This program, which is started for each run.
    pub exe: PathBuf,
    /// File with the secret of agents.
    pub secret_file: Option<PathBuf>,
    /// Logins, one of which every request needs.
    pub login: Option<Logins>,
    /// Checkout of which revisions are built.
    pub source: PathBuf,
}

/// Reason why the page is not served.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    #[error(
        "{0}: the page starts programs for everyone that reaches it, so without logins (--login-file) it listens on \
         loopback only, as 127.0.0.1:7072"
    )]
    NotLoopback(SocketAddr),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("{} cannot be used: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("the address cannot be read: {0}")]
    Address(io::Error),
}

/// The lab's folders and its queue. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Lab {
    settings: Arc<Settings>,
    queue: Arc<queue::Queue>,
    runs: Arc<known::Known>,
    agents: Arc<agents::List>,
    jobs: Arc<jobs::Jobs>,
    tasks: TaskTracker,
    /// The end of the process.
    stop: CancellationToken,
}

/// Serves until `stop`; `ready` gets the address.
pub async fn serve(
    settings: Settings,
    ready: impl FnOnce(SocketAddr),
    stop: CancellationToken,
) -> Result<(), PageError> {
    let addresses = stafett_net::resolve(&settings.listen).await?;
    let far = addresses.iter().find(|address| !address.ip().is_loopback());
    if let Some(far) = far.filter(|_| settings.login.is_none()) {
        return Err(PageError::NotLoopback(*far));
    }
    for path in [&settings.runs, &settings.experiments] {
        std::fs::create_dir_all(path).map_err(|source| PageError::Folder {
            path: path.clone(),
            source,
        })?;
    }
    let queue = queue::Queue::open(&settings.runs).map_err(|source| PageError::Folder {
        path: settings.runs.join(queue::FILE),
        source,
    })?;
    let agents = agents::List::open(&settings.runs).map_err(|source| PageError::Folder {
        path: settings.runs.join(agents::FILE),
        source,
    })?;
    let tasks = TaskTracker::new();
    let lab = Lab {
        settings: Arc::new(settings),
        queue: Arc::new(queue),
        runs: Arc::default(),
        agents: Arc::new(agents),
        jobs: Arc::default(),
        tasks: tasks.clone(),
        stop: stop.clone(),
    };
    let mut registry = Registry::default();
    let metrics = NetMetrics::register(&mut registry);
    let listening = ListenerSettings::new("lab", CONNECTIONS_MAX);
    let listener = Listener::bind(&addresses, listening, &metrics)?;
    ready(listener.local_addr().map_err(PageError::Address)?);
    let shutdown = Shutdown::new();
    let budget = ByteBudget::new(BudgetSettings {
        bytes: BODIES_BYTES_MAX,
    });
    let server = Arc::new(HttpServer::new(routes(lab.clone())));
    tasks.spawn(stafett_net::serve(
        listener,
        server,
        Shared::new(shutdown.clone(), budget),
    ));
    tokio::select! {
        () = queue::run(lab) => {}
        () = stop.cancelled() => {}
    }
    shutdown.abort();
    tasks.close();
    tasks.wait().await;
    Ok(())
}

fn routes(lab: Lab) -> Router {
    let (api, login) = (api(), lab.settings.login.clone());
    let document = document(&api);
    let described = api.into_router().with_state(lab);
    let all = described
        .route(
            "/lab/v1/openapi.json",
            get(move || async move { axum::Json(document) }),
        )
        .route("/lab/v1/{*path}", any(no_such_path))
        .route("/", get(|| async { Redirect::temporary("/lab/") }))
        .merge(stafett_console::lab_router())
        .fallback(no_such_path);
    stamped(Policy::Api(Access::default()).guard(login::guard(login, all)))
}

fn api() -> Api<Lab> {
    Api::default()
        .with(experiments::routes)
        .with(check::routes)
        .with(runs::routes)
        .with(queue::routes)
        .with(events::routes)
        .with(files::routes)
        .with(laws::routes)
        .with(models::routes)
        .with(compare::routes)
        .with(edit::routes)
        .with(agents::routes)
        .with(machines::routes)
        .with(builds::routes)
        .with(analysis::routes)
        .with(charts::routes)
        .with(again::routes)
        .with(login::routes)
}

fn document(api: &Api<Lab>) -> Value {
    openapi::document(
        "Stafett's lab",
        env!("CARGO_PKG_VERSION"),
        "Experiments, runs and their results.",
        api.endpoints(),
    )
}

async fn no_such_path(uri: axum::http::Uri) -> Problem {
    let why = format!(
        "there is no {}; /lab/v1/openapi.json describes what there is",
        uri.path()
    );
    Problem::new(Code::NoSuchPath, why)
}

/// Returns the name if it can be the name of a file in one of the lab's folders.
fn checked_name(name: &str) -> Result<&str, Problem> {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    if name.is_empty() || name.len() > 128 || name.starts_with('.') || !name.chars().all(is_plain) {
        let why =
            "a name has 1 to 128 letters, digits, points, hyphens and underscores, and no point in front";
        return Err(Problem::bad_request(why));
    }
    Ok(name)
}

/// Refuses a request because a file could not be read or written.
fn failed(what: &str, error: &io::Error) -> Problem {
    let code = if error.kind() == io::ErrorKind::StorageFull {
        Code::DiskFull
    } else {
        Code::Unreadable
    };
    Problem::new(code, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests;
