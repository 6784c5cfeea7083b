//! Encoded values are decoded again, and bytes that are no frame, method or table give an error, never a
//! panic.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use stafett_amqp_wire::methods::{ALL, basic, connection, name_of};
use stafett_amqp_wire::table::DEPTH_MAX;
use stafett_amqp_wire::{
    Array, ByteString, ContentHeader, DecodeError, Encoder, FrameKind, Method, Properties, PropertiesBuilder,
    Table, TableBuilder, Value, frame,
};

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::Bool),
        any::<i8>().prop_map(Value::I8),
        any::<u8>().prop_map(Value::U8),
        any::<i16>().prop_map(Value::I16),
        any::<u16>().prop_map(Value::U16),
        any::<i32>().prop_map(Value::I32),
        any::<u32>().prop_map(Value::U32),
        any::<i64>().prop_map(Value::I64),
        (0.0_f32..1e9).prop_map(Value::F32),
        (0.0_f64..1e9).prop_map(Value::F64),
        (any::<u8>(), any::<u32>()).prop_map(|(scale, digits)| Value::Decimal(scale, digits)),
        any::<u64>().prop_map(Value::Timestamp),
        Just(Value::Void),
        any::<Vec<u8>>().prop_map(|bytes| Value::LongString(bytes.into())),
        any::<Vec<u8>>().prop_map(|bytes| Value::Bytes(bytes.into())),
    ]
}

fn table_of(fields: Vec<(String, Value)>) -> Table {
    let mut table = TableBuilder::new();
    for (name, value) in fields {
        table.push(&name, &value);
    }
    table.finish()
}

fn value() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6)
                .prop_map(|values| Value::Array(values.into_iter().collect::<Array>())),
            proptest::collection::vec(("[a-z]{0,9}", inner), 0..6)
                .prop_map(|fields| Value::Table(table_of(fields))),
        ]
    })
}

proptest! {
    #[test]
    fn a_table_comes_back_with_all_its_fields(fields in proptest::collection::vec(("[a-zåäö]{0,20}", value()), 0..8)) {
        let table = table_of(fields.clone());
        let read = Table::decode(table.as_bytes().clone()).unwrap();
        let back: Vec<_> = read.iter().map(|(name, value)| (name.to_string(), value)).collect();
        prop_assert_eq!(back, fields);
    }

    #[test]
    fn whatever_passes_the_check_of_tables_is_walked_to_its_end(bytes: Vec<u8>) {
        if let Ok(table) = Table::decode(bytes.clone().into()) {
            let mut again = TableBuilder::new();
            for (name, value) in table.iter() {
                again.push(&name, &value);
            }
            prop_assert_eq!(again.finish().as_bytes().len(), bytes.len());
        }
    }

    #[test]
    fn arbitrary_bytes_are_a_method_that_can_be_written_or_an_error(class in 0_usize..80, bytes: Vec<u8>) {
        let (class, method) = ALL[class % ALL.len()];
        let mut payload = [class.to_be_bytes(), method.to_be_bytes()].concat();
        payload.extend(bytes);
        if let Ok(read) = Method::decode(payload.into()) {
            prop_assert_eq!(decoded(&read), read);
        }
    }

    #[test]
    fn arbitrary_bytes_are_properties_or_an_error(bytes: Vec<u8>) {
        if let Ok(properties) = Properties::decode(bytes.into()) {
            let again = properties.read().finish();
            prop_assert_eq!(again.as_bytes(), properties.as_bytes());
        }
    }

    #[test]
    fn arbitrary_bytes_are_frames_or_an_error(bytes: Vec<u8>) {
        let mut buffer = BytesMut::from(&bytes[..]);
        while let Ok(Some(frame)) = frame::split(&mut buffer, 4096) {
            prop_assert!(frame.payload.len() <= 4088);
        }
    }
}

fn decoded(method: &Method) -> Method {
    let mut out = BytesMut::new();
    method.encode(7, &mut out);
    let frame = frame::split(&mut out, 0).unwrap().unwrap();
    assert_eq!((frame.kind, frame.channel), (FrameKind::Method as u8, 7));
    assert!(out.is_empty());
    Method::decode(frame.payload).unwrap()
}

#[test]
fn every_method_has_a_name_and_empty_ones_come_back() {
    for &(class, method) in ALL {
        assert!(name_of(class, method).is_some_and(|name| name.contains('.')));
        let mut payload = [class.to_be_bytes(), method.to_be_bytes()].concat();
        // Zeros are zero numbers, empty strings and empty tables: enough of them decode as any method.
        let read = (0..64).find_map(|_| {
            let read = Method::decode(Bytes::copy_from_slice(&payload)).ok();
            payload.push(0);
            read
        });
        let read = read.unwrap();
        assert_eq!(read.id(), (class, method));
        assert_eq!(decoded(&read), read);
    }
    assert!(matches!(
        Method::decode(Bytes::from_static(&[0, 60, 0, 99])),
        Err(DecodeError::UnknownMethod {
            class: 60,
            method: 99
        })
    ));
}

