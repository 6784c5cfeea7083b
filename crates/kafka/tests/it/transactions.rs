//! Transactions: from the first partition to the end, and what readers see of them.

use bytes::Bytes;
use stafett_kafka_wire::messages::add_partitions_to_txn::AddPartitionsToTxnTopic;
use stafett_kafka_wire::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use stafett_kafka_wire::messages::offset_fetch::OffsetFetchRequestGroup;
use stafett_kafka_wire::messages::txn_offset_commit::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use stafett_kafka_wire::messages::write_txn_markers::{WritableTxnMarker, WritableTxnMarkerTopic};
use stafett_kafka_wire::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, ConsumerGroupHeartbeatRequest,
    DescribeTransactionsRequest, EndTxnRequest, FetchRequest, FetchResponse, InitProducerIdRequest,
    ListOffsetsRequest, ListTransactionsRequest, OffsetFetchRequest, ProduceRequest, TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
};
use stafett_kafka_wire::{ErrorCode, Str};
use stafett_model::{BatchBuilder, Codec, ProducerId};
use tokio::io::AsyncWriteExt;

use crate::peer::{Client, Server, batch, fetch, fill, produce, values};

/// Version of `EndTxn` in which each end begins another epoch.
const BUMPS: i16 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Producer {
    id: i64,
    epoch: i16,
}

impl Producer {
    pub(crate) async fn begin(client: &mut Client, id: &'static str) -> Self {
        let begun = client.call(5, &begin(id)).await;
        assert_eq!(begun.error_code, 0);
        Self {
            id: begun.producer_id,
            epoch: begun.producer_epoch,
        }
    }

    fn batch(self, sequence: i32, text: &str) -> Bytes {
        let mut builder = BatchBuilder::new(Codec::None)
            .producer(ProducerId(self.id), self.epoch, sequence)
            .transactional();
        fill(&mut builder, 5, &[text]);
        builder.finish().unwrap()
    }

    /// Produces into partition 0; version 12 adds it to the transaction, version 11 needs that before.
    pub(crate) async fn send(self, client: &mut Client, version: i16, sequence: i32, text: &str) -> i16 {
        let request = ProduceRequest {
            transactional_id: Some("id".into()),
            ..produce(-1, "t", 0, self.batch(sequence, text))
        };
        client.call(version, &request).await.responses[0].partition_responses[0].error_code
    }

    pub(crate) async fn end(
        self,
        client: &mut Client,
        version: i16,
        committed: bool,
    ) -> Result<Self, ErrorCode> {
        let request = EndTxnRequest {
            transactional_id: "id".into(),
            producer_id: self.id,
            producer_epoch: self.epoch,
            committed,
        };
        let ended = client.call(version, &request).await;
        if ended.error_code != 0 {
            return Err(ErrorCode::try_from(ended.error_code).unwrap());
        }
        let next = Self {
            id: ended.producer_id,
            epoch: ended.producer_epoch,
        };
        Ok(if version >= BUMPS { next } else { self })
    }

    async fn add(self, client: &mut Client, topic: &'static str, partitions: &[i32]) -> Vec<i16> {
        let request = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: "id".into(),
            v3_and_below_producer_id: self.id,
            v3_and_below_producer_epoch: self.epoch,
            v3_and_below_topics: vec![AddPartitionsToTxnTopic {
                name: topic.into(),
                partitions: partitions.to_vec(),
            }],
            ..AddPartitionsToTxnRequest::default()
        };
        let added = client.call(3, &request).await;
        let results = &added.results_by_topic_v3_and_below[0].results_by_partition;
        results.iter().map(|result| result.partition_error_code).collect()
    }

    fn commit(self, offset: i64) -> TxnOffsetCommitRequest {
        TxnOffsetCommitRequest {
            transactional_id: "id".into(),
            group_id: "g".into(),
            producer_id: self.id,
            producer_epoch: self.epoch,
            generation_id: -1,
            topics: vec![TxnOffsetCommitRequestTopic {
                name: "t".into(),
                partitions: vec![TxnOffsetCommitRequestPartition {
                    partition_index: 0,
                    committed_offset: offset,
                    ..TxnOffsetCommitRequestPartition::default()
                }],
            }],
            ..TxnOffsetCommitRequest::default()
        }
    }
}

fn begin(id: &'static str) -> InitProducerIdRequest {
    InitProducerIdRequest {
        transactional_id: Some(id.into()),
        transaction_timeout_ms: 60_000,
        producer_id: -1,
        producer_epoch: -1,
    }
}

