//! Frames on the wire: headers by API and version, and errors for requests that are not understood.

use bytes::{BufMut, Bytes, BytesMut};
use stafett_kafka_wire::messages::consumer_protocol_subscription::TopicPartition;
use stafett_kafka_wire::messages::{
    ApiVersionsRequest, ApiVersionsResponse, ConsumerProtocolSubscription, MetadataRequest, MetadataResponse,
};
use stafett_kafka_wire::{
    ApiKey, DecodeError, DecodeLimits, EncodeError, ErrorCode, Message, Request, VersionRange,
    consumer_protocol, frame,
};

fn limits() -> DecodeLimits {
    DecodeLimits::default()
}

/// Returns a frame without its length prefix.
fn body(frame: &Bytes) -> Bytes {
    let body = frame.slice(4..);
    assert_eq!(
        frame.first_chunk().copied().map(u32::from_be_bytes),
        u32::try_from(body.len()).ok()
    );
    body
}

#[test]
fn a_request_and_its_response_make_the_round() {
    let asked = MetadataRequest {
        topics: None,
        ..MetadataRequest::default()
    };
    let sent = frame::write_request(12, 77, Some("client".into()), &asked)
        .unwrap()
        .into_bytes();
    let (header, rest) = frame::open_request(body(&sent), limits()).unwrap();
    assert_eq!(
        (header.api, header.version, header.correlation_id),
        (ApiKey::Metadata, 12, 77)
    );
    assert_eq!(header.client_id.as_deref(), Some("client"));
    assert_eq!(
        frame::read_request::<MetadataRequest>(rest, header.version),
        Ok(asked)
    );
    let answer = MetadataResponse {
        controller_id: 4,
        ..MetadataResponse::default()
    };
    let sent = frame::write_response::<MetadataRequest>(12, 77, &answer)
        .unwrap()
        .into_bytes();
    assert_eq!(frame::correlation_id(&body(&sent)), Some(77));
    assert_eq!(
        frame::read_response::<MetadataRequest>(body(&sent), 12, limits()),
        Ok((77, answer))
    );
}

#[test]
fn the_answer_to_api_versions_has_the_oldest_header() {
    let answer = ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        ..Default::default()
    };
    let sent = frame::write_response::<ApiVersionsRequest>(4, 1, &answer)
        .unwrap()
        .into_bytes();
    assert_eq!(&sent[..], b"\0\0\0\x0c\0\0\0\x01\0\x23\x01\0\0\0\0\0");
    assert_eq!(
        frame::read_response::<ApiVersionsRequest>(body(&sent), 4, limits()),
        Ok((1, answer))
    );
}

/// A client that is newer than the broker asks in a version that does not exist yet. The header can be read,
/// so the broker can answer in version 0.
#[test]
fn the_header_of_a_future_version_is_read_and_its_body_is_not() {
    let mut request = BytesMut::new();
    request.put_slice(b"\0\x12\0\x09\0\0\0\x05\0\x02me\0");
    request.put_slice(b"whatever comes in version 9");
    let (header, rest) = frame::open_request(request.freeze(), limits()).unwrap();
    assert_eq!(
        (header.api, header.version, header.correlation_id),
        (ApiKey::ApiVersions, 9, 5)
    );
    let refused = frame::read_request::<ApiVersionsRequest>(rest, header.version);
    assert_eq!(
        refused,
        Err(DecodeError::UnsupportedVersion {
            api: ApiKey::ApiVersions,
            version: 9
        })
    );
}

#[test]
fn an_unknown_key_is_named() {
    let opened = frame::open_request(Bytes::from_static(b"\0\x04\0\0\0\0\0\x01\xff\xff"), limits());
    assert_eq!(
        opened.map(|_| ()),
        Err(DecodeError::UnknownApi { key: 4 }),
        "LeaderAndIsr is gone since 4.0"
    );
    assert_eq!(ApiKey::try_from(-1), Err(DecodeError::UnknownApi { key: -1 }));
}

