//! `stafett message …`: sends, receives and settles messages of queues over HTTP.

mod receive;
mod send;

use clap::{ArgMatches, Command};

use crate::client::http::{self, Question};
use crate::client::options::{self, option};
use crate::failure::Failure;

/// Option that names the client for which a request is made.
const AS: &str = "as";

pub(super) fn describe() -> Command {
    http::command(Command::new("message"))
        .about("Send, publish, receive and settle messages of queues")
        .arg(options::namespace(
            "The namespace of the queues, / if none is named",
        ))
        .arg(
            option(AS, "CLIENT", "The registered client for which this is done")
                .global(true)
                .display_order(98),
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            send::describe(),
            send::describe_publish(),
            send::describe_call(),
            receive::describe(),
            receive::describe_settle(),
        ])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("send", matches)) => send::send(matches),
        Some(("publish", matches)) => send::publish(matches),
        Some(("call", matches)) => send::call(matches),
        Some(("receive", matches)) => receive::receive(matches),
        Some(("settle", matches)) => receive::settle(matches),
        _ => Ok(()),
    }
}

/// Adds the namespace and the client, which all of these requests have.
fn from_caller(question: Question, matches: &ArgMatches) -> Question {
    let question = question.in_namespace(matches);
    match matches.get_one::<String>(AS) {
        Some(client) => question.with_header("stafett-client", client),
        None => question,
    }
}
