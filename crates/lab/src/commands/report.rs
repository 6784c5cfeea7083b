//! `stafett lab report` and `stafett lab compare`.

use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Arg, ArgMatches, Command, value_parser};
use stafett_lab::report::{self, ReportError, Written};

use crate::failure::Failure;

const FOLDER: &str = "folder";
const OUT: &str = "out";

pub(super) fn describe() -> Command {
    Command::new("report")
        .about("Draw what was measured: one HTML file that needs nothing else, with CSV and JSON beside it")
        .arg(
            Arg::new(FOLDER)
                .required(true)
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("The results of a run, or a folder with several of them"),
        )
        .arg(out("Where report.html, report.csv and report.json go [default: DIR]"))
        .after_help("docs/lab/reading.md says how to read it.\n\nExamples:\n  stafett lab report lab/peak-20261101-080000\n  stafett lab report lab")
}

pub(super) fn describe_compare() -> Command {
    Command::new("compare")
        .about("Set runs beside each other: the same experiment on another machine, or with another version")
        .arg(
            Arg::new(FOLDER)
                .required(true)
                .num_args(2..)
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("The results of runs, or folders with several of them; ratios are to the first"),
        )
        .arg(out(
            "Where compare.html, compare.csv and compare.json go [default: the last DIR]",
        ))
        .after_help("Example:\n  stafett lab compare lab/before lab/after")
}

fn out(help: &'static str) -> Arg {
    super::path_option(OUT, "DIR", help)
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let folders = folders(matches);
    let Some(folder) = folders.first() else {
        return Ok(());
    };
    let out = matches.get_one::<PathBuf>(OUT).unwrap_or(folder);
    conclude(report::report(folder, out))
}

pub(super) fn run_compare(matches: &ArgMatches) -> Result<(), Failure> {
    let folders = folders(matches);
    let Some(last) = folders.last() else { return Ok(()) };
    let out = matches.get_one::<PathBuf>(OUT).unwrap_or(last);
    conclude(report::compare(&folders, out))
}

fn folders(matches: &ArgMatches) -> Vec<PathBuf> {
    matches
        .get_many::<PathBuf>(FOLDER)
        .into_iter()
        .flatten()
        .cloned()
        .collect()
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
