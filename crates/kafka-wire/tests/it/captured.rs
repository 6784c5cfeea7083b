//! Requests of real clients, recorded by `scripts/capture-requests` for the fuzz targets: they can be read,
//! and are written back unchanged.

use std::path::Path;

use bytes::Bytes;
use stafett_kafka_wire::{ApiKey, DecodeLimits, Decoder, Encoder, Message, frame, messages};

/// Reads a body to its end and writes it again.
fn again<M: Message>(version: i16, body: Bytes) -> Result<Bytes, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut d = Decoder::new(body, DecodeLimits::default());
    let message = M::decode(&mut d, version).map_err(|error| text(&error))?;
    d.finish().map_err(|error| text(&error))?;
    let mut e = Encoder::bare();
    message.encode(&mut e, version);
    Ok(e.finish().map_err(|error| text(&error))?.into_bytes())
}

#[test]
fn what_real_clients_sent_is_read_and_comes_back() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/kafka-wire/captures");
    let entries = folder.read_dir().unwrap();
    let mut captures: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    captures.sort();
    assert!(captures.len() > 40, "{}", captures.len());
    for path in captures {
        let bytes = Bytes::from(std::fs::read(&path).unwrap());
        let (header, body) = frame::open_request(bytes.clone(), DecodeLimits::default()).unwrap();
        let version = header.version;
        // A client that knows a later version asks in that version first.
        if !header.api.versions().contains(version) {
            assert_eq!(header.api, ApiKey::ApiVersions, "{}", path.display());
            continue;
        }
        let body = bytes.slice(bytes.len() - body.remaining()..);
        macro_rules! dispatch {
            ($($api:ident $request:ident $response:ident;)*) => {
                match header.api {
                    $(ApiKey::$api => again::<messages::$request>(version, body.clone()),)*
                }
            };
        }
        let written = stafett_kafka_wire::for_each_api!(dispatch);
        assert_eq!(written.as_ref(), Ok(&body), "{}", path.display());
    }
}
