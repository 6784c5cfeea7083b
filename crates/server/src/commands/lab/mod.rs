//! `stafett lab`: the same workload on several brokers, measured and drawn.

mod agent;
mod list;
mod progress;
mod report;
mod run;
mod stub;

use anyhow::Context;
use clap::{ArgMatches, Command};
use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;
use crate::limits;

pub(super) fn describe() -> Command {
    Command::new("lab")
        .about("Run the same workload on Stafett, Kafka and RabbitMQ, and draw what was measured")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(list::describe())
        .subcommand(run::describe())
        .subcommand(agent::describe())
        .subcommand(report::describe())
        .subcommand(report::describe_compare())
        .subcommand(stub::describe())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("list", matches)) => list::run(matches),
        Some(("run", matches)) => run::run(matches),
        Some(("agent", matches)) => agent::run(matches),
        Some(("report", matches)) => report::run(matches),
        Some(("compare", matches)) => report::run_compare(matches),
        Some(("stub", matches)) => stub::run(matches),
        _ => Ok(()),
    }
}

/// What load runs on: a few threads, and as many connections as this user may have.
fn runtime() -> anyhow::Result<Runtime> {
    limits::raise_descriptors();
    Builder::new_multi_thread()
        .worker_threads(std::thread::available_parallelism().map_or(2, usize::from).min(8))
        .enable_all()
        .build()
        .context("no threads can be started")
}
