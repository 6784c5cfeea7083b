//! Plan of a reset: the offsets before and after it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::anyhow;
use serde_json::Value;
use stafett_kafka_client::Str;
use stafett_kafka_client::groups::Offsets;

use crate::client::Session;
use crate::client::partitions::Chosen;
use crate::client::position::{self, Position, bounds};

/// Target of the offsets.
pub(super) enum To {
    Position(Position),
    /// This many records forward, or back if negative.
    By(i64),
    Rows(Vec<(String, i32, i64)>),
}

/// Offset of one partition, before and after.
pub(super) struct Move {
    pub(super) topic: Str,
    pub(super) partition: i32,
    pub(super) before: Option<i64>,
    pub(super) after: i64,
}

/// Returns the moves of `group`, by topic and partition. Offsets stay within the bounds of the partitions.
pub(super) async fn plan(
    session: &Session,
    group: &str,
    chosen: &[Chosen],
    to: &To,
) -> anyhow::Result<Vec<Move>> {
    let committed = session.client.committed(group).await?;
    let chosen = match to {
        To::Rows(rows) => by_topic(
            rows.iter()
                .map(|(topic, partition, _)| (topic.as_str(), *partition)),
        ),
        To::Position(_) | To::By(_) if chosen.is_empty() => by_topic(
            committed
                .keys()
                .map(|(topic, partition)| (topic.as_str(), *partition)),
        ),
        To::Position(_) | To::By(_) => chosen.to_vec(),
    };
    if chosen.is_empty() {
        return Err(anyhow!(
            "group `{group}` has committed no offsets; say what to move with --topic TOPIC"
        ));
    }
    let mut moves = Vec::new();
    for wanted in chosen {
        let topic = wanted.of(session.topic(&wanted.topic).await?)?;
        let bounds = bounds(&session.client, &topic).await?;
        let after = match to {
            To::Position(place) => position::offsets(&session.client, &topic, *place, &bounds).await?,
            To::By(by) => shifted(&committed, &topic.name, &bounds, *by),
            To::Rows(rows) => {
                let of_topic = rows.iter().filter(|(name, ..)| topic.name == **name);
                let within = |(_, partition, offset): &(String, i32, i64)| {
                    let (start, end) = bounds.get(partition).copied().unwrap_or_default();
                    (*partition, (*offset).clamp(start, end.max(start)))
                };
                of_topic.map(within).collect()
            }
        };
        moves.extend(after.into_iter().map(|(partition, after)| {
            Move {
                before: committed
                    .get(&(topic.name.clone(), partition))
                    .map(|committed| committed.offset),
                topic: topic.name.clone(),
                partition,
                after,
            }
        }));
    }
    Ok(moves)
}

/// Shifts the committed offsets by `by`. Partitions without a committed offset are left out.
fn shifted(committed: &Offsets, topic: &Str, bounds: &position::Bounds, by: i64) -> BTreeMap<i32, i64> {
    let shift = |(partition, (start, end)): (&i32, &(i64, i64))| {
        let from = committed.get(&(topic.clone(), *partition))?.offset;
        Some((
            *partition,
            from.saturating_add(by).clamp(*start, (*end).max(*start)),
        ))
    };
    bounds.iter().filter_map(shift).collect()
}

fn by_topic<'a>(partitions: impl Iterator<Item = (&'a str, i32)>) -> Vec<Chosen> {
    let mut topics: BTreeMap<&str, BTreeSet<i32>> = BTreeMap::new();
    for (topic, partition) in partitions {
        topics.entry(topic).or_default().insert(partition);
    }
    topics
        .into_iter()
        .map(|(topic, partitions)| Chosen {
            topic: topic.to_owned(),
            partitions: Some(partitions),
        })
        .collect()
}

/// Parses lines of `topic,partition,offset`, or JSON objects with these three. An error begins with the line
/// number.
pub(super) fn read_file(text: &str) -> Result<Vec<(String, i32, i64)>, String> {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let read = |(at, line): (usize, &str)| {
        let row = if line.starts_with('{') {
            from_json(line)
        } else {
            from_csv(line)
        };
        row.ok_or_else(|| format!("{}: expected topic,partition,offset, as in orders,0,1200", at + 1))
    };
    lines.map(read).collect()
}

fn from_csv(line: &str) -> Option<(String, i32, i64)> {
    let mut parts = line.split(',').map(str::trim);
    let row = (
        parts.next()?.to_owned(),
        parts.next()?.parse().ok()?,
        parts.next()?.parse().ok()?,
    );
    (parts.next().is_none() && row.1 >= 0 && row.2 >= 0).then_some(row)
}

fn from_json(line: &str) -> Option<(String, i32, i64)> {
    let object: Value = serde_json::from_str(line).ok()?;
    let partition = i32::try_from(object.get("partition")?.as_i64()?).ok()?;
    let offset = object.get("offset")?.as_i64()?;
    let topic = object.get("topic")?.as_str()?.to_owned();
    (partition >= 0 && offset >= 0).then_some((topic, partition, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_and_a_bad_line_is_named() {
        let text = "orders,0,12\n\n{\"topic\":\"a\",\"partition\":1,\"offset\":7,\"before\":null}\n";
        let rows = [("orders".to_owned(), 0, 12), ("a".to_owned(), 1, 7)];
        assert_eq!(read_file(text).unwrap(), rows);
        for bad in [
            "orders,0",
            "orders,0,1,2",
            "orders,-1,2",
            "orders,0,-2",
            "{\"topic\":1}",
            "x",
        ] {
            let error = read_file(&format!("a,0,1\n{bad}")).unwrap_err();
            assert!(error.starts_with("2: expected"), "{error}");
        }
    }
}
