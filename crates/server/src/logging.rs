//! Structured logs, to standard error: standard output carries only the lines of [`crate::announce`].

use std::io::{self, IsTerminal};
use std::panic;
use std::str::FromStr;

use anyhow::Context;
use stafett_admin::events::Feeds;
use stafett_broker::AuditTrail;
use tracing::Level;
use tracing_subscriber::filter::{Targets, filter_fn};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use crate::config::{Log, LogFormat};
use crate::feeds::{self, AuditLayer, EventLayer, LogLayer};

/// Handle to change the log filter.
#[derive(Debug)]
pub(crate) struct LogFilterHandle(reload::Handle<Targets, Registry>);

impl LogFilterHandle {
    pub(crate) fn set(&self, level: &str) -> anyhow::Result<()> {
        let filter = Targets::from_str(level).context("log.level")?;
        self.0.reload(filter).context("log.level cannot be changed")
    }
}

/// Starts logging, once per process. A panic becomes a log line too. Lines and events are kept in `feeds`,
/// and entries of the audit given to `audit`.
pub(crate) fn start(settings: &Log, feeds: &Feeds, audit: &AuditTrail) -> anyhow::Result<LogFilterHandle> {
    let filter = Targets::from_str(&settings.level).context("log.level")?;
    let (filter, level) = reload::Layer::new(filter);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match settings.format {
        LogFormat::Text => fmt::layer()
            .with_ansi(io::stderr().is_terminal())
            .with_writer(io::stderr)
            .boxed(),
        LogFormat::Json => fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(io::stderr)
            .boxed(),
    };
    let kept = LogLayer(feeds.clone());
    let events =
        EventLayer(feeds.clone()).with_filter(filter_fn(feeds::is_event).with_max_level_hint(Level::DEBUG));
    let audited = AuditLayer(audit.clone());
    let audited = audited.with_filter(filter_fn(feeds::is_audited).with_max_level_hint(Level::INFO));
    let started = registry()
        .with(lines.and_then(kept).with_filter(filter))
        .with(events)
        .with(audited)
        .try_init();
    started.context("logging cannot be started")?;
    panic::set_hook(Box::new(|panic| {
        tracing::error!(%panic, "a mistake in Stafett itself: a task has panicked");
    }));
    Ok(LogFilterHandle(level))
}
