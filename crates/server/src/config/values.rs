//! The given values, by key: text and its source.

use std::collections::BTreeMap;

use super::definition::{self, Definition};
use super::error::ConfigError;
use super::kind::Kind;

/// Source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// `FILE:LINE`.
    File(String),
    Environment,
    Set,
    Flag,
}

/// Later sources replace earlier ones.
#[derive(Debug, Default)]
pub(crate) struct Values(BTreeMap<&'static str, (String, Source)>);

impl Values {
    pub(crate) fn give(&mut self, definition: &'static Definition, text: String, source: Source) {
        self.0.insert(definition.key, (text, source));
    }

    /// Returns the value of the setting `key`, parsed by its kind.
    pub(crate) fn read<K: Kind>(&self, key: &str) -> Result<K::Value, ConfigError> {
        let definition = definition::find(key)
            .ok_or_else(|| ConfigError::unknown_key("the table of settings".to_owned(), key))?;
        let (text, place) = self.given(definition);
        K::read(text.trim(), definition.range).map_err(|expected| ConfigError::Invalid {
            place,
            key: definition.key,
            given: (definition.show)(text),
            expected,
        })
    }

    /// Returns the text of a setting, and its source.
    pub(super) fn given(&self, definition: &Definition) -> (&str, String) {
        match self.0.get(definition.key) {
            None => (definition.default, "default".to_owned()),
            Some((text, source)) => (text.as_str(), place(definition, source)),
        }
    }
}

fn place(definition: &Definition, source: &Source) -> String {
    match source {
        Source::File(place) => place.clone(),
        Source::Environment => definition.variable(),
        Source::Set => "--set".to_owned(),
        Source::Flag => format!("--{}", definition.flag.unwrap_or(definition.key)),
    }
}
