//! Methods as text: a table of all methods with their fields, by which lines become frames and frames lines.
//! It is written from the specification, apart from the code under test.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use bytestring::ByteString;
use stafett_amqp_wire::{Array, Properties, PropertiesBuilder, Table, TableBuilder, Value};

/// Name, class, number and fields. A field's type is `b`it, `o`ctet, `w`ord (2 bytes), `l`ong (4), `q`uad (8),
/// `s`hort string, long `S`tring or `t`able; one without a name is reserved.
const METHODS: &str = "
    connection.start 10 10 major:o minor:o :t mechanisms:S locales:S
    connection.start-ok 10 11 client:t mechanism:s response:S locale:s
    connection.secure 10 20 challenge:S
    connection.secure-ok 10 21 response:S
    connection.tune 10 30 channels:w frame:l heartbeat:w
    connection.tune-ok 10 31 channels:w frame:l heartbeat:w
    connection.open 10 40 vhost:s :s :b
    connection.open-ok 10 41 :s
    connection.close 10 50 code:w text:s class:w method:w
    connection.close-ok 10 51
    connection.blocked 10 60 reason:s
    connection.unblocked 10 61
    connection.update-secret 10 70 secret:S reason:s
    connection.update-secret-ok 10 71
    channel.open 20 10 :s
    channel.open-ok 20 11 :S
    channel.flow 20 20 active:b
    channel.flow-ok 20 21 active:b
    channel.close 20 40 code:w text:s class:w method:w
    channel.close-ok 20 41
    access.request 30 10 realm:s exclusive:b passive:b active:b write:b read:b
    access.request-ok 30 11 ticket:w
    exchange.declare 40 10 :w exchange:s type:s passive:b durable:b auto-delete:b internal:b no-wait:b args:t
    exchange.declare-ok 40 11
    exchange.delete 40 20 :w exchange:s if-unused:b no-wait:b
    exchange.delete-ok 40 21
    exchange.bind 40 30 :w destination:s source:s key:s no-wait:b args:t
    exchange.bind-ok 40 31
    exchange.unbind 40 40 :w destination:s source:s key:s no-wait:b args:t
    exchange.unbind-ok 40 51
    queue.declare 50 10 :w queue:s passive:b durable:b exclusive:b auto-delete:b no-wait:b args:t
    queue.declare-ok 50 11 queue:s messages:l consumers:l
    queue.bind 50 20 :w queue:s exchange:s key:s no-wait:b args:t
    queue.bind-ok 50 21
    queue.purge 50 30 :w queue:s no-wait:b
    queue.purge-ok 50 31 messages:l
    queue.delete 50 40 :w queue:s if-unused:b if-empty:b no-wait:b
    queue.delete-ok 50 41 messages:l
    queue.unbind 50 50 :w queue:s exchange:s key:s args:t
    queue.unbind-ok 50 51
    basic.qos 60 10 size:l count:w global:b
    basic.qos-ok 60 11
    basic.consume 60 20 :w queue:s tag:s no-local:b no-ack:b exclusive:b no-wait:b args:t
    basic.consume-ok 60 21 tag:s
    basic.cancel 60 30 tag:s no-wait:b
    basic.cancel-ok 60 31 tag:s
    basic.publish 60 40 :w exchange:s key:s mandatory:b immediate:b
    basic.return 60 50 code:w text:s exchange:s key:s
    basic.deliver 60 60 tag:s delivery:q redelivered:b exchange:s key:s
    basic.get 60 70 :w queue:s no-ack:b
    basic.get-ok 60 71 delivery:q redelivered:b exchange:s key:s messages:l
    basic.get-empty 60 72 :s
    basic.ack 60 80 delivery:q multiple:b
    basic.reject 60 90 delivery:q requeue:b
    basic.recover-async 60 100 requeue:b
    basic.recover 60 110 requeue:b
    basic.recover-ok 60 111
    basic.nack 60 120 delivery:q multiple:b requeue:b
    confirm.select 85 10 no-wait:b
    confirm.select-ok 85 11
    tx.select 90 10
    tx.select-ok 90 11
    tx.commit 90 20
    tx.commit-ok 90 21
    tx.rollback 90 30
    tx.rollback-ok 90 31
";

/// A line of [`METHODS`].
struct Schema {
    name: &'static str,
    id: (u16, u16),
    fields: Vec<(&'static str, &'static str)>,
}

