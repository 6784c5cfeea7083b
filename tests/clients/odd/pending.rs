//! Commits of an open transaction beside other changes of the same offsets, first sequence numbers, and looks
//! at records that are undecided.

use stafett_kafka_wire::Uuid;
use stafett_kafka_wire::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use stafett_kafka_wire::messages::offset_delete::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use stafett_kafka_wire::messages::offset_fetch::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use stafett_kafka_wire::messages::write_txn_markers::{WritableTxnMarker, WritableTxnMarkerTopic};
use stafett_kafka_wire::messages::{
    DeleteGroupsRequest, ListOffsetsRequest, OffsetDeleteRequest, OffsetFetchRequest, WriteTxnMarkersRequest,
};

use super::asker::{Asker, text};
use super::offsets::commit;
use super::produce::{batch, of_producer, produce};
use super::transactions::{Sender, init};
use super::{Case, case};

/// `UNSTABLE_OFFSET_COMMIT`: the end of a transaction is not complete.
const UNSTABLE: i16 = 88;

pub(super) fn cases() -> Vec<Case> {
    [commits(), sequences(), instances(), times(), markers()]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns the committed offset of partition 0 of the topic that is named as the group.
fn committed(a: &mut Asker, group: &str) -> String {
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: text(group),
            member_id: None,
            member_epoch: -1,
            topics: Some(vec![OffsetFetchRequestTopics {
                name: text(group),
                topic_id: Uuid::ZERO,
                partition_indexes: vec![0],
            }]),
        }],
        require_stable: true,
        ..OffsetFetchRequest::default()
    };
    loop {
        let fetched = a.ask_coordinator(9, &request).unwrap();
        let partition = &fetched.groups[0].topics[0].partitions[0];
        if partition.error_code != UNSTABLE {
            return format!("at {}", partition.committed_offset);
        }
    }
}

fn delete_group(a: &mut Asker, group: &str) -> String {
    let request = DeleteGroupsRequest {
        groups_names: vec![text(group)],
    };
    a.codes_of_coordinator(2, &request)
}

fn delete_offset(a: &mut Asker, group: &str) -> String {
    let request = OffsetDeleteRequest {
        group_id: text(group),
        topics: vec![OffsetDeleteRequestTopic {
            name: text(group),
            partitions: vec![OffsetDeleteRequestPartition { partition_index: 0 }],
        }],
    };
    a.codes_of_coordinator(0, &request)
}

fn plain(a: &mut Asker, group: &str, offset: i64) -> String {
    a.codes_of_coordinator(9, &commit(group, "", -1, group, 0, offset))
}

/// Begins a transaction with a commit of offset 1 of the group and topic that are named as the id.
fn pending(a: &mut Asker, id: &'static str) -> Sender {
    let s = Sender::begin(a, id);
    assert_eq!(s.add_group(a, 3, id), "0");
    assert_eq!(s.commit(a, 3, id, -1), "0");
    s
}

fn commits() -> Vec<Case> {
    vec![
        case("TxnOffsetCommit: another commit before it", |a| {
            a.topic("odd.pend.before", 1);
            assert_eq!(plain(a, "odd.pend.before", 9), "0");
            let s = pending(a, "odd.pend.before");
            [s.end(a, 3, true), committed(a, "odd.pend.before")].join("; ")
        }),
        case("TxnOffsetCommit: another commit after it", |a| {
            a.topic("odd.pend.after", 1);
            let s = pending(a, "odd.pend.after");
            let after = plain(a, "odd.pend.after", 9);
            [after, s.end(a, 3, true), committed(a, "odd.pend.after")].join("; ")
        }),
        case(
            "TxnOffsetCommit: commits of two transactions, the first ends last",
            |a| {
                a.topic("odd.pend.two", 1);
                let s = pending(a, "odd.pend.two");
                let other = Sender::begin(a, "odd.pend.two.other");
                assert_eq!(other.add_group(a, 3, "odd.pend.two"), "0");
                assert_eq!(
                    other.commit_to(a, 3, ("odd.pend.two", "odd.pend.two"), -1, 7),
                    "0"
                );
                let ends = [other.end(a, 3, true), s.end(a, 3, true)];
                [ends.join("; "), committed(a, "odd.pend.two")].join("; ")
            },
        ),
        case("TxnOffsetCommit: its group is deleted before the end", |a| {
            a.topic("odd.pend.gone", 1);
            assert_eq!(plain(a, "odd.pend.gone", 9), "0");
            let s = pending(a, "odd.pend.gone");
            let deleted = delete_group(a, "odd.pend.gone");
            let ended = s.end(a, 3, true);
            let again = delete_group(a, "odd.pend.gone");
            [deleted, ended, committed(a, "odd.pend.gone"), again].join("; ")
        }),
        case(
            "TxnOffsetCommit: its group has no other commit and is deleted",
            |a| {
                a.topic("odd.pend.only", 1);
                let s = pending(a, "odd.pend.only");
                let deleted = delete_group(a, "odd.pend.only");
                [deleted, s.end(a, 3, true), committed(a, "odd.pend.only")].join("; ")
            },
        ),
        case("TxnOffsetCommit: its offset is deleted before the end", |a| {
            a.topic("odd.pend.offset", 1);
            assert_eq!(plain(a, "odd.pend.offset", 9), "0");
            let s = pending(a, "odd.pend.offset");
            let deleted = delete_offset(a, "odd.pend.offset");
            [deleted, s.end(a, 3, true), committed(a, "odd.pend.offset")].join("; ")
        }),
        case(
            "TxnOffsetCommit: its group has no other commit, its offset is deleted",
            |a| {
                a.topic("odd.pend.onlyoff", 1);
                let s = pending(a, "odd.pend.onlyoff");
                let deleted = delete_offset(a, "odd.pend.onlyoff");
                [deleted, s.end(a, 3, true), committed(a, "odd.pend.onlyoff")].join("; ")
            },
        ),
        case("TxnOffsetCommit: an empty group", |a| {
            a.topic("odd.pend.empty", 1);
            let s = Sender::begin(a, "odd.pend.empty");
            let added = s.add_group(a, 3, "");
            let place = ("", "odd.pend.empty");
            let stored = [3, 5].map(|version| s.commit_to(a, version, place, -1, 1));
            [added, stored.join("; ")].join("; ")
        }),
    ]
}

