//! Committed offsets: groups, members and partitions that do not exist.

use stafett_kafka_wire::Uuid;
use stafett_kafka_wire::messages::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use stafett_kafka_wire::messages::offset_delete::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use stafett_kafka_wire::messages::offset_fetch::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use stafett_kafka_wire::messages::{OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest};

use super::asker::{Asker, text};
use super::groups::member;
use super::{Case, case};

fn place(r: &mut OffsetCommitRequest) -> &mut OffsetCommitRequestPartition {
    &mut r.topics[0].partitions[0]
}

pub(super) fn commit(
    group: &str,
    member: &str,
    generation: i32,
    topic: &str,
    partition: i32,
    offset: i64,
) -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: text(group),
        generation_id_or_member_epoch: generation,
        member_id: text(member),
        retention_time_ms: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: text(topic),
            topic_id: Uuid::ZERO,
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: partition,
                committed_offset: offset,
                committed_leader_epoch: -1,
                committed_metadata: Some(text("")),
            }],
        }],
        ..OffsetCommitRequest::default()
    }
}

pub(super) fn fetch(group: &str, topic: Option<&str>) -> OffsetFetchRequest {
    OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: text(group),
            member_id: None,
            member_epoch: -1,
            topics: topic.map(|name| {
                vec![OffsetFetchRequestTopics {
                    name: text(name),
                    topic_id: Uuid::ZERO,
                    partition_indexes: vec![0, 99, -1],
                }]
            }),
        }],
        ..OffsetFetchRequest::default()
    }
}

fn commits() -> Vec<Case> {
    let alone = |group: &'static str, change: fn(&mut OffsetCommitRequest)| {
        move |a: &mut Asker| {
            let topic = if group.is_empty() { "odd.o.topic" } else { group };
            a.topic(topic, 1);
            let mut request = commit(group, "", -1, topic, 0, 5);
            change(&mut request);
            a.codes_of_coordinator(9, &request)
        }
    };
    vec![
        case(
            "OffsetCommit: outside of a group's generations",
            alone("odd.o.alone", |_| {}),
        ),
        case("OffsetCommit: an empty group", alone("", |_| {})),
        case(
            "OffsetCommit: a negative offset",
            alone("odd.o.negative", |r| place(r).committed_offset = -1),
        ),
        case(
            "OffsetCommit: an offset far below 0",
            alone("odd.o.below", |r| place(r).committed_offset = i64::MIN),
        ),
        case(
            "OffsetCommit: the largest offset",
            alone("odd.o.largest", |r| place(r).committed_offset = i64::MAX),
        ),
        case(
            "OffsetCommit: a partition that is not there",
            alone("odd.o.partition", |r| place(r).partition_index = 7),
        ),
        case(
            "OffsetCommit: a negative partition",
            alone("odd.o.pneg", |r| place(r).partition_index = -1),
        ),
        case(
            "OffsetCommit: a topic that is not there",
            alone("odd.o.topicless", |r| r.topics[0].name = text("odd.o.absent")),
        ),
        case(
            "OffsetCommit: an empty topic",
            alone("odd.o.unnamed", |r| r.topics[0].name = text("")),
        ),
        case(
            "OffsetCommit: nothing",
            alone("odd.o.nothing", |r| r.topics.clear()),
        ),
        case(
            "OffsetCommit: metadata of 4096 bytes",
            alone("odd.o.metadata", |r| {
                place(r).committed_metadata = Some(text(&"m".repeat(4096)));
            }),
        ),
        case(
            "OffsetCommit: metadata of 4097 bytes",
            alone("odd.o.metadatabig", |r| {
                place(r).committed_metadata = Some(text(&"m".repeat(4097)));
            }),
        ),
        case(
            "OffsetCommit: no metadata",
            alone("odd.o.metadatanull", |r| place(r).committed_metadata = None),
        ),
        case(
            "OffsetCommit: a member of a group that is not there",
            alone("odd.o.member", |r| {
                r.member_id = text("somebody");
                r.generation_id_or_member_epoch = 1;
            }),
        ),
        case(
            "OffsetCommit: a generation of a group that is not there",
            alone("odd.o.generation", |r| {
                r.generation_id_or_member_epoch = 3;
            }),
        ),
        case(
            "OffsetCommit: the same partition twice",
            alone("odd.o.twice", |r| {
                let again = place(r).clone();
                r.topics[0].partitions.push(again);
            }),
        ),
        case("OffsetCommit: an unknown topic id", |a| {
            let mut request = commit("odd.o.byid", "", -1, "", 0, 5);
            request.topics[0].topic_id = Uuid([5; 16]);
            a.codes_of_coordinator(10, &request)
        }),
        case("OffsetCommit: members and generations", |a| {
            a.topic("odd.o.group", 1);
            let id = member(a, "odd.o.group");
            let ask = |a: &mut Asker, member: &str, generation| {
                a.codes(9, &commit("odd.o.group", member, generation, "odd.o.group", 0, 5))
            };
            let good = ask(a, &id, 1);
            let old = ask(a, &id, 0);
            let new = ask(a, &id, 2);
            format!(
                "{good}; {old}; {new}; {}; {}",
                ask(a, "somebody", 1),
                ask(a, "", -1)
            )
        }),
    ]
}

