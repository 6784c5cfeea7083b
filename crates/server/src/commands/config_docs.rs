//! `stafett config-docs`: prints the page about the settings. Hidden: it is for changes to the table.

use std::io::{self, Write};

use anyhow::Context;
use clap::{ArgMatches, Command};

use crate::config::docs;
use crate::failure::Failure;

pub(super) fn describe() -> Command {
    Command::new("config-docs")
        .about("Print docs/configuration.md")
        .hide(true)
}

pub(super) fn run(_: &ArgMatches) -> Result<(), Failure> {
    io::stdout()
        .write_all(docs::page().as_bytes())
        .context("the page cannot be printed")?;
    Ok(())
}
