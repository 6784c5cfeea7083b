//! `stafett queue …`: creates and shows queues and their ready messages, purges, moves and deletes.

mod create;

use anyhow::Context;
use clap::{ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use hyper::Method;
use serde_json::{Value, json};

use super::deletion;
use crate::client::Session;
use crate::client::http::{self, Question};
use crate::client::options::{self, argument, flag, number, option};
use crate::client::table::{Side, Table};
use crate::failure::Failure;

const QUEUE: &str = "QUEUE";
const COUNT: &str = "count";
const PRIORITY: &str = "priority";
const HEADER: &str = "header";
const TO: &str = "to";
const TO_EXCHANGE: &str = "to-exchange";
const TO_ORIGIN: &str = "to-origin";
const KEY: &str = "key";
const IF_UNUSED: &str = "if-unused";
const IF_EMPTY: &str = "if-empty";

pub(super) fn describe() -> Command {
    let queue = || argument(QUEUE, "The queue");
    let count = |help: &'static str| number(COUNT, help);
    http::command(Command::new("queue"))
        .about("List and create queues, look at messages that wait, purge, move and delete")
        .arg(options::namespace(
            "The namespace of the queue, / if none is named; for `list`, only this one's",
        ))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            Command::new("list").about("List queues"),
            Command::new("show")
                .about("Show a queue, its settings and counts")
                .arg(queue()),
            create::describe(queue()),
            Command::new("messages")
                .about("Show messages that wait, as JSON, one a line; nothing happens to them")
                .arg(queue())
                .arg(count("So many at most; 10 if this is not given"))
                .arg(option(PRIORITY, "P", "Only those of this priority").value_parser(value_parser!(u8)))
                .arg(
                    option(
                        HEADER,
                        "NAME=VALUE",
                        "Only those with this header; several must all be there",
                    )
                    .action(ArgAction::Append),
                )
                .after_help("Examples:\n  stafett queue messages orders --header correlation-id=c-1"),
            Command::new("purge")
                .about("Settle all messages that wait")
                .arg(queue())
                .arg(deletion::yes()),
            Command::new("move")
                .about("Move messages from the front of a queue to another one, to an exchange, or back")
                .arg(queue())
                .arg(option(TO, "QUEUE", "Queue that they go to"))
                .arg(option(TO_EXCHANGE, "EXCHANGE", "Exchange that they go to"))
                .arg(option(KEY, "KEY", "Routing key at that exchange; else they keep theirs").requires(TO_EXCHANGE))
                .arg(flag(
                    TO_ORIGIN,
                    "Dead letters go to the exchange, with the routing key, that they were published with",
                ))
                .group(
                    ArgGroup::new("target")
                        .args([TO, TO_EXCHANGE, TO_ORIGIN])
                        .required(true),
                )
                .arg(count("So many at most; all that wait if this is not given"))
                .after_help(
                    "Examples:\n  stafett queue move orders.dead --to orders\n  stafett queue move orders.dead --to-origin",
                ),
            Command::new("delete")
                .about("Delete a queue with the messages in it")
                .arg(queue())
                .arg(flag(IF_UNUSED, "Only if it has no consumers"))
                .arg(flag(IF_EMPTY, "Only if no message waits"))
                .arg(deletion::yes()),
        ])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("list", matches)) => list(matches),
        Some(("show", matches)) => {
            let answer = http::ask(matches, about(matches, Method::GET, None))?;
            Ok(http::show_fields(matches, &answer)?)
        }
        Some(("create", matches)) => create::run(matches),
        Some(("messages", matches)) => messages(matches),
        Some(("purge", matches)) => purge(matches),
        Some(("move", matches)) => move_all(matches),
        Some(("delete", matches)) => delete(matches),
        _ => Ok(()),
    }
}

fn given(matches: &ArgMatches) -> &str {
    options::text(matches, QUEUE)
}

/// Returns a request about the queue, or about a part of it.
fn about(matches: &ArgMatches, method: Method, part: Option<&str>) -> Question {
    let question = Question::new(method, "/v1/queues").at(given(matches));
    let question = part.into_iter().fold(question, Question::at);
    question.in_namespace(matches)
}

