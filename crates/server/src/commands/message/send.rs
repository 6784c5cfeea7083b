//! `stafett message send`, `publish` and `call`.

use std::io::{self, Read};

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use hyper::Method;
use serde_json::{Map, Value, json};

use super::from_caller;
use crate::client::Session;
use crate::client::http::{self, Question};
use crate::client::options::{self, argument, flag, option, time};
use crate::failure::Failure;

const CONTENT: &str = "CONTENT";
const EXCHANGE: &str = "EXCHANGE";
const CLIENT: &str = "CLIENT";
const QUEUE: &str = "queue";
const TO_CLIENT: &str = "client";
const REQUEST: &str = "request";
const ROUTING_KEY: &str = "routing-key";
const DELAY: &str = "delay";
const PRIORITY: &str = "priority";
const CONTEXT: &str = "context";
const TTL: &str = "ttl";
const CONTENT_TYPE: &str = "content-type";
const HEADER: &str = "header";
const IDEMPOTENCY_KEY: &str = "idempotency-key";
const WAIT: &str = "wait";
const CONTENT_HELP: &str = "The content; from the standard input if it is absent or -";
/// Bytes of content that one request carries.
const CONTENT_BYTES_MAX: u64 = 12 << 20;

/// Returns the options of a message's properties.
fn properties() -> [Arg; 6] {
    [
        option(PRIORITY, "P", "Its priority").value_parser(value_parser!(u8)),
        option(CONTEXT, "N", "Context of the request to which it is the response")
            .value_parser(value_parser!(u64)),
        time(TTL, "Longest time in a queue"),
        option(
            CONTENT_TYPE,
            "TYPE",
            "Type of the content, such as application/json",
        ),
        option(HEADER, "NAME=VALUE", "A header; may be repeated").action(ArgAction::Append),
        option(
            IDEMPOTENCY_KEY,
            "TEXT",
            "Sent again with the same text, it is stored once",
        ),
    ]
}

pub(super) fn describe() -> Command {
    Command::new("send")
        .about("Send a message to queues and clients: all of them get it, or none")
        .arg(argument(CONTENT, CONTENT_HELP).required(false))
        .arg(option(QUEUE, "QUEUE", "A queue; may be repeated").action(ArgAction::Append))
        .arg(option(TO_CLIENT, "CLIENT", "A registered client; may be repeated").action(ArgAction::Append))
        .group(
            ArgGroup::new("to")
                .args([QUEUE, TO_CLIENT])
                .required(true)
                .multiple(true),
        )
        .arg(flag(
            REQUEST,
            "Make a context, and have the response sent to the queue of --as",
        ))
        .arg(time(DELAY, "Time before the queues have it"))
        .args(properties())
        .after_help(
            "Examples:\n  stafett message send --queue orders --priority 7 '{\"amount\": 12}'\n  \
             stafett message send --queue photos --content-type image/png < photo.png",
        )
}

pub(super) fn describe_publish() -> Command {
    Command::new("publish")
        .about("Publish a message to an exchange")
        .arg(argument(EXCHANGE, "The exchange"))
        .arg(argument(CONTENT, CONTENT_HELP).required(false))
        .arg(option(ROUTING_KEY, "KEY", "Its routing key").short('k'))
        .arg(time(DELAY, "Time before an exchange that delays routes it"))
        .args(properties())
        .after_help("Examples:\n  stafett message publish events -k orders.eu.new hello")
}

pub(super) fn describe_call() -> Command {
    Command::new("call")
        .about("Send a request to a client, and show the response")
        .arg(argument(CLIENT, "The client"))
        .arg(argument(CONTENT, CONTENT_HELP).required(false))
        .arg(option(WAIT, "TIME", "Longest wait for the response, at most 1m").default_value("10s"))
        .args(properties())
        .after_help("Examples:\n  stafett message call bob ping --as ann")
}

