//! Acknowledgements in share groups (KIP-932): malformed ones, and of records that the member does not hold.

use stafett_kafka_wire::Uuid;

use super::asker::Asker;
use super::shares::{ACCEPT, RELEASE, RENEW, Settled, Sharer};
use super::{Case, case};

const REJECT: i8 = 3;

pub(super) fn cases() -> Vec<Case> {
    let mut all = acknowledgements();
    all.extend(others());
    all
}

fn acknowledgements() -> Vec<Case> {
    let settled = |group: &'static str, settled: &'static [Settled<'static>]| {
        move |a: &mut Asker| {
            let mut s = Sharer::begin(a, group);
            let told = s.settle(a, settled);
            format!("{told}; {}", s.settle(a, &[(5, 5, &[ACCEPT])]))
        }
    };
    vec![
        case("ShareAcknowledge: no type", settled("odd.sh.a0", &[(0, 0, &[])])),
        case(
            "ShareAcknowledge: backwards",
            settled("odd.sh.a1", &[(2, 1, &[ACCEPT])]),
        ),
        case(
            "ShareAcknowledge: a negative offset",
            settled("odd.sh.a2", &[(-1, 1, &[ACCEPT])]),
        ),
        case(
            "ShareAcknowledge: too few types",
            settled("odd.sh.a3", &[(0, 2, &[ACCEPT, ACCEPT])]),
        ),
        case(
            "ShareAcknowledge: too many types",
            settled("odd.sh.a4", &[(0, 1, &[ACCEPT, ACCEPT, ACCEPT])]),
        ),
        case(
            "ShareAcknowledge: an unknown type",
            settled("odd.sh.a5", &[(0, 0, &[5])]),
        ),
        case(
            "ShareAcknowledge: a negative type",
            settled("odd.sh.a6", &[(0, 0, &[-1])]),
        ),
        case(
            "ShareAcknowledge: overlapping",
            settled("odd.sh.a7", &[(0, 2, &[ACCEPT]), (1, 3, &[ACCEPT])]),
        ),
        case(
            "ShareAcknowledge: in the wrong order",
            settled("odd.sh.a8", &[(3, 3, &[ACCEPT]), (1, 1, &[ACCEPT])]),
        ),
        case(
            "ShareAcknowledge: records behind the last",
            settled("odd.sh.a9", &[(3, 9, &[ACCEPT])]),
        ),
        case(
            "ShareAcknowledge: records that were not acquired",
            settled("odd.sh.a10", &[(100, 100, &[ACCEPT])]),
        ),
        case(
            "ShareAcknowledge: a record twice in a request",
            settled("odd.sh.a11", &[(0, 0, &[ACCEPT]), (0, 0, &[ACCEPT])]),
        ),
        case(
            "ShareAcknowledge: nothing of a partition",
            settled("odd.sh.a12", &[]),
        ),
        case(
            "ShareAcknowledge: each type",
            settled("odd.sh.a13", &[(0, 3, &[0, ACCEPT, RELEASE, REJECT])]),
        ),
        case(
            "ShareAcknowledge: a renewal among others",
            settled("odd.sh.a14", &[(0, 1, &[ACCEPT, RENEW])]),
        ),
        case("ShareAcknowledge: a record twice", |a| {
            let mut s = Sharer::begin(a, "odd.sh.again");
            let told = [ACCEPT, ACCEPT, RELEASE, RENEW].map(|kind| s.settle(a, &[(0, 0, &[kind])]));
            told.join("; ")
        }),
        case("ShareAcknowledge: a record that was released", |a| {
            let mut s = Sharer::begin(a, "odd.sh.back");
            let told = [RELEASE, ACCEPT].map(|kind| s.settle(a, &[(0, 5, &[kind])]));
            told.join("; ")
        }),
        case("ShareAcknowledge: a record that another member holds", |a| {
            let s = Sharer::begin(a, "odd.sh.theirs");
            let mut other = s.other(a);
            [ACCEPT, RELEASE, RENEW]
                .map(|kind| other.settle(a, &[(0, 0, &[kind])]))
                .join("; ")
        }),
        case(
            "ShareAcknowledge: one's own beside another's, in two requests",
            |a| {
                let mut s = Sharer::begin(a, "odd.sh.mixed");
                let mut other = s.other(a);
                let released = s.settle(a, &[(3, 5, &[RELEASE])]);
                let taken = other.fetch(a, &[]);
                let both = other.settle(a, &[(0, 5, &[ACCEPT])]);
                let own = other.settle(a, &[(3, 5, &[ACCEPT])]);
                [released, taken, both, own].join("; ")
            },
        ),
        case("ShareAcknowledge: a renewal without its mark", |a| {
            let mut s = Sharer::begin(a, "odd.sh.unmarked");
            let mut request = s.acknowledgement(&[(0, 0, &[RENEW])]);
            request.is_renew_ack = false;
            a.codes(2, &request)
        }),
        case("ShareAcknowledge: a renewal before there was any", |a| {
            let mut s = Sharer::begin(a, "odd.sh.renewold");
            let mut request = s.acknowledgement(&[(0, 0, &[RENEW])]);
            request.is_renew_ack = false;
            a.codes(1, &request)
        }),
        case("ShareAcknowledge: a topic that is not there", |a| {
            let mut s = Sharer::begin(a, "odd.sh.acktopic");
            let mut request = s.acknowledgement(&[(0, 0, &[ACCEPT])]);
            request.topics[0].topic_id = Uuid([9; 16]);
            a.codes(2, &request)
        }),
        case("ShareAcknowledge: a partition that is not there", |a| {
            let mut s = Sharer::begin(a, "odd.sh.ackpart");
            let mut request = s.acknowledgement(&[(0, 0, &[ACCEPT])]);
            request.topics[0].partitions[0].partition_index = 7;
            a.codes(2, &request)
        }),
        case("ShareAcknowledge: the same partition twice", |a| {
            let mut s = Sharer::begin(a, "odd.sh.parttwice");
            let mut request = s.acknowledgement(&[(0, 0, &[ACCEPT])]);
            let again = request.topics[0].partitions[0].clone();
            request.topics[0].partitions.push(again);
            a.codes(2, &request)
        }),
        case("ShareFetch: acknowledgements of what another holds", |a| {
            let s = Sharer::begin(a, "odd.sh.fetchtheirs");
            s.other(a).fetch(a, &[(0, 0, &[ACCEPT])])
        }),
        case("ShareFetch: malformed acknowledgements", |a| {
            let mut s = Sharer::begin(a, "odd.sh.fetchbad");
            let told: [&[Settled<'_>]; 4] = [
                &[(2, 1, &[ACCEPT])],
                &[(0, 2, &[ACCEPT, ACCEPT])],
                &[(0, 0, &[7])],
                &[(0, 0, &[ACCEPT]), (0, 0, &[ACCEPT])],
            ];
            told.map(|settled| s.fetch(a, settled)).join("; ")
        }),
    ]
}

fn others() -> Vec<Case> {
    vec![
        case("ShareFetch: a topic that was deleted meanwhile", |a| {
            let mut s = Sharer::begin(a, "odd.sh.gone");
            a.delete_topic("odd.sh.gone");
            let settled = s.settle(a, &[(0, 0, &[ACCEPT])]);
            format!("{settled}; {}", s.fetch(a, &[]))
        }),
        case("ShareFetch: two sessions of one member", |a| {
            let mut s = Sharer::begin(a, "odd.sh.twosessions");
            let mut twin = a.another();
            let mut second = Sharer {
                epoch: 0,
                ..s.clone()
            };
            let opened = second.fetch(&mut twin, &[]);
            let old = s.fetch(a, &[]);
            let settled = second.settle(&mut twin, &[(0, 5, &[ACCEPT])]);
            [opened, old, settled].join("; ")
        }),
        case("ShareAcknowledge: by the session of another connection", |a| {
            let mut s = Sharer::begin(a, "odd.sh.connection");
            let mut twin = a.another();
            s.settle(&mut twin, &[(0, 5, &[ACCEPT])])
        }),
        case(
            "ShareAcknowledge: after the connection of the session ended",
            |a| {
                let mut first = a.another();
                let mut s = Sharer::begin(&mut first, "odd.sh.cut");
                drop(first);
                // The end is seen a little later.
                loop {
                    let told = s.settle(a, &[(0, 0, &[2])]);
                    if told != "0 0" && told != "0 121" {
                        return told;
                    }
                }
            },
        ),
    ]
}
