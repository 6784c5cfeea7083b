//! Roll-ups compared with their topics, computed again, and shown; and two stores compared.

use std::io::{self, Write};

use anyhow::{Context, bail};
use clap::ArgMatches;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use stafett_kafka_client::Client;
use stafett_sinks::Definition;
use stafett_sinks::broker::source;
use stafett_sinks::compare::{Only, Selection, compare as compare_stores};
use stafett_sinks::verify::{Difference, Records, Window, recompute, show, verify};

use super::run::{block_on, connect};
use super::{BY, FROM, STRICT, TO};
use crate::client::http;
use crate::client::table::{Side, Table};

/// Differences that are printed of one roll-up.
const SHOWN_MAX: usize = 100;

fn rollups<'a>(sinks: &'a [Definition]) -> anyhow::Result<Vec<&'a Definition>> {
    let found: Vec<&'a Definition> = sinks.iter().filter(|sink| sink.rollup.is_some()).collect();
    if found.is_empty() {
        bail!("the file has no roll-up: a sink with mode = \"rollup\"");
    }
    Ok(found)
}

/// Returns the records from which roll-ups are computed.
fn records<'a>(client: &'a Client, files: Option<&'a Definition>) -> Records<'a> {
    files.map_or(Records::Log(client), Records::Files)
}

/// Compares roll-ups with their topics, or with files of them. Fails if there is a difference.
pub(super) fn compare(
    matches: &ArgMatches,
    sinks: &[Definition],
    files: Option<&Definition>,
) -> anyhow::Result<()> {
    let (rollups, window) = (rollups(sinks)?, window(matches)?);
    let mut table = Table::new(&[
        ("SINK", Side::Left),
        ("KEY", Side::Left),
        ("STORED", Side::Left),
        ("COMPUTED", Side::Left),
    ]);
    let (mut shown, mut count) = (Vec::new(), 0);
    let summary = block_on(async {
        let own = connect(matches).await?;
        let mut summary = Vec::new();
        for sink in rollups {
            let client = source(sink, own.clone()).await?;
            let verified = verify(&own, records(&client, files), sink, window)
                .await
                .with_context(|| sink.name.clone())?;
            count += verified.differences.len();
            for found in verified.differences.iter().take(SHOWN_MAX) {
                let Difference {
                    key,
                    stored,
                    computed,
                } = found;
                shown.push(json!({"sink": sink.name, "key": key, "stored": stored, "computed": computed}));
                let word =
                    |row: Option<&Vec<Option<String>>>| row.map_or_else(|| "-".to_owned(), |row| words(row));
                table.row(vec![
                    sink.name.clone(),
                    words(key),
                    word(stored.as_ref()),
                    word(computed.as_ref()),
                ]);
            }
            summary.push(format!(
                "{}: {} rows, {} records read, {} differences",
                sink.name,
                verified.rows,
                verified.records,
                verified.differences.len()
            ));
        }
        Ok(summary)
    })?;
    for line in summary {
        writeln!(io::stderr(), "{line}")?;
    }
    http::show(matches, &shown, &table, "no differences")?;
    if count > 0 {
        bail!("{count} rows differ; stafett sink recompute puts them right");
    }
    Ok(())
}

fn words(row: &[Option<String>]) -> String {
    let words = row.iter().map(|cell| cell.as_deref().unwrap_or("null"));
    words.collect::<Vec<_>>().join(" | ")
}

/// Computes roll-ups again from their topics.
pub(super) fn again(matches: &ArgMatches, sinks: &[Definition]) -> anyhow::Result<()> {
    let (rollups, window) = (rollups(sinks)?, window(matches)?);
    block_on(async {
        let own = connect(matches).await?;
        for sink in rollups {
            let client = source(sink, own.clone()).await?;
            let rows = recompute(&own, Records::Log(&client), sink, window)
                .await
                .with_context(|| sink.name.clone())?;
            writeln!(io::stdout(), "sink {}: {rows} rows computed again", sink.name)?;
        }
        Ok(())
    })
}

