//! `stafett group list`.

use std::io;

use clap::{Arg, ArgMatches, Command};
use serde_json::json;
use wildmatch::WildMatch;

use crate::client::table::{Side, Table};
use crate::client::{self, Session};
use crate::failure::Failure;

const PATTERN: &str = "pattern";

pub(super) fn describe() -> Command {
    Command::new("list")
        .about("List groups")
        .arg(
            Arg::new(PATTERN)
                .long(PATTERN)
                .value_name("GLOB")
                .help("Only groups whose names match; * and ? stand for any letters and one letter"),
        )
        .after_help("Examples:\n  stafett group list\n  stafett group list --pattern 'billing-*' --json")
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let pattern = WildMatch::new(matches.get_one::<String>(PATTERN).map_or("*", String::as_str));
    client::run(matches, async move |session: Session| {
        let mut groups = session.client.groups().await?;
        groups.retain(|group| pattern.matches(&group.name));
        if session.json {
            for group in &groups {
                Session::object(&json!({
                    "group": group.name.as_str(),
                    "type": group.kind.as_str(),
                    "state": group.state.as_str(),
                    "protocol_type": group.protocol_type.as_str(),
                }))?;
            }
            return Ok(());
        }
        if groups.is_empty() {
            return session.say("no groups");
        }
        let mut table = Table::new(&[("GROUP", Side::Left), ("STATE", Side::Left), ("TYPE", Side::Left)]);
        for group in &groups {
            table.row(vec![
                group.name.to_string(),
                group.state.to_string(),
                group.kind.to_lowercase(),
            ]);
        }
        Ok(table.write(&mut io::stdout().lock(), session.colour)?)
    })
}
