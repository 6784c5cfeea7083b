//! Topics of the stub: metadata, creation, deletion and bounds.

use std::net::SocketAddr;

use stafett_kafka_wire::messages::create_topics::CreatableTopicResult;
use stafett_kafka_wire::messages::delete_topics::DeletableTopicResult;
use stafett_kafka_wire::messages::list_offsets::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use stafett_kafka_wire::messages::metadata::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use stafett_kafka_wire::messages::{
    CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse, ListOffsetsRequest,
    ListOffsetsResponse, MetadataRequest, MetadataResponse,
};
use stafett_kafka_wire::{ErrorCode, Str};

use super::{Connection, Ended, LATEST, Partition, id_of};

impl Connection {
    pub(super) fn metadata(&self, request: MetadataRequest, local: SocketAddr) -> MetadataResponse {
        let mut topics = self.topics();
        let asked: Vec<Str> = match request.topics {
            Some(asked) => asked.into_iter().filter_map(|topic| topic.name).collect(),
            None => topics.keys().cloned().collect(),
        };
        if let Some(filled) = &self.filled {
            for name in &asked {
                let topic = topics.entry(name.detach()).or_default();
                topic.partitions.resize(filled.partitions, Partition::default());
            }
        }
        let partition = |index| MetadataResponsePartition {
            partition_index: index,
            leader_id: 1,
            leader_epoch: 1,
            replica_nodes: vec![1],
            isr_nodes: vec![1],
            ..MetadataResponsePartition::default()
        };
        let topic = |name: Str| {
            let count = topics.get(&name).map(|topic| topic.partitions.len());
            let unknown = ErrorCode::UnknownTopicOrPartition.code();
            MetadataResponseTopic {
                error_code: if count.is_some() { 0 } else { unknown },
                topic_id: id_of(&name),
                name: Some(name),
                partitions: (0..i32::try_from(count.unwrap_or(0)).unwrap_or(0))
                    .map(partition)
                    .collect(),
                ..MetadataResponseTopic::default()
            }
        };
        MetadataResponse {
            brokers: vec![MetadataResponseBroker {
                node_id: 1,
                host: local.ip().to_string().into(),
                port: local.port().into(),
                rack: None,
            }],
            cluster_id: Some("stub".into()),
            controller_id: 1,
            topics: asked.into_iter().map(topic).collect(),
            ..MetadataResponse::default()
        }
    }

    pub(super) fn create_topics(&self, request: CreateTopicsRequest) -> Result<CreateTopicsResponse, Ended> {
        let mut topics = self.topics();
        let mut results = Vec::new();
        for asked in request.topics {
            let asked_for = usize::try_from(asked.num_partitions.max(1))?;
            let count = self.filled.as_ref().map_or(asked_for, |filled| filled.partitions);
            let name = asked.name.detach();
            topics
                .entry(name.clone())
                .or_default()
                .partitions
                .resize(count, Partition::default());
            results.push(CreatableTopicResult {
                topic_id: id_of(&name),
                name,
                num_partitions: i32::try_from(count)?,
                replication_factor: 1,
                error_message: None,
                ..CreatableTopicResult::default()
            });
        }
        Ok(CreateTopicsResponse {
            throttle_time_ms: 0,
            topics: results,
        })
    }

    pub(super) fn delete_topics(&self, request: DeleteTopicsRequest) -> DeleteTopicsResponse {
        let states = request.topics.into_iter().filter_map(|state| state.name);
        let names: Vec<Str> = request.topic_names.into_iter().chain(states).collect();
        let mut topics = self.topics();
        let responses = names.into_iter().map(|name| {
            topics.remove(&name);
            DeletableTopicResult {
                topic_id: id_of(&name),
                name: Some(name),
                error_message: None,
                ..DeletableTopicResult::default()
            }
        });
        DeleteTopicsResponse {
            throttle_time_ms: 0,
            responses: responses.collect(),
        }
    }

    pub(super) fn list_offsets(&self, request: ListOffsetsRequest) -> ListOffsetsResponse {
        let end = self.filled.as_ref().map_or(0, |filled| filled.records);
        let topics = request.topics.into_iter().map(|topic| ListOffsetsTopicResponse {
            name: topic.name,
            partitions: topic
                .partitions
                .into_iter()
                .map(|partition| ListOffsetsPartitionResponse {
                    partition_index: partition.partition_index,
                    offset: if partition.timestamp == LATEST { end } else { 0 },
                    ..ListOffsetsPartitionResponse::default()
                })
                .collect(),
        });
        ListOffsetsResponse {
            throttle_time_ms: 0,
            topics: topics.collect(),
        }
    }
}
