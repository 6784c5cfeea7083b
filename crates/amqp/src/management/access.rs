//! The empty lists of parameters.

use axum::http::Method;

use super::call::{Call, changed};
use super::refusal::{Answered, Refusal};
use super::{NODE, list};

/// Answers the paths of these resources.
pub(super) fn dispatch(call: &Call, path: &[&str]) -> Answered {
    match path {
        ["parameters" | "global-parameters"] | ["parameters", _] => {
            call.only_get(|| list::values(call, Vec::new()))
        }
        [kind @ "parameters", _, _, _] | [kind @ "global-parameters", _] => unserved(call, kind),
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
