//! `stafett binding …`: lists, makes and deletes bindings.

use clap::{ArgAction, ArgGroup, ArgMatches, Command};
use hyper::Method;
use serde_json::{Map, Value, json};

use super::deletion;
use crate::client::http::{self, Question, word};
use crate::client::options::{self, argument, flag, option};
use crate::client::table::{Side, Table};
use crate::failure::Failure;

const SOURCE: &str = "SOURCE";
const BINDING: &str = "BINDING";
const KEY: &str = "key";
const HEADER: &str = "header";
const ANY: &str = "any";
const TO: &str = "to";
/// Kinds of targets.
const KINDS: [&str; 3] = ["queue", "topic", "exchange"];

pub(super) fn describe() -> Command {
    let targets = |list: bool| {
        KINDS.map(|kind| {
            let help = match (list, kind) {
                (true, _) => "Only bindings to this one",
                (false, "queue") => "Queue that gets the messages",
                (false, "topic") => "Topic that gets the messages as records",
                (false, _) => "Exchange that routes the messages further",
            };
            option(kind, "NAME", help)
        })
    };
    http::command(Command::new("binding"))
        .about("List, create and delete bindings: the ways from exchanges to queues and topics")
        .arg(options::namespace(
            "The namespace of the binding, / if none is named; for `list`, only this one's",
        ))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            Command::new("list")
                .about("List bindings")
                .arg(argument(SOURCE, "Only bindings from this exchange").required(false))
                .args(targets(true)),
            Command::new("create")
                .about("Bind a queue, a topic or an exchange to an exchange; a binding that is there stays as it is")
                .arg(argument(SOURCE, "The exchange"))
                .args(targets(false))
                .group(ArgGroup::new(TO).args(KINDS).required(true))
                .arg(option(KEY, "KEY", "Key or pattern; for an exchange of kind hash, its weight"))
                .arg(
                    option(HEADER, "NAME=VALUE", "Header that messages must have; may be repeated")
                        .action(ArgAction::Append),
                )
                .arg(flag(ANY, "One of the headers is enough"))
                .after_help("Examples:\n  stafett binding create events --queue orders --key 'orders.#'"),
            Command::new("delete")
                .about("Delete a binding")
                .arg(argument(BINDING, "Its id, as `list` shows it"))
                .arg(deletion::yes()),
        ])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("list", matches)) => list(matches),
        Some(("create", matches)) => create(matches),
        Some(("delete", matches)) => delete(matches),
        _ => Ok(()),
    }
}

/// Returns the target of a binding: kind and name.
fn target(binding: &Value) -> (String, String) {
    let to = binding.get("to").and_then(Value::as_object);
    let first = to.and_then(|to| to.iter().next());
    first.map_or_else(Default::default, |(kind, name)| (kind.clone(), word(name)))
}

fn list(matches: &ArgMatches) -> Result<(), Failure> {
    let question = || {
        let question = Question::new(Method::GET, "/v1/bindings").in_namespace(matches);
        let question = question.with_option(matches, SOURCE, "source");
        KINDS.into_iter().fold(question, |question, kind| {
            question.with_option(matches, kind, kind)
        })
    };
    let bindings = http::list(matches, question)?;
    let mut table = Table::new(&[
        ("NAMESPACE", Side::Left),
        ("SOURCE", Side::Left),
        ("KEY", Side::Left),
        ("TO", Side::Left),
        ("NAME", Side::Left),
        ("ID", Side::Left),
    ]);
    for binding in &bindings {
        let cell = |field| binding.get(field).map(word).unwrap_or_default();
        let (kind, name) = target(binding);
        table.row(vec![
            cell("namespace"),
            cell("source"),
            condition(binding),
            kind,
            name,
            cell("id"),
        ]);
    }
    Ok(http::show(matches, &bindings, &table, "no bindings")?)
}

/// Returns the key, or the headers, that a binding asks for.
fn condition(binding: &Value) -> String {
    let headers = binding.get("headers").and_then(Value::as_object);
    match headers.filter(|headers| !headers.is_empty()) {
        Some(headers) => {
            let pairs: Vec<_> = headers
                .iter()
                .map(|(name, value)| format!("{name}={}", word(value)))
                .collect();
            let mode = binding.get("match").and_then(Value::as_str).unwrap_or_default();
            format!("{mode} of {}", pairs.join(", "))
        }
        None => binding.get("key").map(word).unwrap_or_default(),
    }
}

fn create(matches: &ArgMatches) -> Result<(), Failure> {
    let source = options::text(matches, SOURCE);
    let named = |kind: &&str| Some(((*kind).to_owned(), json!(matches.get_one::<String>(kind)?)));
    let to: Map<String, Value> = KINDS.iter().filter_map(named).collect();
    let headers: Map<String, Value> = options::pairs(matches, HEADER)?
        .into_iter()
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect();
    let definition = json!({
        "source": source,
        "to": to,
        "key": options::text(matches, KEY),
        "headers": headers,
        "match": if matches.get_flag(ANY) { "any" } else { "all" },
    });
    let question = Question::new(Method::POST, "/v1/bindings").in_namespace(matches);
    let answer = http::ask(matches, question.with_body(&definition))?;
    let (kind, name) = target(&answer);
    Ok(http::done(
        matches,
        &answer,
        &format!("{kind} {name} bound to {source}"),
    )?)
}

fn delete(matches: &ArgMatches) -> Result<(), Failure> {
    let id = options::text(matches, BINDING);
    if !deletion::is_agreed(matches) {
        deletion::confirm(&format!("delete the binding {id}?"))?;
    }
    let question = Question::new(Method::DELETE, "/v1/bindings")
        .at(id)
        .in_namespace(matches);
    let answer = http::ask(matches, question)?;
    let (kind, name) = target(&answer);
    let source = answer.get("source").map(word).unwrap_or_default();
    Ok(http::done(
        matches,
        &answer,
        &format!("{kind} {name} no longer bound to {source}"),
    )?)
}
