//! `stafett lab list`.

use std::io::{self, Write};
use std::iter;

use anyhow::Context;
use clap::Args;
use serde_json::json;
use stafett_lab::experiment::library;

use crate::failure::Failure;

/// List the experiments that come with the program
#[derive(Debug, Args)]
pub(super) struct List {
    /// JSON for programs: one object per line
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) fn run(self) -> Result<(), Failure> {
        let experiments = library::all().context("the program's own experiments are broken")?;
        let mut out = io::stdout().lock();
        let printed = if self.json {
            experiments.iter().try_for_each(|(name, experiment)| {
                let line = json!({
                    "name": name,
                    "question": experiment.question,
                    "note": experiment.note,
                    "systems": experiment.systems,
                });
                writeln!(out, "{line}")
            })
        } else {
            let rows = experiments.iter().map(|(name, experiment)| {
                [
                    (*name).to_owned(),
                    experiment.systems.join(" "),
                    experiment.question.clone(),
                ]
            });
            let heading = ["EXPERIMENT", "SYSTEMS", "QUESTION"].map(str::to_owned);
            let rows: Vec<_> = iter::once(heading).chain(rows).collect();
            write_table(&mut out, &rows)
        };
        printed.context("the list cannot be printed")?;
        Ok(())
    }
}

/// Writes rows with their first two columns aligned.
fn write_table(out: &mut impl Write, rows: &[[String; 3]]) -> io::Result<()> {
    let width = |column: fn(&[String; 3]) -> &String| {
        let cells = rows.iter().map(|row| column(row).chars().count());
        cells.max().unwrap_or(0)
    };
    let (first, second) = (width(|[name, ..]| name), width(|[_, systems, _]| systems));
    for [name, systems, question] in rows {
        writeln!(out, "{name:first$}  {systems:second$}  {question}")?;
    }
    Ok(())
}
