//! Writes the first inputs of every fuzz target under `corpus/`: drawn messages of each API in each version,
//! and what real clients sent (`captures/`, which `scripts/capture-requests` records).

use std::fs;
use std::path::Path;

use bytes::Bytes;
use stafett_fuzz_kafka_wire::LIMITS;
use stafett_kafka_wire::consumer_protocol::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, write,
};
use stafett_kafka_wire::{ApiKey, Decoder, Encoder, Message, Request, frame, messages};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    macro_rules! seed_all {
        ($($api:ident $request:ident $response:ident;)*) => {
            $(seed_api::<messages::$request>()?;)*
        };
    }
    stafett_kafka_wire::for_each_api!(seed_all);
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("captures"))? {
        let entry = entry?;
        seed_captured(&entry.file_name().to_string_lossy(), fs::read(entry.path())?)?;
    }
    for version in ConsumerProtocolSubscription::VERSIONS {
        let message: ConsumerProtocolSubscription = drawn(version)?;
        let name = format!("subscription-{version}");
        save(
            "group_metadata",
            &name,
            &[&[0], &write(version, &message)?[..]].concat(),
        )?;
        let message: ConsumerProtocolAssignment = drawn(version)?;
        let name = format!("assignment-{version}");
        save(
            "group_metadata",
            &name,
            &[&[1], &write(version, &message)?[..]].concat(),
        )?;
    }
    let plan: Vec<u8> = (0..=18)
        .flat_map(|step| [step, step | 0x80, step | 0x40])
        .collect();
    save("primitives", "all", &[&plan[..], &vec![1; plan.len()]].concat())?;
    Ok(())
}

fn seed_api<R: Request>() -> Result<(), Box<dyn std::error::Error>> {
    let place = ApiKey::ALL
        .iter()
        .position(|api| *api == R::KEY)
        .ok_or("an API that is not listed")?;
    for version in R::VERSIONS {
        let name = format!("{}-{version}", R::KEY.name());
        let chosen = [u8::try_from(place)?, u8::try_from(version - R::VERSIONS.min)?];
        let request: R = drawn(version)?;
        let response: R::Response = drawn(version)?;
        let framed = frame::write_request(version, 1, Some("fuzz".into()), &request)?.into_bytes();
        save("frame", &name, &framed[4..])?;
        save(
            "request",
            &name,
            &[&chosen, &body(&request, version)?[..]].concat(),
        )?;
        save(
            "response",
            &name,
            &[&chosen, &body(&response, version)?[..]].concat(),
        )?;
    }
    Ok(())
}

/// A request frame as it came from a client.
fn seed_captured(name: &str, captured: Vec<u8>) -> Result<(), Box<dyn std::error::Error>> {
    let name = format!("captured-{name}");
    save("frame", &name, &captured)?;
    let bytes = Bytes::from(captured);
    let (header, body) = frame::open_request(bytes.clone(), LIMITS)?;
    let versions = header.api.versions();
    let place = ApiKey::ALL.iter().position(|api| *api == header.api);
    if let Some(place) = place.filter(|_| versions.contains(header.version)) {
        let chosen = [u8::try_from(place)?, u8::try_from(header.version - versions.min)?];
        let body = bytes.slice(bytes.len() - body.remaining()..);
        save("request", &name, &[&chosen, &body[..]].concat())?;
    }
    Ok(())
}

fn drawn<M: Message>(version: i16) -> Result<M, Box<dyn std::error::Error>> {
    Ok(M::decode(&mut Decoder::sampling(1), version)?)
}

fn body<M: Message>(message: &M, version: i16) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut e = Encoder::bare();
    message.encode(&mut e, version);
    Ok(e.finish()?.into_bytes().to_vec())
}

fn save(target: &str, name: &str, input: &[u8]) -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    fs::create_dir_all(&corpus)?;
    fs::write(corpus.join(name), input)
}
