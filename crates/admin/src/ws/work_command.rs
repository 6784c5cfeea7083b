//! Commands of an app's worker over a WebSocket, as they are read.

use std::fmt::Write;

use serde::Deserialize;
use stafett_http::Problem;
use stafett_http::query::encoded;

use super::command::Fields;
use super::work_flow::Credit;
use crate::apps::commit::Reached;

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
    Committed(Reached),
    Failed { task: String },
    Released { task: String },
    Left,
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
