//! Requests at another cell of a cluster than the first one.

use std::net::SocketAddr;
use std::sync::Arc;

use stafett_kafka_wire::messages::fetch::{FetchPartition, FetchTopic};
use stafett_kafka_wire::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use stafett_kafka_wire::messages::metadata::MetadataRequestTopic;
use stafett_kafka_wire::messages::produce::{PartitionProduceData, TopicProduceData};
use stafett_kafka_wire::messages::{
    FetchRequest, FindCoordinatorRequest, HeartbeatRequest, ListOffsetsRequest, MetadataRequest,
    ProduceRequest,
};
use stafett_kafka_wire::{ErrorCode, Str, frame};
use stafett_topics::{Cells, NewTopic, TopicSettings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::{Bench, batch, operation};
use stafett_net::{Reached, ToCell};

use crate::cells::FirstCell;
use crate::operation::{Operation, Step};
use crate::settings::{BrokerAddress, Brokers, Endpoint, KafkaSettings};

const OWN: u32 = 1;
const FIRST: i32 = 7;
const WIDE: &str = "wide";

#[derive(Debug)]
struct Cluster;

impl Brokers for Cluster {
    fn others(&self) -> Vec<BrokerAddress> {
        let endpoint = |host: &str, port| {
            let host = host.into();
            Some(Endpoint { host, port })
        };
        vec![BrokerAddress {
            id: FIRST,
            plain: endpoint("first", 9),
            tls: endpoint("first-tls", 10),
        }]
    }

    fn leader(&self, cell: u32) -> Option<i32> {
        (cell == 0).then_some(FIRST)
    }
}

/// The first cell; each connection to it is a stream that the test has the other side of.
#[derive(Debug)]
struct First(std::sync::Mutex<Option<DuplexStream>>);

impl FirstCell for First {
    fn cluster_id(&self) -> u128 {
        5
    }

    fn leader_epoch(&self) -> i32 {
        3
    }

    fn reach(&self, _: SocketAddr) -> Reached<'_> {
        let stream = self.0.lock().unwrap().take();
        Box::pin(async move {
            stream.map(|stream| ToCell {
                stream: Box::new(stream),
                lost: Box::pin(std::future::pending()),
            })
        })
    }
}

/// The second of three cells, with a topic that is spread over all and one of the first cell, and the other
/// side of its connection to the first one.
fn bench() -> (Bench, DuplexStream) {
    let (near, far) = duplex(1 << 16);
    let mut bench = Bench::with(KafkaSettings {
        broker_id: 1_000_001,
        brokers: Some(Arc::new(Cluster)),
        first_cell: Some(Arc::new(First(std::sync::Mutex::new(Some(near))))),
        ..KafkaSettings::default()
    });
    let broker = Arc::clone(&bench.context.shared.broker);
    broker.catalog().spread_over(Cells { own: OWN, count: 3 });
    let first = Bench::new().context.shared.broker.clone();
    first.catalog().spread_over(Cells { own: 0, count: 3 });
    let new = |name: &str, spread| NewTopic {
        name: name.into(),
        partitions: Some(3),
        settings: TopicSettings {
            spread: Some(spread),
            ..TopicSettings::default()
        },
    };
    bench.run(async {
        let created = first
            .catalog()
            .create(vec![new(WIDE, true), new("narrow", false)])
            .await;
        assert!(created.iter().all(Result::is_ok));
        broker.follow_topics(&first.copy_topics().1).await.unwrap();
        let own = broker.catalog().create(vec![new("own", false)]).await;
        assert!(own[0].is_ok());
    });
    (bench, far)
}

/// The partition that lies in this cell.
fn here(bench: &Bench) -> i32 {
    let topic = bench.context.shared.broker.topics().named(WIDE).unwrap();
    let is_here = |partition: &u32| stafett_topics::cell_of(topic.log(*partition).unwrap()).is_none();
    i32::try_from((0..3).find(is_here).unwrap()).unwrap()
}

fn code(partition: i32, here: i32) -> i16 {
    let there = ErrorCode::NotLeaderOrFollower.code();
    if partition == here { 0 } else { there }
}

