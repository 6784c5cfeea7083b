//! The runner started, told of changes, and started again.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use stafett_broker::{Broker, SinkError, StoredSink};
use stafett_net::EVENTS;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::desk::{Answer, Asked, SinksHere};
use super::process::{Process, Said};
use super::words::{FromRunner, Orders, ToRunner, Wanted, line};
use crate::serve::Process as ServerProcess;

/// Waits before another start; after the last one the same again.
const WAITS_S: [u64; 7] = [1, 2, 4, 8, 16, 32, 60];
/// A runner that lasted this long has no failures behind it.
const LASTED: Duration = Duration::from_mins(1);
/// Time for gathered rows to be written when the broker stops.
pub(crate) const END_MAX: Duration = Duration::from_secs(3);
/// The same when there are no more sinks.
const IDLE_END_MAX: Duration = Duration::from_secs(30);
/// Silence of a runner behind which it is killed. It tells the states each second.
const SILENCE_MAX: Duration = Duration::from_mins(1);

/// Surroundings of the runner.
#[derive(Debug, Clone)]
struct Setup {
    kafka: Option<SocketAddr>,
    http: Option<SocketAddr>,
    threads: usize,
    webhook_allow: Vec<String>,
}

/// The task that has the runner.
#[derive(Debug)]
pub(crate) struct Supervisor {
    stop: CancellationToken,
    task: JoinSet<()>,
}

impl Supervisor {
    /// Starts the runner once there are sinks, unless the settings forbid it.
    pub(crate) fn start(
        process: &ServerProcess,
        broker: &Arc<Broker>,
        [kafka, http]: [Option<SocketAddr>; 2],
    ) -> Self {
        let (desk, settings) = (&process.sinks, &process.settings.sinks);
        desk.set_broker(broker);
        let hosts = settings.webhook_allow.split(',').map(str::trim);
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        if let Some(questions) = desk.take_questions().filter(|_| settings.run) {
            let work = Work {
                broker: Arc::clone(broker),
                desk: Arc::clone(desk),
                setup: Setup {
                    kafka,
                    http,
                    threads: usize::try_from(settings.threads).unwrap_or(1),
                    webhook_allow: hosts.filter(|host| !host.is_empty()).map(str::to_owned).collect(),
                },
                changes: broker.sinks().changes(),
                questions,
                pending: HashMap::new(),
                number: 0,
            };
            task.spawn(work.run(stop.clone()));
        }
        Self { stop, task }
    }

    /// Ends the runner, which writes its gathered rows. Returns the time that this took.
    pub(crate) async fn end(mut self) -> Duration {
        let begun = Instant::now();
        self.stop.cancel();
        // A runner that takes longer is killed with the task.
        let _ = timeout(END_MAX, self.task.join_next()).await;
        begun.elapsed()
    }
}

struct Work {
    broker: Arc<Broker>,
    desk: Arc<SinksHere>,
    setup: Setup,
    changes: watch::Receiver<u64>,
    questions: mpsc::Receiver<Asked>,
    /// Questions without an answer.
    pending: HashMap<u64, oneshot::Sender<Answer>>,
    number: u64,
}

/// End of a runner.
enum End {
    Stopped,
    /// There are no more sinks.
    Idle,
    Died(String),
}

impl Work {
    async fn run(mut self, stop: CancellationToken) {
        let mut failures = 0;
        loop {
            if stop.run_until_cancelled(self.wanted()).await.is_none() {
                return;
            }
            let started = Instant::now();
            let end = match self.start() {
                Ok(process) => self.serve(process, &stop).await,
                Err(why) => End::Died(why),
            };
            self.pending.clear();
            self.desk.forget_states();
            let why = match end {
                End::Stopped => return,
                End::Idle => continue,
                End::Died(why) => why,
            };
            if started.elapsed() > LASTED {
                failures = 0;
            }
            let wait = WAITS_S.get(failures).or(WAITS_S.last()).copied().unwrap_or(1);
            failures += 1;
            self.desk.on_restart();
            tracing::warn!(target: EVENTS, kind = "sinks.runner_ended", why, again_in_s = wait,
                "the runner of the sinks has ended");
            if stop
                .run_until_cancelled(sleep(Duration::from_secs(wait)))
                .await
                .is_none()
            {
                return;
            }
        }
    }

