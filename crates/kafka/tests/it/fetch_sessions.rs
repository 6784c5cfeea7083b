//! Fetch sessions (KIP-227).

use stafett_kafka::KafkaSettings;
use stafett_kafka_wire::messages::fetch::ForgottenTopic;
use stafett_kafka_wire::messages::{DeleteTopicsRequest, FetchRequest, FetchResponse};
use stafett_kafka_wire::{ErrorCode, Uuid};

use crate::peer::{Client, Server, batch, fetch_topic, values};

/// Creates a session with these partitions of `orders`.
fn full(partitions: &[(i32, i64)]) -> FetchRequest {
    FetchRequest {
        session_epoch: 0,
        topics: vec![fetch_topic("orders", partitions)],
        ..FetchRequest::default()
    }
}

/// Continues a session, asking for changes.
fn next(session_id: i32, session_epoch: i32, changed: &[(i32, i64)]) -> FetchRequest {
    let topics = if changed.is_empty() {
        Vec::new()
    } else {
        vec![fetch_topic("orders", changed)]
    };
    FetchRequest {
        session_id,
        session_epoch,
        topics,
        ..FetchRequest::default()
    }
}

fn told(response: &FetchResponse) -> Vec<(i32, i16, usize)> {
    assert_eq!(response.error_code, 0);
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    let records = |partition: &stafett_kafka_wire::messages::fetch::PartitionData| {
        partition
            .records
            .as_ref()
            .map_or(0, stafett_kafka_wire::Records::len)
    };
    partitions
        .map(|partition| {
            (
                partition.partition_index,
                partition.error_code,
                records(partition),
            )
        })
        .collect()
}

async fn start() -> (Server, Client) {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("orders", 4).await;
    (server, client)
}

const BYTES: usize = 61 + 8;

#[tokio::test]
async fn only_what_is_new_is_told() {
    let (server, mut client) = start().await;
    let response = client.call(12, &full(&[(0, 0), (1, 0), (2, 0)])).await;
    let id = response.session_id;
    assert!(id > 0);
    assert_eq!(
        told(&response),
        [(0, 0, 0), (1, 0, 0), (2, 0, 0)],
        "at first, everything"
    );
    let nothing = client.call(12, &next(id, 1, &[])).await;
    assert_eq!((nothing.session_id, told(&nothing)), (id, Vec::new()));
    client.produce("orders", 1, batch(&["a"])).await;
    client.produce("orders", 3, batch(&["not asked for"])).await;
    let grown = client.call(12, &next(id, 2, &[])).await;
    assert_eq!(told(&grown), [(1, 0, BYTES)]);
    let again = client.call(12, &next(id, 3, &[])).await;
    assert_eq!(told(&again), [(1, 0, BYTES)], "the client has not moved on");
    let moved = client.call(12, &next(id, 4, &[(1, 1)])).await;
    assert_eq!(told(&moved), []);
    let added = client.call(12, &next(id, 5, &[(3, 0)])).await;
    assert_eq!(values(&added), ["not asked for"]);
    assert_eq!(server.metric("kafka_fetch_session_partitions"), 4);
    let moved = client.call(12, &next(id, 6, &[(3, 1)])).await;
    assert_eq!(told(&moved), []);
}

#[tokio::test]
async fn a_session_waits_for_what_it_knows() {
    let (server, mut client) = start().await;
    let mut producer = server.client().await;
    let id = client.call(12, &full(&[(0, 0), (1, 0)])).await.session_id;
    let mut changed = Vec::new();
    for epoch in 1..10 {
        let partition = epoch % 2;
        let request = FetchRequest {
            max_wait_ms: 600_000,
            min_bytes: 1,
            ..next(id, epoch, &changed)
        };
        client.send(12, &request).await;
        let value = epoch.to_string();
        let offset = producer.produce("orders", partition, batch(&[&value])).await;
        let (_, response) = client.receive::<FetchRequest>(12).await;
        assert_eq!(values(&response), [value]);
        changed = vec![(partition, offset + 1)];
    }
}

#[tokio::test]
async fn forgotten_partitions_are_not_told_and_may_come_back() {
    let (server, mut client) = start().await;
    let id = client.call(12, &full(&[(0, 0), (1, 0)])).await.session_id;
    let forget = |epoch, partition| FetchRequest {
        forgotten_topics_data: vec![ForgottenTopic {
            topic: "orders".into(),
            partitions: vec![partition],
            ..ForgottenTopic::default()
        }],
        ..next(id, epoch, &[])
    };
    assert_eq!(told(&client.call(12, &forget(1, 0)).await), []);
    client.produce("orders", 0, batch(&["a"])).await;
    assert_eq!(told(&client.call(12, &next(id, 2, &[])).await), []);
    assert_eq!(
        told(&client.call(12, &next(id, 3, &[(0, 0)])).await),
        [(0, 0, BYTES)]
    );
    // Several times, as clients do with partitions whose records are not consumed yet.
    let mut epoch = 4;
    for _ in 0..200 {
        assert_eq!(told(&client.call(12, &forget(epoch, 0)).await), []);
        assert_eq!(
            told(&client.call(12, &next(id, epoch + 1, &[(0, 0)])).await),
            [(0, 0, BYTES)]
        );
        epoch += 2;
    }
    assert_eq!(
        told(&client.call(12, &forget(epoch, 9)).await),
        [(0, 0, BYTES)],
        "nothing to forget"
    );
    assert_eq!(server.metric("kafka_fetch_session_partitions"), 2);
    client.call(12, &forget(epoch + 1, 0)).await;
    let empty = client.call(12, &forget(epoch + 2, 1)).await;
    assert_eq!(
        (empty.session_id, told(&empty)),
        (0, Vec::new()),
        "an empty session ends"
    );
    assert_eq!(server.metric("kafka_fetch_sessions"), 0);
}

