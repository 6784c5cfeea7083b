//! Primitives and arrays under hostile lengths, counts and tags.

use bytes::Bytes;
use proptest::prelude::*;

use crate::decode::{DecodeLimits, Decoder};
use crate::errors::DecodeError;
use crate::messages::produce::TopicProduceData;
use crate::messages::{
    ApiVersionsRequest, ApiVersionsResponse, FetchRequest, ListGroupsResponse, ProduceRequest,
};
use crate::wire::{Message, Wire};

fn decoder(bytes: &'static [u8]) -> Decoder {
    Decoder::new(Bytes::from_static(bytes), DecodeLimits::default())
}

#[test]
fn lengths_are_held_against_what_is_left() {
    let truncated = |at, wanted, left| DecodeError::Truncated { at, wanted, left };
    assert_eq!(decoder(b"\x00\x05abc").string(false), Err(truncated(2, 5, 3)));
    assert_eq!(decoder(b"\x05abc").string(true), Err(truncated(1, 4, 3)));
    assert_eq!(
        decoder(b"\x7f\xff\xff\xffabc").bytes(false),
        Err(truncated(4, 0x7fff_ffff, 3))
    );
    assert_eq!(
        decoder(b"\xff\xff\xff\xff\x0fabc").bytes(true),
        Err(truncated(5, 0xffff_fffe, 3))
    );
    assert_eq!(decoder(b"\x00").i16(), Err(truncated(0, 2, 1)));
    assert_eq!(decoder(b"").string(true), Err(truncated(0, 1, 0)));
}

#[test]
fn any_negative_length_is_null_as_in_kafka() {
    for bytes in [b"\xff\xff\xff\xff", b"\x80\x00\x00\x00"] {
        assert_eq!(decoder(bytes).opt_bytes(false, true), Ok(None));
        assert_eq!(decoder(bytes).opt_string(false, true), Ok(None));
        assert_eq!(decoder(bytes).opt_array::<i32>(0, false, true), Ok(None));
        assert_eq!(decoder(bytes).bytes(false), Err(DecodeError::Null { at: 0 }));
        assert_eq!(decoder(bytes).string(false), Err(DecodeError::Null { at: 0 }));
        assert_eq!(
            decoder(bytes).array::<i32>(0, false),
            Err(DecodeError::Null { at: 0 })
        );
    }
    assert_eq!(decoder(b"\x00").string(true), Err(DecodeError::Null { at: 0 }));
    assert_eq!(decoder(b"\xff").opt_struct::<i32>(0, true), Ok(None));
    assert_eq!(
        decoder(b"\xff").opt_struct::<i32>(0, false),
        Err(DecodeError::Null { at: 0 })
    );
}

#[test]
fn strings_are_utf8_and_not_too_long() {
    assert_eq!(
        decoder(b"\x03\xc3\x28").string(true),
        Err(DecodeError::Utf8 { at: 0 })
    );
    let mut long = vec![0x81, 0x80, 0x02];
    long.resize(3 + 0x8000, b'a');
    let refused = Decoder::new(long.into(), DecodeLimits::default()).string(true);
    assert_eq!(
        refused,
        Err(DecodeError::Length {
            at: 0,
            length: 0x8000
        })
    );
}

#[test]
fn varints_fit_32_bits() {
    assert_eq!(decoder(b"\x00").uvarint(), Ok(0));
    assert_eq!(decoder(b"\xff\x01").uvarint(), Ok(255));
    assert_eq!(decoder(b"\xff\xff\xff\xff\x0f").uvarint(), Ok(u32::MAX));
    assert_eq!(
        decoder(b"\xff\xff\xff\xff\x1f").uvarint(),
        Err(DecodeError::Varint { at: 0 })
    );
    assert_eq!(
        decoder(b"\x80\x80\x80\x80\x80\x00").uvarint(),
        Err(DecodeError::Varint { at: 0 })
    );
    assert!(matches!(
        decoder(b"\x80\x80").uvarint(),
        Err(DecodeError::Truncated { .. })
    ));
}

