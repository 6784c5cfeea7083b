//! The right that each path needs, by the tags and permissions of the user. A path that is not named here is
//! for administrators, so a new one is closed until it is opened.
//!
//! | right | who |
//! |---|---|
//! | member | a user with any tag of the management API |
//! | virtual host | a member that may enter it, or sees everything |
//! | policymaker | `policymaker`, `administrator`, `superuser`, in a virtual host that it may enter |
//! | monitor | `monitoring`, `administrator`, `superuser`: things outside of virtual hosts |
//! | administrator | `administrator`, `superuser` |
//!
//! Rights on queues and exchanges are those of AMQP, as changes and messages go through a session.

use axum::http::Method;
use stafett_access::{Action, Caller, MANAGEMENT_TAGS, POLICYMAKER, Resource};

use super::call::Call;
use super::refusal::Refusal;

#[derive(Debug, PartialEq, Eq)]
enum Right<'a> {
    Member,
    Vhost(&'a str),
    Policymaker(&'a str),
    Monitor,
    Administrator,
}

/// Returns true if the caller may enter a virtual host, or sees everything.
pub(super) fn may_see(caller: &Caller, vhost: &str) -> bool {
    caller.may(Action::Read, &Resource::namespace(vhost)) || caller.may(Action::Describe, &Resource::CLUSTER)
}

/// Refuses a request that the user may not make.
pub(super) fn check(call: &Call) -> Result<(), Refusal> {
    let caller = &call.user.caller;
    if caller.is_unrestricted() {
        return Ok(());
    }
    let user = call.context.broker.access().directory().user(&call.user.user);
    let has_tag = |tag: &str| user.as_ref().is_some_and(|user| user.has_tag(tag));
    let is_member = MANAGEMENT_TAGS.iter().any(|tag| has_tag(tag));
    if !is_member {
        return Err(Refusal::not_authorized());
    }
    let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
    let (is_allowed, why) = match right(&call.method, &path) {
        Right::Member => (true, ""),
        Right::Policymaker(_) if !has_tag(POLICYMAKER) && !is_administrator(caller) => {
            (false, "User not policymaker")
        }
        Right::Vhost(vhost) | Right::Policymaker(vhost) => {
            let vhost = if vhost.is_empty() { "/" } else { vhost };
            (
                may_see(caller, vhost),
                "User not authorised to access virtual host",
            )
        }
        Right::Monitor => (
            caller.may(Action::Describe, &Resource::CLUSTER),
            "User not monitor",
        ),
        Right::Administrator => (is_administrator(caller), "User not administrator"),
    };
    if is_allowed {
        Ok(())
    } else {
        Err(Refusal::not_authorised(why))
    }
}

fn is_administrator(caller: &Caller) -> bool {
    caller.check(Action::Alter, &Resource::CLUSTER).is_ok()
}

fn right<'a>(method: &Method, path: &[&'a str]) -> Right<'a> {
    let reads = *method == Method::GET || *method == Method::OPTIONS;
    match path {
        []
        | [
            "whoami"
            | "version"
            | "cluster-name"
            | "extensions"
            | "auth"
            | "overview"
            | "feature-flags"
            | "deprecated-features",
        ]
        | ["deprecated-features", "used"]
        | ["health" | "healthchecks", ..]
        | ["auth", "hash_password", _] => Right::Member,
        // Lists of things in the virtual hosts that the user may enter.
        ["vhosts" | "queues" | "exchanges" | "bindings" | "policies" | "parameters"]
        | ["queues", "detailed"]
            if reads =>
        {
            Right::Member
        }
        ["vhosts" | "policies", vhost] | ["parameters" | "consumers", vhost, ..] if reads => {
            Right::Vhost(vhost)
        }
        ["policies", vhost, _] => Right::Policymaker(vhost),
        ["queues" | "exchanges" | "bindings", vhost, ..] | ["aliveness-test", vhost] => Right::Vhost(vhost),
        ["nodes" | "connections" | "channels" | "consumers", ..]
        | ["vhosts", _, "connections" | "channels"]
            if reads =>
        {
            Right::Monitor
        }
        _ => Right::Administrator,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_the_rights_of_the_table_and_others_are_for_administrators() {
        let (get, put, delete) = (Method::GET, Method::PUT, Method::DELETE);
        for (method, path, expected) in [
            (&get, &["whoami"][..], Right::Member),
            (&get, &["queues"], Right::Member),
            (&put, &["queues", "/", "q"], Right::Vhost("/")),
            (&get, &["queues", "x", "q", "get"], Right::Vhost("x")),
            (&get, &["vhosts", "x"], Right::Vhost("x")),
            (&put, &["vhosts", "x"], Right::Administrator),
            (&delete, &["vhosts", "x"], Right::Administrator),
            (&get, &["connections"], Right::Monitor),
            (&delete, &["connections", "c"], Right::Administrator),
            (&get, &["users"], Right::Administrator),
            (&put, &["permissions", "/", "u"], Right::Administrator),
            (&get, &["vhosts", "x", "permissions"], Right::Administrator),
            (&get, &["definitions"], Right::Administrator),
            (&get, &["something", "new"], Right::Administrator),
            (&get, &["policies"], Right::Member),
            (&put, &["policies", "x", "p"], Right::Policymaker("x")),
            (&get, &["operator-policies"], Right::Administrator),
            (&put, &["operator-policies", "x", "p"], Right::Administrator),
        ] {
            assert_eq!(right(method, path), expected, "{method} {path:?}");
        }
    }
}
