//! Share groups (KIP-932): heartbeats and sessions out of order.

use stafett_kafka_wire::Uuid;
use stafett_kafka_wire::messages::{
    ShareAcknowledgeRequest, ShareFetchRequest, ShareFetchResponse, ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest, share_acknowledge, share_fetch,
};

use super::asker::{Asker, codes_of, text};
use super::groups::member as classic_member;
use super::produce::{batch, produce};
use super::settings::{SET, incremental};
use super::{Case, case};
use crate::broker::is_stafett;

const ONE: &str = "8QeCkLaTQVeKdWBWsvmUEw";
const OTHER: &str = "9QeCkLaTQVeKdWBWsvmUEw";
/// Number of the kind of settings that groups have.
const GROUP: i8 = 32;
pub(super) const ACCEPT: i8 = 1;
pub(super) const RELEASE: i8 = 2;
pub(super) const RENEW: i8 = 4;
const RECORDS: usize = 6;

/// First offset, last offset, and acknowledge types.
pub(super) type Settled<'a> = (i64, i64, &'a [i8]);

/// A heartbeat of a member of the group that is named as its topic.
fn beat(group: &str, member: &str, epoch: i32) -> ShareGroupHeartbeatRequest {
    ShareGroupHeartbeatRequest {
        group_id: text(group),
        member_id: text(member),
        member_epoch: epoch,
        ..ShareGroupHeartbeatRequest::default()
    }
}

pub(super) fn first(group: &str, member: &str) -> ShareGroupHeartbeatRequest {
    ShareGroupHeartbeatRequest {
        subscribed_topic_names: Some(vec![text(group)]),
        ..beat(group, member, 0)
    }
}

/// A share session of a member of the group that is named as its topic.
#[derive(Clone)]
pub(super) struct Sharer {
    pub(super) group: &'static str,
    pub(super) member: &'static str,
    pub(super) topic: Uuid,
    pub(super) epoch: i32,
}

impl Sharer {
    /// Makes the topic with records, joins the group, and takes all records.
    pub(super) fn begin(a: &mut Asker, group: &'static str) -> Self {
        let mut sharer = Self::joined(a, group);
        let is_kafka = !is_stafett();
        loop {
            let taken = sharer.fetch(a, &[]);
            if taken.ends_with(&format!("0-{} 1", RECORDS - 1)) {
                return sharer;
            }
            // Kafka makes the state of the group after the answer to the first heartbeat, and answers with
            // errors until then.
            assert!(is_kafka || taken == "0", "{group}: {taken}");
        }
    }

    /// Makes the topic with records, and joins the group.
    fn joined(a: &mut Asker, group: &'static str) -> Self {
        let topic = a.topic(group, 1);
        let earliest = [("share.auto.offset.reset", SET, Some("earliest"))];
        assert_eq!(a.codes(1, &incremental(GROUP, group, &earliest)), "0");
        assert_eq!(a.codes(9, &produce(group, 0, Some(batch(RECORDS)))), "0");
        assert_eq!(a.codes_of_coordinator(1, &first(group, ONE)), "0");
        Self {
            group,
            member: ONE,
            topic,
            epoch: 0,
        }
    }

    /// Another member of the group, with a session of its own and without records.
    pub(super) fn other(&self, a: &mut Asker) -> Self {
        assert_eq!(a.codes_of_coordinator(1, &first(self.group, OTHER)), "0");
        let mut other = Self {
            member: OTHER,
            epoch: 0,
            ..self.clone()
        };
        assert_eq!(other.fetch(a, &[]), "0");
        other
    }

