//! Settings of an app that change while workers go on, as they are shown.

use schemars::JsonSchema;
use serde::Serialize;
use stafett_apps::Definition;

use super::declare::{BALANCES, CLOCKS, GAPS, REBALANCES};

/// Settings in force, by the names of their change.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppSettings")]
pub(super) struct Settings {
    filter: Option<String>,
    balance: &'static str,
    rebalance: &'static str,
    worker_timeout_ms: u64,
    revoke_ms: u64,
    time: TimeSettings,
    state_bytes_max: u64,
    on_gap: &'static str,
    attempts_max: u32,
    dead_letter: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppTimeSettings")]
struct TimeSettings {
    clock: &'static str,
    grace_ms: u64,
    idle_ms: u64,
}

impl Settings {
    pub(super) fn of(definition: &Definition) -> Self {
        let time = &definition.time;
        Self {
            filter: definition.filter.as_ref().map(|it| it.source().to_owned()),
            balance: word(&BALANCES, definition.balance),
            rebalance: word(&REBALANCES, definition.manual_rebalance),
            worker_timeout_ms: definition.worker_timeout_ms,
            revoke_ms: definition.revoke_ms,
            time: TimeSettings {
                clock: word(&CLOCKS, time.of_records),
                grace_ms: time.grace_ms,
                idle_ms: time.idle_ms,
            },
            state_bytes_max: definition.state_bytes_max,
            on_gap: word(&GAPS, definition.stops_at_gap),
            attempts_max: definition.attempts_max,
            dead_letter: definition.dead_letter.as_ref().map(ToString::to_string),
        }
    }
}

/// Returns the word of a value.
pub(super) fn word<T: Copy + PartialEq>(words: &[(&'static str, T)], value: T) -> &'static str {
    let found = words.iter().find(|(_, known)| *known == value);
    found.map_or("", |(word, _)| word)
}
