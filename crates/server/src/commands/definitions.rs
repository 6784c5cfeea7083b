//! `stafett definitions …`: all that is defined, as a file.

use std::io::{Read as _, Write as _};

use anyhow::Context;
use clap::{Arg, ArgMatches, Command};
use hyper::Method;
use serde_json::Value;

use crate::client::http::{self, Question};
use crate::client::options::{flag, option};
use crate::client::table::{Side, Table};
use crate::failure::Failure;

const PATH: &str = "/v1/definitions";
const FILE: &str = "FILE";
const NAMESPACE: &str = "namespace";
const KINDS: &str = "kinds";
const DRY_RUN: &str = "dry-run";
const CHANGE: &str = "change";

pub(super) fn describe() -> Command {
    let file = |help: &'static str| Arg::new(FILE).help(help);
    http::command(Command::new("definitions"))
        .about("Export and import all that is defined: topics, queues, exchanges, bindings, users and more")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(option(NAMESPACE, "NAME", "Only things of this namespace; in an import, that of things that name none").global(true))
        .arg(option(KINDS, "KINDS", "Only these kinds, with commas: topics,queues,…").global(true))
        .subcommands([
            Command::new("export")
                .about("Write all definitions as JSON")
                .arg(file("File to write; standard output if absent"))
                .after_help(
                    "Verifiers of passwords are in it, if you may see them: keep the file as you keep secrets.\n\n\
                     Examples:\n  stafett definitions export definitions.json",
                ),
            Command::new("import")
                .about("Make the things of a file that are missing; nothing is deleted")
                .arg(file("File to read; standard input if absent"))
                .arg(flag(DRY_RUN, "Only compare, and show what would be done"))
                .arg(flag(CHANGE, "Also change things that are there and differ"))
                .after_help(
                    "The same import again does nothing. A thing that is refused stops no other; the command then fails, as it does if the import is stopped. \
                     A dry run compares only.\n\n\
                     Examples:\n  stafett definitions import definitions.json --dry-run\n  \
                     stafett definitions export | stafett definitions import --http 10.0.0.2:7070",
                ),
        ])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("import", matches)) => import(matches),
        Some((_, matches)) => export(matches),
        None => Ok(()),
    }
}

fn question(method: Method, matches: &ArgMatches) -> Question {
    let question = Question::new(method, PATH);
    question
        .with_option(matches, NAMESPACE, NAMESPACE)
        .with_option(matches, KINDS, KINDS)
}

fn export(matches: &ArgMatches) -> Result<(), Failure> {
    let document = http::ask(matches, question(Method::GET, matches))?;
    for left in document
        .get("left_out")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let text = |name: &str| left.get(name).and_then(Value::as_str).unwrap_or_default();
        let (kind, name, why) = (text("kind"), text("name"), text("why"));
        writeln!(std::io::stderr(), "left out: {kind} {name}: {why}").context("nothing can be written")?;
    }
    let text = format!("{document:#}\n");
    let written = match matches.get_one::<String>(FILE) {
        Some(file) => write_private(file, &text).with_context(|| format!("{file} cannot be written")),
        None => std::io::stdout()
            .write_all(text.as_bytes())
            .context("nothing can be written"),
    };
    Ok(written?)
}

/// Writes a file that only its owner can read. One that is there is replaced as a whole, with its mode.
fn write_private(file: &str, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let path = std::path::Path::new(file);
    if path.symlink_metadata().is_ok_and(|known| !known.is_file()) {
        // A pipe, a device or a link is written through.
        return std::fs::write(path, text);
    }
    let new = format!("{file}.{}.new", std::process::id());
    let write = || {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    };
    let written = write();
    if written.is_err() {
        // The error of the write counts.
        let _ = std::fs::remove_file(&new);
    }
    written
}

fn import(matches: &ArgMatches) -> Result<(), Failure> {
    let document = if let Some(file) = matches.get_one::<String>(FILE) {
        std::fs::read_to_string(file).with_context(|| format!("{file} cannot be read"))?
    } else {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("standard input cannot be read")?;
        text
    };
    let mut question = question(Method::POST, matches).with_json(document);
    for (option, name) in [(DRY_RUN, "dry_run"), (CHANGE, "change")] {
        if matches.get_flag(option) {
            question = question.with(name, "true");
        }
    }
    let imported = http::ask(matches, question)?;
    let number = |name: &str| imported.get(name).and_then(Value::as_u64).unwrap_or_default();
    let refused = number("refused");
    if http::is_json(matches) {
        http::done(matches, &imported, "")?;
    } else {
        show(matches, &imported)?;
        let would = if matches.get_flag(DRY_RUN) {
            " (dry run)"
        } else {
            ""
        };
        let words = format!(
            "{} made, {} changed, {} the same, {} differ, {refused} refused{would}",
            number("made"),
            number("changed"),
            number("same"),
            number("differ")
        );
        http::done(matches, &imported, &words)?;
    }
    if imported.get("stopped").and_then(Value::as_bool) == Some(true) {
        let left = number("not_reached");
        return Err(anyhow::anyhow!("the import was stopped: {left} things were not reached").into());
    }
    if refused > 0 {
        return Err(anyhow::anyhow!("{refused} things were refused").into());
    }
    Ok(())
}

fn show(matches: &ArgMatches, imported: &Value) -> Result<(), Failure> {
    let items = imported
        .get("items")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    if items.is_empty() {
        return Ok(());
    }
    let columns = ["STATE", "KIND", "NAMESPACE", "NAME", "WHY"].map(|head| (head, Side::Left));
    let mut table = Table::new(&columns);
    for item in items {
        let word = |name: &str| item.get(name).map_or_else(|| "-".to_owned(), http::word);
        let fields = item
            .get("differences")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let fields: Vec<_> = fields
            .filter_map(|difference| difference.get("field")?.as_str())
            .collect();
        let why = [
            fields.join(", "),
            item.get("why")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
        ];
        let why = why
            .iter()
            .filter(|part| !part.is_empty())
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(": ");
        table.row(vec![
            word("state"),
            word("kind"),
            word("namespace"),
            word("name"),
            why,
        ]);
    }
    Ok(http::show(matches, items, &table, "")?)
}
