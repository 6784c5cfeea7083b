//! `stafett group reset`: moves the offsets of a group without members.

use std::io;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use serde_json::json;
use stafett_kafka_client::ClientError;
use stafett_kafka_client::ErrorCode;

use super::reset_plan::{self, Move, To};
use super::{NAME, name};
use crate::client::partitions::{self, Chosen};
use crate::client::table::{Side, Table};
use crate::client::{self, Session, position};
use crate::failure::Failure;

const TOPIC: &str = "topic";
const TO: &str = "to";
const BY: &str = "by";
const FROM_FILE: &str = "from-file";
const DRY_RUN: &str = "dry-run";

pub(super) fn describe() -> Command {
    Command::new("reset")
        .about("Move the offsets of a group that has no members")
        .arg(name())
        .arg(
            Arg::new(TOPIC)
                .long(TOPIC)
                .short('t')
                .value_name("TOPIC[:PARTITIONS]")
                .value_parser(partitions::read)
                .action(ArgAction::Append)
                .help("What to move, such as orders or orders:0,2-4; all that the group has committed, if not given"),
        )
        .arg(
            Arg::new(TO)
                .long(TO)
                .value_name(position::SHAPE)
                .allow_hyphen_values(true)
                .help("Where to; -N is N records before the end. Times are such as 2026-11-21T14:00:00Z, '10m ago'"),
        )
        .arg(
            Arg::new(BY)
                .long(BY)
                .value_name("N|-N")
                .value_parser(value_parser!(i64))
                .allow_hyphen_values(true)
                .help("Forward or back from where the group is"),
        )
        .arg(
            Arg::new(FROM_FILE)
                .long(FROM_FILE)
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .conflicts_with(TOPIC)
                .help("Lines of topic,partition,offset; or JSON as this command prints it"),
        )
        .group(ArgGroup::new("where").args([TO, BY, FROM_FILE]).required(true))
        .arg(
            Arg::new(DRY_RUN)
                .long(DRY_RUN)
                .action(ArgAction::SetTrue)
                .help("Only show before and after"),
        )
        .after_help(
            "Examples:\n  stafett group reset billing --topic orders --to earliest --dry-run\n  stafett group reset \
             billing --to '2h ago'\n  stafett group reset billing --topic orders:0-3 --by -100",
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let name = matches.get_one::<String>(NAME).cloned().unwrap_or_default();
    let chosen: Vec<Chosen> = matches.get_many(TOPIC).into_iter().flatten().cloned().collect();
    let to = if let Some(text) = matches.get_one::<String>(TO) {
        let position = position::read(text, position::now());
        To::Position(position.map_err(|error| Failure::Usage(format!("--to {text}: {error}")))?)
    } else if let Some(by) = matches.get_one::<i64>(BY) {
        To::By(*by)
    } else {
        let path = matches.get_one::<PathBuf>(FROM_FILE).cloned().unwrap_or_default();
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        let rows = reset_plan::read_file(&text);
        To::Rows(rows.map_err(|error| Failure::Usage(format!("{}:{error}", path.display())))?)
    };
    let dry_run = matches.get_flag(DRY_RUN);
    client::run(matches, async move |session: Session| {
        refuse_active(&session, &name).await?;
        let moves = reset_plan::plan(&session, &name, &chosen, &to).await?;
        if !dry_run {
            let offsets: Vec<_> = moves
                .iter()
                .map(|row| ((row.topic.clone(), row.partition), row.after))
                .collect();
            let committed = session.client.commit(&name, &offsets).await;
            committed.map_err(|error| active(&name, error))?;
        }
        show(&session, &name, &moves, dry_run)
    })
}

/// Fails if the group has members. A group that does not exist yet can be given offsets.
async fn refuse_active(session: &Session, name: &str) -> anyhow::Result<()> {
    match session.client.group(name).await {
        Ok(group) if group.is_idle() => Ok(()),
        Ok(group) => Err(anyhow!(
            "group `{name}` is {} and has {}, which would go on from where they are; stop them first: stafett group \
             describe {name}",
            group.state,
            match group.members.len() {
                1 => "a member".to_owned(),
                count => format!("{count} members"),
            }
        )),
        Err(error) if error.code() == Some(ErrorCode::GroupIdNotFound) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn active(name: &str, error: ClientError) -> anyhow::Error {
    if error.code() == Some(ErrorCode::UnknownMemberId) {
        return anyhow!("group `{name}` has members (again); stop them first: stafett group describe {name}");
    }
    error.into()
}

fn show(session: &Session, group: &str, moves: &[Move], dry_run: bool) -> anyhow::Result<()> {
    if session.json {
        for row in moves {
            Session::object(&json!({
                "group": group,
                "topic": row.topic.as_str(),
                "partition": row.partition,
                "before": row.before,
                "offset": row.after,
                "dry_run": dry_run,
            }))?;
        }
        return Ok(());
    }
    let mut table = Table::new(&[
        ("TOPIC", Side::Left),
        ("PARTITION", Side::Right),
        ("BEFORE", Side::Right),
        ("AFTER", Side::Right),
    ]);
    for row in moves {
        table.row(vec![
            row.topic.to_string(),
            row.partition.to_string(),
            row.before
                .map_or_else(|| "-".to_owned(), |offset| offset.to_string()),
            row.after.to_string(),
        ]);
    }
    table.write(&mut io::stdout().lock(), session.colour)?;
    if dry_run {
        session.say("nothing was changed (--dry-run)")?;
    }
    Ok(())
}