fn counted(answer: &Value) -> u64 {
    answer.get("messages").and_then(Value::as_u64).unwrap_or(0)
}

fn list(matches: &ArgMatches) -> Result<(), Failure> {
    let question = || Question::new(Method::GET, "/v1/queues").in_namespace(matches);
    let queues = http::list(matches, question)?;
    let mut table = Table::new(&[
        ("NAMESPACE", Side::Left),
        ("QUEUE", Side::Left),
        ("READY", Side::Right),
        ("IN FLIGHT", Side::Right),
        ("CONSUMERS", Side::Right),
        ("DURABLE", Side::Left),
    ]);
    for queue in &queues {
        let text = |field| queue.get(field).and_then(Value::as_str).unwrap_or_default();
        let number = |field| queue.get(field).and_then(Value::as_u64).unwrap_or(0).to_string();
        let is_durable = queue.get("durable").and_then(Value::as_bool).unwrap_or(false);
        table.row(vec![
            text("namespace").to_owned(),
            text("name").to_owned(),
            number("ready"),
            number("in_flight"),
            number("consumers"),
            if is_durable { "yes" } else { "no" }.to_owned(),
        ]);
    }
    Ok(http::show(matches, &queues, &table, "no queues")?)
}

fn messages(matches: &ArgMatches) -> Result<(), Failure> {
    let mut question = about(matches, Method::GET, Some("messages"));
    if let Some(count) = matches.get_one::<u64>(COUNT) {
        question = question.with("count", &count.to_string());
    }
    if let Some(priority) = matches.get_one::<u8>(PRIORITY) {
        question = question.with("priority", &priority.to_string());
    }
    for (name, value) in options::pairs(matches, HEADER)? {
        question = question.with(&format!("header.{name}"), value);
    }
    let answer = http::ask(matches, question)?;
    let messages = answer
        .get("messages")
        .and_then(Value::as_array)
        .context("the answer has no messages")?;
    Ok(messages.iter().try_for_each(Session::object)?)
}

fn purge(matches: &ArgMatches) -> Result<(), Failure> {
    let queue = given(matches);
    if !deletion::is_agreed(matches) {
        deletion::confirm(&format!("settle all messages that wait in {queue}?"))?;
    }
    let answer = http::ask(matches, about(matches, Method::POST, Some("purge")))?;
    let words = format!("queue {queue} purged of {} messages", counted(&answer));
    Ok(http::done(matches, &answer, &words)?)
}

fn move_all(matches: &ArgMatches) -> Result<(), Failure> {
    let queue = given(matches);
    let text = |name: &str| matches.get_one::<String>(name);
    let (target, to) = match (text(TO), text(TO_EXCHANGE)) {
        (Some(queue), _) => (json!({ "queue": queue }), queue.clone()),
        (None, Some(exchange)) => {
            let target = json!({ "exchange": exchange, "routing_key": text(KEY) });
            (target, format!("the exchange {exchange:?}"))
        }
        (None, None) => (json!("origin"), "their origin".to_owned()),
    };
    let body = json!({ "to": target, "count": matches.get_one::<u64>(COUNT) });
    let question = about(matches, Method::POST, Some("move")).with_body(&body);
    let answer = http::ask(matches, question)?;
    let words = format!("{} messages moved from {queue} to {to}", counted(&answer));
    Ok(http::done(matches, &answer, &words)?)
}

fn delete(matches: &ArgMatches) -> Result<(), Failure> {
    let queue = given(matches);
    let mut question = about(matches, Method::DELETE, None);
    for (flag, name) in [(IF_UNUSED, "if_unused"), (IF_EMPTY, "if_empty")] {
        if matches.get_flag(flag) {
            question = question.with(name, "true");
        }
    }
    if !deletion::is_agreed(matches) {
        deletion::confirm(&format!("delete the queue {queue} with all messages?"))?;
    }
    let answer = http::ask(matches, question)?;
    let words = format!("queue {queue} deleted with {} messages", counted(&answer));
    Ok(http::done(matches, &answer, &words)?)
}
