//! Round trips of messages, and their form in other protocols.

use bytes::{Bytes, BytesMut};
use stafett_amqp_wire::methods::basic;
use stafett_amqp_wire::{Properties, PropertiesBuilder, Table, TableBuilder, Value};
use stafett_model::{
    Arrival, BatchBuilder, Codec, Death, DeathReason, Header, Message, Record, StoredMessage, records,
};

use super::{Additions, Incoming, Publisher, receive, write_properties};
use crate::session::assembly::Content;

const NOW_MS: i64 = 1_700_000_000_123;
const GUEST: Publisher<'_> = Publisher {
    user: "guest",
    now_ms: NOW_MS,
};

fn content(properties: Properties) -> Content {
    Content {
        publish: basic::Publish {
            exchange: "orders".into(),
            routing_key: "a.b".into(),
            ..basic::Publish::default()
        },
        properties,
        body: Bytes::from_static(b"body"),
        memory: None,
    }
}

fn received(properties: &PropertiesBuilder) -> Incoming {
    receive(content(properties.finish()), GUEST).unwrap()
}

fn with_headers(headers: Table) -> PropertiesBuilder {
    PropertiesBuilder {
        headers: Some(headers),
        ..PropertiesBuilder::default()
    }
}

fn first_of(batch: BatchBuilder) -> StoredMessage {
    let batch = batch.finish().unwrap();
    records(&batch, usize::MAX)
        .unwrap()
        .next_message()
        .unwrap()
        .unwrap()
        .1
}

fn stored(message: &Message) -> StoredMessage {
    let mut batch = BatchBuilder::new(Codec::None);
    let arrived = Arrival {
        ms: NOW_MS,
        number: 0,
    };
    message.write(arrived, &mut batch).unwrap();
    first_of(batch)
}

fn delivered(message: &StoredMessage, additions: Additions) -> PropertiesBuilder {
    let mut out = BytesMut::new();
    write_properties(message, additions, &mut out);
    Properties::decode(out.freeze()).unwrap().read()
}

fn everything() -> PropertiesBuilder {
    let inner = TableBuilder::new().with("deep", Value::I8(-1)).finish();
    let list = [Value::Bool(true), Value::from("two")].into_iter().collect();
    PropertiesBuilder {
        content_type: Some("text/plain".into()),
        content_encoding: Some("gzip".into()),
        headers: Some(
            TableBuilder::new()
                .with("text", "value")
                .with("number", Value::I16(-7))
                .with("list", Value::Array(list))
                .with("table", inner)
                .with("nothing", Value::Void)
                .with("stafett-key", "key")
                .finish(),
        ),
        delivery_mode: Some(2),
        priority: Some(4),
        correlation_id: Some("c".into()),
        reply_to: Some("r".into()),
        expiration: Some("5000".into()),
        message_id: Some("m".into()),
        timestamp: Some(1_600_000_000),
        kind: Some("t".into()),
        user_id: Some("guest".into()),
        app_id: Some("a".into()),
        cluster_id: Some("x".into()),
    }
}

#[test]
fn properties_come_back_as_they_came() {
    let plain = |delivery_mode| PropertiesBuilder {
        delivery_mode,
        ..PropertiesBuilder::default()
    };
    for sent in [
        plain(None),
        plain(Some(1)),
        plain(Some(2)),
        plain(Some(7)),
        everything(),
    ] {
        let message = received(&sent).message;
        assert_eq!(delivered(&stored(&message), Additions::default()), sent);
    }
}

#[test]
fn what_the_core_acts_on_is_taken_out_of_the_properties() {
    let message = received(&everything()).message;
    assert!(message.persistent);
    assert_eq!((message.priority, message.ttl_ms), (4, Some(5000)));
    assert_eq!(message.timestamp_ms, 1_600_000_000_000);
    assert_eq!(message.key.as_deref(), Some(&b"key"[..]));
    let delayed = with_headers(TableBuilder::new().with("x-delay", Value::I32(250)).finish());
    assert_eq!(received(&delayed).message.delay_ms, Some(250));
    assert_eq!(
        received(&PropertiesBuilder::default()).message.timestamp_ms,
        NOW_MS
    );
}

#[test]
fn copies_go_to_more_keys_and_the_blind_ones_are_not_told() {
    let keys =
        |names: &'static [&'static str]| Value::Array(names.iter().copied().map(Value::from).collect());
    let headers = TableBuilder::new()
        .with("CC", keys(&["one", "two"]))
        .with("BCC", keys(&["three"]))
        .finish();
    let incoming = received(&with_headers(headers));
    assert_eq!(incoming.more_keys, ["one", "two", "three"]);
    let told = delivered(&stored(&incoming.message), Additions::default())
        .headers
        .unwrap();
    assert!(told.get("CC").is_some() && told.get("BCC").is_none());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refused =
        |properties: PropertiesBuilder| receive(content(properties.finish()), GUEST).unwrap_err().text;
    let stranger = PropertiesBuilder {
        user_id: Some("root".into()),
        ..PropertiesBuilder::default()
    };
    assert_eq!(
        refused(stranger),
        "user_id property set to 'root' but authenticated user was 'guest'"
    );
    for (text, why) in [
        ("soon", "no_integer"),
        ("-1", "{value_negative,-1}"),
        ("-", "no_integer"),
        ("", "no_integer"),
        ("5e9", "{leftover_string,\"e9\"}"),
        ("-7x", "{leftover_string,\"x\"}"),
        ("315360000001", "{value_too_large,315360000001}"),
        ("99999999999999999999", "{value_too_large,99999999999999999999}"),
    ] {
        let expiring = PropertiesBuilder {
            expiration: Some(text.into()),
            ..PropertiesBuilder::default()
        };
        assert_eq!(refused(expiring), format!("invalid expiration '{text}': {why}"));
    }
    let bad = with_headers(TableBuilder::new().with("CC", "one").finish());
    assert_eq!(
        refused(bad),
        "invalid message: {unacceptable_type_in_header,\"CC\",longstr}"
    );
}