async fn read(client: &mut Client, isolation_level: i8, version: i16) -> FetchResponse {
    let request = FetchRequest {
        isolation_level,
        ..fetch("t", 0, 0)
    };
    client.call(version, &request).await
}

/// Returns the records that a client shows of committed ones: it leaves out those of aborted transactions.
async fn committed(client: &mut Client) -> (i64, Vec<i64>, Vec<String>) {
    let read = read(client, 1, 12).await;
    let partition = &read.responses[0].partitions[0];
    let aborted = partition.aborted_transactions.as_ref().unwrap();
    let firsts = aborted.iter().map(|aborted| aborted.first_offset).collect();
    (partition.last_stable_offset, firsts, values(&read))
}

async fn committed_offset(client: &mut Client, require_stable: bool) -> (i16, i64) {
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: "g".into(),
            topics: Some(vec![
                stafett_kafka_wire::messages::offset_fetch::OffsetFetchRequestTopics {
                    name: "t".into(),
                    partition_indexes: vec![0],
                    ..Default::default()
                },
            ]),
            ..OffsetFetchRequestGroup::default()
        }],
        require_stable,
        ..OffsetFetchRequest::default()
    };
    let read = client.call(9, &request).await;
    let partition = &read.groups[0].topics[0].partitions[0];
    (partition.error_code, partition.committed_offset)
}

#[tokio::test]
async fn records_are_read_as_committed_from_the_end_of_their_transaction_on() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    client.produce("t", 0, batch(&["plain"])).await;
    let mut producer = Producer::begin(&mut client, "id").await;
    assert_eq!(producer.send(&mut client, 12, 0, "one").await, 0);
    client.produce("t", 0, batch(&["behind"])).await;
    assert_eq!(
        committed(&mut client).await,
        (1, vec![], vec!["plain".to_owned()])
    );
    let all = read(&mut client, 0, 12).await;
    assert_eq!(values(&all), ["plain", "one", "behind"]);
    assert_eq!(all.responses[0].partitions[0].last_stable_offset, 1);
    let next = producer.end(&mut client, BUMPS, true).await.unwrap();
    assert_eq!((next.id, next.epoch), (producer.id, producer.epoch + 1));
    assert_eq!(committed(&mut client).await.0, 4);
    producer = next;
    assert_eq!(producer.send(&mut client, 12, 0, "two").await, 0);
    producer.end(&mut client, BUMPS, false).await.unwrap();
    let (stable, aborted, _) = committed(&mut client).await;
    assert_eq!((stable, aborted), (6, vec![4]));
}

/// Kafka's Java client sends a commit ahead of the batches now and then, and ends for good if it is refused.
#[tokio::test]
async fn a_commit_ahead_of_its_batches_is_to_be_repeated() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let mut producer = Producer::begin(&mut client, "id").await;
    for round in 1..=2 {
        let early = producer.end(&mut client, BUMPS, true).await;
        assert_eq!(early, Err(ErrorCode::ConcurrentTransactions));
        assert_eq!(producer.send(&mut client, 12, 0, "x").await, 0);
        producer = producer.end(&mut client, BUMPS, true).await.unwrap();
        assert_eq!(committed(&mut client).await.2.len(), round);
    }
    let codes = [ErrorCode::ConcurrentTransactions, ErrorCode::InvalidTxnState];
    for code in codes {
        assert_eq!(
            producer.end(&mut client, BUMPS, true).await,
            Err(code),
            "of nothing"
        );
    }
}

#[tokio::test]
async fn the_first_version_of_the_protocol_adds_partitions_and_keeps_its_epoch() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 2).await;
    let producer = Producer::begin(&mut client, "id").await;
    let abortable = ErrorCode::TransactionAbortable.code();
    assert_eq!(producer.send(&mut client, 11, 0, "x").await, abortable);
    let not_added = ErrorCode::InvalidTxnState.code();
    assert_eq!(producer.send(&mut client, 10, 0, "x").await, not_added);
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    let not_tried = ErrorCode::OperationNotAttempted.code();
    assert_eq!(
        producer.add(&mut client, "t", &[0, 7]).await,
        [not_tried, unknown]
    );
    assert_eq!(producer.send(&mut client, 11, 0, "x").await, abortable);
    assert_eq!(producer.add(&mut client, "t", &[0]).await, [0]);
    for sequence in 0..3 {
        assert_eq!(producer.send(&mut client, 11, sequence, "x").await, 0);
    }
    for _ in 0..2 {
        assert_eq!(producer.end(&mut client, 4, true).await, Ok(producer));
    }
    assert_eq!(
        producer.end(&mut client, 4, false).await,
        Err(ErrorCode::InvalidTxnState)
    );
    assert_eq!(producer.add(&mut client, "t", &[0]).await, [0]);
    assert_eq!(producer.send(&mut client, 11, 3, "y").await, 0);
    assert_eq!(producer.end(&mut client, 4, true).await, Ok(producer));
    assert_eq!(committed(&mut client).await.2.len(), 4);
}

