//! Topics, settings and administrative requests: invalid names, counts and values.

use stafett_kafka_wire::Uuid;
use stafett_kafka_wire::messages::create_partitions::{CreatePartitionsAssignment, CreatePartitionsTopic};
use stafett_kafka_wire::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use stafett_kafka_wire::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};
use stafett_kafka_wire::messages::delete_topics::DeleteTopicState;
use stafett_kafka_wire::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest,
    DescribeClientQuotasRequest, DescribeClusterRequest, DescribeLogDirsRequest, DescribeProducersRequest,
    DescribeTopicPartitionsRequest, ElectLeadersRequest, ListPartitionReassignmentsRequest,
    UpdateFeaturesRequest, describe_client_quotas, describe_log_dirs, describe_producers,
    describe_topic_partitions, elect_leaders, list_partition_reassignments, update_features,
};

use super::asker::{Asker, text};
use super::produce::filled;
use super::{Case, case};

const TIMEOUT: i32 = 30_000;

fn creatable(name: &str) -> CreatableTopic {
    CreatableTopic {
        name: text(name),
        num_partitions: 1,
        replication_factor: 1,
        ..CreatableTopic::default()
    }
}

fn create(topics: Vec<CreatableTopic>) -> CreateTopicsRequest {
    CreateTopicsRequest {
        topics,
        timeout_ms: TIMEOUT,
        validate_only: false,
    }
}

/// A creation of one topic, changed.
fn created(
    name: impl Into<String>,
    change: impl Fn(&mut CreatableTopic) + 'static,
) -> impl Fn(&mut Asker) -> String {
    let name = name.into();
    move |a| {
        let mut topic = creatable(&name);
        change(&mut topic);
        a.codes(7, &create(vec![topic]))
    }
}

fn with_config(name: &'static str, value: Option<&'static str>) -> impl Fn(&mut CreatableTopic) {
    move |topic| {
        topic.configs.push(CreatableTopicConfig {
            name: text(name),
            value: value.map(text),
        });
    }
}

fn assigned(partition_index: i32, brokers: &[i32]) -> CreatableReplicaAssignment {
    CreatableReplicaAssignment {
        partition_index,
        broker_ids: brokers.to_vec(),
    }
}

fn by_hand(assignments: Vec<CreatableReplicaAssignment>) -> impl Fn(&mut CreatableTopic) {
    move |topic| {
        topic.num_partitions = -1;
        topic.replication_factor = -1;
        topic.assignments.clone_from(&assignments);
    }
}

