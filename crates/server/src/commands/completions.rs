//! `stafett completions`: prints completion scripts for shells.

use std::io;

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use crate::failure::Failure;

pub(super) fn describe() -> Command {
    Command::new("completions")
        .about("Print what a shell needs to complete commands and flags")
        .arg(
            Arg::new("SHELL")
                .required(true)
                .value_parser(value_parser!(Shell))
                .help("Which shell"),
        )
        .after_help(
            "Examples:\n  stafett completions bash > ~/.local/share/bash-completion/completions/stafett\n  \
             stafett completions fish > ~/.config/fish/completions/stafett.fish",
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    if let Some(shell) = matches.get_one::<Shell>("SHELL") {
        let mut script = Vec::new();
        clap_complete::generate(*shell, &mut super::describe(), "stafett", &mut script);
        io::Write::write_all(&mut io::stdout(), &script).map_err(anyhow::Error::from)?;
    }
    Ok(())
}
