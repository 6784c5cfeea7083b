//! Quotas of clients: as tools set and show them, and as clients meet them.

use std::time::{Duration, Instant};

use stafett_kafka_wire::ErrorCode;
use stafett_kafka_wire::messages::alter_client_quotas::{OpData, RequestEntityData, RequestEntryData};
use stafett_kafka_wire::messages::describe_client_quotas::ComponentData;
use stafett_kafka_wire::messages::share_fetch::{FetchPartition, FetchTopic};
use stafett_kafka_wire::messages::{
    AlterClientQuotasRequest, DescribeClientQuotasRequest, FetchRequest, ProduceRequest, ShareFetchRequest,
    ShareGroupHeartbeatRequest,
};

use crate::peer::{Client, Server, batch, fetch, produce};

/// Bytes of a batch in these tests, about, and the quota: half of them a second.
const BYTES: usize = 200_000;
const RATE: f64 = 100_000.0;

type Entity = &'static [(&'static str, Option<&'static str>)];
type Op = (&'static str, Option<f64>);

fn change(entity: Entity, ops: &[Op]) -> RequestEntryData {
    let entity = entity.iter().map(|(kind, name)| RequestEntityData {
        entity_type: (*kind).into(),
        entity_name: name.map(Into::into),
    });
    let ops = ops.iter().map(|(key, value)| OpData {
        key: (*key).into(),
        value: value.unwrap_or_default(),
        remove: value.is_none(),
    });
    RequestEntryData {
        entity: entity.collect(),
        ops: ops.collect(),
    }
}

async fn alter(client: &mut Client, entity: Entity, ops: &[Op]) -> (i16, String) {
    let request = AlterClientQuotasRequest {
        entries: vec![change(entity, ops)],
        validate_only: false,
    };
    let mut answer = client.call(1, &request).await;
    let entry = answer.entries.remove(0);
    (
        entry.error_code,
        entry.error_message.unwrap_or_default().to_string(),
    )
}

/// Returns the entities that a filter finds: `user=ann,client-id=*: producer_byte_rate=1`.
async fn described(
    client: &mut Client,
    filter: &[(&'static str, i8, Option<&'static str>)],
    strict: bool,
) -> Vec<String> {
    let components = filter.iter().map(|(kind, match_type, name)| ComponentData {
        entity_type: (*kind).into(),
        match_type: *match_type,
        match_: name.map(Into::into),
    });
    let request = DescribeClientQuotasRequest {
        components: components.collect(),
        strict,
    };
    let answer = client.call(1, &request).await;
    assert_eq!(answer.error_code, 0);
    let entries = answer.entries.unwrap_or_default().into_iter().map(|entry| {
        let entity = entry.entity.iter().map(|part| {
            format!(
                "{}={}",
                part.entity_type,
                part.entity_name.as_deref().unwrap_or("*")
            )
        });
        let values = entry
            .values
            .iter()
            .map(|one| format!("{}={}", one.key, one.value));
        let (entity, values): (Vec<_>, Vec<_>) = (entity.collect(), values.collect());
        format!("{}: {}", entity.join(","), values.join(","))
    });
    entries.collect()
}

#[tokio::test]
async fn quotas_are_set_shown_and_removed_and_survive_a_restart() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let done = (0, String::new());
    let rates = [
        ("producer_byte_rate", Some(1024.0)),
        ("consumer_byte_rate", Some(2048.0)),
    ];
    assert_eq!(alter(&mut client, &[("user", Some("ann"))], &rates).await, done);
    let both: Entity = &[("user", Some("ann")), ("client-id", None)];
    assert_eq!(alter(&mut client, both, &rates[..1]).await, done);
    assert_eq!(
        alter(&mut client, &[("client-id", Some("c"))], &rates[1..]).await,
        done
    );
    let server = server.restart().await;
    let mut client = server.client().await;
    let (ann, clients, c) = (
        "user=ann: producer_byte_rate=1024,consumer_byte_rate=2048",
        "user=ann,client-id=*: producer_byte_rate=1024",
        "client-id=c: consumer_byte_rate=2048",
    );
    let mut all = described(&mut client, &[], false).await;
    all.sort();
    assert_eq!(all, [c, clients, ann]);
    let user = ("user", 0, Some("ann"));
    let mut of_ann = described(&mut client, &[user], false).await;
    of_ann.sort();
    assert_eq!(of_ann, [clients, ann]);
    assert_eq!(described(&mut client, &[user], true).await, [ann]);
    assert_eq!(
        described(&mut client, &[("client-id", 1, None)], false).await,
        [clients]
    );
    assert_eq!(described(&mut client, &[("client-id", 2, None)], true).await, [c]);
    assert_eq!(
        described(&mut client, &[("user", 0, Some("bob"))], false).await,
        [""; 0]
    );
    let gone = [("consumer_byte_rate", None), ("request_percentage", None)];
    assert_eq!(alter(&mut client, &[("client-id", Some("c"))], &gone).await, done);
    assert_eq!(
        described(&mut client, &[("client-id", 2, None)], true).await,
        [""; 0]
    );
}

