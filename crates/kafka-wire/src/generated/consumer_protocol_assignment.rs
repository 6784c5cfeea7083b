//! `consumer_protocol_assignment`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ConsumerProtocolAssignment {
    pub assigned_partitions: Vec<TopicPartition>,
    pub user_data: Option<Bytes>,
}

impl Wire for ConsumerProtocolAssignment {
    const BYTES_MIN: usize = 8;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        Ok(Self {
            assigned_partitions: d.array(v, false)?,
            user_data: d.opt_bytes(false, true)?,
        })
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.array(&self.assigned_partitions, v, false);
        e.opt_bytes(self.user_data.as_ref(), false);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TopicPartition {
    pub topic: Str,
    pub partitions: Vec<i32>,
}

impl Wire for TopicPartition {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        Ok(Self {
            topic: d.string(false)?,
            partitions: d.array(v, false)?,
        })
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.topic, false);
        e.array(&self.partitions, v, false);
    }
}

impl Message for ConsumerProtocolAssignment {
    const NAME: &'static str = "ConsumerProtocolAssignment";
    const VERSIONS: VersionRange = VersionRange::new(0, 3);
    const FLEXIBLE_FROM: i16 = i16::MAX;
}
