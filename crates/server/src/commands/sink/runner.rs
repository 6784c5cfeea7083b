//! The sinks that a broker keeps, in a process that it starts: orders come on standard input, and states go
//! to standard output. It ends with its input, and at once with the broker.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Signal, set_parent_process_death_signal};
use stafett_admin::sinks::SinkState;
use stafett_kafka_client::{Login, Options};
use stafett_sinks::broker::Servers;
use stafett_sinks::status::Status;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::kept::{Asked, Kept};
use super::run::{log_to_stderr, steps};
use crate::sinks::shown;
use crate::sinks::words::{FromRunner, Orders, ToRunner, Wanted, line};

const LINES: usize = 16;
const TOLD: usize = 64;
/// Interval of states.
const STATES: Duration = Duration::from_secs(1);
/// Time for all sinks to end.
const END_MAX: Duration = Duration::from_secs(30);
/// Priority below that of the broker.
const NICE: i32 = 5;
/// Name of the broker's own programs at their login; the secret counts.
const USER: &str = "stafett";

/// Runs the sinks of the broker until its pipe is closed.
pub(super) fn run() -> anyhow::Result<()> {
    log_to_stderr();
    // Also while it is stopped, or in the middle of a flush. Where that cannot be had it ends with its pipe.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // A lower priority is not necessary.
    let _ = rustix::process::nice(NICE);
    let mut first = String::new();
    io::stdin()
        .lock()
        .read_line(&mut first)
        .context("standard input cannot be read")?;
    let Ok(ToRunner::Run(orders)) = serde_json::from_str(&first) else {
        bail!("the broker starts this by itself, with orders on standard input");
    };
    let (sender, lines) = mpsc::channel(LINES);
    thread::Builder::new().name("orders".to_owned()).spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    })?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(orders.threads.max(1))
        .enable_all()
        .build()
        .context("no threads can be started")?;
    let done = runtime.block_on(serve(orders, lines));
    runtime.shutdown_background();
    done
}

/// A sink that runs here.
struct Running {
    wanted: watch::Sender<Wanted>,
    asks: mpsc::Sender<Asked>,
    status: Arc<Status>,
    /// Ends the sink.
    stop: CancellationToken,
}

struct Runner {
    servers: Servers,
    http: String,
    secret: String,
    webhook_allow: Vec<String>,
    steps: stafett_sinks::target::Steps,
    running: BTreeMap<String, Running>,
    tasks: TaskTracker,
    told: mpsc::Sender<FromRunner>,
    pauses: mpsc::Sender<String>,
}

async fn serve(orders: Orders, mut lines: mpsc::Receiver<String>) -> anyhow::Result<()> {
    let (told, mut tells) = mpsc::channel(TOLD);
    let (pauses, mut told_paused) = mpsc::channel(TOLD);
    let options = Options {
        login: Some(Login {
            user: USER.to_owned(),
            password: orders.secret.clone(),
        }),
        ..Options::default()
    };
    let mut runner = Runner {
        servers: Servers::new(vec![orders.kafka.clone()], options),
        http: orders.http.clone(),
        secret: orders.secret.clone(),
        webhook_allow: orders.webhook_allow.clone(),
        steps: steps()?,
        running: BTreeMap::new(),
        tasks: TaskTracker::new(),
        told,
        pauses,
    };
    runner.apply(orders.sinks);
    let mut states = interval(STATES);
    states.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    loop {
        let word = tokio::select! {
            line = lines.recv() => match line {
                Some(line) => {
                    runner.hear(&line);
                    continue;
                }
                None => break,
            },
            _ = states.tick() => FromRunner::States(runner.states()),
            Some(word) = tells.recv() => word,
            Some(name) = told_paused.recv() => FromRunner::Paused(name),
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        };
        // The broker is gone if nothing takes it.
        if io::stdout().write_all(line(&word).as_bytes()).is_err() {
            break;
        }
    }
    for running in runner.running.values() {
        running.stop.cancel();
    }
    runner.tasks.close();
    // Without its broker a sink may wait for ever.
    let _ = timeout(END_MAX, runner.tasks.wait()).await;
    Ok(())
}

impl Runner {
    fn hear(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(ToRunner::Run(orders)) => self.apply(orders.sinks),
            Ok(ToRunner::Ask {
                number,
                sink,
                question,
            }) => {
                let asked = Asked { number, question };
                let known = self
                    .running
                    .get(&sink)
                    .map(|running| running.asks.try_send(asked));
                if !matches!(known, Some(Ok(()))) {
                    let answer = Err(format!("the runner has no sink {sink}, or it is busy"));
                    // The broker gives up waiting if there is no room.
                    let _ = self.told.try_send(FromRunner::Answer { number, answer });
                }
            }
            Err(why) => tracing::warn!("the broker said something unknown: {why}"),
        }
    }

    /// Has exactly these sinks run.
    fn apply(&mut self, mut sinks: BTreeMap<String, Wanted>) {
        self.running.retain(|name, running| {
            let wanted = sinks.remove(name);
            let stays = wanted.is_some();
            if let Some(wanted) = wanted {
                running.wanted.send_if_modified(|now| {
                    let changes = *now != wanted;
                    *now = wanted;
                    changes
                });
            } else {
                running.stop.cancel();
            }
            stays
        });
        for (name, wanted) in sinks {
            let running = self.start(&name, wanted);
            self.running.insert(name, running);
        }
    }

    fn start(&self, name: &str, wanted: Wanted) -> Running {
        let (wanted, received) = watch::channel(wanted);
        let (asks, questions) = mpsc::channel(LINES);
        let status = Arc::new(Status::default());
        let stop = CancellationToken::new();
        let kept = Kept {
            name: name.to_owned(),
            wanted: received,
            questions,
            servers: self.servers.clone(),
            http: stafett_sinks::http::Http::new(&self.http, Some(&self.secret)),
            webhook_allow: self.webhook_allow.clone(),
            steps: self.steps.clone(),
            status: Arc::clone(&status),
            told: self.told.clone(),
            pauses: self.pauses.clone(),
            answers: JoinSet::new(),
            stop: stop.clone(),
        };
        self.tasks.spawn(kept.run());
        Running {
            wanted,
            asks,
            status,
            stop,
        }
    }

    fn states(&self) -> BTreeMap<String, SinkState> {
        let state = |(name, running): (&String, &Running)| (name.clone(), shown(running.status.snapshot()));
        self.running.iter().map(state).collect()
    }
}
