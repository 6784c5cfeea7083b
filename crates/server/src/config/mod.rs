//! The settings: a TOML file, overridden by the environment, overridden by flags.
//!
//! Each setting is defined once, in the table in [`settings`]; the typed struct, the names in file and
//! environment, the flags and `docs/configuration.md` are generated from it. Values are text with their
//! source until their [`kind`] parses them, so that all sources accept the same notations and every error
//! names its source.
//!
//! - [`settings`]: the table; [`table`]: the macro behind it; [`relations`]: checks of settings together
//! - [`definition`]: one row of the table
//! - [`kind`]: conversion of text to values
//! - [`http`], [`live`], [`cluster`]: kinds that only these tables have; [`tls`]: those of TLS
//! - [`file`], [`environment`]: two of the sources
//! - [`values`]: the given values, by key; [`in_force`]: the settings as the HTTP API shows them
//! - [`error`]: errors in settings
//! - [`docs`]: the page about the settings

pub(crate) mod cluster;
pub(crate) mod definition;
pub(crate) mod docs;
pub(crate) mod environment;
pub(crate) mod error;
pub(crate) mod file;
pub(crate) mod http;
mod in_force;
pub(crate) mod kind;
pub(crate) mod live;
mod relations;
pub(crate) mod settings;
mod table;
#[cfg(test)]
mod tests;
pub(crate) mod tls;
pub(crate) mod values;

use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) use definition::Definition;
pub(crate) use error::ConfigError;
pub(crate) use in_force::SettingsInForce;
pub(crate) use kind::LogFormat;
pub(crate) use settings::{Amqp, Console, DEFINITIONS, Log, Settings};

use values::{Source, Values};

/// Settings on the command line.
#[derive(Debug, Default, Clone)]
pub(crate) struct Flags {
    pub(crate) file: Option<PathBuf>,
    /// Settings given by their own flag.
    pub(crate) given: Vec<(&'static Definition, String)>,
    /// `KEY=VALUE`, as given.
    pub(crate) set: Vec<String>,
}

/// Returns true if there is a file that can be read again.
pub(crate) fn has_file(flags: &Flags) -> bool {
    flags.file.is_some() || std::env::var_os(environment::FILE_VARIABLE).is_some()
}

/// Settings that were read, and the values that they were read from.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) settings: Settings,
    values: Values,
}

/// Loads and checks all settings. `environment` is that of the process.
pub(crate) fn load(
    flags: Flags,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Loaded, ConfigError> {
    let (variables, file) = environment::read(environment)?;
    let mut values = Values::default();
    if let Some(path) = flags.file.or(file) {
        file::read(&path, &mut values)?;
    }
    for (definition, text) in variables {
        values.give(definition, text, Source::Environment);
    }
    for assignment in flags.set {
        let (key, text) = assignment
            .split_once('=')
            .ok_or_else(|| ConfigError::NotAnAssignment {
                given: assignment.clone(),
            })?;
        let definition =
            definition::find(key).ok_or_else(|| ConfigError::unknown_key("--set".to_owned(), key))?;
        values.give(definition, text.to_owned(), Source::Set);
    }
    for (definition, text) in flags.given {
        values.give(definition, text, Source::Flag);
    }
    let settings = Settings::read(&values)?;
    settings.check()?;
    Ok(Loaded { settings, values })
}
