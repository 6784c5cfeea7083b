//! One setting: all that is said about it.

use super::settings::DEFINITIONS;

/// Before the names of all environment variables.
pub(crate) const PREFIX: &str = "STAFETT_";

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Definition {
    /// As in the file, with a dot after the name of its table.
    pub(crate) key: &'static str,
    /// Lines of text; the first paragraph's first sentence is the summary.
    pub(crate) doc: &'static [&'static str],
    /// As somebody would write it.
    pub(crate) default: &'static str,
    /// What values look like, in a few words.
    pub(crate) shape: &'static str,
    /// Smallest and largest number, in the unit of the plain number.
    pub(crate) range: Option<(u64, u64)>,
    /// How a number of the range is written.
    pub(crate) write: fn(u64) -> String,
    /// Without the dashes.
    pub(crate) flag: Option<&'static str>,
    /// Whether it can be changed while the program runs.
    pub(crate) reloads: bool,
}

impl Definition {
    /// The name of the environment variable.
    pub(crate) fn variable(&self) -> String {
        format!("{PREFIX}{}", self.key.replace('.', "_").to_uppercase())
    }

    /// How it can be given.
    pub(crate) fn ways(&self) -> String {
        let flag = self.flag.map(|flag| format!(", --{flag}")).unwrap_or_default();
        format!("setting {}{flag}, variable {}", self.key, self.variable())
    }

    /// The first sentence of the text.
    pub(crate) fn summary(&self) -> String {
        let text = self.text();
        let end = text.find(". ").unwrap_or(text.len());
        text.get(..end)
            .unwrap_or_default()
            .trim_end_matches('.')
            .to_owned()
    }

    /// The text as one line.
    pub(crate) fn text(&self) -> String {
        self.doc
            .iter()
            .map(|line| line.trim())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// The setting with this key.
pub(crate) fn find(key: &str) -> Option<&'static Definition> {
    DEFINITIONS.iter().find(|definition| definition.key == key)
}

/// The known key that is most like an unknown one.
pub(crate) fn nearest_key(unknown: &str) -> String {
    nearest(
        unknown,
        DEFINITIONS.iter().map(|definition| definition.key.to_owned()),
    )
}

/// The known name that is most like an unknown one.
pub(crate) fn nearest(unknown: &str, known: impl Iterator<Item = String>) -> String {
    known
        .min_by_key(|known| strsim::damerau_levenshtein(unknown, known))
        .unwrap_or_default()
}
