//! Groups of the classic protocol and their offsets: invalid ids, generations and members.

use bytes::Bytes;
use stafett_kafka_wire::Str;
use stafett_kafka_wire::messages::join_group::JoinGroupRequestProtocol;
use stafett_kafka_wire::messages::leave_group::MemberIdentity;
use stafett_kafka_wire::messages::sync_group::SyncGroupRequestAssignment;
use stafett_kafka_wire::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest,
    LeaveGroupRequest, ListGroupsRequest, SyncGroupRequest,
};

use super::asker::{Asker, codes_of, text};
use super::offsets::commit;
use super::{Case, case};

const METADATA: Bytes = Bytes::from_static(&[0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);

pub(super) fn join(group: &str, member: &str) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: text(group),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        member_id: text(member),
        protocol_type: text("consumer"),
        protocols: vec![JoinGroupRequestProtocol {
            name: text("range"),
            metadata: METADATA,
        }],
        ..JoinGroupRequest::default()
    }
}

pub(super) fn sync(group: &str, member: &str, generation: i32, assign: bool) -> SyncGroupRequest {
    let assignment = SyncGroupRequestAssignment {
        member_id: text(member),
        assignment: Bytes::from_static(b"share"),
    };
    SyncGroupRequest {
        group_id: text(group),
        generation_id: generation,
        member_id: text(member),
        protocol_type: Some(text("consumer")),
        protocol_name: Some(text("range")),
        assignments: if assign { vec![assignment] } else { Vec::new() },
        ..SyncGroupRequest::default()
    }
}

/// One member that has joined and synced a group: its id, in generation 1.
pub(super) fn member(a: &mut Asker, group: &str) -> Str {
    let first = a.ask_coordinator(9, &join(group, "")).unwrap();
    assert_eq!(codes_of(&first), "79", "a new member is given its id");
    let joined = a.ask(9, &join(group, &first.member_id)).unwrap();
    assert_eq!((joined.error_code, joined.generation_id), (0, 1));
    let synced = a.ask(5, &sync(group, &joined.member_id, 1, true)).unwrap();
    assert_eq!(synced.error_code, 0);
    joined.member_id
}

fn joins() -> Vec<Case> {
    let changed = |name: &'static str, change: fn(&mut JoinGroupRequest)| {
        move |a: &mut Asker| {
            let mut request = join(name, "");
            change(&mut request);
            a.codes_of_coordinator(9, &request)
        }
    };
    vec![
        case("JoinGroup: a new member", changed("odd.j.new", |_| {})),
        case("JoinGroup: an empty group", changed("", |_| {})),
        case(
            "JoinGroup: a session of 0",
            changed("odd.j.session0", |r| r.session_timeout_ms = 0),
        ),
        case(
            "JoinGroup: a negative session",
            changed("odd.j.sessionneg", |r| r.session_timeout_ms = -1),
        ),
        case(
            "JoinGroup: a session too short",
            changed("odd.j.short", |r| r.session_timeout_ms = 5999),
        ),
        case(
            "JoinGroup: a session too long",
            changed("odd.j.long", |r| r.session_timeout_ms = 1_800_001),
        ),
        case(
            "JoinGroup: a session far too long",
            changed("odd.j.longest", |r| r.session_timeout_ms = i32::MAX),
        ),
        case(
            "JoinGroup: no protocols",
            changed("odd.j.none", |r| r.protocols.clear()),
        ),
        case(
            "JoinGroup: an empty protocol type",
            changed("odd.j.type", |r| r.protocol_type = text("")),
        ),
        case(
            "JoinGroup: a member nobody knows",
            changed("odd.j.member", |r| r.member_id = text("somebody")),
        ),
        case(
            "JoinGroup: an empty instance id",
            changed("odd.j.instance", |r| r.group_instance_id = Some(text(""))),
        ),
        case(
            "JoinGroup: a bad instance id",
            changed("odd.j.badinstance", |r| r.group_instance_id = Some(text("a/b c"))),
        ),
        case(
            "JoinGroup: an instance id of 250 characters",
            changed("odd.j.longinstance", |r| {
                r.group_instance_id = Some(text(&"i".repeat(250)));
            }),
        ),
        case(
            "JoinGroup: a member nobody knows with an instance id",
            changed("odd.j.static", |r| {
                r.member_id = text("somebody");
                r.group_instance_id = Some(text("one"));
            }),
        ),
        case("JoinGroup: a version before member ids", |a| {
            let request = JoinGroupRequest {
                group_instance_id: None,
                ..join("odd.j.old", "")
            };
            let answer = a.ask_coordinator(3, &request).unwrap();
            format!("{} generation {}", codes_of(&answer), answer.generation_id)
        }),
        case("JoinGroup: another protocol type than the group's", |a| {
            member(a, "odd.j.other");
            let request = JoinGroupRequest {
                protocol_type: text("connect"),
                ..join("odd.j.other", "")
            };
            a.another().codes(9, &request)
        }),
        case("JoinGroup: no protocol in common", |a| {
            member(a, "odd.j.common");
            let mut request = join("odd.j.common", "");
            request.protocols[0].name = text("odd");
            a.another().codes(9, &request)
        }),
        case("JoinGroup: a static member's id with another instance", |a| {
            let request = JoinGroupRequest {
                group_instance_id: Some(text("one")),
                ..join("odd.j.fence", "")
            };
            let joined = a.ask_coordinator(9, &request).unwrap();
            assert_eq!(joined.error_code, 0);
            let mut other = a.another();
            let taken = JoinGroupRequest {
                member_id: text("somebody"),
                ..request.clone()
            };
            format!("{}; {}", codes_of(&joined), other.codes(9, &taken))
        }),
    ]
}

