//! `stafett command-docs`: prints the page about the commands, generated from their help. Hidden: it is for
//! changes to the commands.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use anyhow::Context;
use clap::{ArgMatches, Command};

use crate::failure::Failure;

const HEAD: &str = "# Commands

What `--help` says, command by command; made by `stafett command-docs`. The commands `topic`, `group`, `produce` and
`consume` speak Kafka's protocol, so they work with any broker of it.

Exit codes: 0 it worked, 1 it failed, 2 the command line or a setting is wrong. Tables are for people and may change;
programs read `--json`, whose names stay. Colour is used on terminals only, and not with `NO_COLOR`.
";
/// Width of the help texts, independent of the terminal.
const WIDTH: usize = 110;

pub(super) fn describe() -> Command {
    Command::new("command-docs")
        .about("Print docs/commands.md")
        .hide(true)
}

pub(super) fn run(_: &ArgMatches) -> Result<(), Failure> {
    io::stdout()
        .write_all(page().as_bytes())
        .context("the page cannot be printed")?;
    Ok(())
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    let mut root = super::describe().term_width(WIDTH).disable_help_subcommand(true);
    root.build();
    for command in root.get_subcommands() {
        section(&mut page, command, "stafett");
    }
    page
}

fn section(page: &mut String, command: &Command, parent: &str) {
    if command.is_hide_set() {
        return;
    }
    let name = format!("{parent} {}", command.get_name());
    let help = command.clone().bin_name(&name).render_help().to_string();
    let lines: Vec<_> = help.lines().map(str::trim_end).collect();
    let _ = write!(
        page,
        "\n## `{name}`\n\n```text\n{}\n```\n",
        lines.join("\n").trim_end()
    );
    for below in command.get_subcommands() {
        section(page, below, &name);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_about_commands_is_what_help_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == super::page(),
            "docs/commands.md is not up to date: cargo run -p stafett-server -- command-docs > docs/commands.md"
        );
    }
}
