//! `WriteTxnMarkers`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct WriteTxnMarkersRequest {
    pub markers: Vec<WritableTxnMarker>,
}

impl Wire for WriteTxnMarkersRequest {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            markers: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.array(&self.markers, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct WritableTxnMarker {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub transaction_result: bool,
    pub topics: Vec<WritableTxnMarkerTopic>,
    pub coordinator_epoch: i32,
    /// In versions 2 and up.
    pub transaction_version: i8,
}

impl Wire for WritableTxnMarker {
    const BYTES_MIN: usize = 17;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            producer_id: d.i64()?,
            producer_epoch: d.i16()?,
            transaction_result: d.bool()?,
            topics: d.array(v, true)?,
            coordinator_epoch: d.i32()?,
            transaction_version: if v >= 2 { d.i8()? } else { 0 },
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i64(self.producer_id);
        e.i16(self.producer_epoch);
        e.bool(self.transaction_result);
        e.array(&self.topics, v, true);
        e.i32(self.coordinator_epoch);
        if v >= 2 {
            e.i8(self.transaction_version);
        }
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct WritableTxnMarkerTopic {
    pub name: Str,
    pub partition_indexes: Vec<i32>,
}

impl Wire for WritableTxnMarkerTopic {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            name: d.string(true)?,
            partition_indexes: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.name, true);
        e.array(&self.partition_indexes, v, true);
        e.tags(&[]);
    }
}

impl Message for WriteTxnMarkersRequest {
    const NAME: &'static str = "WriteTxnMarkersRequest";
    const VERSIONS: VersionRange = VersionRange::new(1, 2);
    const FLEXIBLE_FROM: i16 = 1;
}

impl Request for WriteTxnMarkersRequest {
    const KEY: ApiKey = ApiKey::WriteTxnMarkers;
    type Response = WriteTxnMarkersResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct WriteTxnMarkersResponse {
    pub markers: Vec<WritableTxnMarkerResult>,
}

impl Wire for WriteTxnMarkersResponse {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            markers: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.array(&self.markers, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct WritableTxnMarkerResult {
    pub producer_id: i64,
    pub topics: Vec<WritableTxnMarkerTopicResult>,
}

impl Wire for WritableTxnMarkerResult {
    const BYTES_MIN: usize = 10;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            producer_id: d.i64()?,
            topics: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i64(self.producer_id);
        e.array(&self.topics, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct WritableTxnMarkerTopicResult {
    pub name: Str,
    pub partitions: Vec<WritableTxnMarkerPartitionResult>,
}

impl Wire for WritableTxnMarkerTopicResult {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            name: d.string(true)?,
            partitions: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.name, true);
        e.array(&self.partitions, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct WritableTxnMarkerPartitionResult {
    pub partition_index: i32,
    pub error_code: i16,
}

impl Wire for WritableTxnMarkerPartitionResult {
    const BYTES_MIN: usize = 7;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            partition_index: d.i32()?,
            error_code: d.i16()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i32(self.partition_index);
        e.i16(self.error_code);
        e.tags(&[]);
    }
}

impl Message for WriteTxnMarkersResponse {
    const NAME: &'static str = "WriteTxnMarkersResponse";
    const VERSIONS: VersionRange = VersionRange::new(1, 2);
    const FLEXIBLE_FROM: i16 = 1;
}
