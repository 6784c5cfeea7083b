//! Groups: members and commits.

use smallvec::smallvec;
use stafett_groups::{GroupError, JoinError, JoinReply, SyncReply};
use stafett_kafka_wire::ErrorCode;
use stafett_kafka_wire::messages::join_group::JoinGroupRequestProtocol;
use stafett_kafka_wire::messages::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use stafett_kafka_wire::messages::{
    HeartbeatRequest, JoinGroupRequest, OffsetCommitRequest, SyncGroupRequest,
};
use stafett_store::NotStored;
use stafett_topics::Refusal;

use super::{Bench, operation};
use crate::call::Close;
use crate::operation::{GroupOperation, Operation};

fn join() -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: "readers".into(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 60_000,
        member_id: "me".into(),
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".into(),
            ..JoinGroupRequestProtocol::default()
        }],
        ..JoinGroupRequest::default()
    }
}

fn heartbeat() -> HeartbeatRequest {
    HeartbeatRequest {
        group_id: "readers".into(),
        member_id: "me".into(),
        ..HeartbeatRequest::default()
    }
}

#[test]
fn requests_behind_a_join_wait_for_it() {
    let mut bench = Bench::new();
    bench.add(5, &join());
    bench.add(4, &heartbeat());
    bench.execute();
    assert_eq!((bench.responses.len(), bench.held.len()), (1, 1));
    let (group, join, then) =
        operation!(bench, Operation::Group(GroupOperation::Join(group, join, then)) => (group, join, then));
    assert_eq!(
        (&*group, &*join.member, join.session_ms),
        ("readers", "me", 30_000)
    );
    let reply = JoinReply {
        member: "me".into(),
        generation: 7,
        purpose: Some("consumer".into()),
        strategy: Some("range".into()),
        leader: "other".into(),
        members: Vec::new(),
        skip_assignment: false,
    };
    bench.done(then, Ok(reply));
    let joined = bench.response::<JoinGroupRequest>(5);
    assert_eq!((joined.generation_id, &*joined.leader), (7, "other"));
    bench.execute();
    let unknown = ErrorCode::UnknownMemberId.code();
    assert_eq!(bench.response::<HeartbeatRequest>(4).error_code, unknown);
}

#[test]
fn a_join_that_is_refused_tells_the_member_its_id() {
    let mut bench = Bench::new();
    bench.send(5, &join());
    let then = operation!(bench, Operation::Group(GroupOperation::Join(.., then)) => then);
    let error = JoinError {
        error: GroupError::MemberIdRequired,
        member: "new".into(),
    };
    bench.done(then, Err(error));
    let refused = bench.response::<JoinGroupRequest>(5);
    let required = ErrorCode::MemberIdRequired.code();
    assert_eq!((refused.error_code, &*refused.member_id), (required, "new"));
}

#[test]
fn a_sync_is_answered_with_its_assignment() {
    let mut bench = Bench::new();
    let request = SyncGroupRequest {
        group_id: "readers".into(),
        member_id: "me".into(),
        generation_id: 7,
        ..SyncGroupRequest::default()
    };
    bench.send(3, &request);
    let (sync, then) =
        operation!(bench, Operation::Group(GroupOperation::Sync(_, sync, then)) => (sync, then));
    assert_eq!(sync.generation, 7);
    let reply = SyncReply {
        purpose: None,
        strategy: None,
        assignment: "all".into(),
    };
    bench.done(then, Ok(reply));
    assert_eq!(bench.response::<SyncGroupRequest>(3).assignment, "all");
}

fn commit(topic: &'static str) -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: "readers".into(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: topic.into(),
            partitions: vec![OffsetCommitRequestPartition {
                committed_offset: 5,
                ..OffsetCommitRequestPartition::default()
            }],
            ..OffsetCommitRequestTopic::default()
        }],
        ..OffsetCommitRequest::default()
    }
}

impl Bench {
    fn commit_code(&mut self) -> i16 {
        let response = self.response::<OffsetCommitRequest>(8);
        response.topics[0].partitions[0].error_code
    }
}

#[test]
fn the_first_stored_commit_creates_the_topic_of_commits() {
    let (mut bench, _) = Bench::with_topic("orders");
    bench.send(8, &commit("orders"));
    let then = operation!(bench, Operation::AwaitCommits(_, then) => then);
    bench.done(then, smallvec![Ok(())]);
    assert!(bench.next().is_none());
    let then = operation!(bench, Operation::CreateOffsetsTopic(then) => then);
    bench.done(then, ());
    assert_eq!(bench.commit_code(), 0);
}

#[test]
fn a_commit_that_is_refused_is_retried_by_the_client_and_one_without_outcome_ends_the_connection() {
    let (mut bench, _) = Bench::with_topic("orders");
    bench.send(8, &commit("orders"));
    let then = operation!(bench, Operation::AwaitCommits(_, then) => then);
    bench.done(then, smallvec![Err(NotStored::Refused(Refusal::DiskFull))]);
    assert_eq!(bench.commit_code(), ErrorCode::CoordinatorNotAvailable.code());
    bench.send(8, &commit("orders"));
    let then = operation!(bench, Operation::AwaitCommits(_, then) => then);
    bench.done(then, smallvec![Err(NotStored::Unknown)]);
    assert!(matches!(bench.next(), Some(Err(Close::OutcomeUnknown))));
}

#[test]
fn a_commit_for_no_topic_waits_for_nothing() {
    let mut bench = Bench::new();
    bench.send(8, &commit("nowhere"));
    assert_eq!(bench.commit_code(), ErrorCode::UnknownTopicOrPartition.code());
}

#[test]
fn a_commit_is_not_refused_however_long_it_waited() {
    let (mut bench, _) = Bench::with_topic("orders");
    bench.add(8, &commit("orders"));
    bench.refuse();
    let then = operation!(bench, Operation::AwaitCommits(_, then) => then);
    bench.done(then, smallvec![Ok(())]);
    let then = operation!(bench, Operation::CreateOffsetsTopic(then) => then);
    bench.done(then, ());
    assert_eq!(bench.commit_code(), 0);
}