fn creations() -> Vec<Case> {
    vec![
        case("CreateTopics: an empty name", created("", |_| {})),
        case("CreateTopics: a topic called .", created(".", |_| {})),
        case("CreateTopics: a topic called ..", created("..", |_| {})),
        case("CreateTopics: a bad name", created("odd t/ö", |_| {})),
        case(
            "CreateTopics: a name of 249 characters",
            created("t".repeat(249), |_| {}),
        ),
        case(
            "CreateTopics: a name of 250 characters",
            created("t".repeat(250), |_| {}),
        ),
        case(
            "CreateTopics: 0 partitions",
            created("odd.t.p0", |t| t.num_partitions = 0),
        ),
        case(
            "CreateTopics: -1 partitions",
            created("odd.t.p1", |t| t.num_partitions = -1),
        ),
        case(
            "CreateTopics: -2 partitions",
            created("odd.t.p2", |t| t.num_partitions = -2),
        ),
        case(
            "CreateTopics: 0 replicas",
            created("odd.t.r0", |t| t.replication_factor = 0),
        ),
        case(
            "CreateTopics: -2 replicas",
            created("odd.t.r2", |t| t.replication_factor = -2),
        ),
        case(
            "CreateTopics: 3 replicas",
            created("odd.t.r3", |t| t.replication_factor = 3),
        ),
        case(
            "CreateTopics: assignments and a count",
            created("odd.t.both", |t| t.assignments.push(assigned(0, &[1]))),
        ),
        case(
            "CreateTopics: assignments",
            created(
                "odd.t.assigned",
                by_hand(vec![assigned(0, &[1]), assigned(1, &[1])]),
            ),
        ),
        case(
            "CreateTopics: assignments to another broker",
            created("odd.t.other", by_hand(vec![assigned(0, &[7])])),
        ),
        case(
            "CreateTopics: assignments to nobody",
            created("odd.t.nobody", by_hand(vec![assigned(0, &[])])),
        ),
        case(
            "CreateTopics: assignments to one broker twice",
            created("odd.t.twice", by_hand(vec![assigned(0, &[1, 1])])),
        ),
        case(
            "CreateTopics: assignments that leave out partition 0",
            created("odd.t.gap", by_hand(vec![assigned(1, &[1])])),
        ),
        case(
            "CreateTopics: a partition assigned twice",
            created("odd.t.again", by_hand(vec![assigned(0, &[1]), assigned(0, &[1])])),
        ),
        case(
            "CreateTopics: an unknown setting",
            created("odd.t.unknown", with_config("no.such.setting", Some("1"))),
        ),
        case(
            "CreateTopics: a setting without a value",
            created("odd.t.null", with_config("retention.ms", None)),
        ),
        case(
            "CreateTopics: an unknown cleanup policy",
            created("odd.t.cleanup", with_config("cleanup.policy", Some("burn"))),
        ),
        case(
            "CreateTopics: a negative size",
            created("odd.t.size", with_config("max.message.bytes", Some("-1"))),
        ),
        case(
            "CreateTopics: a retention that is no number",
            created("odd.t.nan", with_config("retention.ms", Some("long"))),
        ),
        case(
            "CreateTopics: an unknown codec",
            created("odd.t.codec", with_config("compression.type", Some("zip"))),
        ),
        case(
            "CreateTopics: an unknown timestamp type",
            created("odd.t.time", with_config("message.timestamp.type", Some("Never"))),
        ),
        case("CreateTopics: a topic that exists", |a| {
            a.topic("odd.t.exists", 1);
            a.codes(7, &create(vec![creatable("odd.t.exists")]))
        }),
        case("CreateTopics: a name that collides with another", |a| {
            a.topic("odd.t.dots.x", 1);
            a.codes(7, &create(vec![creatable("odd_t_dots_x")]))
        }),
        case("CreateTopics: the same name twice", |a| {
            a.codes(7, &create(vec![creatable("odd.t.same"), creatable("odd.t.same")]))
        }),
        case("CreateTopics: nothing", |a| a.codes(7, &create(Vec::new()))),
        case("CreateTopics: only to validate", |a| {
            let request = CreateTopicsRequest {
                validate_only: true,
                ..create(vec![creatable("odd.t.validate")])
            };
            let first = a.codes(7, &request);
            format!("{first}; {}", a.codes(7, &request))
        }),
    ]
}

fn deletions() -> Vec<Case> {
    let by_name = |a: &mut Asker, names: &[&str]| {
        let request = DeleteTopicsRequest {
            topic_names: names.iter().map(|n| text(n)).collect(),
            timeout_ms: TIMEOUT,
            ..DeleteTopicsRequest::default()
        };
        a.codes(5, &request)
    };
    let states = |a: &mut Asker, states: &[(Option<&str>, Uuid)]| {
        let topics = states
            .iter()
            .map(|(name, id)| DeleteTopicState {
                name: name.map(text),
                topic_id: *id,
            })
            .collect();
        a.codes(
            6,
            &DeleteTopicsRequest {
                topics,
                timeout_ms: TIMEOUT,
                ..DeleteTopicsRequest::default()
            },
        )
    };
    vec![
        case("DeleteTopics: a topic that is not there", move |a| {
            by_name(a, &["odd.d.absent"])
        }),
        case("DeleteTopics: an empty name", move |a| by_name(a, &[""])),
        case("DeleteTopics: a bad name", move |a| by_name(a, &["odd d/ü"])),
        case("DeleteTopics: nothing", move |a| by_name(a, &[])),
        case("DeleteTopics: the same name twice", move |a| {
            a.topic("odd.d.twice", 1);
            by_name(a, &["odd.d.twice", "odd.d.twice"])
        }),
        case("DeleteTopics: a topic twice over", move |a| {
            a.topic("odd.d.over", 1);
            let first = by_name(a, &["odd.d.over"]);
            format!("{first}; {}", by_name(a, &["odd.d.over"]))
        }),
        case("DeleteTopics: an unknown id", move |a| {
            states(a, &[(None, Uuid([4; 16]))])
        }),
        case("DeleteTopics: neither name nor id", move |a| {
            states(a, &[(None, Uuid::ZERO)])
        }),
        case("DeleteTopics: both name and id", move |a| {
            let id = a.topic("odd.d.both", 1);
            states(a, &[(Some("odd.d.both"), id)])
        }),
        case("DeleteTopics: a name and its id, apart", move |a| {
            let id = a.topic("odd.d.apart", 1);
            states(a, &[(Some("odd.d.apart"), Uuid::ZERO), (None, id)])
        }),
    ]
}

