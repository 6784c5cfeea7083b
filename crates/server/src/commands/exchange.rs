//! `stafett exchange …`: lists, makes and deletes exchanges, and says where messages would go.

use clap::{ArgAction, ArgMatches, Command};
use hyper::Method;
use serde_json::{Map, Value, json};

use super::deletion;
use crate::client::http::{self, Question, word};
use crate::client::options::{self, argument, flag, option};
use crate::client::table::{Side, Table};
use crate::failure::Failure;

const EXCHANGE: &str = "EXCHANGE";
const KEY: &str = "KEY";
const KIND: &str = "kind";
const HASH_ON: &str = "hash-on";
const ALTERNATE: &str = "alternate";
const HEADER: &str = "header";
/// Options without a value, and the fields that they set.
const FLAGS: [(&str, &str, &str); 3] = [
    ("auto-delete", "auto_delete", "It goes with its last binding"),
    ("internal", "internal", "Only other exchanges publish to it"),
    (
        "delays",
        "delays",
        "Messages may wait here for a time of their own",
    ),
];
const TRANSIENT: &str = "transient";
const IF_UNUSED: &str = "if-unused";

pub(super) fn describe() -> Command {
    let exchange = || argument(EXCHANGE, "The exchange");
    http::command(Command::new("exchange"))
        .about("List, create and delete exchanges, and see where they lead")
        .arg(options::namespace(
            "The namespace of the exchange, / if none is named; for `list`, only this one's",
        ))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            Command::new("list").about("List exchanges"),
            Command::new("show").about("Show an exchange").arg(exchange()),
            Command::new("create")
                .about("Create an exchange; one with the same definition stays as it is")
                .arg(exchange())
                .arg(
                    option(KIND, "KIND", "How it chooses among its bindings")
                        .value_parser(["direct", "fan-out", "topic", "headers", "hash"])
                        .default_value("direct"),
                )
                .arg(option(
                    HASH_ON,
                    "PROPERTY",
                    "For --kind hash: key, header:NAME, message-id, correlation-id or timestamp",
                ))
                .arg(option(
                    ALTERNATE,
                    "EXCHANGE",
                    "Exchange for messages that lead nowhere",
                ))
                .args(FLAGS.map(|(name, _, help)| flag(name, help)))
                .arg(flag(TRANSIENT, "It goes with the next restart"))
                .after_help("Examples:\n  stafett exchange create events --kind topic"),
            Command::new("delete")
                .about("Delete an exchange with its bindings")
                .arg(exchange())
                .arg(flag(IF_UNUSED, "Only if nothing is bound to it"))
                .arg(deletion::yes()),
            Command::new("route")
                .about("Show where a message with this routing key would go; nothing is stored")
                .arg(exchange())
                .arg(argument(KEY, "The routing key").required(false))
                .arg(
                    option(HEADER, "NAME=VALUE", "A header of the message; may be repeated")
                        .action(ArgAction::Append),
                )
                .after_help("Examples:\n  stafett exchange route events orders.eu.new"),
        ])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("list", matches)) => list(matches),
        Some(("show", matches)) => {
            let answer = http::ask(matches, about(matches, Method::GET, None))?;
            Ok(http::show_fields(matches, &answer)?)
        }
        Some(("create", matches)) => create(matches),
        Some(("delete", matches)) => delete(matches),
        Some(("route", matches)) => route(matches),
        _ => Ok(()),
    }
}

/// Returns a request about the exchange, or about a part of it.
fn about(matches: &ArgMatches, method: Method, part: Option<&str>) -> Question {
    let question = Question::new(method, "/v1/exchanges").at(options::text(matches, EXCHANGE));
    let question = part.into_iter().fold(question, Question::at);
    question.in_namespace(matches)
}

fn list(matches: &ArgMatches) -> Result<(), Failure> {
    let question = || Question::new(Method::GET, "/v1/exchanges").in_namespace(matches);
    let exchanges = http::list(matches, question)?;
    let mut table = Table::new(&[
        ("NAMESPACE", Side::Left),
        ("EXCHANGE", Side::Left),
        ("KIND", Side::Left),
        ("BINDINGS", Side::Right),
        ("DURABLE", Side::Left),
        ("ALTERNATE", Side::Left),
    ]);
    for exchange in &exchanges {
        let cell = |field| exchange.get(field).map(word).unwrap_or_default();
        let is_durable = exchange.get("durable").and_then(Value::as_bool).unwrap_or(false);
        table.row(vec![
            cell("namespace"),
            cell("name"),
            cell("kind"),
            cell("bindings"),
            if is_durable { "yes" } else { "no" }.to_owned(),
            cell("alternate"),
        ]);
    }
    Ok(http::show(matches, &exchanges, &table, "no exchanges")?)
}

fn create(matches: &ArgMatches) -> Result<(), Failure> {
    let mut definition = Map::new();
    definition.insert("kind".to_owned(), json!(options::text(matches, KIND)));
    definition.insert("durable".to_owned(), json!(!matches.get_flag(TRANSIENT)));
    for (option, field) in [(HASH_ON, "hash_on"), (ALTERNATE, "alternate")] {
        if let Some(value) = matches.get_one::<String>(option) {
            definition.insert(field.to_owned(), json!(value));
        }
    }
    for (option, field, _) in FLAGS {
        definition.insert(field.to_owned(), json!(matches.get_flag(option)));
    }
    let question = about(matches, Method::PUT, None).with_body(&Value::Object(definition));
    let answer = http::ask(matches, question)?;
    let words = format!("exchange {} created", options::text(matches, EXCHANGE));
    Ok(http::done(matches, &answer, &words)?)
}

fn delete(matches: &ArgMatches) -> Result<(), Failure> {
    let exchange = options::text(matches, EXCHANGE);
    let mut question = about(matches, Method::DELETE, None);
    if matches.get_flag(IF_UNUSED) {
        question = question.with("if_unused", "true");
    }
    if !deletion::is_agreed(matches) {
        deletion::confirm(&format!("delete the exchange {exchange} with its bindings?"))?;
    }
    let answer = http::ask(matches, question)?;
    let bindings = answer.get("bindings").and_then(Value::as_u64).unwrap_or(0);
    let words = format!("exchange {exchange} deleted with {bindings} bindings");
    Ok(http::done(matches, &answer, &words)?)
}

fn route(matches: &ArgMatches) -> Result<(), Failure> {
    let headers: Map<String, Value> = options::pairs(matches, HEADER)?
        .into_iter()
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect();
    let message = json!({ "routing_key": options::text(matches, KEY), "headers": headers });
    let question = about(matches, Method::POST, Some("route")).with_body(&message);
    let answer = http::ask(matches, question)?;
    let mut table = Table::new(&[("KIND", Side::Left), ("NAME", Side::Left)]);
    for (kind, field) in [("queue", "routed"), ("topic", "topics"), ("delay", "delayed_at")] {
        let names = answer.get(field).and_then(Value::as_array).into_iter().flatten();
        for name in names {
            table.row(vec![kind.to_owned(), word(name)]);
        }
    }
    let none = "nowhere: no binding fits";
    Ok(http::show(matches, &[answer], &table, none)?)
}