fn sequences() -> Vec<Case> {
    vec![
        case(
            "Produce: a first sequence above 0 of an idempotent producer",
            |a| {
                a.topic("odd.pend.first", 1);
                [9, 12]
                    .map(|version| {
                        let id = a.ask(4, &init_idempotent()).unwrap().producer_id;
                        a.codes(
                            version,
                            &produce("odd.pend.first", 0, Some(of_producer(id, 0, 5))),
                        )
                    })
                    .join("; ")
            },
        ),
        case("Produce: a first sequence above 0 in a transaction", |a| {
            a.topic("odd.pend.firsttx", 1);
            let s = Sender::begin(a, "odd.pend.firsttx");
            assert_eq!(s.add(a, 3, &[("odd.pend.firsttx", 0)]), "0");
            [s.send(a, 9, "odd.pend.firsttx", 5), s.end(a, 3, false)].join("; ")
        }),
        case(
            "Produce: a first sequence above 0 in a transaction, by the second version",
            |a| {
                a.topic("odd.pend.firsttx2", 1);
                let s = Sender::begin(a, "odd.pend.firsttx2");
                let sent = [5, 0, 2].map(|first| s.send(a, 12, "odd.pend.firsttx2", first));
                [sent.join("; "), s.end(a, 5, false)].join("; ")
            },
        ),
        case(
            "Produce: a first sequence above 0 of a later epoch, by the second version",
            |a| {
                a.topic("odd.pend.firsttx3", 1);
                let s = Sender::begin(a, "odd.pend.firsttx3");
                assert_eq!(s.send(a, 12, "odd.pend.firsttx3", 0), "0");
                assert_eq!(s.end(a, 5, true), "0");
                let s = s.with(s.producer, s.epoch + 1);
                let sent = [5, 0].map(|first| s.send(a, 12, "odd.pend.firsttx3", first));
                [sent.join("; "), s.end(a, 5, false)].join("; ")
            },
        ),
    ]
}

fn init_idempotent() -> stafett_kafka_wire::messages::InitProducerIdRequest {
    stafett_kafka_wire::messages::InitProducerIdRequest {
        transactional_id: None,
        ..init("", 60_000, -1, -1)
    }
}

/// Another epoch that is asked for by a producer, as the distance from its first one.
fn another(a: &mut Asker, s: &Sender, given: (i64, i16)) -> String {
    loop {
        let begun = a
            .ask_coordinator(4, &init(s.id, 60_000, given.0, given.1))
            .unwrap();
        match begun.error_code {
            51 => {}
            0 => return format!("epoch {}", begun.producer_epoch - s.epoch),
            code => return code.to_string(),
        }
    }
}

fn instances() -> Vec<Case> {
    vec![
        case("InitProducerId: another epoch, asked for twice", |a| {
            let s = Sender::begin(a, "odd.pend.again");
            [0, 0, 1, 0]
                .map(|past| another(a, &s, (s.producer, s.epoch + past)))
                .join("; ")
        }),
        case("InitProducerId: another epoch, asked for twice, then used", |a| {
            let s = Sender::begin(a, "odd.pend.used");
            let first = [0, 0].map(|past| another(a, &s, (s.producer, s.epoch + past)));
            a.topic("odd.pend.used", 1);
            let used = s.with(s.producer, s.epoch + 1);
            let used = used.add(a, 3, &[("odd.pend.used", 0)]);
            let after = [0, 1].map(|past| another(a, &s, (s.producer, s.epoch + past)));
            [first.join("; "), used, after.join("; ")].join("; ")
        }),
        case(
            "InitProducerId: another epoch in an open transaction, asked for twice",
            |a| {
                let s = Sender::begin(a, "odd.pend.open");
                s.work(a, "odd.pend.open");
                [0, 0, 1]
                    .map(|past| another(a, &s, (s.producer, s.epoch + past)))
                    .join("; ")
            },
        ),
    ]
}

