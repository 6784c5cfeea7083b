//! `stafett namespace …`: manages namespaces, the virtual hosts of RabbitMQ's clients.

use clap::{Arg, ArgMatches, Command};
use hyper::Method;

use super::deletion;
use crate::client::http::{self, Question};
use crate::client::table::{Side, Table};
use crate::failure::Failure;

const NAME: &str = "NAME";

pub(super) fn describe() -> Command {
    let name = || Arg::new(NAME).required(true).help("The namespace");
    http::command(Command::new("namespace"))
        .about("List, create and delete namespaces: virtual hosts, for RabbitMQ's clients")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            Command::new("list").about("List namespaces"),
            Command::new("create")
                .about("Create a namespace; one that is there stays as it is")
                .arg(name())
                .after_help("Examples:\n  stafett namespace create shop"),
            Command::new("delete")
                .about("Delete a namespace with all queues, streams, exchanges and bindings in it")
                .arg(name())
                .arg(deletion::yes())
                .after_help(
                    "Connections of clients in it are closed.\n\nExamples:\n  stafett namespace delete shop",
                ),
        ])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let (method, matches) = match matches.subcommand() {
        Some(("create", matches)) => (Method::PUT, matches),
        Some(("delete", matches)) => (Method::DELETE, matches),
        Some((_, matches)) => return list(matches),
        None => return Ok(()),
    };
    let name = matches.get_one::<String>(NAME).map_or("", String::as_str);
    let is_deleted = method == Method::DELETE;
    if is_deleted && !deletion::is_agreed(matches) {
        deletion::confirm(&format!("delete the namespace {name} with all that is in it?"))?;
    }
    let answer = http::ask(matches, Question::new(method, "/v1/namespaces").at(name))?;
    let done = if is_deleted { "deleted" } else { "created" };
    Ok(http::done(matches, &answer, &format!("namespace {name} {done}"))?)
}

fn list(matches: &ArgMatches) -> Result<(), Failure> {
    let list = http::list(matches, || Question::new(Method::GET, "/v1/namespaces"))?;
    let mut table = Table::new(&[("NAMESPACE", Side::Left)]);
    for name in list.iter().filter_map(|one| one.get("name")?.as_str()) {
        table.row(vec![name.to_owned()]);
    }
    Ok(http::show(matches, &list, &table, "no namespaces")?)
}
