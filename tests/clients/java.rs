//! Kafka's own tools, and small programs of `bench/java`.

use std::process::Command;

use crate::broker::Broker;
use crate::peer;

/// A tool of Kafka on a JVM that is tuned to start quickly.
pub(crate) fn tool(class: &str) -> Option<Command> {
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

#[test]
fn consumers_of_a_group_commit_and_the_group_command_sees_resets_and_deletes() {
    const RECORDS: &str = "50000";
    let Some(mut producer) = tool("ProducerPerformance") else {
        return;
    };
    let broker = Broker::start_at("os");
    let at = broker.kafka().to_owned();
    let server = ["--bootstrap-server", &at];
    let create = "--create --topic jvm.group --partitions 3 --replication-factor 1";
    peer::run(tool("TopicCommand").unwrap().args(server).args(create.split(' ')));
    let produce = "--topic jvm.group --record-size 100 --throughput -1 --num-records";
    peer::run(
        producer
            .args(server)
            .args(produce.split(' '))
            .arg(RECORDS)
            .args(["--command-property", "acks=all"]),
    );

    let ends = peer::run_text(
        tool("GetOffsetShell")
            .unwrap()
            .args(server)
            .args(["--topic", "jvm.group"]),
    );
    assert_eq!(sum(ends.lines(), ':', 2), 50_000, "{ends}");

    let consume = "--topic jvm.group --group jvm.g --hide-header --num-records";
    let report = peer::run_text(
        tool("ConsumerPerformance")
            .unwrap()
            .args(server)
            .args(consume.split(' '))
            .arg(RECORDS),
    );
    assert!(report.contains(RECORDS), "{report}");

    let group = |arguments: &str| {
        let mut command = tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand").unwrap();
        peer::run_text(command.args(server).args(arguments.split(' ')))
    };
    let described = group("--describe --group jvm.g");
    assert_eq!(lag(&described), 0, "{described}");
    let reset = group("--reset-offsets --to-earliest --topic jvm.group --group jvm.g --execute");
    assert!(reset.contains("jvm.group"), "{reset}");

    // Commits by hand after each poll, in the other protocol, and leaves after the last record.
    let verified = "--topic jvm.group --group-id jvm.g --group-protocol consumer --max-messages";
    let report = peer::run_text(
        tool("VerifiableConsumer")
            .unwrap()
            .args(server)
            .args(verified.split(' '))
            .arg(RECORDS),
    );
    assert!(report.contains("\"name\":\"offsets_committed\""), "{report}");
    assert!(!report.contains("\"success\":false"), "{report}");
    assert_eq!(consumed(&report), 50_000);

    let described = group("--describe --group jvm.g");
    assert_eq!(lag(&described), 0, "{described}");
    let deleted = group("--delete --group jvm.g");
    assert!(deleted.contains("successful"), "{deleted}");
    assert!(!group("--list").lines().any(|line| line == "jvm.g"));
}

#[test]
fn end_to_end_latency_gets_each_record_before_it_sends_the_next() {
    let Some(mut latency) = tool("EndToEndLatency") else {
        return;
    };
    let broker = Broker::start();
    let report = peer::run_text(
        latency
            .args(["--bootstrap-server", broker.kafka()])
            .args("--topic jvm.latency --num-records 500 --producer-acks all --record-size 100".split(' ')),
    );
    assert!(report.contains("Percentiles"), "{report}");
}

#[test]
fn a_record_that_a_share_group_cannot_process_takes_no_other_along() {
    let Some(mut member) = tool("PoisonedShare") else {
        return;
    };
    let broker = Broker::start();
    let mut create = tool("TopicCommand").unwrap();
    create.args(["--create", "--topic", "jvm.poisoned", "--partitions", "1"]);
    peer::run(create.args(["--bootstrap-server", broker.kafka()]));
    let report = peer::run_text(member.args([broker.kafka(), "jvm.poisoned", "40", "27"]));
    assert!(report.starts_with("accepted=39 lost=0 "), "{report}");
}

/// The sum of a column of numbers.
pub(crate) fn sum<'a>(lines: impl Iterator<Item = &'a str>, separator: char, column: usize) -> u64 {
    lines
        .filter_map(|line| line.split(separator).filter(|word| !word.is_empty()).nth(column))
        .filter_map(|word| word.parse::<u64>().ok())
        .sum()
}

/// The lag of all partitions that `ConsumerGroupCommand --describe` lists.
fn lag(described: &str) -> u64 {
    let lines = || described.lines().filter(|line| line.contains("jvm.group"));
    assert_eq!(lines().count(), 3, "{described}");
    sum(lines(), ' ', 5)
}

/// Sums the records that a `VerifiableConsumer` reports.
fn consumed(report: &str) -> u64 {
    let counts = report
        .lines()
        .filter(|line| line.contains("\"name\":\"records_consumed\""))
        .filter_map(|line| line.split("\"count\":").nth(1));
    counts
        .filter_map(|rest| rest.split([',', '}']).next()?.parse::<u64>().ok())
        .sum()
}
