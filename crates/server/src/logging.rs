//! Structured logs, to standard error: standard output carries only what [`crate::announce`] says.

use std::io::{self, IsTerminal};
use std::panic;
use std::str::FromStr;

use anyhow::Context;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Log, LogFormat};

/// Starts logging, once per process. A panic becomes a log line too.
pub(crate) fn start(settings: &Log) -> anyhow::Result<()> {
    let filter = Targets::from_str(&settings.level).context("log.level")?;
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
    Ok(())
}
