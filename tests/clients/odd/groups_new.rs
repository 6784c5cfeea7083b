//! Groups of the consumer protocol (KIP-848): invalid heartbeats.

use stafett_kafka_wire::Uuid;
use stafett_kafka_wire::messages::consumer_group_heartbeat::RequestTopicPartitions;
use stafett_kafka_wire::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, HeartbeatRequest, JoinGroupRequest,
};

use super::asker::{Asker, codes_of, text};
use super::groups::{join, member};
use super::{Case, case};

const MEMBER: &str = "8QeCkLaTQVeKdWBWsvmUEw";

pub(super) fn first(group: &str) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest {
        group_id: text(group),
        member_id: text(MEMBER),
        member_epoch: 0,
        rebalance_timeout_ms: 30_000,
        subscribed_topic_names: Some(vec![text("odd.n.topic")]),
        topic_partitions: Some(Vec::new()),
        ..ConsumerGroupHeartbeatRequest::default()
    }
}

/// A heartbeat without anything new.
fn beat(group: &str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest {
        group_id: text(group),
        member_id: text(MEMBER),
        member_epoch: epoch,
        rebalance_timeout_ms: -1,
        ..ConsumerGroupHeartbeatRequest::default()
    }
}

fn firsts() -> Vec<Case> {
    let changed = |group: &'static str, change: fn(&mut ConsumerGroupHeartbeatRequest)| {
        move |a: &mut Asker| {
            let mut request = first(group);
            change(&mut request);
            a.codes_of_coordinator(1, &request)
        }
    };
    vec![
        case(
            "ConsumerGroupHeartbeat: a new member",
            changed("odd.n.new", |_| {}),
        ),
        case("ConsumerGroupHeartbeat: an empty group", changed("", |_| {})),
        case("ConsumerGroupHeartbeat: a group of blanks", changed("  ", |_| {})),
        case(
            "ConsumerGroupHeartbeat: an empty member",
            changed("odd.n.member", |r| r.member_id = text("")),
        ),
        case(
            "ConsumerGroupHeartbeat: a member id that is no UUID",
            changed("odd.n.memberid", |r| r.member_id = text("me")),
        ),
        case(
            "ConsumerGroupHeartbeat: no rebalance timeout at first",
            changed("odd.n.timeout", |r| r.rebalance_timeout_ms = -1),
        ),
        case(
            "ConsumerGroupHeartbeat: a rebalance timeout of 0",
            changed("odd.n.timeout0", |r| r.rebalance_timeout_ms = 0),
        ),
        case(
            "ConsumerGroupHeartbeat: no topics at first",
            changed("odd.n.topics", |r| r.subscribed_topic_names = None),
        ),
        case(
            "ConsumerGroupHeartbeat: an empty list of topics at first",
            changed("odd.n.notopics", |r| r.subscribed_topic_names = Some(Vec::new())),
        ),
        case(
            "ConsumerGroupHeartbeat: an empty topic name",
            changed("odd.n.unnamed", |r| {
                r.subscribed_topic_names = Some(vec![text("")]);
            }),
        ),
        case(
            "ConsumerGroupHeartbeat: owned partitions at first",
            changed("odd.n.owned", |r| {
                r.topic_partitions = Some(vec![RequestTopicPartitions {
                    topic_id: Uuid([6; 16]),
                    partitions: vec![0],
                }]);
            }),
        ),
        case(
            "ConsumerGroupHeartbeat: no owned partitions at first",
            changed("odd.n.unowned", |r| r.topic_partitions = None),
        ),
        case(
            "ConsumerGroupHeartbeat: an unknown assignor",
            changed("odd.n.assignor", |r| r.server_assignor = Some(text("odd"))),
        ),
        case(
            "ConsumerGroupHeartbeat: an empty assignor",
            changed("odd.n.noassignor", |r| r.server_assignor = Some(text(""))),
        ),
        case(
            "ConsumerGroupHeartbeat: the assignor range",
            changed("odd.n.range", |r| r.server_assignor = Some(text("range"))),
        ),
        case(
            "ConsumerGroupHeartbeat: an empty instance",
            changed("odd.n.instance", |r| r.instance_id = Some(text(""))),
        ),
        case(
            "ConsumerGroupHeartbeat: an empty rack",
            changed("odd.n.rack", |r| r.rack_id = Some(text(""))),
        ),
        case(
            "ConsumerGroupHeartbeat: a regular expression",
            changed("odd.n.regex", |r| {
                r.subscribed_topic_names = None;
                r.subscribed_topic_regex = Some(text("odd\\.n\\..*"));
            }),
        ),
        case(
            "ConsumerGroupHeartbeat: a bad regular expression",
            changed("odd.n.badregex", |r| {
                r.subscribed_topic_names = None;
                r.subscribed_topic_regex = Some(text("odd[(("));
            }),
        ),
        case(
            "ConsumerGroupHeartbeat: an empty regular expression",
            changed("odd.n.emptyregex", |r| {
                r.subscribed_topic_names = None;
                r.subscribed_topic_regex = Some(text(""));
            }),
        ),
        case(
            "ConsumerGroupHeartbeat: topics and a regular expression",
            changed("odd.n.both", |r| {
                r.subscribed_topic_regex = Some(text("odd.*"));
            }),
        ),
        case(
            "ConsumerGroupHeartbeat: an epoch before the first",
            changed("odd.n.epoch", |r| r.member_epoch = 3),
        ),
        case(
            "ConsumerGroupHeartbeat: an epoch of -3",
            changed("odd.n.epochneg", |r| r.member_epoch = -3),
        ),
        case(
            "ConsumerGroupHeartbeat: a leave of a group that is not there",
            changed("odd.n.leave", |r| r.member_epoch = -1),
        ),
        case(
            "ConsumerGroupHeartbeat: a static leave without an instance",
            changed("odd.n.staticleave", |r| r.member_epoch = -2),
        ),
        case(
            "ConsumerGroupHeartbeat: no member id in the version that needs none",
            |a| {
                let request = ConsumerGroupHeartbeatRequest {
                    member_id: text(""),
                    ..first("odd.n.idless")
                };
                a.codes_of_coordinator(0, &request)
            },
        ),
    ]
}

