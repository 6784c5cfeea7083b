//! Transactions: zombies, steps out of order, and names that do not go together.

use stafett_kafka_wire::messages::add_partitions_to_txn::AddPartitionsToTxnTopic;
use stafett_kafka_wire::messages::find_coordinator::Coordinator;
use stafett_kafka_wire::messages::txn_offset_commit::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use stafett_kafka_wire::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, DescribeTransactionsRequest, EndTxnRequest,
    FindCoordinatorRequest, InitProducerIdRequest, ListTransactionsRequest, ProduceRequest,
    TxnOffsetCommitRequest,
};
use stafett_model::{BatchBuilder, Codec, ProducerId};

use super::asker::{Asker, text};
use super::produce::{batch, builder, produce};
use super::{Case, case};

/// `CONCURRENT_TRANSACTIONS`: Kafka ends a transaction after it has answered.
const BUSY: &str = "51";

/// A transactional id with its producer.
#[derive(Clone)]
pub(super) struct Sender {
    pub(super) id: &'static str,
    pub(super) producer: i64,
    pub(super) epoch: i16,
}

impl Sender {
    /// Takes over a transactional id.
    pub(super) fn begin(a: &mut Asker, id: &'static str) -> Self {
        let find = FindCoordinatorRequest {
            key_type: 1,
            coordinator_keys: vec![text(id)],
            ..FindCoordinatorRequest::default()
        };
        let found = a.ask_coordinator(4, &find).unwrap();
        assert!(
            found
                .coordinators
                .iter()
                .all(|Coordinator { error_code, .. }| *error_code == 0)
        );
        loop {
            let begun = a.ask_coordinator(4, &init(id, 60_000, -1, -1)).unwrap();
            if begun.error_code == 0 {
                return Self {
                    id,
                    producer: begun.producer_id,
                    epoch: begun.producer_epoch,
                };
            }
            assert_eq!(begun.error_code.to_string(), BUSY);
        }
    }

    pub(super) fn with(&self, producer: i64, epoch: i16) -> Self {
        Self {
            producer,
            epoch,
            ..self.clone()
        }
    }

    pub(super) fn older(&self) -> Self {
        self.with(self.producer, self.epoch - 1)
    }

