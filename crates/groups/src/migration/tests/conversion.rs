//! Groups that became classic again, after a restart.

use bytes::Bytes;
use stafett_topics::Topics;

use crate::classic::ClassicGroup;
use crate::consumer::{Classic, ConsumerGroup, Partitions, Rules};
use crate::error::GroupError;
use crate::migration::ClassicMember;
use crate::moment::Moment;
use crate::strategy::Strategy;

#[test]
fn members_to_whom_a_group_was_converted_are_asked_to_join_also_after_a_crash() {
    let member = ClassicMember {
        id: "a".into(),
        instance: None,
        client_id: "client".into(),
        host: "host".into(),
        rebalance_ms: 60_000,
        classic: Classic {
            purpose: "consumer".into(),
            session_ms: 10_000,
            strategies: vec![Strategy {
                name: "range".into(),
                metadata: Bytes::new(),
            }],
        },
        names: Vec::new(),
        owned: Partitions::default(),
    };
    let mut assigned = ConsumerGroup::default();
    assigned.take_over(4, vec![member], &Topics::default(), &Rules::default(), 0);
    let converted = ClassicGroup::from_consumer_group(&assigned, Moment(0), |_| Bytes::new());
    let mut bytes = Vec::new();
    converted.encode(&mut bytes);
    let mut after = ClassicGroup::decode(&bytes, Moment(0)).unwrap();
    let beat = after.heartbeat("a", None, 4, Moment(1));
    assert_eq!(beat, Err(GroupError::Rebalancing));
    assert!(after.deadline().is_some_and(|until| until <= Moment(60_000)));
}
