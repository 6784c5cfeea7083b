//! `stafett rollup …`: roll-ups of a file compared with their topics and computed again; and two stores
//! compared.

use anyhow::{anyhow, bail};
use clap::{Arg, ArgMatches, Command};
use stafett_sinks::Definition;

use super::{FILES, NAME, STRICT, bounds, by, definitions, file, verify};
use crate::client::http;
use crate::client::options::{flag, option};
use crate::failure::Failure;

pub(in crate::commands) fn describe() -> Command {
    let of = |word: &'static str, about: &'static str| {
        Command::new(word)
            .about(about)
            .arg(file().required(true))
            .args(bounds())
    };
    http::command(Command::new("rollup"))
        .about("Verify and compute sums of topics, and compare two stores")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(crate::client::server_arg())
        .args(crate::client::login_args())
        .subcommands([
            of(
                "verify",
                "Compare roll-ups with what their topics say, or the stores of two sinks; exit code 1 if there is a difference",
            )
            .arg(super::names())
            .arg(files())
            .arg(by())
            .after_help(
                "Examples:\n  stafett rollup verify -f sinks.toml app-usage --from 2026-11-01T00:00:00Z\n  \
                 stafett rollup verify -f sinks.toml events-pg events-parquet",
            ),
            of(
                "recompute",
                "Compute roll-ups again from their topics, up to where they are",
            )
            .arg(super::name()),
            of("show", "Show roll-ups as their topics have them now; nothing is stored")
                .arg(super::name())
                .arg(files())
                .arg(flag(
                    STRICT,
                    "Only records within the bounds: buckets at the edges have a part of theirs",
                )),
        ])
}

fn files() -> Arg {
    option(
        FILES,
        "NAME",
        "Compute from the files of this sink instead of topics",
    )
}

pub(in crate::commands) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some((word, matches)) = matches.subcommand() else {
        return Ok(());
    };
    Ok(match word {
        "verify" => verified(matches),
        "recompute" => verify::again(matches, &definitions(matches)?),
        "show" => {
            let all = super::all(matches)?;
            verify::shown(matches, &definitions(matches)?, files_of(matches, &all)?)
        }
        _ => Ok(()),
    }?)
}

fn find<'a>(sinks: &'a [Definition], name: &str) -> anyhow::Result<&'a Definition> {
    let found = sinks.iter().find(|sink| sink.name == name);
    found.ok_or_else(|| anyhow!("the file has no sink {name}"))
}

/// Returns the sink whose files have the records, if one is named.
fn files_of<'a>(matches: &ArgMatches, sinks: &'a [Definition]) -> anyhow::Result<Option<&'a Definition>> {
    let name = matches.get_one::<String>(FILES);
    name.map(|name| find(sinks, name)).transpose()
}

/// Compares one roll-up or all with their topics, or two stores with each other.
fn verified(matches: &ArgMatches) -> anyhow::Result<()> {
    let sinks = super::all(matches)?;
    let files = files_of(matches, &sinks)?;
    let names: Vec<&String> = matches.get_many(NAME).into_iter().flatten().collect();
    match names.as_slice() {
        [] => verify::compare(matches, &sinks, files),
        [name] => verify::compare(matches, std::slice::from_ref(find(&sinks, name)?), files),
        [one, other] => verify::stores(matches, [find(&sinks, one)?, find(&sinks, other)?]),
        _ => bail!("at most two sinks are compared"),
    }
}
