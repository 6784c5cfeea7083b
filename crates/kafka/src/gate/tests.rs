//! Every served API against every kind of right, by requests that are drawn from seeds.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use stafett_access::{
    Actions, Caller, Change, Effect, Form, Kind, Rule, SUPERUSER, Subject, User, Verifiers,
};

use super::*;
use crate::tests::Bench;

/// Requests of each API.
const SEEDS: u64 = 24;
/// Things that Kafka's APIs are about.
const KINDS: [Kind; 6] = [
    Kind::Topic,
    Kind::Group,
    Kind::TransactionalId,
    Kind::Cluster,
    Kind::User,
    Kind::Token,
];

/// Rights without which some request of the API is refused to a caller that has all others.
const NEEDED: &str = "";

fn rule(effect: Effect, kind: Kind, actions: Actions) -> Change {
    Change::SetRule(Rule {
        subject: Subject::User("ann".into()),
        effect,
        kinds: kind.into(),
        namespace: None,
        form: Form::Prefix,
        name: "".into(),
        host: None,
        actions,
    })
}

/// Returns the number of requests of the API that are refused.
fn refused(bench: &Bench, api: ApiKey) -> usize {
    let call = Call {
        api,
        version: api.versions().max,
        correlation_id: 0,
    };
    let is_refused = |seed: u64| {
        let body = Decoder::sampling(seed);
        let gate = Gate {
            context: &bench.context,
            call,
            body: &body,
        };
        let checked = right(gate).expect("it has a line");
        let checked = checked.unwrap_or_else(|why| panic!("{} {seed}: {why}", api.name()));
        checked.is_some()
    };
    (0..SEEDS).filter(|seed| is_refused(*seed)).count()
}

#[test]
fn each_right_that_an_api_needs_is_checked() {
    let bench = Bench::new();
    let directory = bench.context.shared.broker.access().directory();
    let none = Verifiers::default();
    directory.apply([
        Change::PutUser(User::new("root", none.clone(), &[SUPERUSER]).unwrap()),
        Change::PutUser(User::new("ann", none, &[]).unwrap()),
    ]);
    let ann = Caller::user(directory, "ann", IpAddr::V4(Ipv4Addr::LOCALHOST));
    bench.context.identity.log_in(ann.into());
    let rows = topics::RIGHTS.iter().chain(groups::RIGHTS).chain(cluster::RIGHTS);
    let mut found = String::new();
    for (api, _) in rows {
        assert!(refused(&bench, *api) > 0, "{} is open to all", api.name());
        let all = KINDS.map(|kind| rule(Effect::Allow, kind, Actions::ALL));
        directory.apply(all);
        assert_eq!(refused(&bench, *api), 0, "{} is closed to all", api.name());
        let _ = write!(found, "{}:", api.name());
        for kind in KINDS {
            for action in Action::ALL {
                directory.apply([rule(Effect::Deny, kind, Actions::of(&[action]))]);
                if refused(&bench, *api) > 0 {
                    let _ = write!(found, " {kind:?}.{action:?}");
                }
                directory.apply([rule(Effect::Deny, kind, Actions::NONE)]);
            }
        }
        found.push('\n');
        directory.apply(KINDS.map(|kind| rule(Effect::Allow, kind, Actions::NONE)));
    }
    assert_eq!(
        found, NEEDED,
        "the rights of an API changed, or a new one has none here"
    );
}

/// A request that cannot be read is an error of its API; only an API without rights gives none.
#[test]
fn each_served_api_has_declared_rights() {
    let bench = Bench::new();
    for api in crate::api::served() {
        let call = Call {
            api: *api,
            version: api.versions().max,
            correlation_id: 0,
        };
        let before_login = [
            ApiKey::ApiVersions,
            ApiKey::SaslHandshake,
            ApiKey::SaslAuthenticate,
        ];
        let body = Decoder::new(bytes::Bytes::new(), stafett_kafka_wire::DecodeLimits::default());
        let gate = Gate {
            context: &bench.context,
            call,
            body: &body,
        };
        assert!(
            before_login.contains(api) || right(gate).is_some(),
            "{} needs a line in gate/",
            api.name()
        );
    }
}
