//! Commands to a running process, over HTTP and from the command line.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::common::{Folder, Running, serve};

fn stafett(http: SocketAddr, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stafett"))
        .env_clear()
        .args(arguments)
        .args(["--http", &http.to_string()])
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Runs a command that works, and returns its output.
fn works(http: SocketAddr, arguments: &[&str]) -> String {
    let output = stafett(http, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*error), (Some(0), ""), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(http: SocketAddr, arguments: &[&str]) -> Value {
    let output = works(http, &[arguments, &["--json"]].concat());
    serde_json::from_str(&output).unwrap()
}

/// Runs a command that fails, and returns its one line.
fn fails(http: SocketAddr, arguments: &[&str]) -> String {
    let output = stafett(http, arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), error.lines().count()),
        (Some(1), 1),
        "{error}"
    );
    error
}

#[test]
fn a_node_is_looked_at_and_stopped_by_command() {
    let folder = Folder::new();
    let mut command = serve(&folder);
    command.args(["--durability", "os"]);
    let running = Running::start(command);
    let http = running.address("http");
    let status = json(http, &["node", "status"]);
    assert_eq!((&status["state"], &status["epoch"]), (&"ok".into(), &1.into()));
    let changed = status["settings_changed"].as_array().unwrap();
    assert!(changed.contains(&"durability".into()) && changed.contains(&"kafka.listen".into()));
    for (place, name) in ["http", "kafka", "amqp"].iter().enumerate() {
        let listener = &status["listeners"][place];
        assert_eq!(listener["protocol"], *name);
        assert_eq!(listener["address"], running.address(name).to_string());
    }
    assert!(works(http, &["node", "status"]).contains("listeners.0.address"));
    assert!(works(http, &["node", "threads"]).contains("journal-sync"));
    let memory = json(http, &["node", "memory"]);
    assert!(memory["resident_bytes"].as_u64().unwrap() > 1 << 20);
    assert_eq!(memory["request_memory"]["max_bytes"], 256 << 20);
    let settings = works(http, &["node", "settings"]);
    let line = settings
        .lines()
        .find(|line| line.starts_with("durability "))
        .unwrap();
    assert_eq!(
        line.split_whitespace().collect::<Vec<_>>(),
        ["durability", "os", "sync", "--durability"]
    );
    assert_eq!(
        works(http, &["node", "log-level", "warn", "--for", "3600"]),
        "log level is warn\n"
    );
    let error = fails(http, &["node", "log-level", "loud"]);
    assert!(error.contains("expected off, error"), "{error}");
    let error = fails(http, &["node", "shutdown", "--drain", "601"]);
    assert!(error.contains("at most 600"), "{error}");
    assert_eq!(works(http, &["node", "shutdown", "--yes"]), "the broker stops\n");
    let (status, _, logs) = running.end();
    assert_eq!(status.code(), Some(0));
    assert!(!logs.contains("draining"), "{logs}");
}

#[test]
fn a_request_reads_the_settings_again_and_says_where_they_are_wrong() {
    let folder = Folder::new();
    let file = folder.path().join("stafett.toml");
    std::fs::write(&file, "[live]\nduplicates = 'news/=1h'\n").unwrap();
    let mut command = serve(&folder);
    command.arg("--config").arg(&file);
    let running = Running::start(command);
    let http = running.address("http");
    let nothing = json(http, &["node", "reload"]);
    assert_eq!(
        nothing.to_string(),
        "{\"changed\":[],\"failed\":[],\"needs_restart\":[]}"
    );
    std::fs::write(
        &file,
        "[live]\nduplicates = 'songs/=1h'\nclients_max = 7\nlogs = 'charts/=not/a/name'\n",
    )
    .unwrap();
    let reloaded = json(http, &["node", "reload"]);
    assert_eq!(reloaded["changed"], Value::from(vec!["live.duplicates"]));
    assert_eq!(reloaded["needs_restart"], Value::from(vec!["live.clients_max"]));
    assert_eq!(reloaded["failed"][0]["key"], "live.logs");
    let settings = works(http, &["node", "settings", "--json"]);
    let setting = |key: &str| -> Value {
        let lines = settings
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.into_iter().find(|setting| setting["key"] == key).unwrap()
    };
    assert_eq!(setting("live.duplicates")["value"], "songs/=1h");
    let place = format!("{}:2", file.display());
    assert_eq!(setting("live.duplicates")["source"], place);
    assert_eq!(
        setting("live.clients_max")["value"],
        "10000000",
        "as it is in force"
    );
    assert_eq!(setting("live.logs")["value"], "");
    std::fs::write(&file, "[live]\nduplicates = 'songs/'\n").unwrap();
    let error = fails(http, &["node", "reload"]);
    assert!(error.contains("stafett.toml:2"), "{error}");
    assert_eq!(setting("live.duplicates")["value"], "songs/=1h");
}

#[test]
fn a_running_journal_is_shown_scrubbed_and_backed_up_by_command() {
    let folder = Folder::new();
    let mut command = serve(&folder);
    let backups = folder.path().join("backups");
    command
        .arg("--set")
        .arg(format!("journal.backup_dir={}", backups.display()));
    let running = Running::start(command);
    let http = running.address("http");
    assert_eq!(json(http, &["journal", "status"])["state"], "ok");
    let said = works(http, &["journal", "backup", "monday"]);
    assert!(
        said.ends_with(" bytes\n") && said.contains(" segments, "),
        "{said}"
    );
    let elsewhere = folder.path().join("a+b & c");
    let elsewhere = elsewhere.display().to_string();
    works(http, &["journal", "backup", &elsewhere]);
    let error = fails(http, &["journal", "backup", "monday"]);
    assert!(error.contains("exists"), "{error}");
    let listed = works(http, &["journal", "backups"]);
    assert!(
        listed.contains("monday") && listed.contains("a+b & c"),
        "{listed}"
    );
    assert!(works(http, &["journal", "scrub"]).ends_with(" segments read, 0 damaged\n"));
    assert!(works(http, &["journal", "segments"]).contains("arrival"));
    for backup in [backups.join("monday").display().to_string(), elsewhere] {
        let restored = folder.path().join("restored");
        let output = Command::new(env!("CARGO_BIN_EXE_stafett"))
            .args(["journal", "restore", &backup])
            .arg(&restored)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        std::fs::remove_dir_all(restored).unwrap();
    }
}
