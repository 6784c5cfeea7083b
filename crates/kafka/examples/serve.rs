//! The front end on a journal of its own, without the rest of the program: for trying it out.
//!
//! `cargo run -p stafett-kafka --example serve -- [--listen ADDR] [--data-dir DIR] [--durability LEVEL]`

#![expect(clippy::print_stdout, reason = "says where it listens")]

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Parser;
use prometheus_client::registry::Registry;
use stafett_broker::{Broker, BrokerSettings};
use stafett_journal::{DiskJournal, LogSpec, Metrics, Retention, Settings};
use stafett_kafka::{Kafka, KafkaSettings};
use stafett_model::Durability;
use stafett_net::{BudgetSettings, ByteBudget, Listener, ListenerSettings, NetMetrics, Shared, Shutdown};

#[derive(Parser)]
struct Args {
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
    /// A directory that goes when the program ends, if none is given.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    #[arg(long, default_value = "sync")]
    durability: Durability,
    #[arg(long, default_value_t = 1)]
    partitions: u32,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing::Level::DEBUG)
        .init();
    let args = Args::parse();
    let temporary = tempfile::tempdir()?;
    let directory = args.data_dir.as_deref().unwrap_or_else(|| temporary.path());
    let journal = Arc::new(DiskJournal::open(directory, Settings::default(), Metrics::new())?);
    let settings = BrokerSettings {
        logs: LogSpec {
            durability: args.durability,
            retention: Retention::default(),
        },
        message_bytes_max: 1_048_588,
        append_time: false,
        partitions: args.partitions,
    };
    let broker = Arc::new(Broker::start(Arc::clone(&journal) as _, settings).await?);
    let mut registry = Registry::default();
    let kafka = Kafka::new(broker, KafkaSettings::default(), &mut registry);
    let net = NetMetrics::register(&mut registry);
    let addresses = stafett_net::resolve(&args.listen).await?;
    let listener = Listener::bind(&addresses, ListenerSettings::new("kafka", 10_000), &net)?;
    println!(
        "kafka listening on {}",
        listener.local_addr().context("no address")?
    );
    let shutdown = Shutdown::new();
    let shared = Shared::new(
        shutdown.clone(),
        ByteBudget::new(BudgetSettings { bytes: 256 << 20 }),
    );
    let serving = stafett_net::serve(listener, Arc::new(kafka), shared);
    tokio::select! {
        () = serving => {}
        stopped = tokio::signal::ctrl_c() => stopped?,
    }
    shutdown.abort();
    stafett_journal::Journal::close(&*journal);
    Ok(())
}