#[tokio::test]
async fn bad_and_unserved_quotas_are_refused_by_name_and_a_check_changes_nothing() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let invalid = ErrorCode::InvalidRequest.code();
    let user: Entity = &[("user", Some("ann"))];
    let rate = [("producer_byte_rate", Some(1.0))];
    for (entity, ops, why) in [
        (
            user,
            &[("request_percentage", Some(1.0))][..],
            "request_percentage are not served",
        ),
        (user, &[("x", Some(1.0))], "Invalid configuration key x"),
        (user, &[("producer_byte_rate", Some(0.0))], "greater than 0"),
        (user, &[("producer_byte_rate", Some(f64::NAN))], "greater than 0"),
        (&[("ip", Some("127.0.0.1"))], &rate, "addresses are not served"),
        (&[("group", None)], &rate, "entity type: group"),
        (&[("user", None), ("user", Some("a"))], &rate, "named twice"),
        (&[("user", Some(""))], &rate, "1 to 255 bytes"),
        (&[], &rate, "of a user, a client, or both"),
    ] {
        let (code, said) = alter(&mut client, entity, ops).await;
        assert_eq!(code, invalid, "{said}");
        assert!(said.contains(why), "{said}");
    }
    let request = AlterClientQuotasRequest {
        entries: vec![change(user, &rate)],
        validate_only: true,
    };
    assert_eq!(client.call(1, &request).await.entries[0].error_code, 0);
    assert_eq!(described(&mut client, &[], false).await, [""; 0]);
}

#[tokio::test]
async fn requests_beyond_a_quota_of_them_wait() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let quota = stafett_broker::NewQuota {
        entity: stafett_access::Entity {
            user: None,
            client: Some(stafett_access::Part::Default),
        },
        rates: vec![(stafett_access::Rate::Requests, Some(5.0))],
    };
    let by = stafett_access::Caller::internal();
    let access = server.broker.access();
    access.set_quotas(&by, vec![quota], false).await.unwrap();
    // It is no quota that Kafka's tools know.
    assert_eq!(described(&mut client, &[], false).await, [""; 0]);
    let begun = Instant::now();
    for _ in 0..10 {
        client.topic("t").await;
    }
    let throttled = send(&mut client).await;
    assert!(throttled <= 200, "{throttled} ms");
    assert!(begun.elapsed() > Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(server.metric("kafka_throttled_total{rate=\"requests\"}") >= 1);
}

/// Sends a batch, and returns the throttle time.
async fn send(client: &mut Client) -> i32 {
    let request = produce(-1, "t", 0, batch(&[&"x".repeat(BYTES)]));
    let answer = client.call::<ProduceRequest>(9, &request).await;
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    answer.throttle_time_ms
}

#[tokio::test]
async fn a_client_beyond_its_quota_is_told_and_not_read_until_then() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    assert_eq!(send(&mut client).await, 0, "no quota");
    let all: Entity = &[("client-id", None)];
    for (key, metric) in [
        ("producer_byte_rate", "kafka_throttled_total{rate=\"produced\"}"),
        ("consumer_byte_rate", "kafka_throttled_total{rate=\"fetched\"}"),
    ] {
        let mut setter = server.client().await;
        assert_eq!(alter(&mut setter, all, &[(key, Some(RATE))]).await.0, 0);
        let begun = Instant::now();
        let throttled = if key.starts_with("producer") {
            send(&mut client).await
        } else {
            let request = FetchRequest {
                max_bytes: 1 << 30,
                ..fetch("t", 0, 0)
            };
            client.call(11, &request).await.throttle_time_ms
        };
        assert!(throttled > 500, "{throttled} ms");
        // A client that does not heed it is not answered before.
        client.topic("t").await;
        let waited = begun.elapsed();
        let told = Duration::from_millis(u64::try_from(throttled).unwrap());
        assert!(waited >= told, "{waited:?} of {told:?}");
        assert!(server.metric(metric) >= 1);
        assert_eq!(alter(&mut setter, all, &[(key, None)]).await.0, 0);
        assert_eq!(send(&mut client).await, 0, "the quota is gone");
    }
}

#[tokio::test]
async fn records_of_a_share_group_count_as_fetched() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let topic_id = client.create("t", 1).await;
    let joined = ShareGroupHeartbeatRequest {
        group_id: "shared".into(),
        member_id: "me".into(),
        subscribed_topic_names: Some(vec!["t".into()]),
        ..ShareGroupHeartbeatRequest::default()
    };
    assert_eq!(client.call(1, &joined).await.error_code, 0);
    let take = |epoch, topics| ShareFetchRequest {
        group_id: Some("shared".into()),
        member_id: Some("me".into()),
        share_session_epoch: epoch,
        min_bytes: 1,
        max_bytes: 1 << 20,
        max_records: 500,
        batch_size: 500,
        topics,
        ..ShareFetchRequest::default()
    };
    let partitions = vec![FetchPartition::default()];
    let topics = vec![FetchTopic { topic_id, partitions }];
    assert_eq!(client.call(2, &take(0, topics)).await.error_code, 0);
    let mut other = server.client().await;
    send(&mut other).await;
    let all: Entity = &[("client-id", None)];
    let rate = [("consumer_byte_rate", Some(RATE))];
    assert_eq!(alter(&mut other, all, &rate).await.0, 0);
    let answer = client.call(2, &take(1, Vec::new())).await;
    assert_eq!(answer.responses.len(), 1);
    assert!(answer.throttle_time_ms > 500, "{} ms", answer.throttle_time_ms);
}