/// Returns the offset that is found by a time, at both levels of isolation.
fn found(a: &mut Asker, topic: &str, timestamp: i64) -> String {
    [0, 1]
        .map(|isolation_level| {
            let request = ListOffsetsRequest {
                replica_id: -1,
                isolation_level,
                topics: vec![ListOffsetsTopic {
                    name: text(topic),
                    partitions: vec![ListOffsetsPartition {
                        partition_index: 0,
                        current_leader_epoch: -1,
                        timestamp,
                    }],
                }],
                ..ListOffsetsRequest::default()
            };
            let listed = a.ask(7, &request).unwrap();
            let partition = &listed.topics[0].partitions[0];
            format!("{} at {}", partition.error_code, partition.offset)
        })
        .join(", ")
}

fn times() -> Vec<Case> {
    vec![
        case("ListOffsets: by time, of undecided records", |a| {
            let s = Sender::begin(a, "odd.pend.time");
            s.work(a, "odd.pend.time");
            [0, -3, -1].map(|time| found(a, "odd.pend.time", time)).join("; ")
        }),
        case("ListOffsets: by time, with undecided records behind", |a| {
            a.topic("odd.pend.behind", 1);
            assert_eq!(a.codes(9, &produce("odd.pend.behind", 0, Some(batch(3)))), "0");
            let s = Sender::begin(a, "odd.pend.behind");
            assert_eq!(s.add(a, 3, &[("odd.pend.behind", 0)]), "0");
            assert_eq!(s.send(a, 9, "odd.pend.behind", 0), "0");
            [0, -3, -1]
                .map(|time| found(a, "odd.pend.behind", time))
                .join("; ")
        }),
        case("ListOffsets: by time, of aborted records", |a| {
            let s = Sender::begin(a, "odd.pend.aborted");
            s.work(a, "odd.pend.aborted");
            assert_eq!(s.end(a, 3, false), "0");
            s.add(a, 3, &[("odd.pend.aborted", 0)]);
            found(a, "odd.pend.aborted", 0)
        }),
    ]
}

fn mark(s: &Sender, topic: &str, committed: bool, coordinator_epoch: i32) -> WriteTxnMarkersRequest {
    WriteTxnMarkersRequest {
        markers: vec![WritableTxnMarker {
            producer_id: s.producer,
            producer_epoch: s.epoch,
            transaction_result: committed,
            topics: vec![WritableTxnMarkerTopic {
                name: text(topic),
                partition_indexes: vec![0],
            }],
            coordinator_epoch,
            transaction_version: 0,
        }],
    }
}

fn markers() -> Vec<Case> {
    vec![
        case("WriteTxnMarkers: an abort of an open transaction", |a| {
            let s = Sender::begin(a, "odd.pend.mark");
            s.work(a, "odd.pend.mark");
            let aborted = a.codes(1, &mark(&s, "odd.pend.mark", false, 0));
            let latest = found(a, "odd.pend.mark", -1);
            let again = a.codes(1, &mark(&s, "odd.pend.mark", false, 0));
            [
                aborted,
                latest,
                again,
                s.end(a, 3, true),
                found(a, "odd.pend.mark", -1),
            ]
            .join("; ")
        }),
        case("WriteTxnMarkers: an older epoch", |a| {
            Sender::begin(a, "odd.pend.markold");
            let s = Sender::begin(a, "odd.pend.markold");
            s.work(a, "odd.pend.markold");
            a.codes(1, &mark(&s.older(), "odd.pend.markold", false, 0))
        }),
        case("WriteTxnMarkers: a producer that the log does not know", |a| {
            a.topic("odd.pend.markno", 1);
            let s = Sender::begin(a, "odd.pend.markno");
            let codes = a.codes(1, &mark(&s, "odd.pend.markno", false, 0));
            [codes, found(a, "odd.pend.markno", -1)].join("; ")
        }),
        case("WriteTxnMarkers: a topic that is not there", |a| {
            let s = Sender::begin(a, "odd.pend.marknot");
            a.codes(1, &mark(&s, "odd.pend.nowhere", false, 0))
        }),
        case("WriteTxnMarkers: a commit of an open transaction", |a| {
            let s = Sender::begin(a, "odd.pend.markc");
            s.work(a, "odd.pend.markc");
            a.codes(1, &mark(&s, "odd.pend.markc", true, 0))
        }),
        case("WriteTxnMarkers: nothing", |a| {
            a.codes(1, &WriteTxnMarkersRequest { markers: Vec::new() })
        }),
    ]
}
