//! The only user, and the empty lists of policies, parameters and limits.

use axum::http::Method;
use serde_json::{Value, json};
use stafett_model::Namespace;

use super::call::{Call, changed};
use super::refusal::{Answered, Refusal};
use super::{NODE, USER, list};

/// Answers the paths of these resources.
pub(super) fn dispatch(call: &Call, path: &[&str]) -> Answered {
    match path {
        ["users"] => call.only_get(|| list::values(call, vec![user()])),
        ["users", USER] if call.method == Method::GET => list::object(call, user()),
        ["permissions"] | ["users", USER, "permissions"] => call.only_get(|| permissions(call, None)),
        ["vhosts", vhost, "permissions"] => call.only_get(|| permissions(call, Some(vhost))),
        ["permissions", vhost, USER] if call.method == Method::GET => {
            let vhost = call.vhost(vhost).ok_or_else(Refusal::no_object)?;
            list::object(call, permission(&vhost))
        }
        [
            "policies" | "operator-policies" | "parameters" | "global-parameters" | "vhost-limits"
            | "user-limits" | "topic-permissions",
        ]
        | ["users", "without-permissions"]
        | ["users", USER, "topic-permissions"] => call.only_get(|| list::values(call, Vec::new())),
        ["policies" | "operator-policies" | "vhost-limits", vhost] => call.only_get(|| {
            call.vhost(vhost).ok_or_else(Refusal::no_object)?;
            list::values(call, Vec::new())
        }),
        ["parameters", _] => call.only_get(|| list::values(call, Vec::new())),
        [
            kind @ ("policies" | "operator-policies" | "vhost-limits" | "user-limits" | "permissions"
            | "topic-permissions"),
            _,
            _,
        ]
        | [kind @ "parameters", _, _, _]
        | [kind @ ("global-parameters" | "users"), _] => unserved(call, kind),
        ["auth", "attempts", NODE] => call.only_get(|| list::values(call, Vec::new())),
        ["rebalance", "queues"] => {
            call.allow(&[Method::POST])?;
            Ok(changed(false))
        }
        _ => Err(Refusal::no_object()),
    }
}

/// Refuses a setting without effect. None of the kind exists.
fn unserved(call: &Call, kind: &str) -> Answered {
    match *call.allow(&[Method::GET, Method::PUT, Method::DELETE])? {
        Method::PUT => {
            let reason = format!("{kind} cannot be set");
            Err(Refusal::bad_request(reason))
        }
        _ => Err(Refusal::no_object()),
    }
}

fn user() -> Value {
    json!({
        "name": USER,
        "password_hash": "",
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        "tags": ["administrator"],
        "limits": {},
    })
}

fn permissions(call: &Call, vhost: Option<&str>) -> Answered {
    let all = call.vhosts(vhost)?.iter().map(permission).collect();
    list::values(call, all)
}

fn permission(vhost: &Namespace) -> Value {
    json!({ "user": USER, "vhost": vhost.as_str(), "configure": ".*", "write": ".*", "read": ".*" })
}
