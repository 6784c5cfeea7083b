//! Fetch, `ListOffsets`, Metadata and `OffsetForLeaderEpoch`: offsets and partitions that do not exist.

use stafett_kafka_wire::Uuid;
use stafett_kafka_wire::messages::fetch::{FetchPartition, FetchTopic};
use stafett_kafka_wire::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use stafett_kafka_wire::messages::metadata::MetadataRequestTopic;
use stafett_kafka_wire::messages::offset_for_leader_epoch::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use stafett_kafka_wire::messages::{
    FetchRequest, ListOffsetsRequest, MetadataRequest, OffsetForLeaderEpochRequest,
};

use super::asker::{Asker, codes_of, text};
use super::produce::filled;
use super::{Case, case};

pub(super) fn fetch(topic: &str, topic_id: Uuid, partition: i32, offset: i64) -> FetchRequest {
    FetchRequest {
        replica_id: -1,
        max_wait_ms: 0,
        min_bytes: 0,
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: text(topic),
            topic_id,
            partitions: vec![FetchPartition {
                partition,
                current_leader_epoch: -1,
                fetch_offset: offset,
                last_fetched_epoch: -1,
                log_start_offset: -1,
                partition_max_bytes: 1 << 20,
                high_watermark: i64::MAX,
                ..FetchPartition::default()
            }],
        }],
        ..FetchRequest::default()
    }
}

/// A topic with three records, and a fetch of its one partition, changed.
fn fetched(
    topic: &'static str,
    change: impl Fn(&mut FetchRequest) + 'static,
) -> impl Fn(&mut Asker) -> String {
    move |a| {
        filled(a, topic);
        let mut request = fetch(topic, Uuid::ZERO, 0, 0);
        change(&mut request);
        a.codes(12, &request)
    }
}

fn place(request: &mut FetchRequest) -> &mut FetchPartition {
    &mut request.topics[0].partitions[0]
}

fn fetches() -> Vec<Case> {
    vec![
        case("Fetch: what is there", fetched("odd.f.good", |_| {})),
        case(
            "Fetch: the end",
            fetched("odd.f.end", |r| place(r).fetch_offset = 3),
        ),
        case(
            "Fetch: beyond the end",
            fetched("odd.f.beyond", |r| place(r).fetch_offset = 4),
        ),
        case(
            "Fetch: the largest offset",
            fetched("odd.f.largest", |r| place(r).fetch_offset = i64::MAX),
        ),
        case(
            "Fetch: offset -1",
            fetched("odd.f.negative", |r| place(r).fetch_offset = -1),
        ),
        case(
            "Fetch: offset -2",
            fetched("odd.f.earliest", |r| place(r).fetch_offset = -2),
        ),
        case(
            "Fetch: a partition that is not there",
            fetched("odd.f.partition", |r| place(r).partition = 7),
        ),
        case(
            "Fetch: a negative partition",
            fetched("odd.f.partitionneg", |r| place(r).partition = -1),
        ),
        case(
            "Fetch: a leader epoch to come",
            fetched("odd.f.epoch", |r| place(r).current_leader_epoch = 1000),
        ),
        case(
            "Fetch: a negative leader epoch",
            fetched("odd.f.epochneg", |r| place(r).current_leader_epoch = -7),
        ),
        case(
            "Fetch: no bytes at most",
            fetched("odd.f.bytes", |r| r.max_bytes = 0),
        ),
        case(
            "Fetch: negative bytes at most",
            fetched("odd.f.bytesneg", |r| r.max_bytes = -1),
        ),
        case(
            "Fetch: no bytes of a partition at most",
            fetched("odd.f.pbytes", |r| place(r).partition_max_bytes = 0),
        ),
        case(
            "Fetch: negative bytes of a partition at most",
            fetched("odd.f.pbytesneg", |r| place(r).partition_max_bytes = -1),
        ),
        case(
            "Fetch: a negative wait",
            fetched("odd.f.wait", |r| r.max_wait_ms = -1),
        ),
        case(
            "Fetch: negative bytes at least",
            fetched("odd.f.min", |r| r.min_bytes = -1),
        ),
        case(
            "Fetch: an unknown isolation level",
            fetched("odd.f.isolation", |r| r.isolation_level = 9),
        ),
        case(
            "Fetch: as a replica that is not there",
            fetched("odd.f.replica", |r| r.replica_id = 5),
        ),
        case(
            "Fetch: the same partition twice",
            fetched("odd.f.twice", |r| {
                let again = place(r).clone();
                r.topics[0].partitions.push(again);
            }),
        ),
        case("Fetch: nothing", fetched("odd.f.nothing", |r| r.topics.clear())),
        case(
            "Fetch: a session that is not there",
            fetched("odd.f.session", |r| {
                r.session_id = 12345;
                r.session_epoch = 3;
            }),
        ),
        case(
            "Fetch: a session epoch without a session",
            fetched("odd.f.noepoch", |r| r.session_epoch = 3),
        ),
        case(
            "Fetch: a session epoch below the last",
            fetched("odd.f.sepoch", |r| r.session_epoch = -5),
        ),
        case("Fetch: a session's epoch twice", |a| {
            a.topic("odd.f.again", 1);
            let mut request = fetch("odd.f.again", Uuid::ZERO, 0, 0);
            request.session_epoch = 0;
            let opened = a.ask(12, &request).unwrap();
            request.session_id = opened.session_id;
            request.session_epoch = 1;
            let first = a.codes(12, &request);
            format!("{}; {first}; {}", codes_of(&opened), a.codes(12, &request))
        }),
        case("Fetch: a topic that is not there", |a| {
            a.codes(12, &fetch("odd.f.absent", Uuid::ZERO, 0, 0))
        }),
        case("Fetch: an empty topic name", |a| {
            a.codes(12, &fetch("", Uuid::ZERO, 0, 0))
        }),
        case("Fetch: an unknown topic id", |a| {
            a.codes(17, &fetch("", Uuid([9; 16]), 0, 0))
        }),
        case("Fetch: the topic id of zeros", |a| {
            a.codes(17, &fetch("", Uuid::ZERO, 0, 0))
        }),
        case("Fetch: a partition of a known topic id that is not there", |a| {
            let id = a.topic("odd.f.byid", 1);
            a.codes(17, &fetch("", id, 3, 0))
        }),
    ]
}

