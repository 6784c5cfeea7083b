//! Files to experiments, and an experiment with values of its grid to a [`Plan`].
//!
//! Values of the grid are put into the file's own tree where their paths say, and the whole is read as if it
//! had been written so: a value that does not fit is an error at its own line, whether it stands in its place
//! or in the grid.

mod tree;

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::DeValue;

use self::tree::{Setting, Sweep, span_of};
use super::{Experiment, Plan, Topics, check, edit, fraction};
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
            faults: experiment.faults,
        };
        if plan.topics.is_empty() {
            plan.topics.insert(TOPICS_DEFAULT.to_owned(), Topics::default());
        }
        check::whole(&plan)
            .and_then(|()| {
                plan.multiply();
                check::plan(&plan)
            })
            .and_then(|()| check::totals(&plan))
            .map_err(|found| self.wrong(span_of(root.get_ref(), &found.path), found.message))?;
        plan.scale(scale);
        Ok(plan)
    }
}

#[cfg(test)]
mod tests;
