//! `stafett consumer …`: lists consumers of queues and topics, and cancels one.

use clap::{Arg, ArgMatches, Command};
use hyper::Method;
use serde_json::Value;

use super::deletion;
use crate::client::http::{self, Question, word};
use crate::client::table::{Side, Table};
use crate::failure::Failure;

const ID: &str = "ID";
/// Filters of the list: option, value and explanation.
const FILTERS: [(&str, &str, &str); 4] = [
    ("queue", "NAME", "Only those of this queue"),
    ("topic", "NAME", "Only those of this topic"),
    (
        "connection",
        "ID",
        "Only those of the connection with this number",
    ),
    (
        "namespace",
        "NAME",
        "Namespace of the queue, / if none is named; without --queue, only those in it",
    ),
];

pub(super) fn describe() -> Command {
    let filters = FILTERS.map(|(name, value, help)| Arg::new(name).long(name).value_name(value).help(help));
    http::command(Command::new("consumer"))
        .about("List consumers of queues and topics, and cancel one")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            Command::new("list")
                .about("List consumers, the oldest first")
                .args(filters),
            Command::new("cancel")
                .about("Cancel a consumer; messages that wait for it return to the queue")
                .arg(
                    Arg::new(ID)
                        .required(true)
                        .help("Number of the consumer, as `list` shows it"),
                )
                .arg(deletion::yes()),
        ])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("list", matches)) => list(matches),
        Some(("cancel", matches)) => cancel(matches),
        _ => Ok(()),
    }
}

fn list(matches: &ArgMatches) -> Result<(), Failure> {
    let question = || {
        let question = Question::new(Method::GET, "/v1/consumers");
        let filters = FILTERS.iter();
        filters.fold(question, |question, (name, _, _)| {
            question.with_option(matches, name, name)
        })
    };
    let consumers = http::list(matches, question)?;
    let mut table = Table::new(&[
        ("ID", Side::Right),
        ("NAMESPACE", Side::Left),
        ("QUEUE OR TOPIC", Side::Left),
        ("NAME", Side::Left),
        ("CONNECTION", Side::Right),
        ("CHANNEL", Side::Right),
        ("PREFETCH", Side::Right),
        ("IN FLIGHT", Side::Right),
        ("SETTLES", Side::Left),
        ("ACTIVE", Side::Left),
    ]);
    for consumer in &consumers {
        let field = |name: &str| consumer.get(name).map_or_else(|| "-".to_owned(), word);
        let is = |name: &str| {
            let is = consumer.get(name).and_then(Value::as_bool).unwrap_or(false);
            if is { "yes" } else { "no" }.to_owned()
        };
        let has_queue = consumer.get("queue").is_some_and(Value::is_string);
        table.row(vec![
            field("id"),
            field("namespace"),
            field(if has_queue { "queue" } else { "topic" }),
            field("name"),
            field("connection"),
            field("channel"),
            field("prefetch"),
            field("in_flight"),
            is("settles"),
            is("active"),
        ]);
    }
    Ok(http::show(matches, &consumers, &table, "no consumers")?)
}

fn cancel(matches: &ArgMatches) -> Result<(), Failure> {
    let id = matches.get_one::<String>(ID).map_or("", String::as_str);
    if !deletion::is_agreed(matches) {
        deletion::confirm(&format!("cancel the consumer {id}?"))?;
    }
    let question = Question::new(Method::DELETE, "/v1/consumers").at(id);
    let answer = http::ask(matches, question)?;
    let name = answer.get("name").map_or_else(String::new, word);
    let words = format!("consumer {id} ({name}) cancelled");
    Ok(http::done(matches, &answer, &words)?)
}
