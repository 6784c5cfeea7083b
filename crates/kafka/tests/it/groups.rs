//! Classic groups: members that come, go, disagree and vanish.

use bytes::Bytes;
use stafett_kafka_wire::consumer_protocol::{self, ConsumerProtocolSubscription};
use stafett_kafka_wire::messages::join_group::JoinGroupRequestProtocol;
use stafett_kafka_wire::messages::leave_group::MemberIdentity;
use stafett_kafka_wire::messages::sync_group::SyncGroupRequestAssignment;
use stafett_kafka_wire::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest,
    JoinGroupResponse, LeaveGroupRequest, ListGroupsRequest, SyncGroupRequest, SyncGroupResponse,
};
use stafett_kafka_wire::{ErrorCode, Message, Str};

use crate::peer::{Client, Server};

/// A member of a group, on a connection of its own.
pub(crate) struct Member {
    pub client: Client,
    pub group: &'static str,
    pub id: Str,
    pub instance: Option<Str>,
    pub generation: i32,
    pub protocol: &'static str,
    pub metadata: Bytes,
    pub session_ms: i32,
}

impl Member {
    pub(crate) async fn new(server: &Server, group: &'static str) -> Self {
        Self {
            client: server.client().await,
            group,
            id: Str::default(),
            instance: None,
            generation: -1,
            protocol: "range",
            metadata: Bytes::from_static(b"about me"),
            session_ms: 30_000,
        }
    }

    fn join_request(&self) -> JoinGroupRequest {
        JoinGroupRequest {
            group_id: self.group.into(),
            session_timeout_ms: self.session_ms,
            rebalance_timeout_ms: 60_000,
            member_id: self.id.clone(),
            group_instance_id: self.instance.clone(),
            protocol_type: "consumer".into(),
            protocols: vec![JoinGroupRequestProtocol {
                name: self.protocol.into(),
                metadata: self.metadata.clone(),
            }],
            reason: None,
        }
    }

    /// Asks to join without waiting for the answer; gets an id first.
    pub(crate) async fn begin_join(&mut self) {
        if self.id.is_empty() && self.instance.is_none() {
            let given = self.client.call(9, &self.join_request()).await;
            assert_eq!(given.error_code, ErrorCode::MemberIdRequired.code());
            self.id = given.member_id;
        }
        let request = self.join_request();
        self.client.send(9, &request).await;
    }

    pub(crate) async fn finish_join(&mut self) -> JoinGroupResponse {
        let (_, joined) = self.client.receive::<JoinGroupRequest>(9).await;
        if joined.error_code == 0 {
            self.id = joined.member_id.clone();
            self.generation = joined.generation_id;
        }
        joined
    }

    pub(crate) async fn join(&mut self) -> JoinGroupResponse {
        self.begin_join().await;
        self.finish_join().await
    }

