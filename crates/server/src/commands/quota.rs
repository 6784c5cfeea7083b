//! `stafett quota …`: shows and sets rates of users and clients.

use clap::{ArgMatches, Command};
use hyper::Method;
use serde_json::{Value, json};

use crate::client::http::{self, Question};
use crate::client::options::{number, option, size};
use crate::client::table::{Side, Table};
use crate::failure::Failure;

const USER: &str = "user";
const CLIENT: &str = "client";
const PRODUCED: &str = "produced";
const FETCHED: &str = "fetched";
const REQUESTS: &str = "requests";

pub(super) fn describe() -> Command {
    http::command(Command::new("quota"))
        .about("List and set the rates of users and clients")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            Command::new("list").about("List quotas"),
            Command::new("set")
                .about("Set the rates of a user, a client id, or both; without rates the quota is removed")
                .arg(option(
                    USER,
                    "NAME",
                    "The user; * for all without a quota of their own",
                ))
                .arg(option(
                    CLIENT,
                    "ID",
                    "The client id; * for all without a quota of their own",
                ))
                .arg(size(PRODUCED, "Bytes per second that it may produce"))
                .arg(size(FETCHED, "Bytes per second that it may fetch"))
                .arg(number(REQUESTS, "Requests per second that it may make"))
                .after_help("Examples:\n  stafett quota set --user ann --produced 1MiB --fetched 10MiB"),
        ])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("set", matches)) => set(matches),
        Some((_, matches)) => list(matches),
        None => Ok(()),
    }
}

fn set(matches: &ArgMatches) -> Result<(), Failure> {
    let body = json!({
        "user": matches.get_one::<String>(USER),
        "client": matches.get_one::<String>(CLIENT),
        "produced_bytes_per_second": matches.get_one::<u64>(PRODUCED),
        "fetched_bytes_per_second": matches.get_one::<u64>(FETCHED),
        "requests_per_second": matches.get_one::<u64>(REQUESTS),
    });
    let answer = http::ask(matches, Question::new(Method::PUT, "/v1/quotas").with_body(&body))?;
    Ok(http::done(matches, &answer, "quota set")?)
}

fn list(matches: &ArgMatches) -> Result<(), Failure> {
    let list = http::list(matches, || Question::new(Method::GET, "/v1/quotas"))?;
    let columns = [
        ("USER", Side::Left),
        ("CLIENT", Side::Left),
        ("PRODUCED/S", Side::Right),
        ("FETCHED/S", Side::Right),
        ("REQUESTS/S", Side::Right),
    ];
    let mut table = Table::new(&columns);
    for quota in &list {
        let field = |name: &str| match quota.get(name) {
            None | Some(Value::Null) => "-".to_owned(),
            Some(value) => http::word(value),
        };
        let names = [
            USER,
            CLIENT,
            "produced_bytes_per_second",
            "fetched_bytes_per_second",
            "requests_per_second",
        ];
        table.row(names.map(field).to_vec());
    }
    Ok(http::show(matches, &list, &table, "no quotas")?)
}
