//! Every message in every version: round trips, truncated frames, trailing bytes.

use bytes::{Bytes, BytesMut};

use crate::decode::{DecodeLimits, Decoder};
use crate::encode::Encoder;
use crate::errors::DecodeError;
use crate::messages::*;
use crate::wire::Message;

const SAMPLES: u64 = 12;

/// Draws `SAMPLES` messages of each version and gives them to `check` with their bytes.
fn for_samples<M: Message>(check: fn(i16, &M, &Bytes)) {
    for version in M::VERSIONS {
        for seed in 0..SAMPLES {
            let message = M::decode(&mut Decoder::sampling(seed), version).expect("draws never fail");
            let bytes = written(&message, version);
            check(version, &message, &bytes);
        }
    }
}

fn written<M: Message>(message: &M, version: i16) -> Bytes {
    let mut e = Encoder::bare();
    message.encode(&mut e, version);
    let told = e.len();
    let bytes = e
        .finish()
        .unwrap_or_else(|e| panic!("{} {version}: {e}", M::NAME))
        .into_bytes();
    assert_eq!(told, bytes.len());
    bytes
}

fn read<M: Message>(bytes: Bytes, version: i16) -> Result<M, DecodeError> {
    let mut d = Decoder::new(bytes, DecodeLimits::default());
    let message = M::decode(&mut d, version)?;
    d.finish().map(|()| message)
}

fn comes_back<M: Message>(version: i16, message: &M, bytes: &Bytes) {
    let again: M = read(bytes.clone(), version).unwrap_or_else(|e| panic!("{} {version}: {e}", M::NAME));
    assert_eq!(again, *message, "{} {version}", M::NAME);
    assert_eq!(written(&again, version), *bytes, "{} {version}", M::NAME);
}

fn is_refused_when_cut<M: Message>(version: i16, _message: &M, bytes: &Bytes) {
    for end in (0..bytes.len()).take(600) {
        let cut = read::<M>(bytes.slice(..end), version);
        assert!(cut.is_err(), "{} {version} cut at {end} was read", M::NAME);
    }
}

fn is_refused_with_more_behind<M: Message>(version: i16, _message: &M, bytes: &Bytes) {
    let mut longer = BytesMut::from(&bytes[..]);
    longer.extend_from_slice(&[0]);
    let refused = read::<M>(longer.freeze(), version);
    assert!(
        matches!(refused, Err(DecodeError::Trailing { left: 1, .. })),
        "{} {version}",
        M::NAME
    );
}

fn is_at_least_as_long_as_promised<M: Message>(version: i16, _message: &M, bytes: &Bytes) {
    assert!(bytes.len() >= M::BYTES_MIN, "{} {version}", M::NAME);
}

/// Each byte changed, in a way that depends on its offset: an error or another message, but no panic.
fn survives_damage<M: Message>(version: i16, _message: &M, bytes: &Bytes) {
    for at in 0..bytes.len().min(160) {
        for change in [0x01, 0x80, 0xff, u8::try_from(at % 251).unwrap()] {
            let mut damaged = BytesMut::from(&bytes[..]);
            damaged[at] ^= change;
            if let Ok(other) = read::<M>(damaged.freeze(), version) {
                written(&other, version);
            }
        }
    }
}

macro_rules! tests_of_every_message {
    ($($api:ident $request:ident $response:ident;)*) => {
        fn for_all(check: impl Checks) {
            $(check.run::<$request>(); check.run::<$response>();)*
            check.run::<ConsumerProtocolAssignment>();
            check.run::<ConsumerProtocolSubscription>();
            check.run::<ControlRecordTypeSchema>();
            check.run::<EndTxnMarker>();
        }
    };
}

crate::for_each_api!(tests_of_every_message);

trait Checks {
    fn run<M: Message>(&self);
}

macro_rules! test_of_every_message {
    ($($check:ident as $test:ident)*) => {$(
        #[test]
        fn $test() {
            struct Check;
            impl Checks for Check {
                fn run<M: Message>(&self) {
                    for_samples::<M>($check);
                }
            }
            for_all(Check);
        }
    )*};
}

test_of_every_message! {
    comes_back as every_message_comes_back_as_it_was_written
    is_refused_when_cut as every_message_is_refused_when_it_is_cut_short
    is_refused_with_more_behind as every_message_is_refused_with_bytes_behind_it
    is_at_least_as_long_as_promised as every_message_is_as_long_as_counts_assume
    survives_damage as damaged_messages_are_errors_or_other_messages
}