    fn sync_request(&self, assignments: &[(&Str, &'static str)]) -> SyncGroupRequest {
        let assignments = assignments.iter().map(|(id, text)| SyncGroupRequestAssignment {
            member_id: (*id).clone(),
            assignment: Bytes::from_static(text.as_bytes()),
        });
        SyncGroupRequest {
            group_id: self.group.into(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            group_instance_id: self.instance.clone(),
            protocol_type: Some("consumer".into()),
            protocol_name: Some(self.protocol.into()),
            assignments: assignments.collect(),
        }
    }

    pub(crate) async fn sync(&mut self, assignments: &[(&Str, &'static str)]) -> SyncGroupResponse {
        let request = self.sync_request(assignments);
        self.client.call(5, &request).await
    }

    pub(crate) fn heartbeat_request(&self) -> HeartbeatRequest {
        HeartbeatRequest {
            group_id: self.group.into(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            group_instance_id: self.instance.clone(),
        }
    }

    pub(crate) async fn heartbeat(&mut self) -> i16 {
        let request = self.heartbeat_request();
        self.client.call(4, &request).await.error_code
    }

    /// Sends heartbeats until the answer demands a rejoin.
    pub(crate) async fn hears_of_rebalance(&mut self) {
        while self.heartbeat().await != ErrorCode::RebalanceInProgress.code() {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn leave(&mut self) -> i16 {
        let request = LeaveGroupRequest {
            group_id: self.group.into(),
            members: vec![MemberIdentity {
                member_id: self.id.clone(),
                group_instance_id: self.instance.clone(),
                reason: None,
            }],
            ..LeaveGroupRequest::default()
        };
        let left = self.client.call(5, &request).await;
        assert_eq!(left.error_code, 0);
        left.members[0].error_code
    }

    /// Joins as the only member.
    pub(crate) async fn alone(server: &Server, group: &'static str) -> Self {
        let mut member = Self::new(server, group).await;
        assert_eq!(member.join().await.error_code, 0);
        let id = member.id.clone();
        assert_eq!(member.sync(&[(&id, "all")]).await.assignment, "all");
        member
    }
}

/// Returns the subscription of a consumer that reads `topics`.
pub(crate) fn subscription(topics: &[&'static str]) -> Bytes {
    let subscription = ConsumerProtocolSubscription {
        topics: topics.iter().map(|name| Str::from(*name)).collect(),
        ..ConsumerProtocolSubscription::default()
    };
    consumer_protocol::write(3, &subscription).unwrap()
}

#[tokio::test]
async fn two_members_share_what_the_leader_gives_them() {
    let server = Server::start().await;
    let mut first = Member::alone(&server, "pair").await;
    let mut second = Member::new(&server, "pair").await;
    second.begin_join().await;
    first.hears_of_rebalance().await;
    let led = first.join().await;
    let joined = second.finish_join().await;
    assert_eq!((led.generation_id, joined.generation_id), (2, 2));
    assert_eq!(led.leader, first.id);
    assert_eq!(led.members.len(), 2);
    assert_eq!(led.members[0].metadata, "about me");
    assert_eq!(joined.leader, first.id);
    assert!(joined.members.is_empty());
    assert_eq!(joined.protocol_name.as_deref(), Some("range"));
    let request = second.sync_request(&[]);
    second.client.send(5, &request).await;
    let (one, two) = (first.id.clone(), second.id.clone());
    assert_eq!(
        first.sync(&[(&one, "left"), (&two, "right")]).await.assignment,
        "left"
    );
    let (_, synced) = second.client.receive::<SyncGroupRequest>(5).await;
    assert_eq!(synced.assignment, "right");
    assert_eq!(synced.protocol_type.as_deref(), Some("consumer"));
    assert_eq!((first.heartbeat().await, second.heartbeat().await), (0, 0));
    assert_eq!(second.leave().await, 0);
    first.hears_of_rebalance().await;
    assert_eq!(first.join().await.members.len(), 1);
    assert_eq!(second.heartbeat().await, ErrorCode::UnknownMemberId.code());
    assert_eq!(
        server.metric("groups_groups{kind=\"classic\",state=\"completing\"}"),
        1
    );
}

#[tokio::test]
async fn every_version_joins_syncs_beats_and_leaves() {
    let server = Server::start().await;
    for version in 0..=9 {
        let mut client = server.client().await;
        let group = Str::from(format!("v{version}"));
        let mut request = JoinGroupRequest {
            group_id: group.clone(),
            session_timeout_ms: 10_000,
            protocol_type: "consumer".into(),
            protocols: vec![JoinGroupRequestProtocol {
                name: "x".into(),
                metadata: Bytes::new(),
            }],
            ..JoinGroupRequest::default()
        };
        if version >= 4 {
            let given = client.call(version, &request).await;
            assert_eq!(given.error_code, ErrorCode::MemberIdRequired.code());
            assert_eq!((given.generation_id, &*given.leader), (-1, ""));
            request.member_id = given.member_id;
        }
        let joined = client.call(version, &request).await;
        assert_eq!(
            (joined.error_code, joined.generation_id),
            (0, 1),
            "version {version}"
        );
        assert!(joined.member_id.starts_with("test-"), "{}", joined.member_id);
        assert_eq!(joined.leader, joined.member_id);
        assert_eq!(joined.members.len(), 1);
        let sync = SyncGroupRequest {
            group_id: group.clone(),
            generation_id: 1,
            member_id: joined.member_id.clone(),
            protocol_type: (version >= 5).then(|| "consumer".into()),
            protocol_name: (version >= 5).then(|| "x".into()),
            ..SyncGroupRequest::default()
        };
        assert_eq!(client.call(version.min(5), &sync).await.error_code, 0);
        let beat = HeartbeatRequest {
            group_id: group.clone(),
            generation_id: 1,
            member_id: joined.member_id.clone(),
            group_instance_id: None,
        };
        assert_eq!(client.call(version.min(4), &beat).await.error_code, 0);
        let members = vec![MemberIdentity {
            member_id: joined.member_id.clone(),
            ..MemberIdentity::default()
        }];
        let leave = LeaveGroupRequest {
            group_id: group,
            member_id: if version < 3 {
                joined.member_id
            } else {
                Str::default()
            },
            members: if version < 3 { Vec::new() } else { members },
        };
        assert_eq!(client.call(version.min(5), &leave).await.error_code, 0);
        assert_eq!(
            client.call(version.min(4), &beat).await.error_code,
            ErrorCode::UnknownMemberId.code()
        );
    }
}

#[expect(clippy::too_many_lines, reason = "a table of requests")]
#[tokio::test]
async fn joins_that_make_no_sense_are_refused_by_name() {
    let server = Server::start().await;
    let mut member = Member::alone(&server, "strict").await;
    let sound = Member::new(&server, "strict").await.join_request();
    let mut client = server.client().await;
    let cases = [
        (
            JoinGroupRequest {
                group_id: "".into(),
                ..sound.clone()
            },
            ErrorCode::InvalidGroupId,
        ),
        (
            JoinGroupRequest {
                session_timeout_ms: 5_999,
                ..sound.clone()
            },
            ErrorCode::InvalidSessionTimeout,
        ),
        (
            JoinGroupRequest {
                session_timeout_ms: 1_800_001,
                ..sound.clone()
            },
            ErrorCode::InvalidSessionTimeout,
        ),
        (
            JoinGroupRequest {
                session_timeout_ms: -1,
                ..sound.clone()
            },
            ErrorCode::InvalidSessionTimeout,
        ),
        (
            JoinGroupRequest {
                member_id: "nobody".into(),
                ..sound.clone()
            },
            ErrorCode::UnknownMemberId,
        ),
        (
            JoinGroupRequest {
                member_id: "nobody".into(),
                group_id: "new".into(),
                ..sound.clone()
            },
            ErrorCode::UnknownMemberId,
        ),
        (
            JoinGroupRequest {
                protocols: Vec::new(),
                ..sound.clone()
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
        (
            JoinGroupRequest {
                protocol_type: "connect".into(),
                ..sound.clone()
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
        (
            JoinGroupRequest {
                protocols: vec![JoinGroupRequestProtocol {
                    name: "other".into(),
                    metadata: Bytes::new(),
                }],
                ..sound.clone()
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
        (
            JoinGroupRequest {
                group_id: "new".into(),
                protocol_type: "".into(),
                ..sound.clone()
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
    ];
    for (request, expected) in cases {
        let refused = client.call(9, &request).await;
        assert_eq!(refused.error_code, expected.code(), "{request:?}");
        assert_eq!(refused.member_id, request.member_id);
    }
    assert_eq!(member.heartbeat().await, 0, "nobody noticed");
}

#[tokio::test]
async fn zombies_are_told_which_kind_they_are() {
    let server = Server::start().await;
    let mut member = Member::new(&server, "graves").await;
    member.instance = Some("one".into());
    assert_eq!(member.join().await.error_code, 0);
    let former = member.id.clone();
    assert_eq!(member.sync(&[]).await.error_code, 0);
    let mut second = Member::new(&server, "graves").await;
    second.instance = Some("one".into());
    let joined = second.join().await;
    assert_eq!(
        (joined.error_code, joined.generation_id, joined.skip_assignment),
        (0, 1, true)
    );
    assert_ne!(joined.member_id, former);
    assert_eq!(member.heartbeat().await, ErrorCode::FencedInstanceId.code());
    assert_eq!(
        member.sync(&[]).await.error_code,
        ErrorCode::FencedInstanceId.code()
    );
    assert_eq!(member.join().await.error_code, ErrorCode::FencedInstanceId.code());
    assert_eq!(member.leave().await, ErrorCode::FencedInstanceId.code());
    second.generation = 7;
    assert_eq!(second.heartbeat().await, ErrorCode::IllegalGeneration.code());
    assert_eq!(
        second.sync(&[]).await.error_code,
        ErrorCode::IllegalGeneration.code()
    );
    second.generation = 1;
    second.protocol = "other";
    assert_eq!(
        second.sync(&[]).await.error_code,
        ErrorCode::InconsistentGroupProtocol.code()
    );
    second.group = "elsewhere";
    assert_eq!(second.heartbeat().await, ErrorCode::UnknownMemberId.code());
    assert_eq!(second.leave().await, ErrorCode::UnknownMemberId.code());
    second.group = "";
    assert_eq!(second.heartbeat().await, ErrorCode::InvalidGroupId.code());
}

#[tokio::test]
async fn a_client_that_vanishes_while_it_waits_holds_nobody_up_for_ever() {
    let server = Server::start().await;
    let mut first = Member::alone(&server, "lost").await;
    let mut lost = Member::new(&server, "lost").await;
    lost.begin_join().await;
    first.hears_of_rebalance().await;
    drop(lost);
    assert_eq!(first.join().await.members.len(), 2);
    let id = first.id.clone();
    assert_eq!(first.sync(&[(&id, "all")]).await.assignment, "all");
    assert_eq!(first.heartbeat().await, 0);
}

#[tokio::test]
async fn who_waits_is_answered_when_the_broker_drains() {
    let server = Server::start().await;
    let mut first = Member::alone(&server, "drained").await;
    let mut second = Member::new(&server, "drained").await;
    second.begin_join().await;
    first.hears_of_rebalance().await;
    drop(first);
    server.drain().await;
    let answer = second.finish_join().await;
    assert_eq!(answer.error_code, ErrorCode::CoordinatorNotAvailable.code());
}

#[tokio::test]
async fn members_keep_their_place_over_a_restart() {
    let server = Server::start().await;
    let mut member = Member::alone(&server, "steady").await;
    let server = server.restart().await;
    member.client = server.client().await;
    assert_eq!(member.heartbeat().await, 0);
    assert_eq!(member.sync(&[]).await.assignment, "all");
    assert_eq!(member.leave().await, 0);
    let server = server.restart().await;
    let mut client = server.client().await;
    let listed = client.call(5, &ListGroupsRequest::default()).await;
    assert_eq!(listed.groups[0].group_state, "Empty");
}

#[tokio::test]
async fn groups_are_listed_by_state_and_type() {
    let server = Server::start().await;
    let _stable = Member::alone(&server, "stable").await;
    let mut gone = Member::alone(&server, "gone").await;
    assert_eq!(gone.leave().await, 0);
    let mut client = server.client().await;
    for version in 0..=5 {
        let mut groups = client.call(version, &ListGroupsRequest::default()).await.groups;
        groups.sort_by(|one, other| one.group_id.cmp(&other.group_id));
        let names: Vec<_> = groups.iter().map(|group| group.group_id.as_str()).collect();
        assert_eq!(names, ["gone", "stable"]);
        assert_eq!(groups[0].protocol_type, "consumer");
        assert_eq!(groups[0].group_state, if version >= 4 { "Empty" } else { "" });
        assert_eq!(groups[0].group_type, if version >= 5 { "classic" } else { "" });
    }
    for (states, types, expected) in [
        (&["stable"][..], &[][..], 1),
        (&["Stable", "Empty"], &["Classic"], 2),
        (&["Dead"], &[], 0),
        (&[], &["consumer"], 0),
    ] {
        let request = ListGroupsRequest {
            states_filter: states.iter().map(|state| Str::from(*state)).collect(),
            types_filter: types.iter().map(|kind| Str::from(*kind)).collect(),
        };
        assert_eq!(
            client.call(5, &request).await.groups.len(),
            expected,
            "{request:?}"
        );
    }
}

#[tokio::test]
async fn groups_are_described_and_absent_ones_are_dead() {
    let server = Server::start().await;
    let member = Member::alone(&server, "known").await;
    let mut client = server.client().await;
    for version in 0..=6 {
        let request = DescribeGroupsRequest {
            groups: vec!["known".into(), "unknown".into()],
            include_authorized_operations: version >= 3,
        };
        let groups = client.call(version, &request).await.groups;
        let known = &groups[0];
        assert_eq!((known.error_code, &*known.group_state), (0, "Stable"));
        assert_eq!(
            (&*known.protocol_type, &*known.protocol_data),
            ("consumer", "range")
        );
        assert_eq!(known.members[0].member_id, member.id);
        assert_eq!(known.members[0].client_id, "test");
        assert_eq!(known.members[0].client_host, "/127.0.0.1");
        assert_eq!(known.members[0].member_metadata, "about me");
        assert_eq!(known.members[0].member_assignment, "all");
        assert_eq!(
            known.authorized_operations,
            if version >= 3 { 3400 } else { i32::MIN }
        );
        let code = if version >= 6 {
            ErrorCode::GroupIdNotFound
        } else {
            ErrorCode::None
        };
        assert_eq!(
            (groups[1].error_code, &*groups[1].group_state),
            (code.code(), "Dead")
        );
    }
}

#[tokio::test]
async fn groups_without_members_are_deleted_for_good() {
    let server = Server::start().await;
    let mut member = Member::alone(&server, "mortal").await;
    let mut client = server.client().await;
    let request = DeleteGroupsRequest {
        groups_names: vec!["mortal".into(), "absent".into(), "absent".into()],
    };
    let codes = |results: &[stafett_kafka_wire::messages::delete_groups::DeletableGroupResult]| {
        results.iter().map(|result| result.error_code).collect::<Vec<_>>()
    };
    let absent = ErrorCode::GroupIdNotFound.code();
    let results = client.call(2, &request).await.results;
    assert_eq!(codes(&results), [ErrorCode::NonEmptyGroup.code(), absent]);
    assert_eq!(member.leave().await, 0);
    assert_eq!(codes(&client.call(2, &request).await.results), [0, absent]);
    assert_eq!(codes(&client.call(2, &request).await.results), [absent, absent]);
    let server = server.restart().await;
    let listed = server.client().await.call(5, &ListGroupsRequest::default()).await;
    assert!(listed.groups.is_empty());
}

#[tokio::test]
async fn this_broker_coordinates_everything() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let port = i32::from(server.address.port());
    for version in FindCoordinatorRequest::VERSIONS.min..=FindCoordinatorRequest::VERSIONS.max {
        for key_type in if version == 0 { 0..=0 } else { 0..=1 } {
            let many = version >= 4;
            let request = FindCoordinatorRequest {
                key: if many { Str::default() } else { "some".into() },
                key_type,
                coordinator_keys: if many {
                    vec!["one".into(), "two".into()]
                } else {
                    Vec::new()
                },
            };
            let response = client.call(version, &request).await;
            if many {
                let found = response
                    .coordinators
                    .iter()
                    .map(|it| (&*it.key, it.error_code, it.node_id, it.port));
                assert!(found.eq([("one", 0, 1, port), ("two", 0, 1, port)]));
            } else {
                assert_eq!(
                    (response.error_code, response.node_id, response.port),
                    (0, 1, port)
                );
            }
        }
    }
}

#[tokio::test]
async fn a_node_that_stands_by_lists_no_groups_of_the_owner() {
    let server = Server::start().await;
    let _member = Member::alone(&server, "readers").await;
    for (is_relayed, count) in [(false, 1), (true, 0)] {
        let mut client = server.handed_client(is_relayed).await;
        let listed = client.call(5, &ListGroupsRequest::default()).await;
        assert_eq!(listed.groups.len(), count, "relayed: {is_relayed}");
    }
}
