//! Leader epochs of partitions: all have the number of this start of the broker.

use std::cmp::Ordering;

use stafett_broker::Broker;
use stafett_kafka_wire::ErrorCode;

/// Returns the leader epoch of all partitions.
pub(crate) fn leader_epoch(broker: &Broker) -> i32 {
    i32::try_from(broker.catalog().epoch().0).unwrap_or(i32::MAX)
}

/// Compares a client's leader epoch with the current one. -1 means no epoch, and so does 0: epochs begin with
/// 1, and librdkafka sends 0 where it was told none.
pub(crate) fn check_leader_epoch(broker: &Broker, believed: i32) -> Result<(), ErrorCode> {
    match believed.cmp(&leader_epoch(broker)) {
        _ if believed == -1 || believed == 0 => Ok(()),
        Ordering::Less => Err(ErrorCode::FencedLeaderEpoch),
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(ErrorCode::UnknownLeaderEpoch),
    }
}