#[tokio::test]
async fn the_second_version_begins_each_transaction_of_a_partition_with_sequence_0() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let out_of_order = ErrorCode::OutOfOrderSequenceNumber.code();
    let mut producer = Producer::begin(&mut client, "id").await;
    for _ in 0..2 {
        for _ in 0..2 {
            assert_eq!(producer.send(&mut client, 12, 5, "late").await, out_of_order);
        }
        assert_eq!(producer.send(&mut client, 12, 0, "x").await, 0);
        assert_eq!(producer.send(&mut client, 12, 1, "y").await, 0);
        producer = producer.end(&mut client, BUMPS, true).await.unwrap();
    }
    assert_eq!(committed(&mut client).await.2, ["x", "y", "x", "y"]);
    // The first version takes any.
    client.create("u", 1).await;
    assert_eq!(producer.add(&mut client, "u", &[0]).await, [0]);
    let request = ProduceRequest {
        transactional_id: Some("id".into()),
        ..produce(-1, "u", 0, producer.batch(5, "first"))
    };
    let sent = client.call(11, &request).await;
    assert_eq!(sent.responses[0].partition_responses[0].error_code, 0);
}

/// Returns the offset that a search by time finds in partition 0.
async fn found(client: &mut Client, isolation_level: i8, timestamp: i64) -> i64 {
    let request = ListOffsetsRequest {
        replica_id: -1,
        isolation_level,
        topics: vec![ListOffsetsTopic {
            name: "t".into(),
            partitions: vec![ListOffsetsPartition {
                partition_index: 0,
                current_leader_epoch: -1,
                timestamp,
            }],
        }],
        ..ListOffsetsRequest::default()
    };
    let listed = client.call(7, &request).await;
    let partition = &listed.topics[0].partitions[0];
    assert_eq!(partition.error_code, 0);
    partition.offset
}

#[tokio::test]
async fn a_search_by_time_finds_records_of_open_transactions_only_for_those_who_see_them() {
    const LATEST_TIME: i64 = -3;
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let producer = Producer::begin(&mut client, "id").await;
    assert_eq!(producer.send(&mut client, 12, 0, "x").await, 0);
    for time in [0, LATEST_TIME] {
        assert_eq!(found(&mut client, 0, time).await, 0);
        assert_eq!(found(&mut client, 1, time).await, -1);
    }
    producer.end(&mut client, BUMPS, true).await.unwrap();
    assert_eq!(found(&mut client, 1, 0).await, 0);
}

#[tokio::test]
async fn commits_of_a_group_count_with_their_transaction() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let producer = Producer::begin(&mut client, "id").await;
    let code = |answer: &stafett_kafka_wire::messages::TxnOffsetCommitResponse| {
        answer.topics[0].partitions[0].error_code
    };
    let early = client.call(3, &producer.commit(5)).await;
    assert_eq!(code(&early), ErrorCode::InvalidTxnState.code());
    let add = AddOffsetsToTxnRequest {
        transactional_id: "id".into(),
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        group_id: "g".into(),
    };
    assert_eq!(client.call(3, &add).await.error_code, 0);
    assert_eq!(code(&client.call(3, &producer.commit(5)).await), 0);
    assert_eq!(committed_offset(&mut client, false).await, (0, -1));
    let unstable = ErrorCode::UnstableOffsetCommit.code();
    assert_eq!(committed_offset(&mut client, true).await, (unstable, -1));
    producer.end(&mut client, 4, true).await.unwrap();
    assert_eq!(committed_offset(&mut client, true).await, (0, 5));
    // The second version adds the group by itself.
    assert_eq!(code(&client.call(5, &producer.commit(6)).await), 0);
    producer.end(&mut client, BUMPS, false).await.unwrap();
    assert_eq!(committed_offset(&mut client, true).await, (0, 5));
    let for_nobody = TxnOffsetCommitRequest {
        group_id: "".into(),
        ..Producer::begin(&mut client, "id").await.commit(7)
    };
    let refused = client.call(5, &for_nobody).await;
    assert_eq!(code(&refused), ErrorCode::InvalidGroupId.code());
    let by_a_stranger = TxnOffsetCommitRequest {
        generation_id: 3,
        member_id: "m".into(),
        ..Producer::begin(&mut client, "id").await.commit(7)
    };
    let refused = client.call(5, &by_a_stranger).await;
    assert_eq!(code(&refused), ErrorCode::UnknownMemberId.code());
}

