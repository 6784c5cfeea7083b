//! Lines between the broker and its runner: JSON, one object each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stafett_admin::sinks::{SinkPosition, SinkReplay, SinkState};

/// Line to the runner.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToRunner {
    /// All sinks. The first line, and another one with each change.
    Run(Orders),
    Ask {
        number: u64,
        sink: String,
        question: Question,
    },
}

/// Sinks, and where the broker is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Orders {
    /// Listeners of the broker, `HOST:PORT`.
    pub(crate) kafka: String,
    pub(crate) http: String,
    /// Secret by which the runner logs in.
    pub(crate) secret: String,
    pub(crate) threads: usize,
    pub(crate) webhook_allow: Vec<String>,
    pub(crate) sinks: BTreeMap<String, Wanted>,
}

/// A sink that the runner shall have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) definition: String,
    pub(crate) rests: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Question {
    Positions,
    Replay(SinkReplay),
    AcceptGap,
}

/// Line from the runner.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromRunner {
    States(BTreeMap<String, SinkState>),
    /// Too much poison: the sink has to rest.
    Paused(String),
    Answer {
        number: u64,
        answer: Result<Vec<SinkPosition>, String>,
    },
}

/// Returns a line.
pub(crate) fn line(word: &impl Serialize) -> String {
    // Texts, numbers and maps by text have no value that JSON lacks.
    let mut line = serde_json::to_string(word).unwrap_or_default();
    line.push('\n');
    line
}
