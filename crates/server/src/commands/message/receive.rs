//! `stafett message receive` and `settle`.

use anyhow::Context;
use clap::{ArgAction, ArgMatches, Command, value_parser};
use hyper::Method;
use serde_json::{Value, json};

use super::from_caller;
use crate::client::Session;
use crate::client::http::{self, Question};
use crate::client::options::{self, argument, flag, number, option};
use crate::failure::Failure;

const QUEUE: &str = "QUEUE";
const COUNT: &str = "count";
const HEADER: &str = "header";
const LEASE: &str = "lease";
const STORED: &str = "stored";
const EXTEND: &str = "extend";
const BY: &str = "by";
/// Options that are keys of the query.
const KEYS: [(&str, &str, &str); 4] = [
    ("wait", "TIME", "Wait for the first message, at most 1m"),
    ("sender", "CLIENT", "Only messages of this client"),
    ("context", "N", "Only messages with this context"),
    ("order", "ORDER", "priority or oldest"),
];
/// Ends of a lease.
const ENDS: [(&str, &str); 3] = [
    ("complete", "A lease whose message is done; may be repeated"),
    (
        "requeue",
        "A lease whose message returns to the queue; may be repeated",
    ),
    (
        "discard",
        "A lease whose message is a dead letter; may be repeated",
    ),
];

pub(super) fn describe() -> Command {
    let keys = KEYS.map(|(name, value, help)| {
        let key = option(name, value, help);
        if name == "order" {
            key.value_parser(["priority", "oldest"])
        } else {
            key
        }
    });
    Command::new("receive")
        .about("Take messages from a queue, as JSON, one a line")
        .arg(argument(QUEUE, "The queue"))
        .arg(number(COUNT, "Most messages; one if this is not given"))
        .args(keys)
        .arg(option("priority", "P", "Only messages of this priority").value_parser(value_parser!(u8)))
        .arg(
            option(
                HEADER,
                "NAME=VALUE",
                "Only messages with this header; may be repeated",
            )
            .action(ArgAction::Append),
        )
        .arg(option(
            LEASE,
            "TIME",
            "Hold them for this time, to be settled by `stafett message settle`",
        ))
        .arg(flag(STORED, "Answer when it is stored that they are done").conflicts_with(LEASE))
        .after_help(
            "Examples:\n  stafett message receive orders --wait 20s\n  \
             stafett message receive orders --count 10 --lease 30s",
        )
}

pub(super) fn describe_settle() -> Command {
    Command::new("settle")
        .about("Settle or extend leases of messages")
        .arg(argument(QUEUE, "The queue"))
        .args(ENDS.map(|(name, help)| option(name, "LEASE", help).action(ArgAction::Append)))
        .arg(
            option(EXTEND, "LEASE", "A lease that is to last longer; may be repeated")
                .action(ArgAction::Append),
        )
        .arg(option(BY, "TIME", "Time from now on for --extend").default_value("30s"))
        .after_help("Examples:\n  stafett message settle orders --complete 0-17-9c5f0b1e22d07a41")
}

fn about(matches: &ArgMatches, part: &str) -> Question {
    let question = Question::new(Method::POST, "/v1/queues");
    from_caller(question.at(options::text(matches, QUEUE)).at(part), matches)
}

pub(super) fn receive(matches: &ArgMatches) -> Result<(), Failure> {
    let mut question = about(matches, "receive");
    for (name, _, _) in KEYS {
        question = question.with_option(matches, name, name);
    }
    if let Some(count) = matches.get_one::<u64>(COUNT) {
        question = question.with("count", &count.to_string());
    }
    if let Some(priority) = matches.get_one::<u8>("priority") {
        question = question.with("priority", &priority.to_string());
    }
    for (name, value) in options::pairs(matches, HEADER)? {
        question = question.with(&format!("header.{name}"), value);
    }
    if let Some(time) = matches.get_one::<String>(LEASE) {
        question = question.with("ack", &format!("lease:{time}"));
    }
    if matches.get_flag(STORED) {
        question = question.with("settled", "stored");
    }
    let answer = http::ask(matches, question)?;
    let messages = answer
        .get("messages")
        .and_then(Value::as_array)
        .context("the answer has no messages")?;
    Ok(messages.iter().try_for_each(Session::object)?)
}

pub(super) fn settle(matches: &ArgMatches) -> Result<(), Failure> {
    let given = |option: &str| -> Vec<&String> { matches.get_many(option).into_iter().flatten().collect() };
    let by = options::text(matches, BY);
    let extend: Vec<Value> = given(EXTEND)
        .into_iter()
        .map(|lease| json!({ "lease": lease, "by": by }))
        .collect();
    let body = json!({
        "complete": given("complete"),
        "requeue": given("requeue"),
        "discard": given("discard"),
        "extend": extend,
    });
    let answer = http::ask(matches, about(matches, "settle").with_body(&body))?;
    let count = |field: &str| answer.get(field).and_then(Value::as_u64).unwrap_or(0);
    let unknown = answer
        .get("unknown")
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    let words = format!(
        "{} settled, {} extended, {unknown} have ended before",
        count("settled"),
        count("extended")
    );
    Ok(http::done(matches, &answer, &words)?)
}
