//! A partition in a share fetch: its place, the records that were taken, and its part of the response.

use std::sync::Arc;

use stafett_kafka_wire::messages::share_fetch::{AcquiredRecords, PartitionData};
use stafett_kafka_wire::{ErrorCode, Records};
use stafett_model::Offset;
use stafett_shares::{Acquired, AcquiredRange, Place};

use crate::share_sessions::PartitionId;

/// An error, and a message for the client.
pub(crate) type Failure = (ErrorCode, String);

pub(crate) struct SharePartition {
    pub id: PartitionId,
    /// `None` if the partition does not exist.
    pub place: Option<Arc<Place>>,
    pub acquired: Acquired,
    pub error: Option<Failure>,
    /// Offset at which a read found the end of the log, though the log's bounds go on: after a crash they
    /// end with offsets that are not given out. It is not read again until there may be records.
    pub ended_at: Option<Offset>,
}

impl SharePartition {
    pub(crate) fn new(id: PartitionId) -> Self {
        Self {
            id,
            place: None,
            acquired: Acquired::default(),
            error: None,
            ended_at: None,
        }
    }

    /// Returns its part of the response. `refused` is the error of its acknowledgements.
    pub(crate) fn into_data(
        self,
        refused: Option<Failure>,
        count_error: &mut impl FnMut(ErrorCode) -> i16,
    ) -> PartitionData {
        let mut split = |failure: Option<Failure>| match failure {
            Some((code, why)) => (count_error(code), Some(why.into())),
            None => (ErrorCode::None.code(), None),
        };
        let (error_code, error_message) = split(self.error);
        let (acknowledge_error_code, acknowledge_error_message) = split(refused);
        let Acquired { ranges, batches } = self.acquired;
        PartitionData {
            partition_index: self.id.1,
            error_code,
            error_message,
            acknowledge_error_code,
            acknowledge_error_message,
            records: Records::from(batches),
            acquired_records: ranges.into_iter().map(acquired_records).collect(),
            ..PartitionData::default()
        }
    }
}

fn acquired_records(range: AcquiredRange) -> AcquiredRecords {
    let offset = |offset: Offset| i64::try_from(offset.0).unwrap_or(i64::MAX);
    AcquiredRecords {
        first_offset: offset(range.first),
        last_offset: offset(range.last),
        delivery_count: i16::try_from(range.deliveries).unwrap_or(i16::MAX),
    }
}
