//! The analyser of performance logs: folders of them become windows of time with their statistics.
//!
//! - [`read`]: lines of all files, those of several nodes together
//! - [`windows`]: windows, cut-offs, bands
//! - [`write`]: CSV, JSON, SVG

pub mod read;
pub mod windows;
pub mod write;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

pub use read::AnalysisError;

/// Time that is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// A whole request.
    Request,
    /// Parts of requests.
    Receive,
    Process,
    Store,
    Send,
    /// Of the journal.
    Append,
    Sync,
}

impl Action {
    pub const ALL: [Self; 7] = [
        Self::Request,
        Self::Receive,
        Self::Process,
        Self::Store,
        Self::Send,
        Self::Append,
        Self::Sync,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Receive => "receive",
            Self::Process => "process",
            Self::Store => "store",
            Self::Send => "send",
            Self::Append => "append",
            Self::Sync => "sync",
        }
    }
}

impl FromStr for Action {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|action| action.name() == text);
        found.ok_or_else(|| format!("expected one of {names}"))
    }
}

/// Percentiles around the middle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Band {
    pub low: f64,
    pub high: f64,
}

impl FromStr for Band {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "expected two percentiles, such as 2.5..97.5".to_owned();
        let (low, high) = text.split_once("..").ok_or_else(expected)?;
        let parse = |text: &str| text.parse::<f64>().ok().filter(|it| (0.0..=100.0).contains(it));
        let (low, high) = parse(low).zip(parse(high)).ok_or_else(expected)?;
        if low <= high {
            Ok(Self { low, high })
        } else {
            Err(expected())
        }
    }
}

/// Query of the logs.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    pub folders: Vec<PathBuf>,
    pub actions: Vec<Action>,
    /// Names of requests, with `*` for any letters.
    pub name: String,
    pub window: Duration,
    /// Time at the beginning and at the end that does not count.
    pub cut: Duration,
    pub band: Band,
}

/// Reads the logs and returns the windows of each action.
pub fn analyze(question: &Question) -> Result<windows::Analysis, AnalysisError> {
    let log = read::read(question)?;
    Ok(windows::of(log, question))
}

/// True if `name` fits a pattern with `*`.
pub fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, rest)) => name.strip_prefix(before).is_some_and(|behind| {
            let mut ends = behind
                .char_indices()
                .map(|(place, _)| place)
                .chain([behind.len()]);
            ends.any(|end| fits(rest, behind.get(end..).unwrap_or_default()))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_stars_for_any_letters() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "queues.receive", true),
            ("queues.*", "queues.receive", true),
            ("queues.*", "queue", false),
            ("*.receive", "queues.receive", true),
            ("q*.r*e", "queues.receive", true),
            ("Produce", "Produce", true),
            ("Produce", "Producer", false),
            ("ü*", "üx", true),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn bands_are_two_percentiles_in_order() {
        assert_eq!("2.5..97.5".parse(), Ok(Band { low: 2.5, high: 97.5 }));
        for text in ["", "5", "97..2", "-1..5", "0..101", "a..b", "NaN..5"] {
            assert!(text.parse::<Band>().is_err(), "{text}");
        }
    }
}
