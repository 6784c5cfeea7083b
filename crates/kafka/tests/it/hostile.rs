//! Hostile input: each is answered or ends the connection, is counted, and harms no other connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stafett_kafka::KafkaSettings;
use stafett_kafka_wire::messages::metadata::MetadataRequestTopic;
use stafett_kafka_wire::messages::{
    ApiVersionsRequest, CreateTopicsRequest, DescribeConfigsRequest, FetchRequest, ListOffsetsRequest,
    MetadataRequest, ProduceRequest,
};
use stafett_kafka_wire::{ApiKey, DecodeLimits, ErrorCode, frame};
use stafett_model::Tenure;
use tokio::io::AsyncWriteExt;

use crate::peer::{Client, Server, batch, fetch, fetch_topic, produce};

/// A frame around an API key, a version and what follows the correlation id.
fn request(api: i16, version: i16, rest: &[u8]) -> Vec<u8> {
    let length = i32::try_from(8 + rest.len()).unwrap();
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend_from_slice(&api.to_be_bytes());
    bytes.extend_from_slice(&version.to_be_bytes());
    bytes.extend_from_slice(&7_i32.to_be_bytes());
    bytes.extend_from_slice(rest);
    bytes
}

const NO_CLIENT: [u8; 2] = [0xff, 0xff];

#[tokio::test]
async fn frames_that_mean_nothing_end_the_connection_and_are_counted() {
    let server = Server::start().await;
    let huge_count = [&NO_CLIENT[..], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff], &[0x7f; 4]].concat();
    let cases: [(&str, Vec<u8>, &str); 13] = [
        ("negative length", vec![0xff; 4], "frame_length"),
        (
            "length over the limit",
            (100 << 20 | 1_i32).to_be_bytes().to_vec(),
            "frame_length",
        ),
        ("largest length", i32::MAX.to_be_bytes().to_vec(), "frame_length"),
        ("length of 0", vec![0; 4], "frame_length"),
        (
            "too short for a header",
            vec![0, 0, 0, 4, 0, 18, 0, 0],
            "frame_length",
        ),
        (
            "HTTP",
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
            "frame_length",
        ),
        ("no client id", request(3, 1, &[]), "malformed_request"),
        (
            "client id of -2",
            request(3, 1, &[0xff, 0xfe]),
            "malformed_request",
        ),
        (
            "client id that lies",
            request(3, 1, &[0x7f, 0xff]),
            "malformed_request",
        ),
        ("unknown API", request(999, 0, &NO_CLIENT), "unknown_api"),
        ("negative API", request(-1, 0, &NO_CLIENT), "unknown_api"),
        (
            "an API that is not served",
            request(ApiKey::AddRaftVoter.code(), 0, &[0xff, 0xff, 0]),
            "unserved_api",
        ),
        (
            "count beyond the frame",
            request(0, 3, &huge_count),
            "malformed_request",
        ),
    ];
    for (what, bytes, reason) in cases {
        let counted = |server: &Server| {
            server.metric(&format!("kafka_closed_total{{reason=\"{reason}\"}}"))
                + server.metric(&format!(
                    "connection_errors_total{{listener=\"kafka\",kind=\"{reason}\"}}"
                ))
        };
        let before = counted(&server);
        let mut client = server.client().await;
        client.stream.write_all(&bytes).await.unwrap();
        assert!(client.is_closed().await, "{what}");
        assert!(counted(&server) > before, "{what}");
    }
    server
        .client()
        .await
        .call(0, &ApiVersionsRequest::default())
        .await;
}

#[tokio::test]
async fn versions_that_are_not_served_end_the_connection_but_for_the_question_which_are() {
    let server = Server::start().await;
    let apis = [
        ApiKey::Produce,
        ApiKey::Fetch,
        ApiKey::ListOffsets,
        ApiKey::Metadata,
        ApiKey::CreateTopics,
        ApiKey::DeleteTopics,
        ApiKey::InitProducerId,
        ApiKey::DescribeConfigs,
        ApiKey::DescribeCluster,
    ];
    for api in apis {
        for version in [api.versions().max + 1, -1, i16::MAX, api.versions().min - 1] {
            let mut client = server.client().await;
            let rest = [&NO_CLIENT[..], &[0; 64]].concat();
            client
                .stream
                .write_all(&request(api.code(), version, &rest))
                .await
                .unwrap();
            assert!(client.is_closed().await, "{api:?} {version}");
        }
    }
    for version in [5, 100, i16::MAX] {
        let mut client = server.client().await;
        let rest = [&NO_CLIENT[..], &[0, 0, 1, 2, 3]].concat();
        client
            .stream
            .write_all(&request(ApiKey::ApiVersions.code(), version, &rest))
            .await
            .unwrap();
        let payload = client.frame().await.unwrap();
        let (id, response) =
            frame::read_response::<ApiVersionsRequest>(payload, 0, DecodeLimits::default()).unwrap();
        assert_eq!(
            (id, response.error_code),
            (7, ErrorCode::UnsupportedVersion.code())
        );
        let own = &response.api_keys[0];
        assert_eq!(
            (own.api_key, own.min_version, own.max_version),
            (ApiKey::ApiVersions.code(), 0, 4)
        );
        client
            .call(
                3,
                &ApiVersionsRequest {
                    client_software_name: "a".into(),
                    client_software_version: "1".into(),
                },
            )
            .await;
    }
}

async fn survives<R: stafett_kafka_wire::Request>(server: &Server, version: i16, request: &R) {
    let whole = server.client().await.encode(version, request).1;
    for end in 4..whole.len() {
        let mut bytes = whole[..end].to_vec();
        let length = i32::try_from(end - 4).unwrap().to_be_bytes();
        bytes[..4].copy_from_slice(&length);
        let mut client = server.client().await;
        client.stream.write_all(&bytes).await.unwrap();
        client.stream.shutdown().await.unwrap();
        while client.frame().await.is_some() {}
    }
}

