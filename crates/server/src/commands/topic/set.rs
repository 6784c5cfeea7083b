//! `stafett topic set`.

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::json;
use stafett_kafka_client::admin::Change;

use super::{NAME, name, settings};
use crate::client::{self, Session};
use crate::failure::Failure;

const SETTINGS: &str = "KEY=VALUE";
const PARTITIONS: &str = "partitions";
const UNSET: &str = "unset";
const DRY_RUN: &str = "dry-run";

pub(super) fn describe() -> Command {
    Command::new("set")
        .about("Change settings of a topic, or give it more partitions, while it is in use")
        .arg(name())
        .arg(
            Arg::new(SETTINGS)
                .num_args(0..)
                .required_unless_present_any([UNSET, PARTITIONS])
                .value_parser(settings::read)
                .help("Settings; durations and sizes may have units: 7d, 512MiB"),
        )
        .arg(
            Arg::new(UNSET)
                .long(UNSET)
                .value_name("KEY")
                .action(ArgAction::Append)
                .help("Back to the default; can be given several times"),
        )
        .arg(
            Arg::new(PARTITIONS)
                .long(PARTITIONS)
                .short('p')
                .value_name("N")
                .value_parser(value_parser!(i32).range(1..))
                .help("More partitions: so many in all. Keys then go to other partitions than before"),
        )
        .arg(
            Arg::new(DRY_RUN)
                .long(DRY_RUN)
                .action(ArgAction::SetTrue)
                .help("Only say whether it would work"),
        )
        .after_help(
            "Examples:\n  stafett topic set orders retention.ms=7d max.message.bytes=2MiB\n  \
             stafett topic set orders stafett.durability=os --unset retention.bytes",
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let name = matches.get_one::<String>(NAME).cloned().unwrap_or_default();
    let set = matches
        .get_many::<(String, String)>(SETTINGS)
        .into_iter()
        .flatten();
    let unset = matches.get_many::<String>(UNSET).into_iter().flatten();
    let changes: Vec<Change> = set
        .map(|(key, value)| Change::Set(key.clone(), value.clone()))
        .chain(unset.map(|key| Change::Unset(key.clone())))
        .collect();
    let partitions = matches.get_one::<i32>(PARTITIONS).copied();
    let dry_run = matches.get_flag(DRY_RUN);
    client::run(matches, async move |session: Session| {
        session.topic(&name).await?;
        let word = if dry_run { "would be " } else { "" };
        if let Some(count) = partitions {
            session.client.grow_topic(&name, count, dry_run).await?;
            if session.json {
                Session::object(&json!({ "topic": name, "partitions": count, "dry_run": dry_run }))?;
            }
            session.say(&format!("{name}: {word}given {count} partitions"))?;
        }
        if changes.is_empty() {
            return Ok(());
        }
        session.client.alter_settings(&name, &changes, dry_run).await?;
        for change in &changes {
            let (key, value) = match change {
                Change::Set(key, value) => (key, Some(value)),
                Change::Unset(key) => (key, None),
            };
            if session.json {
                Session::object(
                    &json!({ "topic": name, "setting": key, "value": value, "dry_run": dry_run }),
                )?;
            }
            session.say(&match value {
                Some(value) => format!("{name}: {key} {word}set to {}", settings::show(key, value)),
                None => format!("{name}: {key} {word}back at its default"),
            })?;
        }
        Ok(())
    })
}
