//! Stafett: this program, started as `stafett serve`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::process::Command;

use super::process::{Process, last_words};
use super::{Place, StartError, System, first_answer};
use crate::drivers::live::Live;
use crate::experiment::{Own, Plan, TopicKind};

const READY_WITHIN: Duration = Duration::from_mins(1);
/// What the names of the lab's topics begin with.
const TOPICS: &str = "lab-";

pub(super) async fn start(plan: &Plan, place: &Place) -> Result<System, StartError> {
    let own = &plan.system.stafett;
    if let Some(address) = &own.address {
        if super::is_live(plan) {
            return there_live(address, own).await;
        }
        return there("stafett", address, own).await;
    }
    let data = place.data.join("stafett");
    empty(&data)?;
    let mut command = Command::new(&place.exe);
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
    let (mut address, mut live_address) = (None, None);
    let is_ready = |line: &str| {
        if let Some(at) = line.strip_prefix("http listening on ") {
            live_address = Some(at.to_owned());
        }
        if let Some(at) = line.strip_prefix("kafka listening on ") {
            address = Some(at.to_owned());
        }
        (line == "ready").then(|| address.clone().unwrap_or_default())
    };
    let launched = Process::start(command, "stafett", &place.logs, READY_WITHIN, is_ready).await;
    let (process, address) = match launched {
        Err(StartError::Failed(_)) if !own.set.is_empty() => {
            // Its own settings are the likeliest reason: what it says about them is a refusal.
            let said = last_words(&place.logs.join("stafett.err"));
            return Err(StartError::Refused(format!("stafett did not start{said}")));
        }
        other => other?,
    };
    let cold_start = first_answer(&address, started, READY_WITHIN).await?;
    Ok(System {
        name: "stafett".to_owned(),
        address,
        live_address,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings,
        cold_start: Some(cold_start),
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

/// A system that runs already.
pub(super) async fn there(name: &str, address: &str, own: &Own) -> Result<System, StartError> {
    check_own(name, address, own)?;
    first_answer(address, Instant::now(), Duration::from_secs(10)).await?;
    Ok(running(name, address))
}

/// One whose live topics are of interest: that is another address than that of its other topics.
async fn there_live(address: &str, own: &Own) -> Result<System, StartError> {
    check_own("stafett", address, own)?;
    let pinged = tokio::time::timeout(Duration::from_secs(10), Live::new(address).ping()).await;
    match pinged {
        Ok(Ok(())) => Ok(running("stafett", address)),
        Ok(Err(error)) => Err(StartError::Failed(error.to_string())),
        Err(_) => Err(StartError::Failed(format!("{address} did not answer"))),
    }
}

fn check_own(name: &str, address: &str, own: &Own) -> Result<(), StartError> {
    if own.set.is_empty() {
        return Ok(());
    }
    Err(StartError::Refused(format!(
        "{name} at {address} runs already: its own settings cannot be set from here"
    )))
}

fn running(name: &str, address: &str) -> System {
    System {
        name: name.to_owned(),
        address: address.to_owned(),
        live_address: None,
        version: String::new(),
        settings: BTreeMap::new(),
        cold_start: None,
        process: None,
        key: String::new(),
    }
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
