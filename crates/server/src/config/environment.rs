//! Settings in the environment: `STAFETT_` and the key, with `_` for dots.

use std::ffi::OsString;
use std::path::PathBuf;

use super::definition::{Definition, PREFIX, nearest};
use super::error::ConfigError;
use super::settings::DEFINITIONS;

/// Names the file if no flag does.
pub(crate) const FILE_VARIABLE: &str = "STAFETT_CONFIG";

/// Returns true for names that are not settings: the server of the daily commands and its authority,
/// settings of the lab, and
/// settings of the tests.
fn is_for_others(name: &str) -> bool {
    name == crate::client::SERVER_VARIABLE
        || name == crate::client::trust::CA_VARIABLE
        || name == "STAFETT_BIN"
        || name.starts_with("STAFETT_LAB_")
        || name.starts_with("STAFETT_TEST_")
}

type Given = (Vec<(&'static Definition, String)>, Option<PathBuf>);

/// Returns the settings in the environment, and the file that it names.
pub(crate) fn read(environment: impl Iterator<Item = (OsString, OsString)>) -> Result<Given, ConfigError> {
    let mut given = Vec::new();
    let mut file = None;
    for (name, value) in environment {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else {
            continue;
        };
        if is_for_others(name) {
            continue;
        }
        if name == FILE_VARIABLE {
            file = Some(PathBuf::from(value));
            continue;
        }
        let Some(definition) = DEFINITIONS
            .iter()
            .find(|definition| definition.variable() == name)
        else {
            let known = DEFINITIONS
                .iter()
                .map(Definition::variable)
                .chain([FILE_VARIABLE.to_owned()]);
            return Err(ConfigError::UnknownVariable {
                name: name.to_owned(),
                nearest: nearest(name, known),
            });
        };
        let value = value.into_string().map_err(|_| ConfigError::NotUnicode {
            name: name.to_owned(),
        })?;
        given.push((definition, value));
    }
    Ok((given, file))
}
