//! The heartbeat answer to a member of a stable group is held back, but never delays anything else.
//!
//! The session here is half an hour and an answer is held for up to a fourth of it, so every answer in a test
//! has another cause.

use std::time::Duration;

use stafett_kafka::KafkaSettings;
use stafett_kafka_wire::ErrorCode;
use stafett_kafka_wire::messages::{ApiVersionsRequest, HeartbeatRequest, MetadataRequest};

use crate::groups::Member;
use crate::peer::Server;

const HOUR: Duration = Duration::from_hours(1);

async fn start(hold: Duration) -> Server {
    let settings = KafkaSettings {
        heartbeat_hold: hold,
        ..KafkaSettings::default()
    };
    Server::start_with(settings).await
}

/// The only member of a stable group, with a client of this name.
async fn member(server: &Server, software: &'static str) -> Member {
    let mut member = Member::new(server, "held").await;
    member.session_ms = 1_800_000;
    let request = ApiVersionsRequest {
        client_software_name: software.into(),
        client_software_version: "1".into(),
    };
    assert_eq!(member.client.call(3, &request).await.error_code, 0);
    assert_eq!(member.join().await.error_code, 0);
    let id = member.id.clone();
    member.sync(&[(&id, "all")]).await;
    member
}

async fn begin_heartbeat(member: &mut Member) {
    let request = member.heartbeat_request();
    member.client.send(4, &request).await;
}

async fn finish_heartbeat(member: &mut Member) -> i16 {
    member.client.receive::<HeartbeatRequest>(4).await.1.error_code
}

#[tokio::test]
async fn a_member_hears_of_a_rebalance_when_it_begins() {
    let server = start(HOUR).await;
    for software in ["librdkafka", "apache-kafka-java", "confluent-kafka-python"] {
        let mut first = member(&server, software).await;
        begin_heartbeat(&mut first).await;
        let mut second = Member::new(&server, "held").await;
        second.begin_join().await;
        assert_eq!(
            finish_heartbeat(&mut first).await,
            ErrorCode::RebalanceInProgress.code()
        );
        first.leave().await;
        assert_eq!(second.finish_join().await.error_code, 0);
        second.leave().await;
    }
}

#[tokio::test]
async fn whatever_is_asked_behind_it_ends_the_wait() {
    let server = start(HOUR).await;
    let mut member = member(&server, "librdkafka").await;
    begin_heartbeat(&mut member).await;
    member.client.send(9, &MetadataRequest::default()).await;
    assert_eq!(finish_heartbeat(&mut member).await, 0);
    member.client.receive::<MetadataRequest>(9).await;
    begin_heartbeat(&mut member).await;
    begin_heartbeat(&mut member).await;
    assert_eq!(finish_heartbeat(&mut member).await, 0);
    begin_heartbeat(&mut member).await;
    assert_eq!(finish_heartbeat(&mut member).await, 0);
}

#[tokio::test]
async fn a_client_that_stops_until_it_is_answered_is_answered_at_once() {
    let server = start(HOUR).await;
    for software in ["kafkajs", "", "sarama"] {
        let mut member = member(&server, if software.is_empty() { "x" } else { software }).await;
        assert_eq!(member.heartbeat().await, 0);
        member.leave().await;
    }
    let server = start(Duration::ZERO).await;
    let mut member = member(&server, "librdkafka").await;
    assert_eq!(member.heartbeat().await, 0);
}

#[tokio::test]
async fn with_nothing_to_say_it_is_answered_when_its_time_is_up() {
    let server = start(Duration::from_millis(1)).await;
    let mut member = member(&server, "librdkafka").await;
    assert_eq!(member.heartbeat().await, 0);
    member.generation += 1;
    assert_eq!(member.heartbeat().await, ErrorCode::IllegalGeneration.code());
}

#[tokio::test]
async fn with_nothing_more_to_come_it_is_answered_at_once() {
    let server = start(HOUR).await;
    let mut member = member(&server, "librdkafka").await;
    begin_heartbeat(&mut member).await;
    let stream = &mut member.client.stream;
    tokio::io::AsyncWriteExt::shutdown(stream).await.unwrap();
    assert_eq!(finish_heartbeat(&mut member).await, 0);
}