fn members() -> Vec<Case> {
    let beat = |group: &str, member: &str, generation: i32| HeartbeatRequest {
        group_id: text(group),
        generation_id: generation,
        member_id: text(member),
        group_instance_id: None,
    };
    let leave = |group: &str, members: Vec<(&str, Option<&str>)>| LeaveGroupRequest {
        group_id: text(group),
        member_id: text(""),
        members: members
            .into_iter()
            .map(|(id, instance)| MemberIdentity {
                member_id: text(id),
                group_instance_id: instance.map(text),
                reason: None,
            })
            .collect(),
    };
    vec![
        case("Heartbeat: a group that is not there", move |a| {
            a.codes_of_coordinator(4, &beat("odd.h.absent", "m", 1))
        }),
        case("Heartbeat: an empty group", move |a| {
            a.codes_of_coordinator(4, &beat("", "m", 1))
        }),
        case("Heartbeat: members and generations", move |a| {
            let id = member(a, "odd.h.group");
            let ask = |a: &mut Asker, member: &str, generation| {
                a.codes(4, &beat("odd.h.group", member, generation))
            };
            let good = ask(a, &id, 1);
            let old = ask(a, &id, 0);
            let new = ask(a, &id, 2);
            let negative = ask(a, &id, -1);
            format!(
                "{good}; {old}; {new}; {negative}; {}; {}",
                ask(a, "somebody", 1),
                ask(a, "", 1)
            )
        }),
        case("Heartbeat: an instance id that is not the member's", move |a| {
            let id = member(a, "odd.h.instance");
            let request = HeartbeatRequest {
                group_instance_id: Some(text("one")),
                ..beat("odd.h.instance", &id, 1)
            };
            a.codes(4, &request)
        }),
        case("SyncGroup: a group that is not there", |a| {
            a.codes_of_coordinator(5, &sync("odd.y.absent", "m", 1, false))
        }),
        case("SyncGroup: an empty group", |a| {
            a.codes_of_coordinator(5, &sync("", "m", 1, false))
        }),
        case("SyncGroup: members, generations and protocols", |a| {
            let id = member(a, "odd.y.group");
            let again = a.codes(5, &sync("odd.y.group", &id, 1, false));
            let old = a.codes(5, &sync("odd.y.group", &id, 0, false));
            let stranger = a.codes(5, &sync("odd.y.group", "somebody", 1, false));
            let mut request = sync("odd.y.group", &id, 1, false);
            request.protocol_type = Some(text("connect"));
            let kind = a.codes(5, &request);
            let mut request = sync("odd.y.group", &id, 1, false);
            request.protocol_name = Some(text("odd"));
            let name = a.codes(5, &request);
            request.protocol_name = None;
            format!(
                "{again}; {old}; {stranger}; {kind}; {name}; {}",
                a.codes(5, &request)
            )
        }),
        case("SyncGroup: assignments for members that are not there", |a| {
            let first = a.ask_coordinator(9, &join("odd.y.strangers", "")).unwrap();
            let joined = a.ask(9, &join("odd.y.strangers", &first.member_id)).unwrap();
            let mut request = sync("odd.y.strangers", &joined.member_id, 1, true);
            request.assignments[0].member_id = text("somebody");
            let answer = a.ask(5, &request).unwrap();
            format!("{} with {} bytes", codes_of(&answer), answer.assignment.len())
        }),
        case("LeaveGroup: a group that is not there", move |a| {
            a.codes_of_coordinator(5, &leave("odd.v.absent", vec![("m", None)]))
        }),
        case("LeaveGroup: an empty group", move |a| {
            a.codes_of_coordinator(5, &leave("", vec![("m", None)]))
        }),
        case("LeaveGroup: nobody", move |a| {
            member(a, "odd.v.nobody");
            a.codes(5, &leave("odd.v.nobody", Vec::new()))
        }),
        case("LeaveGroup: strangers and a member, twice", move |a| {
            let id = member(a, "odd.v.group");
            let who = vec![
                ("somebody", None),
                (&*id, None),
                (&*id, None),
                ("", Some("one")),
                ("", None),
            ];
            a.codes(5, &leave("odd.v.group", who))
        }),
        case("LeaveGroup: a stranger in a version of one", move |a| {
            member(a, "odd.v.one");
            let request = LeaveGroupRequest {
                member_id: text("somebody"),
                ..leave("odd.v.one", Vec::new())
            };
            a.codes(2, &request)
        }),
    ]
}

