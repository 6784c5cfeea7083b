//! `stafett-lab command-docs`: prints the page about the commands from their `--help`. Hidden: it is a tool
//! for changing the commands.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};

use super::CommandLine;
use crate::failure::Failure;

const HEAD: &str = "# Commands of the lab

What `--help` says, command by command; made by `stafett-lab command-docs`. `stafett lab …` runs `stafett-lab …`, the program beside it;
exit codes and tables are those of [the other commands](../commands.md).
";
/// Columns for which help is laid out, whatever the terminal has.
const WIDTH: usize = 110;

/// Print docs/lab/commands.md
#[derive(Debug, Args)]
#[command(hide = true)]
pub(super) struct CommandDocs {}

impl CommandDocs {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Self {} = self;
        io::stdout()
            .write_all(page().as_bytes())
            .context("the page cannot be printed")?;
        Ok(())
    }
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    let mut root = CommandLine::command()
        .term_width(WIDTH)
        .disable_help_subcommand(true);
    root.build();
    for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = format!("stafett lab {}", command.get_name());
        let help = command.clone().bin_name(&name).render_help().to_string();
        let lines: Vec<_> = help.lines().map(str::trim_end).collect();
        let _ = write!(
            page,
            "\n## `{name}`\n\n```text\n{}\n```\n",
            lines.join("\n").trim_end()
        );
    }
    page
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_about_commands_is_what_help_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lab/commands.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == super::page(),
            "docs/lab/commands.md is not up to date: cargo run -p stafett-lab -- command-docs > docs/lab/commands.md"
        );
    }
}