fn partitions() -> Vec<Case> {
    let grown = |topic: &'static str, count: i32, assignments: Option<Vec<Vec<i32>>>| {
        move |a: &mut Asker| {
            if topic.starts_with("odd.c.") {
                a.topic(topic, 2);
            }
            let assignments = assignments.as_ref().map(|lists| {
                lists
                    .iter()
                    .map(|ids| CreatePartitionsAssignment {
                        broker_ids: ids.clone(),
                    })
                    .collect()
            });
            let request = CreatePartitionsRequest {
                topics: vec![CreatePartitionsTopic {
                    name: text(topic),
                    count,
                    assignments,
                }],
                timeout_ms: TIMEOUT,
                validate_only: false,
            };
            a.codes(3, &request)
        }
    };
    vec![
        case("CreatePartitions: three out of two", grown("odd.c.good", 3, None)),
        case(
            "CreatePartitions: as many as there are",
            grown("odd.c.same", 2, None),
        ),
        case(
            "CreatePartitions: fewer than there are",
            grown("odd.c.fewer", 1, None),
        ),
        case("CreatePartitions: none", grown("odd.c.none", 0, None)),
        case(
            "CreatePartitions: a negative count",
            grown("odd.c.negative", -1, None),
        ),
        case(
            "CreatePartitions: assignments",
            grown("odd.c.assigned", 3, Some(vec![vec![1]])),
        ),
        case(
            "CreatePartitions: too few assignments",
            grown("odd.c.short", 4, Some(vec![vec![1]])),
        ),
        case(
            "CreatePartitions: no assignments in the list",
            grown("odd.c.empty", 3, Some(Vec::new())),
        ),
        case(
            "CreatePartitions: assignments to another broker",
            grown("odd.c.other", 3, Some(vec![vec![9]])),
        ),
        case(
            "CreatePartitions: assignments to nobody",
            grown("odd.c.nobody", 3, Some(vec![Vec::new()])),
        ),
        case(
            "CreatePartitions: a topic that is not there",
            grown("absent.c", 3, None),
        ),
        case("CreatePartitions: an empty name", grown("", 3, None)),
        case("CreatePartitions: the same topic twice", |a| {
            a.topic("odd.c.twice", 1);
            let topic = CreatePartitionsTopic {
                name: text("odd.c.twice"),
                count: 2,
                assignments: None,
            };
            let request = CreatePartitionsRequest {
                topics: vec![topic.clone(), topic],
                timeout_ms: TIMEOUT,
                validate_only: false,
            };
            a.codes(3, &request)
        }),
    ]
}