#[test]
fn what_pika_sends_to_open_and_publish_is_read_field_by_field() {
    // connection.tune-ok: 2,047 channels, 131,072 bytes, 60 s.
    let tune = Method::decode(Bytes::from_static(&[0, 10, 0, 31, 7, 255, 0, 2, 0, 0, 0, 60])).unwrap();
    let expected = connection::TuneOk {
        channel_max: 2047,
        frame_max: 131_072,
        heartbeat: 60,
    };
    assert_eq!(tune, expected.into());
    // basic.publish: exchange "", routing key "hello", mandatory.
    let publish = Method::decode(Bytes::from_static(b"\0\x3c\0\x28\0\0\0\x05hello\x01")).unwrap();
    let expected = basic::Publish {
        routing_key: "hello".into(),
        mandatory: true,
        ..basic::Publish::default()
    };
    assert_eq!(publish, expected.into());
    // Its content header: 5 bytes, delivery mode 2.
    let header = Bytes::from_static(b"\0\x3c\0\0\0\0\0\0\0\0\0\x05\x10\0\x02");
    let header = ContentHeader::decode(header).unwrap();
    assert_eq!(header.body_size, 5);
    assert!(header.properties.is_plain());
    assert_eq!(header.properties.read().delivery_mode, Some(2));
}

fn nested(depth: usize, letter: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    for level in 0..depth {
        let mut outer = Vec::new();
        if letter == b'F' || level + 1 == depth {
            outer.push(0);
        }
        outer.push(letter);
        outer.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
        outer.extend(&bytes);
        bytes = outer;
    }
    bytes
}

#[test]
fn nesting_is_bounded_and_costs_no_stack() {
    for letter in [b'F', b'A'] {
        assert!(Table::decode(nested(DEPTH_MAX - 1, letter).into()).is_ok());
        let deeper = Table::decode(nested(DEPTH_MAX, letter).into());
        assert_eq!(deeper, Err(DecodeError::TooDeep { max: DEPTH_MAX }));
        assert!(Table::decode(nested(3_000, letter).into()).is_err());
    }
}

#[test]
fn fields_that_are_none_are_refused() {
    let of = |bytes: &'static [u8]| Table::decode(Bytes::from_static(bytes));
    assert_eq!(of(b"\x01ay"), Err(DecodeError::UnknownFieldType(b'y')));
    assert_eq!(of(b"\x01aL12345678"), Err(DecodeError::UnknownFieldType(b'L')));
    assert_eq!(of(b"\x01\xfft\x01"), Err(DecodeError::NotUtf8));
    assert_eq!(of(b"\x05a"), Err(DecodeError::TooShort));
    assert_eq!(of(b"\x01aS\0\0\0\x02x"), Err(DecodeError::TooShort));
    assert_eq!(of(b"\x01aF\0\0\0\x09\x01bV"), Err(DecodeError::TooShort));
}

#[test]
fn properties_that_end_early_or_go_on_are_refused() {
    let of = |bytes: &'static [u8]| Properties::decode(Bytes::from_static(bytes));
    assert!(of(&[0, 0]).is_ok());
    assert_eq!(of(&[0]), Err(DecodeError::TooShort));
    assert_eq!(of(&[0x10, 0]), Err(DecodeError::TooShort));
    assert_eq!(of(&[0x10, 0, 2, 2]), Err(DecodeError::TooLong { left: 1 }));
    assert_eq!(of(&[0, 1, 0, 0]), Err(DecodeError::UnknownProperty));
}

#[test]
fn all_properties_come_back() {
    let all = PropertiesBuilder {
        content_type: Some("text/plain".into()),
        content_encoding: Some("gzip".into()),
        headers: Some(TableBuilder::new().with("a", Value::I32(-1)).finish()),
        delivery_mode: Some(2),
        priority: Some(9),
        correlation_id: Some("c".into()),
        reply_to: Some("r".into()),
        expiration: Some("60000".into()),
        message_id: Some("m".into()),
        timestamp: Some(1_700_000_000),
        kind: Some("t".into()),
        user_id: Some("guest".into()),
        app_id: Some("app".into()),
        cluster_id: Some(ByteString::new()),
    };
    let header = ContentHeader {
        body_size: 3,
        properties: all.finish(),
    };
    let mut out = BytesMut::new();
    Encoder::frame(&mut out, FrameKind::Header, 1, |e| header.encode(e));
    let frame = frame::split(&mut out, 0).unwrap().unwrap();
    let read = ContentHeader::decode(frame.payload).unwrap();
    assert_eq!(read, header);
    assert_eq!(read.properties.read(), all);
}
