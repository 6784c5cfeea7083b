//! `stafett topic …`: shows and changes topics, over Kafka's protocol.

mod create;
pub(super) mod delete;
mod describe;
mod list;
mod set;
mod settings;

use clap::{Arg, ArgMatches, Command};

use crate::client;
use crate::failure::Failure;

pub(super) fn describe() -> Command {
    client::command(Command::new("topic"))
        .about("List, create, describe, change and delete topics")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            list::describe(),
            create::describe(),
            describe::describe(),
            set::describe(),
            delete::describe(),
        ])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("list", matches)) => list::run(matches),
        Some(("create", matches)) => create::run(matches),
        Some(("describe", matches)) => describe::run(matches),
        Some(("set", matches)) => set::run(matches),
        Some(("delete", matches)) => delete::run(matches),
        _ => Ok(()),
    }
}

const NAME: &str = "NAME";

fn name() -> Arg {
    Arg::new(NAME).required(true).help("The topic")
}

fn names() -> Arg {
    Arg::new(NAME).required(true).num_args(1..).help("The topics")
}

/// Returns the given names.
fn given(matches: &ArgMatches) -> Vec<String> {
    matches
        .get_many::<String>(NAME)
        .into_iter()
        .flatten()
        .cloned()
        .collect()
}
