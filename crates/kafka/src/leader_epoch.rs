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
    compare(believed, leader_epoch(broker))
}

fn compare(believed: i32, current: i32) -> Result<(), ErrorCode> {
    match believed.cmp(&current) {
        _ if believed == -1 || believed == 0 => Ok(()),
        Ordering::Less => Err(ErrorCode::FencedLeaderEpoch),
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(ErrorCode::UnknownLeaderEpoch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_of_earlier_and_later_starts_are_told_apart() {
        for (believed, expected) in [
            (-1, Ok(())),
            (0, Ok(())),
            (1, Err(ErrorCode::FencedLeaderEpoch)),
            (4, Err(ErrorCode::FencedLeaderEpoch)),
            (5, Ok(())),
            (6, Err(ErrorCode::UnknownLeaderEpoch)),
        ] {
            assert_eq!(compare(believed, 5), expected, "{believed}");
        }
    }
}