#[test]
fn a_record_of_a_log_client_has_its_key_time_and_headers() {
    let headers: &[Header<'_>] = &[
        (b"content-type", Some(b"text/plain")),
        (b"trace", Some(b"\xff\x00")),
        (b"empty", None),
        (b"\xff", Some(b"left out")),
    ];
    let mut batch = BatchBuilder::new(Codec::None);
    let record = Record {
        key: Some(b"k"),
        value: Some(b"v"),
        headers,
        timestamp: NOW_MS,
    };
    batch.push(&record).unwrap();
    let told = delivered(&first_of(batch), Additions::default());
    assert_eq!(told.content_type.as_deref(), Some("text/plain"));
    assert_eq!(
        (told.delivery_mode, told.timestamp),
        (Some(2), Some(1_700_000_000))
    );
    let expected = TableBuilder::new()
        .with("stafett-key", Value::Bytes(Bytes::from_static(b"k")))
        .with("timestamp_in_ms", Value::I64(NOW_MS))
        .with("trace", Value::Bytes(Bytes::from_static(b"\xff\x00")))
        .with("empty", Value::Void)
        .finish();
    assert_eq!(told.headers, Some(expected));
}

#[test]
fn deaths_and_returns_are_told_in_headers() {
    let mut message = received(&with_headers(TableBuilder::new().with("own", "kept").finish())).message;
    message.deaths.push(Death {
        queue: "work".into(),
        reason: DeathReason::Expired,
        count: 2,
        first_ms: 1_600_000_000_999,
        exchange: "orders".into(),
        routing_key: "a.b".into(),
        ttl_ms: Some(30),
        is_first: true,
        keys_were_lost: false,
        loses_keys: false,
    });
    let additions = Additions {
        delivery_count: Some(3),
        ..Additions::default()
    };
    let headers = delivered(&stored(&message), additions).headers.unwrap();
    assert_eq!(headers.get("own"), Some("kept".into()));
    assert_eq!(headers.get("x-delivery-count"), Some(Value::I64(3)));
    assert_eq!(headers.get("x-first-death-reason"), Some("expired".into()));
    assert_eq!(headers.get("x-last-death-queue"), Some("work".into()));
    let Some(Value::Array(deaths)) = headers.get("x-death") else {
        panic!("there are deaths");
    };
    let Some(Value::Table(death)) = deaths.iter().next() else {
        panic!("there is one");
    };
    assert_eq!(death.get("count"), Some(Value::I64(2)));
    assert_eq!(death.get("time"), Some(Value::Timestamp(1_600_000_000)));
    assert_eq!(death.get("original-expiration"), Some("30".into()));
}

#[test]
fn deaths_tell_all_keys_that_a_message_was_published_with() {
    let more = |keys: [&'static str; 2]| Value::Array(keys.into_iter().map(Value::from).collect());
    let headers = TableBuilder::new()
        .with("CC", more(["c1", "c2"]))
        .with("BCC", more(["b1", "b2"]));
    let mut message = received(&with_headers(headers.finish())).message;
    let death = |queue: &'static str, key: &'static str, keys_were_lost| Death {
        queue: queue.into(),
        reason: DeathReason::Rejected,
        count: 1,
        first_ms: 0,
        exchange: "".into(),
        routing_key: key.into(),
        ttl_ms: None,
        is_first: queue == "first",
        keys_were_lost,
        loses_keys: false,
    };
    message.deaths = vec![
        death("fourth", "a.b", true),
        death("third", "own", false),
        death("second", "a.b", false),
        death("first", "a.b", false),
    ];
    let headers = delivered(&stored(&message), Additions::default())
        .headers
        .unwrap();
    let Some(Value::Array(deaths)) = headers.get("x-death") else {
        panic!("there are deaths");
    };
    let keys: Vec<Vec<String>> = deaths
        .iter()
        .map(|death| {
            let Value::Table(death) = death else {
                panic!("a death is a table")
            };
            let Some(Value::Array(keys)) = death.get("routing-keys") else {
                panic!("it has keys")
            };
            keys.iter().map(|key| key.text().unwrap().to_owned()).collect()
        })
        .collect();
    let all = ["a.b", "c1", "c2"];
    assert_eq!(keys[3], all, "and none that nobody may see");
    assert_eq!(keys[2], all);
    assert_eq!(
        keys[1],
        ["own"],
        "the key of a queue for its dead letters replaces them"
    );
    assert_eq!(keys[0], ["a.b"], "also where that is the first one again");
}

#[test]
fn a_message_of_a_stream_tells_where_it_is() {
    let message = received(&with_headers(
        TableBuilder::new().with("x-stream-offset", "forged").finish(),
    ))
    .message;
    let additions = Additions {
        stream_offset: Some(7),
        partition: Some(2),
        ..Additions::default()
    };
    let headers = delivered(&stored(&message), additions).headers.unwrap();
    assert_eq!(headers.get("x-stream-offset"), Some(Value::I64(7)));
    assert_eq!(headers.get("x-stafett-partition"), Some(Value::I64(2)));
    assert_eq!(headers.iter().count(), 2);
}
