//! `stafett sink …`: sinks of a file, run here, made, shown and looked after; and those that a broker keeps.

mod keep;
mod kept;
mod look;
mod metrics;
mod replay;
pub(super) mod rollup;
mod run;
mod runner;
mod verify;

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use stafett_sinks::Definition;

use super::deletion;
use crate::client::http;
use crate::client::options::{argument, flag, option};
use crate::failure::Failure;

const FILE: &str = "file";
const NAME: &str = "NAME";
const SET: &str = "set";
const LAST: &str = "last";
const METRICS: &str = "metrics";
const WEBHOOK_ALLOW: &str = "webhook-allow";
const FROM: &str = "from";
const TO: &str = "to";
const BY: &str = "by";
const STRICT: &str = "strict";
const FILES: &str = "files";
const INTO: &str = "into";
const AS: &str = "as";
const DRY_RUN: &str = "dry-run";

fn file() -> Arg {
    Arg::new(FILE)
        .short('f')
        .long(FILE)
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("File with the definitions")
}

fn allow() -> Arg {
    option(
        WEBHOOK_ALLOW,
        "HOST",
        "Host in a private network to which webhooks may go; * is all",
    )
    .action(ArgAction::Append)
}

fn name() -> Arg {
    Arg::new(NAME).help("Only the sink of this name")
}

fn of_file() -> Arg {
    Arg::new(NAME).num_args(0..).help("Only the sinks of these names")
}

/// Names of the sinks of which roll-ups or stores are compared.
fn names() -> Arg {
    Arg::new(NAME)
        .num_args(0..=2)
        .help("Only the roll-up of this name; or two sinks whose stores are compared")
}

/// Bounds of a comparison.
fn bounds() -> [Arg; 2] {
    [
        option(FROM, "TIME", "Only buckets, or rows, from this time on"),
        option(TO, "TIME", "Only those before this time"),
    ]
}

fn by() -> Arg {
    option(
        BY,
        "COLUMN",
        "Time of rows, where stores are compared; the first one of both by default",
    )
}

/// A command about the sinks of a file.
fn of(word: &'static str, about: &'static str) -> Command {
    Command::new(word)
        .about(about)
        .arg(file().required(true))
        .arg(of_file())
}

pub(super) fn describe() -> Command {
    let last = option(LAST, "N", "Records of each partition; 10 by default")
        .value_parser(value_parser!(u64).range(1..=10_000));
    let set = option(
        SET,
        "TOPIC/PARTITION=OFFSET",
        "Position to set, of a sink that is stopped",
    );
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
                .arg(allow())
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
            of("position", "Show the positions in the target, or set one")
                .arg(set)
                .arg(allow()),
            of(
                "dry-run",
                "Show rows as they would be written, and poison; nothing is written",
            )
            .arg(last),
            of(
                "verify",
                "Compare roll-ups with what their topics say; exit code 1 if there is a difference",
            )
            .args(bounds()),
            of(
                "recompute",
                "Compute roll-ups again from their topics, up to where they are",
            )
            .args(bounds()),
        ])
        .subcommands(of_kept())
}

/// Commands about the sinks that a broker keeps.
fn of_kept() -> [Command; 10] {
    let kept = |word: &'static str, about: &'static str| {
        Command::new(word).about(about).arg(argument(NAME, "The sink"))
    };
    let either =
        |word: &'static str, about: &'static str| Command::new(word).about(about).arg(file()).arg(name());
    let position = option(SET, "TOPIC/PARTITION=OFFSET", "A single position instead");
    [
        either("pause", "Pause sinks: of a file, or the one that the broker keeps"),
        either("resume", "Continue paused sinks"),
        either(
            "accept-gap",
            "Go on behind records that are gone, and at the first record of topics that were made again",
        ),
        Command::new("list").about("List the sinks that the broker keeps, with their state"),
        kept("describe", "Show a sink that the broker keeps"),
        of("define", "Have the broker keep the sinks of a file, and run them")
            .arg(flag(DRY_RUN, "Only check; nothing is stored"))
            .after_help(
                "Examples:\n  stafett sink define -f sinks.toml\n  stafett sink define -f sinks.toml events-pg --dry-run",
            ),
        kept("delete", "Delete a sink; its target stays as it is").arg(deletion::yes()),
        kept(
            "positions",
            "Read the positions out of the target of a sink that the broker keeps",
        ),
        either(
            "replay",
            "Have a sink write records again, or pass over some: of a file, stopped, or one that the broker keeps",
        )
        .arg(option(FROM, "PLACE", "earliest, latest or a time"))
        .arg(position.action(ArgAction::Append))
        .arg(option(
            INTO,
            "PLACE",
            "Another table, collection, folder or topic, by a sink of its own",
        ))
        .arg(option(AS, "NAME", "Name of that sink; NAME-replay by default").requires(INTO))
        .after_help(
            "Examples:\n  stafett sink replay events-pg --from 2026-11-01T00:00:00Z\n  \
             stafett sink replay -f sinks.toml events-pg --set EventLog/0=1200 --into event_log_new >> sinks.toml",
        ),
        Command::new("runner")
            .about("Run the sinks of a broker, which starts this by itself")
            .hide(true),
    ]
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some((word, matches)) = matches.subcommand() else {
        return Ok(());
    };
    match word {
        "list" => return keep::list(matches),
        "describe" => return keep::describe(matches),
        "define" => return keep::define(matches),
        "delete" => return keep::delete(matches),
        "positions" => return keep::positions(matches),
        "pause" | "resume" if !matches.contains_id(FILE) => return keep::pause(matches, word),
        "accept-gap" if !matches.contains_id(FILE) => return keep::accept_gap(matches),
        "replay" if !matches.contains_id(FILE) => return keep::replay(matches),
        "replay" => return Ok(replay::replay(matches)?),
        "runner" => return Ok(runner::run()?),
        _ => {}
    }
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
        "accept-gap" => look::accept_gap(matches, &sinks),
        "dry-run" => look::dry_run(matches, &sinks),
        "verify" => verify::compare(matches, &sinks, None),
        "recompute" => verify::again(matches, &sinks),
        _ => Ok(()),
    }?)
}

/// Returns the sinks of the file, or the one that is named.
fn definitions(matches: &ArgMatches) -> anyhow::Result<Vec<Definition>> {
    Ok(documents(matches)?.into_iter().map(|(sink, _)| sink).collect())
}

/// Returns all sinks of the file.
fn all(matches: &ArgMatches) -> anyhow::Result<Vec<Definition>> {
    Ok(all_documents(matches)?
        .into_iter()
        .map(|(sink, _)| sink)
        .collect())
}

/// As [`definitions`], each with its fields as JSON.
fn documents(matches: &ArgMatches) -> anyhow::Result<Vec<(Definition, String)>> {
    let mut sinks = all_documents(matches)?;
    let names: Vec<&String> = matches.get_many(NAME).into_iter().flatten().collect();
    let is_there = |name: &str| sinks.iter().any(|(sink, _)| sink.name == name);
    if let Some(absent) = names.iter().find(|name| !is_there(name)) {
        bail!("the file has no sink {absent}");
    }
    sinks.retain(|(sink, _)| names.is_empty() || names.contains(&&sink.name));
    Ok(sinks)
}

fn all_documents(matches: &ArgMatches) -> anyhow::Result<Vec<(Definition, String)>> {
    let Some(path) = matches.get_one::<PathBuf>(FILE) else {
        bail!("a file with definitions is needed: -f FILE");
    };
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("{shown} cannot be read"))?;
    Definition::documents(&text).with_context(|| shown.to_string())
}
