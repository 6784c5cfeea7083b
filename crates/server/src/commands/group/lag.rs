//! `stafett group lag`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};
use serde_json::json;
use stafett_kafka_client::groups::{Group, Offsets};
use stafett_kafka_client::{Client, ClientError, Place, Topic};
use stafett_kafka_client::{ErrorCode, Str};

use super::{NAME, name};
use crate::client::table::{Side, Table};
use crate::client::{self, Session, human};
use crate::failure::Failure;

const WATCH: &str = "watch";
const CLEAR: &str = "\x1b[H\x1b[2J";

pub(super) fn describe() -> Command {
    Command::new("lag")
        .about("Show how far behind the end a group is, by partition")
        .arg(name())
        .arg(
            Arg::new(WATCH)
                .long(WATCH)
                .short('w')
                .value_name("SECONDS")
                .value_parser(value_parser!(u64).range(1..))
                .num_args(0..=1)
                .default_missing_value("2")
                .help("Show it again and again"),
        )
        .after_help("Examples:\n  stafett group lag billing\n  stafett group lag billing --watch 5")
}

/// One partition of a group.
struct Row {
    topic: Str,
    partition: i32,
    committed: Option<i64>,
    /// `None` if the topic does not exist any more.
    end: Option<i64>,
    member: Option<Str>,
}

impl Row {
    fn lag(&self) -> Option<u64> {
        // A committed offset beyond the end, as after a topic was recreated, means no lag.
        Some(u64::try_from(self.end? - self.committed?).unwrap_or(0))
    }
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let name = matches.get_one::<String>(NAME).cloned().unwrap_or_default();
    let every = matches.get_one::<u64>(WATCH).copied().map(Duration::from_secs);
    client::run(matches, async move |session: Session| {
        loop {
            let group = match session.client.group(&name).await {
                Ok(group) => group,
                Err(error) => return Err(session.explain_group(&name, error).await),
            };
            let rows = rows(&session.client, &group).await?;
            if every.is_some() && !session.json && io::stdout().is_terminal() {
                write!(io::stdout(), "{CLEAR}")?;
            }
            show(&session, &group, &rows)?;
            let Some(every) = every else { return Ok(()) };
            tokio::time::sleep(every).await;
        }
    })
}

async fn rows(client: &Client, group: &Group) -> Result<Vec<Row>, ClientError> {
    let committed: Offsets = client.committed(&group.name).await?;
    let mut owners: BTreeMap<(Str, i32), Str> = BTreeMap::new();
    for member in &group.members {
        for (topic, partitions) in &member.assignment {
            for partition in partitions {
                owners.insert((topic.clone(), *partition), member.client.clone());
            }
        }
    }
    let partitions: BTreeSet<(Str, i32)> = committed.keys().chain(owners.keys()).cloned().collect();
    let names: BTreeSet<&Str> = partitions.iter().map(|(topic, _)| topic).collect();
    let mut topics: Vec<Topic> = Vec::new();
    for name in names {
        match client.topic(name).await {
            Ok(topic) => topics.push(topic),
            Err(error) if error.code() == Some(ErrorCode::UnknownTopicOrPartition) => {}
            Err(error) => return Err(error),
        }
    }
    let found = client
        .offsets(&topics.iter().collect::<Vec<_>>(), Place::End)
        .await?;
    let mut ends: BTreeMap<(Str, i32), i64> = BTreeMap::new();
    for (topic, offsets) in topics.iter().zip(found) {
        for (partition, offset) in topic.partitions.iter().zip(offsets) {
            ends.insert((topic.name.clone(), partition.index), offset.unwrap_or(0));
        }
    }
    let row = |key: (Str, i32)| Row {
        committed: committed.get(&key).map(|committed| committed.offset),
        end: ends.get(&key).copied(),
        member: owners.get(&key).cloned(),
        topic: key.0,
        partition: key.1,
    };
    Ok(partitions.into_iter().map(row).collect())
}

fn show(session: &Session, group: &Group, rows: &[Row]) -> anyhow::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let total: u64 = rows.iter().filter_map(Row::lag).sum();
    if session.json {
        for row in rows {
            let object = json!({
                "group": group.name.as_str(),
                "topic": row.topic.as_str(),
                "partition": row.partition,
                "committed": row.committed,
                "end": row.end,
                "lag": row.lag(),
                "client": row.member.as_ref().map(Str::as_str),
            });
            writeln!(out, "{object}")?;
        }
        return Ok(out.flush()?);
    }
    write!(
        out,
        "{}  {}  {} behind",
        group.name,
        group.state,
        human::count(total)
    )?;
    match rows.iter().filter(|row| row.committed.is_none()).count() {
        0 => writeln!(out)?,
        1 => writeln!(out, ", and a partition without a committed offset")?,
        more => writeln!(out, ", and {more} partitions without a committed offset")?,
    }
    if rows.is_empty() {
        writeln!(out, "no offsets are committed")?;
        return Ok(out.flush()?);
    }
    let mut table = Table::new(&[
        ("TOPIC", Side::Left),
        ("PARTITION", Side::Right),
        ("COMMITTED", Side::Right),
        ("END", Side::Right),
        ("LAG", Side::Right),
        ("CLIENT", Side::Left),
    ]);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for row in rows {
        table.row(vec![
            row.topic.to_string(),
            row.partition.to_string(),
            or_dash(row.committed.map(|offset| offset.to_string())),
            or_dash(row.end.map(|offset| offset.to_string())),
            or_dash(row.lag().map(human::count)),
            or_dash(row.member.as_ref().map(ToString::to_string)),
        ]);
    }
    writeln!(out)?;
    table.write(&mut out, session.colour)?;
    Ok(out.flush()?)
}
