//! Users and permissions: rules of the broker in RabbitMQ's form.
//!
//! The patterns configure, write and read are `define`, `send` and `receive` of a [`Permission`].
//!
//! While no user is an administrator, `guest` is listed as one, with permissions in all virtual hosts.

use axum::http::Method;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use stafett_access::{ADMINISTRATOR, Hash, Permission, Rule, SaltedHash, Subject, User, Verifiers};
use stafett_broker::{AccessControl, AccessError};
use stafett_model::Namespace;

use super::call::{Call, Fields, changed, ok};
use super::refusal::{Answered, Refusal};
use super::{USER, limits, list};

/// Answers the paths of users and permissions. `None` for others.
pub(super) async fn dispatch(call: &Call, path: &[&str]) -> Option<Answered> {
    Some(match path {
        ["users"] => call.only_get(|| list::values(call, users(call))),
        ["users", "without-permissions"] => call.only_get(|| list::values(call, without_permissions(call))),
        ["users", "bulk-delete"] if call.method == Method::POST => bulk_delete(call).await,
        ["users", name] => user(call, name).await,
        ["users", name, "permissions"] => call.only_get(|| of_user(call, name)),
        ["permissions"] => call.only_get(|| list::values(call, permissions(call, None))),
        ["permissions", vhost] | ["vhosts", vhost, "permissions"] => call.only_get(|| {
            let vhost = call.any_vhost(vhost).ok_or_else(Refusal::no_object)?;
            list::values(call, permissions(call, Some(&vhost)))
        }),
        ["permissions", vhost, name] => permission(call, vhost, name).await,
        ["auth", "hash_password", password] => call.only_get(|| Ok(hashed(password))),
        _ => return None,
    })
}

fn access(call: &Call) -> &AccessControl {
    call.context.broker.access()
}

/// Returns the tags of the user that asks.
pub(super) fn tags(call: &Call) -> Value {
    if call.user.caller.name().is_none() {
        return json!([ADMINISTRATOR]);
    }
    let user = access(call).directory().user(&call.user.user);
    user.map_or_else(|| json!([]), |user| user.tags().collect())
}

/// Returns true if `guest` stands for a caller without a name.
fn has_guest(call: &Call) -> bool {
    access(call).is_open() && access(call).directory().user(USER).is_none()
}

pub(super) fn users(call: &Call) -> Vec<Value> {
    let guest = has_guest(call).then(guest);
    let users = access(call).directory().users();
    guest
        .into_iter()
        .chain(users.iter().map(|user| shown(call, user)))
        .collect()
}

fn guest() -> Value {
    json!({
        "name": USER,
        "password_hash": "",
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        "tags": [ADMINISTRATOR],
        "limits": {},
    })
}

/// Shows a user without its verifiers, which are secrets.
fn shown(call: &Call, user: &User) -> Value {
    json!({
        "name": &*user.name,
        "password_hash": "",
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        "tags": user.tags().collect::<Vec<_>>(),
        "limits": limits::of_user(call, &user.name),
    })
}

fn without_permissions(call: &Call) -> Vec<Value> {
    let users = access(call).directory().users();
    let without = users.iter().filter(|user| rules(call, &user.name).is_empty());
    without.map(|user| shown(call, user)).collect()
}

async fn user(call: &Call, name: &str) -> Answered {
    let known = access(call).directory().user(name);
    match *call.allow(&[Method::GET, Method::PUT, Method::DELETE])? {
        Method::PUT => put_user(call, name, &call.fields()?).await.map(changed),
        Method::DELETE => {
            let deleted = access(call).delete_user(&call.user.caller, name).await;
            deleted.map_err(|error| refused(&error))?;
            Ok(changed(false))
        }
        _ if name == USER && has_guest(call) => list::object(call, guest()),
        _ => list::object(
            call,
            shown(call, known.as_deref().ok_or_else(Refusal::no_object)?),
        ),
    }
}

