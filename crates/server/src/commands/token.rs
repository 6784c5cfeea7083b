//! `stafett token …`: manages tokens, which stand for a user.

use clap::{ArgMatches, Command};
use hyper::Method;
use serde_json::{Value, json};

use super::deletion;
use crate::client::http::{self, Question};
use crate::client::options::{argument, option, text, time};
use crate::client::table::{Side, Table};
use crate::failure::Failure;

const USER: &str = "USER";
const ID: &str = "ID";
const DESCRIPTION: &str = "description";
const TTL: &str = "ttl";

pub(super) fn describe() -> Command {
    http::command(Command::new("token"))
        .about("List, make and revoke tokens of users")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            Command::new("list").about("List tokens, without their texts"),
            Command::new("create")
                .about("Make a token, and print its text, which is shown once")
                .arg(argument(USER, "The user that the token stands for"))
                .arg(option(DESCRIPTION, "TEXT", "What it is for"))
                .arg(time(TTL, "Time until it expires; without it, never"))
                .after_help("Examples:\n  stafett token create ann --ttl 90d > token"),
            Command::new("revoke")
                .about("Revoke a token")
                .arg(argument(ID, "Its id, as listed"))
                .arg(deletion::yes()),
        ])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("create", matches)) => create(matches),
        Some(("revoke", matches)) => revoke(matches),
        Some((_, matches)) => list(matches),
        None => Ok(()),
    }
}

fn create(matches: &ArgMatches) -> Result<(), Failure> {
    let body = json!({
        "user": text(matches, USER),
        "description": text(matches, DESCRIPTION),
        "ttl_ms": matches.get_one::<u64>(TTL),
    });
    let answer = http::ask(
        matches,
        Question::new(Method::POST, "/v1/tokens").with_body(&body),
    )?;
    let token = answer.get("token").and_then(Value::as_str).unwrap_or_default();
    Ok(http::done(matches, &answer, token)?)
}

fn revoke(matches: &ArgMatches) -> Result<(), Failure> {
    let id = text(matches, ID);
    if !deletion::is_agreed(matches) {
        deletion::confirm(&format!("revoke the token {id}?"))?;
    }
    let answer = http::ask(matches, Question::new(Method::DELETE, "/v1/tokens").at(id))?;
    Ok(http::done(matches, &answer, &format!("token {id} revoked"))?)
}

fn list(matches: &ArgMatches) -> Result<(), Failure> {
    let list = http::list(matches, || Question::new(Method::GET, "/v1/tokens"))?;
    let columns = ["ID", "USER", "EXPIRES", "DESCRIPTION"].map(|name| (name, Side::Left));
    let mut table = Table::new(&columns);
    for token in &list {
        let field = |name: &str| {
            let value = token.get(name).and_then(Value::as_str);
            value.unwrap_or("-").to_owned()
        };
        table.row(["id", "user", "expires", "description"].map(field).to_vec());
    }
    Ok(http::show(matches, &list, &table, "no tokens")?)
}
