//! Settings in a TOML file. Keys may be in their table or be written with dots.

use std::fs;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::definition;
use super::error::ConfigError;
use super::values::{Source, Values};

/// Adds the settings of a file to `values`.
pub(crate) fn read(path: &Path, values: &mut Values) -> Result<(), ConfigError> {
    let text = fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    let name = path.display().to_string();
    read_text(&name, &text, values)
}

/// Adds the settings of `text`, which was read from the file `name`.
pub(crate) fn read_text(name: &str, text: &str, values: &mut Values) -> Result<(), ConfigError> {
    let file = File { name, text };
    let table = DeTable::parse(text).map_err(|error| ConfigError::NotToml {
        place: error
            .span()
            .map_or_else(|| name.to_owned(), |span| file.place(&span)),
        message: error.message().to_owned(),
    })?;
    file.table("", table.get_ref(), values)
}

struct File<'a> {
    name: &'a str,
    text: &'a str,
}

impl File<'_> {
    fn table(&self, prefix: &str, table: &DeTable<'_>, values: &mut Values) -> Result<(), ConfigError> {
        for (name, value) in table {
            let key = format!("{prefix}{}", name.get_ref());
            let place = self.place(&name.span());
            if let Some(definition) = definition::find(&key) {
                values.give(definition, plain(&key, &place, value)?, Source::File(place));
            } else if let DeValue::Table(table) = value.get_ref()
                && !table.is_empty()
            {
                self.table(&format!("{key}."), table, values)?;
            } else {
                return Err(ConfigError::unknown_key(place, &key));
            }
        }
        Ok(())
    }

    fn place(&self, span: &Range<usize>) -> String {
        let before = self.text.get(..span.start).unwrap_or_default();
        format!("{}:{}", self.name, before.matches('\n').count() + 1)
    }
}

/// Returns a value as it would be written in the environment.
fn plain(key: &str, place: &str, value: &Spanned<DeValue<'_>>) -> Result<String, ConfigError> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Boolean(value) => Ok(value.to_string()),
        DeValue::Integer(number) => Ok(i128::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| number.as_str().to_owned(), |number| number.to_string())),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        other @ (DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_)) => {
            Err(ConfigError::NotPlain {
                place: place.to_owned(),
                key: key.to_owned(),
                found: other.type_str(),
            })
        }
    }
}
