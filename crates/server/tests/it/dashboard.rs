//! The dashboard for Grafana, `docs/grafana/stafett.json`: each metric that it names is one of `/metrics`.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::common::{Folder, Running, get, serve};

const PREFIX: &str = "stafett_";

/// Returns the names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with(PREFIX)).collect()
}

#[test]
fn each_metric_of_the_dashboard_is_one_of_the_broker() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/grafana/stafett.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let expressions: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(expressions.len() > 30, "{expressions:?}");
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let metrics = get(running.address("http"), "/metrics");
    let known = names(&metrics);
    for expression in expressions {
        let wanted = names(expression);
        assert!(!wanted.is_empty() && wanted.is_subset(&known), "{expression}");
    }
}
