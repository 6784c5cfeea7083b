//! `stafett group delete`.

use anyhow::anyhow;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::json;
use stafett_kafka_client::ErrorCode;

use super::{given, name};
use crate::client::{self, Session};
use crate::commands::topic::delete::confirm;
use crate::failure::Failure;

const YES: &str = "yes";

pub(super) fn describe() -> Command {
    Command::new("delete")
        .about("Delete groups that have no members, with their offsets")
        .arg(name().num_args(1..))
        .arg(
            Arg::new(YES)
                .long(YES)
                .short('y')
                .action(ArgAction::SetTrue)
                .help("Do not ask, as happens on a terminal"),
        )
        .after_help("Examples:\n  stafett group delete billing\n  stafett group delete --yes old-a old-b")
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let names = given(matches);
    let yes = matches.get_flag(YES);
    client::run(matches, async move |session: Session| {
        for name in &names {
            if let Err(error) = session.client.group(name).await {
                return Err(session.explain_group(name, error).await);
            }
        }
        if !yes && !confirm(&format!("delete {} with all offsets?", names.join(", ")))? {
            return Err(anyhow!("nothing was deleted"));
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
