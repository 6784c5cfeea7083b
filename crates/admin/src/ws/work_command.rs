//! Commands of an app's worker over a WebSocket, as they are read.

use std::fmt::Write;

use serde::Deserialize;
use serde_json::value::RawValue;
use stafett_http::Problem;
use stafett_http::query::encoded;

use super::command::Fields;
use super::work_flow::Credit;
use crate::apps::shape::Offsets;

pub(super) const COMMANDS: [&str; 14] = [
    "join",
    "claim",
    "fetch",
    "get",
    "scan",
    "commit",
    "emit",
    "fail",
    "prepared",
    "release",
    "beat",
    "drain",
    "leave",
    "accept_gap",
];

/// Meaning of a command's success for the flow.
pub(super) enum Then {
    Nothing,
    Join { worker: String, credit: Credit },
    Committed(Vec<CommittedTask>),
    Failed { task: String },
    Released { task: String },
    Left,
}

/// A task of a commit, and the place that it reaches.
#[derive(Deserialize)]
pub(super) struct CommittedTask {
    pub(super) task: String,
    pub(super) next: Option<Offsets>,
}

impl CommittedTask {
    /// Reads the tasks of a commit. Fields that cannot be read are refused by the route.
    pub(super) fn of(fields: &Fields<'_>) -> Vec<Self> {
        let read = |name: &str| fields.get(name).map(|value| value.get());
        if let Some(tasks) = read("tasks") {
            return serde_json::from_str(tasks).unwrap_or_default();
        }
        let task = read("task").and_then(|task| serde_json::from_str(task).ok());
        let next = read("next").and_then(|next| serde_json::from_str(next).ok());
        task.map(|task| Self { task, next }).into_iter().collect()
    }
}

#[derive(Deserialize)]
pub(super) struct Head<'a> {
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    pub(super) command: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WantedCredit {
    pub(super) records: usize,
    pub(super) bytes: usize,
}

impl Default for WantedCredit {
    fn default() -> Self {
        Self {
            records: 10_000,
            bytes: 8 << 20,
        }
    }
}

/// Returns the query of a drain.
pub(super) fn drain_query(fields: &Fields<'_>) -> Result<String, Problem> {
    let mut query = String::new();
    for (name, value) in fields {
        let (name, unit) = match &**name {
            "over_ms" => ("over", "ms"),
            "cancel" => ("cancel", ""),
            other => return Err(Problem::unknown_field(other, &["over_ms", "cancel"])),
        };
        query.push(if query.is_empty() { '?' } else { '&' });
        // Writing to memory does not fail.
        let _ = write!(query, "{name}={}{unit}", encoded(value.get()));
    }
    Ok(query)
}
