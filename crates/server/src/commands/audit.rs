//! `stafett audit`: shows actions and refusals with their callers.

use clap::{ArgMatches, Command};
use hyper::Method;
use serde_json::Value;

use crate::client::http::{self, Question};
use crate::client::options::option;
use crate::client::table::{Side, Table};
use crate::failure::Failure;

/// Options that are keys of the query.
const KEYS: [(&str, &str, &str); 7] = [
    ("by", "USER", "Only what this user did"),
    (
        "action",
        "ACTION",
        "An action such as topic.deleted, or its first word",
    ),
    ("result", "RESULT", "done or refused"),
    ("on", "NAME", "Name of the thing"),
    ("since", "TIME", "From this time on, such as 2026-11-22T16:00:00Z"),
    ("until", "TIME", "Before this time"),
    ("count", "N", "Number of entries; 100 without it"),
];

pub(super) fn describe() -> Command {
    http::command(Command::new("audit"))
        .about("Show who did what from where, and what was refused, the newest first")
        .args(KEYS.map(|(name, value, about)| option(name, value, about)))
        .after_help("Examples:\n  stafett audit --result refused --since 2026-11-22T00:00:00Z")
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let question = Question::new(Method::GET, "/v1/audit");
    let question = KEYS.iter().fold(question, |question, (name, ..)| {
        question.with_option(matches, name, name)
    });
    let answer = http::ask(matches, question)?;
    let none = Vec::new();
    let entries = answer.get("items").and_then(Value::as_array).unwrap_or(&none);
    let columns = ["AT", "BY", "FROM", "ACTION", "RESULT", "ON"].map(|name| (name, Side::Left));
    let mut table = Table::new(&columns);
    for entry in entries {
        let field = |name: &str| {
            let value = entry.get(name).and_then(Value::as_str);
            value.unwrap_or("-").to_owned()
        };
        table.row(
            ["at", "by", "from", "action", "result", "name"]
                .map(field)
                .to_vec(),
        );
    }
    Ok(http::show(matches, entries, &table, "no entries")?)
}