#[tokio::test]
async fn requests_cut_anywhere_end_the_connection() {
    let server = Server::start().await;
    server.client().await.create("orders", 1).await;
    survives(&server, 9, &produce(-1, "orders", 0, batch(&["x"]))).await;
    survives(&server, 12, &fetch("orders", 0, 0)).await;
    let metadata = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some("orders".into()),
            ..Default::default()
        }]),
        ..MetadataRequest::default()
    };
    survives(&server, 12, &metadata).await;
    survives(&server, 7, &CreateTopicsRequest::default()).await;
    survives(&server, 4, &DescribeConfigsRequest::default()).await;
    survives(&server, 9, &ListOffsetsRequest::default()).await;
    assert_eq!(
        server.client().await.values("orders", 0, 0).await.len(),
        0,
        "no part of a request is stored"
    );
}

#[tokio::test]
async fn bytes_behind_a_request_are_ignored() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let mut bytes = client.encode(0, &ApiVersionsRequest::default()).1.to_vec();
    bytes.extend_from_slice(b"more");
    let length = i32::try_from(bytes.len() - 4).unwrap().to_be_bytes();
    bytes[..4].copy_from_slice(&length);
    client.stream.write_all(&bytes).await.unwrap();
    client.receive::<ApiVersionsRequest>(0).await;
    client.call(0, &ApiVersionsRequest::default()).await;
}

#[tokio::test]
async fn a_client_that_says_nothing_or_too_little_is_let_go() {
    let settings = KafkaSettings {
        idle_timeout: Duration::from_millis(50),
        ..KafkaSettings::default()
    };
    let server = Server::start_with(settings).await;
    assert!(server.client().await.is_closed().await);
    let mut client = server.client().await;
    client.call(0, &ApiVersionsRequest::default()).await;
    assert!(client.is_closed().await);
    assert_eq!(
        server.metric("connection_errors_total{listener=\"kafka\",kind=\"idle\"}"),
        2
    );
}

#[tokio::test]
async fn a_node_that_may_own_its_cell_no_longer_answers_nothing() {
    let owned = Arc::new(AtomicBool::new(true));
    let holds = Arc::clone(&owned);
    let server = Server::start_while(Tenure::new(move || holds.load(Ordering::Relaxed))).await;
    let mut client = server.client().await;
    client.create("orders", 1).await;
    client.call(0, &ApiVersionsRequest::default()).await;
    owned.store(false, Ordering::Relaxed);
    let request = client.encode(12, &fetch("orders", 0, 0)).1;
    client.stream.write_all(&request).await.unwrap();
    assert!(client.is_closed().await, "its state may be old");
}

#[tokio::test]
async fn a_client_that_never_reads_holds_nobody_up() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("orders", 1).await;
    client.produce("orders", 0, batch(&[&"x".repeat(900_000)])).await;
    let mut deaf = server.client().await;
    let request = deaf.encode(12, &fetch("orders", 0, 0)).1;
    let flood = async {
        loop {
            deaf.stream.write_all(&request).await.unwrap();
        }
    };
    let blocked = tokio::time::timeout(Duration::from_millis(300), flood).await;
    assert!(blocked.is_err(), "its requests are not read any more");
    assert_eq!(client.values("orders", 0, 0).await.len(), 1);
    server.drain_hard().await;
}

#[tokio::test]
async fn one_request_for_very_much_is_answered_with_what_there_is() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("orders", 1).await;
    client.produce("orders", 0, batch(&["x"])).await;
    // The same partition a hundred thousand times.
    let partitions = vec![(0, 0); 100_000];
    let topics = vec![fetch_topic("orders", &partitions)];
    let response = client
        .call(
            12,
            &FetchRequest {
                topics,
                max_bytes: 1000,
                ..FetchRequest::default()
            },
        )
        .await;
    assert_eq!(response.responses[0].partitions.len(), 100_000);
    let bytes: usize = response.responses[0]
        .partitions
        .iter()
        .map(|partition| partition.records.as_ref().unwrap().len())
        .sum();
    assert!(bytes <= 1000);
    // The same topic a hundred thousand times.
    let asked = MetadataRequestTopic {
        name: Some("orders".into()),
        ..MetadataRequestTopic::default()
    };
    let metadata = MetadataRequest {
        topics: Some(vec![asked; 100_000]),
        ..MetadataRequest::default()
    };
    assert_eq!(client.call(12, &metadata).await.topics.len(), 1);
    client
        .call(
            9,
            &ProduceRequest {
                acks: -1,
                ..ProduceRequest::default()
            },
        )
        .await;
}

#[tokio::test]
async fn one_client_s_garbage_leaves_others_alone() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("orders", 1).await;
    let mut state = 1_u64;
    for round in 0..300_i64 {
        let mut garbage = vec![0_u8; 64];
        for byte in &mut garbage {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
        // A plausible beginning, so that it gets past the first checks.
        let apis = [0, 1, 2, 3, 18, 19, 20, 22, 32, 60];
        let api = apis[usize::try_from(round).unwrap() % apis.len()];
        let bytes = request(api, (round % 14) as i16, &[&NO_CLIENT[..], &garbage].concat());
        let mut sender = Client::connect(server.address).await;
        sender.stream.write_all(&bytes).await.unwrap();
        sender.stream.shutdown().await.unwrap();
        while sender.frame().await.is_some() {}
        if round % 50 == 0 {
            client.produce("orders", 0, batch(&["x"])).await;
        }
    }
    assert_eq!(client.values("orders", 0, 0).await.len(), 6);
}
