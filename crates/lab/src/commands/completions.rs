//! `stafett-lab completions`: the commands and flags that a shell completes.

use std::io::{self, Write as _};

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use crate::failure::Failure;

const SHELL: &str = "SHELL";

pub(super) fn describe() -> Command {
    Command::new("completions")
        .about("Print what a shell needs to complete commands and flags of `stafett-lab`")
        .arg(
            Arg::new(SHELL)
                .required(true)
                .value_parser(value_parser!(Shell))
                .help("Which shell"),
        )
        .after_help(
            "Example:\n  stafett-lab completions bash > ~/.local/share/bash-completion/completions/stafett-lab",
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    if let Some(shell) = matches.get_one::<Shell>(SHELL) {
        let mut script = Vec::new();
        clap_complete::generate(*shell, &mut super::describe(), "stafett-lab", &mut script);
        io::stdout().write_all(&script).map_err(anyhow::Error::from)?;
    }
    Ok(())
}
