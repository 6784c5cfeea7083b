//! Stafett: the program `stafett`, started as `stafett serve`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::process::Command;

use super::process::{Process, last_words};
use super::{Place, StartError, System, answer_of, protocol, there};
use crate::experiment::{Plan, Protocol, TopicKind};

const READY_WITHIN: Duration = Duration::from_mins(1);
/// What the names of the lab's topics begin with.
const TOPICS: &str = "lab-";

pub(super) async fn start(plan: &Plan, place: &Place) -> Result<System, StartError> {
    let own = &plan.system.stafett;
    if own.is_there() {
        return there("stafett", plan, own).await;
    }
    let spoken = protocol("stafett", plan).map_err(StartError::Missing)?;
    if !place.stafett.is_file() {
        return Err(StartError::Missing(format!(
            "{}: there is no such program; `make build` builds it, and --stafett names another",
            place.stafett.display()
        )));
    }
    let data = place.data.join("stafett");
    empty(&data)?;
    let mut command = Command::new(&place.stafett);
    command.arg("serve").arg("--data-dir").arg(&data);
    let listen = format!("{}:0", place.host);
    for listener in ["--kafka", "--amqp", "--http"] {
        command.args([listener, &listen]);
    }
    command.args(["--log-level", "warn"]);
    if !place.is_loopback() {
        // Agents have to reach it, and it lives as long as the run.
        command.args(["--set", "allow_unauthenticated=true"]);
    }
    let mut settings = BTreeMap::new();
    for (name, value) in &own.set {
        let value = plain(value);
        command.arg("--set").arg(format!("{name}={value}"));
        settings.insert(name.clone(), value);
    }
    for (name, value) in rules("stafett", plan) {
        command.arg("--set").arg(format!("{name}={value}"));
        settings.insert(name, value);
    }
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("STAFETT_") {
            command.env_remove(name);
        }
    }
    let started = Instant::now();
    let mut found = BTreeMap::new();
    let is_ready = |line: &str| {
        for protocol in Protocol::ALL {
            let at = line
                .strip_prefix(protocol.word())
                .and_then(|rest| rest.strip_prefix(" listening on "));
            found.extend(at.map(|at| (protocol, at.to_owned())));
        }
        (line == "ready").then(|| found.clone())
    };
    let launched = Process::start(command, "stafett", &place.logs, READY_WITHIN, is_ready).await;
    let (process, addresses) = match launched {
        Err(StartError::Failed(_)) if !own.set.is_empty() => {
            // Its own settings are the likeliest reason: what it says about them is a refusal.
            let said = last_words(&place.logs.join("stafett.err"));
            return Err(StartError::Refused(format!("stafett did not start{said}")));
        }
        other => other?,
    };
    let address = addresses.get(&spoken).map_or("", String::as_str);
    let answered = answer_of(&process, (spoken, address), started, READY_WITHIN).await?;
    Ok(System {
        name: "stafett".to_owned(),
        addresses,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings,
        cold_start: Some(answered.after),
        process: Some(process),
        key: String::new(),
    })
}

/// What the plan's live topics are: settings of the broker, for all topics of the lab.
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

/// A folder with nothing in it.
pub(super) fn empty(folder: &std::path::Path) -> Result<(), StartError> {
    let emptied = match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => std::fs::create_dir_all(folder),
    };
    emptied.map_err(|error| StartError::Failed(format!("{} cannot be emptied: {error}", folder.display())))
}

/// A value as it stands on a command line.
pub(super) fn plain(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
