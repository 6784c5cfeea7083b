//! The command line: one file per command. A new command is one of these, a variant of [`Command`], and its
//! row in [`run`].

mod agent;
mod analyze;
mod command_docs;
mod completions;
mod list;
mod progress;
mod report;
mod run;
mod serve;
mod stub;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;

/// Run the same workload on Stafett, Kafka and RabbitMQ, and draw the results
#[derive(Debug, Parser)]
#[command(name = "stafett-lab", version, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    List(list::List),
    Run(run::Run),
    Serve(serve::Serve),
    Agent(agent::Agent),
    Report(report::Report),
    Compare(report::Compare),
    Analyze(analyze::Analyze),
    Stub(stub::Stub),
    Completions(completions::Completions),
    CommandDocs(command_docs::CommandDocs),
}

/// Reads the command line and runs the command. Mistakes in it end the process here, with exit code 2.
pub(crate) fn run() -> Result<(), Failure> {
    // Usage lines take the program's name from the first argument: `stafett lab` where that started it.
    let done = match CommandLine::parse().command {
        Command::List(command) => command.run(),
        Command::Run(command) => command.run(),
        Command::Serve(command) => command.run(),
        Command::Agent(command) => command.run(),
        Command::Report(command) => command.run(),
        Command::Compare(command) => command.run(),
        Command::Analyze(command) => command.run(),
        Command::Stub(command) => command.run(),
        Command::Completions(command) => command.run(),
        Command::CommandDocs(command) => command.run(),
    };
    match done {
        Err(failure) if failure.is_broken_pipe() => Ok(()),
        done => done,
    }
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
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::CommandLine::command().debug_assert();
    }
}