fn records() -> Vec<Case> {
    let deleted = |topic: &'static str, partition: i32, offset: i64| {
        move |a: &mut Asker| {
            if topic.starts_with("odd.x.") {
                filled(a, topic);
            }
            let request = DeleteRecordsRequest {
                topics: vec![DeleteRecordsTopic {
                    name: text(topic),
                    partitions: vec![DeleteRecordsPartition {
                        partition_index: partition,
                        offset,
                    }],
                }],
                timeout_ms: TIMEOUT,
            };
            match a.ask(2, &request) {
                Ok(answer) => format!(
                    "{} at {}",
                    super::asker::codes_of(&answer),
                    answer.topics[0].partitions[0].low_watermark
                ),
                Err(ended) => ended.name(),
            }
        }
    };
    vec![
        case("DeleteRecords: some", deleted("odd.x.some", 0, 2)),
        case("DeleteRecords: all", deleted("odd.x.all", 0, -1)),
        case("DeleteRecords: offset 0", deleted("odd.x.zero", 0, 0)),
        case("DeleteRecords: beyond the end", deleted("odd.x.beyond", 0, 4)),
        case("DeleteRecords: offset -2", deleted("odd.x.negative", 0, -2)),
        case(
            "DeleteRecords: a partition that is not there",
            deleted("odd.x.partition", 3, 1),
        ),
        case(
            "DeleteRecords: a negative partition",
            deleted("odd.x.pneg", -1, 1),
        ),
        case(
            "DeleteRecords: a topic that is not there",
            deleted("absent.x", 0, 1),
        ),
        case("DeleteRecords: an empty name", deleted("", 0, 1)),
    ]
}