/// Reads a time of the command line.
fn time(matches: &ArgMatches, name: &str) -> anyhow::Result<Option<Timestamp>> {
    let text = matches.try_get_one::<String>(name).ok().flatten();
    let read = |text: &String| {
        text.parse()
            .with_context(|| format!("--{name}: {text:?} is no time such as 2026-11-22T16:00:00Z"))
    };
    text.map(read).transpose()
}

fn window(matches: &ArgMatches) -> anyhow::Result<Window> {
    let all = Window::default();
    let window = Window {
        from: time(matches, FROM)?.unwrap_or(all.from),
        to: time(matches, TO)?.unwrap_or(all.to),
    };
    if window.from >= window.to {
        bail!("--from has to be before --to");
    }
    Ok(window)
}

/// Shows the rows of roll-ups as their topics have them, whatever their stores have.
pub(super) fn shown(
    matches: &ArgMatches,
    sinks: &[Definition],
    files: Option<&Definition>,
) -> anyhow::Result<()> {
    let (rollups, window) = (rollups(sinks)?, window(matches)?);
    let is_strict = matches.get_flag(STRICT);
    let mut table = Table::new(&[("SINK", Side::Left), ("ROW", Side::Left)]);
    let mut rows = Vec::new();
    block_on(async {
        let own = connect(matches).await?;
        for sink in rollups {
            let client = source(sink, own.clone()).await?;
            let found = show(&own, records(&client, files), sink, window, is_strict).await;
            for row in found.with_context(|| sink.name.clone())? {
                table.row(vec![sink.name.clone(), words(&row)]);
                let names = sink.columns.iter().map(|column| column.name.clone());
                let cells = row
                    .into_iter()
                    .map(|cell| cell.map_or(Value::Null, Value::String));
                let fields: Map<String, Value> = names.zip(cells).collect();
                rows.push(json!({"sink": sink.name, "row": fields}));
            }
        }
        Ok(())
    })?;
    http::show(matches, &rows, &table, "no rows")
}

/// Compares the stores of two sinks. Fails if a row differs.
pub(super) fn stores(matches: &ArgMatches, sinks: [&Definition; 2]) -> anyhow::Result<()> {
    let micros = |name| anyhow::Ok(time(matches, name)?.map(Timestamp::as_microsecond));
    let selection = Selection {
        by: matches.get_one::<String>(BY).cloned(),
        from: micros(FROM)?,
        to: micros(TO)?,
    };
    let found = block_on(async { Ok(compare_stores(sinks, &selection).await?) })?;
    let names = sinks.map(|sink| sink.name.clone());
    let mut table = Table::new(&[
        ("ONLY IN", Side::Left),
        ("COPIES", Side::Right),
        ("ROW", Side::Left),
    ]);
    let mut rows = Vec::new();
    for Only { store, row, copies } in &found.only {
        let name = names.get(*store).cloned().unwrap_or_default();
        rows.push(json!({"only_in": name, "copies": copies, "columns": found.columns, "row": row}));
        table.row(vec![name, copies.to_string(), words(row)]);
    }
    let mut error = io::stderr();
    let [one, other] = &names;
    let [ones, others] = found.rows;
    writeln!(
        error,
        "{ones} rows in {one}, {others} in {other}; {} of {} hours of {} differ; columns compared: {}",
        found.different,
        found.hours,
        found.by,
        found.columns.join(", ")
    )?;
    if !found.left_out.is_empty() {
        writeln!(error, "not compared: {}", found.left_out.join(", "))?;
    }
    for place in &found.apart {
        writeln!(error, "not equally far: {place}")?;
    }
    http::show(matches, &rows, &table, "no differences")?;
    if found.different > 0 {
        let more = match found.unlisted {
            0 => String::new(),
            spans => format!("; {spans} spans have too many rows to be listed"),
        };
        bail!("the stores differ in {} hours{more}", found.different);
    }
    Ok(())
}
