//! `stafett node …`: shows the process behind an HTTP port, and gives it commands.

use clap::{Arg, ArgMatches, Command, value_parser};
use hyper::Method;
use serde_json::{Map, Value, json};

use super::deletion;
use crate::client::http::{self, Question};
use crate::client::table::{Side, Table};
use crate::failure::Failure;

const DRAIN: &str = "drain";
const LEVEL: &str = "LEVEL";
const FOR: &str = "for";

pub(super) fn describe() -> Command {
    let seconds = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("SECONDS")
            .value_parser(value_parser!(u64))
            .help(help)
    };
    http::command(Command::new("node"))
        .about("Show a running broker's process, and give it commands")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            Command::new("status").about("Show state, listeners, and settings that are not the default"),
            Command::new("threads").about("Show the threads, and where each waits"),
            Command::new("memory").about("Show the use of memory"),
            Command::new("settings").about("List the settings in force, with their sources"),
            Command::new("log-level")
                .about("Change the log levels for a time, or until the next start")
                .arg(
                    Arg::new(LEVEL)
                        .required(true)
                        .help("As the setting log.level, such as info,stafett_net=debug"),
                )
                .arg(seconds(FOR, "Go back to the setting after this time")),
            Command::new("reload").about("Read the settings again, as SIGHUP does"),
            Command::new("shutdown")
                .about("Stop the broker, as SIGTERM does")
                .arg(seconds(
                    DRAIN,
                    "Time for connections to finish; 7 if this is not given",
                ))
                .arg(deletion::yes()),
        ])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("status", matches)) => show(matches, "/v1/node"),
        Some(("memory", matches)) => show(matches, "/v1/node/memory"),
        Some(("threads", matches)) => threads(matches),
        Some(("settings", matches)) => settings(matches),
        Some(("log-level", matches)) => log_level(matches),
        Some(("reload", matches)) => reload(matches),
        Some(("shutdown", matches)) => shut_down(matches),
        _ => Ok(()),
    }
}

fn show(matches: &ArgMatches, path: &str) -> Result<(), Failure> {
    let answer = http::ask(matches, Question::new(Method::GET, path))?;
    Ok(http::show_fields(matches, &answer)?)
}

fn cell(object: &Value, field: &str) -> String {
    object.get(field).map(http::word).unwrap_or_default()
}

fn threads(matches: &ArgMatches) -> Result<(), Failure> {
    let mut answer = http::ask(matches, Question::new(Method::GET, "/v1/node/threads"))?;
    let threads = answer.get_mut("threads").map(Value::take);
    let Some(Value::Array(threads)) = threads else {
        return Ok(http::show_fields(matches, &answer)?);
    };
    let mut table = Table::new(&[
        ("THREAD", Side::Left),
        ("STATE", Side::Left),
        ("CPU S", Side::Right),
        ("WAITS IN", Side::Left),
    ]);
    for thread in &threads {
        let fields = ["name", "state", "cpu_s", "waits_in"];
        table.row(fields.map(|field| cell(thread, field)).to_vec());
    }
    Ok(http::show(matches, &threads, &table, "no threads")?)
}

fn settings(matches: &ArgMatches) -> Result<(), Failure> {
    let settings = http::list(matches, || Question::new(Method::GET, "/v1/node/settings"))?;
    let mut table = Table::new(&[
        ("SETTING", Side::Left),
        ("VALUE", Side::Left),
        ("DEFAULT", Side::Left),
        ("SOURCE", Side::Left),
    ]);
    for setting in &settings {
        let fields = ["key", "value", "default", "source"];
        table.row(fields.map(|field| cell(setting, field)).to_vec());
    }
    Ok(http::show(matches, &settings, &table, "no settings")?)
}

/// Returns a body with the seconds of an option, if it is given.
fn with_seconds(mut body: Map<String, Value>, field: &str, matches: &ArgMatches, option: &str) -> Value {
    if let Some(seconds) = matches.get_one::<u64>(option) {
        body.insert(field.to_owned(), json!(seconds));
    }
    Value::Object(body)
}

fn log_level(matches: &ArgMatches) -> Result<(), Failure> {
    let level = matches.get_one::<String>(LEVEL).map_or("", String::as_str);
    let body = Map::from_iter([("level".to_owned(), json!(level))]);
    let question = Question::new(Method::PUT, "/v1/node/log-level");
    let question = question.with_body(&with_seconds(body, "for_s", matches, FOR));
    let answer = http::ask(matches, question)?;
    Ok(http::done(matches, &answer, &format!("log level is {level}"))?)
}

fn reload(matches: &ArgMatches) -> Result<(), Failure> {
    let answer = http::ask(matches, Question::new(Method::POST, "/v1/node/reload"))?;
    Ok(http::show_fields(matches, &answer)?)
}

fn shut_down(matches: &ArgMatches) -> Result<(), Failure> {
    if !deletion::is_agreed(matches) {
        deletion::confirm("stop the broker?")?;
    }
    let body = with_seconds(Map::new(), "drain_s", matches, DRAIN);
    let question = Question::new(Method::POST, "/v1/node/shutdown").with_body(&body);
    let answer = http::ask(matches, question)?;
    Ok(http::done(matches, &answer, "the broker stops")?)
}