async fn bulk_delete(call: &Call) -> Answered {
    let fields = call.fields()?;
    let Some(Value::Array(names)) = fields.get("users") else {
        return Err(Refusal::bad_request("key_missing: users"));
    };
    for name in names.iter().filter_map(Value::as_str) {
        match access(call).delete_user(&call.user.caller, name).await {
            Ok(()) | Err(AccessError::NoSuchUser(_)) => {}
            Err(error) => return Err(refused(&error)),
        }
    }
    Ok(changed(false))
}

/// Makes or changes a user. Returns true if it is new.
pub(super) async fn put_user(call: &Call, name: &str, fields: &Fields) -> Result<bool, Refusal> {
    let tags: Vec<String> = match fields.get("tags") {
        Some(Value::String(text)) => text.split(',').map(|tag| tag.trim().to_owned()).collect(),
        Some(Value::Array(tags)) => tags.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => return Err(Refusal::bad_request("[{key_missing,tags}]")),
    };
    let tags: Vec<&str> = tags
        .iter()
        .map(String::as_str)
        .filter(|tag| !tag.is_empty())
        .collect();
    let (password, hash) = (fields.text("password")?, fields.text("password_hash")?);
    let verifiers = if !password.is_empty() {
        let derived = access(call).verifiers(password).await;
        derived.map_err(|error| refused(&error))?
    } else if hash.is_empty() {
        Verifiers::default()
    } else {
        let kind = match &*fields.text("hashing_algorithm")? {
            "" | "rabbit_password_hashing_sha256" => Hash::Sha256,
            "rabbit_password_hashing_sha512" => Hash::Sha512,
            other => {
                let reason = format!("the hashing algorithm '{other}' is not supported");
                return Err(Refusal::bad_request(reason));
            }
        };
        let bytes = STANDARD.decode(&hash).ok();
        let salted = bytes.and_then(|bytes| SaltedHash::new(kind, &bytes));
        let salted = salted.ok_or_else(|| Refusal::bad_request("the password hash is malformed"))?;
        Verifiers {
            salted: Some(salted),
            ..Verifiers::default()
        }
    };
    let user = User::new(name, verifiers, &tags).map_err(|error| Refusal::bad_request(error.to_string()))?;
    let put = access(call).put_user(&call.user.caller, user).await;
    put.map_err(|error| refused(&error))
}

pub(super) fn refused(error: &AccessError) -> Refusal {
    match error {
        AccessError::NoSuchUser(_) | AccessError::NoSuchToken(_) => Refusal::no_object(),
        AccessError::NotStored(_) | AccessError::Busy => Refusal::unavailable(error.to_string()),
        AccessError::Name(_)
        | AccessError::Rule(_)
        | AccessError::Quota(_)
        | AccessError::Pattern(_)
        | AccessError::LastAdministrator(_)
        | AccessError::TooMany
        | AccessError::Password
        | AccessError::Description => Refusal::bad_request(error.to_string()),
    }
}

/// Answers with a hash for definitions.
fn hashed(password: &str) -> Response {
    let salt = uuid::Uuid::new_v4()
        .as_bytes()
        .first_chunk()
        .copied()
        .unwrap_or_default();
    let hash = SaltedHash::of_password(Hash::Sha256, password.as_bytes(), salt);
    ok(&json!({ "ok": STANDARD.encode(&hash.bytes) }))
}

/// Returns the rules of a user that permissions are made of.
fn rules(call: &Call, user: &str) -> Vec<Rule> {
    let subject = Subject::User(user.into());
    let directory = access(call).directory();
    directory.with_rules(|rules| rules.of(&subject).filter(Permission::is_made_of).collect())
}

