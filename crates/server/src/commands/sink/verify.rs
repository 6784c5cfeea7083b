//! Roll-ups compared with their topics, and computed again.

use std::io::{self, Write};

use anyhow::{Context, bail};
use clap::ArgMatches;
use serde_json::json;
use stafett_sinks::Definition;
use stafett_sinks::broker::source;
use stafett_sinks::verify::{Difference, recompute, verify};

use super::run::{block_on, connect};
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

/// Compares roll-ups with their topics. Fails if there is a difference.
pub(super) fn compare(matches: &ArgMatches, sinks: &[Definition]) -> anyhow::Result<()> {
    let rollups = rollups(sinks)?;
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
            let verified = verify(&own, &client, sink)
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
    let rollups = rollups(sinks)?;
    block_on(async {
        let own = connect(matches).await?;
        for sink in rollups {
            let client = source(sink, own.clone()).await?;
            let rows = recompute(&own, &client, sink)
                .await
                .with_context(|| sink.name.clone())?;
            writeln!(io::stdout(), "sink {}: {rows} rows computed again", sink.name)?;
        }
        Ok(())
    })
}
