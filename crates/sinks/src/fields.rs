//! Reads the fields of a table by name, and refuses those that are left.

use toml::{Table, Value};

use crate::definition::DefinitionError;
use stafett_model::quantity;

/// A table of a definition, with its path for errors.
pub(crate) struct Fields {
    path: String,
    table: Table,
}

type Read<T> = Result<T, DefinitionError>;

impl Fields {
    pub(crate) fn new(path: impl Into<String>, value: Value) -> Read<Self> {
        let path = path.into();
        if let Value::Table(table) = value {
            Ok(Self { path, table })
        } else {
            Err(expected(path, "a table", &value))
        }
    }

    fn at(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    /// Returns an error about a field.
    pub(crate) fn bad(&self, name: &str, why: impl Into<String>) -> DefinitionError {
        DefinitionError::Bad {
            path: self.at(name),
            why: why.into(),
        }
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.table.remove(name)
    }

    /// Takes a field if it has that word.
    pub(crate) fn takes_word(&mut self, name: &str, word: &str) -> bool {
        let is_it = self.table.get(name).and_then(Value::as_str) == Some(word);
        if is_it {
            self.table.remove(name);
        }
        is_it
    }

    /// Returns a whole number from 0 on.
    pub(crate) fn whole(&mut self, name: &str, max: u64) -> Read<Option<u64>> {
        let number = self.typed(name, "a whole number from 0", |value| {
            u64::try_from(value.as_integer()?).ok()
        })?;
        match number {
            Some(number) if number > max => Err(self.bad(name, format!("it is at most {max}"))),
            number => Ok(number),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.table.contains_key(name)
    }

    fn typed<T>(
        &mut self,
        name: &str,
        wanted: &'static str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Read<Option<T>> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        match read(&value) {
            Some(value) => Ok(Some(value)),
            None => Err(expected(self.at(name), wanted, &value)),
        }
    }

    pub(crate) fn text(&mut self, name: &str) -> Read<Option<String>> {
        self.typed(name, "a text", |value| value.as_str().map(str::to_owned))
    }

    pub(crate) fn required(&mut self, name: &str) -> Read<String> {
        let text = self.text(name)?;
        text.ok_or_else(|| DefinitionError::Missing { path: self.at(name) })
    }

    pub(crate) fn flag(&mut self, name: &str) -> Read<Option<bool>> {
        self.typed(name, "true or false", Value::as_bool)
    }

    pub(crate) fn count(&mut self, name: &str) -> Read<Option<u64>> {
        self.typed(name, "a whole number from 1", |value| {
            let number = u64::try_from(value.as_integer()?).ok()?;
            (number > 0).then_some(number)
        })
    }

    pub(crate) fn size(&mut self, name: &str) -> Read<Option<u64>> {
        self.typed(name, "a size such as \"64MiB\"", |value| {
            value.as_str().and_then(quantity::size).filter(|size| *size > 0)
        })
    }

    pub(crate) fn time(&mut self, name: &str) -> Read<Option<u64>> {
        self.typed(name, "a time such as \"20m\"", |value| {
            value
                .as_str()
                .and_then(quantity::milliseconds)
                .filter(|time| *time > 0)
        })
    }

    pub(crate) fn rate(&mut self, name: &str) -> Read<Option<(u64, u64)>> {
        self.typed(name, "a rate such as \"100/m\"", |value| {
            value.as_str().and_then(quantity::rate)
        })
    }

    pub(crate) fn texts(&mut self, name: &str) -> Read<Option<Vec<String>>> {
        self.typed(name, "a list of texts", |value| {
            let texts = value.as_array()?.iter();
            texts.map(|text| text.as_str().map(str::to_owned)).collect()
        })
    }

    /// Returns one of several words; the first if the field is absent.
    pub(crate) fn word<T: Copy>(&mut self, name: &str, words: &[(&str, T)]) -> Read<Option<T>> {
        let Some(text) = self.text(name)? else {
            return Ok(words.first().map(|(_, value)| *value));
        };
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(Some(*value));
        }
        let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        Err(self.bad(name, format!("{text:?} is not one of {}", known.join(", "))))
    }

    /// Returns a table within; an empty one if it is absent.
    pub(crate) fn below(&mut self, name: &str) -> Read<Self> {
        let value = self.take(name).unwrap_or_else(|| Value::Table(Table::new()));
        Self::new(self.at(name), value)
    }

    /// Returns all fields that are left, with their paths.
    pub(crate) fn rest(self) -> impl Iterator<Item = (String, String, Value)> {
        let path = self.path;
        self.table
            .into_iter()
            .map(move |(name, value)| (format!("{path}.{name}"), name, value))
    }

    /// Refuses fields that were not read.
    pub(crate) fn end(self) -> Read<()> {
        match self.rest().next() {
            Some((path, _, _)) => Err(DefinitionError::Unknown { path }),
            None => Ok(()),
        }
    }
}

fn expected(path: String, wanted: &'static str, found: &Value) -> DefinitionError {
    DefinitionError::Bad {
        path,
        why: format!("it is {}, and has to be {wanted}", found.type_str()),
    }
}
