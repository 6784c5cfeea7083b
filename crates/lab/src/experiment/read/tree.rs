//! An experiment's file as a tree, with places for mistakes.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize as _;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::{ExperimentError, Source};
use crate::experiment::{Experiment, check, path, ranges};

/// A setting as it stands in the file: its path and its value.
pub(super) type Setting<'a> = (String, Spanned<DeValue<'a>>);

/// One list of the grid: the path and its values, as they stand in the file and as data.
pub(super) struct Sweep<'a> {
    pub(super) path: String,
    pub(super) values: Vec<Spanned<DeValue<'a>>>,
}

/// Returns the place of a setting, or of the nearest thing around it. Numbers in a path choose one of
/// several.
pub(super) fn span_of(tree: &DeTable<'_>, setting: &str) -> Option<Range<usize>> {
    let mut found = None;
    let mut table = tree;
    let mut parts = path::parts(setting)?.into_iter();
    while let Some(part) = parts.next() {
        let Some((key, value)) = table.get_key_value(part) else {
            break;
        };
        // A value of the grid has the place of the value; other parts of a list have that of the key.
        found = Some(key.span());
        let mut value = value;
        if let DeValue::Array(elements) = value.get_ref() {
            let place = parts.next().and_then(|part| part.parse().ok());
            let Some(element) = place.and_then(|place: usize| elements.get(place)) else {
                break;
            };
            found = Some(element.span());
            value = element;
        }
        let DeValue::Table(below) = value.get_ref() else {
            break;
        };
        table = below;
    }
    found
}

impl Source {
    /// The same with lists in place of ranges; `None` if it has no ranges.
    pub(super) fn written_out(&self) -> Result<Option<Self>, ExperimentError> {
        let tree = self.tree()?;
        let written = ranges::written_out(&self.text, tree.get_ref());
        let text = written.map_err(|wrong| self.wrong(Some(wrong.span), wrong.message))?;
        Ok(text.map(|text| Self {
            place: self.place.clone(),
            text,
        }))
    }

    pub(super) fn tree(&self) -> Result<Spanned<DeTable<'_>>, ExperimentError> {
        DeTable::parse(&self.text).map_err(|error| self.wrong(error.span(), error.message()))
    }

    pub(super) fn typed(&self, tree: Spanned<DeTable<'_>>) -> Result<Experiment, ExperimentError> {
        Experiment::deserialize(toml::de::Deserializer::from(tree))
            .map_err(|error| self.wrong(error.span(), error.message()))
    }

    pub(super) fn data(&self, value: &Spanned<DeValue<'_>>) -> Result<serde_json::Value, ExperimentError> {
        serde_json::Value::deserialize(toml::de::ValueDeserializer::from(value.clone()))
            .map_err(|error| self.wrong(Some(value.span()), error.message()))
    }

    pub(super) fn sweeps<'a>(
        &self,
        tree: &Spanned<DeTable<'a>>,
        scale: f64,
    ) -> Result<Vec<Sweep<'a>>, ExperimentError> {
        let mut lists: BTreeMap<String, Spanned<DeValue<'a>>> = BTreeMap::new();
        if let Some(DeValue::Table(grid)) = tree.get_ref().get("grid").map(Spanned::get_ref) {
            for (path, values) in grid {
                lists.insert(path.get_ref().to_string(), values.clone());
            }
        }
        for (path, values) in self.small(tree, scale)? {
            if let Some(path) = path.strip_prefix("grid.") {
                lists.insert(path.to_owned(), values);
            }
        }
        let mut sweeps = Vec::new();
        for (path, list) in lists {
            let span = list.span();
            let DeValue::Array(values) = list.into_inner() else {
                return Err(self.wrong(Some(span), format!("`{path}` needs a list of values")));
            };
            if values.is_empty() {
                return Err(self.wrong(Some(span), format!("`{path}` has no values")));
            }
            let first = path.split('.').next().unwrap_or_default();
            if !["run", "system", "topics", "roles", "faults"].contains(&first) {
                let message = format!(
                    "`{path}` cannot be varied: expected a path that begins with run, system, topics or roles"
                );
                return Err(self.wrong(Some(span), message));
            }
            sweeps.push(Sweep {
                path,
                values: values.iter().cloned().collect(),
            });
        }
        Ok(sweeps)
    }

    /// Returns the settings that differ at this scale.
    pub(super) fn small<'a>(
        &self,
        tree: &Spanned<DeTable<'a>>,
        scale: f64,
    ) -> Result<Vec<Setting<'a>>, ExperimentError> {
        let Some(small) = tree.get_ref().get("small").filter(|_| scale < 1.0) else {
            return Ok(Vec::new());
        };
        let DeValue::Table(values) = small.get_ref() else {
            return Err(self.wrong(Some(small.span()), "[small] is a table of values by path"));
        };
        let values = values.iter();
        Ok(values
            .map(|(path, value)| (path.get_ref().to_string(), value.clone()))
            .collect())
    }

    /// Puts a value where its path says.
    pub(super) fn put<'a>(
        &self,
        tree: &mut DeTable<'a>,
        path: &str,
        value: &Spanned<DeValue<'a>>,
    ) -> Result<(), ExperimentError> {
        let wrong = |message: String| self.wrong(Some(value.span()), message);
        let parts = path::parts(path).ok_or_else(|| wrong(format!("`{path}` is no path of a setting")))?;
        let Some((last, before)) = parts.split_last() else {
            return Ok(());
        };
        let key = |part: &str| Spanned::new(value.span(), DeString::Owned(part.to_owned()));
        let mut table = tree;
        for part in before {
            let below = table
                .entry(key(part))
                .or_insert_with(|| Spanned::new(value.span(), DeValue::Table(DeTable::new())));
            let DeValue::Table(below) = below.get_mut() else {
                return Err(wrong(format!(
                    "`{path}` is no path of a setting: `{part}` has no parts"
                )));
            };
            table = below;
        }
        table.insert(key(last), value.clone());
        Ok(())
    }

    pub(super) fn wrong_at(&self, found: &check::Contradiction) -> ExperimentError {
        let span = self
            .tree()
            .ok()
            .and_then(|tree| span_of(tree.get_ref(), &found.path));
        self.wrong(span, found.message.clone())
    }

    pub(super) fn wrong(&self, span: Option<Range<usize>>, message: impl Into<String>) -> ExperimentError {
        let place = match span {
            None => self.place.clone(),
            Some(span) => {
                let before = self.text.get(..span.start).unwrap_or_default();
                format!("{}:{}", self.place, before.matches('\n').count() + 1)
            }
        };
        ExperimentError::Wrong {
            place,
            message: message.into(),
        }
    }
}