#[tokio::test]
async fn many_partitions_come_and_go() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("orders", 500).await;
    let all: Vec<(i32, i64)> = (0..500).map(|partition| (partition, 0)).collect();
    let id = client.call(12, &full(&all)).await.session_id;
    let forgotten = ForgottenTopic {
        topic: "orders".into(),
        partitions: (0..499).collect(),
        ..ForgottenTopic::default()
    };
    client.produce("orders", 499, batch(&["kept"])).await;
    let request = FetchRequest {
        forgotten_topics_data: vec![forgotten],
        ..next(id, 1, &[])
    };
    assert_eq!(values(&client.call(12, &request).await), ["kept"]);
    // The remaining partitions got new numbers; growth is still noticed.
    assert_eq!(
        told(&client.call(12, &next(id, 2, &[(499, 1), (7, 0)])).await),
        [(7, 0, 0)]
    );
    client.produce("orders", 499, batch(&["more"])).await;
    client.produce("orders", 7, batch(&["new"])).await;
    assert_eq!(values(&client.call(12, &next(id, 3, &[])).await), ["more", "new"]);
}

#[tokio::test]
async fn wrong_ids_and_epochs_are_named_and_the_session_goes_on() {
    let (server, mut client) = start().await;
    let id = client.call(12, &full(&[(0, 0)])).await.session_id;
    let cases = [
        (next(id, 2, &[]), ErrorCode::InvalidFetchSessionEpoch),
        (next(id, i32::MAX, &[]), ErrorCode::InvalidFetchSessionEpoch),
        (next(id, i32::MIN, &[]), ErrorCode::InvalidFetchSessionEpoch),
        (
            next(id.wrapping_add(1).max(1), 1, &[]),
            ErrorCode::FetchSessionIdNotFound,
        ),
        (next(0, 1, &[]), ErrorCode::FetchSessionIdNotFound),
        (next(-5, 1, &[]), ErrorCode::FetchSessionIdNotFound),
    ];
    for (request, expected) in cases {
        let response = client.call(12, &request).await;
        assert_eq!((response.error_code, response.session_id), (expected.code(), 0));
        assert!(response.responses.is_empty());
    }
    let by_id = client.call(13, &next(id, 1, &[])).await;
    assert_eq!(by_id.error_code, ErrorCode::FetchSessionTopicIdError.code());
    assert_eq!(client.call(12, &next(id, 1, &[])).await.error_code, 0);
    // Another connection may continue it.
    assert_eq!(
        server.client().await.call(12, &next(id, 2, &[])).await.session_id,
        id
    );
    // A request without a session, or for a new one, ends the session that it names.
    let last = FetchRequest {
        session_id: id,
        session_epoch: -1,
        ..full(&[(0, 0)])
    };
    assert_eq!(client.call(12, &last).await.session_id, 0);
    let gone = client.call(12, &next(id, 3, &[])).await;
    assert_eq!(gone.error_code, ErrorCode::FetchSessionIdNotFound.code());
    let first = client.call(12, &full(&[(0, 0)])).await.session_id;
    let second = client
        .call(
            12,
            &FetchRequest {
                session_id: first,
                ..full(&[(0, 0)])
            },
        )
        .await
        .session_id;
    assert_ne!(first, second);
    assert_eq!(server.metric("kafka_fetch_sessions"), 1);
}

#[tokio::test]
async fn sessions_and_their_partitions_are_bounded() {
    let settings = KafkaSettings {
        fetch_sessions_max: 2,
        fetch_session_partitions_max: 5,
        ..KafkaSettings::default()
    };
    let server = Server::start_with(settings).await;
    let mut client = server.client().await;
    client.create("orders", 6).await;
    client.produce("orders", 0, batch(&["a"])).await;
    let all: Vec<(i32, i64)> = (0..6).map(|partition| (partition, 0)).collect();
    let crowd = client.call(12, &full(&all)).await;
    assert_eq!(
        (crowd.session_id, values(&crowd).len()),
        (0, 1),
        "served, but without a session"
    );
    let first = client.call(12, &full(&[(0, 0)])).await.session_id;
    let second = client.call(12, &full(&[(0, 0), (1, 0)])).await.session_id;
    assert!(first > 0 && second > 0);
    assert_eq!(
        client.call(12, &full(&[(0, 0)])).await.session_id,
        0,
        "those there are were just used"
    );
    let grown = client.call(12, &next(second, 1, &[(2, 0), (3, 0), (4, 0)])).await;
    assert_eq!(grown.error_code, 0);
    let gone = client.call(12, &next(second, 2, &[])).await;
    assert_eq!(
        gone.error_code,
        ErrorCode::FetchSessionIdNotFound.code(),
        "it had outgrown the bound"
    );
    assert_eq!(client.call(12, &next(first, 1, &[])).await.session_id, first);
    assert_eq!(server.metric("kafka_fetch_session_partitions"), 1);
}

