//! Stafett: the program `stafett`, started as `stafett serve`.

use std::path::Path;
use std::time::Duration;

use super::launch::Launch;
use super::{Place, System, protocol};
use crate::drivers::DriverError;
use crate::experiment::{Plan, TopicKind};
use crate::measure::network::is_loopback_host;

const READY_WITHIN: Duration = Duration::from_mins(1);
/// Start of the names of the lab's topics.
const TOPICS: &str = "lab-";

pub(super) async fn start(plan: &Plan, place: &Place) -> Result<System, DriverError> {
    let spoken = protocol("stafett", plan).map_err(DriverError::Missing)?;
    program(place)?;
    let listeners = ["--kafka", "--amqp", "--http"];
    let mut launch = Launch::new("stafett", &place.stafett, place, &listeners)?;
    launch.command.args(["--log-level", "warn"]);
    if !is_loopback_host(&place.host) {
        // Agents have to reach it, and it lives as long as the run.
        launch.command.args(["--set", "allow_unauthenticated=true"]);
    }
    launch.set_own("--set", &plan.system.stafett);
    for (name, value) in rules("stafett", plan) {
        launch.set("--set", &name, &value);
    }
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("STAFETT_") {
            launch.command.env_remove(name);
        }
    }
    let mut system = launch.start(spoken, READY_WITHIN).await?;
    env!("CARGO_PKG_VERSION").clone_into(&mut system.version);
    Ok(system)
}

/// Returns the program, if it is there.
pub(super) fn program(place: &Place) -> Result<&Path, DriverError> {
    let program = place.stafett.as_path();
    program.is_file().then_some(program).ok_or_else(|| {
        DriverError::Missing(format!(
            "{}: there is no such program; `make build` builds it, and --stafett names another",
            program.display()
        ))
    })
}

/// Returns settings of the broker for the plan's live topics.
pub(super) fn rules(name: &str, plan: &Plan) -> Vec<(String, String)> {
    if name != "stafett" {
        return Vec::new();
    }
    let live = || {
        plan.topics
            .values()
            .filter(|topics| topics.kind == TopicKind::Live)
    };
    let filter = live().find_map(|topics| topics.filter);
    let stored = live().any(|topics| topics.stored);
    let rules = [
        filter.map(|filter| ("live.duplicates", format!("{TOPICS}={}ms", filter.0.as_millis()))),
        stored.then(|| ("live.logs", format!("{TOPICS}=lab"))),
    ];
    let named = |(name, value): (&str, String)| (name.to_owned(), value);
    rules.into_iter().flatten().map(named).collect()
}
