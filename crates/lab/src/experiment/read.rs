//! Files to experiments, and an experiment with values of its grid to a [`Plan`].
//!
//! Values of the grid are put into the file's own tree where their paths say, and the whole is read as if it
//! had been written so: a value that does not fit is an error at its own line, whether it stands in its place
//! or in the grid.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::{Experiment, Plan, Topics, check, edit, fraction, path, ranges};
use crate::grid::{Grid, Parameters};

/// The set of topics where a file names none.
pub const TOPICS_DEFAULT: &str = "main";

/// An experiment's file.
#[derive(Debug, Clone)]
pub struct Source {
    /// Origin, for messages.
    pub place: String,
    pub text: String,
}

/// Reason why a file is no experiment. It names the line, if there is one.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{place}: {message}")]
    Wrong { place: String, message: String },
}

/// A setting as it stands in the file: its path and its value.
type Setting<'a> = (String, Spanned<DeValue<'a>>);

/// One list of the grid: the path and its values, as they stand in the file and as data.
struct Sweep<'a> {
    path: String,
    values: Vec<Spanned<DeValue<'a>>>,
}

impl Source {
    pub fn new(place: impl Into<String>, text: impl Into<String>) -> Self {
        let (place, text) = (place.into(), text.into());
        Self { place, text }
    }