#[tokio::test]
async fn a_commit_that_names_no_member_counts_though_the_group_has_one() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let join = ConsumerGroupHeartbeatRequest {
        group_id: "g".into(),
        member_id: "m".into(),
        rebalance_timeout_ms: 60_000,
        subscribed_topic_names: Some(vec!["t".into()]),
        topic_partitions: Some(Vec::new()),
        ..ConsumerGroupHeartbeatRequest::default()
    };
    assert_eq!(client.call(1, &join).await.error_code, 0);
    let mut producer = Producer::begin(&mut client, "id").await;
    // Version 2 has no place for a member; version 5 leaves it empty.
    for (version, offset) in [(2, 5), (5, 6)] {
        let add = AddOffsetsToTxnRequest {
            transactional_id: "id".into(),
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            group_id: "g".into(),
        };
        assert_eq!(client.call(3, &add).await.error_code, 0);
        let committed = client.call(version, &producer.commit(offset)).await;
        assert_eq!(
            committed.topics[0].partitions[0].error_code, 0,
            "version {version}"
        );
        producer = producer.end(&mut client, BUMPS, true).await.unwrap();
        assert_eq!(committed_offset(&mut client, true).await, (0, offset));
    }
}

#[tokio::test]
async fn zombies_are_fenced_by_the_next_instance() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let zombie = Producer::begin(&mut client, "id").await;
    assert_eq!(zombie.send(&mut client, 12, 0, "late").await, 0);
    let living = Producer::begin(&mut client, "id").await;
    assert_eq!((living.id, living.epoch), (zombie.id, zombie.epoch + 1));
    assert_eq!(
        zombie.send(&mut client, 12, 1, "later").await,
        ErrorCode::InvalidProducerEpoch.code()
    );
    for (version, code) in [
        (1, ErrorCode::InvalidProducerEpoch),
        (4, ErrorCode::ProducerFenced),
    ] {
        assert_eq!(zombie.end(&mut client, version, true).await, Err(code));
    }
    let stranger = Producer { id: 999, ..living };
    let unknown = ErrorCode::InvalidProducerIdMapping;
    assert_eq!(stranger.end(&mut client, 4, true).await, Err(unknown));
    let (stable, aborted, _) = committed(&mut client).await;
    assert_eq!((stable, aborted), (2, vec![0]));
}

#[tokio::test]
async fn transactional_ids_are_described_and_listed() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 3).await;
    let producer = Producer::begin(&mut client, "id").await;
    producer.send(&mut client, 12, 0, "x").await;
    let describe = DescribeTransactionsRequest {
        transactional_ids: vec!["id".into(), "other".into()],
    };
    let described = client.call(0, &describe).await.transaction_states;
    let [id, other] = &described[..] else {
        panic!("two were asked for");
    };
    assert_eq!(
        (&*id.transaction_state, id.transaction_timeout_ms),
        ("Ongoing", 60_000)
    );
    assert_eq!((id.producer_id, id.producer_epoch), (producer.id, producer.epoch));
    assert_eq!(
        (&*id.topics[0].topic, &id.topics[0].partitions[..]),
        ("t", &[0][..])
    );
    assert!(id.transaction_start_time_ms > 0);
    assert_eq!(other.error_code, ErrorCode::TransactionalIdNotFound.code());
    let list = |states: &[&'static str], pattern: Option<&'static str>| ListTransactionsRequest {
        state_filters: states.iter().map(|state| Str::from(*state)).collect(),
        duration_filter: -1,
        transactional_id_pattern: pattern.map(Str::from),
        ..ListTransactionsRequest::default()
    };
    for (states, pattern, count) in [
        (&[][..], None, 1),
        (&["Ongoing"], Some("i."), 1),
        (&["Empty"], None, 0),
        (&[], Some("j.*"), 0),
    ] {
        let listed = client.call(2, &list(states, pattern)).await;
        assert_eq!(listed.transaction_states.len(), count, "{states:?} {pattern:?}");
    }
    let wrong = client.call(2, &list(&[], Some("("))).await;
    assert_eq!(wrong.error_code, ErrorCode::InvalidRegularExpression.code());
}