#[test]
fn bytes_behind_a_request_are_ignored() {
    let sent = frame::write_request(0, 1, None, &ApiVersionsRequest::default())
        .unwrap()
        .into_bytes();
    let mut longer = BytesMut::from(&body(&sent)[..]);
    longer.put_u8(0);
    let (header, rest) = frame::open_request(longer.freeze(), limits()).unwrap();
    let read = frame::read_request::<ApiVersionsRequest>(rest, header.version);
    assert_eq!(read, Ok(ApiVersionsRequest::default()), "as Kafka does");
}

#[test]
fn versions_that_do_not_exist_are_not_written() {
    let refused = frame::write_request(99, 1, None, &MetadataRequest::default()).map(|_| ());
    assert_eq!(
        refused,
        Err(EncodeError::Version {
            message: "MetadataRequest",
            version: 99
        })
    );
}

#[test]
fn the_table_of_apis_says_what_the_messages_say() {
    fn agrees<R: Request>() {
        assert_eq!(ApiKey::try_from(R::KEY.code()), Ok(R::KEY));
        assert_eq!(R::KEY.versions(), R::VERSIONS);
        assert_eq!(R::KEY.versions(), R::Response::VERSIONS);
        assert_eq!(R::NAME, format!("{}Request", R::KEY.name()));
        for version in R::VERSIONS {
            assert_eq!(R::KEY.is_flexible(version), version >= R::FLEXIBLE_FROM);
        }
    }
    macro_rules! all_agree {
        ($($api:ident $request:ident $response:ident;)*) => {
            $(agrees::<stafett_kafka_wire::messages::$request>();)*
        };
    }
    stafett_kafka_wire::for_each_api!(all_agree);
    assert_eq!(
        ApiKey::InitProducerId.versions().max,
        5,
        "version 6 is not stable in 4.3"
    );
    assert!(ApiKey::ALL.is_sorted());
}

/// The answer of Kafka 4.3.1 to `ApiVersions`: all ranges are those of the schemas but this one.
#[test]
fn produce_versions_that_are_gone_are_still_advertised() {
    assert_eq!(ApiKey::Produce.advertised_versions(), VersionRange::new(0, 13));
    assert_eq!(ApiKey::Produce.versions(), VersionRange::new(3, 13));
    let others = ApiKey::ALL.iter().filter(|api| **api != ApiKey::Produce);
    others.for_each(|api| assert_eq!(api.advertised_versions(), api.versions()));
}

#[test]
fn group_metadata_of_a_newer_version_is_read_as_the_newest_known() {
    let subscription = ConsumerProtocolSubscription {
        topics: vec!["orders".into()],
        owned_partitions: vec![TopicPartition {
            topic: "orders".into(),
            partitions: vec![1, 2],
        }],
        generation_id: 5,
        rack_id: Some("r".into()),
        ..ConsumerProtocolSubscription::default()
    };
    let written = consumer_protocol::write(3, &subscription).unwrap();
    assert_eq!(
        consumer_protocol::read(written.clone(), limits()),
        Ok((3, subscription.clone()))
    );
    let mut newer = BytesMut::from(&written[..]);
    newer[1] = 9;
    newer.put_slice(b"and more");
    assert_eq!(
        consumer_protocol::read(newer.freeze(), limits()),
        Ok((3, subscription.clone()))
    );
    let old = consumer_protocol::write(
        0,
        &ConsumerProtocolSubscription {
            generation_id: -1,
            ..subscription
        },
    );
    assert!(old.is_ok(), "owned partitions and rack may be ignored");
    let refused =
        consumer_protocol::read::<ConsumerProtocolSubscription>(Bytes::from_static(b"\xff\xff"), limits());
    assert_eq!(refused, Err(DecodeError::UnsupportedData { version: -1 }));
}
