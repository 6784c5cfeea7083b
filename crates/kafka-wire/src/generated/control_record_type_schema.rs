//! `control_record_type_schema`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ControlRecordTypeSchema {
    pub type_: i16,
}

impl Wire for ControlRecordTypeSchema {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        Ok(Self { type_: d.i16()? })
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i16(self.type_);
    }
}

impl Message for ControlRecordTypeSchema {
    const NAME: &'static str = "ControlRecordTypeSchema";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = i16::MAX;
}
