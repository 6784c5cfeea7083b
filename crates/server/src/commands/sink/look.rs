//! Sinks checked, made, shown, paused and tried.

use std::io::{self, Write};

use anyhow::{Context, anyhow, bail};
use clap::ArgMatches;
use serde_json::{Map, Value, json};
use stafett_sinks::broker::source;
use stafett_sinks::convert::write_json;
use stafett_sinks::definition::SourceSpec;
use stafett_sinks::http::HttpError;
use stafett_sinks::positions::{accept_gap as accept, position as position_of};
use stafett_sinks::target::{Place, Steps, promise_of, target_of};
use stafett_sinks::trial::{Tried, trial};
use stafett_sinks::{App, Definition, Target};

use super::run::{block_on, broker, connect, surroundings};
use super::{LAST, SET};
use crate::client::http;
use crate::client::table::{Side, Table};

fn target(matches: &ArgMatches, sink: &Definition) -> anyhow::Result<Box<dyn Target>> {
    Ok(target_of(sink, &surroundings(matches, Steps::default())?))
}

pub(super) fn check(matches: &ArgMatches, sinks: &[Definition]) -> anyhow::Result<()> {
    let mut table = Table::new(&[
        ("SINK", Side::Left),
        ("FROM", Side::Left),
        ("TO", Side::Left),
        ("COLUMNS", Side::Right),
        ("PROMISE", Side::Left),
    ]);
    let mut rows = Vec::new();
    for sink in sinks {
        let promise = promise_of(sink, &*target(matches, sink)?).to_string();
        let (from, columns) = (sink.from.join(", "), sink.columns.len());
        rows.push(json!({
            "name": sink.name, "from": sink.from, "to": sink.target.word(), "columns": columns, "promise": promise,
        }));
        table.row(vec![
            sink.name.clone(),
            from,
            sink.target.word().to_owned(),
            columns.to_string(),
            promise,
        ]);
    }
    http::show(matches, &rows, &table, "no sinks")
}

/// Shows or makes missing parts of targets and broker.
pub(super) fn prepare(matches: &ArgMatches, sinks: &[Definition], make: bool) -> anyhow::Result<()> {
    let broker = broker(matches)?;
    let missing = block_on(async {
        let mut all = Vec::new();
        for sink in sinks {
            let missing = target(matches, sink)?.prepare(make).await;
            let missing = missing.with_context(|| sink.name.clone())?;
            all.extend(missing.into_iter().map(|what| (sink.name.clone(), what)));
            if sink.source != SourceSpec::Own {
                continue;
            }
            let mut app = App::new(sink, broker.another());
            match app.show().await {
                Ok(_) => {}
                Err(HttpError::Refused { status: 404, .. }) => {
                    all.push((sink.name.clone(), format!("the app {}", sink.app())));
                }
                Err(why) => return Err(why.into()),
            }
            if make {
                app.declare(sink).await?;
            }
        }
        Ok(all)
    })?;
    for (sink, what) in &missing {
        writeln!(
            io::stdout(),
            "{} {sink}: {what}",
            if make { "made" } else { "missing" }
        )?;
    }
    if !make && !missing.is_empty() {
        bail!("stafett sink apply makes what is missing");
    }
    Ok(())
}

pub(super) fn status(matches: &ArgMatches, sinks: &[Definition]) -> anyhow::Result<()> {
    let broker = broker(matches)?;
    let shown = block_on(async {
        let mut all = Vec::new();
        for sink in sinks {
            let mut app = App::new(sink, broker.another());
            let shown = app.show().await.with_context(|| sink.name.clone())?;
            all.push((sink.name.clone(), shown));
        }
        Ok(all)
    })?;
    let mut table = Table::new(&[
        ("SINK", Side::Left),
        ("STATE", Side::Left),
        ("PARTITION", Side::Right),
        ("WORKER", Side::Left),
        ("NEXT", Side::Left),
        ("LAG", Side::Right),
    ]);
    let mut rows = Vec::new();
    for (sink, app) in shown {
        let tasks = app.get("tasks").and_then(Value::as_array);
        for task in tasks.into_iter().flatten() {
            let cell = |path: &str| task.pointer(path).map_or_else(|| "-".to_owned(), http::word);
            let position = task.get("position").and_then(App::stored_offsets);
            let next = position.map(|next| json!(next));
            let lag = position.map(|next| lag_of(task, next));
            let has_worker = task.get("worker").is_some_and(Value::is_string);
            let state = match app.get("paused").and_then(Value::as_bool) {
                Some(true) => "paused",
                _ if has_worker => "running",
                _ => "waiting",
            };
            table.row(vec![
                sink.clone(),
                state.to_owned(),
                cell("/task"),
                cell("/worker"),
                next.as_ref().map_or_else(|| "-".to_owned(), http::word),
                lag.map_or_else(|| "-".to_owned(), |lag| lag.to_string()),
            ]);
            rows.push(json!({
                "sink": sink, "state": state, "partition": task.get("task"), "worker": task.get("worker"),
                "next": next, "lag": lag,
            }));
        }
    }
    http::show(matches, &rows, &table, "no partitions")
}

