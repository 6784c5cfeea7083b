//! Experiment files: what is asked, of which systems, with which load, and how the answer is drawn.
//!
//! A file is TOML. Everything in `[run]`, `[system]`, `[topics.…]` and `[roles.…]` can be varied: `[grid]`
//! names it by its path and lists values, and every combination becomes a point. `docs/lab/README.md`
//! describes each setting. What is unknown, malformed or contradictory is an error that names its line.
//!
//! - [`read`]: files to experiments, and an experiment with values of its grid to a [`Plan`]
//! - [`check`]: contradictions; `drawable`: which figures roles can give; `scale`: smaller runs
//! - [`system`], [`load`], [`figure`]: the parts of a file
//! - [`units`]: durations and sizes as people write them; [`path`]: names of settings
//! - [`library`]: the experiments that come with the program

pub mod check;
mod drawable;
pub mod figure;
pub mod library;
pub mod load;
pub mod path;
pub mod read;
mod scale;
pub mod system;
pub mod units;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use figure::{Figure, FigureKind};
pub use load::{
    Acks, Adaptive, Arrive, Codec, Content, Delivery, Distribution, Does, ExchangeKind, Kill, LiveFormat,
    Rate, Role, Size, Steps, TopicKind, Topics, Work,
};
pub use read::{ExperimentError, Source};
pub use system::{Own, SystemSettings};
pub use units::{ByteCount, Span};

/// An experiment as a file describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// What is asked, in one sentence.
    pub question: String,
    /// What a reader has to know, such as which figure of which paper this is, and where it differs.
    #[serde(default)]
    pub note: String,
    /// Which systems are asked, by name.
    pub systems: Vec<String>,
    #[serde(default)]
    pub run: RunSettings,
    #[serde(default)]
    pub system: SystemSettings,
    /// Named sets of topics or queues; where there is none, one topic is made for all roles.
    #[serde(default)]
    pub topics: BTreeMap<String, Topics>,
    /// Who does what, by name. None at all: systems are started and answer, and that is all.
    #[serde(default)]
    pub roles: BTreeMap<String, Role>,
    /// What is varied: values by the path of a setting.
    #[serde(default)]
    pub grid: BTreeMap<String, Vec<serde_json::Value>>,
    /// What is otherwise when the scale is below 1, by path; `grid` paths replace lists of values.
    #[serde(default)]
    pub small: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    pub figures: Vec<Figure>,
}

/// How an experiment is run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunSettings {
    /// How long each point counts.
    pub duration: Span,
    /// How long it is under load before that.
    pub warmup: Span,
    /// Load on a system that was just started, before its first point; what it brings is thrown away.
    pub break_in: Span,
    pub repetitions: u32,
    /// Which client library.
    pub driver: DriverKind,
    /// What is spoken to the systems; by default AMQP for queues and Kafka's for topics, and to Kafka and
    /// RabbitMQ their own.
    pub protocol: Option<Protocol>,
    /// When a system starts anew, with nothing stored.
    pub restart: Restart,
    /// What the grid is: every combination, or factors with a low and a high level each (2^k·r).
    pub design: Design,
    /// Of the order of points, and of what is random in the load.
    pub seed: u64,
    /// How long consumers may go on reading when producers have ended, before what is missing is lost.
    pub settle: Span,
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
            seed: 1,
            settle: Span::seconds(10),
            agents: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriverKind {
    /// On our own wire code: costs so little that the broker is what is measured.
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
}

impl Protocol {
    pub const ALL: [Self; 3] = [Self::Kafka, Self::Amqp, Self::Live];

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kafka => "Kafka's protocol",
            Self::Amqp => "AMQP",
            Self::Live => "the protocol of live topics",
        }
    }

    /// As the programs of this repository announce where they listen.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Kafka => "kafka",
            Self::Amqp => "amqp",
            Self::Live => "http",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// When its own settings change.
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
}
