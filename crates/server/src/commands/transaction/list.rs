//! `stafett transaction list`.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::json;
use stafett_kafka_client::transactions::Transaction;
use wildmatch::WildMatch;

use crate::client::table::{Side, Table};
use crate::client::{self, Session};
use crate::failure::Failure;

const PATTERN: &str = "pattern";
const OPEN: &str = "open";

pub(super) fn describe() -> Command {
    Command::new("list")
        .about("List transactional ids, their states and open transactions")
        .arg(
            Arg::new(PATTERN)
                .long(PATTERN)
                .value_name("GLOB")
                .help("Only ids that match; * and ? stand for any letters and one letter"),
        )
        .arg(
            Arg::new(OPEN)
                .long(OPEN)
                .action(ArgAction::SetTrue)
                .help("Only ids with an open transaction"),
        )
        .after_help(
            "Readers of committed records wait at the first open transaction of each partition.\n\nExamples:\n  \
             stafett transaction list --open\n  stafett transaction list --json | jq .partitions",
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let pattern = WildMatch::new(matches.get_one::<String>(PATTERN).map_or("*", String::as_str));
    let only_open = matches.get_flag(OPEN);
    client::run(matches, async move |session: Session| {
        let mut found = session.client.transactions().await?;
        found.retain(|found| pattern.matches(&found.id) && (!only_open || found.began_ms.is_some()));
        let now_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis();
        let now_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
        if session.json {
            for found in &found {
                let topics = found.partitions.iter();
                let topics = topics
                    .map(|(topic, partitions)| json!({ "topic": topic.as_str(), "partitions": partitions }));
                Session::object(&json!({
                    "id": found.id.as_str(),
                    "state": found.state.as_str(),
                    "producer": found.producer,
                    "epoch": found.epoch,
                    "timeout_ms": found.timeout_ms,
                    "open_ms": found.began_ms.map(|began| now_ms.saturating_sub(began).max(0)),
                    "partitions": topics.collect::<Vec<_>>(),
                }))?;
            }
            return Ok(());
        }
        if found.is_empty() {
            return session.say("no transactions");
        }
        let mut table = Table::new(&[
            ("ID", Side::Left),
            ("STATE", Side::Left),
            ("PRODUCER", Side::Right),
            ("EPOCH", Side::Right),
            ("OPEN FOR", Side::Right),
            ("TIMEOUT", Side::Right),
            ("PARTITIONS", Side::Left),
        ]);
        for found in &found {
            table.row(row(found, now_ms));
        }
        Ok(table.write(&mut io::stdout().lock(), session.colour)?)
    })
}

fn row(found: &Transaction, now_ms: i64) -> Vec<String> {
    let seconds = |ms: i64| format!("{} s", ms.max(0) / 1000);
    let partitions = found.partitions.iter().map(|(topic, partitions)| {
        let numbers: Vec<String> = partitions.iter().map(i32::to_string).collect();
        format!("{topic} {}", numbers.join(","))
    });
    vec![
        found.id.to_string(),
        found.state.to_string(),
        found.producer.to_string(),
        found.epoch.to_string(),
        found
            .began_ms
            .map_or_else(|| "-".to_owned(), |began| seconds(now_ms.saturating_sub(began))),
        seconds(found.timeout_ms.into()),
        partitions.collect::<Vec<_>>().join("; "),
    ]
}
