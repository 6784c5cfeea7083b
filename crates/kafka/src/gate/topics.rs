//! Requests about topics.

use stafett_access::Action;
use stafett_kafka_wire::messages::add_partitions_to_txn::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
};
use stafett_kafka_wire::messages::create_partitions::CreatePartitionsTopicResult;
use stafett_kafka_wire::messages::create_topics::CreatableTopicResult;
use stafett_kafka_wire::messages::delete_records::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use stafett_kafka_wire::messages::delete_topics::DeletableTopicResult;
use stafett_kafka_wire::messages::describe_producers::{PartitionResponse, TopicResponse};
use stafett_kafka_wire::messages::list_offsets::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use stafett_kafka_wire::messages::offset_for_leader_epoch::{EpochEndOffset, OffsetForLeaderTopicResult};
use stafett_kafka_wire::messages::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, CreatePartitionsRequest, CreatePartitionsResponse,
    CreateTopicsRequest, CreateTopicsResponse, DeleteRecordsRequest, DeleteRecordsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, DescribeProducersRequest, DescribeProducersResponse,
    ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
};
use stafett_kafka_wire::{ApiKey, ErrorCode, Str, Uuid};
use stafett_topics::TopicId;

use super::{Checked, Gate, Right};

/// First version that may name topics by id.
const IDS_FROM: i16 = 6;

pub(super) const RIGHTS: &[(ApiKey, Right)] = &[
    (ApiKey::ListOffsets, list_offsets),
    (ApiKey::CreateTopics, create_topics),
    (ApiKey::DeleteTopics, delete_topics),
    (ApiKey::DeleteRecords, delete_records),
    (ApiKey::OffsetForLeaderEpoch, leader_epochs),
    (ApiKey::AddPartitionsToTxn, add_partitions),
    (ApiKey::CreatePartitions, create_partitions),
    (ApiKey::DescribeProducers, describe_producers),
];

fn list_offsets(gate: Gate<'_>) -> Checked {
    let action = Action::Describe;
    gate.check(
        |asked: &ListOffsetsRequest| gate.topics(action, asked.topics.iter().map(|topic| &*topic.name)),
        |asked, _| {
            let topics = asked.topics.into_iter().map(|topic| ListOffsetsTopicResponse {
                partitions: {
                    let error_code = gate.code_of_topic(action, &topic.name);
                    let partitions = topic.partitions.iter();
                    let refused = partitions.map(|asked| ListOffsetsPartitionResponse {
                        partition_index: asked.partition_index,
                        error_code,
                        timestamp: -1,
                        offset: -1,
                        leader_epoch: -1,
                    });
                    refused.collect()
                },
                name: topic.name,
            });
            ListOffsetsResponse {
                topics: topics.collect(),
                ..ListOffsetsResponse::default()
            }
        },
    )
}

fn create_topics(gate: Gate<'_>) -> Checked {
    let creation = |name: &str| gate.context.check_creation(name);
    gate.check(
        |asked: &CreateTopicsRequest| {
            let checked = asked.topics.iter().map(|topic| creation(&topic.name));
            checked.fold(Ok(()), Result::and)
        },
        |asked, _| {
            let topics = asked.topics.into_iter().map(|topic| {
                let code = creation(&topic.name).err();
                CreatableTopicResult {
                    error_code: code.unwrap_or(ErrorCode::OperationNotAttempted).code(),
                    error_message: Some("no rule permits to create all of these topics".into()),
                    topic_config_error_code: ErrorCode::TopicAuthorizationFailed.code(),
                    name: topic.name,
                    ..CreatableTopicResult::default()
                }
            });
            CreateTopicsResponse {
                topics: topics.collect(),
                ..CreateTopicsResponse::default()
            }
        },
    )
}

/// Names are given, or found by ids. An id that is not found is left to the handler.
fn delete_topics(gate: Gate<'_>) -> Checked {
    let topics = gate.context.shared.broker.topics();
    let name_of = |id: Uuid| {
        topics
            .with_id(TopicId(id.into()))
            .map(|topic| Str::copy_from(&topic.name))
    };
    let asked_of = |asked: &DeleteTopicsRequest| -> Vec<(Option<Str>, Uuid)> {
        if gate.call.version < IDS_FROM {
            let names = asked.topic_names.iter();
            return names.map(|name| (Some(name.clone()), Uuid::ZERO)).collect();
        }
        let topics = asked.topics.iter();
        topics.map(|topic| (topic.name.clone(), topic.topic_id)).collect()
    };
    gate.check(
        |asked: &DeleteTopicsRequest| {
            let names = asked_of(asked).into_iter();
            let names: Vec<Str> = names
                .filter_map(|(name, id)| name.or_else(|| name_of(id)))
                .collect();
            gate.topics(Action::Delete, names.iter().map(|name| &**name))
        },
        |asked, _| {
            let responses = asked_of(&asked).into_iter().map(|(name, topic_id)| {
                let known = name.clone().or_else(|| name_of(topic_id));
                DeletableTopicResult {
                    error_code: gate.code_of_topic(Action::Delete, known.as_deref().unwrap_or_default()),
                    name,
                    topic_id,
                    ..DeletableTopicResult::default()
                }
            });
            DeleteTopicsResponse {
                responses: responses.collect(),
                ..DeleteTopicsResponse::default()
            }
        },
    )
}

