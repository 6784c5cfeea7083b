//! Points of the same system with the same parameters, put together: their repetitions give one estimate per
//! figure.
//!
//! Only points that were measured count. A point that failed, was refused or was skipped is kept as a
//! result. Its values until then are shown as those of a failed point, and in no figure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::load::Recorded;
use crate::grid::Parameters;
use crate::results::{Latencies, OutcomeKind, Point};
use crate::statistics::{Estimate, mean};

/// A system with parameters.
#[derive(Clone, Debug)]
pub(crate) struct Cell<'a> {
    pub(crate) system: String,
    pub(crate) parameters: Parameters,
    /// All repetitions, by their numbers.
    pub(crate) points: Vec<&'a Point>,
    /// True if it holds the values of failed points instead of those that were measured.
    pub(crate) is_failed: bool,
}

impl<'a> Cell<'a> {
    /// Those that have figures. Lost messages do not make them wrong, but they are said beside them.
    pub(crate) fn measured(&self) -> impl Iterator<Item = &'a Point> + Clone + '_ {
        let points = self.points.iter().copied();
        points.filter(|point| match point.outcome.kind {
            OutcomeKind::Done | OutcomeKind::Lost => !self.is_failed,
            OutcomeKind::Failed => self.is_failed && !point.roles.is_empty(),
            OutcomeKind::Refused | OutcomeKind::Skipped => false,
        })
    }

    /// Returns the values of its points that failed under load, if any did.
    pub(crate) fn failed(&self) -> Option<Self> {
        let failed = Self {
            is_failed: true,
            ..self.clone()
        };
        let has_any = failed.measured().next().is_some();
        has_any.then_some(failed)
    }

    pub(crate) fn estimate(&self, metric: &str) -> Option<Estimate> {
        mean(&self.values(metric))
    }

    /// One value per repetition that has the figure.
    pub(crate) fn values(&self, metric: &str) -> Vec<f64> {
        let values = self
            .measured()
            .filter_map(|point| point.metrics.get(metric).copied());
        values.filter(|value| value.is_finite()).collect()
    }

    /// Returns the durability: that of all repetitions.
    pub(crate) fn durability(&self) -> &str {
        let mut given = self.points.iter().map(|point| point.durability.given.as_str());
        given.find(|given| !given.is_empty()).unwrap_or("unknown")
    }

    /// Returns the value of `system`, `durability` or the path of a parameter.
    pub(crate) fn dimension(&self, name: &str) -> Option<Value> {
        match name {
            "system" => Some(Value::String(self.system.clone())),
            "durability" => Some(Value::String(self.durability().to_owned())),
            path => self.parameters.get(path).cloned(),
        }
    }

    /// The latencies of that name, of all repetitions.
    pub(crate) fn latencies(&self, name: &str) -> impl Iterator<Item = &'a Latencies> {
        let roles = self.measured().flat_map(|point| &point.roles);
        roles.filter_map(move |role| role.latencies.get(name))
    }

    /// Returns the measured repetition whose figure is in the middle.
    pub(crate) fn typical(&self, metric: &str) -> Option<&'a Point> {
        let mut points: Vec<_> = self.measured().collect();
        let value = |point: &Point| point.metrics.get(metric).copied().unwrap_or(0.0);
        points.sort_by(|left, right| value(left).total_cmp(&value(right)));
        points.get(points.len().saturating_sub(1) / 2).copied()
    }
}

/// The cells of a run: systems in the order of the experiment, parameters in the order of its grid.
pub(crate) fn cells(recorded: &Recorded) -> Vec<Cell<'_>> {
    let experiment = &recorded.run.experiment;
    let points = recorded.points.iter();
    let groups = grouped(points.map(|point| ((&point.system, &point.parameters), point)));
    let cell = |((system, parameters), points): ((&String, &Parameters), _)| Cell {
        system: system.clone(),
        parameters: parameters.clone(),
        points,
        is_failed: false,
    };
    let mut cells: Vec<Cell<'_>> = groups.into_iter().map(cell).collect();
    let place = |cell: &Cell<'_>| {
        let system = experiment.systems.iter().position(|name| *name == cell.system);
        let values = cell.parameters.iter().map(|(path, value)| {
            let listed = experiment
                .grid
                .get(path)
                .and_then(|values| values.iter().position(|other| other == value));
            listed.unwrap_or(usize::MAX)
        });
        (values.collect::<Vec<_>>(), system.unwrap_or(usize::MAX))
    };
    cells.sort_by_cached_key(place);
    for cell in &mut cells {
        cell.points.sort_by_key(|point| (point.repetition, point.number));
    }
    cells
}

/// Returns the parameters that differ between cells, in the order of their paths.
pub(crate) fn varied(cells: &[Cell<'_>]) -> Vec<String> {
    let mut seen: BTreeMap<&String, Vec<&Value>> = BTreeMap::new();
    for (path, value) in cells.iter().flat_map(|cell| &cell.parameters) {
        seen.entry(path).or_default().push(value);
    }
    let several = |values: &Vec<&Value>| values.iter().any(|value| Some(value) != values.first());
    let varied = seen.into_iter().filter(|(_, values)| several(values));
    varied.map(|(path, _)| path.clone()).collect()
}

/// Groups values by key, in the order of the first value of each group.
pub(crate) fn grouped<K: PartialEq, T>(all: impl IntoIterator<Item = (K, T)>) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for (key, value) in all {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

/// Returns every value once, in the order in which they first come.
pub(crate) fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}
