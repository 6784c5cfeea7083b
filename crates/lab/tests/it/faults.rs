//! Reports of runs with faults of the broker under load, and with queues over HTTP.

use tempfile::TempDir;

use crate::short::{json, lab, said, written};

const KILLED: &str = r#"question = "Is anything lost when the broker is killed?"
systems = ["stafett"]

[run]
duration = "3s"
warmup = "0s"
break_in = "0s"
repetitions = 1

[roles.producers]
does = "produce"
rate = { fixed = 500 }
linger = "0us"

[roles.consumers]
does = "consume"
commit = "100ms"

[faults.crash]
does = "kill"
at = "1s"
for = "300ms"

[grid]
"faults.crash.does" = ["kill", "pause"]

[[figures]]
title = "Away"
kind = "bars"
x = "faults.crash.does"
y = ["recovered_s", "unavailable_s"]

[[figures]]
title = "Rate"
kind = "time"
y = ["rate", "network_in", "broker_cpu_user"]
"#;

const ASKED: &str = r#"question = "How long do a send and a dequeue take?"
systems = ["stafett"]

[run]
duration = "2s"
warmup = "0s"
break_in = "0s"
repetitions = 1
protocol = "http"

[topics.main]
kind = "queue"
count = 2

[roles.senders]
does = "produce"
clients = 2
rate = { fixed = 100 }
registered = true
priority = { uniform = [1, 10] }

[roles.takers]
does = "consume"
clients = 2
poll = "5ms"
select = { order = "oldest", senders = 2 }

[roles.lookers]
does = "peek"
poll = "20ms"

[[figures]]
title = "Times"
kind = "bars"
x = "system"
y = ["acknowledged_stddev_us", "poll_p97_5_us", "within_500ms_share"]

[[figures]]
title = "Over time"
kind = "time"
y = ["band", "mean"]
window = "10s"
"#;

#[test]
fn a_broker_that_is_killed_or_held_is_back_with_what_it_has_stored() {
    let folder = TempDir::new().unwrap();
    let output = lab(&folder, &written(&folder, KILLED)).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    for number in 1..=2 {
        let point = json(&folder, &format!("points/{number:04}.json"));
        assert_eq!(point["outcome"]["kind"], "done", "{}", point["outcome"]);
        let metrics = &point["metrics"];
        assert_eq!(metrics["lost"], 0.0, "{metrics}");
        let [recovered, away] = ["recovered_s", "unavailable_s"].map(|name| metrics[name].as_f64().unwrap());
        assert!(recovered >= 0.2 && away >= 0.2, "{metrics}");
        let outages = point["outages"].as_array().unwrap();
        assert_eq!(outages.len(), 1);
    }
    let report = std::fs::read_to_string(folder.path().join("run/report.html")).unwrap();
    assert!(
        !report.contains("class=\"nothing empty\""),
        "each figure is drawn"
    );
}

#[test]
fn queues_are_asked_over_http_and_every_message_is_accounted_for() {
    let folder = TempDir::new().unwrap();
    let output = lab(&folder, &written(&folder, ASKED)).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let point = json(&folder, "points/0001.json");
    assert_eq!(point["outcome"]["kind"], "done", "{}", point["outcome"]);
    assert_eq!(point["driver"]["name"], "lean http");
    let metrics = &point["metrics"];
    let number = |name: &str| metrics[name].as_f64().unwrap_or(f64::NAN);
    assert!(number("acknowledged") > 0.0);
    assert_eq!((number("lost"), number("failed")), (0.0, 0.0), "{metrics}");
    assert!(
        number("poll_p50_us") > 0.0 && number("poll_max_us") >= number("poll_p97_5_us"),
        "{metrics}"
    );
    let roles = point["roles"].as_array().unwrap();
    let looked = roles.iter().find(|role| role["does"] == "peek").unwrap();
    assert!(looked["latencies"]["poll"]["count"].as_u64().unwrap() > 0);
    let takers = roles.iter().find(|role| role["does"] == "consume").unwrap();
    assert!(!takers["windows"].as_array().unwrap().is_empty());
    let report = std::fs::read_to_string(folder.path().join("run/report.html")).unwrap();
    assert!(
        !report.contains("class=\"nothing empty\""),
        "each figure is drawn"
    );
}
