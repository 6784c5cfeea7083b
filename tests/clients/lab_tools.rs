//! The lab with the load tools that the peers ship: RabbitMQ's `PerfTest` and Kafka's performance tests, against the binary
//! and against the stub.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::broker::{binary, build_folder, is_stafett, root};
use crate::peer;

const SHORT: &str = r#"question = "Does it run?"
systems = ["stafett"]

[run]
duration = "2s"
warmup = "1s"
break_in = "0s"
repetitions = 1
driver = "tool"

[topics.main]
partitions = 3

[roles.producers]
does = "produce"
rate = { fixed = 500 }

[roles.consumers]
does = "consume"

[[figures]]
title = "Latency"
kind = "latency"
y = ["acknowledged", "delivery"]
"#;

/// A folder of its own, gone with this.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = build_folder().join(format!("lab-tools-{}-{name}", std::process::id()));
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

/// Runs it; the only point, which is done.
fn measured(driver: &str, text: &str) -> Value {
    let folder = Folder::new(driver);
    let file = folder.0.join("short.toml");
    fs::write(&file, text).unwrap();
    let mut command = peer::command(&binary());
    // The tools are found from inside the checkout.
    command.current_dir(root()).args(["lab", "run"]).arg(&file);
    command.arg("--out").arg(folder.0.join("run"));
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let ceiling = &folder.json("run.json")["ceilings"][0];
    assert_eq!(ceiling["driver"], driver, "{ceiling}");
    for rate in ["produce_rate", "consume_rate", "client_cpu_per_million"] {
        assert!(ceiling[rate].as_f64().unwrap() > 0.0, "{rate}: {ceiling}");
    }
    let point = folder.json("points/0001.json");
    assert_eq!(point["outcome"]["kind"], "done", "{}", point["outcome"]);
    assert_eq!(point["driver"]["name"], driver);
    assert!(!point["driver"]["version"].as_str().unwrap().is_empty());
    let metrics = &point["metrics"];
    for figure in [
        "produce_rate",
        "consume_rate",
        "acknowledged_p50_us",
        "acknowledged_p99_us",
    ] {
        assert!(
            metrics[figure].as_f64().is_some_and(|value| value > 0.0),
            "{figure}: {metrics}"
        );
    }
    // Nobody looked.
    assert_eq!(
        (&metrics["lost"], &metrics["duplicated"]),
        (&Value::Null, &Value::Null)
    );
    let processes = point["processes"].as_array().unwrap();
    assert!(processes.iter().any(|process| process["kind"] == "broker"));
    assert!(processes.iter().any(|process| process["kind"] == "client"));
    point
}

#[test]
fn the_lab_sends_load_with_perf_test() {
    if peer::perf_test().is_none() || !is_stafett() {
        return;
    }
    let queues = SHORT.replace("partitions = 3", "kind = \"queue\"\ncount = 2");
    let point = measured("perf-test", &queues);
    assert!(point["metrics"]["delivery_p95_us"].as_f64().unwrap() > 0.0);
    let samples = point["roles"][1]["samples"].as_array().unwrap();
    assert!(samples.len() > 1, "it is told of every second: {samples:?}");
}

#[test]
fn the_lab_sends_load_with_kafkas_performance_tests() {
    if peer::kafka_tools().is_none() || !is_stafett() {
        return;
    }
    let point = measured("kafka-perf-test", SHORT);
    assert!(point["metrics"]["acknowledged_p999_us"].as_f64().unwrap() > 0.0);
    assert_eq!(point["metrics"]["delivery_p50_us"], Value::Null);
}
