//! Requests that are sent without waiting for answers.

use stafett_kafka::KafkaSettings;
use stafett_kafka_wire::messages::metadata::MetadataRequestTopic;
use stafett_kafka_wire::messages::{FetchRequest, MetadataRequest, ProduceRequest};
use tokio::io::AsyncWriteExt;

use crate::peer::{Server, batch, fetch, numbered, produce, values};

#[tokio::test]
async fn hundreds_of_requests_at_once_are_answered_in_order() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("orders", 2).await;
    let mut bytes = Vec::new();
    let mut sent = Vec::new();
    for n in 0..600 {
        let value = n.to_string();
        let (id, request) = match n % 3 {
            0 => client.encode(9, &produce(-1, "orders", 0, numbered(1, 0, n / 3, &[&value]))),
            1 => client.encode(9, &produce(1, "orders", 1, batch(&[&value]))),
            _ => client.encode(12, &fetch("orders", 0, 0)),
        };
        sent.push((id, n));
        bytes.extend_from_slice(&request);
    }
    client.stream.write_all(&bytes).await.unwrap();
    for (id, n) in sent {
        let (answered, told) = if n % 3 == 2 {
            let (answered, response) = client.receive::<FetchRequest>(12).await;
            (answered, values(&response).len() as i64)
        } else {
            let (answered, response) = client.receive::<ProduceRequest>(9).await;
            let answer = &response.responses[0].partition_responses[0];
            assert_eq!(answer.error_code, 0);
            (answered, answer.base_offset)
        };
        assert_eq!(answered, id);
        if n % 3 == 2 {
            assert!(
                told > i64::from(n / 3),
                "a fetch sees what was answered before it"
            );
        } else {
            assert_eq!(told, i64::from(n / 3));
        }
    }
}

#[tokio::test]
async fn a_fetch_that_waits_does_not_keep_a_later_produce_from_being_stored() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("orders", 2).await;
    let waiting = FetchRequest {
        max_wait_ms: 600_000,
        min_bytes: 1,
        ..fetch("orders", 0, 0)
    };
    let first = client.send(12, &waiting).await;
    let second = client
        .send(9, &produce(-1, "orders", 1, batch(&["behind"])))
        .await;
    let mut other = server.client().await;
    let seen = FetchRequest {
        max_wait_ms: 600_000,
        min_bytes: 1,
        ..fetch("orders", 1, 0)
    };
    assert_eq!(
        values(&other.call(12, &seen).await),
        ["behind"],
        "stored, though not answered yet"
    );
    // The fetch waits for the produce request on the same connection.
    let third = client
        .send(9, &produce(-1, "orders", 0, batch(&["awaited"])))
        .await;
    let (id, response) = client.receive::<FetchRequest>(12).await;
    assert_eq!((id, values(&response)), (first, vec!["awaited".to_owned()]));
    assert_eq!(client.receive::<ProduceRequest>(9).await.0, second);
    assert_eq!(client.receive::<ProduceRequest>(9).await.0, third);
}

#[tokio::test]
async fn a_produce_behind_the_creation_of_its_topic_finds_it() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let asked = MetadataRequestTopic {
        name: Some("new".into()),
        ..MetadataRequestTopic::default()
    };
    let metadata = MetadataRequest {
        topics: Some(vec![asked]),
        ..MetadataRequest::default()
    };
    client.send(12, &metadata).await;
    client.send(9, &produce(-1, "new", 0, batch(&["x"]))).await;
    client.send(12, &fetch("new", 0, 0)).await;
    assert_eq!(
        client.receive::<MetadataRequest>(12).await.1.topics[0].error_code,
        0
    );
    let (_, response) = client.receive::<ProduceRequest>(9).await;
    assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
    assert_eq!(values(&client.receive::<FetchRequest>(12).await.1), ["x"]);
}

#[tokio::test]
async fn what_was_asked_before_a_bad_request_is_answered_before_the_connection_ends() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("orders", 1).await;
    let mut bytes = client
        .encode(9, &produce(-1, "orders", 0, batch(&["x"])))
        .1
        .to_vec();
    bytes.extend_from_slice(&[0, 0, 0, 10, 0x7f, 0x7f, 0, 0, 0, 0, 0, 1, 0xff, 0xff]);
    bytes.extend_from_slice(&client.encode(9, &produce(-1, "orders", 0, batch(&["never"]))).1);
    client.stream.write_all(&bytes).await.unwrap();
    assert_eq!(
        client.receive::<ProduceRequest>(9).await.1.responses[0].partition_responses[0].error_code,
        0
    );
    assert!(client.is_closed().await);
    let mut client = server.client().await;
    assert_eq!(
        client.values("orders", 0, 0).await,
        ["x"],
        "what came behind is not looked at"
    );
}

#[tokio::test]
async fn no_more_answers_are_owed_than_the_bound_says() {
    let settings = KafkaSettings {
        answers_max: 3,
        ..KafkaSettings::default()
    };
    let server = Server::start_with(settings).await;
    let mut client = server.client().await;
    client.create("orders", 1).await;
    let waiting = FetchRequest {
        max_wait_ms: 600_000,
        min_bytes: 1,
        ..fetch("orders", 0, 0)
    };
    // In one piece, so that the first of them are read together.
    let mut bytes = client.encode(12, &waiting).1.to_vec();
    for n in 0..20 {
        let request = produce(-1, "orders", 0, numbered(1, 0, n, &["x"]));
        bytes.extend_from_slice(&client.encode(9, &request).1);
    }
    client.stream.write_all(&bytes).await.unwrap();
    // The first record ends the wait, and the second may be there by then.
    let found = values(&client.receive::<FetchRequest>(12).await.1).len();
    assert!((1..=2).contains(&found), "two of them were let in, not {found}");
    for n in 0..20 {
        let (_, response) = client.receive::<ProduceRequest>(9).await;
        assert_eq!(response.responses[0].partition_responses[0].base_offset, n);
    }
}