pub(super) fn list(topic: &str, partition: i32, epoch: i32, timestamp: i64) -> ListOffsetsRequest {
    ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: text(topic),
            partitions: vec![ListOffsetsPartition {
                partition_index: partition,
                current_leader_epoch: epoch,
                timestamp,
            }],
        }],
        ..ListOffsetsRequest::default()
    }
}

/// The code and the offset for a timestamp, in a topic of three records.
fn listed(topic: &'static str, version: i16, timestamp: i64) -> impl Fn(&mut Asker) -> String {
    move |a| {
        filled(a, topic);
        match a.ask(version, &list(topic, 0, -1, timestamp)) {
            Ok(answer) => format!(
                "{} at {}",
                codes_of(&answer),
                answer.topics[0].partitions[0].offset
            ),
            Err(ended) => ended.name(),
        }
    }
}

fn offsets() -> Vec<Case> {
    vec![
        case("ListOffsets: the earliest", listed("odd.l.earliest", 7, -2)),
        case("ListOffsets: the latest", listed("odd.l.latest", 7, -1)),
        case("ListOffsets: the largest time", listed("odd.l.max", 7, -3)),
        case(
            "ListOffsets: the largest time in a version before it",
            listed("odd.l.maxold", 6, -3),
        ),
        case("ListOffsets: the earliest local", listed("odd.l.local", 8, -4)),
        case("ListOffsets: the latest tiered", listed("odd.l.tiered", 9, -5)),
        case(
            "ListOffsets: the earliest pending upload",
            listed("odd.l.pending", 11, -6),
        ),
        case(
            "ListOffsets: an unknown negative time",
            listed("odd.l.unknown", 10, -77),
        ),
        case("ListOffsets: a time to come", listed("odd.l.future", 7, i64::MAX)),
        case("ListOffsets: time 0", listed("odd.l.zero", 7, 0)),
        case("ListOffsets: a topic that is not there", |a| {
            a.codes(7, &list("odd.l.absent", 0, -1, -1))
        }),
        case("ListOffsets: an empty topic name", |a| {
            a.codes(7, &list("", 0, -1, -1))
        }),
        case("ListOffsets: a partition that is not there", |a| {
            a.topic("odd.l.partition", 1);
            a.codes(7, &list("odd.l.partition", 5, -1, -1))
        }),
        case("ListOffsets: a negative partition", |a| {
            a.topic("odd.l.negative", 1);
            a.codes(7, &list("odd.l.negative", -1, -1, -1))
        }),
        case("ListOffsets: a leader epoch to come", |a| {
            a.topic("odd.l.epoch", 1);
            a.codes(7, &list("odd.l.epoch", 0, 1000, -1))
        }),
        case("ListOffsets: the same partition twice", |a| {
            a.topic("odd.l.twice", 1);
            let mut request = list("odd.l.twice", 0, -1, -1);
            let again = request.topics[0].partitions[0].clone();
            request.topics[0].partitions.push(again);
            a.codes(7, &request)
        }),
        case("ListOffsets: an unknown isolation level", |a| {
            a.topic("odd.l.isolation", 1);
            let request = ListOffsetsRequest {
                isolation_level: 9,
                ..list("odd.l.isolation", 0, -1, -1)
            };
            a.codes(7, &request)
        }),
    ]
}

