//! `stafett connection …`: lists and shows connections, and ends one.

use clap::{Arg, ArgMatches, Command};
use hyper::Method;
use serde_json::Value;

use super::deletion;
use crate::client::http::{self, Question, word};
use crate::client::table::{Side, Table};
use crate::failure::Failure;

const ID: &str = "ID";
const REASON: &str = "reason";
/// Filters of the list: option, value and explanation.
const FILTERS: [(&str, &str, &str); 5] = [
    ("listener", "NAME", "Only those of this listener, such as amqp"),
    ("user", "NAME", "Only those of this user"),
    ("namespace", "NAME", "Only those that opened this namespace"),
    ("client", "NAME", "Only those whose client gave itself this name"),
    (
        "peer",
        "ADDRESS",
        "Only those from this address, with or without the port",
    ),
];

pub(super) fn describe() -> Command {
    let id = || {
        Arg::new(ID)
            .required(true)
            .help("Number of the connection, as `list` shows it")
    };
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let filters = FILTERS.map(|(name, value, help)| text(name, value, help));
    http::command(Command::new("connection"))
        .about("List open connections, show one with its channels, and end it")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            Command::new("list")
                .about("List open connections, the oldest first")
                .args(filters),
            Command::new("show")
                .about("Show a connection and its channels")
                .arg(id()),
            Command::new("close")
                .about("End a connection in the words of its protocol")
                .arg(id())
                .arg(text(REASON, "TEXT", "Reason that the client is told"))
                .arg(deletion::yes())
                .after_help("Examples:\n  stafett connection close 8124 --reason 'moving to another host'"),
        ])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("list", matches)) => list(matches),
        Some(("show", matches)) => show(matches),
        Some(("close", matches)) => close(matches),
        _ => Ok(()),
    }
}

fn about(matches: &ArgMatches, method: Method) -> Question {
    let id = matches.get_one::<String>(ID).map_or("", String::as_str);
    Question::new(method, "/v1/connections").at(id)
}

fn list(matches: &ArgMatches) -> Result<(), Failure> {
    let question = || {
        let question = Question::new(Method::GET, "/v1/connections");
        let filters = FILTERS.iter();
        filters.fold(question, |question, (name, _, _)| {
            question.with_option(matches, name, name)
        })
    };
    let connections = http::list(matches, question)?;
    let mut table = Table::new(&[
        ("ID", Side::Right),
        ("LISTENER", Side::Left),
        ("PEER", Side::Left),
        ("USER", Side::Left),
        ("NAMESPACE", Side::Left),
        ("CLIENT", Side::Left),
        ("STATE", Side::Left),
        ("WAITS FOR", Side::Left),
        ("CHANNELS", Side::Right),
        ("RECEIVED", Side::Right),
        ("SENT", Side::Right),
        ("SINCE", Side::Left),
    ]);
    for connection in &connections {
        let field = |path: &str| connection.pointer(path).map_or_else(|| "-".to_owned(), word);
        let client = ["/client/name", "/client/product"]
            .into_iter()
            .find(|path| connection.pointer(path).is_some_and(Value::is_string));
        table.row(vec![
            field("/id"),
            field("/listener"),
            field("/peer"),
            field("/user"),
            field("/namespace"),
            client.map_or_else(|| "-".to_owned(), field),
            field("/state"),
            field("/waits_for"),
            field("/channels"),
            field("/received_bytes"),
            field("/sent_bytes"),
            field("/since"),
        ]);
    }
    Ok(http::show(matches, &connections, &table, "no connections")?)
}

fn show(matches: &ArgMatches) -> Result<(), Failure> {
    let connection = http::ask(matches, about(matches, Method::GET))?;
    Ok(http::show_fields(matches, &connection)?)
}

fn close(matches: &ArgMatches) -> Result<(), Failure> {
    let id = matches.get_one::<String>(ID).map_or("", String::as_str);
    if !deletion::is_agreed(matches) {
        deletion::confirm(&format!("end the connection {id}?"))?;
    }
    let question = about(matches, Method::DELETE).with_option(matches, REASON, "reason");
    let answer = http::ask(matches, question)?;
    let peer = answer.get("peer").map_or_else(String::new, word);
    let words = format!("connection {id} of {peer} is ending");
    Ok(http::done(matches, &answer, &words)?)
}
