//! `stafett lab stub`: a server that stores nothing, for the lab to measure clients against. Hidden: the lab starts it.

use std::io::{self, Write as _};

use anyhow::Context;
use clap::{Arg, ArgMatches, Command};
use stafett_lab::drivers::stub::Stub;

use crate::failure::Failure;

const LISTEN: &str = "listen";

pub(super) fn describe() -> Command {
    Command::new("stub")
        .about("Answer Kafka's clients without storing anything")
        .hide(true)
        .arg(
            Arg::new(LISTEN)
                .long(LISTEN)
                .value_name("HOST:PORT")
                .default_value("127.0.0.1:0")
                .help("Where clients connect"),
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let address = matches
        .get_one::<String>(LISTEN)
        .map_or("127.0.0.1:0", String::as_str);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("no threads can be started")?;
    let done: anyhow::Result<()> = runtime.block_on(async {
        let stub = Stub::bind(address)
            .await
            .with_context(|| format!("{address} cannot be listened on"))?;
        writeln!(io::stdout(), "kafka listening on {}", stub.address()?)?;
        stub.serve().await.context("the stub ended")
    });
    done.map_err(Failure::from)
}
