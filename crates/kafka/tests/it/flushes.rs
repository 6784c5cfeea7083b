//! Kafka's settings of flushes set the level of a topic.

use stafett_kafka_wire::Str;
use stafett_kafka_wire::messages::alter_configs::{self, AlterConfigsResource};
use stafett_kafka_wire::messages::create_topics::{CreatableTopic, CreatableTopicConfig};
use stafett_kafka_wire::messages::describe_configs::DescribeConfigsResource;
use stafett_kafka_wire::messages::incremental_alter_configs::{
    AlterConfigsResource as ChangedResource, AlterableConfig,
};
use stafett_kafka_wire::messages::{
    AlterConfigsRequest, CreateTopicsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest,
};
use stafett_model::Durability;

use crate::peer::{Client, Server};

const TOPIC: i8 = 2;

/// Creates the topic `t` with one setting.
async fn create(client: &mut Client, name: &'static str, value: &'static str) {
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: "t".into(),
            num_partitions: 1,
            replication_factor: 1,
            configs: vec![CreatableTopicConfig {
                name: name.into(),
                value: Some(value.into()),
            }],
            ..CreatableTopic::default()
        }],
        timeout_ms: 1000,
        validate_only: false,
    };
    let told = client.call(7, &request).await.topics.remove(0);
    assert_eq!(told.error_code, 0, "{:?}", told.error_message);
}

/// Replaces all settings of the topic by one.
async fn replace(client: &mut Client, name: &'static str, value: &'static str) {
    let request = AlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: TOPIC,
            resource_name: "t".into(),
            configs: vec![alter_configs::AlterableConfig {
                name: name.into(),
                value: Some(value.into()),
            }],
        }],
        validate_only: false,
    };
    let told = client.call(2, &request).await.responses.remove(0);
    assert_eq!(told.error_code, 0, "{:?}", told.error_message);
}

/// Sets one setting of the topic, or removes it.
async fn change(client: &mut Client, name: &'static str, value: Option<&'static str>) {
    let request = IncrementalAlterConfigsRequest {
        resources: vec![ChangedResource {
            resource_type: TOPIC,
            resource_name: "t".into(),
            configs: vec![AlterableConfig {
                name: name.into(),
                config_operation: i8::from(value.is_none()),
                value: value.map(Str::from_static),
            }],
        }],
        validate_only: false,
    };
    let told = client.call(1, &request).await.responses.remove(0);
    assert_eq!(told.error_code, 0, "{:?}", told.error_message);
}

/// Returns the values of `flush.messages`, `flush.ms` and `stafett.durability` as described.
async fn described(client: &mut Client) -> [String; 3] {
    let names = ["flush.messages", "flush.ms", "stafett.durability"];
    let request = DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: TOPIC,
            resource_name: "t".into(),
            configuration_keys: None,
        }],
        ..DescribeConfigsRequest::default()
    };
    let configs = client.call(4, &request).await.results.remove(0).configs;
    names.map(|name| {
        let found = configs.iter().find(|config| &*config.name == name);
        found.unwrap().value.as_ref().unwrap().to_string()
    })
}

fn level(server: &Server) -> Durability {
    let topic = server.broker.topics().named("t").unwrap();
    server.broker.catalog().log_spec(&topic).durability
}

#[tokio::test]
async fn a_topic_that_flushes_each_write_is_at_sync_and_is_described_so() {
    const NEVER: &str = "9223372036854775807";
    let server = Server::start().await;
    let mut client = server.client().await;
    create(&mut client, "flush.messages", "1").await;
    assert_eq!(described(&mut client).await, ["1", NEVER, "sync"]);
    assert_eq!(level(&server), Durability::Sync);
    replace(&mut client, "flush.ms", "1000").await;
    assert_eq!(described(&mut client).await, [NEVER, "1000", "os"]);
    assert_eq!(level(&server), Durability::Os);
    change(&mut client, "flush.ms", Some("0")).await;
    drop(client);
    let server = server.restart().await;
    let mut client = server.client().await;
    assert_eq!(described(&mut client).await, [NEVER, "0", "sync"]);
    assert_eq!(level(&server), Durability::Sync);
    change(&mut client, "flush.ms", None).await;
    assert_eq!(described(&mut client).await, [NEVER, NEVER, "os"]);
    assert_eq!(level(&server), Durability::Os);
}
