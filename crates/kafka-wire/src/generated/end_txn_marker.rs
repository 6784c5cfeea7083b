//! `end_txn_marker`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct EndTxnMarker {
    pub coordinator_epoch: i32,
}

impl Wire for EndTxnMarker {
    const BYTES_MIN: usize = 4;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        Ok(Self {
            coordinator_epoch: d.i32()?,
        })
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i32(self.coordinator_epoch);
    }
}

impl Message for EndTxnMarker {
    const NAME: &'static str = "EndTxnMarker";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = i16::MAX;
}
