//! Frames with wrong lengths, and bodies that do not match their header.

use stafett_kafka_wire::messages::*;
use stafett_kafka_wire::{ApiKey, Request};

use super::asker::{CLOSED, encoded};
use super::{Case, case};

/// Builds a frame from an API key, a version, and the bytes behind the correlation id.
pub(super) fn frame(api: i16, version: i16, rest: &[u8]) -> Vec<u8> {
    let length = i32::try_from(8 + rest.len()).unwrap();
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend_from_slice(&api.to_be_bytes());
    bytes.extend_from_slice(&version.to_be_bytes());
    bytes.extend_from_slice(&77_i32.to_be_bytes());
    bytes.extend_from_slice(rest);
    bytes
}

const NO_CLIENT: [u8; 2] = [0xff, 0xff];

/// Returns the frame with its length corrected.
fn with_length(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = u32::try_from(bytes.len() - 4).unwrap();
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = vec![
        case("any: a frame of negative length", |a| a.raw(&[0xff; 4])),
        case("any: a frame of length 0", |a| a.raw(&[0; 4])),
        case("any: a frame of the largest length", |a| {
            a.raw(&i32::MAX.to_be_bytes())
        }),
        case("any: a frame too short for a header", |a| {
            a.raw(&[0, 0, 0, 4, 0, 18, 0, 0])
        }),
        case("any: HTTP", |a| {
            a.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        }),
        case("any: TLS", |a| {
            a.raw(&[0x16, 3, 1, 0, 0xc4, 1, 0, 0, 0xc0, 3, 3, 0, 0, 0])
        }),
        case("any: a frame that ends before its length", |a| {
            a.raw(&frame(18, 0, &NO_CLIENT)[..9])
        }),
        case("any: an API that does not exist", |a| {
            a.raw(&frame(999, 0, &NO_CLIENT))
        }),
        case("any: a negative API", |a| a.raw(&frame(-1, 0, &NO_CLIENT))),
        case("any: the API of brokers among themselves", |a| {
            a.raw(&frame(4, 7, &[&NO_CLIENT[..], &[0; 16]].concat()))
        }),
        case("Metadata: no client id", |a| a.raw(&frame(3, 1, &[]))),
        case("Metadata: a client id of length -2", |a| {
            a.raw(&frame(3, 1, &[0xff, 0xfe]))
        }),
        case("Metadata: a client id that lies", |a| {
            a.raw(&frame(3, 1, &[0x7f, 0xff]))
        }),
        case("Metadata: a count of -2", |a| {
            a.raw(&frame(3, 1, &[&NO_CLIENT[..], &(-2_i32).to_be_bytes()].concat()))
        }),
        case("Metadata: a count of two billions", |a| {
            a.raw(&frame(3, 1, &[&NO_CLIENT[..], &i32::MAX.to_be_bytes()].concat()))
        }),
        case("Metadata: bytes behind the message", |a| {
            a.raw(&frame(
                3,
                1,
                &[&NO_CLIENT[..], &[0, 0, 0, 0, 1, 2, 3, 4]].concat(),
            ))
        }),
        case("ApiVersions: a version that is not there yet", |a| {
            let bytes = frame(18, 100, &[&NO_CLIENT[..], &[0, 0, 1, 2, 3]].concat());
            a.raw_codes::<ApiVersionsRequest>(0, &bytes)
        }),
        case("ApiVersions: a negative version", |a| {
            let bytes = frame(18, -1, &NO_CLIENT);
            a.raw_codes::<ApiVersionsRequest>(0, &bytes)
        }),
        case("ApiVersions: no name of the software", |a| {
            a.codes(3, &ApiVersionsRequest::default())
        }),
        case("ApiVersions: twice on one connection", |a| {
            let first = a.codes(0, &ApiVersionsRequest::default());
            format!("{first}; {}", a.codes(0, &ApiVersionsRequest::default()))
        }),
    ];
    macro_rules! of_each {
        ($($request:ident)*) => {$( all.extend(bodies::<$request>()); )*};
    }
    of_each!(
        ProduceRequest FetchRequest ListOffsetsRequest MetadataRequest CreateTopicsRequest DeleteTopicsRequest
        InitProducerIdRequest DescribeConfigsRequest FindCoordinatorRequest JoinGroupRequest SyncGroupRequest
        HeartbeatRequest LeaveGroupRequest OffsetCommitRequest OffsetFetchRequest OffsetDeleteRequest ListGroupsRequest
        DescribeGroupsRequest DeleteGroupsRequest ConsumerGroupHeartbeatRequest ConsumerGroupDescribeRequest
        CreatePartitionsRequest DeleteRecordsRequest AlterConfigsRequest IncrementalAlterConfigsRequest
        OffsetForLeaderEpochRequest DescribeTopicPartitionsRequest DescribeLogDirsRequest DescribeProducersRequest
        ElectLeadersRequest ListPartitionReassignmentsRequest DescribeClientQuotasRequest DescribeClusterRequest
        UpdateFeaturesRequest
    );
    all
}

/// Cases for the bodies of all requests.
fn bodies<R: Request + 'static>() -> Vec<Case> {
    let name: ApiKey = R::KEY;
    let version = R::VERSIONS.max;
    let key = name.code();
    vec![
        case(&format!("{name:?}: a version after the last"), move |a| {
            a.raw(&frame(key, version + 1, &[&NO_CLIENT[..], &[0; 64]].concat()))
        }),
        case(&format!("{name:?}: a negative version"), move |a| {
            a.raw(&frame(key, -1, &[&NO_CLIENT[..], &[0; 64]].concat()))
        }),
        case(&format!("{name:?}: no body"), move |a| {
            a.raw(&frame(key, version, &NO_CLIENT))
        }),
        case(&format!("{name:?}: a body of ones"), move |a| {
            let mut body = NO_CLIENT.to_vec();
            if name.is_flexible(version) {
                body.push(0);
            }
            body.extend_from_slice(&[0xff; 48]);
            a.raw(&frame(key, version, &body))
        }),
        case(&format!("{name:?}: a body without its last byte"), move |a| {
            let mut bytes = encoded(version, &R::default());
            bytes.pop();
            let answer = a.raw(&with_length(bytes));
            assert_eq!(answer, CLOSED, "it cannot be read");
            answer
        }),
    ]
}
