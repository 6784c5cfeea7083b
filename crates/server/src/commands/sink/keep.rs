//! Sinks that a broker keeps: listed, defined, looked after.

use anyhow::anyhow;
use clap::ArgMatches;
use hyper::Method;
use serde_json::{Value, json};
use stafett_sinks::target::Place;

use super::replay::Places;
use super::{DRY_RUN, INTO, NAME, deletion, documents};
use crate::client::http::{self, Question, word};
use crate::client::table::{Side, Table};
use crate::failure::Failure;

const SINKS: &str = "/v1/sinks";
/// Fields of a sink in a list: title, place in the answer, side.
const LIST: [(&str, &str, Side); 7] = [
    ("SINK", "/name", Side::Left),
    ("FROM", "/from", Side::Left),
    ("TO", "/to", Side::Left),
    ("STATE", "/state", Side::Left),
    ("ROWS", "/rows", Side::Right),
    ("LAG", "/lag", Side::Right),
    ("WHY", "/why", Side::Left),
];
const POSITIONS: [(&str, &str, Side); 3] = [
    ("TOPIC", "/topic", Side::Left),
    ("PARTITION", "/partition", Side::Right),
    ("NEXT", "/next", Side::Right),
];

fn name(matches: &ArgMatches) -> Result<&str, Failure> {
    let name = matches.get_one::<String>(NAME);
    Ok(name.ok_or_else(|| anyhow!("name the sink, or a file with sinks: -f FILE"))?)
}

fn show(
    matches: &ArgMatches,
    fields: &[(&'static str, &str, Side)],
    list: &[Value],
    none: &str,
) -> Result<(), Failure> {
    let titles: Vec<_> = fields.iter().map(|(title, _, side)| (*title, *side)).collect();
    let mut table = Table::new(&titles);
    for entry in list {
        let cell = |(_, place, _): &(&str, &str, Side)| match entry.pointer(place) {
            None => "-".to_owned(),
            Some(Value::Array(items)) => items.iter().map(word).collect::<Vec<_>>().join(", "),
            Some(value) => word(value),
        };
        table.row(fields.iter().map(cell).collect());
    }
    Ok(http::show(matches, list, &table, none)?)
}

pub(super) fn list(matches: &ArgMatches) -> Result<(), Failure> {
    let sinks = http::list(matches, || Question::new(Method::GET, SINKS))?;
    show(matches, &LIST, &sinks, "no sinks")
}

pub(super) fn describe(matches: &ArgMatches) -> Result<(), Failure> {
    let sink = http::ask(matches, Question::new(Method::GET, SINKS).at(name(matches)?))?;
    Ok(http::show_fields(matches, &sink)?)
}

pub(super) fn define(matches: &ArgMatches) -> Result<(), Failure> {
    let dry_run = matches.get_flag(DRY_RUN);
    for (sink, json) in documents(matches)? {
        let mut question = Question::new(Method::PUT, SINKS).at(&sink.name).with_json(json);
        if dry_run {
            question = question.with("dry_run", "true");
        }
        let defined = http::ask(matches, question)?;
        let changed = defined.get("changed").and_then(Value::as_bool).unwrap_or(true);
        let words = match (dry_run, changed) {
            (_, false) => "is there, and the same",
            (true, true) => "would be defined",
            (false, true) => "is defined",
        };
        http::done(matches, &defined, &format!("sink {} {words}", sink.name))?;
    }
    Ok(())
}

pub(super) fn delete(matches: &ArgMatches) -> Result<(), Failure> {
    let name = name(matches)?;
    if !deletion::is_agreed(matches) {
        deletion::confirm(&format!("Delete the sink {name}? Its target stays as it is."))?;
    }
    let deleted = http::ask(matches, Question::new(Method::DELETE, SINKS).at(name))?;
    Ok(http::done(
        matches,
        &deleted,
        &format!("deleted the sink {name}"),
    )?)
}

pub(super) fn pause(matches: &ArgMatches, word: &str) -> Result<(), Failure> {
    let name = name(matches)?;
    let done = http::ask(matches, Question::new(Method::POST, SINKS).at(name).at(word))?;
    let words = if word == "pause" { "paused" } else { "resumed" };
    Ok(http::done(matches, &done, &format!("sink {name} {words}"))?)
}

pub(super) fn accept_gap(matches: &ArgMatches) -> Result<(), Failure> {
    let question = Question::new(Method::POST, SINKS)
        .at(name(matches)?)
        .at("accept-gap");
    shown(matches, &http::ask(matches, question)?)
}

pub(super) fn positions(matches: &ArgMatches) -> Result<(), Failure> {
    let question = Question::new(Method::GET, SINKS)
        .at(name(matches)?)
        .at("positions");
    shown(matches, &http::ask(matches, question)?)
}

pub(super) fn replay(matches: &ArgMatches) -> Result<(), Failure> {
    let own = name(matches)?;
    let body = match Places::of(matches)? {
        Places::From(from) => json!({"from": from}),
        Places::Single(positions) => {
            let position = |(place, next): &(Place, u64)| json!({"topic": place.topic, "partition": place.partition, "next": next});
            json!({"positions": positions.iter().map(position).collect::<Vec<_>>()})
        }
    };
    if matches.contains_id(INTO) {
        return Err(anyhow!("another place needs the definition of the sink: -f FILE").into());
    }
    let question = Question::new(Method::POST, SINKS).at(own).at("replay");
    shown(matches, &http::ask(matches, question.with_body(&body))?)
}

fn shown(matches: &ArgMatches, answer: &Value) -> Result<(), Failure> {
    let list = answer.get("positions").and_then(Value::as_array);
    show(
        matches,
        &POSITIONS,
        list.map_or(&[], Vec::as_slice),
        "no positions",
    )
}
