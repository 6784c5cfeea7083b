//! `stafett group describe`.

use std::io::{self, Write};

use clap::{ArgMatches, Command};
use serde_json::{Value, json};
use stafett_kafka_client::Str;
use stafett_kafka_client::groups::{Group, Member};

use super::{given, name};
use crate::client::table::{Side, Table};
use crate::client::{self, Session, human};
use crate::failure::Failure;

pub(super) fn describe() -> Command {
    Command::new("describe")
        .about("Show a group's state, its members and what they are given")
        .arg(name().num_args(1..))
        .after_help("Examples:\n  stafett group describe billing\n  stafett group describe billing --json | jq .members")
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let names = given(matches);
    client::run(matches, async move |session: Session| {
        for name in &names {
            let group = match session.client.group(name).await {
                Ok(group) => group,
                Err(error) => return Err(session.explain_group(name, error).await),
            };
            if session.json {
                Session::object(&object(&group))?;
            } else {
                show(&session, &group)?;
            }
        }
        Ok(())
    })
}

type Assignment = [(Str, Vec<i32>)];

fn object(group: &Group) -> Value {
    let assignment = |rows: &Assignment| -> Value {
        let row = |(topic, partitions): &(Str, Vec<i32>)| json!({ "topic": topic.as_str(), "partitions": partitions });
        rows.iter().map(row).collect()
    };
    let member = |member: &Member| {
        json!({
            "member": member.id.as_str(),
            "instance": member.instance.as_ref().map(Str::as_str),
            "client": member.client.as_str(),
            "host": member.host.trim_start_matches('/'),
            "assignment": assignment(&member.assignment),
            "target": member.target.as_deref().map(assignment),
        })
    };
    json!({
        "group": group.name.as_str(),
        "type": group.kind,
        "state": group.state.as_str(),
        "assignor": group.assignor.as_str(),
        "epoch": group.epoch,
        "coordinator": &*group.coordinator,
        "members": group.members.iter().map(member).collect::<Vec<_>>(),
    })
}

fn show(session: &Session, group: &Group) -> anyhow::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let count = group.members.len();
    let plural = if count == 1 { "" } else { "s" };
    write!(
        out,
        "{}  {}  {}  {count} member{plural}",
        group.name, group.state, group.kind
    )?;
    if !group.assignor.is_empty() {
        write!(out, "  assignor {}", group.assignor)?;
    }
    if let Some(epoch) = group.epoch {
        write!(out, "  epoch {epoch}")?;
    }
    writeln!(out, "  coordinator {}", group.coordinator)?;
    if !group.members.is_empty() {
        let mut table = Table::new(&[
            ("CLIENT", Side::Left),
            ("HOST", Side::Left),
            ("MEMBER", Side::Left),
            ("ASSIGNMENT", Side::Left),
        ]);
        for member in &group.members {
            let mut given = assignment(&member.assignment);
            if let Some(target) = &member.target {
                given = format!("{given} → {}", assignment(target));
            }
            let id = member.instance.as_ref().unwrap_or(&member.id);
            table.row(vec![
                member.client.to_string(),
                member.host.trim_start_matches('/').to_owned(),
                id.to_string(),
                given,
            ]);
        }
        writeln!(out)?;
        table.write(&mut out, session.colour)?;
    }
    Ok(out.flush()?)
}

/// Formats an assignment: `orders[0-3] audit[0]`, or a dash if it is empty.
fn assignment(rows: &Assignment) -> String {
    if rows.is_empty() {
        return "-".to_owned();
    }
    let row = |(topic, partitions): &(Str, Vec<i32>)| format!("{topic}[{}]", human::runs(partitions));
    rows.iter().map(row).collect::<Vec<_>>().join(" ")
}
