//! `stafett topic list`.

use std::collections::BTreeMap;
use std::io;

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::json;
use stafett_kafka_client::Str;
use stafett_kafka_client::{Client, ClientError, Place, Topic};
use wildmatch::WildMatch;

use crate::client::{
    self, Session, human,
    table::{Side, Table},
};
use crate::failure::Failure;

const PATTERN: &str = "pattern";
const INTERNAL: &str = "internal";
const DURABILITY: &str = "stafett.durability";

pub(super) fn describe() -> Command {
    Command::new("list")
        .about("List topics")
        .arg(
            Arg::new(PATTERN)
                .long(PATTERN)
                .value_name("GLOB")
                .help("Only topics whose names match; * and ? stand for any letters and one letter"),
        )
        .arg(
            Arg::new(INTERNAL)
                .long(INTERNAL)
                .action(ArgAction::SetTrue)
                .help("Also the broker's own topics"),
        )
        .after_help(
            "Records are the offsets between start and end: where a topic was compacted, or written in transactions, \
             there are fewer.\n\nExamples:\n  stafett topic list --pattern 'orders.*'\n  stafett topic list --json | jq -r .topic",
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let pattern = WildMatch::new(matches.get_one::<String>(PATTERN).map_or("*", String::as_str));
    let internal = matches.get_flag(INTERNAL);
    client::run(matches, async move |session: Session| {
        let mut topics = session.client.topics().await?;
        topics.retain(|topic| (internal || !topic.is_internal) && pattern.matches(&topic.name));
        let facts = Facts::of(&session.client, &topics).await?;
        show(&session, &topics, &facts)
    })
}

/// Facts shown of each topic beside its metadata.
struct Facts {
    /// `None` while a partition has no leader.
    records: Vec<Option<u64>>,
    /// `None` if the broker does not report sizes.
    sizes: Option<BTreeMap<Str, u64>>,
    durability: Vec<Option<Str>>,
}

impl Facts {
    async fn of(client: &Client, topics: &[Topic]) -> Result<Self, ClientError> {
        let led: Vec<&Topic> = topics
            .iter()
            .filter(|topic| topic.partitions.iter().all(|row| row.leader.is_some()))
            .collect();
        let starts = client.offsets(&led, Place::Start).await?;
        let ends = client.offsets(&led, Place::End).await?;
        let sum = |offsets: &[Option<i64>]| offsets.iter().flatten().sum::<i64>();
        let mut counts = starts.iter().zip(&ends).map(|(start, end)| sum(end) - sum(start));
        let records = topics
            .iter()
            .map(|topic| {
                let is_led = topic.partitions.iter().all(|row| row.leader.is_some());
                let count = if is_led { counts.next() } else { None };
                count.and_then(|count| u64::try_from(count).ok())
            })
            .collect();
        let sizes = match client.sizes().await {
            Ok(sizes) => Some(sizes),
            Err(error) if error.is_unsupported() => None,
            Err(error) => return Err(error),
        };
        let names: Vec<_> = topics.iter().map(|topic| topic.name.clone()).collect();
        let settings = client.settings(&names, Some(&[DURABILITY])).await?;
        let value = |row: Vec<stafett_kafka_client::admin::Setting>| {
            row.into_iter().find(|setting| setting.name == DURABILITY)?.value
        };
        Ok(Self {
            records,
            sizes,
            durability: settings.into_iter().map(value).collect(),
        })
    }
}

fn show(session: &Session, topics: &[Topic], facts: &Facts) -> anyhow::Result<()> {
    let mut table = Table::new(&[
        ("TOPIC", Side::Left),
        ("PARTITIONS", Side::Right),
        ("RECORDS", Side::Right),
        ("SIZE", Side::Right),
        ("DURABILITY", Side::Left),
    ]);
    let mut out = io::BufWriter::new(io::stdout().lock());
    for ((topic, records), durability) in topics.iter().zip(&facts.records).zip(&facts.durability) {
        let size = facts
            .sizes
            .as_ref()
            .map(|sizes| sizes.get(&topic.name).copied().unwrap_or(0));
        if session.json {
            let object = json!({
                "topic": topic.name.as_str(),
                "id": topic.id.to_string(),
                "partitions": topic.partitions.len(),
                "records": records,
                "bytes": size,
                "durability": durability.as_ref().map(Str::as_str),
                "internal": topic.is_internal,
            });
            io::Write::write_all(&mut out, format!("{object}\n").as_bytes())?;
            continue;
        }
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        table.row(vec![
            topic.name.to_string(),
            topic.partitions.len().to_string(),
            or_dash(records.map(human::count)),
            or_dash(size.map(human::size)),
            or_dash(durability.as_ref().map(ToString::to_string)),
        ]);
    }
    if !table.is_empty() {
        table.write(&mut out, session.colour)?;
    } else if topics.is_empty() && !session.json {
        io::Write::write_all(&mut out, b"no topics\n")?;
    }
    Ok(io::Write::flush(&mut out)?)
}
