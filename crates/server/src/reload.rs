//! Settings that change while the broker runs: on SIGHUP the file is read again.
//!
//! Settings that need a restart keep their values and are logged. A file with an error changes nothing.

use std::io;

use tokio::signal::unix::Signal;

use crate::config::{self, ConfigError, Definition, Flags, Settings};
use crate::core::Core;
use crate::logging::LogLevel;
use crate::signals;

/// The settings in force, and everything needed to read them again.
pub(crate) struct Reload {
    settings: Settings,
    flags: Flags,
    level: LogLevel,
    /// `None` if there is no file.
    hangup: Option<Signal>,
}

impl Reload {
    pub(crate) fn listen(settings: Settings, flags: Flags, level: LogLevel) -> io::Result<Self> {
        let hangup = if config::has_file(&flags) {
            Some(signals::hangup()?)
        } else {
            None
        };
        Ok(Self {
            settings,
            flags,
            level,
            hangup,
        })
    }

    /// Returns true if SIGHUP makes the process read the settings again.
    pub(crate) fn has_file(&self) -> bool {
        self.hangup.is_some()
    }

    /// Returns the settings in force.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Reads the settings again at every SIGHUP; never returns.
    pub(crate) async fn run(&mut self, core: &Core) {
        loop {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            };
            match config::load(self.flags.clone(), std::env::vars_os()) {
                Ok(settings) => self.change(settings, core).await,
                Err(error) => said(&error),
            }
        }
    }

    async fn change(&mut self, new: Settings, core: &Core) {
        let differences = self.settings.differences(&new);
        tracing::info!(differences = differences.len(), "the settings were read again");
        for definition in differences.iter().filter(|definition| !definition.reloads) {
            tracing::warn!(setting = definition.key, "setting needs a restart");
        }
        let has = |key: &str| {
            differences
                .iter()
                .copied()
                .find(|definition| definition.key == key)
        };
        if let Some(definition) = has("live.logs") {
            match core.change_live_logs(&new).await {
                Ok(()) => {
                    self.settings.live.logs.clone_from(&new.live.logs);
                    changed(definition);
                }
                Err(error) => tracing::error!(
                    setting = definition.key,
                    error = format!("{error:#}"),
                    "setting not changed: what was in force before still is"
                ),
            }
        }
        let filter = has("live.duplicates")
            .into_iter()
            .chain(has("live.duplicates_max"));
        for (place, definition) in filter.enumerate() {
            if place == 0 {
                core.change_duplicates(&new);
                self.settings.live.duplicates.clone_from(&new.live.duplicates);
                self.settings.live.duplicates_max = new.live.duplicates_max;
            }
            changed(definition);
        }
        // Last, so that earlier lines are logged at the previous level.
        if let Some(definition) = has("log.level") {
            changed(definition);
            match self.level.set(&new.log.level) {
                Ok(()) => self.settings.log.level = new.log.level,
                Err(error) => tracing::error!(error = format!("{error:#}"), "setting not changed"),
            }
        }
    }
}

fn changed(definition: &Definition) {
    tracing::info!(setting = definition.key, "setting changed");
}

fn said(error: &ConfigError) {
    tracing::error!(%error, "the settings were not read again: those before stay in force");
}
