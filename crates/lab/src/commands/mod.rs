//! The command line: one file per command. A new command is one of these and a line in [`COMMANDS`].

mod agent;
mod command_docs;
mod completions;
mod list;
mod progress;
mod report;
mod run;
mod stub;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command, value_parser};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;

/// A command: the functions that describe it and that run it.
type Entry = (fn() -> Command, fn(&ArgMatches) -> Result<(), Failure>);

const COMMANDS: &[Entry] = &[
    (list::describe, list::run),
    (run::describe, run::run),
    (agent::describe, agent::run),
    (report::describe, report::run),
    (report::describe_compare, report::run_compare),
    (stub::describe, stub::run),
    (completions::describe, completions::run),
    (command_docs::describe, command_docs::run),
];

/// Reads the command line and runs the command. Mistakes in it end the process here, with exit code 2.
pub(crate) fn run() -> Result<(), Failure> {
    // Usage lines take the program's name from the first argument: `stafett lab` where that started it.
    let matches = describe().get_matches();
    let Some((name, matches)) = matches.subcommand() else {
        return Ok(());
    };
    let Some((_, run)) = COMMANDS
        .iter()
        .find(|(describe, _)| describe().get_name() == name)
    else {
        return Ok(());
    };
    match run(matches) {
        Err(failure) if failure.is_broken_pipe() => Ok(()),
        done => done,
    }
}

fn describe() -> Command {
    Command::new("stafett-lab")
        .about("Run the same workload on Stafett, Kafka and RabbitMQ, and draw what was measured")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(COMMANDS.iter().map(|(describe, _)| describe()))
}

/// An option with a value.
fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

/// An option with the path of a file or folder.
fn path_option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    option(name, value, help).value_parser(value_parser!(PathBuf))
}

/// Returns the runtime for load: a few threads, and as many descriptors as this user may have.
fn runtime() -> anyhow::Result<Runtime> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Refused, the limit stays as it is: a load with too many connections reports that itself.
    let _ = setrlimit(Resource::Nofile, raised);
    Builder::new_multi_thread()
        .worker_threads(std::thread::available_parallelism().map_or(2, usize::from).min(8))
        .enable_all()
        .build()
        .context("no threads can be started")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::describe().debug_assert();
    }
}
