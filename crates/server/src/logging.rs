//! Structured logs, to standard error: standard output carries only the lines of [`crate::announce`].

use std::io::{self, IsTerminal};
use std::panic;
use std::str::FromStr;

use anyhow::Context;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Log, LogFormat};

/// Handle to change the log filter.
#[derive(Debug)]
pub(crate) struct LogFilterHandle(reload::Handle<Targets, Registry>);

impl LogFilterHandle {
    pub(crate) fn set(&self, level: &str) -> anyhow::Result<()> {
        let filter = Targets::from_str(level).context("log.level")?;
        self.0.reload(filter).context("log.level cannot be changed")
    }
}

/// Starts logging, once per process. A panic becomes a log line too.
pub(crate) fn start(settings: &Log) -> anyhow::Result<LogFilterHandle> {
    let filter = Targets::from_str(&settings.level).context("log.level")?;
    let (filter, level) = reload::Layer::new(filter);
    let subscriber = registry().with(filter);
    let started = match settings.format {
        LogFormat::Text => subscriber
            .with(
                fmt::layer()
                    .with_ansi(io::stderr().is_terminal())
                    .with_writer(io::stderr),
            )
            .try_init(),
        LogFormat::Json => subscriber
            .with(fmt::layer().json().flatten_event(true).with_writer(io::stderr))
            .try_init(),
    };
    started.context("logging cannot be started")?;
    panic::set_hook(Box::new(|panic| {
        tracing::error!(%panic, "a mistake in Stafett itself: a task has panicked");
    }));
    Ok(LogFilterHandle(level))
}
