//! Topic permissions: patterns of routing keys of topic exchanges.

use axum::http::Method;
use serde_json::{Value, json};
use stafett_access::TopicPermission;
use stafett_model::Namespace;

use super::call::{Call, Fields, changed};
use super::list;
use super::refusal::{Answered, Refusal};
use super::users::refused;

/// Answers the paths of topic permissions. `None` for others.
pub(super) async fn dispatch(call: &Call, path: &[&str]) -> Option<Answered> {
    Some(match path {
        ["topic-permissions"] => call.only_get(|| list::values(call, all(call, |_| true))),
        ["topic-permissions", vhost] | ["vhosts", vhost, "topic-permissions"] => call.only_get(|| {
            let vhost = call.any_vhost(vhost).ok_or_else(Refusal::no_object)?;
            list::values(call, all(call, |one| *one.namespace == *vhost.as_str()))
        }),
        ["users", user, "topic-permissions"] => call.only_get(|| {
            known_user(call, user)?;
            list::values(call, all(call, |one| *one.user == **user))
        }),
        ["topic-permissions", vhost, user] => of_user(call, vhost, user).await,
        _ => return None,
    })
}

fn known_user(call: &Call, name: &str) -> Result<(), Refusal> {
    let user = call.context.broker.access().directory().user(name);
    user.map(drop).ok_or_else(Refusal::no_object)
}

/// Returns permissions as lines.
pub(super) fn all(call: &Call, wanted: impl Fn(&TopicPermission) -> bool) -> Vec<Value> {
    let all = call.context.broker.access().directory().topic_permissions();
    let wanted = all.iter().filter(|one| wanted(one));
    wanted.map(line).collect()
}

fn line(permission: &TopicPermission) -> Value {
    json!({
        "user": &*permission.user,
        "vhost": &*permission.namespace,
        "exchange": &*permission.exchange,
        "write": &*permission.write,
        "read": &*permission.read,
    })
}

async fn of_user(call: &Call, vhost: &str, user: &str) -> Answered {
    let method = call.allow(&[Method::GET, Method::PUT, Method::DELETE])?.clone();
    let vhost = call.any_vhost(vhost).ok_or_else(Refusal::no_object)?;
    if method == Method::PUT {
        return put(call, &vhost, user, &call.fields()?).await.map(changed);
    }
    known_user(call, user)?;
    let is_wanted = |one: &TopicPermission| *one.user == *user && *one.namespace == *vhost.as_str();
    if method == Method::GET {
        let all = all(call, is_wanted);
        return if all.is_empty() {
            Err(Refusal::no_object())
        } else {
            list::values(call, all)
        };
    }
    let access = call.context.broker.access();
    let deleted = access
        .delete_topic_permissions(&call.user.caller, is_wanted)
        .await;
    match deleted.map_err(|error| refused(&error))? {
        0 => Err(Refusal::no_object()),
        _ => Ok(changed(false)),
    }
}

/// Makes or replaces a permission. Returns true if it is new.
pub(super) async fn put(
    call: &Call,
    vhost: &Namespace,
    user: &str,
    fields: &Fields,
) -> Result<bool, Refusal> {
    for field in ["exchange", "write", "read"] {
        if fields.get(field).is_none() {
            return Err(Refusal::bad_request(json!(["key_missing", field])));
        }
    }
    let permission = TopicPermission {
        user: user.into(),
        namespace: vhost.as_str().into(),
        exchange: fields.text("exchange")?.into(),
        write: fields.text("write")?.into(),
        read: fields.text("read")?.into(),
    };
    let access = call.context.broker.access();
    let put = access.put_topic_permission(&call.user.caller, permission).await;
    put.map_err(|error| refused(&error))
}
