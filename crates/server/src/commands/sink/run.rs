//! Sinks in this process, and the connections of the other commands about them.

use std::io::{self, Write};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::ArgMatches;
use stafett_kafka_client::{Client, ClientError, Options};
use stafett_sinks::Definition;
use stafett_sinks::broker::Servers;
use stafett_sinks::http::Http;
use stafett_sinks::runner::Runner;
use stafett_sinks::status::{State, Status};
use stafett_sinks::target::{Steps, Surroundings};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, warn};

use super::metrics::{self, Known};
use super::{METRICS, WEBHOOK_ALLOW};
use crate::client::{self, http};
use crate::limits;

/// For tests: the step of a flush at which the process ends, as `STEP:N`.
const DIE_AT: &str = "STAFETT_TEST_DIE_AT";
/// Pause between two attempts to reach the broker.
const AWAY: Duration = Duration::from_secs(1);
/// Time between two lines about a broker that is away.
const WARNED_EVERY: Duration = Duration::from_secs(30);

/// Milliseconds since the first call.
pub(super) fn now_ms() -> u64 {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(BEGIN.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since 1970.
pub(super) fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Runs `work` on threads of its own.
pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(std::thread::available_parallelism().map_or(2, usize::from).max(2))
        .enable_all()
        .build()
        .context("no threads can be started")?;
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    done
}

pub(super) async fn connect(matches: &ArgMatches) -> anyhow::Result<Client> {
    client::connect(matches, options()).await
}

/// Connects; waits for a broker that cannot be reached.
async fn connect_patiently(matches: &ArgMatches) -> anyhow::Result<Client> {
    let (servers, options) = client::connection(matches, options())?;
    let mut warned: Option<Instant> = None;
    loop {
        match Client::connect(&servers, options.clone()).await {
            Ok(client) => return Ok(client),
            Err(
                why
                @ (ClientError::Connect { .. } | ClientError::Closed { .. } | ClientError::Timeout { .. }),
            ) => {
                if warned.is_none_or(|at| at.elapsed() >= WARNED_EVERY) {
                    warned = Some(Instant::now());
                    warn!("waiting for the broker: {why}");
                }
            }
            Err(why) => return Err(why.into()),
        }
        tokio::time::sleep(AWAY).await;
    }
}

fn options() -> Options {
    Options {
        client_id: "stafett-sink".to_owned(),
        ..Options::default()
    }
}

pub(super) fn broker(matches: &ArgMatches) -> anyhow::Result<Http> {
    let (address, token) = http::plain(matches)?;
    Ok(Http::new(&address, token.as_deref()))
}

pub(super) fn steps() -> anyhow::Result<Steps> {
    match std::env::var(DIE_AT) {
        Ok(text) => Steps::dying_at(&text).with_context(|| format!("{DIE_AT} is STEP:N, not {text:?}")),
        Err(_) => Ok(Steps::default()),
    }
}

/// Writes log lines to standard error.
pub(super) fn log_to_stderr() {
    // A second subscriber in the process is refused, and the first one stays.
    let _ = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(io::stderr)
        .with_max_level(tracing::Level::INFO)
        .try_init();
}

/// Returns the surroundings of targets, as the command line has them.
pub(super) fn surroundings(matches: &ArgMatches, steps: Steps) -> anyhow::Result<Surroundings> {
    let (addresses, options) = client::connection(matches, Options::default())?;
    let allowed = matches.try_get_many::<String>(WEBHOOK_ALLOW).ok().flatten();
    Ok(Surroundings {
        steps,
        wall: wall_ms,
        servers: Servers::new(addresses, options),
        webhook_allow: allowed.into_iter().flatten().cloned().collect(),
        ledger: None,
    })
}

/// Answers /metrics, if that is wanted.
async fn answer_scrapes(
    matches: &ArgMatches,
    sinks: impl Iterator<Item = (&Definition, &Arc<Status>)>,
    scrapes: &TaskTracker,
) -> anyhow::Result<()> {
    let Some(address) = matches.get_one::<String>(METRICS) else {
        return Ok(());
    };
    let known = sinks.map(|(sink, status)| Known {
        name: sink.name.clone(),
        to: sink.target.word(),
        status: Arc::clone(status),
    });
    let bound = metrics::serve(address, known.collect(), scrapes).await?;
    writeln!(io::stdout(), "metrics listening on {bound}")?;
    Ok(())
}

/// Runs sinks until a signal.
pub(super) fn run(matches: &ArgMatches, sinks: Vec<Definition>) -> anyhow::Result<()> {
    log_to_stderr();
    // A connection of each partition that is read, and of each that is written.
    limits::raise_descriptors();
    let http = broker(matches)?;
    let surroundings = surroundings(matches, steps()?)?;
    block_on(async {
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let client = tokio::select! {
            client = connect_patiently(matches) => client?,
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
        };
        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        let states: Vec<_> = sinks.iter().map(|_| Arc::new(Status::default())).collect();
        let scrapes = TaskTracker::new();
        answer_scrapes(matches, sinks.iter().zip(&states), &scrapes).await?;
        // They rest by the pause of their apps.
        let (_rests, resting) = watch::channel(false);
        let mut running = Vec::new();
        for (definition, status) in sinks.into_iter().zip(states) {
            let (name, shown) = (definition.name.clone(), Arc::clone(&status));
            let runner = Runner {
                http: http.another(),
                client: client.clone(),
                surroundings: surroundings.clone(),
                status,
                now_ms,
                rests: resting.clone(),
                pauses: None,
                definition,
            };
            let stop = stop.clone();
            running.push(tasks.spawn(async move {
                let ended = runner.run(stop).await;
                if let Err(why) = &ended {
                    // Others may run on.
                    shown.enter(State::Stopped, &why.to_string());
                    error!(sink = name, "the sink does not run: {why}");
                }
                ended
            }));
        }
        tasks.close();
        writeln!(io::stdout(), "ready")?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            // None of them can run.
            () = tasks.wait() => {}
        }
        stop.cancel();
        for sink in running {
            match sink.await {
                Ok(done) => done?,
                Err(_) => bail!("a mistake in Stafett itself: a task has panicked"),
            }
        }
        Ok(())
    })
}
