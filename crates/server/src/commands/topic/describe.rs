//! `stafett topic describe`.

use std::io::{self, Write};

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Map, Value, json};
use stafett_kafka_client::Str;
use stafett_kafka_client::Topic;
use stafett_kafka_client::admin::Setting;

use super::{given, name, settings};
use crate::client::position::{Bounds, bounds};
use crate::client::table::{Side, Table};
use crate::client::{self, Session, human};
use crate::failure::Failure;

const ALL: &str = "all";

pub(super) fn describe() -> Command {
    Command::new("describe")
        .about("Show a topic's partitions and the settings that differ from the default")
        .arg(name())
        .arg(
            Arg::new(ALL)
                .long(ALL)
                .action(ArgAction::SetTrue)
                .help("Also settings at their default"),
        )
        .after_help("Examples:\n  stafett topic describe orders\n  stafett topic describe orders --all")
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let names = given(matches);
    let all = matches.get_flag(ALL);
    client::run(matches, async move |session: Session| {
        for name in &names {
            let topic = session.topic(name).await?;
            let bounds = bounds(&session.client, &topic).await?;
            let mut settings: Vec<Setting> = session
                .client
                .settings(std::slice::from_ref(&topic.name), None)
                .await?
                .into_iter()
                .flatten()
                .filter(|setting| all || setting.is_own)
                .collect();
            settings.sort_by(|a, b| a.name.cmp(&b.name));
            if session.json {
                Session::object(&object(&topic, &bounds, &settings))?;
            } else {
                show(&session, &topic, &bounds, &settings)?;
            }
        }
        Ok(())
    })
}

fn object(topic: &Topic, bounds: &Bounds, settings: &[Setting]) -> Value {
    let partition = |row: &stafett_kafka_client::Partition| {
        let (start, end) = bounds.get(&row.index).copied().unwrap_or_default();
        json!({ "partition": row.index, "leader": row.leader, "start": start, "end": end })
    };
    let values: Map<String, Value> = settings
        .iter()
        .map(|setting| {
            let value = setting.value.as_ref().map(Str::as_str);
            (setting.name.to_string(), json!(value))
        })
        .collect();
    json!({
        "topic": topic.name.as_str(),
        "id": topic.id.to_string(),
        "internal": topic.is_internal,
        "partitions": topic.partitions.iter().map(partition).collect::<Vec<_>>(),
        "settings": values,
    })
}

fn show(session: &Session, topic: &Topic, bounds: &Bounds, settings: &[Setting]) -> anyhow::Result<()> {
    let records = |(start, end): &(i64, i64)| u64::try_from(end - start).unwrap_or(0);
    let total: u64 = bounds.values().map(records).sum();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let many = topic.partitions.len();
    let plural = if many == 1 { "" } else { "s" };
    writeln!(
        out,
        "{}  {many} partition{plural}  {} records  id {}\n",
        topic.name,
        human::count(total),
        topic.id
    )?;
    let mut table = Table::new(&[
        ("PARTITION", Side::Right),
        ("LEADER", Side::Right),
        ("START", Side::Right),
        ("END", Side::Right),
        ("RECORDS", Side::Right),
    ]);
    for row in &topic.partitions {
        let bound = bounds.get(&row.index).copied().unwrap_or_default();
        table.row(vec![
            row.index.to_string(),
            row.leader.map_or_else(|| "-".to_owned(), |id| id.to_string()),
            bound.0.to_string(),
            bound.1.to_string(),
            human::count(records(&bound)),
        ]);
    }
    table.write(&mut out, session.colour)?;
    if !settings.is_empty() {
        let mut table = Table::new(&[("SETTING", Side::Left), ("VALUE", Side::Left)]);
        for setting in settings {
            let value = setting.value.as_ref().map_or("(hidden)", |value| value.as_str());
            table.row(vec![
                setting.name.to_string(),
                settings::show(&setting.name, value),
            ]);
        }
        writeln!(out)?;
        table.write(&mut out, session.colour)?;
    }
    Ok(out.flush()?)
}
