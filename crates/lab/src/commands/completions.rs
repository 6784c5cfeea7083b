//! `stafett-lab completions`: the commands and flags that a shell completes.

use std::io::{self, Write as _};

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::CommandLine;
use crate::failure::Failure;

/// Print the script with which a shell completes commands and flags of `stafett-lab`
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  stafett-lab completions bash > ~/.local/share/bash-completion/completions/stafett-lab"
)]
pub(super) struct Completions {
    /// Which shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(
            self.shell,
            &mut CommandLine::command(),
            "stafett-lab",
            &mut script,
        );
        io::stdout().write_all(&script).map_err(anyhow::Error::from)?;
        Ok(())
    }
}