#[tokio::test]
async fn the_topic_of_transactions_is_there_from_the_first_producer_on() {
    const NAME: &str = "__transaction_state";
    let server = Server::start().await;
    let mut client = server.client().await;
    assert_ne!(client.topic(NAME).await.error_code, 0);
    Producer::begin(&mut client, "id").await;
    let topic = client.topic(NAME).await;
    assert_eq!(
        (topic.error_code, topic.is_internal, topic.partitions.len()),
        (0, true, 50)
    );
    let refused = client.call(9, &produce(-1, NAME, 0, batch(&["x"]))).await;
    let code = refused.responses[0].partition_responses[0].error_code;
    assert_eq!(code, ErrorCode::InvalidTopicException.code());
}

/// An unknown partition would be tried again without end.
#[tokio::test]
async fn topics_of_the_broker_are_refused_to_transactions_for_good() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let producer = Producer::begin(&mut client, "id").await;
    for name in ["stafett.audit", "__transaction_state"] {
        let added = producer.add(&mut client, name, &[0]).await;
        assert_eq!(added, [ErrorCode::TopicAuthorizationFailed.code()], "{name}");
    }
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    assert_eq!(producer.add(&mut client, "other", &[0]).await, [unknown]);
    assert_eq!(producer.add(&mut client, "t", &[0]).await, [0]);
}

#[tokio::test]
async fn a_transaction_outlives_its_connection_and_a_restart() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let producer = Producer::begin(&mut client, "id").await;
    producer.send(&mut client, 12, 0, "one").await;
    drop(client);
    let server = server.restart().await;
    let mut client = server.client().await;
    assert_eq!(committed(&mut client).await.0, 0);
    assert_eq!(producer.send(&mut client, 12, 1, "two").await, 0);
    producer.end(&mut client, BUMPS, true).await.unwrap();
    assert_eq!(
        committed(&mut client).await,
        (3, vec![], vec!["one".to_owned(), "two".to_owned()])
    );
}

#[tokio::test]
async fn what_is_added_counts_for_the_next_requests_before_it_is_answered() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let producer = Producer::begin(&mut client, "id").await;
    let add = AddPartitionsToTxnRequest {
        v3_and_below_transactional_id: "id".into(),
        v3_and_below_producer_id: producer.id,
        v3_and_below_producer_epoch: producer.epoch,
        v3_and_below_topics: vec![AddPartitionsToTxnTopic {
            name: "t".into(),
            partitions: vec![0],
        }],
        ..AddPartitionsToTxnRequest::default()
    };
    let batch = ProduceRequest {
        transactional_id: Some("id".into()),
        ..produce(-1, "t", 0, producer.batch(0, "x"))
    };
    let (_, first) = client.encode(3, &add);
    let (_, second) = client.encode(11, &batch);
    client.stream.write_all(&[first, second].concat()).await.unwrap();
    client.receive::<AddPartitionsToTxnRequest>(3).await;
    let answer = client.receive::<ProduceRequest>(11).await.1;
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
}

fn mark(producer: Producer, committed: bool) -> WriteTxnMarkersRequest {
    let markers = [0, 7].map(|partition| WritableTxnMarker {
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        transaction_result: committed,
        topics: vec![WritableTxnMarkerTopic {
            name: "t".into(),
            partition_indexes: vec![partition],
        }],
        coordinator_epoch: 0,
        transaction_version: 0,
    });
    WriteTxnMarkersRequest {
        markers: markers.to_vec(),
    }
}

#[tokio::test]
async fn an_operator_aborts_a_whole_transaction_and_commits_none() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 2).await;
    let producer = Producer::begin(&mut client, "id").await;
    assert_eq!(producer.send(&mut client, 12, 0, "x").await, 0);
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    let older = Producer {
        epoch: producer.epoch - 1,
        ..producer
    };
    let forbidden = ErrorCode::ClusterAuthorizationFailed.code();
    let steps = [
        (older, false, ErrorCode::InvalidProducerEpoch.code()),
        (producer, true, forbidden),
        (producer, false, 0),
        (producer, false, 0),
    ];
    for (producer, is_commit, expected) in steps {
        let marked = client.call(1, &mark(producer, is_commit)).await;
        let code = |marker: usize| marked.markers[marker].topics[0].partitions[0].error_code;
        assert_eq!((code(0), code(1)), (expected, unknown));
    }
    assert_eq!(
        producer.end(&mut client, BUMPS, true).await,
        Err(ErrorCode::ProducerFenced)
    );
    let (stable, aborted, values) = committed(&mut client).await;
    assert_eq!((stable, aborted, values.len()), (2, vec![0], 1));
}
