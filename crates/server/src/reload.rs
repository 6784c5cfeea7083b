//! Settings that change while the broker runs: on SIGHUP or by a request the settings are read again, and a
//! request changes the log level for a time.
//!
//! Settings that need a restart keep their values and are logged. A file with an error changes nothing.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use stafett_admin::node::{FailedSetting, LogLevel, Reloaded};
use stafett_http::{Code, Problem};
use stafett_net::{EVENTS, NetMetrics, Trace};
use tokio::signal::unix::Signal;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::config::kind::{Kind, LogFilter};
use crate::config::{self, ConfigError, DEFINITIONS, Definition, Flags, Loaded, Settings, SettingsInForce};
use crate::core::Core;
use crate::failure::Failure;
use crate::logging::LogFilterHandle;
use crate::node::Command;
use crate::signals::{self, received};
use crate::tls::{self, Certificates};

/// The settings in force, and everything needed to read them again.
pub(crate) struct Reload {
    settings: Settings,
    certificates: Arc<Certificates>,
    in_force: SettingsInForce,
    flags: Flags,
    level: LogFilterHandle,
    /// End of a log level that holds for a time.
    level_until: Option<Instant>,
    /// The performance log, if the settings of the start have one.
    trace: Option<Arc<Trace>>,
    commands: mpsc::Receiver<Command>,
    /// `None` if there is no file.
    hangup: Option<Signal>,
}

/// Settings and certificates of a run of the process's parts.
#[derive(Clone)]
pub(crate) struct Given {
    pub(crate) settings: Settings,
    /// The settings, as they are shown.
    pub(crate) in_force: SettingsInForce,
    pub(crate) certificates: Arc<Certificates>,
}

