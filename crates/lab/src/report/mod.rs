//! The report: one HTML file that needs nothing else, with CSV and JSON beside it.
//!
//! Everything is made from the folder of a run, so a report can be written again without measuring again.
//!
//! - [`load`]: runs in folders; [`cells`]: repetitions put together; [`names`]: names of things
//! - [`figures`]: which charts (of the crate `charts`) an experiment asks for
//! - [`page`]: the HTML; [`data`]: CSV and JSON; [`side_by_side`]: runs compared, as data

mod cells;
mod data;
mod figures;
mod load;
mod names;
mod page;
mod side_by_side;

pub(crate) use stafett_charts as chart;
pub(crate) use stafett_charts::numbers;

use std::fs;
use std::path::{Path, PathBuf};

use crate::results::StoreError;

/// Reason why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("{} has no run: expected run.json in it, or in folders right below it", path.display())]
    NoRun { path: PathBuf },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Files of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub html: PathBuf,
    pub csv: PathBuf,
    pub json: PathBuf,
    /// Number of runs in it.
    pub runs: usize,
}

/// Writes `report.html`, `report.csv` and `report.json` of the run in `folder`, or of all runs right below
/// it, into `out`.
pub fn report(folder: &Path, out: &Path) -> Result<Written, ReportError> {
    let runs = load::runs(folder)?;
    let written = Written {
        html: write(out, "report.html", &page::runs(&runs))?,
        csv: write(out, "report.csv", &data::csv(&runs))?,
        json: write(out, "report.json", &data::json(&runs))?,
        runs: runs.len(),
    };
    Ok(written)
}

/// Returns the report of the run in `folder`, or of all runs right below it, as one HTML file.
pub fn html(folder: &Path) -> Result<String, ReportError> {
    Ok(page::runs(&load::runs(folder)?))
}

/// Returns the same as data: estimates by cell, effects of designs.
pub fn json(folder: &Path) -> Result<String, ReportError> {
    Ok(data::json(&load::runs(folder)?))
}

/// Returns the same as CSV with a row for each point.
pub fn csv(folder: &Path) -> Result<String, ReportError> {
    Ok(data::csv(&load::runs(folder)?))
}

/// Writes `compare.html`, `compare.csv` and `compare.json` into `out`: every folder's runs against the first
/// folder's.
pub fn compare(folders: &[PathBuf], out: &Path) -> Result<Written, ReportError> {
    let mut sides = Vec::new();
    for folder in folders {
        sides.push((side_name(folder, folders), load::runs(folder)?));
    }
    let html = write(out, "compare.html", &page::comparison(&sides))?;
    let all: Vec<load::Recorded> = sides.into_iter().flat_map(|(_, runs)| runs).collect();
    Ok(Written {
        html,
        csv: write(out, "compare.csv", &data::csv(&all))?,
        json: write(out, "compare.json", &data::json(&all))?,
        runs: all.len(),
    })
}

/// Returns runs beside each other, as JSON: the ratios of a figure to that of the first run. `None` for an
/// unknown figure.
pub fn compared(folders: &[PathBuf], metric: Option<&str>) -> Result<Option<serde_json::Value>, ReportError> {
    let mut runs = Vec::new();
    for folder in folders {
        runs.extend(load::runs(folder)?);
    }
    let compared = side_by_side::side_by_side(&runs, metric);
    Ok(compared.and_then(|compared| serde_json::to_value(compared).ok()))
}

/// As much of a folder's end as tells it from the others.
fn side_name(folder: &Path, all: &[PathBuf]) -> String {
    let end = |path: &Path, taken: usize| -> PathBuf {
        let parts: Vec<_> = path.components().collect();
        parts.iter().skip(parts.len().saturating_sub(taken)).collect()
    };
    let count = folder.components().count();
    let name = (1..count).map(|taken| (taken, end(folder, taken)));
    let mut distinct =
        name.filter(|(taken, name)| all.iter().filter(|other| end(other, *taken) == *name).count() <= 1);
    distinct.next().map_or_else(
        || folder.display().to_string(),
        |(_, name)| name.display().to_string(),
    )
}

fn write(out: &Path, name: &str, text: &str) -> Result<PathBuf, ReportError> {
    let path = out.join(name);
    let unwritable = |source| StoreError::Write {
        path: path.clone(),
        source,
    };
    fs::create_dir_all(out).map_err(unwritable)?;
    fs::write(&path, text).map_err(unwritable)?;
    Ok(path)
}
