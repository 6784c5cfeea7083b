//! The right of every route, from the routes themselves.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::Arc;

use stafett_access::{Actions, Change, Directory, Effect, Form, Rule, SUPERUSER, Subject, User, Verifiers};

use super::*;

#[test]
fn each_route_of_the_document_has_a_declared_right() {
    let document: serde_json::Value = serde_json::from_str(&crate::document()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 60);
    for (path, methods) in paths {
        for method in methods
            .as_object()
            .unwrap()
            .keys()
            .filter(|it| *it != "parameters")
        {
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            assert!(
                needs(&method, path).is_some(),
                "{method} {path} needs a line in access/rights.rs"
            );
        }
    }
    assert_eq!(needs(&Method::GET, "/v1/something"), None);
}

/// For each route, rights without which it is refused to a caller that has all others; `|` between those
/// of which one is enough. `login` for routes whose handlers check the names in bodies and queries.
const NEEDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/access/needed.txt");

/// Routes without a description.
const OTHERS: [(&str, &str); 8] = [
    ("GET", "/health"),
    ("GET", "/live"),
    ("GET", "/live/events"),
    ("GET", "/live/presence"),
    ("GET", "/live/subscriptions"),
    ("GET", "/live/try"),
    ("GET", "/metrics"),
    ("POST", "/live/publish"),
];

fn routes() -> Vec<(Method, String)> {
    let endpoints = crate::endpoints();
    let described = endpoints
        .iter()
        .map(|it| (it.method().clone(), it.path().to_owned()));
    let others = OTHERS.map(|(method, path)| (method.parse().unwrap(), path.to_owned()));
    let mut routes: Vec<_> = described.chain(others).collect();
    routes.sort_by(|a, b| (&a.1, a.0.as_str()).cmp(&(&b.1, b.0.as_str())));
    routes
}

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

#[test]
fn each_right_that_a_route_needs_is_checked() {
    let directory = Arc::new(Directory::default());
    let user =
        |name: &str, tags: &[&str]| Change::PutUser(User::new(name, Verifiers::default(), tags).unwrap());
    directory.apply([user("root", &[SUPERUSER]), user("ann", &[])]);
    let here = Ipv4Addr::LOCALHOST.into();
    let (ann, stranger) = (
        Caller::user(&directory, "ann", here),
        Caller::anonymous(&directory, here),
    );
    let routes = routes();
    assert!(routes.len() > 150, "{}", routes.len());
    let is_refused = |caller: &Caller, (method, template): &(Method, String)| {
        let parts = template.split('/');
        let parts = parts.map(|part| if part.starts_with('{') { "x" } else { part });
        let path = parts.collect::<Vec<_>>().join("/");
        check_path(caller, method, template, &path, None).is_err()
    };
    let closed: Vec<bool> = routes.iter().map(|route| is_refused(&ann, route)).collect();
    directory.apply(Kind::ALL.map(|kind| rule(Effect::Allow, kind, Actions::ALL)));
    let mut needed: Vec<Vec<String>> = vec![Vec::new(); routes.len()];
    let mut deny = |kind: Kind, actions: &[Action]| {
        directory.apply([rule(Effect::Deny, kind, Actions::of(actions))]);
        let words = actions.iter().map(|action| format!("{kind:?}.{action:?}"));
        let words = words.collect::<Vec<_>>().join("|");
        for (route, needed) in routes.iter().zip(&mut needed) {
            // Two are named where neither is needed by itself.
            if (actions.len() == 1 || needed.is_empty()) && is_refused(&ann, route) {
                needed.push(words.clone());
            }
        }
        directory.apply([rule(Effect::Deny, kind, Actions::NONE)]);
    };
    for kind in Kind::ALL {
        for action in Action::ALL {
            deny(kind, &[action]);
        }
    }
    for (place, one) in Action::ALL.iter().enumerate() {
        let others = Action::ALL.iter().skip(place + 1);
        others.for_each(|other| deny(Kind::LiveTopic, &[*one, *other]));
    }
    let mut found = String::new();
    for ((route, needed), is_closed) in routes.iter().zip(&needed).zip(closed) {
        assert!(!is_refused(&ann, route), "{route:?} is closed to all");
        let row = match (needed.is_empty(), is_refused(&stranger, route)) {
            (true, false) => "open".to_owned(),
            (true, true) => "login".to_owned(),
            (false, _) => needed.join(" "),
        };
        assert_eq!(is_closed, !needed.is_empty(), "{route:?} without rules");
        let _ = writeln!(found, "{} {}: {row}", route.0, route.1);
    }
    if std::env::var_os("UPDATE_NEEDED").is_some() {
        std::fs::write(NEEDED, &found).unwrap();
    }
    assert_eq!(
        found,
        std::fs::read_to_string(NEEDED).unwrap(),
        "the rights of a route changed, or a new one is not in needed.txt: UPDATE_NEEDED=1 writes it"
    );
}