    pub(super) fn add(&self, a: &mut Asker, version: i16, topics: &[(&str, i32)]) -> String {
        let topics = topics.iter().map(|(name, partition)| AddPartitionsToTxnTopic {
            name: text(name),
            partitions: vec![*partition],
        });
        let request = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: text(self.id),
            v3_and_below_producer_id: self.producer,
            v3_and_below_producer_epoch: self.epoch,
            v3_and_below_topics: topics.collect(),
            ..AddPartitionsToTxnRequest::default()
        };
        loop {
            let added = a.ask_coordinator(version, &request).unwrap();
            let topics = added.results_by_topic_v3_and_below.iter();
            let results = topics.flat_map(|topic| &topic.results_by_partition);
            let codes: Vec<String> = results
                .map(|result| result.partition_error_code.to_string())
                .collect();
            if !codes.iter().any(|code| code == BUSY) {
                return codes.join(" ");
            }
        }
    }

    pub(super) fn add_group(&self, a: &mut Asker, version: i16, group: &str) -> String {
        let request = AddOffsetsToTxnRequest {
            transactional_id: text(self.id),
            producer_id: self.producer,
            producer_epoch: self.epoch,
            group_id: text(group),
        };
        until_free(a, version, &request)
    }

    /// Commits offset 1 of the group that is named as the id.
    pub(super) fn commit(&self, a: &mut Asker, version: i16, topic: &str, generation: i32) -> String {
        self.commit_to(a, version, (self.id, topic), generation, 1)
    }

    pub(super) fn commit_to(
        &self,
        a: &mut Asker,
        version: i16,
        (group, topic): (&str, &str),
        generation: i32,
        committed_offset: i64,
    ) -> String {
        let request = TxnOffsetCommitRequest {
            transactional_id: text(self.id),
            group_id: text(group),
            producer_id: self.producer,
            producer_epoch: self.epoch,
            generation_id: generation,
            member_id: text(if generation < 0 { "" } else { "member" }),
            topics: vec![TxnOffsetCommitRequestTopic {
                name: text(topic),
                partitions: vec![TxnOffsetCommitRequestPartition {
                    committed_offset,
                    ..TxnOffsetCommitRequestPartition::default()
                }],
            }],
            ..TxnOffsetCommitRequest::default()
        };
        a.codes_of_coordinator(version, &request)
    }

    pub(super) fn send(&self, a: &mut Asker, version: i16, topic: &str, sequence: i32) -> String {
        let empty = BatchBuilder::new(Codec::None)
            .producer(ProducerId(self.producer), self.epoch, sequence)
            .transactional();
        let request = ProduceRequest {
            transactional_id: Some(text(self.id)),
            ..produce(topic, 0, Some(builder(empty, 2).finish().unwrap()))
        };
        until_free(a, version, &request)
    }

    pub(super) fn end(&self, a: &mut Asker, version: i16, committed: bool) -> String {
        let request = EndTxnRequest {
            transactional_id: text(self.id),
            producer_id: self.producer,
            producer_epoch: self.epoch,
            committed,
        };
        until_free(a, version, &request)
    }

    /// Adds a topic of one partition, and sends a batch.
    pub(super) fn work(&self, a: &mut Asker, topic: &str) {
        a.topic(topic, 1);
        assert_eq!(self.add(a, 3, &[(topic, 0)]), "0");
        assert_eq!(self.send(a, 9, topic, 0), "0");
    }
}

/// Repeats a request while an earlier end is not complete.
fn until_free<R: stafett_kafka_wire::Request>(a: &mut Asker, version: i16, request: &R) -> String {
    loop {
        let codes = a.codes_of_coordinator(version, request);
        if !codes.split(' ').any(|code| code == BUSY) {
            return codes;
        }
    }
}

pub(super) fn init(id: &str, timeout: i32, producer: i64, epoch: i16) -> InitProducerIdRequest {
    InitProducerIdRequest {
        transactional_id: Some(text(id)),
        transaction_timeout_ms: timeout,
        producer_id: producer,
        producer_epoch: epoch,
    }
}

pub(super) fn cases() -> Vec<Case> {
    [instances(), ends(), partitions(), offsets(), batches(), looks()]
        .into_iter()
        .flatten()
        .collect()
}

fn instances() -> Vec<Case> {
    vec![
        case("InitProducerId: timeouts of a transaction out of bounds", |a| {
            Sender::begin(a, "odd.t.timeout");
            [0, -1, i32::MAX]
                .map(|timeout| until_free(a, 4, &init("odd.t.timeout", timeout, -1, -1)))
                .join("; ")
        }),
        case("InitProducerId: a new transactional id with a producer", |a| {
            Sender::begin(a, "odd.t.other");
            until_free(a, 4, &init("odd.t.unknown", 60_000, 1 << 40, 3))
        }),
        case("InitProducerId: the epoch before, and one that never was", |a| {
            Sender::begin(a, "odd.t.epochs");
            let s = Sender::begin(a, "odd.t.epochs");
            let s = [
                s.older(),
                s.with(s.producer, s.epoch + 7),
                s.with(s.producer + 1000, s.epoch),
            ];
            s.map(|s| until_free(a, 4, &init("odd.t.epochs", 60_000, s.producer, s.epoch)))
                .join("; ")
        }),
    ]
}