#[test]
fn counts_are_held_against_the_least_size_of_their_elements() {
    let refused = decoder(b"\x00\x00\x00\x03\0\0\0\x01\0\0\0\x02\0\0\0").array::<i32>(0, false);
    assert_eq!(
        refused,
        Err(DecodeError::Count {
            at: 0,
            count: 3,
            left: 11
        })
    );
    let refused = decoder(b"\x05\x01\x01\x01").strings(true);
    assert_eq!(
        refused,
        Err(DecodeError::Count {
            at: 0,
            count: 4,
            left: 3
        })
    );
    assert_eq!(decoder(b"\x03\x01\x02a").strings(true).unwrap().len(), 2);
}

/// The frame that made a published codec abort: a count of two billion in a few bytes.
#[test]
fn a_huge_count_in_a_small_frame_takes_no_memory() {
    let mut body = b"\xff\xff\x00\x01\x00\x00\x75\x30".to_vec();
    body.extend_from_slice(&0x7fff_ffff_i32.to_be_bytes());
    let refused = ProduceRequest::decode(&mut Decoder::new(body.into(), DecodeLimits::default()), 8);
    assert!(matches!(refused, Err(DecodeError::Count { .. })), "{refused:?}");
}

/// Elements of three bytes that become a struct of 128 bytes: the worst ratio of all messages.
#[test]
fn memory_stops_at_its_budget() {
    let groups: u32 = 1_000_000;
    let mut e = crate::encode::Encoder::bare();
    e.i32(0);
    e.i16(0);
    e.uvarint(groups + 1);
    let mut body = e.finish().unwrap().into_bytes().to_vec();
    (0..groups).for_each(|_| body.extend_from_slice(b"\x01\x01\0"));
    body.push(0);
    let frame = Bytes::from(body);
    let read = |memory_bytes| {
        ListGroupsResponse::decode(&mut Decoder::new(frame.clone(), DecodeLimits { memory_bytes }), 3)
    };
    assert_eq!(read(128_000_000).map(|list| list.groups.len()), Ok(1_000_000));
    assert_eq!(
        read(127_999_999),
        Err(DecodeError::Budget {
            at: 6,
            budget: 127_999_999
        })
    );
    let limits = DecodeLimits::default();
    let refused = ListGroupsResponse::decode(&mut Decoder::new(frame.clone(), limits), 3);
    assert_eq!(
        refused,
        Err(DecodeError::Budget {
            at: 6,
            budget: 64 << 20
        })
    );
}

#[test]
fn arrays_of_one_message_share_the_budget() {
    let limits = DecodeLimits {
        memory_bytes: 3 * size_of::<TopicProduceData>(),
    };
    let topics = |count: u8| {
        let mut body = b"\0\xff\xff\0\0\0\0".to_vec();
        body.push(count + 1);
        (0..count).for_each(|_| body.extend_from_slice(b"\x02t\x01\0"));
        body.push(0);
        ProduceRequest::decode(&mut Decoder::new(body.into(), limits), 9)
    };
    assert_eq!(topics(3).map(|request| request.topic_data.len()), Ok(3));
    assert!(matches!(topics(4), Err(DecodeError::Budget { .. })));
}

#[test]
fn unknown_tags_are_skipped_within_their_length() {
    let plain = decoder(b"\x02a\x02b\x00");
    let tagged = decoder(b"\x02a\x02b\x02\x05\x03xyz\xff\x01\x00");
    let read = |mut d: Decoder| {
        ApiVersionsRequest::decode(&mut d, 3).and_then(|request| d.finish().map(|()| request))
    };
    assert_eq!(read(tagged), read(plain));
    let beyond = read(decoder(b"\x02a\x02b\x01\x05\x04xyz"));
    assert_eq!(
        beyond,
        Err(DecodeError::Truncated {
            at: 7,
            wanted: 4,
            left: 3
        })
    );
    let endless = read(decoder(b"\x02a\x02b\xff\xff\xff\xff\x0f"));
    assert!(matches!(endless, Err(DecodeError::Truncated { .. })));
}

