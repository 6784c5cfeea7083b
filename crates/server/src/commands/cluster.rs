//! `stafett cluster …`: makes the tables of a cluster, shows its nodes and cells, and has other nodes
//! serve.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Arg, ArgMatches, Command, value_parser};
use hyper::Method;
use serde_json::{Map, Value, json};
use stafett_cluster::Postgres;

use super::deletion;
use crate::client::http::{self, Question};
use crate::client::table::{Side, Table};
use crate::failure::Failure;

const TO: &str = "to";
const CELL: &str = "cell";
const NODE: &str = "node";
const DATABASE: &str = "database";
const DATABASE_CA: &str = "database-ca";
const CELLS: &str = "cells";
/// Setting of the address of the database, for a command without it.
const DATABASE_VARIABLE: &str = "STAFETT_CLUSTER_DATABASE";
/// Time for one call of the database.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for all cells of a node to have other owners, and between two looks.
const DRAIN_MAX: Duration = Duration::from_mins(1);
const DRAIN_LOOK: Duration = Duration::from_millis(200);

pub(super) fn describe() -> Command {
    http::command(Command::new("cluster"))
        .about("Show the nodes of a cluster, and have another one serve")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            init_command(),
            Command::new("status").about("Show the nodes, their owner, and what is stored"),
            Command::new("cells").about("Show the cells and their owners"),
            Command::new("drain")
                .about("Have other nodes own all cells of a node, so that it can be stopped")
                .arg(
                    Arg::new(NODE)
                        .value_name("NODE")
                        .required(true)
                        .value_parser(value_parser!(u32))
                        .help("Number of the node"),
                )
                .arg(deletion::yes()),
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

fn init_command() -> Command {
    Command::new("init")
        .about("Make the tables of a cluster in its database, which the first node does otherwise")
        .arg(
            Arg::new(DATABASE)
                .long(DATABASE)
                .value_name("ADDRESS")
                .help("Address of the database; else that of STAFETT_CLUSTER_DATABASE"),
        )
        .arg(
            Arg::new(DATABASE_CA)
                .long(DATABASE_CA)
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .help("PEM file with the authorities that are trusted with it"),
        )
        .arg(
            Arg::new(CELLS)
                .long(CELLS)
                .value_name("NUMBER")
                .value_parser(value_parser!(u32).range(0..=16))
                .default_value("0")
                .help("Number of cells, which does not change; 0 is one, or as many as there are"),
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("init", matches)) => init(matches),
        Some(("cells", matches)) => cells(matches),
        Some(("drain", matches)) => drain(matches),
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

fn init(matches: &ArgMatches) -> Result<(), Failure> {
    let given = matches.get_one::<String>(DATABASE).cloned();
    let address = given.or_else(|| std::env::var(DATABASE_VARIABLE).ok());
    let why = "no database is given: --database ADDRESS, or the variable STAFETT_CLUSTER_DATABASE";
    let address = address.ok_or_else(|| Failure::Usage(why.to_owned()))?;
    let ca = matches.get_one::<PathBuf>(DATABASE_CA).map(PathBuf::as_path);
    let cells = matches.get_one::<u32>(CELLS).copied().unwrap_or_default();
    let database = Postgres::trusting(&address, ca, 0, PATIENCE).context("the address of the database")?;
    let cells = database.with_cells(cells).prepare();
    let cells = cells.context("the database of the cluster")?;
    let said = match cells {
        1 => "the cluster has one cell".to_owned(),
        many => format!("the cluster has {many} cells"),
    };
    Ok(http::done(matches, &json!({ CELLS: cells }), &said)?)
}

/// Returns the cells of a cluster, also of one that has a single one.
fn cells_of(cluster: &Value) -> Vec<Value> {
    let listed = list(cluster, CELLS);
    if !listed.is_empty() {
        return listed.to_vec();
    }
    let field = |name: &str| cluster.get(name).cloned().unwrap_or_default();
    vec![json!({ CELL: 0, "owner": field("owner"), "epoch": field("epoch") })]
}

fn cells(matches: &ArgMatches) -> Result<(), Failure> {
    let cells = cells_of(&ask(matches)?);
    let mut table = Table::new(&[
        ("CELL", Side::Right),
        ("OWNER", Side::Right),
        ("EPOCH", Side::Right),
    ]);
    for cell in &cells {
        let field = |name: &str| cell.get(name).map(http::word).unwrap_or_default();
        table.row(vec![field(CELL), field("owner"), field("epoch")]);
    }
    Ok(http::show(matches, &cells, &table, "no cells")?)
}

/// Returns the numbers of the cells that a node owns.
fn owned(cluster: &Value, node: u32) -> Vec<u64> {
    let cells = cells_of(cluster);
    let is_own = |cell: &&Value| cell.get("owner").and_then(Value::as_u64) == Some(node.into());
    let number = |cell: &Value| cell.get(CELL).and_then(Value::as_u64);
    cells.iter().filter(is_own).filter_map(number).collect()
}

fn drain(matches: &ArgMatches) -> Result<(), Failure> {
    let node = matches.get_one::<u32>(NODE).copied().unwrap_or_default();
    let cluster = ask(matches)?;
    let number = |node: &Value| node.get("number").and_then(Value::as_u64);
    if !list(&cluster, "nodes")
        .iter()
        .any(|it| number(it) == Some(node.into()))
    {
        return Err(anyhow::anyhow!("the cluster has no node {node}").into());
    }
    let first = owned(&cluster, node);
    if !first.is_empty() && !deletion::is_agreed(matches) {
        deletion::confirm("end the connections of all cells of this node, and have other nodes serve?")?;
    }
    let deadline = Instant::now() + DRAIN_MAX;
    let mut left = first.clone();
    let mut ordered = Vec::new();
    while !left.is_empty() {
        if Instant::now() > deadline {
            return Err(anyhow::anyhow!("node {node} still owns the cells {left:?}").into());
        }
        // The first one last: it answers for the others.
        for cell in left.iter().rev().filter(|cell| !ordered.contains(*cell)) {
            let question = Question::new(Method::POST, "/v1/cluster/move");
            http::ask(matches, question.with_body(&json!({ CELL: cell })))?;
        }
        ordered.clone_from(&left);
        sleep(DRAIN_LOOK);
        // Between two owners of the first cell no node answers for it.
        if let Ok(cluster) = ask(matches) {
            left = owned(&cluster, node);
        }
    }
    let said = format!("node {node} owns no cell: stop it before the cells are spread again");
    Ok(http::done(
        matches,
        &json!({ NODE: node, "moved": first }),
        &said,
    )?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cells_of_a_node_are_known_with_one_cell_and_with_several() {
        let one = json!({ "owner": 2, "epoch": 7, "nodes": [] });
        assert_eq!((owned(&one, 2), owned(&one, 1)), (vec![0], vec![]));
        let cell = |cell: u32, owner: Option<u32>| json!({ "cell": cell, "owner": owner, "epoch": 1 });
        let several = json!({ "owner": 1, "cells": [cell(0, Some(1)), cell(1, Some(2)), cell(2, None), cell(3, Some(1))] });
        assert_eq!((owned(&several, 1), owned(&several, 2)), (vec![0, 3], vec![1]));
    }
}