fn ends() -> Vec<Case> {
    vec![
        case("EndTxn: an end without a begin", |a| {
            let s = Sender::begin(a, "odd.t.none");
            [true, false].map(|committed| s.end(a, 3, committed)).join("; ")
        }),
        case("EndTxn: an end without a begin, by the second version", |a| {
            let s = Sender::begin(a, "odd.t.none2");
            [true, false].map(|committed| s.end(a, 5, committed)).join("; ")
        }),
        case("EndTxn: an id that nobody has", |a| {
            let s = Sender::begin(a, "odd.t.have");
            Sender {
                id: "odd.t.havenot",
                ..s
            }
            .end(a, 3, true)
        }),
        case("EndTxn: an empty id", |a| {
            let s = Sender::begin(a, "odd.t.have");
            Sender { id: "", ..s }.end(a, 3, true)
        }),
        case("EndTxn: the producer of another id", |a| {
            let s = Sender::begin(a, "odd.t.mine");
            s.work(a, "odd.t.mine");
            s.with(s.producer + 1000, s.epoch).end(a, 3, true)
        }),
        case("EndTxn: a zombie", |a| {
            Sender::begin(a, "odd.t.zombie");
            let s = Sender::begin(a, "odd.t.zombie");
            s.work(a, "odd.t.zombie");
            [1, 3, 5]
                .map(|version| s.older().end(a, version, true))
                .join("; ")
        }),
        case("EndTxn: a commit twice, then an abort", |a| {
            let s = Sender::begin(a, "odd.t.twice");
            s.work(a, "odd.t.twice");
            [true, true, false]
                .map(|committed| s.end(a, 3, committed))
                .join("; ")
        }),
        case(
            "EndTxn: a commit twice, then an abort, by the second version",
            |a| {
                let s = Sender::begin(a, "odd.t.twice2");
                s.work(a, "odd.t.twice2");
                [true, true, false]
                    .map(|committed| s.end(a, 5, committed))
                    .join("; ")
            },
        ),
    ]
}

fn partitions() -> Vec<Case> {
    vec![
        case(
            "AddPartitionsToTxn: a topic that nobody made beside one that is there",
            |a| {
                let s = Sender::begin(a, "odd.t.add");
                a.topic("odd.t.add", 1);
                s.add(a, 3, &[("odd.t.add", 0), ("odd.t.nowhere", 0)])
            },
        ),
        case("AddPartitionsToTxn: a partition that is not there", |a| {
            let s = Sender::begin(a, "odd.t.add7");
            a.topic("odd.t.add7", 1);
            s.add(a, 3, &[("odd.t.add7", 7)])
        }),
        case("AddPartitionsToTxn: no partition", |a| {
            let s = Sender::begin(a, "odd.t.add0");
            [s.add(a, 3, &[]), s.end(a, 3, true)].join("; ")
        }),
        case("AddPartitionsToTxn: a zombie", |a| {
            Sender::begin(a, "odd.t.addz");
            let s = Sender::begin(a, "odd.t.addz").older();
            a.topic("odd.t.addz", 1);
            [1, 3]
                .map(|version| s.add(a, version, &[("odd.t.addz", 0)]))
                .join("; ")
        }),
        case("AddPartitionsToTxn: an id that nobody has", |a| {
            a.topic("odd.t.addn", 1);
            let s = Sender::begin(a, "odd.t.have");
            Sender {
                id: "odd.t.addn",
                ..s
            }
            .add(a, 3, &[("odd.t.addn", 0)])
        }),
    ]
}

