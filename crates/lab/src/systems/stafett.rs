//! Stafett: this program, started as `stafett serve`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::process::Command;

use super::process::{Process, last_words};
use super::{Place, StartError, System, first_answer};
use crate::experiment::{Own, Plan};

const READY_WITHIN: Duration = Duration::from_mins(1);

pub(super) async fn start(plan: &Plan, place: &Place) -> Result<System, StartError> {
    let own = &plan.system.stafett;
    if let Some(address) = &own.address {
        return there("stafett", address, own).await;
    }
    let data = place.data.join("stafett");
    empty(&data)?;
    let mut command = Command::new(&place.exe);
    command.arg("serve").arg("--data-dir").arg(&data);
    command.args([
        "--kafka",
        "127.0.0.1:0",
        "--amqp",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--log-level",
        "warn",
    ]);
    let mut settings = BTreeMap::new();
    for (name, value) in &own.set {
        let value = plain(value);
        command.arg("--set").arg(format!("{name}={value}"));
        settings.insert(name.clone(), value);
    }
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("STAFETT_") {
            command.env_remove(name);
        }
    }
    let started = Instant::now();
    let mut address = None;
    let is_ready = |line: &str| {
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
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings,
        cold_start: Some(cold_start),
        process: Some(process),
        key: String::new(),
    })
}

/// A system that runs already.
pub(super) async fn there(name: &str, address: &str, own: &Own) -> Result<System, StartError> {
    if !own.set.is_empty() {
        return Err(StartError::Refused(format!(
            "{name} at {address} runs already: its own settings cannot be set from here"
        )));
    }
    first_answer(address, Instant::now(), Duration::from_secs(10)).await?;
    Ok(System {
        name: name.to_owned(),
        address: address.to_owned(),
        version: String::new(),
        settings: BTreeMap::new(),
        cold_start: None,
        process: None,
        key: String::new(),
    })
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
