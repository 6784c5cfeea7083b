//! Settings that make up a role: rates, sizes, contents, acknowledgements, work and sessions.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::experiment::units::{ByteCount, Span};

/// Rate of a role's messages.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Rate {
    /// As fast as acknowledgements come.
    #[default]
    Closed,
    /// Evenly spaced, per second.
    Fixed(f64),
    /// Independent of each other, per second on average.
    Poisson(f64),
    /// Evenly spaced, faster and faster.
    Steps(Steps),
    /// Raised until a latency bound breaks, then backed off: finds the highest rate that holds.
    Adaptive(Adaptive),
}

impl Rate {
    /// Returns the settings of the search, if the rate is searched for.
    pub fn adaptive(&self) -> Option<&Adaptive> {
        match self {
            Self::Adaptive(adaptive) => Some(adaptive),
            Self::Closed | Self::Fixed(_) | Self::Poisson(_) | Self::Steps(_) => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steps {
    pub first: f64,
    pub add: f64,
    pub every: Span,
    pub up_to: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adaptive {
    pub first: f64,
    /// The 99th percentile may not be longer.
    pub p99: Span,
    /// Time for which each rate is tried.
    pub every: Span,
    /// Factor of the next rate while a rate holds.
    #[serde(default = "raise")]
    pub raise: f64,
}

fn raise() -> f64 {
    1.5
}

/// Sizes of messages. The smallest carry 24 bytes of the lab's own: their sender, their number and their
/// time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected bytes, such as 100 or \"1KiB\", { uniform = [10, 100] } or { lognormal = [100, 1.0] }"
)]
pub enum Size {
    Fixed(ByteCount),
    Distributed(Distribution),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Any number from the first to the second, all alike.
    Uniform([ByteCount; 2]),
    /// The median, and the standard deviation of the logarithm.
    Lognormal([f64; 2]),
}

impl Default for Size {
    fn default() -> Self {
        Self::Fixed(ByteCount(100))
    }
}

/// Priority of messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a priority, such as 7, { uniform = [1, 10] } or { weights = [5, 1] }, of 0 and 1"
)]
pub enum Priority {
    Fixed(u8),
    Drawn(DrawnPriority),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DrawnPriority {
    /// Any number from the first to the second, all alike.
    Uniform([u8; 2]),
    /// By the weights of the priorities 0, 1, and so on.
    Weights(Vec<f64>),
}

impl Priority {
    /// Returns the highest priority.
    pub fn max(&self) -> u8 {
        match self {
            Self::Fixed(priority) | Self::Drawn(DrawnPriority::Uniform([_, priority])) => *priority,
            Self::Drawn(DrawnPriority::Weights(weights)) => {
                u8::try_from(weights.len().saturating_sub(1)).unwrap_or(u8::MAX)
            }
        }
    }
}

/// Choice of a consumer among the messages of its queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Select {
    pub order: SelectOrder,
    /// Only those of one sender, drawn for each request among this number of registered clients.
    pub senders: Option<u32>,
    /// Only that with a certain context: the consumers ask for one number after the other.
    pub context: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SelectOrder {
    /// The highest first, and of equals the oldest.
    #[default]
    Priority,
    Oldest,
}

/// Time that a requester thinks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Think {
    Fixed(Span),
    /// Independent of each other; the mean.
    Exponential(Span),
}

impl Think {
    /// Returns the mean time.
    pub fn mean(self) -> Duration {
        match self {
            Self::Fixed(time) | Self::Exponential(time) => time.0,
        }
    }
}

/// Content of messages behind the lab's own bytes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Content {
    /// The same letter: compresses to nothing.
    Constant,
    /// Compresses not at all.
    #[default]
    Random,
    /// Lines of this file, one after the other, so that compression is judged fairly.
    File(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    AtMostOnce,
    #[default]
    AtLeastOnce,
    ExactlyOnce,
}

/// `acks` of Kafka's producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Acks {
    /// Nothing is answered.
    #[serde(rename = "0")]
    None,
    /// The broker that was asked has it. A producer of this kind cannot be idempotent.
    #[serde(rename = "1")]
    Leader,
    /// All that have to have it have it: with a single broker the same, from an idempotent producer.
    #[serde(rename = "all")]
    All,
}

impl Acks {
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "0",
            Self::Leader => "1",
            Self::All => "all",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Codec {
    #[default]
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// Work of a consumer on its messages: it takes time, as a database would.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// For every hand-over, however many messages are in it.
    pub each: Span,
    /// And for every message.
    pub message: Span,
    /// Messages that are handed over together.
    pub bulk: u32,
}

/// Sessions of messages with a key in common, and the app that assembles them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Session {
    /// Messages of a session. The last one ends it.
    pub fragments: u32,
    /// Sessions of each producer that are under way at once.
    pub open: u32,
    /// The share of sessions that are not ended by their last message, but by the time-out.
    pub unended: f64,
    /// Time after the last message.
    pub timeout: Span,
    /// Silence after which a worker's tasks go to others.
    pub worker_timeout: Span,
}

impl Default for Session {
    fn default() -> Self {
        Self {
            fragments: 20,
            open: 10,
            unended: 0.0,
            timeout: Span::seconds(2),
            worker_timeout: Span::seconds(2),
        }
    }
}

/// Clients that come bit by bit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrive {
    pub first: u32,
    pub add: u32,
    pub every: Span,
}

/// Clients that are cut off without a word, and come back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kill {
    /// Time of the first one, after the start of the load.
    pub after: Span,
    /// One after the other.
    pub every: Span,
    /// Time that it stays away.
    pub away: Span,
}
