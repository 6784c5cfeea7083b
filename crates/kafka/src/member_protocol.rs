//! Embedded data of classic consumers, for groups that move between the protocols.

use bytes::Bytes;
use stafett_groups::MemberProtocol;
use stafett_groups::member_protocol::{MemberMetadata, TopicPartitions};
use stafett_kafka_wire::consumer_protocol::{self, ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use stafett_kafka_wire::messages::consumer_protocol_assignment::TopicPartition;
use stafett_kafka_wire::{DecodeLimits, Str};

/// The embedded protocol of Kafka's consumers.
#[derive(Debug)]
pub(crate) struct Consumers;

impl MemberProtocol for Consumers {
    fn purpose(&self) -> &'static str {
        "consumer"
    }

    fn read_member(&self, metadata: &Bytes) -> Option<MemberMetadata> {
        let read = consumer_protocol::read(metadata.clone(), DecodeLimits::default());
        let (
            _,
            ConsumerProtocolSubscription {
                topics,
                owned_partitions,
                ..
            },
        ) = read.ok()?;
        let owned = owned_partitions
            .iter()
            .map(|topic| (copied(&topic.topic), indexes(&topic.partitions)));
        Some(MemberMetadata {
            names: topics.iter().map(copied).collect(),
            owned: owned.collect(),
        })
    }

    fn read_assignment(&self, assignment: &Bytes) -> Option<Vec<TopicPartitions>> {
        let read = consumer_protocol::read(assignment.clone(), DecodeLimits::default());
        let (
            _,
            ConsumerProtocolAssignment {
                assigned_partitions, ..
            },
        ) = read.ok()?;
        let named = assigned_partitions
            .iter()
            .map(|topic| (copied(&topic.topic), indexes(&topic.partitions)));
        Some(named.collect())
    }

    fn write_assignment(&self, metadata: &Bytes, partitions: &[TopicPartitions]) -> Bytes {
        let read = consumer_protocol::read::<ConsumerProtocolSubscription>(
            metadata.clone(),
            DecodeLimits::default(),
        );
        let version = read.map_or(0, |(version, _)| version);
        let assigned = partitions.iter().map(|(name, indexes)| TopicPartition {
            topic: Str::copy_from(name),
            partitions: indexes
                .iter()
                .filter_map(|index| i32::try_from(*index).ok())
                .collect(),
        });
        let assignment = ConsumerProtocolAssignment {
            assigned_partitions: assigned.collect(),
            ..ConsumerProtocolAssignment::default()
        };
        consumer_protocol::write(version, &assignment).unwrap_or_default()
    }
}

fn copied(text: &Str) -> Box<str> {
    text.as_str().into()
}

fn indexes(partitions: &[i32]) -> Vec<u32> {
    partitions
        .iter()
        .filter_map(|index| u32::try_from(*index).ok())
        .collect()
}
