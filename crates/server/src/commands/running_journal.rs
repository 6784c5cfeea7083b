//! The commands of `stafett journal` that ask a running broker.

use std::path::Path;

use clap::{ArgMatches, Command};
use hyper::Method;
use serde_json::{Value, json};

use crate::client::http::{self, Question};
use crate::client::human;
use crate::client::table::{Side, Table};
use crate::failure::Failure;

pub(super) fn describe() -> [Command; 4] {
    [
        http::command(Command::new("status")).about("Show the figures of a running broker's journal"),
        http::command(Command::new("segments")).about("List the segments of a running broker"),
        http::command(Command::new("backups"))
            .about("List the backups that a running broker has made since its start"),
        http::command(Command::new("scrub"))
            .about("Make a running broker read everything that is sealed, to find damage"),
    ]
}

pub(super) fn run(name: &str, matches: &ArgMatches) -> Result<(), Failure> {
    match name {
        "segments" => segments(matches),
        "backups" => backups(matches),
        "scrub" => scrub(matches),
        _ => {
            let answer = http::ask(matches, Question::new(Method::GET, "/v1/journal"))?;
            Ok(http::show_fields(matches, &answer)?)
        }
    }
}

/// Backs up the journal of a running broker. Without a folder in it, the target is a name below the broker's
/// setting `journal.backup_dir`.
pub(super) fn back_up(matches: &ArgMatches, target: &Path) -> Result<(), Failure> {
    let body = json!({ "target": target.to_string_lossy() });
    let question = Question::new(Method::POST, "/v1/journal/backups").with_body(&body);
    let answer = http::ask(matches, question)?;
    let words = format!(
        "{} segments, {} bytes",
        number(&answer, "segments"),
        number(&answer, "bytes")
    );
    Ok(http::done(matches, &answer, &words)?)
}

fn number(object: &Value, field: &str) -> u64 {
    object.get(field).and_then(Value::as_u64).unwrap_or(0)
}

fn text(object: &Value, field: &str) -> String {
    object.get(field).map(http::word).unwrap_or_default()
}

fn segments(matches: &ArgMatches) -> Result<(), Failure> {
    let segments = http::list(matches, || {
        Question::new(Method::GET, "/v1/journal/segments").with("sort", "number")
    })?;
    let mut table = Table::new(&[
        ("SEGMENT", Side::Right),
        ("KIND", Side::Left),
        ("SIZE", Side::Right),
        ("CREATED", Side::Left),
        ("LOGS", Side::Left),
    ]);
    for segment in &segments {
        let logs = match (text(segment, "first_log"), text(segment, "last_log")) {
            (first, _) if first == "-" => first,
            (first, last) => format!("{first} to {last}"),
        };
        table.row(vec![
            text(segment, "number"),
            text(segment, "kind"),
            human::size(number(segment, "bytes")),
            text(segment, "created_at"),
            logs,
        ]);
    }
    Ok(http::show(matches, &segments, &table, "no segments")?)
}

fn backups(matches: &ArgMatches) -> Result<(), Failure> {
    let backups = http::list(matches, || {
        Question::new(Method::GET, "/v1/journal/backups").with("sort", "at")
    })?;
    let mut table = Table::new(&[
        ("TARGET", Side::Left),
        ("AT", Side::Left),
        ("SEGMENTS", Side::Right),
        ("SIZE", Side::Right),
    ]);
    for backup in &backups {
        table.row(vec![
            text(backup, "target"),
            text(backup, "at"),
            text(backup, "segments"),
            human::size(number(backup, "bytes")),
        ]);
    }
    Ok(http::show(matches, &backups, &table, "no backups")?)
}

fn scrub(matches: &ArgMatches) -> Result<(), Failure> {
    let answer = http::ask(matches, Question::new(Method::POST, "/v1/journal/scrub"))?;
    let (segments, damaged) = (number(&answer, "segments"), number(&answer, "damaged"));
    http::done(
        matches,
        &answer,
        &format!("{segments} segments read, {damaged} damaged"),
    )?;
    if damaged > 0 {
        return Err(anyhow::anyhow!("segments are damaged: the broker's log names them").into());
    }
    Ok(())
}