fn schemas() -> impl Iterator<Item = Schema> {
    METHODS.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some(Schema {
            name: words.next()?,
            id: (words.next()?.parse().unwrap(), words.next()?.parse().unwrap()),
            fields: words.map(|field| field.split_once(':').unwrap()).collect(),
        })
    })
}

/// Returns the method's name of class and number.
pub(super) fn method_name(id: (u16, u16)) -> String {
    let found = schemas().find(|schema| schema.id == id);
    found.map_or_else(|| format!("{}.{}", id.0, id.1), |schema| schema.name.to_owned())
}

/// Encodes a method: its name, then the values of its numbers and strings in order, the names of its bits
/// that are set, and `name=value` of its table.
pub(super) fn encode(words: &[String]) -> Bytes {
    let schema = schemas()
        .find(|schema| schema.name == words[0])
        .unwrap_or_else(|| panic!("no method {words:?}"));
    let is_bit = |word: &String| {
        let mut fields = schema.fields.iter();
        fields.any(|(name, kind)| *kind == "b" && name == word)
    };
    let has_table = schema
        .fields
        .iter()
        .any(|(name, kind)| *kind == "t" && !name.is_empty());
    let is_pair = |word: &String| has_table && word.contains('=');
    let (mut positional, mut out, mut bits) = (words[1..].iter(), BytesMut::new(), None::<(u8, u8)>);
    out.put_u16(schema.id.0);
    out.put_u16(schema.id.1);
    for (name, kind) in &schema.fields {
        if *kind == "b" {
            let (value, count) = bits.get_or_insert((0, 0));
            *value |= u8::from(words[1..].iter().any(|word| word == name)) << *count;
            *count += 1;
            continue;
        }
        out.extend(bits.take().map(|(value, _)| value));
        if *kind == "t" {
            let pairs = words[1..].iter().filter(|word| is_pair(word) && !name.is_empty());
            let table = pairs.fold(TableBuilder::new(), |table, pair| {
                let (name, text) = pair.split_once('=').unwrap();
                table.with(name, value(text))
            });
            out.extend_from_slice(&length_and(table.finish().as_bytes()));
            continue;
        }
        let word = if name.is_empty() {
            ""
        } else {
            let word = positional.find(|word| !is_bit(word) && !is_pair(word));
            word.map_or("", String::as_str)
        };
        let number = || match word {
            "" => 0,
            word => word
                .parse::<u64>()
                .unwrap_or_else(|_| panic!("{words:?}: `{word}`")),
        };
        match *kind {
            "o" => out.put_u8(number().try_into().unwrap()),
            "w" => out.put_u16(number().try_into().unwrap()),
            "l" => out.put_u32(number().try_into().unwrap()),
            "q" => out.put_u64(number()),
            "s" => {
                out.put_u8(word.len().try_into().unwrap());
                out.put_slice(word.as_bytes());
            }
            "S" => out.extend_from_slice(&length_and(word.replace('|', "\0").as_bytes())),
            other => panic!("{other}"),
        }
    }
    out.extend(bits.take().map(|(value, _)| value));
    let left: Vec<&String> = positional
        .filter(|word| !is_bit(word) && !is_pair(word))
        .collect();
    assert!(left.is_empty(), "{words:?}: {left:?} is too much");
    out.freeze()
}

fn length_and(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap();
    [&length.to_be_bytes(), bytes].concat()
}

/// Describes a method, in the words that [`encode`] takes.
pub(super) fn describe(mut payload: Bytes) -> String {
    let id = (payload.get_u16(), payload.get_u16());
    let schema = schemas().find(|schema| schema.id == id).unwrap();
    let (mut text, mut bits) = (schema.name.to_owned(), None::<(u8, u8)>);
    for (name, kind) in schema.fields {
        if kind == "b" {
            let (value, index) = bits.get_or_insert_with(|| (payload.get_u8(), 0));
            if *value >> *index & 1 == 1 {
                text = format!("{text} {name}");
            }
            *index += 1;
            continue;
        }
        bits = None;
        let word = match kind {
            "o" => payload.get_u8().to_string(),
            "w" => payload.get_u16().to_string(),
            "l" => payload.get_u32().to_string(),
            "q" => payload.get_u64().to_string(),
            "s" => {
                let length = payload.get_u8().into();
                quoted(&String::from_utf8_lossy(&payload.split_to(length)))
            }
            _ => {
                let length = payload.get_u32() as usize;
                let bytes = payload.split_to(length);
                match kind {
                    "S" => quoted(&String::from_utf8_lossy(&bytes)),
                    _ => pairs(&Table::decode(bytes).unwrap()),
                }
            }
        };
        if !name.is_empty() {
            text = format!("{text} {word}");
        }
    }
    assert!(!payload.has_remaining(), "{text}: {payload:?} is too much");
    // The method that is to blame.
    if matches!(id, (10, 50) | (20, 40)) {
        let words: Vec<&str> = text.rsplitn(3, ' ').collect();
        let cause = (words[1].parse().unwrap(), words[0].parse().unwrap());
        let cause = if cause == (0, 0) {
            "-".to_owned()
        } else {
            method_name(cause)
        };
        text = format!("{} {cause}", words[2]);
    }
    text
}

