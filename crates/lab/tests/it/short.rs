//! `stafett lab run` in a folder: short experiments, and what a run leaves there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A stored topic, written to and read from for a second.
pub(crate) const SHORT: &str = r#"question = "Does it run?"
systems = ["stafett"]

[run]
duration = "1s"
warmup = "200ms"
break_in = "0s"
repetitions = 1

[topics.main]
partitions = 2

[roles.producers]
does = "produce"
clients = 2
rate = { fixed = 2000 }
linger = "0us"

[roles.consumers]
does = "consume"

[grid]
"system.durability" = ["os"]

[[figures]]
title = "Rate"
kind = "bars"
x = "system"
y = ["produce_rate"]
"#;

/// Live topics, of which each report comes from five and goes to four.
pub(crate) const SONGS: &str = r#"question = "Who hears of a song?"
systems = ["stafett"]

[run]
duration = "2s"
warmup = "200ms"
break_in = "0s"
repetitions = 1

[topics.songs]
kind = "live"
count = 20
filter = "1m"

[roles.reports]
does = "produce"
clients = 10
copies = 5
rate = { fixed = 500 }
linger = "0us"

[roles.users]
does = "consume"
clients = 8
users = 5
follows = 2

[[figures]]
title = "Deliveries"
kind = "bars"
x = "system"
y = ["arrival_rate"]
"#;

/// The file with an experiment.
pub(crate) fn written(folder: &TempDir, text: &str) -> PathBuf {
    let file = folder.path().join("short.toml");
    fs::write(&file, text).unwrap();
    file
}

/// The command that runs it into `run`.
pub(crate) fn lab(folder: &TempDir, file: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stafett-lab"));
    command
        .current_dir(folder.path())
        .args(["run"])
        .arg(file)
        .args(["--out", "run"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A file of the run.
pub(crate) fn json(folder: &TempDir, name: &str) -> Value {
    serde_json::from_slice(&fs::read(folder.path().join("run").join(name)).unwrap()).unwrap()
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
