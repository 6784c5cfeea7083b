//! `stafett lab`: replaces this process with `stafett-lab`, the program beside this one.
//!
//! Arguments, terminal, signals and exit code are those of that program; this one does not interpret them.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process;

use anyhow::{Context as _, anyhow};
use clap::{Arg, ArgMatches, Command, value_parser};

use crate::failure::Failure;

/// File name of the program, which is in the folder of this one.
const PROGRAM: &str = "stafett-lab";
/// Name of the program in its own usage lines.
const NAME: &str = "stafett lab";
const ARGUMENTS: &str = "ARGUMENTS";

pub(super) fn describe() -> Command {
    Command::new("lab")
        .about("Run the same workload on Stafett, Kafka and RabbitMQ, and draw what was measured")
        .disable_help_flag(true)
        .arg(
            Arg::new(ARGUMENTS)
                .num_args(0..)
                .trailing_var_arg(true)
                .allow_hyphen_values(true)
                .value_parser(value_parser!(OsString))
                .help("A command of the lab and its arguments; `--help` lists them"),
        )
        .after_help(
            "The program `stafett-lab`, beside this one, does it; docs/lab/commands.md has its commands.",
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let arguments = matches.get_many::<OsString>(ARGUMENTS).into_iter().flatten();
    replace(PROGRAM, NAME, arguments)
}

/// Replaces this process with a program that is in its folder.
pub(super) fn replace<'a>(
    program: &str,
    name: &str,
    arguments: impl Iterator<Item = &'a OsString>,
) -> Result<(), Failure> {
    let own = env::current_exe().context("this program's own file is not known")?;
    let program = own.with_file_name(program);
    // Returns only if the program cannot be run.
    let error = process::Command::new(&program).arg0(name).args(arguments).exec();
    let program = program.display();
    Err(Failure::Start(if error.kind() == io::ErrorKind::NotFound {
        anyhow!("{program}: there is no such program; `make build` builds all")
    } else {
        anyhow!(error).context(format!("{program} cannot be run"))
    }))
}
