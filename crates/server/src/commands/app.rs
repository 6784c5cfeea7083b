//! `stafett app …`: apps, their tasks and workers, and their state.

use clap::{Arg, ArgMatches, Command};
use hyper::Method;
use serde_json::{Value, json};

use super::deletion;
use crate::client::http::{self, Question, word};
use crate::client::options::{self, argument, flag, option};
use crate::client::table::{Side, Table};
use crate::failure::Failure;

const APP: &str = "APP";
const WORKER: &str = "WORKER";
const TASK: &str = "TASK";
const TABLE: &str = "TABLE";
const KEY: &str = "KEY";
const OVER: &str = "over";
const CANCEL: &str = "cancel";
const FORCE: &str = "force";
const INTO: &str = "into";
const TO: &str = "to";
const ONLY: &str = "task";
const DROP: &str = "drop-state";
const DRY_RUN: &str = "dry-run";

/// Fields of a task that tables show: title, place in the answer, side.
const TASKS: [(&str, &str, Side); 8] = [
    ("TASK", "/task", Side::Left),
    ("STATE", "/state", Side::Left),
    ("WORKER", "/worker", Side::Left),
    ("PINNED", "/pinned", Side::Left),
    ("EPOCH", "/epoch", Side::Right),
    ("COMMITS", "/position/seq", Side::Right),
    ("ENTRIES", "/position/entries", Side::Right),
    ("LAG", "/position/lag", Side::Right),
];
const LAGS: [(&str, &str, Side); 4] = [
    ("TASK", "/task", Side::Left),
    ("NEXT", "/position/next", Side::Left),
    ("END", "/position/end", Side::Left),
    ("LAG", "/position/lag", Side::Right),
];
const LIST: [(&str, &str, Side); 6] = [
    ("APP", "/name", Side::Left),
    ("TASKS", "/tasks", Side::Right),
    ("WORKERS", "/workers", Side::Right),
    ("FREE", "/free", Side::Right),
    ("LAG", "/lag", Side::Right),
    ("PAUSED", "/paused", Side::Left),
];
const RESETS: [(&str, &str, Side); 3] = [
    ("TASK", "/task", Side::Left),
    ("FROM", "/from", Side::Left),
    ("TO", "/to", Side::Left),
];
const ENTRIES: [(&str, &str, Side); 3] = [
    ("KEY", "/key", Side::Left),
    ("VALUE", "/value", Side::Left),
    ("TASK", "/task", Side::Left),
];

pub(super) fn describe() -> Command {
    let app = || argument(APP, "The app");
    let worker = || argument(WORKER, "The worker");
    let key = Arg::new(KEY).help("Only the entry of this key");
    http::command(Command::new("app"))
        .about("List, show and look after apps: stateful consumers")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            Command::new("list").about("List apps"),
            Command::new("describe")
                .about("Show the tasks of an app")
                .arg(app()),
            Command::new("lag")
                .about("Show how far behind each task is")
                .arg(app()),
            Command::new("drain")
                .about("Hand over what a worker has")
                .arg(app())
                .arg(worker())
                .arg(option(
                    OVER,
                    "TIME",
                    "Time over which tasks are handed over; at once if it is absent",
                ))
                .arg(flag(CANCEL, "Give the worker tasks again instead"))
                .after_help("Examples:\n  stafett app drain sessions w-1 --over 60s"),
            Command::new("assign")
                .about("Pin a task to a worker, or end its pin if no worker is named")
                .arg(app())
                .arg(argument(TASK, "The task"))
                .arg(Arg::new(WORKER).help("The worker")),
            Command::new("split")
                .about("Cut a task into slices of its keys")
                .arg(app())
                .arg(argument(TASK, "The task"))
                .arg(option(
                    INTO,
                    "COUNT",
                    "Number of slices: 2, or another power of 2",
                ))
                .after_help("Examples:\n  stafett app split sessions 7 --into 4"),
            Command::new("merge")
                .about("Join the slices of a task")
                .arg(app())
                .arg(argument(TASK, "The task that they are slices of")),
            Command::new("pause").about("Stop deliveries").arg(app()),
            Command::new("resume").about("Continue deliveries").arg(app()),
            Command::new("accept-gap")
                .about("Go on behind records that are gone, and with topics that were deleted and made again")
                .arg(app()),
            describe_reset(app()),
            Command::new("state")
                .about("Show the entries of a table, as of the last commits")
                .arg(app())
                .arg(argument(TABLE, "The table"))
                .arg(key),
            Command::new("delete")
                .about("Delete an app with its state")
                .arg(app())
                .arg(flag(FORCE, "Also while workers hold tasks"))
                .arg(deletion::yes()),
        ])
}