#[tokio::test]
async fn a_session_that_was_idle_for_long_makes_way() {
    let settings = KafkaSettings {
        fetch_sessions_max: 1,
        ..KafkaSettings::default()
    };
    let server = Server::start_with(settings).await;
    let mut client = server.client().await;
    client.create("orders", 1).await;
    let first = client.call(12, &full(&[(0, 0)])).await.session_id;
    pass(119).await;
    assert_eq!(client.call(12, &full(&[(0, 0)])).await.session_id, 0);
    pass(2).await;
    let second = client.call(12, &full(&[(0, 0)])).await.session_id;
    assert!(second > 0 && second != first);
    let gone = client.call(12, &next(first, 1, &[])).await;
    assert_eq!(gone.error_code, ErrorCode::FetchSessionIdNotFound.code());
    assert_eq!(server.metric("kafka_fetch_sessions_evicted_total"), 1);
}

/// Advances the paused clock at once. It is paused only for this: the journal's threads do not see it.
async fn pass(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_topic_that_is_deleted_and_made_anew_is_noticed() {
    let (_server, mut client) = start().await;
    let id = client.call(12, &full(&[(0, 0)])).await.session_id;
    assert_eq!(told(&client.call(12, &next(id, 1, &[])).await), []);
    let delete = DeleteTopicsRequest {
        topic_names: vec!["orders".into()],
        ..DeleteTopicsRequest::default()
    };
    assert_eq!(client.call(5, &delete).await.responses[0].error_code, 0);
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    assert_eq!(told(&client.call(12, &next(id, 2, &[])).await), [(0, unknown, 0)]);
    assert_eq!(told(&client.call(12, &next(id, 3, &[])).await), [(0, unknown, 0)]);
    client.create("orders", 1).await;
    assert_eq!(told(&client.call(12, &next(id, 4, &[])).await), [(0, 0, 0)]);
    client.produce("orders", 0, batch(&["b"])).await;
    assert_eq!(values(&client.call(12, &next(id, 5, &[])).await), ["b"]);
}

#[tokio::test]
async fn a_session_by_ids_names_topics_by_their_ids() {
    let (_server, mut client) = start().await;
    let topic_id = client.topic("orders").await.topic_id;
    let mut request = full(&[(0, 0)]);
    (request.topics[0].topic, request.topics[0].topic_id) = ("".into(), topic_id);
    let mut unknown = request.topics[0].clone();
    unknown.topic_id = Uuid::from(3);
    request.topics.push(unknown);
    let response = client.call(17, &request).await;
    assert_eq!(
        told(&response),
        [(0, 0, 0), (0, ErrorCode::UnknownTopicId.code(), 0)]
    );
    assert_eq!(response.responses[1].topic_id, Uuid::from(3));
    client.produce("orders", 0, batch(&["a"])).await;
    let forget = ForgottenTopic {
        topic_id: Uuid::from(3),
        partitions: vec![0],
        ..ForgottenTopic::default()
    };
    let request = FetchRequest {
        forgotten_topics_data: vec![forget],
        ..next(response.session_id, 1, &[])
    };
    let response = client.call(17, &request).await;
    assert_eq!(
        (response.responses[0].topic_id, values(&response)),
        (topic_id, vec!["a".to_owned()])
    );
}

#[tokio::test]
async fn partitions_that_gave_records_make_way_for_others() {
    let (_server, mut client) = start().await;
    for partition in 0..4 {
        client.produce("orders", partition, batch(&["x"])).await;
        client.produce("orders", partition, batch(&["y"])).await;
    }
    let request = full(&[(0, 0), (1, 0), (2, 0), (3, 0)]);
    let narrow = |request| FetchRequest {
        max_bytes: 1,
        ..request
    };
    let with_records = |response: &FetchResponse| -> Vec<i32> {
        told(response)
            .into_iter()
            .filter(|(_, _, bytes)| *bytes > 0)
            .map(|(number, ..)| number)
            .collect()
    };
    let first = client.call(12, &narrow(request)).await;
    let mut read = with_records(&first);
    for epoch in 1..4 {
        let response = client.call(12, &narrow(next(first.session_id, epoch, &[]))).await;
        read.extend(with_records(&response));
    }
    assert_eq!(read, [0, 1, 2, 3]);
}
