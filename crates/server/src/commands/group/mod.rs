//! `stafett group …`: shows consumer groups and moves their offsets, over Kafka's protocol.

mod delete;
mod describe;
mod lag;
mod list;
mod reset;
mod reset_plan;

use clap::{Arg, ArgMatches, Command};

use crate::client;
use crate::failure::Failure;

pub(super) fn describe() -> Command {
    client::command(Command::new("group"))
        .about("List, describe, rewind and delete groups of consumers, and see how far behind they are")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            list::describe(),
            describe::describe(),
            lag::describe(),
            reset::describe(),
            delete::describe(),
        ])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("list", matches)) => list::run(matches),
        Some(("describe", matches)) => describe::run(matches),
        Some(("lag", matches)) => lag::run(matches),
        Some(("reset", matches)) => reset::run(matches),
        Some(("delete", matches)) => delete::run(matches),
        _ => Ok(()),
    }
}

const NAME: &str = "GROUP";

fn name() -> Arg {
    Arg::new(NAME).required(true).help("The group")
}

fn given(matches: &ArgMatches) -> Vec<String> {
    matches
        .get_many::<String>(NAME)
        .into_iter()
        .flatten()
        .cloned()
        .collect()
}
