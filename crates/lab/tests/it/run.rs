//! `stafett lab` against Stafett alone: the files that a run leaves, and its end.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use tempfile::TempDir;

use crate::short::{SHORT, SONGS, json, lab, said, written};

#[test]
fn a_short_run_accounts_for_every_message() {
    let folder = TempDir::new().unwrap();
    let output = lab(&folder, &written(&folder, SHORT)).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let run = json(&folder, "run.json");
    assert_eq!(run["status"], "finished");
    assert_eq!(run["order"].as_array().unwrap().len(), 1);
    assert!(run["network"]["bytes_per_second"].as_f64().unwrap() > 0.0);
    assert!(
        run["ceilings"][0]["produce_rate"].as_f64().unwrap() > 0.0,
        "{}",
        run["ceilings"]
    );
    let point = json(&folder, "points/0001.json");
    assert_eq!(point["outcome"]["kind"], "done", "{}", point["outcome"]);
    assert_eq!(point["durability"]["given"], "os");
    let metrics = &point["metrics"];
    assert!(metrics["sent"].as_f64().unwrap() > 0.0);
    assert_eq!(metrics["acknowledged"], metrics["sent"]);
    assert_eq!(metrics["received"], metrics["sent"]);
    assert_eq!(metrics["lost"], 0.0);
    for name in [
        "produce_rate",
        "delivery_p99_us",
        "broker_cpu_per_million",
        "broker_memory_mib",
    ] {
        assert!(metrics[name].as_f64().is_some(), "{name}: {metrics}");
    }
    let kinds: Vec<_> = point["processes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|process| &process["kind"])
        .collect();
    assert_eq!(kinds, ["broker", "client"]);
    let report = String::from_utf8(output.stdout).unwrap();
    assert_eq!(report.trim_end(), "run/report.html");
    assert!(folder.path().join("run/report.html").exists());
    assert!(
        !folder.path().join("run/lab-systems").exists(),
        "what the systems stored is gone"
    );
}

#[test]
fn without_the_program_with_the_clients_a_point_says_how_it_is_built() {
    let folder = TempDir::new().unwrap();
    let text = SHORT.replace("repetitions = 1\n", "repetitions = 1\ndriver = \"client\"\n");
    let output = lab(&folder, &written(&folder, &text))
        .args(["--clients", "nowhere"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let point = json(&folder, "points/0001.json");
    assert_eq!(point["outcome"]["kind"], "skipped");
    let reason = point["outcome"]["reason"].as_str().unwrap();
    assert!(reason.contains("nowhere: there is no such program"), "{reason}");
    assert_eq!(point["driver"]["name"], "librdkafka");
}

#[test]
fn without_the_broker_a_point_says_how_it_is_built() {
    let folder = TempDir::new().unwrap();
    let output = lab(&folder, &written(&folder, SHORT))
        .args(["--stafett", "nowhere"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let outcome = &json(&folder, "points/0001.json")["outcome"];
    assert_eq!(outcome["kind"], "skipped", "{outcome}");
    let reason = outcome["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("nowhere: there is no such program"),
        "{reason}"
    );
}

/// The same over queues: three audiences, each with everything.
fn queues() -> String {
    SHORT
        .replace("partitions = 2", "kind = \"queue\"\nexchange = \"topic\"")
        .replace(
            "does = \"consume\"",
            "does = \"consume\"\nclients = 3\nfan_out = true\nprefetch = 100",
        )
        .replace("[\"os\"]", "[\"memory\", \"os\"]")
}

#[test]
fn queues_are_driven_over_amqp_and_every_audience_gets_everything() {
    let folder = TempDir::new().unwrap();
    let output = lab(&folder, &written(&folder, &queues())).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let run = json(&folder, "run.json");
    assert_eq!(run["ceilings"][0]["driver"], "lean-amqp");
    for rate in ["produce_rate", "consume_rate"] {
        assert!(
            run["ceilings"][0][rate].as_f64().is_some_and(|rate| rate > 0.0),
            "{}",
            run["ceilings"]
        );
    }
    for (number, level) in [(1, "memory"), (2, "os")] {
        let point = json(&folder, &format!("points/{number:04}.json"));
        assert_eq!(point["outcome"]["kind"], "done", "{}", point["outcome"]);
        assert_eq!(point["durability"]["given"], level);
        assert_eq!(point["driver"]["name"], "lean-amqp");
        let metrics = &point["metrics"];
        let count = |name: &str| metrics[name].as_f64().unwrap();
        assert!(count("sent") > 0.0);
        assert_eq!(metrics["acknowledged"], metrics["sent"]);
        assert!((count("received") - 3.0 * count("sent")).abs() < 0.5, "{metrics}");
        assert_eq!((count("lost"), count("duplicated")), (0.0, 0.0), "{metrics}");
    }
}

#[test]
fn one_system_can_be_asked_over_both_protocols() {
    let folder = TempDir::new().unwrap();
    let varied = SHORT.replace(
        "\"system.durability\" = [\"os\"]",
        "\"run.protocol\" = [\"kafka\", \"amqp\"]",
    );
    let output = lab(&folder, &written(&folder, &varied)).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let run = json(&folder, "run.json");
    let drivers: Vec<_> = run["ceilings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ceiling| ceiling["driver"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(drivers, ["lean", "lean-amqp"]);
    for (number, driver) in [(1, "lean"), (2, "lean-amqp")] {
        let point = json(&folder, &format!("points/{number:04}.json"));
        assert_eq!(point["outcome"]["kind"], "done", "{}", point["outcome"]);
        assert_eq!(point["driver"]["name"], driver);
        assert_eq!(point["metrics"]["received"], point["metrics"]["sent"]);
    }
}

/// The process of the broker that a lab has started.
fn broker_of(lab: u32) -> Option<Pid> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let parent = stat
            .rsplit_once(')')?
            .1
            .split_ascii_whitespace()
            .nth(1)?
            .to_owned();
        let command = fs::read_to_string(entry.path().join("cmdline")).ok()?;
        let is_it = parent == lab.to_string() && command.contains("\0serve\0");
        is_it.then(|| Pid::from_raw(pid)).flatten()
    })
}

#[test]
fn a_broker_that_dies_is_a_result_and_the_grid_goes_on() {
    let folder = TempDir::new().unwrap();
    let long = queues().replace("duration = \"1s\"", "duration = \"60s\"");
    let long = long.replace("[\"memory\", \"os\"]", "[\"os\"]");
    let child = lab(&folder, &written(&folder, &long)).spawn().unwrap();
    let out = folder.path().join("run/logs/0001/stafett.out");
    while !fs::read_to_string(&out).is_ok_and(|said| said.lines().any(|line| line == "ready")) {
        thread::sleep(Duration::from_millis(10));
    }
    kill_process(broker_of(child.id()).unwrap(), Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let outcome = &json(&folder, "points/0001.json")["outcome"];
    assert_eq!(outcome["kind"], "failed", "{outcome}");
    assert!(
        outcome["reason"]
            .as_str()
            .is_some_and(|reason| !reason.is_empty()),
        "{outcome}"
    );
    assert_eq!(json(&folder, "run.json")["status"], "finished");
}

#[test]
fn live_topics_deliver_each_report_once_to_whoever_follows() {
    for format in ["json", "msgpack"] {
        let folder = TempDir::new().unwrap();
        let text = SONGS.replace("count = 20", &format!("count = 20\nformat = \"{format}\""));
        let output = lab(&folder, &written(&folder, &text)).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let point = json(&folder, "points/0001.json");
        assert_eq!(point["outcome"]["kind"], "done", "{}", point["outcome"]);
        assert_eq!(point["driver"]["name"], "lean live");
        let metrics = &point["metrics"];
        let (sent, received) = (
            metrics["sent"].as_f64().unwrap(),
            metrics["received"].as_f64().unwrap(),
        );
        // Five report each start, which four of the forty users wait for.
        let reported = received / 4.0;
        assert!(received > 0.0 && reported.fract() == 0.0, "{metrics}");
        // Of the last ones some of the five were stopped before they reported them.
        assert!(reported >= sent / 5.0, "{metrics}");
        assert_eq!(
            (&metrics["lost"], &metrics["duplicated"]),
            (&0.0.into(), &0.0.into())
        );
        assert!(metrics["delivery_p99_us"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn live_topics_with_a_log_are_caught_up_with() {
    let folder = TempDir::new().unwrap();
    let text = SONGS
        .replace("filter = \"1m\"", "stored = true")
        .replace("clients = 10\ncopies = 5\nrate = { fixed = 500 }", "total = 3000")
        .replace("clients = 8\nusers = 5\nfollows = 2", "after = \"reports\"")
        .replace("duration = \"2s\"", "duration = \"60s\"")
        .replace("warmup = \"200ms\"", "warmup = \"0s\"");
    let output = lab(&folder, &written(&folder, &text)).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let point = json(&folder, "points/0001.json");
    assert_eq!(point["outcome"]["kind"], "done", "{}", point["outcome"]);
    let metrics = &point["metrics"];
    assert_eq!(
        (&metrics["sent"], &metrics["received"]),
        (&3000.0.into(), &3000.0.into())
    );
    assert!(metrics["drain_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn mistakes_name_their_line_and_run_nothing() {
    let folder = TempDir::new().unwrap();
    let wrong = SHORT.replace("clients = 2", "client = 2");
    let output = lab(&folder, &written(&folder, &wrong)).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("short.toml:15: unknown field `client`"),
        "{}",
        said(&output)
    );
    assert!(!folder.path().join("run").exists());
    let contradiction = queues().replace("[topics.main]", "protocol = \"kafka\"\n\n[topics.main]");
    let output = lab(&folder, &written(&folder, &contradiction)).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("short.toml:13: Kafka's protocol has no such kind of topics"),
        "{}",
        said(&output)
    );
    let output = lab(&folder, Path::new("peek")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("`peek` is no experiment and no file"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_setting_that_a_system_refuses_is_a_result() {
    let folder = TempDir::new().unwrap();
    let refused = SHORT.replace(
        "[topics.main]",
        "[system.stafett.set]\n\"no.such\" = 1\n\n[topics.main]",
    );
    let output = lab(&folder, &written(&folder, &refused)).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let outcome = &json(&folder, "points/0001.json")["outcome"];
    assert_eq!(outcome["kind"], "refused", "{outcome}");
    assert!(
        outcome["reason"].as_str().unwrap().contains("no.such"),
        "{outcome}"
    );
}

#[test]
fn a_run_that_was_interrupted_goes_on_where_it_was() {
    let folder = TempDir::new().unwrap();
    let file = written(&folder, &SHORT.replace("repetitions = 1", "repetitions = 3"));
    let child = lab(&folder, &file).spawn().unwrap();
    let first = folder.path().join("run/points");
    while !fs::read_dir(&first).is_ok_and(|points| points.count() > 0) {
        thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(json(&folder, "run.json")["status"], "interrupted");
    let before = fs::read(folder.path().join("run/points/0001.json")).ok();
    let output = lab(&folder, &file).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        said(&output).contains("of them measured before"),
        "{}",
        said(&output)
    );
    let run = json(&folder, "run.json");
    assert_eq!(run["status"], "finished");
    for number in 1..=3 {
        assert_eq!(
            json(&folder, &format!("points/000{number}.json"))["outcome"]["kind"],
            "done"
        );
    }
    if let Some(before) = before {
        assert_eq!(
            fs::read(folder.path().join("run/points/0001.json")).unwrap(),
            before
        );
    }
    // Another experiment does not go on there.
    let output = lab(&folder, &written(&folder, SHORT)).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("holds another run"), "{}", said(&output));
}
