//! Settings that change while the broker runs: on SIGHUP or by a request the settings are read again, and a
//! request changes the log level for a time.
//!
//! Settings that need a restart keep their values and are logged. A file with an error changes nothing.

use std::io;
use std::time::Duration;

use stafett_admin::node::{FailedSetting, LogLevel, Reloaded};
use stafett_http::{Code, Problem};
use stafett_net::EVENTS;
use tokio::signal::unix::Signal;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::config::kind::{Kind, LogFilter};
use crate::config::{self, ConfigError, Definition, Flags, Loaded, Settings, SettingsInForce};
use crate::core::Core;
use crate::logging::LogFilterHandle;
use crate::node::Command;
use crate::signals::{self, received};

/// The settings in force, and everything needed to read them again.
pub(crate) struct Reload {
    settings: Settings,
    in_force: SettingsInForce,
    flags: Flags,
    level: LogFilterHandle,
    /// End of a log level that holds for a time.
    level_until: Option<Instant>,
    commands: mpsc::Receiver<Command>,
    /// `None` if there is no file.
    hangup: Option<Signal>,
}

impl Reload {
    pub(crate) fn listen(
        loaded: Loaded,
        flags: Flags,
        level: LogFilterHandle,
        commands: mpsc::Receiver<Command>,
    ) -> io::Result<Self> {
        let hangup = if config::has_file(&flags) {
            Some(signals::hangup()?)
        } else {
            None
        };
        Ok(Self {
            in_force: SettingsInForce::new(&loaded),
            settings: loaded.settings,
            flags,
            level,
            level_until: None,
            commands,
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

    /// Returns the settings in force, as they are shown.
    pub(crate) fn in_force(&self) -> &SettingsInForce {
        &self.in_force
    }

    /// Reads the settings again at every SIGHUP, and executes commands; never returns.
    pub(crate) async fn run(&mut self, core: &Core) {
        loop {
            tokio::select! {
                () = received(&mut self.hangup) => {
                    // Everything is logged where it happens.
                    let _ = self.read_again(core).await;
                }
                Some(command) = self.commands.recv() => self.execute(command, core).await,
                () = over(self.level_until) => self.restore_level(),
            }
        }
    }

    async fn execute(&mut self, command: Command, core: &Core) {
        // A caller that has left gets no reply.
        match command {
            Command::Reload(reply) => {
                let read = self.read_again(core).await;
                let _ = reply.send(read.map_err(|error| Problem::new(Code::BadSettings, error)));
            }
            Command::LogLevel { level, time, reply } => {
                let _ = reply.send(self.set_level(&level, time));
            }
        }
    }

    async fn read_again(&mut self, core: &Core) -> Result<Reloaded, ConfigError> {
        match config::load(self.flags.clone(), std::env::vars_os()) {
            Ok(loaded) => {
                let reloaded = self.change(&loaded.settings, core).await;
                self.in_force.replace(&reloaded.changed, &loaded);
                Ok(reloaded)
            }
            Err(error) => {
                tracing::error!(%error, "the settings were not read again: those before stay in force");
                Err(error)
            }
        }
    }

    fn set_level(&mut self, level: &str, time: Option<Duration>) -> Result<LogLevel, Problem> {
        let level = LogFilter::read(level, None)
            .map_err(|why| Problem::new(Code::BadSettings, format!("level: {why}")))?;
        tracing::info!(target: EVENTS, kind = "node.log_level_changed", level, ?time, "the log level changes by a request");
        let set = self.level.set(&level);
        set.map_err(|error| Problem::new(Code::BadSettings, format!("{error:#}")))?;
        self.level_until = time.map(|time| Instant::now() + time);
        Ok(LogLevel {
            level,
            for_s: time.map(|time| time.as_secs()),
        })
    }

    /// Puts the setting `log.level` in force again.
    fn restore_level(&mut self) {
        self.level_until = None;
        match self.level.set(&self.settings.log.level) {
            Ok(()) => tracing::info!(
                level = self.settings.log.level,
                "the log level is that of the settings again"
            ),
            Err(error) => tracing::error!(error = format!("{error:#}"), "the log level stays"),
        }
    }

    async fn change(&mut self, new: &Settings, core: &Core) -> Reloaded {
        let differences = self.settings.differences(new);
        tracing::info!(differences = differences.len(), "the settings were read again");
        let mut reloaded = Reloaded::default();
        for definition in differences.iter().filter(|definition| !definition.reloads) {
            tracing::warn!(setting = definition.key, "setting needs a restart");
            reloaded.needs_restart.push(definition.key);
        }
        let has = |key: &str| {
            differences
                .iter()
                .copied()
                .find(|definition| definition.key == key)
        };
        if let Some(definition) = has("live.logs") {
            match core.change_live_logs(new).await {
                Ok(()) => {
                    self.settings.live.logs.clone_from(&new.live.logs);
                    changed(definition, &mut reloaded);
                }
                Err(error) => failed(definition, &error, &mut reloaded),
            }
        }
        let filter = has("live.duplicates")
            .into_iter()
            .chain(has("live.duplicates_max"));
        for (place, definition) in filter.enumerate() {
            if place == 0 {
                core.change_duplicates(new);
                self.settings.live.duplicates.clone_from(&new.live.duplicates);
                self.settings.live.duplicates_max = new.live.duplicates_max;
            }
            changed(definition, &mut reloaded);
        }
        // Last, so that earlier lines are logged at the previous level.
        if let Some(definition) = has("log.level") {
            changed(definition, &mut reloaded);
            match self.level.set(&new.log.level) {
                Ok(()) => {
                    self.settings.log.level.clone_from(&new.log.level);
                    self.level_until = None;
                }
                Err(error) => failed(definition, &error, &mut reloaded),
            }
        }
        reloaded
    }
}

/// Waits for a moment; for ever if there is none.
async fn over(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

fn changed(definition: &Definition, reloaded: &mut Reloaded) {
    tracing::info!(target: EVENTS, kind = "node.setting_changed", setting = definition.key, "setting changed");
    reloaded.changed.push(definition.key);
}

fn failed(definition: &Definition, error: &anyhow::Error, reloaded: &mut Reloaded) {
    let why = format!("{error:#}");
    tracing::error!(
        setting = definition.key,
        error = why,
        "setting not changed: what was in force before still is"
    );
    reloaded.changed.retain(|key| *key != definition.key);
    reloaded.failed.push(FailedSetting {
        key: definition.key,
        why,
    });
}
