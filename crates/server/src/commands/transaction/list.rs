//! `stafett transaction list`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::json;
use stafett_kafka_client::transactions::Transaction;
use stafett_kafka_client::{Client, ClientError, Place, Str, Topic};
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
            "Readers of committed records wait at the first open transaction of each partition; WAITING is the \
             number of records that they have not got yet.\n\nExamples:\n  \
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
        let waiting = waiting(&session.client, &found).await?;
        if session.json {
            for found in &found {
                let partitions = places(found).map(|(topic, partition)| {
                    let waiting = waiting.get(&(topic.clone(), partition));
                    json!({ "topic": topic.as_str(), "partition": partition, "waiting": waiting })
                });
                Session::object(&json!({
                    "id": found.id.as_str(),
                    "state": found.state.as_str(),
                    "producer": found.producer,
                    "epoch": found.epoch,
                    "timeout_ms": found.timeout_ms,
                    "open_ms": found.began_ms.map(|began| now_ms.saturating_sub(began).max(0)),
                    "partitions": partitions.collect::<Vec<_>>(),
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
            ("WAITING", Side::Right),
            ("PARTITIONS", Side::Left),
        ]);
        for found in &found {
            let waiting = places(found)
                .filter_map(|(topic, partition)| waiting.get(&(topic.clone(), partition)))
                .sum();
            table.row(row(found, waiting, now_ms));
        }
        Ok(table.write(&mut io::stdout().lock(), session.colour)?)
    })
}

/// Returns the partitions of the open transaction.
fn places(found: &Transaction) -> impl Iterator<Item = (&Str, i32)> {
    let topics = found.partitions.iter();
    topics.flat_map(|(topic, partitions)| partitions.iter().map(move |partition| (topic, *partition)))
}

/// Returns for each partition with an open transaction the number of records behind the stable offset.
async fn waiting(client: &Client, found: &[Transaction]) -> Result<BTreeMap<(Str, i32), i64>, ClientError> {
    let wanted: BTreeSet<(&Str, i32)> = found.iter().flat_map(places).collect();
    let mut topics = client.topics().await?;
    for topic in &mut topics {
        topic
            .partitions
            .retain(|partition| wanted.contains(&(&topic.name, partition.index)));
    }
    topics.retain(|topic| !topic.partitions.is_empty());
    let topics: Vec<&Topic> = topics.iter().collect();
    let stable = client.offsets(&topics, Place::CommittedEnd).await?;
    let ends = client.offsets(&topics, Place::End).await?;
    let mut waiting = BTreeMap::new();
    for ((topic, stable), ends) in topics.iter().zip(stable).zip(ends) {
        for ((partition, stable), end) in topic.partitions.iter().zip(stable).zip(ends) {
            if let (Some(stable), Some(end)) = (stable, end) {
                waiting.insert((topic.name.clone(), partition.index), (end - stable).max(0));
            }
        }
    }
    Ok(waiting)
}

fn row(found: &Transaction, waiting: i64, now_ms: i64) -> Vec<String> {
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
        waiting.to_string(),
        partitions.collect::<Vec<_>>().join("; "),
    ]
}
