//! Bytes of another implementation are decoded with their meaning, and encoded to the same bytes:
//! `vectors/pamqp.tsv`, made by `vectors/write.py`.

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};
use stafett_amqp_wire::methods::{ALL, name_of};
use stafett_amqp_wire::{ContentHeader, Encoder, FrameKind, Method, Table, TableBuilder, frame};

const CHANNEL: u16 = 7;

fn bytes_of(hex: &str) -> Bytes {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(hex.get(at..at + 2).unwrap(), 16).unwrap())
        .collect()
}

/// Returns the fields of a value as Rust's `Debug` shows it, without the names around them.
fn fields(shown: &str) -> &str {
    let inner = shown.split_once("{ ").map_or("", |(_, fields)| fields);
    inner.trim_end_matches(')').trim_end_matches(" }")
}

/// Returns the name as in `Queue.DeclareOk`.
fn written_name(name: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    };
    let (class, method) = name.split_once('.').unwrap();
    let method: String = method.split('-').map(word).collect();
    format!("{}.{method}", word(class))
}

fn payload_of(data: &Bytes, kind: FrameKind) -> Bytes {
    let mut buffer = BytesMut::from(&data[..]);
    let frame = frame::split(&mut buffer, 0).unwrap().unwrap();
    assert_eq!((frame.kind, frame.channel), (kind as u8, CHANNEL));
    assert!(buffer.is_empty());
    frame.payload
}

fn check_method(name: &str, data: &Bytes, says: &str) {
    let method = Method::decode(payload_of(data, FrameKind::Method)).unwrap();
    assert_eq!(written_name(method.name()), name);
    assert_eq!(fields(&format!("{method:?}")), says, "{name}");
    let mut out = BytesMut::new();
    method.encode(CHANNEL, &mut out);
    assert_eq!(out, data, "{name}");
}

fn check_header(data: &Bytes, says: &str) {
    let header = ContentHeader::decode(payload_of(data, FrameKind::Header)).unwrap();
    assert_eq!(header.body_size, 1_234_567);
    let read = header.properties.read();
    assert_eq!(fields(&format!("{read:?}")), says);
    let again = ContentHeader {
        body_size: header.body_size,
        properties: read.finish(),
    };
    let mut out = BytesMut::new();
    Encoder::frame(&mut out, FrameKind::Header, CHANNEL, |e| again.encode(e));
    assert_eq!(out, data, "{says}");
}

fn check_table(data: &Bytes, says: &str) {
    let table = Table::decode(data.slice(4..)).unwrap();
    assert_eq!(format!("{table:?}"), says);
    let mut again = TableBuilder::new();
    for (name, value) in table.iter() {
        again.push(&name, &value);
    }
    let mut out = BytesMut::new();
    Encoder::new(&mut out).table(&again.finish());
    assert_eq!(out, data, "{says}");
}

#[test]
fn what_another_implementation_writes_is_read_and_written_alike() {
    let mut names = BTreeSet::new();
    for row in include_str!("vectors/pamqp.tsv").lines() {
        let mut columns = row.split('\t');
        let name = columns.next().unwrap();
        let data = bytes_of(columns.next().unwrap());
        let says = columns.next().unwrap();
        match name {
            "header" => check_header(&data, says),
            "table" => check_table(&data, says),
            method => check_method(method, &data, says),
        }
        names.insert(name.to_owned());
    }
    let missing: Vec<&str> = ALL
        .iter()
        .filter_map(|&(class, method)| name_of(class, method))
        .filter(|name| !names.contains(&written_name(name)))
        .collect();
    // The other implementation lacks a class of AMQP 0-8 that some clients still use.
    assert_eq!(missing, ["access.request", "access.request-ok"]);
}
