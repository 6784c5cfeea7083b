//! Lines of performance logs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::{Action, Question, fits};

/// Reason why there is nothing to say.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    #[error("{path}: {source}")]
    Unreadable { path: String, source: io::Error },
    #[error(
        "{folders} has no performance log: files that end in .ndjson are expected (the setting trace.dir)"
    )]
    NoLog { folders: String },
    #[error("no line of the performance log fits: {lines} lines were read")]
    Nothing { lines: u64 },
}

/// Fitting lines of all files.
#[derive(Debug, Default)]
pub struct Log {
    /// Times of ends, in ms since 1970, and durations in µs, of each action.
    pub points: BTreeMap<Action, Vec<(i64, u64)>>,
    pub lines: u64,
    /// Lines that are no lines of a log, such as one that was cut off.
    pub unreadable: u64,
    /// Part of the requests that the logs have, if all say the same.
    pub share: Option<f64>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    t: &'a str,
    #[serde(default)]
    took_us: u64,
    #[serde(default, borrow)]
    action: &'a str,
    #[serde(default)]
    name: String,
    parts: Option<Parts>,
    settings: Option<BTreeMap<String, Value>>,
}

#[derive(Deserialize)]
struct Parts {
    receive: u64,
    process: u64,
    store: u64,
    send: u64,
}

pub(super) fn read(question: &Question) -> Result<Log, AnalysisError> {
    let mut files = Vec::new();
    for folder in &question.folders {
        find(folder, &mut files)?;
    }
    if files.is_empty() {
        let folders: Vec<_> = question
            .folders
            .iter()
            .map(|folder| folder.display().to_string())
            .collect();
        return Err(AnalysisError::NoLog {
            folders: folders.join(", "),
        });
    }
    let mut log = Log::default();
    let mut shares = Vec::new();
    for path in files {
        let file = File::open(&path).map_err(|source| unreadable(&path, source))?;
        for line in BufReader::new(file).split(b'\n') {
            let line = line.map_err(|source| unreadable(&path, source))?;
            take(&line, question, &mut log, &mut shares);
        }
    }
    shares.dedup();
    log.share = match shares.as_slice() {
        [] => Some(0.01),
        [share] => Some(*share),
        _ => None,
    };
    if log.points.is_empty() {
        return Err(AnalysisError::Nothing { lines: log.lines });
    }
    Ok(log)
}

fn take(line: &[u8], question: &Question, log: &mut Log, shares: &mut Vec<f64>) {
    if line.is_empty() {
        return;
    }
    let line = serde_json::from_slice::<Line<'_>>(line).ok();
    let timed = line.and_then(|line| Some((line.t.parse::<jiff::Timestamp>().ok()?, line)));
    let Some((at, line)) = timed else {
        log.unreadable += 1;
        return;
    };
    if let Some(settings) = line.settings {
        let share = settings.get("trace.share");
        let share = share.and_then(|share| share.as_str()?.parse().ok());
        shares.push(share.unwrap_or(0.01));
        return;
    }
    log.lines += 1;
    for action in &question.actions {
        let is_of_request = !matches!(action, Action::Append | Action::Sync);
        let wanted = if is_of_request { "request" } else { action.name() };
        if line.action != wanted || is_of_request && !fits(&question.name, &line.name) {
            continue;
        }
        let took = match (action, &line.parts) {
            (Action::Request | Action::Append | Action::Sync, _) => Some(line.took_us),
            (_, None) => None,
            (Action::Receive, Some(parts)) => Some(parts.receive),
            (Action::Process, Some(parts)) => Some(parts.process),
            (Action::Store, Some(parts)) => Some(parts.store),
            (Action::Send, Some(parts)) => Some(parts.send),
        };
        if let Some(took) = took {
            let points = log.points.entry(*action).or_default();
            points.push((at.as_millisecond(), took));
        }
    }
}

/// Adds the logs in a folder, and in the folders in it.
fn find(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), AnalysisError> {
    let entries = fs::read_dir(folder).map_err(|source| unreadable(folder, source))?;
    for entry in entries {
        let entry = entry.map_err(|source| unreadable(folder, source))?;
        let kind = entry.file_type().map_err(|source| unreadable(folder, source))?;
        let path = entry.path();
        if kind.is_dir() {
            find(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "ndjson") {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

fn unreadable(path: &Path, source: io::Error) -> AnalysisError {
    AnalysisError::Unreadable {
        path: path.display().to_string(),
        source,
    }
}
