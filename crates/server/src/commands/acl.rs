//! `stafett acl …`: manages rules: who may, or must not, do what.

use clap::{ArgAction, ArgMatches, Command};
use hyper::Method;
use serde_json::{Value, json};

use crate::client::http::{self, Question};
use crate::client::options::{NAMESPACE, argument, flag, namespace, option, text};
use crate::client::table::{Side, Table};
use crate::failure::Failure;

const WHO: &str = "WHO";
const ACTION: &str = "action";
const KIND: &str = "on";
const NAME: &str = "name";
const PREFIX: &str = "prefix";
const PATTERN: &str = "pattern";
const HOST: &str = "host";
const DENY: &str = "deny";

fn rule(command: Command) -> Command {
    let many = |name, value, help| option(name, value, help).required(true).action(ArgAction::Append);
    command
        .arg(argument(WHO, "user:NAME, role:TAG or everyone"))
        .arg(many(
            ACTION,
            "ACTION",
            "read, write, create, delete, alter, describe, define, all, …; several times",
        ))
        .arg(many(
            KIND,
            "KIND",
            "topic, group, queue, exchange, transactional_id, cluster, …; several times",
        ))
        .arg(option(NAME, "NAME", "The one name"))
        .arg(option(
            PREFIX,
            "TEXT",
            "All names that begin so; empty for all names",
        ))
        .arg(option(
            PATTERN,
            "REGEX",
            "All names that match; without anchors anywhere in the name",
        ))
        .arg(option(HOST, "ADDRESS", "Only for this address of the client"))
        .arg(flag(DENY, "Forbid, which goes before every permission"))
}

pub(super) fn describe() -> Command {
    http::command(Command::new("acl"))
        .about("List, add and remove rules: who may, or must not, do what")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(namespace("Namespace of queues and exchanges; without it, all"))
        .subcommands([
            Command::new("list")
                .about("List rules")
                .arg(option("who", "WHO", "Only those of user:NAME, role:TAG or everyone")),
            rule(Command::new("add").about("Add a rule")).after_help(
                "Examples:\n  stafett acl add user:ann --action read --action write --on topic --prefix orders-\n  \
                 stafett acl add role:clerks --action read --on group --prefix \"\"",
            ),
            rule(Command::new("remove").about("Remove a rule, or some of its actions")),
        ])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("add", matches)) => change(matches, Method::POST, "added"),
        Some(("remove", matches)) => change(matches, Method::DELETE, "removed"),
        Some((_, matches)) => list(matches),
        None => Ok(()),
    }
}

fn change(matches: &ArgMatches, method: Method, done: &str) -> Result<(), Failure> {
    let many = |name: &str| -> Vec<&String> { matches.get_many(name).into_iter().flatten().collect() };
    let one = |name: &str| matches.get_one::<String>(name);
    let body = json!({
        "who": text(matches, WHO),
        "deny": matches.get_flag(DENY),
        "actions": many(ACTION),
        "on": many(KIND),
        "name": one(NAME),
        "prefix": one(PREFIX),
        "pattern": one(PATTERN),
        "namespace": one(NAMESPACE),
        "host": one(HOST),
    });
    let answer = http::ask(matches, Question::new(method, "/v1/rules").with_body(&body))?;
    Ok(http::done(matches, &answer, &format!("rule {done}"))?)
}

fn list(matches: &ArgMatches) -> Result<(), Failure> {
    let list = http::list(matches, || {
        Question::new(Method::GET, "/v1/rules").with_option(matches, "who", "who")
    })?;
    let columns = ["WHO", "EFFECT", "ACTIONS", "ON", "NAMES", "NAMESPACE", "HOST"];
    let mut table = Table::new(&columns.map(|name| (name, Side::Left)));
    for rule in &list {
        let field = |name: &str| rule.get(name).and_then(Value::as_str);
        let words = |name: &str| {
            let words = rule.get(name).and_then(Value::as_array).into_iter().flatten();
            words.filter_map(Value::as_str).collect::<Vec<_>>().join(",")
        };
        let is_denied = rule.get("deny").and_then(Value::as_bool).unwrap_or_default();
        let names = match (field("name"), field("prefix"), field("pattern")) {
            (Some(name), _, _) => name.to_owned(),
            (_, Some(prefix), _) => format!("{prefix}…"),
            (_, _, pattern) => format!("/{}/", pattern.unwrap_or_default()),
        };
        table.row(vec![
            field("who").unwrap_or_default().to_owned(),
            if is_denied { "deny" } else { "allow" }.to_owned(),
            words("actions"),
            words("on"),
            names,
            field("namespace").unwrap_or("*").to_owned(),
            field("host").unwrap_or("*").to_owned(),
        ]);
    }
    Ok(http::show(matches, &list, &table, "no rules")?)
}
