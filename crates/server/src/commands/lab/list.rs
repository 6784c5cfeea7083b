//! `stafett lab list`.

use std::io;

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::json;
use stafett_lab::experiment::library;

use crate::client::table::{Side, Table};
use crate::failure::Failure;

const JSON: &str = "json";

pub(super) fn describe() -> Command {
    Command::new("list")
        .about("List the experiments that come with the program")
        .arg(
            Arg::new(JSON)
                .long(JSON)
                .action(ArgAction::SetTrue)
                .help("JSON for programs: one object per line"),
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let experiments = library::all().context("the program's own experiments are broken")?;
    let mut out = io::stdout().lock();
    let printed = if matches.get_flag(JSON) {
        experiments.iter().try_for_each(|(name, experiment)| {
            let line = json!({
                "name": name,
                "question": experiment.question,
                "note": experiment.note,
                "systems": experiment.systems,
            });
            io::Write::write_all(&mut out, format!("{line}\n").as_bytes())
        })
    } else {
        let mut table = Table::new(&[
            ("EXPERIMENT", Side::Left),
            ("SYSTEMS", Side::Left),
            ("QUESTION", Side::Left),
        ]);
        for (name, experiment) in &experiments {
            table.row(vec![
                (*name).to_owned(),
                experiment.systems.join(" "),
                experiment.question.clone(),
            ]);
        }
        table.write(&mut out, false)
    };
    printed.context("the list cannot be printed")?;
    Ok(())
}
