//! Limits of virtual hosts and users, in RabbitMQ's form. A number below 0 is no limit.

use axum::http::Method;
use serde_json::{Map, Value, json};
use stafett_access::{Limit, Limited, Limits};

use super::call::{Call, changed};
use super::list;
use super::refusal::{Answered, Refusal};

const OF_VHOSTS: [(&str, Limit); 2] = [
    ("max-connections", Limit::Connections),
    ("max-queues", Limit::Queues),
];
const OF_USERS: [(&str, Limit); 2] = [
    ("max-connections", Limit::Connections),
    ("max-channels", Limit::Channels),
];

/// Component of the parameters that are limits of virtual hosts, in definitions.
pub(super) const COMPONENT: &str = "vhost-limits";

/// Answers the paths of limits. `None` for others.
pub(super) async fn dispatch(call: &Call, path: &[&str]) -> Option<Answered> {
    Some(match path {
        ["vhost-limits" | "user-limits"] => {
            call.only_get(|| list::values(call, all(call, path.first() == Some(&"user-limits"))))
        }
        ["vhost-limits", vhost] => call.only_get(|| {
            let vhost = call.any_vhost(vhost).ok_or_else(Refusal::no_object)?;
            of(call, &Limited::Namespace(vhost.as_str().into()))
        }),
        ["user-limits", user] => call.only_get(|| {
            known_user(call, user)?;
            of(call, &Limited::User((*user).into()))
        }),
        ["vhost-limits", vhost, name] => match call.any_vhost(vhost) {
            Some(vhost) => set(call, Limited::Namespace(vhost.as_str().into()), name).await,
            None => Err(Refusal::no_object()),
        },
        ["user-limits", user, name] => match known_user(call, user) {
            Ok(()) => set(call, Limited::User((*user).into()), name).await,
            Err(refusal) => Err(refusal),
        },
        _ => return None,
    })
}

fn known_user(call: &Call, name: &str) -> Result<(), Refusal> {
    let user = call.context.broker.access().directory().user(name);
    user.map(drop).ok_or_else(Refusal::no_object)
}

fn names(of: &Limited) -> &'static [(&'static str, Limit)] {
    match of {
        Limited::Namespace(_) => &OF_VHOSTS,
        Limited::User(_) => &OF_USERS,
    }
}

fn value(of: &Limited, limits: &Limits) -> Value {
    let known = names(of).iter();
    let fields = known.filter_map(|(name, limit)| Some(((*name).to_owned(), json!(limits.get(limit)?))));
    Value::Object(fields.collect())
}

/// Returns the limits of a user, as its field `limits`.
pub(super) fn of_user(call: &Call, name: &str) -> Value {
    let of = Limited::User(name.into());
    value(&of, &call.context.broker.access().directory().limits(&of))
}

/// Returns the limits of a virtual host; empty without any.
pub(super) fn of_vhost(call: &Call, vhost: &str) -> Map<String, Value> {
    let of = Limited::Namespace(vhost.into());
    match value(&of, &call.context.broker.access().directory().limits(&of)) {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

fn line((of, limits): &(Limited, Limits)) -> Value {
    let value = value(of, limits);
    match of {
        Limited::Namespace(name) => json!({ "vhost": &**name, "value": value }),
        Limited::User(name) => json!({ "user": &**name, "value": value }),
    }
}

fn all(call: &Call, of_users: bool) -> Vec<Value> {
    let all = call.context.broker.access().directory().all_limits();
    let wanted = all
        .iter()
        .filter(|(of, _)| matches!(of, Limited::User(_)) == of_users);
    // Those that RabbitMQ does not know are left out.
    let lines = wanted.map(line);
    lines.filter(|line| line["value"] != json!({})).collect()
}

fn of(call: &Call, of: &Limited) -> Answered {
    let limits = call.context.broker.access().directory().limits(of);
    let line = (!limits.is_empty()).then(|| line(&(of.clone(), limits)));
    list::values(call, line.into_iter().collect())
}

async fn set(call: &Call, of: Limited, name: &str) -> Answered {
    let unknown = || Refusal::bad_request(format!("Unrecognised limit name: {name}"));
    let number = match *call.allow(&[Method::PUT, Method::DELETE])? {
        Method::PUT => call.fields()?.get("value").cloned().unwrap_or_default(),
        _ => json!(-1),
    };
    let known = names(&of).iter().any(|(known, _)| *known == name);
    known.then_some(()).ok_or_else(unknown)?;
    put(call, of, &Map::from_iter([(name.to_owned(), number)])).await?;
    Ok(changed(false))
}

/// Sets limits by their names.
pub(super) async fn put(call: &Call, of: Limited, fields: &Map<String, Value>) -> Result<(), Refusal> {
    let mut wanted = Vec::with_capacity(fields.len());
    for (name, value) in fields {
        let known = names(&of).iter().find(|(known, _)| known == name);
        let (_, limit) =
            known.ok_or_else(|| Refusal::bad_request(format!("Unrecognised limit name: {name}")))?;
        let text = value.as_str().and_then(|text| text.parse().ok());
        let number = value.as_i64().or(text);
        let number = number.ok_or_else(|| Refusal::bad_request(json!(["not_integer", value])))?;
        wanted.push((*limit, u64::try_from(number).ok()));
    }
    let broker = &call.context.broker;
    let set = broker.set_limits(&call.user.caller, of, &wanted).await;
    set.map_err(|error| super::users::refused(&error))
}