fn fetches() -> Vec<Case> {
    vec![
        case("OffsetFetch: a group that is not there", |a| {
            a.codes_of_coordinator(9, &fetch("odd.g.absent", Some("odd.g")))
        }),
        case("OffsetFetch: an empty group", |a| {
            a.codes_of_coordinator(9, &fetch("", Some("odd.g")))
        }),
        case("OffsetFetch: everything of a group that is not there", |a| {
            a.codes_of_coordinator(9, &fetch("odd.g.absent", None))
        }),
        case("OffsetFetch: an empty topic", |a| {
            a.codes_of_coordinator(9, &fetch("odd.g.absent", Some("")))
        }),
        case("OffsetFetch: an unknown topic id", |a| {
            let mut request = fetch("odd.g.absent", Some(""));
            request.groups[0].topics.as_mut().unwrap()[0].topic_id = Uuid([5; 16]);
            a.codes_of_coordinator(10, &request)
        }),
        case("OffsetFetch: the same group twice", |a| {
            let mut request = fetch("odd.g.absent", None);
            request.groups.push(request.groups[0].clone());
            a.codes_of_coordinator(9, &request)
        }),
        case("OffsetFetch: a member that the group does not know", |a| {
            member(a, "odd.g.member");
            let mut request = fetch("odd.g.member", None);
            request.groups[0].member_id = Some(text("somebody"));
            request.groups[0].member_epoch = 4;
            a.codes(9, &request)
        }),
        case("OffsetDelete: a group that is not there", |a| {
            a.codes_of_coordinator(0, &delete("odd.k.absent", "odd.k"))
        }),
        case("OffsetDelete: an empty group", |a| {
            a.codes_of_coordinator(0, &delete("", "odd.k"))
        }),
        case("OffsetDelete: a topic without commits", |a| {
            a.topic("odd.k.topic", 1);
            assert_eq!(
                a.codes_of_coordinator(9, &commit("odd.k.group", "", -1, "odd.k.topic", 0, 5)),
                "0"
            );
            let good = a.codes(0, &delete("odd.k.group", "odd.k.topic"));
            format!("{good}; {}", a.codes(0, &delete("odd.k.group", "odd.k.absent")))
        }),
    ]
}

pub(super) fn delete(group: &str, topic: &str) -> OffsetDeleteRequest {
    OffsetDeleteRequest {
        group_id: text(group),
        topics: vec![OffsetDeleteRequestTopic {
            name: text(topic),
            partitions: [0, 99]
                .map(|partition_index| OffsetDeleteRequestPartition { partition_index })
                .to_vec(),
        }],
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = commits();
    all.extend(fetches());
    all
}
