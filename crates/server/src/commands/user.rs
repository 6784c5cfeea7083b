//! `stafett user …`: manages users.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::Context;
use clap::{ArgAction, ArgMatches, Command};
use hyper::Method;
use serde_json::{Value, json};

use super::deletion;
use crate::client::http::{self, Question};
use crate::client::options::{argument, flag, option, text};
use crate::client::table::{Side, Table};
use crate::failure::Failure;

const NAME: &str = "NAME";
const TAG: &str = "tag";
const PASSWORD_FILE: &str = "password-file";
const NO_PASSWORD: &str = "no-password";

pub(super) fn describe() -> Command {
    let name = || argument(NAME, "The user");
    let tags = || {
        let help = "Tag, such as superuser, administrator or monitoring, or a role of rules; can be given several times";
        option(TAG, "TAG", help).action(ArgAction::Append)
    };
    let password_file = || {
        option(
            PASSWORD_FILE,
            "FILE",
            "File with the password; else it is asked for, or read from a pipe",
        )
    };
    http::command(Command::new("user"))
        .about("List, make, change and delete users")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            Command::new("list").about("List users"),
            Command::new("add")
                .about("Make a user, or change its password and tags")
                .arg(name())
                .arg(tags())
                .arg(password_file())
                .arg(flag(NO_PASSWORD, "Without a password: for tokens and certificates"))
                .after_help(
                    "The first user with the tag superuser or administrator closes the broker to clients without a \
                     login.\n\nExamples:\n  stafett user add root --tag superuser\n  stafett user add ann",
                ),
            Command::new("passwd")
                .about("Change the password of a user")
                .arg(name())
                .arg(password_file()),
            Command::new("delete")
                .about("Delete a user with its tokens and rules")
                .arg(name())
                .arg(deletion::yes()),
        ])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("add", matches)) => add(matches, true),
        Some(("passwd", matches)) => add(matches, false),
        Some(("delete", matches)) => delete(matches),
        Some((_, matches)) => list(matches),
        None => Ok(()),
    }
}

fn add(matches: &ArgMatches, sets_tags: bool) -> Result<(), Failure> {
    let name = text(matches, NAME);
    let mut body = serde_json::Map::new();
    if sets_tags {
        let tags: Vec<&String> = matches.get_many(TAG).into_iter().flatten().collect();
        body.insert("tags".to_owned(), json!(tags));
    }
    let has_password = !sets_tags || !matches.get_flag(NO_PASSWORD);
    if has_password {
        body.insert("password".to_owned(), json!(password(matches, name)?));
    }
    let body = json!(body);
    let answer = http::ask(
        matches,
        Question::new(Method::PUT, "/v1/users").at(name).with_body(&body),
    )?;
    Ok(http::done(matches, &answer, &format!("user {name} set"))?)
}

/// Returns the password of a file, of a pipe, or as it is typed.
fn password(matches: &ArgMatches, name: &str) -> anyhow::Result<String> {
    let given = if let Some(file) = matches.get_one::<String>(PASSWORD_FILE) {
        std::fs::read_to_string(file).with_context(|| format!("the password file {file} cannot be read"))?
    } else {
        if io::stdin().is_terminal() {
            write!(io::stderr(), "password of {name} (shown as it is typed): ")?;
        }
        let mut line = String::new();
        io::stdin()
            .lock()
            .read_line(&mut line)
            .context("the password cannot be read")?;
        line
    };
    Ok(given.trim_end_matches(['\r', '\n']).to_owned())
}

fn delete(matches: &ArgMatches) -> Result<(), Failure> {
    let name = text(matches, NAME);
    if !deletion::is_agreed(matches) {
        deletion::confirm(&format!("delete the user {name} with its tokens and rules?"))?;
    }
    let answer = http::ask(matches, Question::new(Method::DELETE, "/v1/users").at(name))?;
    Ok(http::done(matches, &answer, &format!("user {name} deleted"))?)
}

fn list(matches: &ArgMatches) -> Result<(), Failure> {
    let list = http::list(matches, || Question::new(Method::GET, "/v1/users"))?;
    let mut table = Table::new(&[
        ("USER", Side::Left),
        ("TAGS", Side::Left),
        ("PASSWORD", Side::Left),
    ]);
    for user in &list {
        let words = |field: &str| {
            let words = user.get(field).and_then(Value::as_array).into_iter().flatten();
            words.filter_map(Value::as_str).collect::<Vec<_>>().join(",")
        };
        let name = user.get("name").and_then(Value::as_str).unwrap_or_default();
        table.row(vec![name.to_owned(), words("tags"), words("verifiers")]);
    }
    Ok(http::show(matches, &list, &table, "no users")?)
}
