//! Roles that assemble sessions: workers of an app are killed, and others take over.

use tempfile::TempDir;

use crate::short::{json, lab, said, written};

const SESSIONS: &str = r#"question = "Does every session come out once?"
systems = ["stafett", "kafka"]

[run]
duration = "6s"
warmup = "0s"
break_in = "0s"
repetitions = 1
settle = "15s"

[topics.fragments]
partitions = 12

[topics.whole]
partitions = 2

[roles.producers]
does = "produce"
topics = "fragments"
clients = 2
rate = { fixed = 1000 }
total = 4000

[roles.workers]
does = "assemble"
topics = "fragments"
to = "whole"
clients = 3
session = { fragments = 5, open = 4, unended = 0.2, timeout = "500ms", worker_timeout = "1s" }
kill = { after = "1s", every = "1s", away = "1s" }

[roles.readers]
does = "consume"
topics = "whole"

[[figures]]
title = "Lost"
kind = "bars"
x = "system"
y = ["lost"]
"#;

#[test]
fn every_session_comes_out_once_while_workers_are_killed() {
    let folder = TempDir::new().unwrap();
    let output = lab(&folder, &written(&folder, SESSIONS)).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let points = [1, 2].map(|number| json(&folder, &format!("points/{number:04}.json")));
    for point in points {
        let outcome = &point["outcome"];
        if point["system"] == "kafka" {
            assert_eq!(outcome["kind"], "skipped", "{outcome}");
            assert_eq!(outcome["reason"], "it has no apps");
            continue;
        }
        assert_eq!(outcome["kind"], "done", "{outcome}");
        let metrics = &point["metrics"];
        assert_eq!(metrics["acknowledged"], 4000.0, "{metrics}");
        assert_eq!(metrics["received"], 4000.0, "{metrics}");
        assert_eq!(
            (&metrics["lost"], &metrics["duplicated"]),
            (&0.0.into(), &0.0.into())
        );
        assert!(metrics["tasks_moved"].as_f64().unwrap() >= 4.0, "{metrics}");
        assert!(metrics["task_gap_s"].as_f64().unwrap() >= 0.5, "{metrics}");
    }
}

#[test]
fn contradictions_of_sessions_are_said_before_anything_runs() {
    for (from, to, wanted) in [
        ("to = \"whole\"\n", "", "names the set that it reads"),
        (
            "to = \"whole\"",
            "to = \"fragments\"",
            "does not write to the set",
        ),
        (
            "settle = \"15s\"",
            "settle = \"1s\"",
            "1500 ms after their last message",
        ),
        ("fragments = 5", "fragments = 0", "1 to 1000 messages"),
        (
            "does = \"consume\"",
            "does = \"consume\"\nsession = {}",
            "for a role that does `assemble`",
        ),
        ("partitions = 12", "count = 12", "count = 1"),
    ] {
        let folder = TempDir::new().unwrap();
        let text = SESSIONS.replacen(from, to, 1);
        assert_ne!(text, SESSIONS);
        let output = lab(&folder, &written(&folder, &text)).output().unwrap();
        assert!(!output.status.success(), "{wanted}");
        assert!(said(&output).contains(wanted), "{wanted}: {}", said(&output));
    }
}