pub(super) fn metadata(name: Option<&str>, topic_id: Uuid, create: bool) -> MetadataRequest {
    MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            topic_id,
            name: name.map(text),
        }]),
        allow_auto_topic_creation: create,
        ..MetadataRequest::default()
    }
}

fn topics() -> Vec<Case> {
    let named =
        |name: &'static str| move |a: &mut Asker| a.codes(12, &metadata(Some(name), Uuid::ZERO, false));
    let made = |name: &'static str| move |a: &mut Asker| a.codes(12, &metadata(Some(name), Uuid::ZERO, true));
    vec![
        case("Metadata: a topic that is not there", named("odd.m.absent")),
        case("Metadata: an empty name", named("")),
        case("Metadata: a topic called .", named(".")),
        case("Metadata: a bad name", named("odd m/ä")),
        case("Metadata: a bad name to be made", made("odd m/ä")),
        case("Metadata: an empty name to be made", made("")),
        case("Metadata: a name of 250 characters to be made", |a| {
            a.codes(12, &metadata(Some(&"n".repeat(250)), Uuid::ZERO, true))
        }),
        case("Metadata: an unknown id", |a| {
            a.codes(12, &metadata(None, Uuid([3; 16]), false))
        }),
        case("Metadata: an id of zeros and no name", |a| {
            a.codes(12, &metadata(None, Uuid::ZERO, false))
        }),
        case("Metadata: an id and a name", |a| {
            let id = a.topic("odd.m.both", 1);
            a.codes(12, &metadata(Some("odd.m.both"), id, false))
        }),
        case("Metadata: an id in a version before ids", |a| {
            a.codes(10, &metadata(Some("odd.m.absent"), Uuid([3; 16]), false))
        }),
        case("Metadata: no list where it must be one", |a| {
            a.raw(&super::frames::frame(3, 0, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff]))
        }),
        case("Metadata: the same topic three times", |a| {
            a.topic("odd.m.thrice", 1);
            let mut request = metadata(Some("odd.m.thrice"), Uuid::ZERO, false);
            let topics = request.topics.as_mut().unwrap();
            topics.extend([topics[0].clone(), topics[0].clone()]);
            a.codes(12, &request)
        }),
    ]
}

fn epochs() -> Vec<Case> {
    let asked = |topic: &'static str, partition: i32, current: i32, epoch: i32| {
        move |a: &mut Asker| {
            if topic != "odd.e.absent" {
                a.topic(topic, 1);
            }
            let request = OffsetForLeaderEpochRequest {
                replica_id: -1,
                topics: vec![OffsetForLeaderTopic {
                    topic: text(topic),
                    partitions: vec![OffsetForLeaderPartition {
                        partition,
                        current_leader_epoch: current,
                        leader_epoch: epoch,
                    }],
                }],
            };
            match a.ask(4, &request) {
                Ok(answer) => format!(
                    "{} at {}",
                    codes_of(&answer),
                    answer.topics[0].partitions[0].end_offset
                ),
                Err(ended) => ended.name(),
            }
        }
    };
    vec![
        case(
            "OffsetForLeaderEpoch: a topic that is not there",
            asked("odd.e.absent", 0, -1, 0),
        ),
        case(
            "OffsetForLeaderEpoch: a partition that is not there",
            asked("odd.e.partition", 4, -1, 0),
        ),
        case(
            "OffsetForLeaderEpoch: a leader epoch to come",
            asked("odd.e.future", 0, 1000, 0),
        ),
        case(
            "OffsetForLeaderEpoch: an epoch to come",
            asked("odd.e.epoch", 0, -1, 1000),
        ),
        case(
            "OffsetForLeaderEpoch: a negative epoch",
            asked("odd.e.negative", 0, -1, -5),
        ),
    ]
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = fetches();
    all.extend(offsets());
    all.extend(topics());
    all.extend(epochs());
    all
}
