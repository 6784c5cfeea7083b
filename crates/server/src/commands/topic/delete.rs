//! `stafett topic delete`.

use std::io::{self, IsTerminal, Write};

use anyhow::anyhow;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::json;

use super::{given, names};
use crate::client::{self, Session};
use crate::failure::Failure;

const YES: &str = "yes";

pub(super) fn describe() -> Command {
    Command::new("delete")
        .about("Delete topics and all their records")
        .arg(names())
        .arg(
            Arg::new(YES)
                .long(YES)
                .short('y')
                .action(ArgAction::SetTrue)
                .help("Do not ask, as happens on a terminal"),
        )
        .after_help("Examples:\n  stafett topic delete orders\n  stafett topic delete --yes old.a old.b")
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let names = given(matches);
    let yes = matches.get_flag(YES);
    client::run(matches, async move |session: Session| {
        // All of them are looked up before the first is gone.
        for name in &names {
            session.topic(name).await?;
        }
        if !yes && !confirm(&format!("delete {} with all records?", names.join(", ")))? {
            return Err(anyhow!("nothing was deleted"));
        }
        for name in &names {
            if let Err(error) = session.client.delete_topic(name).await {
                return Err(session.explain_topic(name, error).await);
            }
            if session.json {
                Session::object(&json!({ "topic": name, "result": "deleted" }))?;
            }
            session.say(&format!("topic {name} deleted"))?;
        }
        Ok(())
    })
}

/// Asks, if there is somebody to ask.
pub(in crate::commands) fn confirm(question: &str) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(true);
    }
    write!(io::stderr(), "{question} [y/N] ")?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
