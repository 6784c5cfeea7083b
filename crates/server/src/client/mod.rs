//! Shared parts of the daily commands: the server to use, connections and output.
//!
//! - [`session`]: a connected client, and its output
//! - [`table`]: aligned columns
//! - [`trust`]: TLS to a broker
//! - [`escapes`]: `\n` and its like
//! - [`human`]: numbers, sizes and times for people
//! - [`http`]: requests of the commands that ask the HTTP port
//! - [`options`]: arguments and options that several commands have
//! - [`position`]: places in a topic, such as `earliest` or `10m ago`
//! - [`advice`]: advice in error messages
//! - [`partitions`]: a topic with some of its partitions

pub(crate) mod advice;
pub(crate) mod escapes;
pub(crate) mod http;
pub(crate) mod human;
pub(crate) mod options;
pub(crate) mod partitions;
pub(crate) mod position;
pub(crate) mod session;
pub(crate) mod table;
pub(crate) mod trust;

use std::future::Future;

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::config::kind::host_port;
use crate::failure::Failure;
pub(crate) use session::Session;

/// Names the server if no flag does.
pub(crate) const SERVER_VARIABLE: &str = "STAFETT_SERVER";
const SERVER: &str = "server";
const JSON: &str = "json";

/// Adds the flags that all daily commands share. They may stand before or behind a subcommand.
pub(crate) fn command(command: Command) -> Command {
    command.arg(server_arg()).arg(
        Arg::new(JSON)
            .long(JSON)
            .action(ArgAction::SetTrue)
            .global(true)
            .display_order(101)
            .help("JSON for programs: one object per line"),
    )
}

/// Returns the flag with the broker's Kafka listener.
pub(crate) fn server_arg() -> Arg {
    Arg::new(SERVER)
        .long(SERVER)
        .value_name("HOST:PORT")
        .env(SERVER_VARIABLE)
        .hide_env_values(true)
        .default_value("127.0.0.1:9092")
        .value_delimiter(',')
        .value_parser(server)
        .global(true)
        .display_order(100)
        .help("The broker to talk to; several, with commas between them, are tried in order")
}

/// Returns the brokers that the flags name.
pub(crate) fn servers(matches: &ArgMatches) -> Vec<String> {
    let servers = matches.get_many::<String>(SERVER);
    servers.into_iter().flatten().cloned().collect()
}

fn server(text: &str) -> Result<String, String> {
    match host_port(text)? {
        (_, 0) => Err("port 0 cannot be connected to".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// Connects according to the flags and runs `work`.
pub(crate) fn run<W, F>(matches: &ArgMatches, work: W) -> Result<(), Failure>
where
    W: FnOnce(Session) -> F,
    F: Future<Output = anyhow::Result<()>>,
{
    let servers = servers(matches);
    let json = matches.get_flag(JSON);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("no threads can be started")?;
    let done = runtime.block_on(async {
        let session = Session::open(&servers, json).await?;
        work(session).await
    });
    // A thread may still be reading standard input, which is not needed any more.
    runtime.shutdown_background();
    done.map_err(Failure::from)
}
