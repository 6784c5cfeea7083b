//! `stafett cluster …`: shows the nodes of a cluster, and has another one serve.

use clap::{Arg, ArgMatches, Command, value_parser};
use hyper::Method;
use serde_json::{Map, Value, json};

use super::deletion;
use crate::client::http::{self, Question};
use crate::client::table::{Side, Table};
use crate::failure::Failure;

const TO: &str = "to";
const CELL: &str = "cell";

pub(super) fn describe() -> Command {
    http::command(Command::new("cluster"))
        .about("Show the nodes of a cluster, and have another one serve")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            Command::new("status").about("Show the nodes, their owner, and what is stored"),
            Command::new("check").about("Look for what is not as it should be; fails if there is something"),
            Command::new("move")
                .about("Have another node serve: connections end, and clients connect again")
                .arg(
                    Arg::new(TO)
                        .value_name("NODE")
                        .value_parser(value_parser!(u32))
                        .help("Number of the node; any other if this is not given"),
                )
                .arg(
                    Arg::new(CELL)
                        .long(CELL)
                        .value_name("CELL")
                        .value_parser(value_parser!(u32))
                        .default_value("0")
                        .help("The cell, of a cluster that has several"),
                )
                .arg(deletion::yes()),
        ])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("status", matches)) => status(matches),
        Some(("check", matches)) => check(matches),
        Some(("move", matches)) => move_cell(matches),
        _ => Ok(()),
    }
}

fn ask(matches: &ArgMatches) -> Result<Value, Failure> {
    http::ask(matches, Question::new(Method::GET, "/v1/cluster"))
}

fn list<'a>(cluster: &'a Value, field: &str) -> &'a [Value] {
    cluster
        .get(field)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn status(matches: &ArgMatches) -> Result<(), Failure> {
    let cluster = ask(matches)?;
    let mut table = Table::new(&[
        ("NODE", Side::Right),
        ("STATE", Side::Left),
        ("BEAT MS AGO", Side::Right),
        ("VERSION", Side::Left),
        ("NAME", Side::Left),
        ("ADDRESSES", Side::Left),
    ]);
    for node in list(&cluster, "nodes") {
        let cell = |field: &str| node.get(field).map(http::word).unwrap_or_default();
        let addresses = node.get("addresses").and_then(Value::as_object);
        let addresses: Vec<String> = addresses
            .into_iter()
            .flatten()
            .map(|(name, address)| format!("{name}={}", http::word(address)))
            .collect();
        table.row(vec![
            cell("number"),
            cell("state"),
            cell("silent_ms"),
            cell("version"),
            cell("name"),
            addresses.join(" "),
        ]);
    }
    if http::is_json(matches) {
        return Ok(http::show_fields(matches, &cluster)?);
    }
    http::show(matches, list(&cluster, "nodes"), &table, "no nodes")?;
    let mut rest = cluster;
    if let Some(fields) = rest.as_object_mut() {
        fields.remove("nodes");
        // The table says it of each.
        fields.remove("this");
    }
    Ok(http::show_fields(matches, &rest)?)
}

fn check(matches: &ArgMatches) -> Result<(), Failure> {
    let cluster = ask(matches)?;
    let mut problems: Vec<String> = list(&cluster, "problems").iter().map(http::word).collect();
    let objects = http::ask(matches, Question::new(Method::GET, "/v1/cluster/objects"));
    match objects {
        Ok(objects) => problems.extend(lost(&objects)),
        Err(error) => problems.push(format!("the objects were not compared: {error}")),
    }
    if problems.is_empty() {
        return Ok(http::done(matches, &cluster, "the cluster is as it should be")?);
    }
    Err(anyhow::anyhow!("{}", problems.join("\n")).into())
}

/// Returns the loss of objects in words.
fn lost(objects: &Value) -> Option<String> {
    let missing = objects.get("missing").and_then(Value::as_u64).unwrap_or_default();
    let names: Vec<String> = list(objects, "missing_names").iter().map(http::word).collect();
    let many = "objects are missing in the store, or of another length: what they held is lost unless they are \
                restored";
    (missing > 0).then(|| format!("{missing} {many}: {}", names.join(", ")))
}

fn move_cell(matches: &ArgMatches) -> Result<(), Failure> {
    if !deletion::is_agreed(matches) {
        deletion::confirm("end all connections, and have another node serve?")?;
    }
    let to = matches.get_one::<u32>(TO);
    let to = to.map(|to| (TO.to_owned(), json!(to)));
    let cell = matches.get_one::<u32>(CELL).filter(|cell| **cell > 0);
    let cell = cell.map(|cell| (CELL.to_owned(), json!(cell)));
    let body: Map<String, Value> = to.into_iter().chain(cell).collect();
    let body = Value::Object(body);
    let question = Question::new(Method::POST, "/v1/cluster/move").with_body(&body);
    let answer = http::ask(matches, question)?;
    Ok(http::done(
        matches,
        &answer,
        "another node takes the place of this one",
    )?)
}
