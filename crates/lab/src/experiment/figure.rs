//! Figures of an experiment.

use serde::{Deserialize, Serialize};

use super::units::Span;

/// One figure of the report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    pub title: String,
    pub kind: FigureKind,
    /// Dimension along the bottom: the path of a parameter, or `system`. Not for `latency` and `time`.
    pub x: Option<String>,
    /// Names of drawn values. `lines`, `bars`, `effects`, `shares`: names of metrics. `latency`: names of
    /// latencies, such as `delivery`. `time`: names of [`crate::results::SERIES`].
    pub y: Vec<String>,
    /// Of `time`: the time over which each value is taken, a multiple of ten seconds; a second, if not given.
    /// Quantiles are those of all messages of the window.
    #[serde(default)]
    pub window: Option<Span>,
    /// Dimensions that make a line of their own: paths of parameters, `system`, `durability`. By default all
    /// that are not along x.
    #[serde(default)]
    pub by: Vec<String>,
    #[serde(default)]
    pub log_x: bool,
    #[serde(default)]
    pub log_y: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// A metric against a parameter, with error bars.
    Lines,
    /// A metric by category, with error bars.
    Bars,
    /// Latency by percentile.
    Latency,
    /// Seconds along the bottom.
    Time,
    /// Effects of factors and their interactions, with confidence intervals and allocation of variation.
    Effects,
    /// Parts of a time: the network's, and that which each level of a parameter adds, as shares of the whole.
    Shares,
}
