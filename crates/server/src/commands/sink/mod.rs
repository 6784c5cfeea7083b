//! `stafett sink …`: sinks of a file, run here, made, shown and looked after.

mod look;
mod metrics;
mod run;

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Arg, ArgMatches, Command, value_parser};
use stafett_sinks::Definition;

use crate::client::http;
use crate::client::options::option;
use crate::failure::Failure;

const FILE: &str = "file";
const NAME: &str = "NAME";
const SET: &str = "set";
const LAST: &str = "last";
const METRICS: &str = "metrics";

pub(super) fn describe() -> Command {
    let file = || {
        Arg::new(FILE)
            .short('f')
            .long(FILE)
            .value_name("FILE")
            .required(true)
            .value_parser(value_parser!(PathBuf))
            .help("File with the definitions")
    };
    let name = || Arg::new(NAME).help("Only the sink of this name");
    let of =
        |word: &'static str, about: &'static str| Command::new(word).about(about).arg(file()).arg(name());
    let set = option(
        SET,
        "TOPIC/PARTITION=OFFSET",
        "Position to set, of a sink that is stopped",
    );
    let last = option(LAST, "N", "Records of each partition; 10 by default")
        .value_parser(value_parser!(u64).range(1..=10_000));
    http::command(Command::new("sink"))
        .visible_alias("pipeline")
        .about("Write topics into databases and files, in bulk and exactly once")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(crate::client::server_arg())
        .args(crate::client::login_args())
        .subcommands([
            of("run", "Run sinks until SIGTERM or SIGINT")
                .arg(option(
                    METRICS,
                    "HOST:PORT",
                    "Address on which /metrics is answered",
                ))
                .after_help(
                    "Examples:\n  stafett sink run -f sinks.toml\n  stafett sink run -f sinks.toml events-pg",
                ),
            of("check", "Check definitions, without a broker or a target"),
            of(
                "diff",
                "Show what apply would make; exit code 1 if there is something",
            ),
            of(
                "apply",
                "Make what is missing: tables, columns, folders, apps and topics of dead letters",
            ),
            of("status", "Show state and lag of each partition"),
            of("position", "Show the positions in the target, or set one").arg(set),
            of("pause", "Pause sinks"),
            of("resume", "Continue paused sinks"),
            of(
                "dry-run",
                "Show rows as they would be written, and poison; nothing is written",
            )
            .arg(last),
        ])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some((word, matches)) = matches.subcommand() else {
        return Ok(());
    };
    let sinks = definitions(matches)?;
    Ok(match word {
        "run" => run::run(matches, sinks),
        "check" => look::check(matches, &sinks),
        "diff" => look::prepare(matches, &sinks, false),
        "apply" => look::prepare(matches, &sinks, true),
        "status" => look::status(matches, &sinks),
        "position" => look::position(matches, &sinks),
        "pause" => look::pause(matches, &sinks, true),
        "resume" => look::pause(matches, &sinks, false),
        "dry-run" => look::dry_run(matches, &sinks),
        _ => Ok(()),
    }?)
}

/// Returns the sinks of the file, or the one that is named.
fn definitions(matches: &ArgMatches) -> anyhow::Result<Vec<Definition>> {
    let Some(path) = matches.get_one::<PathBuf>(FILE) else {
        bail!("a file with definitions is needed: -f FILE");
    };
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("{shown} cannot be read"))?;
    let mut sinks = Definition::parse(&text).with_context(|| shown.to_string())?;
    if let Some(name) = matches.get_one::<String>(NAME) {
        sinks.retain(|sink| sink.name == *name);
        if sinks.is_empty() {
            bail!("{shown} has no sink {name}");
        }
    }
    Ok(sinks)
}