fn describe_reset(app: Arg) -> Command {
    Command::new("reset")
        .about("Set the positions of an app, which is paused for it")
        .arg(app)
        .arg(option(TO, "PLACE", "earliest, latest, a time, or an age such as -1h").required(true))
        .arg(option(ONLY, "TASK", "The only task to reset"))
        .arg(flag(DROP, "Also drop tables and timers"))
        .arg(flag(DRY_RUN, "Only show which positions it would be"))
        .arg(deletion::yes())
        .after_help("Examples:\n  stafett app reset sessions --to=-1h --dry-run")
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("list", matches)) => {
            let apps = http::list(matches, || Question::new(Method::GET, "/v1/apps"))?;
            show(matches, &LIST, &apps, "no apps")
        }
        Some(("describe", matches)) => tasks(matches, &TASKS),
        Some(("lag", matches)) => tasks(matches, &LAGS),
        Some(("drain", matches)) => drain(matches),
        Some(("assign", matches)) => assign(matches),
        Some(("split", matches)) => cut(matches, "split"),
        Some(("merge", matches)) => cut(matches, "merge"),
        Some(("pause", matches)) => pause(matches, "pause", "is paused"),
        Some(("resume", matches)) => pause(matches, "resume", "goes on"),
        Some(("accept-gap", matches)) => pause(matches, "accept-gap", "goes on"),
        Some(("reset", matches)) => reset(matches),
        Some(("state", matches)) => state(matches),
        Some(("delete", matches)) => delete(matches),
        _ => Ok(()),
    }
}

fn about(matches: &ArgMatches, method: Method) -> Question {
    Question::new(method, "/v1/apps").at(options::text(matches, APP))
}