#[test]
fn a_known_tag_must_fill_its_length_and_no_more() {
    // ApiVersions response 3: error, no keys, throttle time, one tag 1 (an i64) of a wrong length.
    let short = b"\0\0\x01\0\0\0\0\x01\x01\x07\0\0\0\0\0\0\0";
    let long = b"\0\0\x01\0\0\0\0\x01\x01\x09\0\0\0\0\0\0\0\0\0";
    let read = |bytes| ApiVersionsResponse::decode(&mut decoder(bytes), 3);
    assert_eq!(
        read(short),
        Err(DecodeError::Truncated {
            at: 10,
            wanted: 8,
            left: 7
        })
    );
    assert_eq!(
        read(long),
        Err(DecodeError::Tag {
            at: 18,
            tag: 1,
            left: 1
        })
    );
}

#[test]
fn a_tag_of_a_later_version_is_unknown() {
    // Fetch request 12 with the replica state of version 15, in which the field is three bytes of nonsense.
    let mut body = Vec::new();
    body.extend_from_slice(&[0; 17]);
    body.extend_from_slice(&[0; 8]);
    body.extend_from_slice(b"\x01\x01\x01\x01\x01\x03abc");
    let mut d = Decoder::new(body.into(), DecodeLimits::default());
    let request = FetchRequest::decode(&mut d, 12).unwrap();
    assert_eq!(d.finish(), Ok(()));
    assert_eq!(request.replica_state, FetchRequest::default().replica_state);
}

#[test]
fn strings_and_records_are_slices_of_the_frame() {
    let mut body = b"\0\xff\xff\0\0\0\0\x02\x02t\x02\0\0\0\x07\x05DATA\0\0\0".to_vec();
    body.shrink_to_fit();
    let frame = Bytes::from(body);
    let request =
        ProduceRequest::decode(&mut Decoder::new(frame.clone(), DecodeLimits::default()), 9).unwrap();
    let partition = &request.topic_data[0].partition_data[0];
    let records = partition.records.as_ref().unwrap();
    assert_eq!(&records[..], b"DATA");
    assert_eq!(records.as_ptr(), frame[16..].as_ptr());
    assert_eq!(request.topic_data[0].name.as_ptr(), frame[9..].as_ptr());
}

fn survives<M: Message>(bytes: &Bytes) {
    for version in M::VERSIONS {
        let _ = M::decode(&mut Decoder::new(bytes.clone(), DecodeLimits::default()), version);
    }
}

macro_rules! survive_every_message {
    ($($api:ident $request:ident $response:ident;)*) => {
        fn all_survive(bytes: &Bytes) {
            $(survives::<crate::messages::$request>(bytes); survives::<crate::messages::$response>(bytes);)*
        }
    };
}

crate::for_each_api!(survive_every_message);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_bytes_are_errors_or_messages(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        all_survive(&Bytes::from(bytes));
    }

    /// Mostly zeros and ones: lengths and counts that often make sense, so that reading gets further.
    #[test]
    fn plausible_bytes_are_errors_or_messages(bytes in proptest::collection::vec(0_u8..4, 0..400)) {
        all_survive(&Bytes::from(bytes));
    }

    #[test]
    fn varints_come_back(value in any::<u32>()) {
        let mut e = crate::encode::Encoder::bare();
        e.uvarint(value);
        let mut d = Decoder::new(e.finish().unwrap().into_bytes(), DecodeLimits::default());
        prop_assert_eq!(d.uvarint(), Ok(value));
        prop_assert_eq!(d.finish(), Ok(()));
    }
}
