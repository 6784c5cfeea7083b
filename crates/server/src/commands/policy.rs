//! `stafett policy …`: settings for all queues whose names match.

use clap::{Arg, ArgMatches, Command, value_parser};
use hyper::Method;
use serde_json::{Map, Value, json};

use crate::client::http::{self, Question};
use crate::client::options::{self, argument, flag, namespace, number, option};
use crate::client::table::{Side, Table};
use crate::failure::Failure;

const NAME: &str = "NAME";
const PATTERN: &str = "PATTERN";
const OPERATOR: &str = "operator";
const PRIORITY: &str = "priority";
const QUEUES: &str = "queues";
const OVERFLOW: &str = "overflow";
const DELIVERY_LIMIT: &str = "delivery-limit";

/// Options with a number, and the fields that they set.
const NUMBERS: [(&str, &str); 4] = [
    ("ttl", "ttl_ms"),
    ("expires", "expires_ms"),
    ("length", "length_max"),
    ("bytes", "bytes_max"),
];
/// Options with a text, and the fields that they set.
const TEXTS: [(&str, &str); 3] = [
    (OVERFLOW, "overflow"),
    ("dead-letter-exchange", "dead_letter_exchange"),
    ("dead-letter-key", "dead_letter_key"),
];

pub(super) fn describe() -> Command {
    let name = || argument(NAME, "The policy");
    let operator = || {
        flag(
            OPERATOR,
            "A policy of operators, which bounds those of others and what is changed at a queue",
        )
    };
    http::command(Command::new("policy"))
        .about("List, set and delete policies: settings for all queues whose names match")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(namespace("The namespace; / if absent"))
        .subcommands([
            Command::new("list").about("List policies").arg(operator()),
            set_command().arg(operator()),
            Command::new("delete")
                .about("Delete a policy; queues have their declared settings again")
                .arg(name())
                .arg(operator())
                .after_help("Examples:\n  stafett policy delete short"),
        ])
}

fn set_command() -> Command {
    Command::new("set")
        .about("Set a policy, for queues that are there and new ones")
        .arg(argument(NAME, "The policy"))
        .arg(argument(
            PATTERN,
            "Regular expression that finds a place in the names of the queues",
        ))
        .arg(
            option(
                PRIORITY,
                "N",
                "Of several policies that match, the highest one is in force",
            )
            .value_parser(value_parser!(i32))
            .allow_negative_numbers(true),
        )
        .arg(option(QUEUES, "KIND", "Kind of queues").value_parser(["all", "plain", "two_priorities"]))
        .arg(options::time("ttl", "Longest time of a message in a queue"))
        .arg(options::time(
            "expires",
            "Time without use after which a queue is deleted",
        ))
        .arg(number("length", "Most messages that wait"))
        .arg(options::size("bytes", "Most bytes that wait"))
        .arg(
            option(OVERFLOW, "FATE", "Fate of messages beyond --length or --bytes").value_parser([
                "reject",
                "drop-head",
                "reject-dead-letter",
            ]),
        )
        .arg(option(
            "dead-letter-exchange",
            "EXCHANGE",
            "Exchange for dead letters",
        ))
        .arg(option(
            "dead-letter-key",
            "KEY",
            "Routing key of dead letters, instead of their own",
        ))
        .arg(
            Arg::new(DELIVERY_LIMIT)
                .long(DELIVERY_LIMIT)
                .value_name("N")
                .value_parser(value_parser!(i64).range(-1..))
                .allow_negative_numbers(true)
                .help("Returns after which a message is a dead letter; -1 for no limit"),
        )
        .after_help(
            "Examples:\n  stafett policy set short '^tmp\\.' --ttl 1h --length 10000\n  \
             stafett policy set bound '' --operator --bytes 1GiB",
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("set", matches)) => {
            let answer = http::ask(matches, about(matches, Method::PUT).with_body(&body(matches)))?;
            let name = options::text(matches, NAME);
            Ok(http::done(matches, &answer, &format!("policy {name} set"))?)
        }
        Some(("delete", matches)) => {
            let answer = http::ask(matches, about(matches, Method::DELETE))?;
            let name = options::text(matches, NAME);
            Ok(http::done(matches, &answer, &format!("policy {name} deleted"))?)
        }
        Some((_, matches)) => list(matches),
        None => Ok(()),
    }
}

fn of_operators(question: Question, matches: &ArgMatches) -> Question {
    if matches.get_flag(OPERATOR) {
        question.with(OPERATOR, "true")
    } else {
        question
    }
}

fn about(matches: &ArgMatches, method: Method) -> Question {
    let question = Question::new(method, "/v1/policies").at(options::text(matches, NAME));
    of_operators(question.in_namespace(matches), matches)
}

fn body(matches: &ArgMatches) -> Value {
    let mut settings = Map::new();
    for (option, field) in NUMBERS {
        if let Some(number) = matches.get_one::<u64>(option) {
            settings.insert(field.to_owned(), json!(number));
        }
    }
    for (option, field) in TEXTS {
        if let Some(text) = matches.get_one::<String>(option) {
            settings.insert(field.to_owned(), json!(text));
        }
    }
    if let Some(limit) = matches.get_one::<i64>(DELIVERY_LIMIT) {
        settings.insert("delivery_limit".to_owned(), json!(limit));
    }
    json!({
        "pattern": options::text(matches, PATTERN),
        "priority": matches.get_one::<i32>(PRIORITY).copied().unwrap_or(0),
        "queues": matches.get_one::<String>(QUEUES).map_or("all", String::as_str),
        "settings": settings,
    })
}

fn list(matches: &ArgMatches) -> Result<(), Failure> {
    let question = || {
        let question = Question::new(Method::GET, "/v1/policies").in_namespace(matches);
        of_operators(question, matches)
    };
    let list = http::list(matches, question)?;
    let columns = [
        ("NAMESPACE", Side::Left),
        ("POLICY", Side::Left),
        ("PATTERN", Side::Left),
        ("PRIORITY", Side::Right),
        ("QUEUES", Side::Left),
        ("SETTINGS", Side::Left),
    ];
    let mut table = Table::new(&columns);
    for policy in &list {
        let field = |name: &str| policy.get(name).map(http::word).unwrap_or_default();
        let settings = policy.get("settings").and_then(Value::as_object);
        let settings = settings
            .into_iter()
            .flatten()
            .filter(|(_, value)| !value.is_null());
        let settings: Vec<_> = settings
            .map(|(name, value)| format!("{name}={}", http::word(value)))
            .collect();
        let mut row = ["namespace", "name", "pattern", "priority", "queues"]
            .map(field)
            .to_vec();
        row.push(settings.join(" "));
        table.row(row);
    }
    Ok(http::show(matches, &list, &table, "no policies")?)
}
