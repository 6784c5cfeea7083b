//! One setting.

use super::settings::DEFINITIONS;

/// Prefix of all environment variables.
pub(crate) const PREFIX: &str = "STAFETT_";

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Definition {
    /// Key as in the file, with a dot behind the name of its table.
    pub(crate) key: &'static str,
    /// Text in lines; the first sentence is the summary.
    pub(crate) doc: &'static [&'static str],
    /// Default, in the notation of the file.
    pub(crate) default: &'static str,
    /// Short description of valid values.
    pub(crate) shape: &'static str,
    /// Smallest and largest number, in the unit of the plain number.
    pub(crate) range: Option<(u64, u64)>,
    /// Formats a number of the range.
    pub(crate) write: fn(u64) -> String,
    /// Returns a given text without secrets.
    pub(crate) show: fn(&str) -> String,
    /// Name of the flag, without the dashes.
    pub(crate) flag: Option<&'static str>,
    /// True if the setting can be changed while the program runs.
    pub(crate) reloads: bool,
}

impl Definition {
    /// Returns the name of the environment variable.
    pub(crate) fn variable(&self) -> String {
        format!("{PREFIX}{}", self.key.replace('.', "_").to_uppercase())
    }

    /// Describes the ways to give the setting.
    pub(crate) fn ways(&self) -> String {
        let flag = self.flag.map(|flag| format!(", --{flag}")).unwrap_or_default();
        format!("setting {}{flag}, variable {}", self.key, self.variable())
    }

    /// Returns the first sentence of the text.
    pub(crate) fn summary(&self) -> String {
        let text = self.text();
        let end = text.find(". ").unwrap_or(text.len());
        text.get(..end)
            .unwrap_or_default()
            .trim_end_matches('.')
            .to_owned()
    }

    /// Returns the text as one line.
    pub(crate) fn text(&self) -> String {
        self.doc
            .iter()
            .map(|line| line.trim())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Finds the setting with this key.
pub(crate) fn find(key: &str) -> Option<&'static Definition> {
    DEFINITIONS.iter().find(|definition| definition.key == key)
}

/// Returns the known key that is most similar to an unknown one.
pub(crate) fn nearest_key(unknown: &str) -> String {
    nearest(
        unknown,
        DEFINITIONS.iter().map(|definition| definition.key.to_owned()),
    )
}

/// Returns the known name that is most similar to an unknown one.
pub(crate) fn nearest(unknown: &str, known: impl Iterator<Item = String>) -> String {
    known
        .min_by_key(|known| strsim::damerau_levenshtein(unknown, known))
        .unwrap_or_default()
}