    pub(super) fn request(&mut self, settled: &[Settled<'_>]) -> ShareFetchRequest {
        let batches = settled
            .iter()
            .map(|(first, last, types)| share_fetch::AcknowledgementBatch {
                first_offset: *first,
                last_offset: *last,
                acknowledge_types: types.to_vec(),
            });
        let request = ShareFetchRequest {
            group_id: Some(text(self.group)),
            member_id: Some(text(self.member)),
            share_session_epoch: self.epoch,
            max_wait_ms: 200,
            min_bytes: 1,
            max_bytes: 1 << 20,
            max_records: 500,
            batch_size: 500,
            topics: vec![share_fetch::FetchTopic {
                topic_id: self.topic,
                partitions: vec![share_fetch::FetchPartition {
                    partition_index: 0,
                    acknowledgement_batches: batches.collect(),
                }],
            }],
            ..ShareFetchRequest::default()
        };
        self.epoch = self.epoch.wrapping_add(1);
        request
    }

    pub(super) fn fetch(&mut self, a: &mut Asker, settled: &[Settled<'_>]) -> String {
        let request = self.request(settled);
        fetched(a, &request)
    }

    pub(super) fn acknowledgement(&mut self, settled: &[Settled<'_>]) -> ShareAcknowledgeRequest {
        let batches = settled
            .iter()
            .map(|(first, last, types)| share_acknowledge::AcknowledgementBatch {
                first_offset: *first,
                last_offset: *last,
                acknowledge_types: types.to_vec(),
            });
        let request = ShareAcknowledgeRequest {
            group_id: Some(text(self.group)),
            member_id: Some(text(self.member)),
            share_session_epoch: self.epoch,
            is_renew_ack: settled.iter().any(|(.., types)| types.contains(&RENEW)),
            topics: vec![share_acknowledge::AcknowledgeTopic {
                topic_id: self.topic,
                partitions: vec![share_acknowledge::AcknowledgePartition {
                    partition_index: 0,
                    acknowledgement_batches: batches.collect(),
                }],
            }],
        };
        self.epoch = self.epoch.wrapping_add(1);
        request
    }

    pub(super) fn settle(&mut self, a: &mut Asker, settled: &[Settled<'_>]) -> String {
        let request = self.acknowledgement(settled);
        a.codes(2, &request)
    }
}

fn fetched(a: &mut Asker, request: &ShareFetchRequest) -> String {
    a.ask(2, request)
        .map_or_else(super::asker::Ended::name, |response| told(&response))
}

/// The code of a response, and of its partitions: their codes, if one is not 0, and what was acquired.
fn told(response: &ShareFetchResponse) -> String {
    let mut told = vec![response.error_code.to_string()];
    for partition in response.responses.iter().flat_map(|topic| &topic.partitions) {
        let codes = (partition.error_code, partition.acknowledge_error_code);
        if codes != (0, 0) {
            told.push(format!("partition {} settled {}", codes.0, codes.1));
        }
        let acquired = partition.acquired_records.iter();
        told.extend(
            acquired.map(|one| format!("{}-{} {}", one.first_offset, one.last_offset, one.delivery_count)),
        );
    }
    // Kafka answers in the order of its hash tables.
    told[1..].sort_unstable();
    told.join(", ")
}

pub(super) fn cases() -> Vec<Case> {
    [heartbeats(), lives(), sessions(), fetches()]
        .into_iter()
        .flatten()
        .collect()
}

fn heartbeats() -> Vec<Case> {
    let changed = |group: &'static str, change: fn(&mut ShareGroupHeartbeatRequest)| {
        move |a: &mut Asker| {
            let mut request = first(group, ONE);
            change(&mut request);
            a.codes_of_coordinator(1, &request)
        }
    };
    vec![
        case("ShareGroupHeartbeat: a new member", changed("odd.sh.new", |_| {})),
        case("ShareGroupHeartbeat: an empty group", changed("", |_| {})),
        case("ShareGroupHeartbeat: a group of blanks", changed("  ", |_| {})),
        case(
            "ShareGroupHeartbeat: an empty member",
            changed("odd.sh.member", |r| r.member_id = text("")),
        ),
        case(
            "ShareGroupHeartbeat: a member id that is no UUID",
            changed("odd.sh.memberid", |r| r.member_id = text("me")),
        ),
        case(
            "ShareGroupHeartbeat: a member id of 37 letters",
            changed("odd.sh.memberlong", |r| r.member_id = text(&"m".repeat(37))),
        ),
        case(
            "ShareGroupHeartbeat: no topics at first",
            changed("odd.sh.topics", |r| r.subscribed_topic_names = None),
        ),
        case(
            "ShareGroupHeartbeat: an empty list of topics at first",
            changed("odd.sh.notopics", |r| r.subscribed_topic_names = Some(Vec::new())),
        ),
        case(
            "ShareGroupHeartbeat: an empty topic name",
            changed("odd.sh.unnamed", |r| {
                r.subscribed_topic_names = Some(vec![text("")]);
            }),
        ),
        case(
            "ShareGroupHeartbeat: an empty rack",
            changed("odd.sh.rack", |r| r.rack_id = Some(text(""))),
        ),
        case(
            "ShareGroupHeartbeat: an epoch before the first",
            changed("odd.sh.epoch", |r| r.member_epoch = 3),
        ),
        case(
            "ShareGroupHeartbeat: an epoch of -2",
            changed("odd.sh.epochneg", |r| r.member_epoch = -2),
        ),
        case(
            "ShareGroupHeartbeat: a leave of a group that is not there",
            changed("odd.sh.leave", |r| r.member_epoch = -1),
        ),
    ]
}

fn lives() -> Vec<Case> {
    vec![
        case("ShareGroupHeartbeat: epochs of a member", |a| {
            let group = "odd.sh.epochs";
            a.topic(group, 1);
            let joined = a.ask_coordinator(1, &first(group, ONE)).unwrap();
            let epoch = joined.member_epoch;
            let again = a.codes(1, &first(group, ONE));
            let told = [epoch, epoch + 1, -1, epoch, -1].map(|epoch| a.codes(1, &beat(group, ONE, epoch)));
            format!("{}; {again}; {}", codes_of(&joined), told.join("; "))
        }),
        case("ShareGroupHeartbeat: two consumers with one member id", |a| {
            let group = "odd.sh.twins";
            a.topic(group, 1);
            let epoch = a.ask_coordinator(1, &first(group, ONE)).unwrap().member_epoch;
            let mut twin = a.another();
            let joined = twin.ask_coordinator(1, &first(group, ONE)).unwrap();
            let kept = joined.member_epoch == epoch;
            let beats = [
                a.codes(1, &beat(group, ONE, epoch)),
                twin.codes(1, &beat(group, ONE, epoch)),
            ];
            let left = twin.codes(1, &beat(group, ONE, -1));
            let after = a.codes(1, &beat(group, ONE, epoch));
            format!(
                "{} {kept}; {}; {left}; {after}",
                codes_of(&joined),
                beats.join("; ")
            )
        }),
        case("ShareGroupHeartbeat: a group of the classic protocol", |a| {
            classic_member(a, "odd.sh.classic");
            a.codes(1, &first("odd.sh.classic", ONE))
        }),
        case("ShareGroupDescribe: groups that are not there", |a| {
            let request = ShareGroupDescribeRequest {
                group_ids: vec![text("odd.sh.absent"), text("")],
                include_authorized_operations: false,
            };
            a.codes_of_coordinator(1, &request)
        }),
        case("ShareGroupDescribe: a group of the classic protocol", |a| {
            classic_member(a, "odd.sh.described");
            let request = ShareGroupDescribeRequest {
                group_ids: vec![text("odd.sh.described")],
                include_authorized_operations: false,
            };
            a.codes(1, &request)
        }),
        case("ShareGroupDescribe: nothing", |a| {
            a.codes(1, &ShareGroupDescribeRequest::default())
        }),
    ]
}

fn sessions() -> Vec<Case> {
    vec![
        case("ShareFetch: epochs of a session", |a| {
            let s = Sharer::begin(a, "odd.sh.session");
            let at = |epoch: i32| Sharer { epoch, ..s.clone() }.request(&[]);
            [s.epoch - 1, s.epoch + 1, -2, i32::MAX, s.epoch, s.epoch]
                .map(|epoch| fetched(a, &at(epoch)))
                .join("; ")
        }),
        case("ShareFetch: no session, and one that was closed", |a| {
            let s = Sharer::joined(a, "odd.sh.closed");
            let at = |epoch: i32| Sharer { epoch, ..s.clone() }.request(&[]);
            [5, -1, 0, -1, -1, 1]
                .map(|epoch| fetched(a, &at(epoch)).replace(", 0-5 1", ""))
                .join("; ")
        }),
        case("ShareFetch: acknowledgements with the first request", |a| {
            let mut s = Sharer::joined(a, "odd.sh.firstack");
            s.fetch(a, &[(0, 0, &[ACCEPT])])
        }),
        case("ShareFetch: no group, no member, or an empty one", |a| {
            let mut s = Sharer::joined(a, "odd.sh.nameless");
            let request = s.request(&[]);
            let group = request.group_id.clone();
            [
                (None, Some(ONE)),
                (Some(()), None),
                (Some(()), Some("")),
                (Some(()), Some("me")),
            ]
            .map(|(named, member)| {
                let request = ShareFetchRequest {
                    group_id: named.and_then(|()| group.clone()),
                    member_id: member.map(text),
                    ..request.clone()
                };
                fetched(a, &request)
            })
            .join("; ")
        }),
        case("ShareFetch: a group that is not there", |a| {
            let mut s = Sharer {
                group: "odd.sh.nogroup",
                ..Sharer::joined(a, "odd.sh.havegroup")
            };
            s.fetch(a, &[])
        }),
        case("ShareAcknowledge: epochs of a session", |a| {
            let mut s = Sharer::begin(a, "odd.sh.ackepoch");
            let accepted: &[Settled<'_>] = &[(0, 0, &[ACCEPT])];
            let epoch = s.epoch;
            let mut told = [0, -2, epoch - 1, epoch + 1]
                .map(|epoch| a.codes(2, &Sharer { epoch, ..s.clone() }.acknowledgement(accepted)))
                .to_vec();
            told.push(s.settle(a, accepted));
            told.join("; ")
        }),
        case("ShareAcknowledge: no session", |a| {
            let s = Sharer::joined(a, "odd.sh.acknone");
            [1, -1]
                .map(|epoch| {
                    a.codes(
                        2,
                        &Sharer { epoch, ..s.clone() }.acknowledgement(&[(0, 0, &[ACCEPT])]),
                    )
                })
                .join("; ")
        }),
        case("ShareAcknowledge: with the last request of a session", |a| {
            let mut s = Sharer::begin(a, "odd.sh.acklast");
            s.epoch = -1;
            let closed = s.settle(a, &[(0, 1, &[ACCEPT])]);
            let open = s.fetch(a, &[]);
            format!("{closed}; {open}")
        }),
        case("ShareAcknowledge: no group, no member, or an empty one", |a| {
            let mut s = Sharer::begin(a, "odd.sh.acknames");
            let request = s.acknowledgement(&[(0, 0, &[ACCEPT])]);
            let group = request.group_id.clone();
            [
                (None, Some(ONE)),
                (Some(()), None),
                (Some(()), Some("")),
                (Some(()), Some("me")),
            ]
            .map(|(named, member)| {
                let request = ShareAcknowledgeRequest {
                    group_id: named.and_then(|()| group.clone()),
                    member_id: member.map(text),
                    ..request.clone()
                };
                a.codes(2, &request)
            })
            .join("; ")
        }),
    ]
}

fn fetches() -> Vec<Case> {
    let changed = |group: &'static str, change: fn(&mut ShareFetchRequest)| {
        move |a: &mut Asker| {
            let mut s = Sharer::begin(a, group);
            assert_eq!(s.settle(a, &[(0, 5, &[RELEASE])]), "0 0");
            let mut request = s.request(&[]);
            change(&mut request);
            fetched(a, &request)
        }
    };
    vec![
        case(
            "ShareFetch: a topic that is not there",
            changed("odd.sh.notopic", |r| {
                r.topics[0].topic_id = Uuid([9; 16]);
                r.forgotten_topics_data = Vec::new();
            }),
        ),
        case(
            "ShareFetch: a partition that is not there",
            changed("odd.sh.nopartition", |r| {
                r.topics[0].partitions[0].partition_index = 7;
            }),
        ),
        case(
            "ShareFetch: a negative partition",
            changed("odd.sh.negpartition", |r| {
                r.topics[0].partitions[0].partition_index = -1;
            }),
        ),
        case(
            "ShareFetch: no record",
            changed("odd.sh.norecord", |r| r.max_records = 0),
        ),
        case(
            "ShareFetch: a negative number of records",
            changed("odd.sh.negrecord", |r| r.max_records = -1),
        ),
        case(
            "ShareFetch: no byte",
            changed("odd.sh.nobyte", |r| r.max_bytes = 0),
        ),
        case(
            "ShareFetch: a batch size of 0",
            changed("odd.sh.nobatch", |r| r.batch_size = 0),
        ),
        case(
            "ShareFetch: an unknown way of acquiring",
            changed("odd.sh.mode", |r| r.share_acquire_mode = 9),
        ),
        case(
            "ShareFetch: 2 records exactly",
            changed("odd.sh.exact", |r| {
                r.max_records = 2;
                r.share_acquire_mode = 1;
            }),
        ),
        case(
            "ShareFetch: 2 records, and whole batches",
            changed("odd.sh.whole", |r| r.max_records = 2),
        ),
        case(
            "ShareFetch: renewal and records",
            changed("odd.sh.renewfetch", |r| r.is_renew_ack = true),
        ),
        case(
            "ShareFetch: a negative wait",
            changed("odd.sh.negwait", |r| r.max_wait_ms = -1),
        ),
        case(
            "ShareFetch: its partition forgotten",
            changed("odd.sh.forgotten", |r| {
                r.forgotten_topics_data = vec![share_fetch::ForgottenTopic {
                    topic_id: r.topics[0].topic_id,
                    partitions: vec![0],
                }];
                r.topics = Vec::new();
            }),
        ),
    ]
}
