//! Apache Kafka: one broker that is its own controller, fetched and started by `tools/peers/kafka`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::process::Command;

use super::process::Process;
use super::stafett::{empty, plain};
use super::{Place, StartError, System, answer_of, there};
use crate::experiment::{Plan, Protocol};

/// The first start fetches the jars.
const READY_WITHIN: Duration = Duration::from_mins(10);

pub(super) async fn start(plan: &Plan, place: &Place) -> Result<System, StartError> {
    let own = &plan.system.kafka;
    if own.is_there() {
        return there("kafka", plan, own).await;
    }
    let script = super::script(place, "kafka")?;
    let data = place.data.join("kafka");
    empty(&data)?;
    let mut command = Command::new(script);
    command.arg("serve").arg("--data-dir").arg(&data);
    command.args(["--kafka", &format!("{}:0", place.host)]);
    let mut settings = BTreeMap::new();
    // Topics that a point has used are gone before the next one is measured.
    let mut properties = vec![("log.segment.delete.delay.ms".to_owned(), "1000".to_owned())];
    properties.extend(own.set.iter().map(|(name, value)| (name.clone(), plain(value))));
    for (name, value) in properties {
        command.arg("--property").arg(format!("{name}={value}"));
        settings.insert(name, value);
    }
    let heap = own.heap.clone().unwrap_or_else(|| "1g".to_owned());
    command.env("KAFKA_HEAP", &heap);
    settings.insert("heap".to_owned(), heap);
    let started = Instant::now();
    let mut address = None;
    let is_ready = |line: &str| {
        if let Some(at) = line.strip_prefix("kafka listening on ") {
            address = Some(at.to_owned());
        }
        (line == "ready").then(|| address.clone().unwrap_or_default())
    };
    let (process, address) = Process::start(command, "kafka", &place.logs, READY_WITHIN, is_ready).await?;
    let answered = answer_of(&process, (Protocol::Kafka, &address), started, READY_WITHIN).await?;
    let log = std::fs::read_to_string(data.join("server.log")).unwrap_or_default();
    let version = log
        .lines()
        .find_map(|line| line.split_once("Kafka version: "))
        .map(|(_, version)| version.split_whitespace().next().unwrap_or_default().to_owned());
    Ok(System {
        name: "kafka".to_owned(),
        addresses: BTreeMap::from([(Protocol::Kafka, address)]),
        version: version.unwrap_or_default(),
        settings,
        cold_start: Some(answered.after),
        process: Some(process),
        key: String::new(),
    })
}