/// Reads the content and the properties of a message.
fn message(matches: &ArgMatches) -> Result<Map<String, Value>, Failure> {
    let mut fields = Map::new();
    let content = match matches.get_one::<String>(CONTENT).map(String::as_str) {
        Some("-") | None => {
            let mut bytes = Vec::new();
            let input = io::stdin().lock();
            input
                .take(CONTENT_BYTES_MAX + 1)
                .read_to_end(&mut bytes)
                .context("the content cannot be read")?;
            bytes
        }
        Some(text) => text.as_bytes().to_vec(),
    };
    if content.len() as u64 > CONTENT_BYTES_MAX {
        let why = format!("the content has more than {CONTENT_BYTES_MAX} bytes");
        return Err(Failure::Usage(why));
    }
    match String::from_utf8(content) {
        Ok(text) => fields.insert("content".to_owned(), Value::String(text)),
        Err(bytes) => {
            let text = STANDARD.encode(bytes.as_bytes());
            fields.insert("content_base64".to_owned(), Value::String(text))
        }
    };
    if let Some(priority) = matches.get_one::<u8>(PRIORITY) {
        fields.insert("priority".to_owned(), json!(priority));
    }
    for (option, field) in [(CONTEXT, "context"), (TTL, "ttl_ms")] {
        if let Some(number) = matches.get_one::<u64>(option) {
            fields.insert(field.to_owned(), json!(number));
        }
    }
    if let Some(kind) = matches.get_one::<String>(CONTENT_TYPE) {
        fields.insert("content_type".to_owned(), json!(kind));
    }
    let headers = options::pairs(matches, HEADER)?.into_iter();
    let headers: Map<String, Value> = headers
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect();
    fields.insert("headers".to_owned(), Value::Object(headers));
    Ok(fields)
}

/// Adds the delay of a message. True if it has one.
fn add_delay(message: &mut Map<String, Value>, matches: &ArgMatches) -> bool {
    let delay = matches.get_one::<u64>(DELAY);
    if let Some(delay) = delay {
        message.insert("delay_ms".to_owned(), json!(delay));
    }
    delay.is_some_and(|delay| *delay > 0)
}

/// Sends a message, and shows its id and targets.
fn ask(matches: &ArgMatches, question: Question, message: Map<String, Value>) -> Result<Value, Failure> {
    let mut question = from_caller(question, matches).with_body(&Value::Object(message));
    if let Some(key) = matches.get_one::<String>(IDEMPOTENCY_KEY) {
        question = question.with_header("idempotency-key", key);
    }
    http::ask(matches, question)
}

fn names(answer: &Value, field: &str) -> Vec<String> {
    let names = answer.get(field).and_then(Value::as_array).into_iter().flatten();
    names.map(http::word).collect()
}

pub(super) fn send(matches: &ArgMatches) -> Result<(), Failure> {
    let mut message = message(matches)?;
    let given = |option: &str| -> Vec<&String> { matches.get_many(option).into_iter().flatten().collect() };
    let to = json!({ "queues": given(QUEUE), "clients": given(TO_CLIENT) });
    message.insert("to".to_owned(), to);
    message.insert("request".to_owned(), json!(matches.get_flag(REQUEST)));
    let waits = add_delay(&mut message, matches);
    let answer = ask(matches, Question::new(Method::POST, "/v1/messages"), message)?;
    let context = answer.get("context").and_then(Value::as_u64);
    let context = context.map_or_else(String::new, |context| format!(", with context {context}"));
    let durability = answer.get("durability").map(http::word).unwrap_or_default();
    let queues = names(&answer, "queues").join(", ");
    let verb = if waits { "waits for" } else { "stored in" };
    let words = format!("{verb} {queues} ({durability}){context}");
    Ok(http::done(matches, &answer, &words)?)
}

pub(super) fn publish(matches: &ArgMatches) -> Result<(), Failure> {
    let mut message = message(matches)?;
    message.insert(
        "routing_key".to_owned(),
        json!(options::text(matches, ROUTING_KEY)),
    );
    add_delay(&mut message, matches);
    let question = Question::new(Method::POST, "/v1/exchanges");
    let question = question.at(options::text(matches, EXCHANGE)).at("publish");
    let answer = ask(matches, question, message)?;
    let all = ["routed", "topics", "delayed_at"].map(|field| names(&answer, field));
    let words = format!("stored in {}", all.concat().join(", "));
    Ok(http::done(matches, &answer, &words)?)
}

pub(super) fn call(matches: &ArgMatches) -> Result<(), Failure> {
    let question = Question::new(Method::POST, "/v1/clients");
    let question = question.at(options::text(matches, CLIENT)).at("call");
    let question = question.with_option(matches, WAIT, "wait");
    let answer = ask(matches, question, message(matches)?)?;
    Ok(Session::object(&answer)?)
}
