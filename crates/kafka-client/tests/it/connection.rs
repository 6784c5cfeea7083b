//! One connection: versions, order, and misbehaving brokers.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use stafett_kafka_client::{ClientError, Connection};
use stafett_kafka_wire::messages::api_versions::ApiVersion;
use stafett_kafka_wire::messages::{
    ApiVersionsRequest, ApiVersionsResponse, DescribeClusterRequest, DescribeClusterResponse,
    HeartbeatRequest, HeartbeatResponse, ListGroupsRequest,
};
use stafett_kafka_wire::{ApiKey, ErrorCode, Request, frame};

use crate::stub::{Reply, answer, listen, options, versions};

async fn open(
    other: impl Fn(&stafett_kafka_wire::RequestHeader, stafett_kafka_wire::Decoder) -> Reply
    + Send
    + Sync
    + 'static,
) -> Connection {
    let address = listen(move |header, body| {
        if header.api == ApiKey::ApiVersions {
            versions(header)
        } else {
            other(header, body)
        }
    })
    .await;
    Connection::open(&address.to_string(), &options()).await.unwrap()
}

#[tokio::test]
async fn pipelined_requests_get_their_own_answers() {
    let connection = open(|header, body| {
        let request: HeartbeatRequest = frame::read_request(body, header.version).unwrap();
        let response = HeartbeatResponse {
            throttle_time_ms: request.generation_id,
            ..HeartbeatResponse::default()
        };
        answer::<HeartbeatRequest>(header, &response)
    })
    .await;
    let mut answers = Vec::new();
    for number in 0..500 {
        let request = HeartbeatRequest {
            generation_id: number,
            ..HeartbeatRequest::default()
        };
        answers.push(connection.send(&request, 4, Duration::ZERO).await.unwrap());
    }
    for (number, answer) in (0..).zip(answers) {
        assert_eq!(answer.await.unwrap().throttle_time_ms, number);
    }
}

#[tokio::test]
async fn a_broker_that_knows_only_old_versions_is_asked_again_in_its_words() {
    let address = listen(|header, _| {
        let rows = vec![ApiVersion {
            api_key: ApiKey::Heartbeat.code(),
            min_version: 0,
            max_version: 2,
        }];
        let supported = header.version == 0;
        let response = ApiVersionsResponse {
            error_code: if supported {
                0
            } else {
                ErrorCode::UnsupportedVersion.code()
            },
            api_keys: rows,
            ..ApiVersionsResponse::default()
        };
        let encoded =
            frame::write_response::<ApiVersionsRequest>(0, header.correlation_id, &response).unwrap();
        Reply::Bytes(encoded.into_bytes())
    })
    .await;
    let connection = Connection::open(&address.to_string(), &options()).await.unwrap();
    assert_eq!(connection.version::<HeartbeatRequest>(i16::MAX).unwrap(), 2);
    assert_eq!(connection.version::<HeartbeatRequest>(1).unwrap(), 1);
    let error = connection.version::<ListGroupsRequest>(i16::MAX).unwrap_err();
    assert!(error.is_unsupported());
    assert_eq!(error.to_string(), format!("{address} does not offer ListGroups"));
}

#[tokio::test]
async fn an_answer_to_another_request_ends_the_connection() {
    let connection = open(|header, _| {
        let mut wrong = header.clone();
        wrong.correlation_id += 1;
        answer::<DescribeClusterRequest>(&wrong, &DescribeClusterResponse::default())
    })
    .await;
    let error = connection
        .call(&DescribeClusterRequest::default())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("came where 1 was due"), "{error}");
    assert!(connection.is_closed());
    let error = connection
        .call(&DescribeClusterRequest::default())
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::Closed { .. }), "{error}");
}

#[tokio::test]
async fn a_port_of_another_protocol_is_named() {
    let begins: [(&[u8], &str); 3] = [
        (b"AMQP\0\0\x09\x01", "AMQP"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
        (&[0x15, 3, 1, 0, 2, 2, 70], "TLS"),
    ];
    for (bytes, name) in begins {
        let address = listen(move |_, _| Reply::Bytes(Bytes::from_static(bytes))).await;
        let error = Connection::open(&address.to_string(), &options())
            .await
            .unwrap_err();
        let expected = format!("{name} is spoken there, not Kafka's protocol");
        assert!(error.to_string().ends_with(&expected), "{error}");
    }
}

#[tokio::test]
async fn an_answer_beyond_the_bound_is_refused_before_memory_is_taken_for_it() {
    for length in [(1 << 20) + 1, i32::MAX, -1] {
        let connection = open(move |_, _| {
            let mut bytes = BytesMut::new();
            bytes.put_i32(length);
            bytes.put_slice(&[0; 100]);
            Reply::Bytes(bytes.freeze())
        })
        .await;
        let error = connection
            .call(&DescribeClusterRequest::default())
            .await
            .unwrap_err();
        assert!(error.to_string().contains("1048576 is the limit"), "{error}");
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_an_error_and_the_next_one_is_read() {
    let connection = open(|header, _| {
        if header.api == ApiKey::DescribeCluster {
            let mut bytes = BytesMut::new();
            bytes.put_i32(9);
            bytes.put_i32(header.correlation_id);
            bytes.put_slice(&[0xff; 5]);
            return Reply::Bytes(bytes.freeze());
        }
        answer::<HeartbeatRequest>(header, &HeartbeatResponse::default())
    })
    .await;
    let error = connection
        .call(&DescribeClusterRequest::default())
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::Malformed { .. }), "{error}");
    connection.call(&HeartbeatRequest::default()).await.unwrap();
}

#[tokio::test]
async fn whoever_waits_is_told_when_the_broker_goes_or_stays_silent() {
    let connection = open(|_, _| Reply::Close).await;
    let error = connection.call(&HeartbeatRequest::default()).await.unwrap_err();
    let expected = format!(
        "the connection to {} ended before Heartbeat was answered: the broker closed it",
        connection.broker()
    );
    assert_eq!(error.to_string(), expected);
    assert!(error.is_retriable());

    let connection = open(|_, _| Reply::Silence).await;
    let error = connection.call(&HeartbeatRequest::default()).await.unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("did not answer Heartbeat within 100ms"),
        "{error}"
    );
    assert!(connection.is_closed());
}

#[tokio::test]
async fn an_unasked_answer_ends_the_connection() {
    let connection = open(|header, _| {
        let Reply::Bytes(one) = answer::<HeartbeatRequest>(header, &HeartbeatResponse::default()) else {
            return Reply::Close;
        };
        Reply::Bytes(Bytes::from([&one[..], &one[..]].concat()))
    })
    .await;
    connection.call(&HeartbeatRequest::default()).await.unwrap();
    let error = connection.call(&HeartbeatRequest::default()).await.unwrap_err();
    assert!(matches!(error, ClientError::Closed { .. }), "{error}");
    assert_eq!(HeartbeatRequest::KEY, ApiKey::Heartbeat);
}