    /// Waits until there is a sink.
    async fn wanted(&mut self) {
        while self.broker.sinks().all().is_empty() {
            tokio::select! {
                changed = self.changes.changed() => {
                    if changed.is_err() {
                        return std::future::pending().await;
                    }
                }
                // Its sender learns that there is no runner.
                Some(asked) = self.questions.recv() => drop(asked),
            }
        }
    }

    fn start(&self) -> Result<Process, String> {
        if self.setup.kafka.is_none() || self.setup.http.is_none() {
            return Err("it needs the plain listeners, kafka.listen and http.listen".to_owned());
        }
        let program = std::env::current_exe().map_err(|why| why.to_string())?;
        let mut command = Command::new(program);
        command.args(["sink", "runner"]);
        Process::spawn(command).map_err(|why| why.to_string())
    }

    async fn serve(&mut self, mut process: Process, stop: &CancellationToken) -> End {
        let mut heard = Instant::now();
        loop {
            self.changes.mark_unchanged();
            let orders = self.orders();
            if orders.sinks.is_empty() {
                return self
                    .ended(process, IDLE_END_MAX)
                    .await
                    .map_or(End::Idle, End::Died);
            }
            if !process.tell(line(&ToRunner::Run(orders))) {
                return End::Died("it takes no orders".to_owned());
            }
            loop {
                tokio::select! {
                    () = stop.cancelled() => {
                        let _ = self.ended(process, END_MAX).await;
                        return End::Stopped;
                    }
                    changed = self.changes.changed() => match changed {
                        Ok(()) => break,
                        Err(_) => return End::Stopped,
                    },
                    Some(asked) = self.questions.recv() => self.ask(&process, asked),
                    () = sleep_until(heard + SILENCE_MAX) => {
                        return End::Died("it has said nothing for too long".to_owned());
                    }
                    said = process.listen() => match said {
                        Said::Line(said) => {
                            heard = Instant::now();
                            self.hear(&said).await;
                        }
                        Said::Ended(why) => return End::Died(why),
                    },
                }
            }
        }
    }

    /// Has a runner end. Returns how, if it was not asked to end that way.
    async fn ended(&mut self, mut process: Process, time: Duration) -> Option<String> {
        process.close();
        let heard = async {
            loop {
                if let Said::Ended(_) = process.listen().await {
                    return;
                }
            }
        };
        timeout(time, heard)
            .await
            .err()
            .map(|_| "it did not end in time".to_owned())
    }

    fn orders(&self) -> Orders {
        let address = |address: Option<SocketAddr>| {
            address.map_or_else(String::new, |address| {
                crate::announce::reachable(address).to_string()
            })
        };
        let wanted = |(name, sink): (Box<str>, Arc<StoredSink>)| {
            let wanted = Wanted {
                definition: sink.definition.to_string(),
                rests: sink.rests,
            };
            (name.into_string(), wanted)
        };
        Orders {
            kafka: address(self.setup.kafka),
            http: address(self.setup.http),
            secret: self.broker.access().own_secret().to_owned(),
            threads: self.setup.threads,
            webhook_allow: self.setup.webhook_allow.clone(),
            sinks: self.broker.sinks().all().into_iter().map(wanted).collect(),
        }
    }

    fn ask(&mut self, process: &Process, asked: Asked) {
        self.number += 1;
        let question = ToRunner::Ask {
            number: self.number,
            sink: asked.sink,
            question: asked.question,
        };
        // Those that gave up waiting need no answer.
        self.pending.retain(|_, reply| !reply.is_closed());
        if process.tell(line(&question)) {
            self.pending.insert(self.number, asked.reply);
        }
    }

    async fn hear(&mut self, said: &str) {
        match serde_json::from_str(said) {
            Ok(FromRunner::States(states)) => self.desk.set_states(states),
            Ok(FromRunner::Answer { number, answer }) => {
                if let Some(reply) = self.pending.remove(&number) {
                    // The request may have given up.
                    let _ = reply.send(answer);
                }
            }
            Ok(FromRunner::Paused(name)) => {
                let rest = |before: Option<&StoredSink>| {
                    let before = before.ok_or(SinkError::NoSuchSink)?;
                    Ok(Some(StoredSink {
                        rests: true,
                        ..before.clone()
                    }))
                };
                if let Err(why) = self.broker.edit_sink(&name, rest).await {
                    tracing::warn!(sink = name, "its pause is not stored: {why}");
                }
            }
            Err(why) => tracing::warn!("the runner of the sinks said something unknown: {why}"),
        }
    }
}