fn questions() -> Vec<Case> {
    vec![
        case("DescribeCluster: an unknown kind of endpoint", |a| {
            a.codes(
                1,
                &DescribeClusterRequest {
                    endpoint_type: 9,
                    ..DescribeClusterRequest::default()
                },
            )
        }),
        case("DescribeCluster: the controllers", |a| {
            a.codes(
                1,
                &DescribeClusterRequest {
                    endpoint_type: 2,
                    ..DescribeClusterRequest::default()
                },
            )
        }),
        case("DescribeTopicPartitions: topics that are not there", |a| {
            let topics = ["odd.q.absent", "", "odd q/ø"]
                .map(|name| describe_topic_partitions::TopicRequest { name: text(name) });
            a.codes(
                0,
                &DescribeTopicPartitionsRequest {
                    topics: topics.to_vec(),
                    response_partition_limit: 10,
                    cursor: None,
                },
            )
        }),
        case("DescribeTopicPartitions: a limit of 0", |a| {
            a.topic("odd.q.limit", 3);
            let topics = vec![describe_topic_partitions::TopicRequest {
                name: text("odd.q.limit"),
            }];
            a.codes(
                0,
                &DescribeTopicPartitionsRequest {
                    topics,
                    response_partition_limit: 0,
                    cursor: None,
                },
            )
        }),
        case("DescribeTopicPartitions: a cursor beyond the partitions", |a| {
            a.topic("odd.q.cursor", 3);
            let topics = vec![describe_topic_partitions::TopicRequest {
                name: text("odd.q.cursor"),
            }];
            let cursor = Some(describe_topic_partitions::RequestCursor {
                topic_name: text("odd.q.cursor"),
                partition_index: 9,
            });
            a.codes(
                0,
                &DescribeTopicPartitionsRequest {
                    topics,
                    response_partition_limit: 10,
                    cursor,
                },
            )
        }),
        case("DescribeTopicPartitions: a cursor before the partitions", |a| {
            a.topic("odd.q.before", 3);
            let topics = vec![describe_topic_partitions::TopicRequest {
                name: text("odd.q.before"),
            }];
            let cursor = Some(describe_topic_partitions::RequestCursor {
                topic_name: text("odd.q.before"),
                partition_index: -1,
            });
            a.codes(
                0,
                &DescribeTopicPartitionsRequest {
                    topics,
                    response_partition_limit: 10,
                    cursor,
                },
            )
        }),
        case("DescribeLogDirs: a topic that is not there", |a| {
            let topics = Some(vec![describe_log_dirs::DescribableLogDirTopic {
                topic: text("odd.q.absent"),
                partitions: vec![0, -1, 99],
            }]);
            a.codes(4, &DescribeLogDirsRequest { topics })
        }),
        case("DescribeProducers: places that are not there", |a| {
            a.topic("odd.q.producers", 1);
            let topic = |name: &str| describe_producers::TopicRequest {
                name: text(name),
                partition_indexes: vec![0, -1, 99],
            };
            a.codes(
                0,
                &DescribeProducersRequest {
                    topics: vec![topic("odd.q.producers"), topic("odd.q.absent"), topic("")],
                },
            )
        }),
        case("ElectLeaders: an unknown kind", |a| {
            a.topic("odd.q.elect", 1);
            a.codes(2, &elect("odd.q.elect", 9))
        }),
        case("ElectLeaders: the preferred, which leads", |a| {
            a.topic("odd.q.preferred", 1);
            a.codes(2, &elect("odd.q.preferred", 0))
        }),
        case("ElectLeaders: an unclean one where there is a leader", |a| {
            a.topic("odd.q.unclean", 1);
            a.codes(2, &elect("odd.q.unclean", 1))
        }),
        case("ElectLeaders: a topic that is not there", |a| {
            a.codes(2, &elect("odd.q.absent", 0))
        }),
        case("ListPartitionReassignments: a topic that is not there", |a| {
            let topics = Some(vec![
                list_partition_reassignments::ListPartitionReassignmentsTopics {
                    name: text("odd.q.absent"),
                    partition_indexes: vec![0, 99],
                },
            ]);
            a.codes(
                0,
                &ListPartitionReassignmentsRequest {
                    timeout_ms: TIMEOUT,
                    topics,
                },
            )
        }),
        case("DescribeClientQuotas: an unknown entity", |a| {
            a.codes(1, &quotas(&[("planet", 0)]))
        }),
        case("DescribeClientQuotas: an empty entity", |a| {
            a.codes(1, &quotas(&[("", 0)]))
        }),
        case("DescribeClientQuotas: the same entity twice", |a| {
            a.codes(1, &quotas(&[("user", 0), ("user", 0)]))
        }),
        case("DescribeClientQuotas: an unknown match", |a| {
            a.codes(1, &quotas(&[("user", 9)]))
        }),
        case("DescribeClientQuotas: nothing", |a| a.codes(1, &quotas(&[]))),
        case("UpdateFeatures: an unknown feature", |a| {
            a.codes(1, &update("no.such.feature", 1))
        }),
        case("UpdateFeatures: an empty name", |a| a.codes(1, &update("", 1))),
        case("UpdateFeatures: a metadata version beyond the last", |a| {
            a.codes(1, &update("metadata.version", 9999))
        }),
        case("UpdateFeatures: a negative level", |a| {
            a.codes(1, &update("metadata.version", -5))
        }),
        case("UpdateFeatures: nothing", |a| {
            a.codes(
                1,
                &UpdateFeaturesRequest {
                    timeout_ms: TIMEOUT,
                    ..UpdateFeaturesRequest::default()
                },
            )
        }),
    ]
}

pub(super) fn elect(topic: &str, election_type: i8) -> ElectLeadersRequest {
    ElectLeadersRequest {
        election_type,
        topic_partitions: Some(vec![elect_leaders::TopicPartitions {
            topic: text(topic),
            partitions: vec![0, 99],
        }]),
        timeout_ms: TIMEOUT,
    }
}

fn quotas(components: &[(&str, i8)]) -> DescribeClientQuotasRequest {
    DescribeClientQuotasRequest {
        components: components
            .iter()
            .map(|(kind, match_type)| describe_client_quotas::ComponentData {
                entity_type: text(kind),
                match_type: *match_type,
                match_: Some(text("odd")),
            })
            .collect(),
        strict: false,
    }
}

pub(super) fn update(feature: &str, level: i16) -> UpdateFeaturesRequest {
    UpdateFeaturesRequest {
        timeout_ms: TIMEOUT,
        feature_updates: vec![update_features::FeatureUpdateKey {
            feature: text(feature),
            max_version_level: level,
            upgrade_type: 1,
            ..update_features::FeatureUpdateKey::default()
        }],
        validate_only: true,
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = creations();
    all.extend(deletions());
    all.extend(partitions());
    all.extend(records());
    all.extend(questions());
    all
}
