//! Writes the first inputs of every fuzz target under `corpus/`.

use std::fs;
use std::path::Path;

use bytes::BytesMut;
use stafett_amqp_wire::methods::{ALL, basic};
use stafett_amqp_wire::{
    ContentHeader, Encoder, FrameKind, Method, PropertiesBuilder, Table, TableBuilder, Value,
};

fn table() -> Table {
    let inner = TableBuilder::new().with("deep", Value::I64(-1)).finish();
    let values = [Value::Bool(true), Value::U8(2), Value::F64(0.5), Value::Void];
    TableBuilder::new()
        .with("text", "value")
        .with("table", inner)
        .with("array", Value::Array(values.into_iter().collect()))
        .with("time", Value::Timestamp(1_700_000_000))
        .with("decimal", Value::Decimal(2, 314))
        .finish()
}

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in ["frames", "tables"] {
        fs::create_dir_all(corpus.join(target))?;
    }
    fs::write(corpus.join("tables/all"), table().as_bytes())?;
    for (number, (class, method)) in ALL.iter().enumerate() {
        let mut payload = [class.to_be_bytes(), method.to_be_bytes()].concat();
        payload.extend([0; 32]);
        let mut out = BytesMut::new();
        Encoder::frame(&mut out, FrameKind::Method, 1, |e| e.raw(&payload));
        fs::write(corpus.join(format!("frames/{number}")), &out)?;
    }
    let mut message = BytesMut::new();
    let publish = basic::Publish {
        routing_key: "key".into(),
        ..basic::Publish::default()
    };
    Method::from(publish).encode(1, &mut message);
    let header = ContentHeader {
        body_size: 4,
        properties: PropertiesBuilder {
            headers: Some(table()),
            delivery_mode: Some(2),
            expiration: Some("1000".into()),
            ..PropertiesBuilder::default()
        }
        .finish(),
    };
    Encoder::frame(&mut message, FrameKind::Header, 1, |e| header.encode(e));
    Encoder::frame(&mut message, FrameKind::Body, 1, |e| e.raw(b"body"));
    fs::write(corpus.join("frames/message"), &message)
}