/// Lists permissions, of one virtual host or all.
pub(super) fn permissions(call: &Call, vhost: Option<&Namespace>) -> Vec<Value> {
    let mut all = Vec::new();
    if has_guest(call) {
        let vhosts = call.vhosts(vhost.map(Namespace::as_str)).unwrap_or_default();
        let everything = Permission {
            define: Some(".*".into()),
            send: Some(".*".into()),
            receive: Some(".*".into()),
        };
        all.extend(vhosts.iter().map(|vhost| line(USER, vhost.as_str(), &everything)));
    }
    for user in access(call).directory().users() {
        for (name, permission) in Permission::all(&rules(call, &user.name)) {
            if vhost.is_none_or(|vhost| vhost.as_str() == &*name) {
                let mut line = line(&user.name, &name, &permission);
                if access(call).directory().has_other_rules(&user, &name)
                    && let Some(fields) = line.as_object_mut()
                {
                    fields.insert("complete".to_owned(), false.into());
                }
                all.push(line);
            }
        }
    }
    all
}

fn line(user: &str, vhost: &str, permission: &Permission) -> Value {
    json!({
        "user": user,
        "vhost": vhost,
        "configure": permission.define.as_deref().unwrap_or_default(),
        "write": permission.send.as_deref().unwrap_or_default(),
        "read": permission.receive.as_deref().unwrap_or_default(),
    })
}

fn of_user(call: &Call, name: &str) -> Answered {
    let is_known = access(call).directory().user(name).is_some() || (name == USER && has_guest(call));
    if !is_known {
        return Err(Refusal::no_object());
    }
    let mut all = permissions(call, None);
    all.retain(|line| line.get("user").and_then(Value::as_str) == Some(name));
    list::values(call, all)
}

async fn permission(call: &Call, vhost: &str, name: &str) -> Answered {
    let method = call.allow(&[Method::GET, Method::PUT, Method::DELETE])?.clone();
    let vhost = call.any_vhost(vhost).ok_or_else(Refusal::no_object)?;
    if method == Method::PUT {
        return put_permission(call, &vhost, name, &call.fields()?)
            .await
            .map(changed);
    }
    let mut all = permissions(call, Some(&vhost));
    let place = all
        .iter()
        .position(|line| line.get("user").and_then(Value::as_str) == Some(name));
    let line = all.swap_remove(place.ok_or_else(Refusal::no_object)?);
    if method == Method::GET {
        return list::object(call, line);
    }
    let before = of_vhost(call, name, &vhost);
    let replaced = access(call)
        .replace_rules(&call.user.caller, before, Vec::new())
        .await;
    replaced.map_err(|error| refused(&error))?;
    Ok(changed(false))
}

/// Returns the rules of a user's permission in a virtual host.
fn of_vhost(call: &Call, user: &str, vhost: &Namespace) -> Vec<Rule> {
    let mut rules = rules(call, user);
    rules.retain(|rule| Permission::namespace_of(rule) == vhost.as_str());
    rules
}

/// Sets the patterns of a user in a virtual host. Returns true if it had none.
pub(super) async fn put_permission(
    call: &Call,
    vhost: &Namespace,
    name: &str,
    fields: &Fields,
) -> Result<bool, Refusal> {
    fields.require(&["configure", "write", "read"])?;
    if access(call).directory().user(name).is_none() {
        return Err(Refusal::bad_request("no_such_user"));
    }
    let pattern = |field| fields.text(field).map(|pattern| Some(pattern.into()));
    let permission = Permission {
        define: pattern("configure")?,
        send: pattern("write")?,
        receive: pattern("read")?,
    };
    let now = permission.rules(name, vhost.as_str());
    let before = of_vhost(call, name, vhost);
    let is_new = before.is_empty();
    let replaced = access(call).replace_rules(&call.user.caller, before, now).await;
    replaced.map_err(|error| refused(&error))?;
    Ok(is_new)
}

/// Exports users or permissions for definitions.
pub(super) fn exported(call: &Call) -> (Vec<Value>, Vec<Value>) {
    let is_real = |line: &Value, field: &str| !has_guest(call) || line.get(field) != Some(&json!(USER));
    let (mut users, mut permissions) = (users(call), permissions(call, None));
    users.retain(|line| is_real(line, "name"));
    permissions.retain(|line| is_real(line, "user"));
    (users, permissions)
}