#[test]
fn partitions_of_other_cells_are_led_by_others() {
    let (mut bench, _far) = bench();
    let here = here(&bench);
    let partitions = (0..3).map(|index| PartitionProduceData {
        index,
        records: Some(batch(&["a"])),
    });
    let produce = ProduceRequest {
        acks: -1,
        topic_data: vec![TopicProduceData {
            name: WIDE.into(),
            partition_data: partitions.collect(),
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    };
    bench.send(9, &produce);
    let answer = bench.response::<ProduceRequest>(9);
    for partition in &answer.responses[0].partition_responses {
        assert_eq!(partition.error_code, code(partition.index, here), "{partition:?}");
    }
}

#[test]
fn offsets_of_partitions_of_other_cells_are_asked_elsewhere() {
    let (mut bench, _far) = bench();
    let here = here(&bench);
    let partitions = (0..3).map(|partition_index| ListOffsetsPartition {
        partition_index,
        current_leader_epoch: -1,
        timestamp: -1,
    });
    let list = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: WIDE.into(),
            partitions: partitions.collect(),
        }],
        ..ListOffsetsRequest::default()
    };
    bench.send(7, &list);
    bench.turn();
    let (searches, then) = operation!(bench, Operation::FindTimes(searches, then) => (searches, then));
    let known = searches
        .into_iter()
        .map(|search| search.expect_err("it is known"));
    bench.done(then, known.collect());
    let answer = bench.response::<ListOffsetsRequest>(7);
    for partition in &answer.topics[0].partitions {
        assert_eq!(
            partition.error_code,
            code(partition.partition_index, here),
            "{partition:?}"
        );
    }
}

#[test]
fn partitions_of_other_cells_are_read_elsewhere() {
    let (mut bench, _far) = bench();
    let here = here(&bench);
    let partitions = (0..3).map(|partition| FetchPartition {
        partition,
        current_leader_epoch: 0,
        partition_max_bytes: 1000,
        ..FetchPartition::default()
    });
    let fetch = FetchRequest {
        max_bytes: 1000,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: WIDE.into(),
            partitions: partitions.collect(),
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    };
    bench.send(11, &fetch);
    bench.turn();
    let (request, then) = operation!(bench, Operation::Read(request, then) => (request, then));
    let catalog = Arc::clone(bench.context.shared.broker.catalog());
    let read = bench.run(async { catalog.read(request).finish().await }).unwrap();
    bench.done(then, read);
    let answer = bench.response::<FetchRequest>(11);
    for partition in &answer.responses[0].partitions {
        assert_eq!(
            partition.error_code,
            code(partition.partition_index, here),
            "{partition:?}"
        );
    }
}

fn metadata(names: Option<&[&str]>) -> MetadataRequest {
    let topic = |name: &&str| MetadataRequestTopic {
        name: Some(Str::copy_from(name)),
        ..MetadataRequestTopic::default()
    };
    MetadataRequest {
        topics: names.map(|names| names.iter().map(topic).collect()),
        allow_auto_topic_creation: true,
        ..MetadataRequest::default()
    }
}

#[test]
fn clients_are_told_the_leaders_of_all_partitions() {
    let (mut bench, _far) = bench();
    let here = here(&bench);
    bench.send(9, &metadata(None));
    bench.turn();
    let answer = bench.response::<MetadataRequest>(9);
    assert_eq!(answer.controller_id, FIRST);
    assert_eq!(answer.cluster_id.as_deref(), Some("AAAAAAAAAAAAAAAAAAAABQ"));
    let mut names: Vec<&str> = answer
        .topics
        .iter()
        .filter_map(|topic| topic.name.as_deref())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["narrow", WIDE], "those of this cell alone are not shown");
    for topic in &answer.topics {
        let is_wide = topic.name.as_deref() == Some(WIDE);
        let mut leaders: Vec<i32> = topic
            .partitions
            .iter()
            .map(|partition| partition.leader_id)
            .collect();
        for partition in &topic.partitions {
            assert_eq!(partition.leader_epoch, if is_wide { -1 } else { 3 });
            let has_none = partition.leader_id == -1;
            assert_eq!(
                partition.error_code == ErrorCode::LeaderNotAvailable.code(),
                has_none
            );
            assert_eq!(partition.replica_nodes.is_empty(), has_none);
            if is_wide && partition.partition_index == here {
                assert_eq!(partition.leader_id, 1_000_001);
            }
        }
        leaders.sort_unstable();
        // The third cell has no owner.
        let expected = if is_wide {
            [-1, FIRST, 1_000_001]
        } else {
            [FIRST; 3]
        };
        assert_eq!(leaders, expected);
    }
}

