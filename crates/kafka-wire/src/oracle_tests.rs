//! Comparison with a second implementation: the `kafka-protocol` crate reads messages that are written here
//! and writes the same bytes again, in all versions that both know. Its schemas are those of Kafka 4.1.

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::{Decodable, Encodable, Message as TheirMessage};

use crate::decode::{DecodeLimits, Decoder};
use crate::encode::Encoder;
use crate::messages::*;
use crate::wire::Message;

const SAMPLES: u64 = 24;

mod theirs {
    use kafka_protocol::protocol::buf::{ByteBuf, ByteBufMut};
    use kafka_protocol::protocol::{Decodable, Encodable, Message, VersionRange};

    pub(super) use kafka_protocol::messages::*;

    pub(super) use Missing as StreamsGroupDescribeRequest;
    pub(super) use Missing as StreamsGroupDescribeResponse;
    pub(super) use Missing as StreamsGroupHeartbeatRequest;
    pub(super) use Missing as StreamsGroupHeartbeatResponse;

    /// Stands for a message that the other crate lacks: it has no versions.
    pub(super) struct Missing;

    impl Message for Missing {
        const VERSIONS: VersionRange = VersionRange { min: 0, max: -1 };
        const DEPRECATED_VERSIONS: Option<VersionRange> = None;
    }

    impl Encodable for Missing {
        fn encode<B: ByteBufMut>(&self, _buf: &mut B, _version: i16) -> anyhow::Result<()> {
            Ok(())
        }

        fn compute_size(&self, _version: i16) -> anyhow::Result<usize> {
            Ok(0)
        }
    }

    impl Decodable for Missing {
        fn decode<B: ByteBuf>(_buf: &mut B, _version: i16) -> anyhow::Result<Self> {
            Ok(Self)
        }
    }
}

/// Returns the number of compared versions.
fn agree<Ours: Message, Theirs: TheirMessage + Encodable + Decodable>() -> usize {
    let known = Ours::VERSIONS
        .iter()
        .filter(|v| (Theirs::VERSIONS.min..=Theirs::VERSIONS.max).contains(v));
    known.map(agree_in::<Ours, Theirs>).count()
}

fn agree_in<Ours: Message, Theirs: Encodable + Decodable>(version: i16) {
    for seed in 100..100 + SAMPLES {
        let at = || format!("{} {version} of seed {seed}", Ours::NAME);
        let message = Ours::decode(&mut Decoder::sampling(seed), version).expect("draws never fail");
        let mut e = Encoder::bare();
        message.encode(&mut e, version);
        let bytes = e.finish().unwrap().into_bytes();
        let mut rest = bytes.clone();
        let read = Theirs::decode(&mut rest, version).unwrap_or_else(|e| panic!("{}: {e}", at()));
        assert!(rest.is_empty(), "{} left bytes behind", at());
        let mut again = BytesMut::new();
        read.encode(&mut again, version)
            .unwrap_or_else(|e| panic!("{}: {e}", at()));
        let again = again.freeze();
        assert_eq!(again, bytes, "{} is written differently: {message:?}", at());
        assert_eq!(
            Ours::decode(&mut Decoder::new(again, DecodeLimits::default()), version),
            Ok(message)
        );
    }
}

macro_rules! agree_on_every_message {
    ($($api:ident $request:ident $response:ident;)*) => {
        fn versions_compared() -> usize {
            let mut compared = 0;
            $(
                compared += agree::<$request, theirs::$request>();
                compared += agree::<$response, theirs::$response>();
            )*
            compared
        }
    };
}

crate::for_each_api!(agree_on_every_message);

#[test]
fn a_second_implementation_writes_every_message_alike() {
    let compared = versions_compared();
    let compared = compared + agree::<ConsumerProtocolAssignment, theirs::ConsumerProtocolAssignment>();
    let compared = compared + agree::<ConsumerProtocolSubscription, theirs::ConsumerProtocolSubscription>();
    assert!(compared > 530, "only {compared} versions are known to both");
}

#[test]
fn a_second_implementation_reads_the_same_request_header() {
    for (api, version) in ApiKeys::pairs() {
        let header = crate::RequestHeader {
            api,
            version,
            correlation_id: 7,
            client_id: Some("tåg".into()),
        };
        let mut e = Encoder::bare();
        header.encode(&mut e);
        let mut bytes: Bytes = e.finish().unwrap().into_bytes();
        let read = theirs::RequestHeader::decode(&mut bytes, api.request_header_version(version)).unwrap();
        assert!(bytes.is_empty());
        assert_eq!(read.request_api_key, api.code());
        assert_eq!(read.request_api_version, version);
        assert_eq!(read.correlation_id, 7);
        assert_eq!(read.client_id.as_deref(), Some("tåg"));
    }
}

#[test]
fn a_second_implementation_knows_the_same_header_versions() {
    for (api, version) in ApiKeys::pairs() {
        let Ok(key) = theirs::ApiKey::try_from(api.code()) else {
            continue;
        };
        assert_eq!(
            key.request_header_version(version),
            api.request_header_version(version),
            "{api:?} {version}"
        );
        assert_eq!(
            key.response_header_version(version),
            api.response_header_version(version),
            "{api:?} {version}"
        );
    }
}

struct ApiKeys;

impl ApiKeys {
    fn pairs() -> impl Iterator<Item = (crate::ApiKey, i16)> {
        crate::ApiKey::ALL
            .iter()
            .flat_map(|api| api.versions().iter().map(move |version| (*api, version)))
    }
}
