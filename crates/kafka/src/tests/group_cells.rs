//! Groups that are spread over the cells of a cluster.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stafett_groups::{CommitSender, GroupError, NewCommit};
use stafett_kafka_wire::messages::offset_fetch::OffsetFetchRequestGroup;
use stafett_kafka_wire::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest, HeartbeatRequest, OffsetFetchRequest,
};
use stafett_kafka_wire::{ErrorCode, Str};
use stafett_model::TransactionEnd;
use stafett_topics::{Cells, TopicId, cell_of_name};
use stafett_transactions::{Instance, Status};
use tokio::task::JoinSet;

use super::cell_transactions::{ID, World, world};
use super::{Bench, operation};
use crate::cell_commits::CommittedWith;
use crate::cell_transactions::{ToCoordinators, mark_cell};
use crate::operation::Operation;
use crate::settings::{BrokerAddress, Brokers, Endpoint, KafkaSettings};

const CELLS: u32 = 3;
/// A sender of commits that is no member.
const OUTSIDER: CommitSender<'static> = CommitSender {
    member: "",
    instance: None,
    epoch: -1,
    is_transactional: false,
};

/// Three brokers, one for each cell.
#[derive(Debug)]
struct Cluster;

impl Brokers for Cluster {
    fn others(&self) -> Vec<BrokerAddress> {
        let broker = |cell: u32| BrokerAddress {
            id: i32::try_from(cell).unwrap() + 10,
            plain: Some(Endpoint {
                host: format!("cell-{cell}"),
                port: 9,
            }),
            tls: None,
        };
        (0..CELLS).map(broker).collect()
    }

    fn leader(&self, cell: u32) -> Option<i32> {
        Some(i32::try_from(cell).unwrap() + 10)
    }
}

fn any_commit() -> NewCommit {
    NewCommit {
        topic: TopicId(1),
        partition: 0,
        offset: 5,
        leader_epoch: -1,
        text: None,
    }
}

/// A name of a group of a cell.
fn name_in(cell: u32, prefix: &str) -> Str {
    let names = (0..1000).map(|number| format!("{prefix}{number}"));
    let mut names = names.filter(|name| cell_of_name(name, CELLS) == cell);
    names.next().unwrap().into()
}

fn bench(own: u32) -> Bench {
    #[derive(Debug)]
    struct First;

    impl crate::cells::FirstCell for First {
        fn cluster_id(&self) -> u128 {
            5
        }

        fn leader_epoch(&self) -> i32 {
            3
        }

        fn reach(&self, _: std::net::SocketAddr) -> stafett_net::Reached<'_> {
            Box::pin(async { None })
        }
    }

    let bench = Bench::with(KafkaSettings {
        broker_id: i32::try_from(own).unwrap() + 10,
        brokers: Some(Arc::new(Cluster)),
        first_cell: (own != 0).then(|| Arc::new(First) as _),
        ..KafkaSettings::default()
    });
    let broker = &bench.context.shared.broker;
    let cells = Cells { own, count: CELLS };
    broker.catalog().spread_over(cells);
    broker.groups().join_cells(cells, 1);
    broker.groups().spread(["wide-*"]);
    bench
}

fn heartbeat(group: &Str) -> HeartbeatRequest {
    HeartbeatRequest {
        group_id: group.clone(),
        generation_id: 1,
        member_id: "m".into(),
        ..HeartbeatRequest::default()
    }
}

#[test]
fn a_request_is_executed_in_the_cell_of_its_group() {
    let unknown = ErrorCode::UnknownMemberId.code();
    let elsewhere = ErrorCode::NotCoordinator.code();
    for own in 0..CELLS {
        for cell in 0..CELLS {
            let mut bench = bench(own);
            bench.send(3, &heartbeat(&name_in(cell, "wide-")));
            let is_passed = cell == 0 && own != 0;
            if is_passed {
                operation!(bench, Operation::AskFirstCell(_) => ());
                continue;
            }
            let code = bench.response::<HeartbeatRequest>(3).error_code;
            assert_eq!(
                code,
                if cell == own { unknown } else { elsewhere },
                "{own} {cell}"
            );
        }
        // All other names are of the first cell.
        let mut bench = bench(own);
        bench.send(3, &heartbeat(&name_in(2, "narrow-")));
        if own == 0 {
            assert_eq!(bench.response::<HeartbeatRequest>(3).error_code, unknown);
        } else {
            operation!(bench, Operation::AskFirstCell(_) => ());
        }
    }
}

