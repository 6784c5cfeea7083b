//! `stafett topic delete`.

use clap::{ArgMatches, Command};
use serde_json::json;

use super::{given, names};
use crate::client::{self, Session};
use crate::commands::deletion;
use crate::failure::Failure;

pub(super) fn describe() -> Command {
    Command::new("delete")
        .about("Delete topics and all their records")
        .arg(names())
        .arg(deletion::yes())
        .after_help("Examples:\n  stafett topic delete orders\n  stafett topic delete --yes old.a old.b")
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let names = given(matches);
    let agreed = deletion::is_agreed(matches);
    client::run(matches, async move |session: Session| {
        // Look up all topics before the first one is deleted.
        for name in &names {
            session.topic(name).await?;
        }
        if !agreed {
            deletion::confirm(&format!("delete {} with all records?", names.join(", ")))?;
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
