//! The clients that users take, librdkafka and lapin, in a program of their own: `stafett-lab-clients`. One
//! takes a C compiler and a minute to build, the other 75 crates, and neither the broker nor the lean drivers
//! need them.
//!
//! ```text
//! stafett lab run                          stafett-lab-clients attend
//! ── orders to an agent ([`crate::agents`]) ──▶ stdin
//!                                          stdout ◀── reports of an agent
//! ```
//!
//! It is an agent that one controller starts, on the same machine, for one point: it runs the load alone, as
//! this program would, on other drivers; it watches the system's processes and its own, and reports
//! all results in the end. Topics are made and deleted by the lean drivers. A program that dies, reports
//! nonsense, or falls silent is that point's result.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::TaskTracker;

use crate::agents::controller::Order;
use crate::agents::link::{Link, Member, Report};
use crate::agents::protocol::{Alone, Described, FromAgent, OfLoad, Question, ToAgent};
use crate::drivers::DriverError;
use crate::experiment::{Plan, Protocol};
use crate::systems::process::last_words;
use crate::workload::client_placement::Seating;
use crate::workload::{Loaded, filter};

/// The program.
pub const PROGRAM: &str = "stafett-lab-clients";
/// Its argument when the lab starts it.
pub const ATTEND: &str = "attend";
/// The command that builds it, in a checkout.
pub const BUILD: &str = "make lab-clients";

const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// A load may take so much longer than its plan says.
const GRACE: Duration = Duration::from_mins(5);
/// Time that it may take to end when it is told to.
const STOPPED_WITHIN: Duration = Duration::from_mins(2);
const ENDED_WITHIN: Duration = Duration::from_secs(10);
const REPORTS_WAITING: usize = 64;

/// The program: the one that was given, or the one beside this program's own file.
/// An error says how it is built.
pub fn find(given: Option<&Path>, exe: &Path) -> Result<PathBuf, String> {
    if let Some(given) = given {
        let missing = || format!("{}: there is no such program (--clients)", given.display());
        return given.is_file().then(|| given.to_owned()).ok_or_else(missing);
    }
    let beside = exe.with_file_name(PROGRAM);
    if beside.is_file() {
        return Ok(beside);
    }
    Err(format!(
        "driver = \"client\" needs the program {PROGRAM}, which has librdkafka and lapin: `{BUILD}` builds it in a \
         checkout; it is looked for at {} unless --clients names it",
        beside.display()
    ))
}

/// Returns the driver's name in results.
pub fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Kafka => "librdkafka",
        Protocol::Amqp => "lapin",
        Protocol::Live => "live",
        Protocol::Http => "http",
    }
}

/// The program at work.
#[derive(Debug)]
pub(crate) struct Client {
    member: Member,
    reports: mpsc::Receiver<((), Report)>,
    process: Option<Child>,
    /// File of its standard error.
    errors: PathBuf,
    loads: u64,
    tasks: TaskTracker,
}

impl Client {
    /// Starts the program; its messages for people go to a file in `logs`.
    pub(crate) async fn start(program: &Path, logs: &Path) -> Result<Self, DriverError> {
        let mut command = Command::new(program);
        command.arg(ATTEND);
        Self::spawn(command, logs).await
    }