fn offsets() -> Vec<Case> {
    vec![
        case("AddOffsetsToTxn: a zombie, and an id that nobody has", |a| {
            Sender::begin(a, "odd.t.offz");
            let s = Sender::begin(a, "odd.t.offz").older();
            let nobody = Sender {
                id: "odd.t.offn",
                ..s.clone()
            };
            [
                s.add_group(a, 1, "g"),
                s.add_group(a, 3, "g"),
                nobody.add_group(a, 3, "g"),
            ]
            .join("; ")
        }),
        case("TxnOffsetCommit: a topic that nobody made", |a| {
            let s = Sender::begin(a, "odd.t.offt");
            assert_eq!(s.add_group(a, 3, s.id), "0");
            s.commit(a, 3, "odd.t.nowhere", -1)
        }),
        case("TxnOffsetCommit: a group that was not added", |a| {
            let s = Sender::begin(a, "odd.t.offa");
            a.topic("odd.t.offa", 1);
            s.commit(a, 3, "odd.t.offa", -1)
        }),
        case("TxnOffsetCommit: a member of a group without members", |a| {
            let s = Sender::begin(a, "odd.t.offm");
            a.topic("odd.t.offm", 1);
            assert_eq!(s.add_group(a, 3, s.id), "0");
            s.commit(a, 3, "odd.t.offm", 3)
        }),
        case("TxnOffsetCommit: a zombie", |a| {
            Sender::begin(a, "odd.t.offo");
            let s = Sender::begin(a, "odd.t.offo");
            a.topic("odd.t.offo", 1);
            assert_eq!(s.add_group(a, 3, s.id), "0");
            assert_eq!(s.commit(a, 3, "odd.t.offo", -1), "0");
            s.older().commit(a, 3, "odd.t.offo", -1)
        }),
    ]
}

fn batches() -> Vec<Case> {
    vec![
        case(
            "Produce: a transactional batch whose partition was not added",
            |a| {
                let s = Sender::begin(a, "odd.t.pna");
                a.topic("odd.t.pna", 1);
                s.send(a, 9, "odd.t.pna", 0)
            },
        ),
        case(
            "Produce: a transactional batch adds its partition by the second version",
            |a| {
                let s = Sender::begin(a, "odd.t.p2");
                a.topic("odd.t.p2", 1);
                [s.send(a, 12, "odd.t.p2", 0), s.end(a, 5, true)].join("; ")
            },
        ),
        case("Produce: a transactional batch of a zombie", |a| {
            let zombie = Sender::begin(a, "odd.t.pz");
            zombie.work(a, "odd.t.pz");
            let s = Sender::begin(a, "odd.t.pz");
            assert_eq!(s.add(a, 3, &[("odd.t.pz", 0)]), "0");
            assert_eq!(s.send(a, 9, "odd.t.pz", 0), "0");
            [9, 12]
                .map(|version| zombie.send(a, version, "odd.t.pz", 2))
                .join("; ")
        }),
        case(
            "Produce: a transactional batch of a producer that nobody has",
            |a| {
                let s = Sender::begin(a, "odd.t.pn");
                a.topic("odd.t.pn", 1);
                let s = s.with(1 << 40, 0);
                [9, 12]
                    .map(|version| s.send(a, version, "odd.t.pn", 0))
                    .join("; ")
            },
        ),
        case("Produce: a batch out of sequence in a transaction", |a| {
            let s = Sender::begin(a, "odd.t.ps");
            s.work(a, "odd.t.ps");
            [s.send(a, 9, "odd.t.ps", 9), s.end(a, 3, false)].join("; ")
        }),
        case("Produce: ordinary records beside an open transaction", |a| {
            let s = Sender::begin(a, "odd.t.po");
            s.work(a, "odd.t.po");
            a.codes(9, &produce("odd.t.po", 0, Some(batch(1))))
        }),
    ]
}

fn looks() -> Vec<Case> {
    let describe = |id: &str| DescribeTransactionsRequest {
        transactional_ids: vec![text(id)],
    };
    vec![
        case("DescribeTransactions: an id that nobody has", move |a| {
            Sender::begin(a, "odd.t.have");
            a.codes_of_coordinator(0, &describe("odd.t.nobody"))
        }),
        case("ListTransactions: a pattern that is none", |a| {
            Sender::begin(a, "odd.t.have");
            let request = ListTransactionsRequest {
                duration_filter: -1,
                transactional_id_pattern: Some(text("(")),
                ..ListTransactionsRequest::default()
            };
            a.codes_of_coordinator(2, &request)
        }),
    ]
}
