//! `stafett lab stub`: a server that stores nothing, for the lab to measure clients against. Hidden: the lab
//! starts it.

use std::io::{self, Write as _};

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use stafett_lab::drivers::{amqp, stub};

use super::option;
use crate::failure::Failure;

const LISTEN: &str = "listen";
const AMQP: &str = "amqp";
const RECORDS: &str = "records";
const PARTITIONS: &str = "partitions";

pub(super) fn describe() -> Command {
    Command::new("stub")
        .about("Answer clients without storing anything")
        .hide(true)
        .arg(
            Arg::new(AMQP)
                .long(AMQP)
                .action(ArgAction::SetTrue)
                .help("RabbitMQ's clients instead of Kafka's"),
        )
        .arg(option(LISTEN, "HOST:PORT", "Where clients connect").default_value("127.0.0.1:0"))
        .arg(
            option(
                RECORDS,
                "NUMBER",
                "Every topic exists, and each partition seems to hold so many records of 100 bytes",
            )
            .value_parser(value_parser!(i64).range(0..)),
        )
        .arg(
            option(
                PARTITIONS,
                "NUMBER",
                "How many partitions every topic has, with --records",
            )
            .default_value("6")
            .value_parser(value_parser!(u16).range(1..)),
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
    let done = if matches.get_flag(AMQP) {
        runtime.block_on(serve_amqp(address))
    } else {
        runtime.block_on(serve_kafka(address, matches))
    };
    done.map_err(Failure::from)
}

async fn serve_kafka(address: &str, matches: &ArgMatches) -> anyhow::Result<()> {
    let stub = stub::Stub::bind(address).await;
    let mut stub = stub.with_context(|| format!("{address} cannot be listened on"))?;
    if let Some(records) = matches.get_one::<i64>(RECORDS) {
        let partitions = matches.get_one::<u16>(PARTITIONS).copied().unwrap_or(6);
        stub.fill(partitions.into(), *records)
            .context("no batch can be made")?;
    }
    writeln!(io::stdout(), "kafka listening on {}", stub.address()?)?;
    stub.serve().await.context("the stub ended")
}

async fn serve_amqp(address: &str) -> anyhow::Result<()> {
    let stub = amqp::stub::Stub::bind(address).await;
    let stub = stub.with_context(|| format!("{address} cannot be listened on"))?;
    writeln!(io::stdout(), "amqp listening on {}", stub.address()?)?;
    stub.serve().await.context("the stub ended")
}
