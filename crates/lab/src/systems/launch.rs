//! The start of a system: its command line, its settings, and its first answer.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::process::Command;

use super::process::{Process, last_words};
use super::{Place, System, first_answer};
use crate::drivers::DriverError;
use crate::experiment::{Own, Protocol};

/// A system that is about to be started.
pub(super) struct Launch {
    name: &'static str,
    pub(super) command: Command,
    pub(super) settings: BTreeMap<String, String>,
    logs: PathBuf,
    /// The folder that all systems store in.
    data: PathBuf,
    /// The experiment has settings of its own for it.
    has_own: bool,
}

impl Launch {
    /// Begins the command line of `program`, which stores in an empty folder of the system's name and listens
    /// where each of these options says.
    pub(super) fn new(
        name: &'static str,
        program: &Path,
        place: &Place,
        listeners: &[&str],
    ) -> Result<Self, DriverError> {
        let data = place.data.join(name);
        if place.kept.is_empty() {
            empty(&data)?;
        }
        let mut command = Command::new(program);
        command.arg("serve").arg("--data-dir").arg(&data);
        for listener in listeners {
            let spoken = |protocol: &Protocol| listener.strip_prefix("--") == Some(protocol.word());
            let kept = place.kept.iter().find(|(protocol, _)| spoken(protocol));
            let any = format!("{}:0", place.host);
            command
                .arg(listener)
                .arg(kept.map_or(&any, |(_, address)| address));
        }
        Ok(Self {
            name,
            command,
            settings: BTreeMap::new(),
            logs: place.logs.clone(),
            data: place.data.clone(),
            has_own: false,
        })
    }

    pub(super) fn set(&mut self, option: &str, name: &str, value: &str) {
        self.command.arg(option).arg(format!("{name}={value}"));
        self.settings.insert(name.to_owned(), value.to_owned());
    }

    pub(super) fn set_own(&mut self, option: &str, own: &Own) {
        self.has_own = !own.set.is_empty();
        for (name, value) in &own.set {
            let plain = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let placed = plain.replace("{data}", &self.data.to_string_lossy());
            self.set(option, name, &placed);
        }
    }

    /// Starts the process and waits until it answers.
    pub(super) async fn start(self, spoken: Protocol, patience: Duration) -> Result<System, DriverError> {
        let name = self.name;
        let started = Instant::now();
        let mut found = BTreeMap::new();
        let is_ready = |line: &str| {
            for protocol in Protocol::ALL {
                let rest = line.strip_prefix(protocol.word());
                let at = rest.and_then(|rest| rest.strip_prefix(" listening on "));
                found.extend(at.map(|at| (protocol, at.to_owned())));
            }
            (line == "ready").then(|| found.clone())
        };
        let launched = Process::start(self.command, name, &self.logs, patience, is_ready).await;
        let (process, addresses) = match launched {
            Err(DriverError::Failed(_)) if self.has_own => {
                // Its own settings are the likeliest reason: its words about them are a refusal.
                let said = last_words(&self.logs.join(format!("{name}.err")));
                return Err(DriverError::Refused(format!("{name} did not start{said}")));
            }
            other => other?,
        };
        let address = addresses.get(&spoken).map_or("", String::as_str);
        let (version, cold_start) = tokio::select! {
            answered = first_answer(spoken, address, started, patience) => answered?,
            () = process.ended.cancelled() => {
                let status = process.status().unwrap_or_default();
                return Err(DriverError::Failed(format!("it ended before it answered: {status}")));
            }
        };
        Ok(System {
            name: name.to_owned(),
            addresses,
            version,
            settings: self.settings,
            cold_start: Some(cold_start),
            process: Some(process),
            key: String::new(),
        })
    }
}

/// Leaves a folder with nothing in it.
fn empty(folder: &Path) -> Result<(), DriverError> {
    let emptied = match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => std::fs::create_dir_all(folder),
    };
    emptied.map_err(|error| DriverError::Failed(format!("{} cannot be emptied: {error}", folder.display())))
}
