//! `stafett group delete`.

use anyhow::anyhow;
use clap::{ArgMatches, Command};
use serde_json::json;
use stafett_kafka_client::ErrorCode;

use super::{given, name};
use crate::client::{self, Session};
use crate::commands::deletion;
use crate::failure::Failure;

pub(super) fn describe() -> Command {
    Command::new("delete")
        .about("Delete groups that have no members, with their offsets")
        .arg(name().num_args(1..))
        .arg(deletion::yes())
        .after_help("Examples:\n  stafett group delete billing\n  stafett group delete --yes old-a old-b")
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let names = given(matches);
    let agreed = deletion::is_agreed(matches);
    client::run(matches, async move |session: Session| {
        for name in &names {
            if let Err(error) = session.client.group(name).await {
                return Err(session.explain_group(name, error).await);
            }
        }
        if !agreed {
            deletion::confirm(&format!("delete {} with all offsets?", names.join(", ")))?;
        }
        for name in &names {
            match session.client.delete_group(name).await {
                Ok(()) => {}
                Err(error) if error.code() == Some(ErrorCode::NonEmptyGroup) => {
                    return Err(anyhow!(
                        "group `{name}` has members; stop them first: stafett group describe {name}"
                    ));
                }
                Err(error) => return Err(session.explain_group(name, error).await),
            }
            if session.json {
                Session::object(&json!({ "group": name, "result": "deleted" }))?;
            }
            session.say(&format!("group {name} deleted"))?;
        }
        Ok(())
    })
}
