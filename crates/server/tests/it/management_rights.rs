//! Routes of `/api` that answer without a login, to a user without a tag, and to a user that may enter no
//! virtual host. The requests are made of the table of routes in the documentation.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;

use crate::rights::Closed;

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/management-support.md");
const METHODS: [&str; 4] = ["GET", "PUT", "DELETE", "POST"];
/// Name of a queue, an exchange and a user of others.
const HIDDEN: &str = "hidden-thing";

/// Returns `METHOD /api/PATH` of each row, with every method of the row for each of its paths.
fn requests() -> BTreeSet<String> {
    let text = std::fs::read_to_string(TABLE).unwrap();
    let mut requests = BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').collect();
        let methods = METHODS.into_iter().filter(|method| cells[2].contains(method));
        for method in methods {
            // Every other part is in backquotes; one with an ellipsis goes on from the one before.
            let paths = cells[1].split('`').skip(1).step_by(2);
            for path in paths.filter(|path| !path.starts_with('…')) {
                requests.insert(format!("{method} /api/{}", filled_in(path)));
            }
        }
    }
    requests
}

fn filled_in(path: &str) -> String {
    let parts = path.split('/').map(|part| match part {
        "v" => "%2F",
        "…" => "alarms",
        "NAME" | "SOURCE" | "QUEUE" | "EXCHANGE" | "USER" | "KEY" | "u" => HIDDEN,
        part => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

#[test]
fn every_route_of_the_table_is_closed_to_strangers_and_shows_members_nothing_of_others() {
    let closed = Closed::start();
    closed.put(
        "mia",
        Some("root"),
        r#"{"password": "pw-mia", "tags": ["management"]}"#,
    );
    closed.put(HIDDEN, Some("root"), r#"{"password": "pw-hidden"}"#);
    for path in ["queues", "exchanges"] {
        let made = closed.ask(
            &format!("PUT /api/{path}/%2F/{HIDDEN}"),
            Some("root"),
            r#"{"type": "direct"}"#,
        );
        assert_eq!(made.0, 201, "{made:?}");
    }
    let requests = requests();
    assert!(requests.len() > 100, "{requests:?}");
    let mut open = Vec::new();
    for request in &requests {
        for user in [None, Some("eve")] {
            let (status, _, said) = closed.ask(request, user, "{}");
            if status != 401 {
                open.push(format!("{request} by {user:?}: {status} {said}"));
            }
        }
        let (status, _, said) = closed.ask(request, Some("mia"), "{}");
        let is_seen = status < 300 && (said.contains(HIDDEN) || !request.starts_with("GET"));
        if is_seen || status >= 500 {
            open.push(format!("{request} by a member: {status} {said}"));
        }
    }
    assert!(open.is_empty(), "{}", open.join("\n"));
    for path in ["queues", "exchanges"] {
        let there = closed.ask(&format!("GET /api/{path}/%2F/{HIDDEN}"), Some("root"), "");
        assert_eq!(there.0, 200, "{there:?}");
    }
}
