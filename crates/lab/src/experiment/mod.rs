//! Experiment files: a question, systems, a load, and figures of the answer.
//!
//! A file is TOML. Everything in `[run]`, `[system]`, `[topics.…]`, `[roles.…]` and `[faults.…]` can be
//! varied: `[grid]` names it by its path and lists values, and every combination becomes a point.
//! `docs/lab/README.md` describes each setting. An unknown, malformed or contradictory setting is an error
//! that names its line.
//!
//! - [`read`]: files to experiments, and an experiment with values of its grid to a [`Plan`]
//! - [`check`]: contradictions; `drawable`: figures that roles can give; `scale`: smaller runs
//! - [`system`], [`load`], [`fault`], [`figure`]: the parts of a file
//! - `ranges`: ranges in the grid, which stand for lists; [`fraction`]: the points of a grid
//! - [`units`]: durations and sizes as people write them; [`path`]: names of settings
//! - [`edit`]: changes of a text that keep its comments
//! - [`library`]: the experiments that come with the program

mod assembling;
pub mod check;
mod drawable;
pub mod edit;
pub mod fault;
pub mod figure;
pub mod fraction;
pub mod library;
pub mod load;
pub mod path;
mod ranges;
pub mod read;
mod scale;
pub mod system;
pub mod units;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::grid::{Grid, Parameters};

pub use fault::{Fault, FaultKind};
pub use figure::{Figure, FigureKind};
pub use load::{
    Acks, Adaptive, Arrive, Codec, Content, Delivery, Distribution, Does, DrawnPriority, ExchangeKind, Kill,
    LiveFormat, Priority, Rate, Role, Select, SelectOrder, Session, Size, Steps, Think, TopicKind, Topics,
    Work,
};
pub use read::{ExperimentError, Source};
pub use system::{Own, SystemSettings};
pub use units::{ByteCount, Span};

/// An experiment as a file describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The question, in one sentence.
    pub question: String,
    /// Notes for readers, such as the paper and figure that it follows, and differences.
    #[serde(default)]
    pub note: String,
    /// Names of the systems.
    pub systems: Vec<String>,
    #[serde(default)]
    pub run: RunSettings,
    #[serde(default)]
    pub system: SystemSettings,
    /// Named sets of topics or queues; where there is none, one topic is made for all roles.
    #[serde(default)]
    pub topics: BTreeMap<String, Topics>,
    /// Roles by name. Without any, systems are started and answer, and that is all.
    #[serde(default)]
    pub roles: BTreeMap<String, Role>,
    /// Faults of the system under load, by name.
    #[serde(default)]
    pub faults: BTreeMap<String, Fault>,
    /// Varied settings: values by the path of a setting.
    #[serde(default)]
    pub grid: Grid,
    /// Other values for a scale below 1, by path; `grid` paths replace lists of values.
    #[serde(default)]
    pub small: Parameters,
    /// Other values for a run with `--full`, by path, as `small`: the whole of a grid of which the file has a
    /// part.
    #[serde(default)]
    pub full: Parameters,
    #[serde(default)]
    pub figures: Vec<Figure>,
}

/// Settings of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunSettings {
    /// Time of each point that counts.
    pub duration: Span,
    /// Time under load before that.
    pub warmup: Span,
    /// Load on a system that was just started, before its first point; its results are thrown away.
    pub break_in: Span,
    pub repetitions: u32,
    /// Client library.
    pub driver: DriverKind,
    /// Protocol that is spoken to the systems; by default AMQP for queues and Kafka's for topics, and to
    /// Kafka and RabbitMQ their own.
    pub protocol: Option<Protocol>,
    /// Time at which a system starts anew, with nothing stored.
    pub restart: Restart,
    /// Design of the grid: every combination, or factors with a low and a high level each (2^k·r).
    pub design: Design,
    /// Fraction of a factorial design (2^(k-p)), by its generators: `d = abc, e = bcd`. A letter stands for a
    /// factor, as the check of the file tells.
    pub fraction: Option<String>,
    /// Seed of the order of points, and of random parts of the load.
    pub seed: u64,
    /// Time that consumers may go on reading when producers have ended, before missing messages are lost.
    pub settle: Span,
    /// Factor of the clients of all roles: one number for a mix of them.
    pub clients_factor: u32,
    /// Other machines that run the load, each `HOST:PORT` or `NAME=HOST:PORT` of a `stafett lab agent`.
    pub agents: Vec<String>,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            duration: Span::seconds(10),
            warmup: Span::seconds(2),
            break_in: Span::seconds(5),
            repetitions: 3,
            driver: DriverKind::Lean,
            protocol: None,
            restart: Restart::Settings,
            design: Design::Grid,
            fraction: None,
            seed: 1,
            settle: Span::seconds(10),
            clients_factor: 1,
            agents: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriverKind {
    /// On our own wire code: costs so little that the broker is measured.
    #[default]
    Lean,
    /// The client that a user would take.
    Client,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Kafka's.
    Kafka,
    /// AMQP 0-9-1. Over it a topic is a queue, or as many as it has partitions.
    Amqp,
    /// Live topics, over WebSocket.
    Live,
    /// Queues over HTTP. Over it a topic is a queue.
    Http,
}

impl Protocol {
    pub const ALL: [Self; 4] = [Self::Kafka, Self::Amqp, Self::Live, Self::Http];

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kafka => "Kafka's protocol",
            Self::Amqp => "AMQP",
            Self::Live => "the protocol of live topics",
            Self::Http => "HTTP",
        }
    }

    /// As the programs of this repository announce where they listen.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Kafka => "kafka",
            Self::Amqp => "amqp",
            Self::Live | Self::Http => "http",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// At changes of its own settings.
    Settings,
    /// For every point.
    Point,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Design {
    Grid,
    Factorial,
}

/// One point's settings: the experiment with values for everything that its grid varies, scaled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub run: RunSettings,
    pub system: SystemSettings,
    pub topics: BTreeMap<String, Topics>,
    pub roles: BTreeMap<String, Role>,
    #[serde(default)]
    pub faults: BTreeMap<String, Fault>,
}
