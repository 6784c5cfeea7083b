//! The load tools that the peers' own projects ship: RabbitMQ's `PerfTest` for AMQP, Kafka's performance tests for its
//! protocol. They are what people compare brokers with, so `driver = "tool"` runs them against every system alike.
//!
//! A tool is started for one point by a script of `tools/peers`, watched as the system is, and ended. What it prints is its
//! result: rates second by second, and such latencies as it tells. It looks for no message that is lost or comes twice,
//! and has no histograms; figures that need them are absent. Topics and queues are made and deleted by the lean drivers.
//!
//! - [`parts`]: what every tool can be told of; [`perf_test`], [`kafka_perf`]: plans to command lines, and lines to figures
//! - [`launch`]: what a tool is started with; [`program`]: a process of it
//! - [`told`]: intervals and percentiles; [`load`]: a load from its start to its result

mod kafka_perf;
mod launch;
mod load;
mod parts;
mod perf_test;
mod program;
#[cfg(test)]
mod tests;
mod told;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use self::launch::{Launch, Target};
use self::load::Running;
use self::parts::{Parts, Times};
use self::program::{Program, Said};
use crate::agents::crew::Order;
use crate::drivers::DriverError;
use crate::experiment::{Plan, Protocol};
use crate::run::point::destinations;
use crate::workload::Loaded;

/// The first time jars are fetched.
const READY_WITHIN: Duration = Duration::from_mins(10);
const LINES_WAITING: usize = 16;

/// Which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    PerfTest,
    Kafka,
}

impl Kind {
    fn of(protocol: Protocol) -> Option<Self> {
        match protocol {
            Protocol::Kafka => Some(Self::Kafka),
            Protocol::Amqp => Some(Self::PerfTest),
            Protocol::Live => None,
        }
    }

    /// As its makers write it.
    fn title(self) -> &'static str {
        match self {
            Self::PerfTest => perf_test::NAME,
            Self::Kafka => kafka_perf::NAME,
        }
    }

    /// The script that fetches and starts it.
    fn script(self) -> &'static str {
        match self {
            Self::PerfTest => "rabbitmq",
            Self::Kafka => "kafka",
        }
    }

    fn launches(self, plan: &Plan, target: &Target<'_>) -> Result<Vec<Launch>, String> {
        match self {
            Self::PerfTest => Ok(vec![perf_test::launch(plan, target)?]),
            Self::Kafka => kafka_perf::launches(plan, target),
        }
    }

    fn times(self, plan: &Plan) -> Times {
        match self {
            Self::PerfTest => perf_test::times(plan),
            Self::Kafka => kafka_perf::times(plan),
        }
    }

    fn remark(self) -> &'static str {
        match self {
            Self::PerfTest => {
                "these are PerfTest's own figures: latency counts from the moment at which it sent a message and not from \
                 when that was meant (a stall delays what comes after it, and that is not seen); percentiles are put together \
                 from those of each second, which it takes from about a thousand messages; counts are reckoned from its \
                 rates; nobody looked whether messages were lost or came twice"
            }
            Self::Kafka => {
                "these are the own figures of Kafka's performance tests: latency counts from the moment at which a message \
                 was handed to the client and not from when that was meant (a stall delays what comes after it, and that is \
                 not seen), in whole milliseconds; percentiles are told at a fixed rate alone, and the time to delivery \
                 never; nobody looked whether messages were lost or came twice"
            }
        }
    }
}

/// What the driver is called in results.
pub(crate) fn name(protocol: Protocol) -> Option<&'static str> {
    match Kind::of(protocol)? {
        Kind::Kafka => Some("kafka-perf-test"),
        Kind::PerfTest => Some("perf-test"),
    }
}

/// Whether a driver of that name is a tool.
pub(crate) fn is_name(driver: &str) -> bool {
    Protocol::ALL
        .into_iter()
        .any(|protocol| name(protocol) == Some(driver))
}

/// What the tool for a protocol cannot be told, by its name.
pub(crate) fn lacks(plan: &Plan, protocol: Protocol) -> Option<String> {
    let Some(kind) = Kind::of(protocol) else {
        return Some("nobody ships a load tool for live topics".to_owned());
    };
    let nowhere = Target {
        address: "",
        names: &[],
        settings: &[],
    };
    kind.launches(plan, &nowhere).err()
}

/// A tool that is there.
#[derive(Debug, Clone)]
pub(crate) struct Tool {
    kind: Kind,
    script: PathBuf,
    pub(crate) version: String,
}

impl Tool {
    /// Has the tool for a protocol ready: its script, in `peers`, fetches it.
    ///
    /// # Errors
    /// Says what is missing.
    pub(crate) async fn find(protocol: Protocol, peers: Option<&Path>, logs: &Path) -> Result<Self, String> {
        let kind = Kind::of(protocol).ok_or("nobody ships a load tool for live topics")?;
        let script = peers.map(|folder| folder.join(kind.script()));
        let Some(script) = script.filter(|script| script.exists()) else {
            return Err(format!(
                "driver = \"tool\" needs tools/peers/{}, which fetches and starts {}: run the lab inside a checkout",
                kind.script(),
                kind.title()
            ));
        };
        let version = version(&script, logs).await;
        let version = version.map_err(|reason| format!("{} cannot be run: {reason}", kind.title()))?;
        Ok(Self {
            kind,
            script,
            version,
        })
    }

    /// Runs a load; nothing of it runs any more after that.
    pub(crate) async fn run(&self, order: &Order, logs: &Path) -> Result<Loaded, DriverError> {
        let destinations = destinations(&order.plan, &order.topic_settings, &order.tag);
        let parts = Parts::of(&order.plan, self.kind.title()).map_err(DriverError::Refused)?;
        let used = destinations.get(parts.set);
        let target = Target {
            address: &order.address,
            names: used.map_or(&[], |used| used.names.as_slice()),
            settings: used.map_or(&[], |used| used.settings.as_slice()),
        };
        let launches = self
            .kind
            .launches(&order.plan, &target)
            .map_err(DriverError::Refused)?;
        let times = self.kind.times(&order.plan);
        let running = Running::start((self.kind.title(), times), &self.script, launches, order, logs)?;
        let mut loaded = running.run().await?;
        loaded.remarks.push(self.kind.remark().to_owned());
        Ok(loaded)
    }
}

/// Asks a script for the version of its tool, which is there then.
async fn version(script: &Path, logs: &Path) -> Result<String, String> {
    let mut command = Command::new(script);
    command.arg("tool");
    let (tell, mut told) = mpsc::channel(LINES_WAITING);
    let program = Program::start(command, "tool", logs, 0, tell)?;
    let deadline = Instant::now() + READY_WITHIN;
    let mut version = String::new();
    loop {
        match timeout_at(deadline, told.recv()).await {
            Ok(Some((_, Said::Line(line)))) => version = line,
            Ok(Some((_, Said::Ended(Ok(status))))) if status.success() => return Ok(version),
            Ok(Some((_, Said::Ended(Ok(status))))) => {
                let complaint = program.complaint();
                let complaint = complaint.strip_prefix(": ").map(str::to_owned);
                return Err(complaint.unwrap_or_else(|| format!("{} ended with {status}", script.display())));
            }
            Ok(Some((_, Said::Ended(Err(error))))) => return Err(error),
            Ok(None) => return Err("it ended without a word".to_owned()),
            Err(_) => return Err(format!("it was not ready within {} s", READY_WITHIN.as_secs())),
        }
    }
}
