//! `stafett sql`: replaces this process with `stafett-sql`, the program beside this one.

use std::ffi::OsString;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::lab::replace;
use crate::failure::Failure;

/// File name of the program, which is in the folder of this one.
const PROGRAM: &str = "stafett-sql";
/// Name of the program in its own usage lines.
const NAME: &str = "stafett sql";
const ARGUMENTS: &str = "ARGUMENTS";

pub(super) fn describe() -> Command {
    Command::new("sql")
        .about("Ask topics, and files of sinks, by SQL")
        .disable_help_flag(true)
        .arg(
            Arg::new(ARGUMENTS)
                .num_args(0..)
                .trailing_var_arg(true)
                .allow_hyphen_values(true)
                .value_parser(value_parser!(OsString))
                .help("A question and its bounds; `--help` lists them"),
        )
        .after_help("The program `stafett-sql`, beside this one, does it; docs/sql.md is its page.")
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let arguments = matches.get_many::<OsString>(ARGUMENTS).into_iter().flatten();
    replace(PROGRAM, NAME, arguments)
}
