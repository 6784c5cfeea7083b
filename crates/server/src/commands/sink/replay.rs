//! Replays: sinks that write records again, where they wrote them or in a new place.

use std::io::{self, Write};

use anyhow::{Context, anyhow, bail};
use clap::ArgMatches;
use stafett_sinks::broker::source;
use stafett_sinks::definition::Begin;
use stafett_sinks::http::HttpError;
use stafett_sinks::positions::{begins, position};
use stafett_sinks::target::{Place, Start, Steps, target_of};
use stafett_sinks::{App, Definition};
use toml::{Table, Value};

use super::look::place_and_offset;
use super::run::{block_on, broker, connect, surroundings};
use super::{AS, FROM, INTO, SET, documents};
use crate::client::options::text;

/// Positions from which a sink writes again.
pub(super) enum Places {
    /// `earliest`, `latest` or a time, for all partitions.
    From(String),
    Single(Vec<(Place, u64)>),
}

impl Places {
    pub(super) fn of(matches: &ArgMatches) -> anyhow::Result<Self> {
        let from = matches.get_one::<String>(FROM);
        let mut positions = Vec::new();
        for text in matches.get_many::<String>(SET).into_iter().flatten() {
            let position = place_and_offset(text);
            positions.push(position.ok_or_else(|| anyhow!("{text:?} is not TOPIC/PARTITION=OFFSET"))?);
        }
        match (from, positions.is_empty()) {
            (Some(from), true) => Ok(Self::From(from.clone())),
            (None, false) => Ok(Self::Single(positions)),
            _ => bail!("a replay has --from, or --set for single partitions"),
        }
    }
}

/// Returns the name of the sink that writes into a new place, and that place.
fn other_of(matches: &ArgMatches, name: &str) -> Option<(String, String)> {
    let into = matches.get_one::<String>(INTO)?;
    let named = Some(text(matches, AS)).filter(|name| !name.is_empty());
    let named = named.map_or_else(|| format!("{name}-replay"), str::to_owned);
    Some((named, into.clone()))
}

/// Returns the fields of a sink with another place in its target, in their order.
fn with_place(name: &str, definition: &str, into: &str) -> anyhow::Result<(Definition, Table)> {
    let mut fields: Table = serde_json::from_str(definition)?;
    let to = fields.get("to").and_then(Value::as_str).unwrap_or_default();
    let field = match to {
        "postgres" | "ducklake" | "clickhouse" => "table",
        "mongodb" => "collection",
        "files" | "delta" => "path",
        "topic" => "topic",
        _ => bail!(
            "a sink to {to} has no other place: --into is of postgres, ducklake, clickhouse, delta, mongodb, files and \
             topic"
        ),
    };
    fields.insert(field.to_owned(), Value::String(into.to_owned()));
    let sink = Definition::from_json(name, &serde_json::to_string(&fields)?)?;
    Ok((sink, fields))
}

/// Has a sink of a file, which is stopped, write records again.
pub(super) fn replay(matches: &ArgMatches) -> anyhow::Result<()> {
    let mut sinks = documents(matches)?;
    let (Some((mut sink, json)), None) = (sinks.pop(), sinks.pop()) else {
        bail!("a replay is one of a single sink: name it");
    };
    let places = Places::of(matches)?;
    let mut made = None;
    if let Some((name, into)) = other_of(matches, &sink.name) {
        let (other, fields) = with_place(&name, &json, &into)?;
        sink = other;
        made = Some(fields);
    }
    if sink.keeps_positions_in_app() {
        return begin_elsewhere(matches, &sink, places, made);
    }
    let set = block_on(set(matches, &sink, places, made.is_some()))?;
    if let Some(fields) = made {
        print(&sink.name, fields)?;
    }
    for (place, start) in set {
        writeln!(
            io::stderr(),
            "sink {}: {place} goes on at {}",
            sink.name,
            start.next
        )?;
    }
    Ok(())
}

fn print(name: &str, fields: Table) -> anyhow::Result<()> {
    let named = |name: &str, value| Table::from_iter([(name.to_owned(), Value::Table(value))]);
    let whole = named("sink", named(name, fields));
    write!(io::stdout(), "\n{}", toml::to_string(&whole)?)?;
    Ok(())
}

/// Has a second sink whose app keeps the positions begin at a time: the app is made by its first run.
fn begin_elsewhere(
    matches: &ArgMatches,
    sink: &Definition,
    places: Places,
    made: Option<Table>,
) -> anyhow::Result<()> {
    let app = sink.app();
    let Some(mut fields) = made else {
        bail!("the app {app} has the positions: stafett app reset moves them");
    };
    let Places::From(from) = places else {
        bail!(
            "the app {app} will have the positions, and begins all partitions alike: --from, and not --set"
        );
    };
    fields.insert("begin".to_owned(), Value::String(from));
    let sink = Definition::from_json(&sink.name, &serde_json::to_string(&fields)?)?;
    block_on(async {
        match App::new(&sink, broker(matches)?).show().await {
            Ok(_) => bail!("the app {app} has positions already: --as gives the second sink another name"),
            Err(HttpError::Refused { status: 404, .. }) => {}
            Err(why) => return Err(why.into()),
        }
        let mut target = target_of(&sink, &surroundings(matches, Steps::default())?);
        target.prepare(true).await.with_context(|| sink.name.clone())?;
        Ok(())
    })?;
    print(&sink.name, fields)
}

/// Sets the positions in the target. One that is new is made first.
async fn set(
    matches: &ArgMatches,
    sink: &Definition,
    places: Places,
    is_new: bool,
) -> anyhow::Result<Vec<(Place, Start)>> {
    let client = source(sink, connect(matches).await?).await?;
    let starts = match places {
        Places::From(from) => {
            let begin = Begin::parse(&from).with_context(|| {
                format!("{from:?} is not earliest, latest or a time such as 2026-11-22T16:00:00Z")
            })?;
            begins(sink, &client, begin).await?
        }
        Places::Single(places) => {
            let mut starts = Vec::new();
            for (place, next) in places {
                let start = position(sink, &client, &place, next).await?;
                starts.push((place, start));
            }
            starts
        }
    };
    let mut target = target_of(sink, &surroundings(matches, Steps::default())?);
    if is_new {
        target.prepare(true).await.with_context(|| sink.name.clone())?;
    }
    for (place, start) in &starts {
        target
            .set_position(place, *start)
            .await
            .with_context(|| sink.name.clone())?;
    }
    Ok(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_gets_another_place_in_its_target() {
        let table = r#"{"to":"postgres","from":["log"],"url":"env:U","table":"t","columns":{"z":{"type":"bigint"},"a":{"type":"text"}}}"#;
        let (sink, fields) = with_place("s-replay", table, "t_new").unwrap();
        let names: Vec<_> = sink.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!((sink.name.as_str(), names), ("s-replay", vec!["z", "a"]));
        let text = toml::to_string(&fields).unwrap();
        assert!(
            text.contains("table = \"t_new\"") && text.find("[columns.z]") < text.find("[columns.a]"),
            "{text}"
        );
        let hook = r#"{"from":["log"],"to":"webhook","url":"https://h/"}"#;
        let why = with_place("s", hook, "x").unwrap_err().to_string();
        assert!(why.contains("a sink to webhook has no other place"), "{why}");
        assert!(with_place("a name", table, "t").is_err());
    }
}