/// Also one whose request another cell passed on.
#[test]
fn a_client_is_told_of_listeners_like_its_own() {
    for (is_tls, host, port) in [(false, "first", 9), (true, "first-tls", 10)] {
        let (mut bench, _far) = bench();
        bench.context.is_tls = is_tls;
        let find = FindCoordinatorRequest {
            coordinator_keys: vec!["g".into()],
            ..FindCoordinatorRequest::default()
        };
        bench.send(4, &find);
        let answer = bench.response::<FindCoordinatorRequest>(4);
        let found = &answer.coordinators[0];
        assert_eq!((found.node_id, &*found.host, found.port), (FIRST, host, port));
    }
}

#[test]
fn a_topic_that_is_not_known_is_asked_for_at_the_first_cell() {
    for (names, is_passed) in [
        (&["new"][..], true),
        (&[WIDE, "own"], true),
        (&[WIDE, "narrow"], false),
    ] {
        let (mut bench, _far) = bench();
        bench.send(9, &metadata(Some(names)));
        let passed = matches!(bench.responses.next_operation(), Some(Operation::AskFirstCell(_)));
        assert_eq!(passed, is_passed, "{names:?}");
    }
}

/// Serves the first cell's side: two answers, and the begin of a third one.
async fn answer(mut far: DuplexStream, sent: &[u8]) {
    let head = far.read_u32().await.unwrap();
    let mut client = vec![0; head as usize];
    far.read_exact(&mut client).await.unwrap();
    assert_eq!(
        String::from_utf8(client).unwrap(),
        r#"{"user":null,"expires_ms":null,"is_tls":false}"#
    );
    for answer in [&b"one"[..], b"two"] {
        let mut request = vec![0; sent.len()];
        far.read_exact(&mut request).await.unwrap();
        assert_eq!(request, sent);
        far.write_u32(u32::try_from(answer.len()).unwrap()).await.unwrap();
        far.write_all(answer).await.unwrap();
    }
    far.read_exact(&mut vec![0; sent.len()]).await.unwrap();
    far.write_all(&[0, 0, 0, 9, 1]).await.unwrap();
}

#[test]
fn the_first_cell_executes_what_it_alone_keeps() {
    let (mut bench, far) = bench();
    let heartbeat = HeartbeatRequest {
        group_id: "g".into(),
        generation_id: 4,
        member_id: "m".into(),
        ..HeartbeatRequest::default()
    };
    // The answer goes to the client as it comes.
    bench.send(3, &heartbeat);
    let request = operation!(bench, Operation::AskFirstCell(request) => request);
    let sent = frame::write_request(3, 0, None, &heartbeat).unwrap().into_bytes();
    assert_eq!(request, sent.slice(4..));

    let context = &bench.context;
    let answered = bench.runtime.block_on(async {
        let client = async {
            let mut answers = Vec::new();
            for _ in 0..4 {
                let answered = context.ask_first_cell(request.clone()).await;
                answers.push(answered.map(|step| match step {
                    Step::Respond(answer) => answer.encoded.unwrap().into_bytes(),
                    Step::Await(_) => panic!("it is answered"),
                }));
            }
            answers
        };
        tokio::join!(answer(far, &sent), client).1
    });
    let answers: Vec<_> = answered
        .iter()
        .map(|answer| answer.as_ref().ok().map(|bytes| &bytes[..]))
        .collect();
    assert_eq!(
        answers,
        [
            Some(&b"\0\0\0\x03one"[..]),
            Some(&b"\0\0\0\x03two"[..]),
            None,
            None
        ]
    );
}
