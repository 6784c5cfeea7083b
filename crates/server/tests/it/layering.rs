//! Which crate may depend on which.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;

/// Think hard about the layering before changing this table.
const ALLOWED: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("access", &["model"]),
    ("accounts", &["access", "journal", "model", "store", "topics"]),
    ("counters", &["model"]),
    ("expr", &["model"]),
    ("journal", &["model"]),
    ("trust", &[]),
    ("objects", &["trust"]),
    ("cluster", &["journal", "model", "objects", "trust"]),
    ("queue", &["model"]),
    ("routing", &["expr", "model"]),
    ("store", &["journal", "model"]),
    ("topics", &["counters", "journal", "model", "store"]),
    ("groups", &["counters", "journal", "model", "store", "topics"]),
    ("transactions", &["groups", "journal", "model", "store", "topics"]),
    (
        "live-topics",
        &["expr", "journal", "model", "routing", "store", "topics"],
    ),
    ("apps", &["expr", "journal", "model", "store", "topics"]),
    (
        "delivery",
        &["counters", "journal", "model", "queue", "store", "topics"],
    ),
    (
        "messaging",
        &[
            "access", "counters", "delivery", "journal", "model", "queue", "routing", "store", "topics",
        ],
    ),
    (
        "shares",
        &["delivery", "journal", "model", "queue", "store", "topics"],
    ),
    (
        "broker",
        &[
            "access",
            "accounts",
            "apps",
            "counters",
            "delivery",
            "groups",
            "journal",
            "live-topics",
            "messaging",
            "model",
            "shares",
            "store",
            "topics",
            "transactions",
        ],
    ),
    ("net", &[]),
    ("cells", &["journal", "model", "net", "topics"]),
    (
        "admin",
        &[
            "access",
            "apps",
            "broker",
            "delivery",
            "groups",
            "http",
            "journal",
            "live-topics",
            "messaging",
            "model",
            "net",
            "routing",
            "store",
            "topics",
            "transactions",
            "ws",
        ],
    ),
    ("amqp-wire", &[]),
    (
        "amqp",
        &[
            "access",
            "amqp-wire",
            "broker",
            "delivery",
            "http",
            "messaging",
            "model",
            "net",
            "routing",
            "store",
            "topics",
        ],
    ),
    ("kafka-wire", &[]),
    (
        "kafka",
        &[
            "access",
            "broker",
            "groups",
            "kafka-wire",
            "messaging",
            "model",
            "net",
            "shares",
            "store",
            "topics",
            "transactions",
        ],
    ),
    ("kafka-client", &["kafka-wire", "model"]),
    (
        "sinks",
        &["amqp-wire", "expr", "kafka-client", "model", "objects", "trust"],
    ),
    ("sql", &["kafka-client", "model", "sinks", "trust"]),
    ("http", &["access", "model", "net", "ws"]),
    (
        "lab",
        &[
            "amqp-wire",
            "charts",
            "console",
            "http",
            "kafka-client",
            "kafka-wire",
            "model",
            "net",
            "perflog",
            "statistics",
        ],
    ),
    ("charts", &["statistics"]),
    ("perflog", &["charts"]),
    ("statistics", &[]),
    ("live", &["access", "http", "live-topics", "net", "ws"]),
    ("ingest", &["broker", "expr", "http", "model", "store", "topics"]),
    ("console", &["http"]),
    ("ws", &["net"]),
    (
        "simulation",
        &[
            "amqp",
            "amqp-wire",
            "apps",
            "broker",
            "delivery",
            "groups",
            "http",
            "journal",
            "kafka",
            "kafka-wire",
            "live",
            "live-topics",
            "messaging",
            "model",
            "net",
            "store",
            "topics",
        ],
    ),
    (
        "server",
        &[
            "access",
            "admin",
            "amqp",
            "broker",
            "cells",
            "cluster",
            "console",
            "groups",
            "http",
            "ingest",
            "journal",
            "kafka",
            "kafka-client",
            "live",
            "live-topics",
            "messaging",
            "model",
            "net",
            "sinks",
            "topics",
            "ws",
        ],
    ),
];

/// Words of protocols that the core must not speak.
const PROTOCOL_WORDS: &[&str] = &["amqp", "rabbitmq", "websocket", "librdkafka"];

pub(crate) fn crates() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn dependencies(name: &str) -> BTreeSet<String> {
    let manifest = std::fs::read_to_string(crates().join(name).join("Cargo.toml")).unwrap();
    let normal = manifest.split("[dev-dependencies]").next().unwrap();
    normal
        .lines()
        .filter_map(|line| line.strip_prefix("stafett-"))
        .filter_map(|rest| rest.split(['.', ' ', '=']).next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn crates_depend_only_on_what_the_table_allows() {
    let mut found: Vec<_> = std::fs::read_dir(crates())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    let mut listed: Vec<_> = ALLOWED.iter().map(|(name, _)| (*name).to_owned()).collect();
    listed.sort();
    assert_eq!(found, listed, "every crate stands in the table");
    for (name, allowed) in ALLOWED {
        for dependency in dependencies(name) {
            assert!(
                allowed.contains(&dependency.as_str()),
                "{name} must not depend on {dependency}"
            );
        }
    }
}

fn sources(folder: &Path, visit: &mut impl FnMut(&Path, &str)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, visit);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            visit(&path, &std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn below_the_front_ends_no_protocol_is_in_the_code() {
    for name in [
        "model",
        "access",
        "counters",
        "journal",
        "cluster",
        "queue",
        "routing",
        "store",
        "topics",
        "groups",
        "transactions",
        "live-topics",
        "delivery",
        "messaging",
        "shares",
        "apps",
        "broker",
        "net",
        "cells",
    ] {
        sources(&crates().join(name).join("src"), &mut |path, text| {
            // Tests may say whose bytes they read.
            let code = text.split("#[cfg(test)]").next().unwrap();
            for (number, line) in code.lines().enumerate() {
                // A comment may name where a fact or a format is from; code may not.
                let code = line.split("//").next().unwrap().to_lowercase();
                for word in PROTOCOL_WORDS.iter().chain(&["kafka"]) {
                    assert!(!code.contains(word), "{}:{}: {word}", path.display(), number + 1);
                }
            }
        });
    }
}