fn quoted(word: &str) -> String {
    if word.is_empty() || word.contains([' ', '"']) {
        format!("\"{}\"", word.replace('"', "'"))
    } else {
        word.to_owned()
    }
}

fn pairs(table: &Table) -> String {
    let pairs = table
        .iter()
        .map(|(name, value)| format!("{name}={}", shown(&value)));
    pairs.collect::<Vec<_>>().join(" ")
}

fn shown(value: &Value) -> String {
    if let Some(text) = value.text() {
        return quoted(text);
    }
    match (value, value.integer()) {
        (_, Some(number)) => number.to_string(),
        (Value::Array(array), _) => {
            let values: Vec<String> = array.iter().map(|value| shown(&value)).collect();
            format!("[{}]", values.join(","))
        }
        (Value::Table(table), _) => {
            // Times differ from run to run.
            let timeless = table
                .iter()
                .filter(|(_, value)| !matches!(value, Value::Timestamp(_)));
            let pairs = timeless.map(|(name, value)| format!("{name}={}", shown(&value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(" "))
        }
        (other, _) => format!("{other:?}"),
    }
}

/// Reads a value of a table: a number, `true`, `false`, `[A,B]`, `{NAME=VALUE}`, or a text.
fn value(text: &str) -> Value {
    if let Some(list) = text.strip_prefix('[').and_then(|list| list.strip_suffix(']')) {
        let values = list.split(',').filter(|value| !value.is_empty()).map(value);
        return Value::Array(values.collect::<Array>());
    }
    if let Some(pair) = text.strip_prefix('{').and_then(|pair| pair.strip_suffix('}')) {
        let (name, text) = pair.split_once('=').unwrap();
        return TableBuilder::new().with(name, value(text)).finish().into();
    }
    match (text, text.parse::<i64>()) {
        ("true" | "false", _) => Value::Bool(text == "true"),
        (_, Ok(number)) => Value::I64(number),
        (text, _) => Value::from(ByteString::from(text.trim_matches('"'))),
    }
}

/// Reads properties; any other name is a header.
pub(super) fn properties<'a>(words: impl Iterator<Item = &'a String>) -> Properties {
    let (mut properties, mut headers) = (PropertiesBuilder::default(), TableBuilder::new());
    for word in words {
        let (name, text) = word.split_once('=').unwrap_or((word, ""));
        let short = || Some(text.into());
        match name {
            "reply-to" => properties.reply_to = short(),
            "correlation-id" => properties.correlation_id = short(),
            "expiration" => properties.expiration = short(),
            "user-id" => properties.user_id = short(),
            "content-type" => properties.content_type = short(),
            "delivery-mode" => properties.delivery_mode = text.parse().ok(),
            "priority" => properties.priority = text.parse().ok(),
            _ => headers.push(name, &value(text)),
        }
    }
    let headers = headers.finish();
    properties.headers = (!headers.is_empty()).then_some(headers);
    properties.finish()
}

/// Describes properties, in the words that [`properties`] takes.
pub(super) fn describe_properties(properties: &Properties) -> String {
    let read = properties.read();
    let mut words = Vec::new();
    let short = [
        ("content-type", read.content_type),
        ("correlation-id", read.correlation_id),
        ("reply-to", read.reply_to),
        ("expiration", read.expiration),
        ("user-id", read.user_id),
    ];
    for (name, value) in short {
        words.extend(value.map(|value| format!("{name}={}", quoted(&value))));
    }
    for (name, value) in [("delivery-mode", read.delivery_mode), ("priority", read.priority)] {
        words.extend(value.map(|value| format!("{name}={value}")));
    }
    words.extend(
        read.headers
            .map(|headers| pairs(&headers))
            .filter(|text| !text.is_empty()),
    );
    words.join(" ")
}
