//! The performance log: its settings, and the journal's lines in it.

use std::borrow::Cow;
use std::sync::Arc;

use anyhow::Context;
use prometheus_client::registry::Registry;
use stafett_journal::{Observed, Observer};
use stafett_net::{Line, Trace, TraceSettings};

use crate::config::{Settings, SettingsInForce};
use crate::failure::Failure;

/// Settings that every file of the log begins with, beside those that are not at their defaults.
const SHOWN: [&str; 7] = [
    "durability",
    "worker_threads",
    "request_memory_bytes",
    "kafka.overload",
    "amqp.overload",
    "http.overload",
    "shed.waiting_ms",
];

/// Starts the log, if the settings have one.
pub(crate) fn start(
    settings: &Settings,
    in_force: &SettingsInForce,
    registry: &mut Registry,
) -> Result<Option<Arc<Trace>>, Failure> {
    let Some(dir) = settings.trace.dir.clone() else {
        return Ok(None);
    };
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut head = vec![("version".to_owned(), quoted(env!("CARGO_PKG_VERSION")))];
    for setting in in_force.list() {
        if SHOWN.contains(&setting.key) || setting.source != "default" {
            head.push((setting.key.to_owned(), quoted(&setting.value)));
        }
    }
    let trace = TraceSettings {
        dir: dir.clone(),
        share: settings.trace.share,
        slow: settings.trace.slow_ms,
        bytes_max: settings.trace.bytes_max,
        head,
    };
    let started = Trace::start(&trace, registry);
    let started =
        started.with_context(|| format!("the performance log in {} cannot be written", dir.display()));
    Ok(Some(started?))
}

/// Writes appends and syncs into the log: as many as requests, and those that are slow.
pub(crate) fn observer(trace: Arc<Trace>) -> Observer {
    Observer::new(move |what, took| {
        if trace.wants(trace.samples(), took) {
            let (action, name) = match what {
                Observed::AppendWritten => ("append", "os"),
                Observed::AppendSynced => ("append", "sync"),
                Observed::Sync => ("sync", ""),
            };
            trace.write(Line {
                took,
                name: Cow::Borrowed(name),
                ..Line::of(action)
            });
        }
    })
}
