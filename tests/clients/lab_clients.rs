//! The lab with users' clients: lapin, and librdkafka in builds with it. Every message is accounted for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::broker::{binary, build_folder, is_stafett};
use crate::peer;

const SHORT: &str = r#"question = "Does it run?"
systems = ["stafett"]

[run]
duration = "1s"
warmup = "200ms"
break_in = "0s"
repetitions = 1
driver = "client"

[topics.main]
partitions = 3

[roles.producers]
does = "produce"
clients = 2
rate = { fixed = 2000 }
linger = "1ms"

[roles.consumers]
does = "consume"
clients = 2

[grid]
"roles.producers.size" = [100, 5000]

[[figures]]
title = "Rate"
kind = "bars"
x = "roles.producers.size"
y = ["produce_rate"]
"#;

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = build_folder().join(format!("lab-clients-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.0.join("run").join(name)).unwrap()).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn lab(folder: &Folder, program: &Path, text: &str) -> Output {
    let file = folder.0.join("short.toml");
    fs::write(&file, text).unwrap();
    let mut command = peer::command(&binary());
    command.current_dir(&folder.0).args(["lab", "run"]).arg(&file);
    command.args(["--out", "run", "--clients"]).arg(program);
    command.output().unwrap()
}

/// Runs an experiment. Checks that all points were run by that driver, without missing or repeated messages.
/// Returns the points.
fn accounts_for_every_message(program: &Path, driver: &str, text: &str) -> Vec<Value> {
    let folder = Folder::new();
    let output = lab(&folder, program, text);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let run = folder.json("run.json");
    let ceiling = &run["ceilings"][0];
    assert_eq!(ceiling["driver"], driver, "{ceiling}");
    assert!(ceiling["produce_rate"].as_f64().unwrap() > 0.0, "{ceiling}");
    assert!(ceiling["consume_rate"].as_f64().unwrap() > 0.0, "{ceiling}");
    let points: Vec<Value> = (1..=run["order"].as_array().unwrap().len())
        .map(|number| folder.json(&format!("points/{number:04}.json")))
        .collect();
    for point in &points {
        assert_eq!(point["outcome"]["kind"], "done", "{}", point["outcome"]);
        assert_eq!(point["driver"]["name"], driver);
        assert!(!point["driver"]["version"].as_str().unwrap().is_empty());
        assert!(point["driver"]["cpu_share"].as_f64().unwrap() > 0.0);
        let metrics = &point["metrics"];
        assert!(metrics["sent"].as_f64().unwrap() > 0.0);
        assert_eq!(metrics["acknowledged"], metrics["sent"]);
        assert_eq!(metrics["received"], metrics["sent"]);
        for none in ["lost", "duplicated", "failed"] {
            assert_eq!(metrics[none], 0.0, "{none}");
        }
        let processes = point["processes"].as_array().unwrap().iter();
        let kinds: Vec<_> = processes.map(|process| &process["kind"]).collect();
        assert_eq!(kinds, ["broker", "client"]);
    }
    points
}

#[test]
fn the_lab_accounts_for_every_message_of_lapin() {
    let Some(program) = peer::lab_lapin().filter(|_| is_stafett()) else {
        return;
    };
    let queues = SHORT.replace("partitions = 3", "kind = \"queue\"\ncount = 3");
    let points = accounts_for_every_message(&program, "lapin", &queues);
    assert_eq!(points.len(), 2);
    assert!(points[0]["metrics"]["delivery_p99_us"].as_f64().unwrap() > 0.0);
    // Each consumer has a queue of its own with every message, and none acknowledges.
    let all = queues
        .replace(
            "clients = 2\n\n[grid]",
            "clients = 2\nfan_out = true\ndelivery = \"at-most-once\"\n\n[grid]",
        )
        .replace("linger = \"1ms\"", "delivery = \"at-most-once\"");
    let folder = Folder::new();
    let output = lab(&folder, &program, &all);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let point = folder.json("points/0001.json");
    assert_eq!(point["outcome"]["kind"], "done", "{}", point["outcome"]);
    let metrics = &point["metrics"];
    assert_eq!(metrics["received"], 2.0 * metrics["sent"].as_f64().unwrap());
}

#[test]
fn what_a_client_program_lacks_is_a_skipped_point() {
    let Some(program) = peer::lab_lapin().filter(|_| is_stafett()) else {
        return;
    };
    let folder = Folder::new();
    let output = lab(&folder, &program, SHORT);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let outcome = &folder.json("points/0001.json")["outcome"];
    assert_eq!(outcome["kind"], "skipped", "{outcome}");
    let reason = outcome["reason"].as_str().unwrap();
    assert!(
        reason.contains("without librdkafka") && reason.contains("make lab-clients"),
        "{reason}"
    );
}

#[test]
fn the_lab_accounts_for_every_message_of_librdkafka() {
    let Some(program) = peer::lab_librdkafka().filter(|_| is_stafett()) else {
        return;
    };
    accounts_for_every_message(&program, "librdkafka", SHORT);
    let compressed = SHORT
        .replace("linger = \"1ms\"", "compression = \"none\"")
        .replace(
            "\"roles.producers.size\" = [100, 5000]",
            "\"roles.producers.compression\" = [\"gzip\", \"snappy\", \"lz4\", \"zstd\"]",
        )
        .replace(
            "x = \"roles.producers.size\"",
            "x = \"roles.producers.compression\"",
        )
        .replace("does = \"consume\"", "does = \"consume\"\ncommit = \"100ms\"");
    let points = accounts_for_every_message(&program, "librdkafka", &compressed);
    assert_eq!(points.len(), 4);
}

#[test]
fn exactly_once_accounts_for_every_message() {
    let Some(program) = peer::lab_librdkafka() else {
        return;
    };
    let text = SHORT.replace("linger = \"1ms\"", "delivery = \"exactly-once\"");
    accounts_for_every_message(&program, "librdkafka", &text);
}