#[test]
fn requests_about_groups_of_several_cells_are_refused_for_each() {
    let groups = [name_in(1, "wide-"), name_in(2, "wide-")];
    let elsewhere = ErrorCode::NotCoordinator.code();
    let mut bench = bench(1);
    bench.send(
        5,
        &DescribeGroupsRequest {
            groups: groups.to_vec(),
            ..DescribeGroupsRequest::default()
        },
    );
    let answer = bench.response::<DescribeGroupsRequest>(5);
    let described = answer.groups.iter();
    let described: Vec<_> = described
        .map(|group| (&group.group_id, group.error_code))
        .collect();
    assert_eq!(described, [(&groups[0], elsewhere), (&groups[1], elsewhere)]);

    bench.send(
        2,
        &DeleteGroupsRequest {
            groups_names: groups.to_vec(),
        },
    );
    let answer = bench.response::<DeleteGroupsRequest>(2);
    assert!(answer.results.iter().all(|result| result.error_code == elsewhere));
    assert_eq!(answer.results.len(), 2);

    let group = |group_id: &Str| OffsetFetchRequestGroup {
        group_id: group_id.clone(),
        ..OffsetFetchRequestGroup::default()
    };
    bench.send(
        8,
        &OffsetFetchRequest {
            groups: groups.iter().map(group).collect(),
            ..OffsetFetchRequest::default()
        },
    );
    let answer = bench.response::<OffsetFetchRequest>(8);
    assert!(answer.groups.iter().all(|group| group.error_code == elsewhere));
    bench.send(
        7,
        &OffsetFetchRequest {
            group_id: groups[1].clone(),
            ..OffsetFetchRequest::default()
        },
    );
    assert_eq!(bench.response::<OffsetFetchRequest>(7).error_code, elsewhere);
}

#[test]
fn the_first_cell_names_the_coordinator_and_keeps_groups_that_it_has() {
    let find = |group: &Str| FindCoordinatorRequest {
        coordinator_keys: vec![group.clone()],
        ..FindCoordinatorRequest::default()
    };
    let group = name_in(2, "wide-");
    let mut further = bench(1);
    further.send(4, &find(&group));
    operation!(further, Operation::AskFirstCell(_) => ());

    let mut bench = bench(0);
    let found = |bench: &mut Bench, group: &Str| {
        bench.send(4, &find(group));
        bench.response::<FindCoordinatorRequest>(4).coordinators[0].node_id
    };
    assert_eq!(found(&mut bench, &group), 12);
    assert_eq!(found(&mut bench, &name_in(2, "narrow-")), 10);

    let groups = Arc::clone(bench.context.shared.broker.groups());
    let refused = groups.commit(&group, &OUTSIDER, vec![any_commit()]).map(drop);
    assert_eq!(
        refused,
        Err(GroupError::Elsewhere),
        "a member over HTTP, for instance"
    );
}

#[tokio::test]
async fn a_group_that_was_in_the_first_cell_stays_there() {
    let journal: Arc<dyn stafett_journal::Journal> = Arc::new(stafett_journal::MemoryJournal::new());
    let settings = stafett_broker::BrokerSettings::default();
    let broker = stafett_broker::Broker::start(journal, settings).await.unwrap();
    let group = name_in(2, "wide-");
    drop(
        broker
            .groups()
            .commit(&group, &OUTSIDER, vec![any_commit()])
            .unwrap(),
    );
    let cells = Cells { own: 0, count: CELLS };
    broker.groups().join_cells(cells, 1);
    broker.groups().spread(["wide-*"]);
    assert_eq!(broker.groups().cell_of(&group), 0);
    assert_eq!(broker.groups().cell_of(&name_in(2, "wide-other")), 2);
}

/// Commits of group `g` of the second cell.
fn committed(world: &World, by: Instance, offset: i64) -> CommittedWith {
    CommittedWith {
        id: ID.into(),
        by,
        adds: true,
        group: "g".into(),
        member: Str::default(),
        instance: None,
        generation: -1,
        commits: vec![NewCommit {
            topic: world.topic.id,
            partition: 1,
            offset,
            leader_epoch: -1,
            text: Some("text".into()),
        }],
        version: 5,
    }
}