fn show(
    matches: &ArgMatches,
    columns: &[(&'static str, &str, Side)],
    rows: &[Value],
    none: &str,
) -> Result<(), Failure> {
    let titles: Vec<_> = columns.iter().map(|(title, _, side)| (*title, *side)).collect();
    let mut table = Table::new(&titles);
    for row in rows {
        let cell = |path: &str| row.pointer(path).map_or_else(|| "-".to_owned(), word);
        table.row(columns.iter().map(|(_, path, _)| cell(path)).collect());
    }
    Ok(http::show(matches, rows, &table, none)?)
}

fn tasks(matches: &ArgMatches, columns: &[(&'static str, &str, Side)]) -> Result<(), Failure> {
    let mut answer = http::ask(matches, about(matches, Method::GET))?;
    let tasks = answer.get_mut("tasks").map(Value::take);
    let tasks = tasks
        .and_then(|tasks| tasks.as_array().cloned())
        .unwrap_or_default();
    show(matches, columns, &tasks, "no tasks")
}

fn drain(matches: &ArgMatches) -> Result<(), Failure> {
    let worker = options::text(matches, WORKER);
    let mut question = about(matches, Method::POST).at("workers").at(worker).at("drain");
    let cancels = matches.get_flag(CANCEL);
    question = if cancels {
        question.with("cancel", "true")
    } else {
        question.with_option(matches, OVER, OVER)
    };
    let answer = http::ask(matches, question)?;
    let done = if cancels {
        "is given tasks again"
    } else {
        "hands over its tasks"
    };
    Ok(http::done(matches, &answer, &format!("worker {worker} {done}"))?)
}

fn assign(matches: &ArgMatches) -> Result<(), Failure> {
    let task = options::text(matches, TASK);
    let at = |method| about(matches, method).at("tasks").at(task).at("worker");
    let (question, words) = match matches.get_one::<String>(WORKER) {
        Some(worker) => (
            at(Method::PUT).with_body(&json!({ "worker": worker })),
            format!("task {task} is pinned to {worker}"),
        ),
        None => (at(Method::DELETE), format!("task {task} is not pinned")),
    };
    let answer = http::ask(matches, question)?;
    Ok(http::done(matches, &answer, &words)?)
}

fn cut(matches: &ArgMatches, how: &str) -> Result<(), Failure> {
    let task = options::text(matches, TASK);
    let mut question = about(matches, Method::POST).at("tasks").at(task).at(how);
    if how == "split" {
        let into = matches.get_one::<String>(INTO).map(|into| into.parse::<u32>());
        let into = into
            .transpose()
            .map_err(|why| Failure::Usage(format!("--into: {why}")))?;
        question = question.with_body(&json!({ "into": into.unwrap_or(2) }));
    }
    let answer = http::ask(matches, question)?;
    let tasks = answer
        .get("tasks")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let tasks: Vec<_> = tasks.iter().filter_map(Value::as_str).collect();
    let words = format!("task {task} goes on as {}", tasks.join(", "));
    Ok(http::done(matches, &answer, &words)?)
}

fn pause(matches: &ArgMatches, how: &str, words: &str) -> Result<(), Failure> {
    let app = options::text(matches, APP);
    let answer = http::ask(matches, about(matches, Method::POST).at(how))?;
    Ok(http::done(matches, &answer, &format!("app {app} {words}"))?)
}

fn reset(matches: &ArgMatches) -> Result<(), Failure> {
    let app = options::text(matches, APP);
    let only_plans = matches.get_flag(DRY_RUN);
    let drops = matches.get_flag(DROP);
    let state = if drops { "drop" } else { "keep" };
    let body = json!({
        "to": options::text(matches, TO),
        "task": matches.get_one::<String>(ONLY),
        "state": state,
    });
    let mut question = about(matches, Method::POST).at("reset").with_body(&body);
    if only_plans {
        question = question.with("dry_run", "true");
    } else if drops && !deletion::is_agreed(matches) {
        deletion::confirm(&format!("drop the state of the app {app}?"))?;
    }
    let mut answer = http::ask(matches, question)?;
    let tasks = answer.get_mut("tasks").map(Value::take);
    let tasks = tasks
        .and_then(|tasks| tasks.as_array().cloned())
        .unwrap_or_default();
    show(matches, &RESETS, &tasks, "no tasks")
}

fn state(matches: &ArgMatches) -> Result<(), Failure> {
    let table = options::text(matches, TABLE);
    let question = || about(matches, Method::GET).at("state").at(table);
    let entries = match matches.get_one::<String>(KEY) {
        Some(key) => vec![http::ask(matches, question().at(key))?],
        None => http::list(matches, question)?,
    };
    show(matches, &ENTRIES, &entries, "no entries")
}

fn delete(matches: &ArgMatches) -> Result<(), Failure> {
    let app = options::text(matches, APP);
    let mut question = about(matches, Method::DELETE);
    if matches.get_flag(FORCE) {
        question = question.with("force", "true");
    }
    if !deletion::is_agreed(matches) {
        deletion::confirm(&format!("delete the app {app} with its state?"))?;
    }
    let answer = http::ask(matches, question)?;
    Ok(http::done(matches, &answer, &format!("app {app} deleted"))?)
}
