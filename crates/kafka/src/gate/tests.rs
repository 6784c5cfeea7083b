//! Every served API against every kind of right, by requests that are drawn from seeds. What no seed draws,
//! such as each kind of resource of a request about settings, has tests of its own.

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

/// For each API, rights without which some request is refused to a caller that has all others.
const NEEDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/gate/needed.txt");

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

/// Returns the number of requests of a version of the API that are refused.
fn refused_in(bench: &Bench, api: ApiKey, version: i16) -> usize {
    let call = Call {
        api,
        version,
        correlation_id: 0,
    };
    let is_refused = |seed: u64| {
        let body = Decoder::sampling(seed);
        let gate = Gate {
            context: &bench.context,
            call,
            body: &body,
            refused: None,
        };
        let checked = right(gate).expect("it has a line");
        match checked {
            Ok(refused) => refused.is_some(),
            Err(why) => panic!("{} {version} {seed}: {why}", api.name()),
        }
    };
    (0..SEEDS).filter(|seed| is_refused(*seed)).count()
}

/// The same in its latest version.
fn refused(bench: &Bench, api: ApiKey) -> usize {
    refused_in(bench, api, api.versions().max)
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
        for version in api.versions().min..=api.versions().max {
            let is_open = refused_in(&bench, *api, version) == 0;
            assert!(!is_open, "{} {version} is open to all", api.name());
        }
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
        if found.ends_with(':') {
            either(&bench, *api, &mut found);
        }
        found.push('\n');
        directory.apply(KINDS.map(|kind| rule(Effect::Allow, kind, Actions::NONE)));
    }
    assert_eq!(
        found,
        std::fs::read_to_string(NEEDED).unwrap(),
        "the rights of an API changed, or a new one is not in needed.txt"
    );
}

/// Adds two rights, of which either is enough, for an API that needs none by itself.
fn either(bench: &Bench, api: ApiKey, found: &mut String) {
    let directory = bench.context.shared.broker.access().directory();
    for action in Action::ALL {
        for (place, one) in KINDS.into_iter().enumerate() {
            for other in KINDS.into_iter().skip(place + 1) {
                let deny = |actions| [one, other].map(|kind| rule(Effect::Deny, kind, actions));
                directory.apply(deny(Actions::of(&[action])));
                if refused(bench, api) > 0 {
                    let _ = write!(found, " {one:?}.{action:?}|{other:?}.{action:?}");
                }
                directory.apply(deny(Actions::NONE));
            }
        }
    }
}

/// APIs whose handlers check rights, with a walk of their own over a socket.
const BY_HANDLER_NEEDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/by_handler.txt");

#[test]
fn each_api_whose_handler_checks_is_in_the_walk_of_handlers() {
    let rows = std::fs::read_to_string(BY_HANDLER_NEEDED).unwrap();
    let rows: Vec<&str> = rows
        .lines()
        .filter_map(|row| Some(row.split_once(':')?.0))
        .collect();
    let names: Vec<&str> = BY_HANDLER.iter().map(|api| api.name()).collect();
    assert_eq!(rows, names, "tests/it/by_handler.rs needs a request of each");
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
            refused: None,
        };
        assert!(
            before_login.contains(api) || right(gate).is_some(),
            "{} needs a line in gate/",
            api.name()
        );
    }
}
