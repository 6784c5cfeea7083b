//! `stafett queue create`: makes a queue from its settings.

use clap::{Arg, ArgMatches, Command, value_parser};
use hyper::Method;
use serde_json::{Map, Value, json};

use super::{QUEUE, about};
use crate::client::http;
use crate::client::options::{self, flag, number, option};
use crate::failure::Failure;

const PRIORITIES: &str = "priorities";
const DURABILITY: &str = "durability";
const TRANSIENT: &str = "transient";
const TTL: &str = "ttl";
const EXPIRES: &str = "expires";
const LENGTH: &str = "length";
const BYTES: &str = "bytes";
const OVERFLOW: &str = "overflow";
const DEAD_LETTER_TO: &str = "dead-letter-to";
const DEAD_LETTER_EXCHANGE: &str = "dead-letter-exchange";
const DEAD_LETTER_KEY: &str = "dead-letter-key";
const DELIVERY_LIMIT: &str = "delivery-limit";
const SINGLE_ACTIVE_CONSUMER: &str = "single-active-consumer";
const RETAIN: &str = "retain";
const OVER: &str = "over";
const FROM: &str = "from";

/// Options with a number, and the fields that they set.
const NUMBERS: [(&str, &str); 3] = [
    (LENGTH, "length_max"),
    (DELIVERY_LIMIT, "delivery_limit"),
    (RETAIN, "retain"),
];

pub(super) fn describe(queue: Arg) -> Command {
    Command::new("create")
        .about("Create a queue; one with the same settings stays as it is")
        .arg(queue)
        .arg(option(PRIORITIES, "MAX", "The highest priority, at most 255").value_parser(value_parser!(u8)))
        .arg(option(
            DURABILITY,
            "LEVEL",
            "sync, os, memory or interval:N,T; that of the broker if absent",
        ))
        .arg(flag(TRANSIENT, "The queue goes with the next restart"))
        .arg(options::time(TTL, "Longest time of a message in the queue"))
        .arg(options::time(
            EXPIRES,
            "Time without use after which the queue is deleted",
        ))
        .arg(number(LENGTH, "Most messages that wait"))
        .arg(options::size(BYTES, "Most bytes that wait"))
        .arg(
            option(OVERFLOW, "POLICY", "Fate of messages beyond --length or --bytes").value_parser([
                "reject",
                "drop-head",
                "reject-dead-letter",
            ]),
        )
        .arg(
            option(DEAD_LETTER_TO, "QUEUE", "Queue for dead letters")
                .conflicts_with_all([DEAD_LETTER_EXCHANGE, DEAD_LETTER_KEY]),
        )
        .arg(option(
            DEAD_LETTER_EXCHANGE,
            "EXCHANGE",
            "Exchange for dead letters",
        ))
        .arg(
            option(
                DEAD_LETTER_KEY,
                "KEY",
                "Routing key of dead letters, instead of their own",
            )
            .requires(DEAD_LETTER_EXCHANGE),
        )
        .arg(number(
            DELIVERY_LIMIT,
            "Returns after which a message is a dead letter",
        ))
        .arg(flag(
            SINGLE_ACTIVE_CONSUMER,
            "One consumer at a time gets messages",
        ))
        .arg(number(
            RETAIN,
            "Settled messages that are kept, to be read as a topic",
        ))
        .arg(option(OVER, "TOPIC", "Lay the queue over a stored topic"))
        .arg(
            option(FROM, "PLACE", "Begin of a queue over a topic")
                .value_parser(["earliest", "latest"])
                .requires(OVER),
        )
        .after_help(
            "Examples:\n  stafett queue create orders --priorities 10 --ttl 1h --dead-letter-to orders.dead",
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let answer = http::ask(
        matches,
        about(matches, Method::PUT, None).with_body(&definition(matches)),
    )?;
    let queue = options::text(matches, QUEUE);
    Ok(http::done(matches, &answer, &format!("queue {queue} created"))?)
}

fn definition(matches: &ArgMatches) -> Value {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    };
    let text = |option: &str| matches.get_one::<String>(option);
    set(
        "priority_max",
        matches.get_one::<u8>(PRIORITIES).map(|max| json!(max)),
    );
    set("durability", text(DURABILITY).map(|level| json!(level)));
    set("durable", matches.get_flag(TRANSIENT).then_some(json!(false)));
    for (option, field) in [(TTL, "ttl_ms"), (EXPIRES, "expires_ms"), (BYTES, "bytes_max")]
        .into_iter()
        .chain(NUMBERS)
    {
        set(field, matches.get_one::<u64>(option).map(|number| json!(number)));
    }
    set("overflow", text(OVERFLOW).map(|policy| json!(policy)));
    let to_queue = text(DEAD_LETTER_TO).map(|queue| json!({ "exchange": "", "routing_key": queue }));
    let to_exchange = text(DEAD_LETTER_EXCHANGE)
        .map(|exchange| json!({ "exchange": exchange, "routing_key": text(DEAD_LETTER_KEY) }));
    set("dead_letter", to_queue.or(to_exchange));
    let is_single = matches.get_flag(SINGLE_ACTIVE_CONSUMER);
    set("single_active_consumer", is_single.then_some(json!(true)));
    set(
        "over",
        text(OVER).map(|topic| json!({ "topic": topic, "from": text(FROM) })),
    );
    Value::Object(fields)
}
