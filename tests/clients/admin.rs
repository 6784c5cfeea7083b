//! Administration with Kafka's own tools. A JVM takes a second or two to start, so each test covers many
//! commands.

use std::fs;

use crate::broker::Broker;
use crate::java::tool;
use crate::peer;

/// Runs a tool against a broker and returns its output.
fn run(broker: &Broker, class: &str, arguments: &str) -> String {
    let mut command = tool(class).unwrap();
    command.args(["--bootstrap-server", broker.kafka()]);
    peer::run_text(command.args(arguments.split(' ')))
}

#[test]
fn topics_grow_and_change_their_settings_and_keep_both_over_a_restart() {
    if tool("TopicCommand").is_none() {
        return;
    }
    let mut broker = Broker::start();
    run(
        &broker,
        "TopicCommand",
        "--create --topic jvm.admin --partitions 2",
    );
    run(
        &broker,
        "TopicCommand",
        "--alter --topic jvm.admin --partitions 5",
    );
    let configs = "kafka.admin.ConfigCommand";
    let topic = "--entity-type topics --entity-name jvm.admin";
    let set = format!("--alter {topic} --add-config retention.ms=7000,segment.bytes=2097152");
    run(&broker, configs, &set);
    run(
        &broker,
        configs,
        &format!("--alter {topic} --delete-config segment.bytes"),
    );
    broker.restart();
    let described = run(&broker, "TopicCommand", "--describe --topic jvm.admin");
    assert!(described.contains("PartitionCount: 5"), "{described}");
    assert!(described.contains("retention.ms=7000"), "{described}");
    let described = run(&broker, configs, &format!("--describe {topic}"));
    assert!(
        described.contains("DYNAMIC_TOPIC_CONFIG:retention.ms=7000"),
        "{described}"
    );
    assert!(!described.contains("segment.bytes"), "{described}");
}

#[test]
fn settings_of_brokers_and_groups_are_set_shown_and_taken_back() {
    let configs = "kafka.admin.ConfigCommand";
    if tool(configs).is_none() {
        return;
    }
    let broker = Broker::start();
    let brokers = "--entity-type brokers --entity-default";
    run(
        &broker,
        configs,
        &format!("--alter {brokers} --add-config log.retention.ms=60000"),
    );
    let described = run(&broker, configs, &format!("--describe {brokers}"));
    assert!(described.contains("log.retention.ms=60000"), "{described}");
    run(
        &broker,
        configs,
        &format!("--alter {brokers} --delete-config log.retention.ms"),
    );
    let described = run(&broker, configs, &format!("--describe {brokers}"));
    assert!(!described.contains("log.retention.ms"), "{described}");
    let group = "--entity-type groups --entity-name jvm";
    let set = format!("--alter {group} --add-config consumer.session.timeout.ms=50000");
    run(&broker, configs, &set);
    let described = run(&broker, configs, &format!("--describe {group}"));
    assert!(
        described.contains("consumer.session.timeout.ms=50000"),
        "{described}"
    );
}

#[test]
fn records_are_deleted_and_what_is_left_is_measured() {
    let Some(mut producer) = tool("VerifiableProducer") else {
        return;
    };
    let broker = Broker::start();
    run(
        &broker,
        "TopicCommand",
        "--create --topic jvm.records --partitions 1",
    );
    let arguments = [
        "--topic",
        "jvm.records",
        "--max-messages",
        "100",
        "--bootstrap-server",
    ];
    peer::run(producer.args(arguments).arg(broker.kafka()));
    let file = broker.folder().join("records.json");
    let asked = r#"{"version":1,"partitions":[{"topic":"jvm.records","partition":0,"offset":40}]}"#;
    fs::write(&file, asked).unwrap();
    let arguments = format!("--offset-json-file {}", file.display());
    let deleted = run(&broker, "DeleteRecordsCommand", &arguments);
    assert!(deleted.contains("low_watermark: 40"), "{deleted}");
    let earliest = run(&broker, "GetOffsetShell", "--topic jvm.records --time earliest");
    assert_eq!(earliest.trim(), "jvm.records:0:40");
    let latest = run(&broker, "GetOffsetShell", "--topic jvm.records");
    assert_eq!(latest.trim(), "jvm.records:0:100");
    let folders = run(&broker, "LogDirsCommand", "--describe --topic-list jvm.records");
    assert!(folders.contains(r#""partition":"jvm.records-0""#), "{folders}");
}

#[test]
fn the_cluster_is_described_as_one_node() {
    if tool("ClusterTool").is_none() {
        return;
    }
    let broker = Broker::start();
    let say = |class: &str, arguments: &[&str]| {
        let mut command = tool(class).unwrap();
        peer::run_text(command.args(arguments))
    };
    let address = broker.kafka();
    let quorum = run(&broker, "MetadataQuorumCommand", "describe --status");
    assert!(quorum.contains("LeaderId:               1"), "{quorum}");
    let features = run(&broker, "FeatureCommand", "describe");
    assert!(features.contains("Feature: metadata.version"), "{features}");
    let cluster = say("ClusterTool", &["cluster-id", "--bootstrap-server", address]);
    let id = cluster.trim().trim_start_matches("Cluster ID: ");
    assert_eq!(id.len(), 22, "{cluster}");
    assert!(quorum.contains(id), "{quorum}");
}
