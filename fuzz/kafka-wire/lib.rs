//! What the targets have in common: a message that is read must be written, and what is written must come
//! back.

use std::sync::LazyLock;

use bytes::Bytes;
use stafett_kafka_wire::{ApiKey, DecodeLimits, Decoder, Encoder, Message, messages};

/// Small, so that a message which outgrows it is found as one.
pub const LIMITS: DecodeLimits = DecodeLimits {
    memory_bytes: 8 << 20,
};

/// The one API that `KAFKA_API` names; all of them if it is not set.
static CHOSEN: LazyLock<Vec<ApiKey>> = LazyLock::new(|| {
    let name = std::env::var("KAFKA_API").ok();
    let is_chosen = |api: &ApiKey| name.as_deref().is_none_or(|name| name == api.name());
    let chosen: Vec<ApiKey> = ApiKey::ALL.iter().copied().filter(is_chosen).collect();
    assert!(!chosen.is_empty(), "KAFKA_API is {name:?}, which is no API");
    chosen
});

#[derive(Clone, Copy)]
pub enum Side {
    Request,
    Response,
}

/// Reads the body of a message whose API and version the first two bytes choose.
pub fn choose_and_read(side: Side, data: &[u8]) {
    let [api, version, body @ ..] = data else { return };
    let api = CHOSEN[usize::from(*api) % CHOSEN.len()];
    let versions = api.versions();
    let count = versions.max - versions.min + 1;
    read(
        side,
        api,
        versions.min + i16::from(*version) % count,
        Bytes::copy_from_slice(body),
    );
}

/// Reads a message, and if that succeeds writes it, reads that, and writes it again: the same bytes.
pub fn read(side: Side, api: ApiKey, version: i16, body: Bytes) {
    macro_rules! dispatch {
        ($($api:ident $request:ident $response:ident;)*) => {
            match (api, side) {
                $(
                    (ApiKey::$api, Side::Request) => settle::<messages::$request>(version, body),
                    (ApiKey::$api, Side::Response) => settle::<messages::$response>(version, body),
                )*
            }
        };
    }
    stafett_kafka_wire::for_each_api!(dispatch);
}

pub fn settle<M: Message>(version: i16, body: Bytes) {
    let Ok(message) = M::decode(&mut Decoder::new(body, LIMITS), version) else {
        return;
    };
    let bytes = written(&message, version);
    assert!(bytes.len() >= M::BYTES_MIN);
    let mut d = Decoder::new(
        bytes.clone(),
        DecodeLimits {
            memory_bytes: usize::MAX,
        },
    );
    let again = M::decode(&mut d, version).expect("what was written can be read");
    assert_eq!(d.finish(), Ok(()));
    assert_eq!(written(&again, version), bytes);
}

fn written<M: Message>(message: &M, version: i16) -> Bytes {
    let mut e = Encoder::bare();
    message.encode(&mut e, version);
    e.finish().expect("what was read can be written").into_bytes()
}
