//! Kafka's own tools, and the two small programs of `bench/java`.

use std::process::Command;

use crate::broker::Broker;
use crate::peer;

/// A tool of Kafka on a JVM that is tuned to start quickly.
fn tool(class: &str) -> Option<Command> {
    let launcher = peer::kafka_tools()?;
    let mut command = peer::command(&launcher);
    command
        .env(
            "KAFKA_TOOL_OPTS",
            "-Xmx256m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        )
        .args(["run", class]);
    Some(command)
}

fn read_with_assign(broker: &Broker, topic: &str, messages: u32) -> String {
    let mut consumer = tool("AssignConsumer").unwrap();
    peer::run_text(consumer.args([broker.kafka(), topic, &messages.to_string()]))
}

#[test]
fn topic_command_creates_lists_describes_and_deletes() {
    let Some(_) = tool("TopicCommand") else { return };
    let broker = Broker::start();
    let topics = |arguments: &str| {
        let mut command = tool("TopicCommand").unwrap();
        peer::run_text(
            command
                .args(["--bootstrap-server", broker.kafka()])
                .args(arguments.split(' ')),
        )
    };
    topics(
        "--create --topic jvm.topics --partitions 3 --replication-factor 1 --config max.message.bytes=70000",
    );
    assert!(topics("--list").lines().any(|line| line == "jvm.topics"));
    let description = topics("--describe --topic jvm.topics");
    assert!(description.contains("PartitionCount: 3"), "{description}");
    assert!(description.contains("max.message.bytes=70000"), "{description}");
    assert_eq!(description.matches("Leader: ").count(), 3, "{description}");
    topics("--delete --topic jvm.topics");
    assert!(!topics("--list").lines().any(|line| line == "jvm.topics"));
}

#[test]
fn what_producer_performance_sends_arrives_at_the_assign_consumer() {
    let Some(mut producer) = tool("ProducerPerformance") else {
        return;
    };
    let mut broker = Broker::start_at("os");
    let report = peer::run_text(
        producer
            .args([
                "--topic",
                "jvm.performance",
                "--num-records",
                "200000",
                "--record-size",
                "100",
            ])
            .args(["--throughput", "-1", "--bootstrap-server", broker.kafka()])
            .args([
                "--command-property",
                "acks=all",
                "linger.ms=5",
                "batch.size=65536",
            ]),
    );
    assert!(report.contains("200000 records sent"), "{report}");
    broker.restart();
    let report = read_with_assign(&broker, "jvm.performance", 200_000);
    assert!(report.starts_with("records=200000 bytes=20000000 "), "{report}");
}

#[test]
fn verifiable_producer_gets_every_send_acknowledged() {
    let Some(mut producer) = tool("VerifiableProducer") else {
        return;
    };
    let broker = Broker::start();
    let report = peer::run_text(
        producer
            .args([
                "--topic",
                "jvm.verifiable",
                "--max-messages",
                "5000",
                "--repeating-keys",
                "10",
            ])
            .args(["--bootstrap-server", broker.kafka()]),
    );
    assert_eq!(report.matches("\"name\":\"producer_send_success\"").count(), 5000);
    assert!(!report.contains("producer_send_error"));
    let report = read_with_assign(&broker, "jvm.verifiable", 5000);
    assert!(report.starts_with("records=5000 "), "{report}");
}

#[test]
fn a_java_producer_that_waits_for_each_record_is_answered_each_time() {
    let Some(mut producer) = tool("SequentialProduce") else {
        return;
    };
    let broker = Broker::start();
    let report = peer::run_text(producer.args([broker.kafka(), "jvm.sequential", "2000", "100", "0"]));
    assert!(report.starts_with("messages=2000 "), "{report}");
}