fn delete_records(gate: Gate<'_>) -> Checked {
    let action = Action::Delete;
    gate.check(
        |asked: &DeleteRecordsRequest| gate.topics(action, asked.topics.iter().map(|topic| &*topic.name)),
        |asked, _| {
            let topics = asked.topics.into_iter().map(|topic| DeleteRecordsTopicResult {
                partitions: {
                    let error_code = gate.code_of_topic(action, &topic.name);
                    let refused = topic.partitions.iter().map(|asked| DeleteRecordsPartitionResult {
                        partition_index: asked.partition_index,
                        low_watermark: -1,
                        error_code,
                    });
                    refused.collect()
                },
                name: topic.name,
            });
            DeleteRecordsResponse {
                topics: topics.collect(),
                ..DeleteRecordsResponse::default()
            }
        },
    )
}

fn leader_epochs(gate: Gate<'_>) -> Checked {
    let action = Action::Describe;
    gate.check(
        |asked: &OffsetForLeaderEpochRequest| {
            gate.topics(action, asked.topics.iter().map(|topic| &*topic.topic))
        },
        |asked, _| {
            let topics = asked.topics.into_iter().map(|topic| OffsetForLeaderTopicResult {
                partitions: {
                    let error_code = gate.code_of_topic(action, &topic.topic);
                    let refused = topic.partitions.iter().map(|asked| EpochEndOffset {
                        partition: asked.partition,
                        error_code,
                        ..EpochEndOffset::default()
                    });
                    refused.collect()
                },
                topic: topic.topic,
            });
            OffsetForLeaderEpochResponse {
                topics: topics.collect(),
                ..OffsetForLeaderEpochResponse::default()
            }
        },
    )
}

fn add_partitions(gate: Gate<'_>) -> Checked {
    let action = Action::Write;
    let check = |id: &str, topics: &[AddPartitionsToTxnTopic]| {
        gate.context.check_transaction(action, id)?;
        gate.topics(action, topics.iter().map(|topic| &*topic.name))
    };
    let refused = |topics: Vec<AddPartitionsToTxnTopic>, code: i16| {
        let refused = topics.into_iter().map(|topic| {
            let error = if code == ErrorCode::TopicAuthorizationFailed.code() {
                gate.code_of_topic(action, &topic.name)
            } else {
                code
            };
            let partitions = topic
                .partitions
                .iter()
                .map(|index| AddPartitionsToTxnPartitionResult {
                    partition_index: *index,
                    partition_error_code: error,
                });
            AddPartitionsToTxnTopicResult {
                results_by_partition: partitions.collect(),
                name: topic.name,
            }
        });
        refused.collect()
    };
    gate.check(
        |asked: &AddPartitionsToTxnRequest| {
            if gate.call.version < 4 {
                return check(&asked.v3_and_below_transactional_id, &asked.v3_and_below_topics);
            }
            // Such requests come from brokers.
            gate.context.check_cluster(Action::Operate)
        },
        |asked, code| AddPartitionsToTxnResponse {
            error_code: if gate.call.version < 4 { 0 } else { code },
            results_by_topic_v3_and_below: refused(asked.v3_and_below_topics, code),
            results_by_transaction: asked
                .transactions
                .into_iter()
                .map(|transaction| AddPartitionsToTxnResult {
                    topic_results: refused(transaction.topics, code),
                    transactional_id: transaction.transactional_id,
                })
                .collect(),
            ..AddPartitionsToTxnResponse::default()
        },
    )
}

fn create_partitions(gate: Gate<'_>) -> Checked {
    let action = Action::Alter;
    gate.check(
        |asked: &CreatePartitionsRequest| gate.topics(action, asked.topics.iter().map(|topic| &*topic.name)),
        |asked, _| {
            let results = asked.topics.into_iter().map(|topic| CreatePartitionsTopicResult {
                error_code: gate.code_of_topic(action, &topic.name),
                error_message: None,
                name: topic.name,
            });
            CreatePartitionsResponse {
                results: results.collect(),
                ..CreatePartitionsResponse::default()
            }
        },
    )
}

fn describe_producers(gate: Gate<'_>) -> Checked {
    let action = Action::Read;
    gate.check(
        |asked: &DescribeProducersRequest| gate.topics(action, asked.topics.iter().map(|topic| &*topic.name)),
        |asked, _| {
            let topics = asked.topics.into_iter().map(|topic| TopicResponse {
                partitions: {
                    let error_code = gate.code_of_topic(action, &topic.name);
                    let refused = topic.partition_indexes.iter().map(|index| PartitionResponse {
                        partition_index: *index,
                        error_code,
                        ..PartitionResponse::default()
                    });
                    refused.collect()
                },
                name: topic.name,
            });
            DescribeProducersResponse {
                topics: topics.collect(),
                ..DescribeProducersResponse::default()
            }
        },
    )
}