/// Returns the records of a task that the target does not have.
fn lag_of(task: &Value, next: &Map<String, Value>) -> u64 {
    let end = |topic: &str| task.pointer("/position/end")?.get(topic)?.as_u64();
    let behind = next
        .iter()
        .filter_map(|(topic, next)| Some(end(topic)?.saturating_sub(next.as_u64()?)));
    behind.sum()
}

/// Reads `TOPIC/PARTITION=OFFSET`.
pub(super) fn place_and_offset(text: &str) -> Option<(Place, u64)> {
    let (place, offset) = text.rsplit_once('=')?;
    let (topic, partition) = place.rsplit_once('/')?;
    let place = Place {
        topic: topic.to_owned(),
        partition: partition.parse().ok()?,
    };
    Some((place, offset.parse().ok()?))
}

pub(super) fn position(matches: &ArgMatches, sinks: &[Definition]) -> anyhow::Result<()> {
    let set = matches
        .get_one::<String>(SET)
        .map(|text| place_and_offset(text).ok_or_else(|| anyhow!("{text:?} is not TOPIC/PARTITION=OFFSET")));
    let set = set.transpose()?;
    if set.is_some() && sinks.len() != 1 {
        bail!("a position is set of one sink: name it");
    }
    let mut table = Table::new(&[("SINK", Side::Left), ("PLACE", Side::Left), ("NEXT", Side::Right)]);
    let mut rows = Vec::new();
    block_on(async {
        for sink in sinks {
            if sink.keeps_positions_in_app() {
                let positions = App::new(sink, broker(matches)?).positions().await?;
                for (place, next) in positions {
                    rows.push(json!({"sink": sink.name, "topic": place.topic, "partition": place.partition, "next": next}));
                    table.row(vec![sink.name.clone(), place.to_string(), next.to_string()]);
                }
                continue;
            }
            let mut target = target(matches, sink)?;
            if let Some((place, next)) = &set {
                let client = source(sink, connect(matches).await?).await?;
                let start = position_of(sink, &client, place, *next).await?;
                target.set_position(place, start).await?;
            }
            for (place, next) in target.positions().await.with_context(|| sink.name.clone())? {
                rows.push(json!({"sink": sink.name, "topic": place.topic, "partition": place.partition, "next": next}));
                table.row(vec![sink.name.clone(), place.to_string(), next.to_string()]);
            }
        }
        Ok(())
    })?;
    http::show(matches, &rows, &table, "no positions")
}

pub(super) fn pause(matches: &ArgMatches, sinks: &[Definition], paused: bool) -> anyhow::Result<()> {
    let broker = broker(matches)?;
    block_on(async {
        for sink in sinks {
            let mut app = App::new(sink, broker.another());
            app.pause(paused).await.with_context(|| sink.name.clone())?;
            let word = if paused { "paused" } else { "resumed" };
            writeln!(io::stdout(), "sink {} {word}", sink.name)?;
        }
        Ok(())
    })
}

/// Has sinks that are stopped go on behind all that is gone.
pub(super) fn accept_gap(matches: &ArgMatches, sinks: &[Definition]) -> anyhow::Result<()> {
    let broker = broker(matches)?;
    block_on(async {
        let client = connect(matches).await?;
        for sink in sinks {
            let client = source(sink, client.clone()).await?;
            let mut target = target(matches, sink)?;
            let mut app = (sink.source == SourceSpec::Own).then(|| App::new(sink, broker.another()));
            let accepted = accept(sink, &client, &mut *target, app.as_mut()).await;
            accepted.with_context(|| sink.name.clone())?;
            writeln!(io::stdout(), "sink {} goes on behind what is gone", sink.name)?;
        }
        Ok(())
    })
}

pub(super) fn dry_run(matches: &ArgMatches, sinks: &[Definition]) -> anyhow::Result<()> {
    let last = matches.get_one::<u64>(LAST).copied().unwrap_or(10);
    block_on(async {
        let own = connect(matches).await?;
        let mut out = io::stdout();
        for sink in sinks {
            let client = source(sink, own.clone()).await?;
            for Tried { place, rows, poison } in trial(&own, &client, sink, last).await? {
                for (offset, cells) in rows.all().iter() {
                    let mut line = Vec::new();
                    write_json(&mut line, &sink.columns, &rows, cells);
                    writeln!(
                        out,
                        "{}\t{place}@{offset}\t{}",
                        sink.name,
                        String::from_utf8_lossy(&line)
                    )?;
                }
                for found in poison {
                    let (offset, class, text) = (found.offset, found.reason.class, found.reason.text);
                    writeln!(out, "{}\t{place}@{offset}\tpoison ({class}): {text}", sink.name)?;
                }
            }
        }
        Ok(())
    })
}
