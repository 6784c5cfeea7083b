//! `stafett limit …`: shows and sets the limits of namespaces and users.

use clap::{ArgMatches, Command, value_parser};
use hyper::Method;
use serde_json::{Map, Value, json};

use crate::client::http::{self, Question};
use crate::client::options::{option, size};
use crate::client::table::{Side, Table};
use crate::failure::Failure;

/// Limits with a number of things.
const NUMBERS: [(&str, &str); 5] = [
    ("connections", "Open connections of RabbitMQ's clients"),
    ("channels", "Open channels"),
    ("queues", "Queues of a namespace"),
    ("topics", "Stored topics of a namespace"),
    ("messages", "Messages in the queues of a namespace"),
];
const BYTES: &str = "bytes";
const NAMESPACE: &str = "namespace";
const USER: &str = "user";

pub(super) fn describe() -> Command {
    let set = Command::new("set")
        .about("Set the limits of a namespace or a user; those that are not given are removed")
        .arg(option(NAMESPACE, "NAME", "The namespace").conflicts_with(USER))
        .arg(option(USER, "NAME", "The user").required_unless_present(NAMESPACE));
    let numbers = NUMBERS.map(|(name, help)| option(name, "N", help).value_parser(value_parser!(u64)));
    let set = set
        .args(numbers)
        .arg(size(BYTES, "Bytes of the messages in the queues of a namespace"))
        .after_help("Examples:\n  stafett limit set --namespace shop --queues 1000 --bytes 10GiB");
    http::command(Command::new("limit"))
        .about("List and set the limits of namespaces and users")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([Command::new("list").about("List limits"), set])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("set", matches)) => set(matches),
        Some((_, matches)) => list(matches),
        None => Ok(()),
    }
}

fn set(matches: &ArgMatches) -> Result<(), Failure> {
    let mut body = Map::new();
    for name in [NAMESPACE, USER] {
        if let Some(text) = matches.get_one::<String>(name) {
            body.insert(name.to_owned(), json!(text));
        }
    }
    for name in NUMBERS.map(|(name, _)| name).into_iter().chain([BYTES]) {
        if let Some(number) = matches.get_one::<u64>(name) {
            body.insert(name.to_owned(), json!(number));
        }
    }
    let question = Question::new(Method::PUT, "/v1/limits").with_body(&Value::Object(body));
    let answer = http::ask(matches, question)?;
    Ok(http::done(matches, &answer, "limits set")?)
}

fn list(matches: &ArgMatches) -> Result<(), Failure> {
    let list = http::list(matches, || Question::new(Method::GET, "/v1/limits"))?;
    let left = [("NAMESPACE", Side::Left), ("USER", Side::Left)];
    let right = ["CONNECTIONS", "CHANNELS", "QUEUES", "TOPICS", "MESSAGES", "BYTES"];
    let columns: Vec<_> = left
        .into_iter()
        .chain(right.map(|name| (name, Side::Right)))
        .collect();
    let mut table = Table::new(&columns);
    for limits in &list {
        let names = [NAMESPACE, USER].into_iter();
        let names = names.chain(NUMBERS.map(|(name, _)| name)).chain([BYTES]);
        let field = |name: &str| match limits.get(name) {
            None | Some(Value::Null) => "-".to_owned(),
            Some(value) => http::word(value),
        };
        table.row(names.map(field).collect());
    }
    Ok(http::show(matches, &list, &table, "no limits")?)
}