    pub fn open(path: &Path) -> Result<Self, ExperimentError> {
        let text = std::fs::read_to_string(path).map_err(|source| ExperimentError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            place: path.display().to_string(),
            text,
        })
    }

    /// The experiment, every combination of its grid looked at, at full scale and at a small one.
    pub fn experiment(&self) -> Result<Experiment, ExperimentError> {
        if let Some(source) = self.written_out()? {
            return source.experiment();
        }
        let tree = self.tree()?;
        let experiment = self.typed(tree)?;
        check::experiment(&experiment).map_err(|found| self.wrong_at(&found))?;
        for scale in [1.0, 0.5] {
            let mut plans = Vec::new();
            for parameters in self.points(scale)? {
                let plan = self.plan(scale, &parameters)?;
                check::clients(&plan, &experiment.systems).map_err(|found| self.wrong_at(&found))?;
                plans.push(plan);
            }
            check::drawable(&experiment, &plans).map_err(|found| self.wrong_at(&found))?;
        }
        if !experiment.full.is_empty() {
            self.full()?.experiment()?;
        }
        Ok(experiment)
    }

    /// The experiment in full: with the values of `[full]` in their places.
    pub fn full(&self) -> Result<Self, ExperimentError> {
        let tree = edit::tree(&self.text).map_err(|error| self.wrong(None, error.to_string()))?;
        let Some(full) = tree.get("full") else {
            return Err(self.wrong(None, "it has no [full]: the file is all of it"));
        };
        let settings = full.as_object().into_iter().flatten();
        let mut changes: Vec<edit::Change> = settings
            .map(|(path, value)| edit::Change {
                path: match path.strip_prefix("grid.") {
                    Some(of_grid) => format!("grid.\"{of_grid}\""),
                    None => path.clone(),
                },
                value: value.clone(),
            })
            .collect();
        changes.push(edit::Change {
            path: "full".to_owned(),
            value: serde_json::Value::Null,
        });
        let text =
            edit::changed(&self.text, &changes).map_err(|error| self.wrong(None, error.to_string()))?;
        Ok(Self {
            place: format!("{} in full", self.place),
            text,
        })
    }

    /// The lists of values by path, at this scale.
    pub fn grid(&self, scale: f64) -> Result<Grid, ExperimentError> {
        if let Some(source) = self.written_out()? {
            return source.grid(scale);
        }
        let tree = self.tree()?;
        let sweeps = self.sweeps(&tree, scale)?;
        let mut grid = Grid::new();
        for sweep in sweeps {
            let mut values = Vec::new();
            for value in &sweep.values {
                values.push(self.data(value)?);
            }
            grid.insert(sweep.path, values);
        }
        Ok(grid)
    }

    /// The parameters of all points, at this scale.
    pub fn points(&self, scale: f64) -> Result<Vec<Parameters>, ExperimentError> {
        if let Some(source) = self.written_out()? {
            return source.points(scale);
        }
        let text = self.typed(self.tree()?)?.run.fraction;
        let points = fraction::points(&self.grid(scale)?, text.as_deref());
        points.map_err(|error| {
            self.wrong_at(&check::Contradiction {
                path: "run.fraction".to_owned(),
                message: error.to_string(),
            })
        })
    }

    /// The settings of the point with these values of the grid.
    pub fn plan(&self, scale: f64, parameters: &Parameters) -> Result<Plan, ExperimentError> {
        if let Some(source) = self.written_out()? {
            return source.plan(scale, parameters);
        }
        let mut tree = self.tree()?;
        let mut chosen: Vec<Setting<'_>> = Vec::new();
        chosen.extend(self.small(&tree, scale)?);
        chosen.retain(|(path, _)| !path.starts_with("grid."));
        for Sweep { path, values } in self.sweeps(&tree, scale)? {
            let wanted = parameters.get(&path);
            let wanted =
                wanted.ok_or_else(|| self.wrong(None, format!("the point has no value for `{path}`")))?;
            let is_wanted = |value: &Spanned<DeValue<'_>>| self.data(value).is_ok_and(|data| data == *wanted);
            let value = values.into_iter().rfind(is_wanted);
            let value = value
                .ok_or_else(|| self.wrong(None, format!("{wanted} is no value of `{path}` in the grid")))?;
            chosen.push((path, value));
        }
        for (path, value) in &chosen {
            self.put(tree.get_mut(), path, value)?;
        }
        let root = tree.clone();
        let experiment = self.typed(tree)?;
        let mut plan = Plan {
            run: experiment.run,
            system: experiment.system,
            topics: experiment.topics,
            roles: experiment.roles,
        };
        if plan.topics.is_empty() {
            plan.topics.insert(TOPICS_DEFAULT.to_owned(), Topics::default());
        }
        check::plan(&plan)
            .and_then(|()| check::totals(&plan))
            .map_err(|found| self.wrong(span_of(root.get_ref(), &found.path), found.message))?;
        plan.scale(scale);
        Ok(plan)
    }

    /// The same with lists in place of ranges; `None` if it has no ranges.
    fn written_out(&self) -> Result<Option<Self>, ExperimentError> {
        let tree = self.tree()?;
        let written = ranges::written_out(&self.text, tree.get_ref());
        let text = written.map_err(|wrong| self.wrong(Some(wrong.span), wrong.message))?;
        Ok(text.map(|text| Self {
            place: self.place.clone(),
            text,
        }))
    }

    fn tree(&self) -> Result<Spanned<DeTable<'_>>, ExperimentError> {
        DeTable::parse(&self.text).map_err(|error| self.wrong(error.span(), error.message()))
    }

    fn typed(&self, tree: Spanned<DeTable<'_>>) -> Result<Experiment, ExperimentError> {
        Experiment::deserialize(toml::de::Deserializer::from(tree))
            .map_err(|error| self.wrong(error.span(), error.message()))
    }

    fn data(&self, value: &Spanned<DeValue<'_>>) -> Result<serde_json::Value, ExperimentError> {
        serde_json::Value::deserialize(toml::de::ValueDeserializer::from(value.clone()))
            .map_err(|error| self.wrong(Some(value.span()), error.message()))
    }

    fn sweeps<'a>(&self, tree: &Spanned<DeTable<'a>>, scale: f64) -> Result<Vec<Sweep<'a>>, ExperimentError> {
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
            if !["run", "system", "topics", "roles"].contains(&first) {
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
    fn small<'a>(
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
    fn put<'a>(
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

    fn wrong_at(&self, found: &check::Contradiction) -> ExperimentError {
        let span = self
            .tree()
            .ok()
            .and_then(|tree| span_of(tree.get_ref(), &found.path));
        self.wrong(span, found.message.clone())
    }

    fn wrong(&self, span: Option<Range<usize>>, message: impl Into<String>) -> ExperimentError {
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

/// Returns the place of a setting, or of the nearest thing around it. Numbers in a path choose one of
/// several.
fn span_of(tree: &DeTable<'_>, setting: &str) -> Option<Range<usize>> {
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

#[cfg(test)]
mod tests;
