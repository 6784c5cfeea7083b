//! `consumer_protocol_subscription`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct ConsumerProtocolSubscription {
    pub topics: Vec<Str>,
    pub user_data: Option<Bytes>,
    /// In versions 1 and up.
    pub owned_partitions: Vec<TopicPartition>,
    /// In versions 2 and up.
    pub generation_id: i32,
    /// In versions 3 and up.
    pub rack_id: Option<Str>,
}

impl Default for ConsumerProtocolSubscription {
    fn default() -> Self {
        Self {
            topics: Vec::new(),
            user_data: None,
            owned_partitions: Vec::new(),
            generation_id: -1,
            rack_id: None,
        }
    }
}

impl Wire for ConsumerProtocolSubscription {
    const BYTES_MIN: usize = 8;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        Ok(Self {
            topics: d.strings(false)?,
            user_data: d.opt_bytes(false, true)?,
            owned_partitions: if v >= 1 { d.array(v, false)? } else { Vec::new() },
            generation_id: if v >= 2 { d.i32()? } else { -1 },
            rack_id: if v >= 3 { d.opt_string(false, true)? } else { None },
        })
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.strings(&self.topics, false);
        e.opt_bytes(self.user_data.as_ref(), false);
        if v >= 1 {
            e.array(&self.owned_partitions, v, false);
        }
        if v >= 2 {
            e.i32(self.generation_id);
        }
        if v >= 3 {
            e.opt_string(self.rack_id.as_ref(), false);
        }
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

impl Message for ConsumerProtocolSubscription {
    const NAME: &'static str = "ConsumerProtocolSubscription";
    const VERSIONS: VersionRange = VersionRange::new(0, 3);
    const FLEXIBLE_FROM: i16 = i16::MAX;
}
