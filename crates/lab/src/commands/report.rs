//! `stafett lab report` and `stafett lab compare`.

use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use stafett_lab::report::{self, ReportError, Written};

use crate::failure::Failure;

/// Draw the results of a run: one HTML file that needs nothing else, with CSV and JSON beside it
#[derive(Debug, Args)]
#[command(after_help = "docs/lab/reading.md says how to read it.\n\nExamples:\n  \
        stafett lab report lab/peak-20261101-080000\n  stafett lab report lab")]
pub(super) struct Report {
    /// The results of a run, or a folder with several of them
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Where report.html, report.csv and report.json go [default: DIR]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Set runs beside each other: the same experiment on another machine, or with another version
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stafett lab compare lab/before lab/after")]
pub(super) struct Compare {
    /// The results of runs, or folders with several of them; ratios are to the first
    #[arg(required = true, num_args = 2.., value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Where compare.html, compare.csv and compare.json go [default: the last DIR]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Report {
    pub(super) fn run(self) -> Result<(), Failure> {
        let out = self.out.as_ref().unwrap_or(&self.folder);
        conclude(report::report(&self.folder, out))
    }
}

impl Compare {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Some(out) = self.out.as_ref().or_else(|| self.folders.last()) else {
            return Ok(());
        };
        conclude(report::compare(&self.folders, out))
    }
}

fn conclude(written: Result<Written, ReportError>) -> Result<(), Failure> {
    let written = match written {
        Ok(written) => written,
        Err(error @ ReportError::NoRun { .. }) => return Err(Failure::Usage(error.to_string())),
        Err(error) => return Err(Failure::Run(error.into())),
    };
    let mut said = io::stdout().lock();
    let printed = [&written.html, &written.csv, &written.json]
        .into_iter()
        .try_for_each(|path| writeln!(said, "{}", path.display()));
    printed.context("the end cannot be printed")?;
    Ok(())
}
