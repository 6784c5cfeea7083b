//! `stafett transaction …`: shows transactional ids and open transactions, over Kafka's protocol.

mod list;

use clap::{ArgMatches, Command};

use crate::client;
use crate::failure::Failure;

pub(super) fn describe() -> Command {
    client::command(Command::new("transaction"))
        .about("List transactional ids, their states and open transactions")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([list::describe()])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("list", matches)) => list::run(matches),
        _ => Ok(()),
    }
}
