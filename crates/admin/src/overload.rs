//! Requests that are refused while the listener sheds load, and those that never are: receiving, settling,
//! committing, deleting and purging make room, and an operator needs the routes of the node.

use axum::http::Method;
use stafett_http::overload::Kind;

/// Verbs at the end of a path that make room, and those of members of groups, which go on.
const ROOM: [&str; 13] = [
    "receive",
    "settle",
    "extend",
    "purge",
    "discard",
    "truncate",
    "offsets",
    "reset",
    "members",
    "poll",
    "commit",
    "heartbeat",
    "leave",
];

/// Returns the kind of a request to `/v1`, from the parts of its path behind that.
pub fn kind_of(method: &Method, path: &str) -> Kind {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let resource = parts.next();
    // A name, or nothing.
    let is_deeper = parts.next().is_some();
    let verb = parts.next_back();
    let below = parts.next();
    match (resource, verb) {
        (None | Some("node" | "nodes" | "journal" | "operations" | "openapi.json" | "problems"), _) => {
            Kind::Exempt
        }
        _ if method == Method::DELETE => Kind::Exempt,
        (_, Some(verb)) if ROOM.contains(&verb) => Kind::Exempt,
        // Workers take records, and store their results.
        (Some("apps"), Some(_)) if below == Some("workers") => Kind::Exempt,
        // Records are read. Without a partition they are searched, which is new work.
        (Some("topics"), Some("records")) if below == Some("partitions") && method == Method::GET => {
            Kind::Exempt
        }
        (Some("topics"), Some("events")) => Kind::Exempt,
        _ if method != Method::POST => Kind::New,
        (Some("receive"), None) if !is_deeper => Kind::Exempt,
        (Some("live"), None) | (_, Some("messages" | "records" | "publish")) => Kind::Write,
        (Some("messages"), None) if !is_deeper => Kind::Write,
        _ => Kind::New,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_are_refused_and_what_makes_room_is_not() {
        for (method, path, kind) in [
            (Method::POST, "/messages", Kind::Write),
            (Method::POST, "/queues/a/messages", Kind::Write),
            (Method::POST, "/topics/a/records", Kind::Write),
            (Method::POST, "/topics/a/partitions/0/records", Kind::Write),
            (Method::POST, "/exchanges/a/publish", Kind::Write),
            (Method::POST, "/live/publish", Kind::Write),
            (Method::GET, "/queues/a/messages", Kind::New),
            (Method::GET, "/topics/a/records", Kind::New),
            (Method::GET, "/topics/partitions/records", Kind::New),
            (Method::GET, "/topics/a/events", Kind::Exempt),
            (Method::PUT, "/queues/receive", Kind::New),
            (Method::POST, "/queues/a/receive", Kind::Exempt),
            (Method::POST, "/receive", Kind::Exempt),
            (Method::POST, "/groups/g/members", Kind::Exempt),
            (Method::POST, "/groups/g/members/m/poll", Kind::Exempt),
            (Method::POST, "/groups/g/members/m/commit", Kind::Exempt),
            (Method::POST, "/apps/a/workers/w/fetch", Kind::Exempt),
            (Method::POST, "/apps/a/pause", Kind::New),
            (Method::GET, "/topics/a/partitions/0/records", Kind::Exempt),
            (Method::PUT, "/queues/a", Kind::New),
            (Method::GET, "/queues", Kind::New),
            (Method::PUT, "/queues/settle", Kind::New),
            (Method::POST, "/queues/a/settle", Kind::Exempt),
            (Method::POST, "/queues/settle/settle", Kind::Exempt),
            (Method::POST, "/queues/a/purge", Kind::Exempt),
            (Method::DELETE, "/queues/a", Kind::Exempt),
            (Method::DELETE, "/clients/a", Kind::Exempt),
            (Method::PUT, "/groups/g/offsets", Kind::Exempt),
            (Method::POST, "/topics/a/truncate", Kind::Exempt),
            (Method::GET, "/node", Kind::Exempt),
            (Method::POST, "/node/shutdown", Kind::Exempt),
            (Method::POST, "/journal/scrub", Kind::Exempt),
            (Method::GET, "/operations/7", Kind::Exempt),
            (Method::GET, "", Kind::Exempt),
        ] {
            assert_eq!(kind_of(&method, path), kind, "{method} {path}");
        }
    }
}
