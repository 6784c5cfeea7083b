//! `stafett lab stub`: a server that stores nothing, for the lab to measure clients against. Hidden: the lab
//! starts it.

use std::io::{self, Write as _};

use anyhow::Context;
use clap::{Args, value_parser};
use stafett_lab::drivers::{amqp, stub};

use crate::failure::Failure;

/// Answer clients without storing anything
#[derive(Debug, Args)]
#[command(hide = true)]
pub(super) struct Stub {
    /// RabbitMQ's clients instead of Kafka's
    #[arg(long)]
    amqp: bool,
    /// Where clients connect
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    listen: String,
    /// Every topic exists, and each partition seems to hold this number of records of 100 bytes
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(i64).range(0..))]
    records: Option<i64>,
    /// How many partitions every topic has, with --records
    #[arg(long, value_name = "NUMBER", default_value = "6", value_parser = value_parser!(u16).range(1..))]
    partitions: u16,
}

impl Stub {
    pub(super) fn run(self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("no threads can be started")?;
        runtime.block_on(self.serve()).map_err(Failure::from)
    }

    async fn serve(self) -> anyhow::Result<()> {
        let unusable = || format!("{} cannot be listened on", self.listen);
        if self.amqp {
            let stub = amqp::stub::Stub::bind(&self.listen)
                .await
                .with_context(unusable)?;
            writeln!(io::stdout(), "amqp listening on {}", stub.address()?)?;
            return stub.serve().await.context("the stub ended");
        }
        let mut stub = stub::Stub::bind(&self.listen).await.with_context(unusable)?;
        if let Some(records) = self.records {
            stub.fill(self.partitions.into(), records)
                .context("no batch can be made")?;
        }
        writeln!(io::stdout(), "kafka listening on {}", stub.address()?)?;
        stub.serve().await.context("the stub ended")
    }
}