    async fn spawn(mut command: Command, logs: &Path) -> Result<Self, DriverError> {
        let failed = |error: std::io::Error| {
            DriverError::Failed(format!("the client program cannot be started: {error}"))
        };
        std::fs::create_dir_all(logs).map_err(failed)?;
        let errors = logs.join("clients.err");
        // A group of its own: an interrupt of the terminal is for the lab, which then ends it in order.
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).map_err(failed)?)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let ends = process.stdout.take().zip(process.stdin.take());
        let Some((reader, writer)) = ends else {
            return Err(DriverError::Failed("the client program has no pipes".to_owned()));
        };
        match Self::over(reader, writer).await {
            Ok(client) => Ok(Self {
                process: Some(process),
                errors,
                ..client
            }),
            Err(reason) => Err(gone(&mut Some(process), &errors, &reason).await),
        }
    }

    /// Introduces itself to a program that is there already.
    async fn over<R, W>(reader: R, writer: W) -> Result<Self, String>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let met = timeout(ANSWERS_WITHIN, Link::meet(reader, writer, None)).await;
        let link = met.unwrap_or_else(|_| Err(silence()))?;
        let (told, reports) = mpsc::channel(REPORTS_WAITING);
        let tasks = TaskTracker::new();
        Ok(Self {
            member: link.keep((), told, &tasks),
            reports,
            process: None,
            errors: PathBuf::new(),
            loads: 0,
            tasks,
        })
    }

    /// Asks for the client that would send to a system and receive from it, and the features that it lacks.
    pub(crate) async fn describe(&mut self, system: &str, plan: &Plan) -> Result<Described, DriverError> {
        let question = Question {
            plan: filter::taken_out(plan),
            system: system.to_owned(),
        };
        self.member.tell(ToAgent::Describe(Box::new(question))).await;
        let deadline = Instant::now() + ANSWERS_WITHIN;
        loop {
            // The rest is of a load that is over.
            match self.next(deadline).await {
                Ok(FromAgent::Driver(described)) => return Ok(described),
                Ok(FromAgent::Load { .. } | FromAgent::Pong(_) | FromAgent::Flooded(_)) => {}
                Err(gone) => return Err(self.gone(&gone.unwrap_or_else(silence)).await),
            }
        }
    }

    /// The next that it says, or why it says nothing more; without a reason where it did not say anything in
    /// time. Safe to drop.
    async fn next(&mut self, deadline: Instant) -> Result<FromAgent, Option<String>> {
        match timeout_at(deadline, self.reports.recv()).await {
            Ok(Some(((), Report::Said(said)))) => Ok(said),
            Ok(Some(((), Report::Gone(reason)))) => Err(Some(reason)),
            Ok(None) => Err(Some("it ended".to_owned())),
            Err(_) => Err(None),
        }
    }

    /// Runs a load.
    pub(crate) async fn run(&mut self, order: Order, ends_early: bool) -> Result<Loaded, DriverError> {
        self.loads += 1;
        let alone = Alone {
            brokers: order.brokers.clone(),
            ends_early,
        };
        let preparation = order.preparation(self.loads, Seating::default(), Some(alone));
        self.member.tell(ToAgent::Prepare(Box::new(preparation))).await;
        let run = &order.plan.run;
        let meant = run.warmup.0 + run.duration.0 + run.settle.0.saturating_mul(6);
        let mut deadline = Instant::now() + meant + GRACE;
        let mut is_stopped = false;
        loop {
            let said = tokio::select! {
                () = order.stop.cancelled(), if !is_stopped => {
                    // Results so far are still of interest.
                    self.member.tell(ToAgent::Abandon).await;
                    is_stopped = true;
                    deadline = deadline.min(Instant::now() + STOPPED_WITHIN);
                    continue;
                }
                said = self.next(deadline) => said,
            };
            match said {
                Ok(FromAgent::Load { load, said }) if load == self.loads => match said {
                    OfLoad::Second(second) => (order.on_second)(&second),
                    OfLoad::Done(loaded) => return Ok(*loaded),
                    OfLoad::Failed(error) => return Err(error),
                    // Only from hosts that share a load.
                    OfLoad::Progress(_) | OfLoad::Seconds(_) => {}
                },
                // A report of a load that is over.
                Ok(
                    FromAgent::Load { .. }
                    | FromAgent::Pong(_)
                    | FromAgent::Flooded(_)
                    | FromAgent::Driver(_),
                ) => {}
                Err(gone) => {
                    let reason = gone.unwrap_or_else(|| "its load did not come to an end".to_owned());
                    return Err(self.gone(&reason).await);
                }
            }
        }
    }

    async fn gone(&mut self, reason: &str) -> DriverError {
        gone(&mut self.process, &self.errors, reason).await
    }

    /// Lets it end in order, and makes it if it does not.
    pub(crate) async fn end(self) {
        let Self {
            member,
            process,
            tasks,
            ..
        } = self;
        // Without a sender of orders its standard input is closed.
        drop(member);
        tasks.close();
        tasks.wait().await;
        if let Some(mut process) = process
            && timeout(ENDED_WITHIN, process.wait()).await.is_err()
        {
            let _ = process.kill().await;
        }
    }
}

fn silence() -> String {
    format!("it said nothing for {} s", ANSWERS_WITHIN.as_secs())
}

/// Ends a program that is of no use any more, and returns how it ended, or else `reason`.
async fn gone(process: &mut Option<Child>, errors: &Path, reason: &str) -> DriverError {
    let mut how = reason.to_owned();
    if let Some(mut process) = process.take() {
        // It may be about to end.
        match timeout(Duration::from_secs(1), process.wait()).await {
            Ok(Ok(status)) => how = format!("it ended with {status}"),
            Ok(Err(_)) | Err(_) => {
                let _ = process.kill().await;
            }
        }
    }
    DriverError::Failed(format!("the client program: {how}{}", last_words(errors)))
}