fn offset(world: &World) -> Option<i64> {
    let groups = world.brokers[1].groups();
    groups.with_group("g", |group| {
        let committed = group?.commits.get(world.topic.id, 1)?;
        Some(committed.offset)
    })
}

#[tokio::test(start_paused = true)]
async fn commits_of_another_cell_wait_for_the_end_of_their_transaction() {
    let world = world().await;
    let transactions = world.brokers[0].transactions();
    let by = transactions.begin_producer(ID, 60_000, None).await.unwrap();
    let coordinators = ToCoordinators::new(Arc::new(world.from.clone()));
    let commit = |by, offset| coordinators.commit(&world.brokers[1], committed(&world, by, offset));
    let pending = async || coordinators.pending(&["g".into(), "other".into()]).await;

    assert_eq!(commit(by, 5).await.unwrap(), ErrorCode::None);
    let place = (world.topic.id, 1);
    assert_eq!(pending().await, Some(vec![vec![place], vec![]]));
    assert_eq!(offset(&world), None);
    // Their cell cannot be reached: they are owed, and wait still.
    let by = transactions
        .end(ID, by, TransactionEnd::Commit, true)
        .await
        .unwrap();
    assert_eq!(pending().await, Some(vec![vec![place], vec![]]));
    let ending = Status::Ending(TransactionEnd::Commit);
    assert_eq!(transactions.describe(ID).unwrap().status, ending);
    // Two connections with them end before their answers: they come three times.
    world.from.ways.cut.store(2, Ordering::Relaxed);
    let mut marking = JoinSet::new();
    marking.spawn(mark_cell(
        Arc::clone(&world.brokers[0]),
        Arc::new(world.from.clone()),
        1,
    ));
    while transactions.describe(ID).unwrap().status == ending {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(offset(&world), Some(5));
    assert_eq!(pending().await, Some(vec![vec![], vec![]]));

    // Those of an aborted transaction never count.
    assert_eq!(commit(by, 9).await.unwrap(), ErrorCode::None);
    let by = transactions
        .end(ID, by, TransactionEnd::Abort, true)
        .await
        .unwrap();
    assert_eq!(pending().await, Some(vec![vec![], vec![]]));
    assert_eq!(offset(&world), Some(5));

    // A commit that came later is not replaced by one of a transaction that ends behind it.
    assert_eq!(commit(by, 7).await.unwrap(), ErrorCode::None);
    let later = committed(&world, by, 8).commits;
    let stored = world.brokers[1].groups().commit("g", &OUTSIDER, later).unwrap();
    stored.durable().await.unwrap();
    transactions
        .end(ID, by, TransactionEnd::Commit, true)
        .await
        .unwrap();
    assert_eq!(offset(&world), Some(8));
}

#[tokio::test(start_paused = true)]
async fn commits_are_checked_in_their_cell_and_by_the_coordinator() {
    let world = world().await;
    let transactions = world.brokers[0].transactions();
    let by = transactions.begin_producer(ID, 60_000, None).await.unwrap();
    let coordinators = ToCoordinators::new(Arc::new(world.from.clone()));
    let commit = |asked| coordinators.commit(&world.brokers[1], asked);
    let member = CommittedWith {
        member: "m".into(),
        generation: 3,
        ..committed(&world, by, 5)
    };
    assert_eq!(commit(member).await.unwrap(), ErrorCode::IllegalGeneration);
    let zombie = Instance {
        epoch: by.epoch + 1,
        ..by
    };
    let fenced = commit(committed(&world, zombie, 5)).await.unwrap();
    assert_eq!(fenced, ErrorCode::InvalidProducerEpoch);
    let not_added = CommittedWith {
        adds: false,
        version: 3,
        ..committed(&world, by, 5)
    };
    assert_eq!(commit(not_added).await.unwrap(), ErrorCode::InvalidTxnState);
    world.from.ways.cut.store(1, Ordering::Relaxed);
    let asking = ToCoordinators::new(Arc::new(world.from.clone()));
    let lost = asking.commit(&world.brokers[1], committed(&world, by, 5));
    assert_eq!(
        lost.await.unwrap(),
        ErrorCode::CoordinatorLoadInProgress,
        "it may be kept"
    );
}