fn questions() -> Vec<Case> {
    let coordinator = |key_type: i8, keys: &'static [&'static str]| {
        move |a: &mut Asker| {
            let request = FindCoordinatorRequest {
                key_type,
                coordinator_keys: keys.iter().map(|k| text(k)).collect(),
                ..FindCoordinatorRequest::default()
            };
            a.codes_of_coordinator(4, &request)
        }
    };
    let groups = |names: &[&str]| names.iter().map(|name| text(name)).collect::<Vec<_>>();
    vec![
        case("FindCoordinator: a group", coordinator(0, &["odd"])),
        case("FindCoordinator: an empty group", coordinator(0, &[""])),
        case("FindCoordinator: no keys", coordinator(0, &[])),
        case(
            "FindCoordinator: the same key twice",
            coordinator(0, &["odd", "odd"]),
        ),
        case("FindCoordinator: an unknown kind", coordinator(9, &["odd"])),
        case("FindCoordinator: a negative kind", coordinator(-1, &["odd"])),
        case("FindCoordinator: a share key that is none", |a| {
            let request = FindCoordinatorRequest {
                key_type: 2,
                coordinator_keys: vec![text("odd")],
                ..FindCoordinatorRequest::default()
            };
            a.codes_of_coordinator(6, &request)
        }),
        case("FindCoordinator: one unknown kind in an old version", |a| {
            a.codes_of_coordinator(
                3,
                &FindCoordinatorRequest {
                    key: text("odd"),
                    key_type: 9,
                    ..FindCoordinatorRequest::default()
                },
            )
        }),
        case("DescribeGroups: groups that are not there", move |a| {
            a.codes_of_coordinator(
                5,
                &DescribeGroupsRequest {
                    groups: groups(&["odd.z.absent", ""]),
                    include_authorized_operations: false,
                },
            )
        }),
        case(
            "DescribeGroups: a group that is not there in a version that says so",
            move |a| {
                a.codes_of_coordinator(
                    6,
                    &DescribeGroupsRequest {
                        groups: groups(&["odd.z.absent", ""]),
                        include_authorized_operations: false,
                    },
                )
            },
        ),
        case("DescribeGroups: the same group twice", move |a| {
            member(a, "odd.z.twice");
            a.codes(
                5,
                &DescribeGroupsRequest {
                    groups: groups(&["odd.z.twice", "odd.z.twice"]),
                    include_authorized_operations: false,
                },
            )
        }),
        case("DescribeGroups: nothing", |a| {
            a.codes(5, &DescribeGroupsRequest::default())
        }),
        case("DeleteGroups: groups that are not there", move |a| {
            a.codes_of_coordinator(
                2,
                &DeleteGroupsRequest {
                    groups_names: groups(&["odd.z.absent"]),
                },
            )
        }),
        case("DeleteGroups: an empty group", move |a| {
            a.codes_of_coordinator(
                2,
                &DeleteGroupsRequest {
                    groups_names: groups(&[""]),
                },
            )
        }),
        case("DeleteGroups: a group with members", move |a| {
            member(a, "odd.z.members");
            a.codes(
                2,
                &DeleteGroupsRequest {
                    groups_names: groups(&["odd.z.members"]),
                },
            )
        }),
        case("DeleteGroups: a group with commits, twice", move |a| {
            a.topic("odd.z.commits", 1);
            a.codes_of_coordinator(9, &commit("odd.z.commits", "", -1, "odd.z.commits", 0, 5));
            let request = DeleteGroupsRequest {
                groups_names: groups(&["odd.z.commits"]),
            };
            format!("{}; {}", a.codes(2, &request), a.codes(2, &request))
        }),
        case("ListGroups: unknown states and types", |a| {
            let request = ListGroupsRequest {
                states_filter: vec![text("Dreaming")],
                types_filter: vec![text("secret")],
            };
            a.codes_of_coordinator(5, &request)
        }),
        case("ListGroups: empty states and types", |a| {
            let request = ListGroupsRequest {
                states_filter: vec![text("")],
                types_filter: vec![text("")],
            };
            a.codes_of_coordinator(5, &request)
        }),
    ]
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = joins();
    all.extend(members());
    all.extend(questions());
    all
}
