//! Chunks, tagged fields and refusals.

use bytes::{Buf, Bytes, BytesMut};

use crate::encode::Encoder;
use crate::errors::EncodeError;
use crate::messages::fetch::{FetchableTopicResponse, PartitionData};
use crate::messages::{
    DescribeConfigsRequest, FetchRequest, FetchResponse, MetadataRequest, ProduceRequest, produce,
};
use crate::records::Records;
use crate::str::Str;
use crate::wire::Wire;

fn refusal(message: &impl Wire, version: i16) -> Option<EncodeError> {
    let mut e = Encoder::bare();
    message.encode(&mut e, version);
    e.finish().err()
}

fn fetched(pieces: &[Bytes]) -> FetchResponse {
    let partition = PartitionData {
        records: Some(pieces.iter().cloned().collect::<Records>()),
        ..PartitionData::default()
    };
    let topic = FetchableTopicResponse {
        partitions: vec![partition],
        ..FetchableTopicResponse::default()
    };
    FetchResponse {
        responses: vec![topic],
        ..FetchResponse::default()
    }
}

#[test]
fn large_records_are_chunks_of_their_own_and_are_not_copied() {
    let large = Bytes::from(vec![7; 4000]);
    let small = Bytes::from(vec![8; 100]);
    let mut e = Encoder::frame();
    fetched(&[large.clone(), small.clone(), large.clone()]).encode(&mut e, 12);
    let encoded = e.finish().unwrap();
    let chunks: Vec<Bytes> = encoded.clone().into_iter().collect();
    let pointers: Vec<_> = chunks.iter().map(|chunk| chunk.as_ptr()).collect();
    assert_eq!(chunks.len(), 5, "head, large, small, large, tail");
    assert_eq!((pointers[1], pointers[3]), (large.as_ptr(), large.as_ptr()));
    assert_eq!(chunks[2], small);
    assert_eq!(encoded.len(), chunks.iter().map(Bytes::len).sum());
    let prefix = i32::from_be_bytes(*chunks[0].first_chunk().unwrap());
    assert_eq!(usize::try_from(prefix).unwrap(), encoded.len() - 4);
}

#[test]
fn chunks_say_the_same_however_they_are_taken() {
    let large = Bytes::from(vec![7; 4000]);
    let mut e = Encoder::frame();
    fetched(&[large.clone(), large]).encode(&mut e, 16);
    let encoded = e.finish().unwrap();
    let by_chunk: Vec<u8> = encoded.clone().into_iter().flatten().collect();
    assert_eq!(encoded.clone().into_bytes(), by_chunk);
    let mut by_step = Vec::new();
    let mut left = encoded.clone();
    while left.has_remaining() {
        let step = left.chunk().len().min(777);
        by_step.extend_from_slice(&left.chunk()[..step]);
        left.advance(step);
    }
    assert_eq!(by_step, by_chunk);
    let mut slices = [std::io::IoSlice::new(&[]); 8];
    let filled = encoded.chunks_vectored(&mut slices);
    let by_slice: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect();
    assert_eq!(by_slice, by_chunk);
    let mut parts = encoded;
    let (first, second) = (parts.copy_to_bytes(5000), parts.copy_to_bytes(parts.remaining()));
    assert_eq!([first, second].concat(), by_chunk);
}

#[test]
fn a_frame_without_large_fields_is_one_chunk_in_the_given_buffer() {
    let buffer = BytesMut::with_capacity(4096);
    let start = buffer.as_ptr();
    let mut e = Encoder::frame_into(buffer);
    FetchResponse::default().encode(&mut e, 4);
    let chunks: Vec<Bytes> = e.finish().unwrap().into_iter().collect();
    assert_eq!(chunks.len(), 1);
    assert_eq!(chunks[0].as_ptr(), start);
}

/// No schema has large bytes inside of a tagged field today; the encoder does not rely on that.
#[test]
fn large_bytes_inside_of_tagged_fields_stay_where_they_belong() {
    let large = Bytes::from(vec![9; 2000]);
    let mut e = Encoder::bare();
    e.tags(&[true]);
    e.tag(3, true, |e| {
        e.i8(1);
        e.tags(&[true]);
        e.tag(4, true, |e| e.bytes(&large, true));
        e.bytes(&large, true);
        e.i8(2);
    });
    let mut expected = vec![1, 3];
    let inner = [&[0xd1, 0x0f][..], &large].concat();
    let field = [&[1, 1, 4, 0xd2, 0x0f], &inner[..], &inner[..], &[2]].concat();
    expected.extend([field.len() & 0x7f | 0x80, field.len() >> 7].map(|byte| u8::try_from(byte).unwrap()));
    expected.extend(field);
    assert_eq!(e.finish().unwrap().into_bytes(), expected);
}

#[test]
fn a_set_field_that_the_version_lacks_is_refused_unless_it_may_be_ignored() {
    let replica = FetchRequest {
        replica_id: 3,
        ..FetchRequest::default()
    };
    assert_eq!(refusal(&replica, 14), None);
    assert_eq!(
        refusal(&replica, 15),
        Some(EncodeError::Unsupported {
            field: "replica_id",
            version: 15
        })
    );
    let rack = FetchRequest {
        rack_id: "r1".into(),
        ..FetchRequest::default()
    };
    assert_eq!(refusal(&rack, 10), None, "the schema calls the rack ignorable");
    let mut state = FetchRequest::default();
    state.replica_state.replica_id = 1;
    assert_eq!(
        refusal(&state, 12),
        Some(EncodeError::Unsupported {
            field: "replica_state",
            version: 12
        })
    );
    assert_eq!(
        refusal(&state, 4),
        Some(EncodeError::Unsupported {
            field: "replica_state",
            version: 4
        })
    );
    let documentation = DescribeConfigsRequest {
        include_documentation: true,
        ..DescribeConfigsRequest::default()
    };
    assert!(refusal(&documentation, 2).is_some());
}

#[test]
fn null_is_refused_where_the_version_has_none() {
    let all = MetadataRequest {
        topics: None,
        ..MetadataRequest::default()
    };
    assert_eq!(refusal(&all, 1), refusal(&MetadataRequest::default(), 1));
    assert_eq!(
        refusal(&all, 0),
        Some(EncodeError::Null {
            field: "topics",
            version: 0
        })
    );
    let unnamed = ProduceRequest {
        transactional_id: None,
        ..ProduceRequest::default()
    };
    assert_eq!(refusal(&unnamed, 3), None);
}

#[test]
fn a_string_that_no_client_would_read_is_refused() {
    let named = |length: usize| {
        let topic = produce::TopicProduceData {
            name: Str::from("x".repeat(length)),
            ..Default::default()
        };
        ProduceRequest {
            topic_data: vec![topic],
            ..ProduceRequest::default()
        }
    };
    for version in [3, 9] {
        assert_eq!(refusal(&named(0x7fff), version), None);
        assert_eq!(
            refusal(&named(0x8000), version),
            Some(EncodeError::TooLong { bytes: 0x8000 })
        );
    }
}