fn lives() -> Vec<Case> {
    vec![
        case("ConsumerGroupHeartbeat: epochs of a member", |a| {
            a.topic("odd.n.epochs", 1);
            let request = ConsumerGroupHeartbeatRequest {
                subscribed_topic_names: Some(vec![text("odd.n.epochs")]),
                ..first("odd.n.epochs")
            };
            let joined = a.ask_coordinator(1, &request).unwrap();
            let epoch = joined.member_epoch;
            let good = a.codes(1, &beat("odd.n.epochs", epoch));
            let new = a.codes(1, &beat("odd.n.epochs", epoch + 1));
            let mut other = beat("odd.n.epochs", epoch);
            other.member_id = text("somebody");
            let stranger = a.codes(1, &other);
            let gone = a.codes(1, &beat("odd.n.epochs", -1));
            let after = a.codes(1, &beat("odd.n.epochs", epoch));
            format!(
                "{}; {good}; {new}; {stranger}; {gone}; {after}",
                codes_of(&joined)
            )
        }),
        case("ConsumerGroupHeartbeat: an instance that is taken", |a| {
            let request = ConsumerGroupHeartbeatRequest {
                instance_id: Some(text("one")),
                ..first("odd.n.taken")
            };
            let joined = a.codes_of_coordinator(1, &request);
            let other = ConsumerGroupHeartbeatRequest {
                member_id: text("somebody"),
                ..request
            };
            format!("{joined}; {}", a.codes(1, &other))
        }),
        case(
            "ConsumerGroupHeartbeat: partitions that the member does not own",
            |a| {
                let id = a.topic("odd.n.stolen", 2);
                let request = ConsumerGroupHeartbeatRequest {
                    subscribed_topic_names: Some(vec![text("odd.n.stolen")]),
                    ..first("odd.n.stolen")
                };
                let epoch = a.ask_coordinator(1, &request).unwrap().member_epoch;
                let partitions = |list: Vec<i32>| {
                    Some(vec![RequestTopicPartitions {
                        topic_id: id,
                        partitions: list,
                    }])
                };
                let beyond = ConsumerGroupHeartbeatRequest {
                    topic_partitions: partitions(vec![0, 99, -1]),
                    ..beat("odd.n.stolen", epoch)
                };
                a.codes(1, &beyond)
            },
        ),
        case("ConsumerGroupHeartbeat: a group of the classic protocol", |a| {
            member(a, "odd.n.classic");
            a.codes(1, &first("odd.n.classic"))
        }),
        case("ConsumerGroupHeartbeat: then JoinGroup", |a| {
            a.codes_of_coordinator(1, &first("odd.n.consumer"));
            a.codes(9, &join("odd.n.consumer", ""))
        }),
        case(
            "ConsumerGroupHeartbeat: then JoinGroup with another protocol type",
            |a| {
                a.codes_of_coordinator(1, &first("odd.n.connect"));
                a.codes(
                    9,
                    &JoinGroupRequest {
                        protocol_type: text("connect"),
                        ..join("odd.n.connect", "")
                    },
                )
            },
        ),
        case("ConsumerGroupHeartbeat: then Heartbeat", |a| {
            a.codes_of_coordinator(1, &first("odd.n.beat"));
            a.codes(
                4,
                &HeartbeatRequest {
                    group_id: text("odd.n.beat"),
                    generation_id: 1,
                    member_id: text(MEMBER),
                    group_instance_id: None,
                },
            )
        }),
        case("ConsumerGroupDescribe: groups that are not there", |a| {
            let request = ConsumerGroupDescribeRequest {
                group_ids: vec![text("odd.n.absent"), text("")],
                include_authorized_operations: false,
            };
            a.codes_of_coordinator(1, &request)
        }),
        case("ConsumerGroupDescribe: a group of the classic protocol", |a| {
            member(a, "odd.n.described");
            let request = ConsumerGroupDescribeRequest {
                group_ids: vec![text("odd.n.described")],
                include_authorized_operations: false,
            };
            a.codes(1, &request)
        }),
        case("ConsumerGroupDescribe: nothing", |a| {
            a.codes(1, &ConsumerGroupDescribeRequest::default())
        }),
    ]
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = firsts();
    all.extend(lives());
    all
}
