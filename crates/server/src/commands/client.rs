//! `stafett client …`: registered clients, each with a queue of its own.

use clap::{ArgMatches, Command};
use hyper::Method;
use serde_json::Value;

use super::deletion;
use crate::client::http::{self, Question, word};
use crate::client::options::{self, argument, flag};
use crate::client::table::{Side, Table};
use crate::failure::Failure;

const CLIENT: &str = "CLIENT";
const IF_EMPTY: &str = "if-empty";

pub(super) fn describe() -> Command {
    let client = || argument(CLIENT, "The client");
    http::command(Command::new("client"))
        .about("List, register and delete clients: each has a queue of its own")
        .arg(options::namespace(
            "The namespace of the client, / if none is named; for `list`, only this one's",
        ))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            Command::new("list").about("List registered clients"),
            Command::new("show")
                .about("Show a client and its queue")
                .arg(client()),
            Command::new("register")
                .about("Register a client; one that is there stays as it is")
                .arg(client())
                .after_help("Examples:\n  stafett client register ann"),
            Command::new("delete")
                .about("Delete a client with its queue and the messages in it")
                .arg(client())
                .arg(flag(IF_EMPTY, "Only if no message waits for it"))
                .arg(deletion::yes()),
        ])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("list", matches)) => list(matches),
        Some(("show", matches)) => {
            let answer = http::ask(matches, about(matches, Method::GET))?;
            Ok(http::show_fields(matches, &answer)?)
        }
        Some(("register", matches)) => {
            let answer = http::ask(matches, about(matches, Method::PUT))?;
            let words = format!("client {} registered", options::text(matches, CLIENT));
            Ok(http::done(matches, &answer, &words)?)
        }
        Some(("delete", matches)) => delete(matches),
        _ => Ok(()),
    }
}

fn about(matches: &ArgMatches, method: Method) -> Question {
    Question::new(method, "/v1/clients")
        .at(options::text(matches, CLIENT))
        .in_namespace(matches)
}

fn list(matches: &ArgMatches) -> Result<(), Failure> {
    let clients = http::list(matches, || {
        Question::new(Method::GET, "/v1/clients").in_namespace(matches)
    })?;
    let mut table = Table::new(&[
        ("CLIENT", Side::Left),
        ("QUEUE", Side::Left),
        ("READY", Side::Right),
    ]);
    for client in &clients {
        let cell = |path| client.pointer(path).map(word).unwrap_or_default();
        table.row(vec![cell("/name"), cell("/queue/name"), cell("/queue/ready")]);
    }
    Ok(http::show(matches, &clients, &table, "no clients")?)
}

fn delete(matches: &ArgMatches) -> Result<(), Failure> {
    let client = options::text(matches, CLIENT);
    let mut question = about(matches, Method::DELETE);
    if matches.get_flag(IF_EMPTY) {
        question = question.with("if_empty", "true");
    }
    if !deletion::is_agreed(matches) {
        deletion::confirm(&format!("delete the client {client} with its queue?"))?;
    }
    let answer = http::ask(matches, question)?;
    let messages = answer.get("messages").and_then(Value::as_u64).unwrap_or(0);
    let words = format!("client {client} deleted with {messages} messages");
    Ok(http::done(matches, &answer, &words)?)
}