impl Reload {
    pub(crate) fn listen(
        loaded: Loaded,
        flags: Flags,
        level: LogFilterHandle,
        commands: mpsc::Receiver<Command>,
    ) -> Result<Self, Failure> {
        let certificates = Certificates::load(&loaded.settings)?;
        let hangup = if config::has_file(&flags) {
            Some(signals::hangup().context("signals cannot be taken over")?)
        } else {
            None
        };
        Ok(Self {
            certificates: Arc::new(certificates),
            in_force: SettingsInForce::new(&loaded),
            settings: loaded.settings,
            flags,
            level,
            level_until: None,
            trace: None,
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

    /// Returns the settings and parts of a run of the process.
    pub(crate) fn given(&self) -> Given {
        Given {
            settings: self.settings.clone(),
            in_force: self.in_force.clone(),
            certificates: Arc::clone(&self.certificates),
        }
    }

    /// Reads the settings again at every SIGHUP, and certificates when their files change; executes commands;
    /// never returns.
    pub(crate) async fn run(&mut self, core: &Core, net: &NetMetrics, trace: Option<Arc<Trace>>) {
        self.trace = trace;
        let mut looks = interval(tls::LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = received(&mut self.hangup) => {
                    // Everything is logged where it happens.
                    let _ = self.read_again(core, net).await;
                }
                Some(command) = self.commands.recv() => self.execute(command, core, net).await,
                _ = looks.tick() => self.certificates.look(net),
                () = over(self.level_until) => self.restore_level(),
            }
        }
    }

    async fn execute(&mut self, command: Command, core: &Core, net: &NetMetrics) {
        // A caller that has left gets no reply.
        match command {
            Command::Reload(reply) => {
                let read = self.read_again(core, net).await;
                let _ = reply.send(read.map_err(|error| Problem::new(Code::BadSettings, error)));
            }
            Command::LogLevel { level, time, reply } => {
                let _ = reply.send(self.set_level(&level, time));
            }
        }
    }

    async fn read_again(&mut self, core: &Core, net: &NetMetrics) -> Result<Reloaded, ConfigError> {
        match config::load(self.flags.clone(), std::env::vars_os()) {
            Ok(loaded) => {
                let reloaded = self.change(&loaded.settings, core, net).await;
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

    async fn change(&mut self, new: &Settings, core: &Core, net: &NetMetrics) -> Reloaded {
        let differences = self.settings.differences(new);
        tracing::info!(differences = differences.len(), "the settings were read again");
        let mut reloaded = Reloaded::default();
        for definition in differences.iter().filter(|definition| !definition.reloads) {
            tracing::warn!(setting = definition.key, "setting needs a restart");
            reloaded.needs_restart.push(definition.key);
        }
        self.change_certificates(new, &differences, net, &mut reloaded);
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
        self.change_bearer(new, core, &differences, &mut reloaded);
        self.change_numbers(new, core, &differences, &mut reloaded);
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

/// Settings that hold from the next request or sample on.
const OF_NUMBERS: &[&str] = &["trace.share", "trace.slow_ms", "history.bytes_max"];

/// Settings of TLS that are all read together.
const OF_TLS: &[&str] = &[
    "tls.certificate",
    "tls.key",
    "tls.clients",
    "tls.client_ca",
    "tls.client_user",
    "tls.version_min",
    "kafka.tls_certificate",
    "kafka.tls_key",
    "amqp.tls_certificate",
    "amqp.tls_key",
    "http.tls_certificate",
    "http.tls_key",
];

impl Reload {
    /// Reads the keys of the authorization server again, also if only the file differs.
    fn change_bearer(
        &mut self,
        new: &Settings,
        core: &Core,
        differences: &[&'static Definition],
        reloaded: &mut Reloaded,
    ) {
        let of_oauth = differences.iter().filter(|it| it.key.starts_with("oauth."));
        match core.change_bearer(new) {
            Ok(()) => {
                self.settings.oauth.clone_from(&new.oauth);
                of_oauth.for_each(|definition| changed(definition, reloaded));
            }
            Err(error) => {
                // The earlier keys stay.
                if let Some(definition) = DEFINITIONS.iter().find(|it| it.key == "oauth.keys") {
                    failed(definition, &error, reloaded);
                }
            }
        }
    }

    /// Changes the numbers of the performance log and of histories. Without a performance log they are those
    /// of the next start.
    fn change_numbers(
        &mut self,
        new: &Settings,
        core: &Core,
        differences: &[&'static Definition],
        reloaded: &mut Reloaded,
    ) {
        if let Some(trace) = &self.trace {
            trace.set(new.trace.share, new.trace.slow_ms);
        }
        core.broker().histories().set_bytes_max(new.history.bytes_max);
        self.settings.trace.share = new.trace.share;
        self.settings.trace.slow_ms = new.trace.slow_ms;
        self.settings.history.bytes_max = new.history.bytes_max;
        for definition in differences.iter().filter(|it| OF_NUMBERS.contains(&it.key)) {
            changed(definition, reloaded);
        }
    }

    /// Reads certificates again, also if only their files differ.
    fn change_certificates(
        &mut self,
        new: &Settings,
        differences: &[&'static Definition],
        net: &NetMetrics,
        reloaded: &mut Reloaded,
    ) {
        let of_tls = || differences.iter().filter(|it| OF_TLS.contains(&it.key));
        if self.certificates.differs_in_parts(new) {
            reloaded.needs_restart.extend(of_tls().map(|it| it.key));
            tracing::warn!("TLS of a listener that had none, or has none any more, needs a restart");
            return;
        }
        let have_changed = self.certificates.has_changed();
        let failed = self.certificates.reload(new, net);
        if !failed.is_empty() {
            reloaded.failed.extend(failed);
            return;
        }
        self.settings.tls.clone_from(&new.tls);
        for (mine, theirs) in [
            (
                &mut self.settings.kafka.tls_certificate,
                &new.kafka.tls_certificate,
            ),
            (&mut self.settings.kafka.tls_key, &new.kafka.tls_key),
            (&mut self.settings.amqp.tls_certificate, &new.amqp.tls_certificate),
            (&mut self.settings.amqp.tls_key, &new.amqp.tls_key),
            (&mut self.settings.http.tls_certificate, &new.http.tls_certificate),
            (&mut self.settings.http.tls_key, &new.http.tls_key),
        ] {
            mine.clone_from(theirs);
        }
        for definition in of_tls() {
            changed(definition, reloaded);
        }
        if have_changed && !reloaded.changed.contains(&tls::KEY) {
            reloaded.changed.push(tls::KEY);
        }
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
