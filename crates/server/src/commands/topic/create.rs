//! `stafett topic create`.

use anyhow::anyhow;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::json;
use stafett_kafka_client::ErrorCode;
use stafett_kafka_client::admin::NewTopic;

use super::{given, names, settings};
use crate::client::{self, Session};
use crate::failure::Failure;

const PARTITIONS: &str = "partitions";
const REPLICATION: &str = "replication";
const SET: &str = "set";
const IF_ABSENT: &str = "if-absent";
const DRY_RUN: &str = "dry-run";

pub(super) fn describe() -> Command {
    Command::new("create")
        .about("Create topics")
        .arg(names())
        .arg(
            Arg::new(PARTITIONS)
                .long(PARTITIONS)
                .short('p')
                .value_name("N")
                .value_parser(value_parser!(i32).range(1..))
                .help("How many partitions; the broker's default, if not given"),
        )
        .arg(
            Arg::new(REPLICATION)
                .long(REPLICATION)
                .value_name("N")
                .value_parser(value_parser!(i16).range(1..))
                .help("How many brokers keep it; the broker's default, if not given"),
        )
        .arg(
            Arg::new(SET)
                .long(SET)
                .value_name("KEY=VALUE")
                .value_parser(settings::read)
                .action(ArgAction::Append)
                .help(
                    "A setting; can be given several times. Durations and sizes may have units: 7d, 512MiB",
                ),
        )
        .arg(
            Arg::new(IF_ABSENT)
                .long(IF_ABSENT)
                .action(ArgAction::SetTrue)
                .help("Do nothing about topics that exist"),
        )
        .arg(
            Arg::new(DRY_RUN)
                .long(DRY_RUN)
                .action(ArgAction::SetTrue)
                .help("Only say whether it would work"),
        )
        .after_help(
            "Examples:\n  stafett topic create orders --partitions 6\n  stafett topic create audit --set \
             retention.ms=30d --set stafett.durability=sync",
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let names = given(matches);
    let dry_run = matches.get_flag(DRY_RUN);
    let if_absent = matches.get_flag(IF_ABSENT);
    let model = NewTopic {
        partitions: matches.get_one(PARTITIONS).copied(),
        replication: matches.get_one(REPLICATION).copied(),
        settings: matches
            .get_many::<(String, String)>(SET)
            .into_iter()
            .flatten()
            .cloned()
            .collect(),
        dry_run,
        ..NewTopic::default()
    };
    client::run(matches, async move |session: Session| {
        for name in names {
            let topic = NewTopic {
                name: name.clone(),
                ..model.clone()
            };
            let created = match session.client.create_topic(&topic).await {
                Ok(created) => created,
                Err(error) if error.code() == Some(ErrorCode::TopicAlreadyExists) => {
                    if !if_absent {
                        return Err(anyhow!(
                            "topic `{name}` exists already; see it with: stafett topic describe {name}"
                        ));
                    }
                    report(&session, &name, "exists", None)?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let partitions = created.partitions.or(topic.partitions);
            let word = if dry_run { "would be created" } else { "created" };
            report(&session, &name, word, partitions)?;
        }
        Ok(())
    })
}

fn report(session: &Session, name: &str, word: &str, partitions: Option<i32>) -> anyhow::Result<()> {
    if session.json {
        return Session::object(&json!({ "topic": name, "result": word, "partitions": partitions }));
    }
    let count = match partitions {
        Some(1) => " with 1 partition".to_owned(),
        Some(count) => format!(" with {count} partitions"),
        None => String::new(),
    };
    session.say(&format!("topic {name} {word}{count}"))
}
