//! Kafka's verifiable tools while the broker and they themselves are killed: what a copier commits is there once,
//! and what a share group has acknowledged does not come again.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::broker::{Broker, external};
use crate::java::{sum, tool};
use crate::peer;
use crate::program::{Program, await_some};

/// A member that was killed is missed soon, and its partitions go to others.
const SETTINGS: [&str; 2] = [
    "groups.consumer_session_ms=6000",
    "groups.consumer_heartbeat_ms=1000",
];

/// A broker that can be killed, with the topic `in`, and the launcher of Kafka's tools.
fn start(partitions: &str) -> Option<(Broker, PathBuf)> {
    if external().is_some() {
        peer::skip(
            "a broker that runs elsewhere cannot be killed",
            "unset STAFETT_TEST_KAFKA_ADDR",
        );
        return None;
    }
    let launcher = peer::kafka_tools()?;
    let broker = Broker::start_with("sync", &SETTINGS);
    let server = ["--bootstrap-server", broker.kafka()];
    let mut create = tool("TopicCommand")?;
    create.args(["--create", "--topic", "in", "--partitions", partitions]);
    peer::run(create.args(server));
    Some((broker, launcher))
}

/// Writes numbers to the topic `in`.
fn produce(broker: &Broker, records: &str) {
    let mut producer = tool("VerifiableProducer").unwrap();
    producer.args([
        "--topic",
        "in",
        "--repeating-keys",
        "100",
        "--max-messages",
        records,
    ]);
    peer::run(producer.args(["--bootstrap-server", broker.kafka()]));
}

/// Starts a tool of Kafka.
fn run(launcher: &Path, broker: &Broker, class: &str, arguments: &str) -> Program {
    let log = broker.folder().join("tool.log");
    let arguments = ["run", class].into_iter().chain(arguments.split(' '));
    Program::start(launcher, arguments, &log)
}

const COPIED: &str = "12000";
/// Numbers of records that a copier says it has committed, between one end and the next.
const COPIER_KILLS: [u64; 2] = [2_000, 2_000];
const BROKER_KILLS: [u64; 2] = [1_500, 1_500];
/// A copier asks for its position before it ends the transaction of the one that was killed. If that has
/// commits, the answer waits for its timeout, and the copier waits for 60 s at most.
const TRANSACTION_MS: u32 = 15_000;

#[test]
fn a_copier_in_transactions_copies_once_and_in_order_while_it_and_the_broker_are_killed() {
    let Some(_) = peer::kcat() else { return };
    let Some((mut broker, launcher)) = start("1") else {
        return;
    };
    produce(&broker, COPIED);
    let arguments = format!(
        "--input-topic in --input-partition 0 --output-topic out --broker-list {} --consumer-group copiers \
         --transactional-id copier --transaction-size 50 --enable-random-aborts --use-group-metadata \
         --transaction-timeout {TRANSACTION_MS}",
        broker.kafka()
    );
    let copy = |broker: &Broker| run(&launcher, broker, "TransactionalMessageCopier", &arguments);
    let await_copied = |copier: &Program, count: u64| {
        copier.await_line(|line| event(line)["totalProcessed"].as_u64() >= Some(count));
    };
    let mut copier = copy(&broker);
    for (before_broker, before_copier) in BROKER_KILLS.into_iter().zip(COPIER_KILLS) {
        await_copied(&copier, before_broker);
        broker.kill_and_restart();
        await_copied(&copier, before_copier);
        copier.kill();
        copier = copy(&broker);
    }
    copier.await_line(|line| event(line)["stage"] == "ShutdownComplete");
    assert!(copier.end().0.success());
    assert!(read(&broker, "in") == read(&broker, "out"), "the copy differs");
}

/// The committed values of a topic with one partition.
fn read(broker: &Broker, topic: &str) -> String {
    let mut kcat = peer::command(&peer::kcat().unwrap());
    let values = peer::run_text(kcat.args(["-C", "-q", "-e", "-t", topic, "-b", broker.kafka()]));
    assert_eq!(values.lines().count().to_string(), COPIED, "{topic}");
    values
}

/// A line of JSON; null if it is none.
fn event(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_default()
}

const SHARED: usize = 40_000;

/// Records by partition and offset.
#[derive(Default)]
struct Reports {
    delivered: BTreeSet<(u64, u64)>,
    acknowledged: HashSet<(u64, u64)>,
}

impl Reports {
    /// Takes an event of a consumer. A record that is acknowledged a second time fails.
    fn take(&mut self, line: &str) {
        let event = event(line);
        let is_acknowledgement = event["name"] == "offsets_acknowledged" && event["success"] != false;
        let is_delivery = event["name"] == "records_consumed";
        for partition in event["partitions"].as_array().into_iter().flatten() {
            let number = partition["partition"].as_u64().unwrap();
            for offset in partition["offsets"].as_array().unwrap() {
                let record = (number, offset.as_u64().unwrap());
                if is_delivery {
                    self.delivered.insert(record);
                } else if is_acknowledgement {
                    assert!(self.acknowledged.insert(record), "{record:?} came again");
                }
            }
        }
    }

    fn await_acknowledged(&mut self, consumer: &Program, count: usize) {
        let awaited = self.acknowledged.len() + count;
        while self.acknowledged.len() < awaited {
            self.take(&consumer.await_line(|_| true));
        }
    }
}

#[test]
fn what_a_share_group_has_acknowledged_stays_so_while_the_broker_and_a_member_are_killed() {
    let Some((mut broker, launcher)) = start("3") else {
        return;
    };
    // A few records at a time, so that there are some left when something is killed.
    let settings = broker.folder().join("consumer.properties");
    fs::write(
        &settings,
        "max.poll.records=20\nshare.acquire.mode=record_limit\n",
    )
    .unwrap();
    let arguments = format!(
        "--topic in --group-id sharers --acknowledgement-mode sync --offset-reset-strategy earliest \
         --bootstrap-server {} --command-config {}",
        broker.kafka(),
        settings.display()
    );
    let members = [(); 2].map(|()| run(&launcher, &broker, "VerifiableShareConsumer", &arguments));
    for member in &members {
        member.await_line(|line| line.contains("offset_reset_strategy_set"));
    }
    let [killed, other] = members;
    produce(&broker, &SHARED.to_string());

    let mut reports = Reports::default();
    reports.await_acknowledged(&killed, 2_000);
    broker.kill_and_restart();
    reports.await_acknowledged(&killed, 2_000);
    for line in killed.kill() {
        reports.take(&line);
    }
    reports.await_acknowledged(&other, 2_000);
    broker.kill_and_restart();
    // What the killed member held comes when its connection has ended, its partitions when it is missed.
    while reports.delivered.len() < SHARED {
        reports.take(&other.await_line(|_| true));
    }
    await_some("the end of the lag", || (lag(&broker) == 0).then_some(()));
    for line in other.stop().1 {
        reports.take(&line);
    }
    let acknowledged = reports.acknowledged.len();
    println!("{acknowledged} of {SHARED} acknowledgements were answered");
}

/// The records that the share group has not settled.
fn lag(broker: &Broker) -> u64 {
    let mut describe = tool("org.apache.kafka.tools.consumer.group.ShareGroupCommand").unwrap();
    describe.args([
        "--describe",
        "--offsets",
        "--group",
        "sharers",
        "--bootstrap-server",
    ]);
    let described = peer::run_text(describe.arg(broker.kafka()));
    let lines = || described.lines().filter(|line| line.starts_with("sharers"));
    assert_eq!(lines().count(), 3, "{described}");
    sum(lines(), ' ', 4)
}
