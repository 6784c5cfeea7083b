//! `/v1/users/{user}/permissions` and `…/topic-permissions`: rules of a user on queues and exchanges of a
//! namespace, as patterns, and patterns of routing keys.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_access::{Directory, Permission, Rule, Subject, TopicPermission};
use stafett_broker::Broker;
use stafett_http::api::{delete, get, put};
use stafett_http::list::List;
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot, body};
use stafett_model::Namespace;

use super::routes::{no_such_user, of_access};
use crate::refusals;
use crate::{Routes, answer};

const PERMISSIONS: List<PermissionStatus, PermissionStatus> = List {
    name: |one| ("", &one.namespace),
    sorts: &[],
    shown: Clone::clone,
};
const KEYS: List<KeysStatus, KeysStatus> = List {
    name: |one| (&one.namespace, &one.exchange),
    sorts: &[],
    shown: Clone::clone,
};

/// Patterns of a user in a namespace: regular expressions; without anchors they match anywhere in a name.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "WantedPermission")]
#[serde(deny_unknown_fields)]
struct Wanted {
    namespace: String,
    /// Queues and exchanges to create, change and delete. Absent for none.
    #[serde(default)]
    define: Option<String>,
    /// Queues and exchanges to write to.
    #[serde(default)]
    send: Option<String>,
    /// Queues and exchanges to read from.
    #[serde(default)]
    receive: Option<String>,
}

/// Patterns of a user in a namespace.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "UserPermission")]
struct PermissionStatus {
    namespace: String,
    define: Option<String>,
    send: Option<String>,
    receive: Option<String>,
    /// False if rules of other forms count in this namespace too, which `/v1/rules` shows.
    complete: bool,
}

/// Patterns of the routing keys that a user may use with an exchange.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "UserKeys")]
#[serde(deny_unknown_fields)]
struct KeysStatus {
    namespace: String,
    exchange: String,
    /// Keys to publish with.
    publish: String,
    /// Keys to bind with.
    bind: String,
}

pub(super) fn routes(routes: Routes) -> Routes {
    keys(permissions(routes))
}

fn permissions(routes: Routes) -> Routes {
    const PATH: &str = "/v1/users/{user}/permissions";
    let namespace = Parameter::text(
        "namespace",
        "Namespace of the permission; the default if it is absent.",
    );
    routes
        .route(
            get(PATH, "Lists the patterns of a user, by namespace.")
                .lists(&PERMISSIONS)
                .refuses(&[Code::NotServing, Code::NoSuchUser]),
            list,
        )
        .route(
            put(
                PATH,
                "Sets the patterns of a user in a namespace, which it may then enter.",
            )
            .body::<Wanted>()
            .answers::<PermissionStatus>(200)
            .answers::<PermissionStatus>(201)
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::NoSuchUser, Code::NoSuchNamespace, Code::Overloaded]),
            set,
        )
        .route(
            delete(
                PATH,
                "Removes the patterns of a user in a namespace. Other rules stay.",
            )
            .query(&[namespace])
            .answers::<PermissionStatus>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::NoSuchUser, Code::NoSuchPermission, Code::Overloaded]),
            remove,
        )
}

fn keys(routes: Routes) -> Routes {
    const PATH: &str = "/v1/users/{user}/topic-permissions";
    let keys = [
        Parameter::text(
            "namespace",
            "Namespace of the exchange; the default if it is absent.",
        ),
        Parameter::text("exchange", "Name of the exchange."),
    ];
    routes
        .route(
            get(
                PATH,
                "Lists the patterns of the routing keys that a user may use with topic exchanges. Without one for an exchange, all keys are permitted.",
            )
            .lists(&KEYS)
            .refuses(&[Code::NotServing, Code::NoSuchUser]),
            list_keys,
        )
        .route(
            put(PATH, "Sets the patterns of the routing keys of an exchange.")
                .body::<KeysStatus>()
                .answers::<KeysStatus>(200)
                .answers::<KeysStatus>(201)
                .refuses(&refusals::STORAGE)
                .refuses(&[Code::NoSuchUser, Code::NoSuchNamespace, Code::Overloaded]),
            set_keys,
        )
        .route(
            delete(PATH, "Removes the patterns of the routing keys of an exchange.")
                .query(&keys)
                .answers::<KeysStatus>(200)
                .refuses(&refusals::STORAGE)
                .refuses(&[Code::NoSuchUser, Code::NoSuchPermission, Code::Overloaded]),
            remove_keys,
        )
}

/// Returns the rules of a user that permissions are made of.
fn rules_of(directory: &Directory, user: &str) -> Vec<Rule> {
    let subject = Subject::User(user.into());
    directory.with_rules(|rules| rules.of(&subject).filter(Permission::is_made_of).collect())
}

fn all(directory: &Directory, name: &str) -> Result<Vec<PermissionStatus>, Problem> {
    let user = directory.user(name).ok_or_else(|| no_such_user(name))?;
    let text = |pattern: Option<Box<str>>| pattern.map(String::from);
    let shown = |(namespace, permission): (Box<str>, Permission)| PermissionStatus {
        complete: !directory.has_other_rules(&user, &namespace),
        namespace: namespace.into(),
        define: text(permission.define),
        send: text(permission.send),
        receive: text(permission.receive),
    };
    let all = Permission::all(&rules_of(directory, name));
    Ok(all.into_iter().map(shown).collect())
}

async fn list(
    State(broker): State<Slot<Broker>>,
    Path(user): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let all = all(broker.access().directory(), &user)?;
    Ok(answer(StatusCode::OK, &PERMISSIONS.page(&query, all)?))
}

fn known_namespace(broker: &Broker, name: &str) -> Result<(), Problem> {
    let namespace = Namespace::new(name);
    let exchanges = broker.messaging().exchanges();
    if exchanges.has_namespace(&namespace) || exchanges.is_elsewhere(&namespace) {
        return Ok(());
    }
    Err(Problem::new(
        Code::NoSuchNamespace,
        format!("there is no namespace {name:?}"),
    ))
}

/// Replaces a permission. Returns the one that is there then, and whether there was none.
async fn replace(
    broker: &Broker,
    user: &str,
    namespace: &str,
    now: Vec<Rule>,
) -> Result<(Vec<PermissionStatus>, bool), Problem> {
    let access = broker.access();
    access.directory().user(user).ok_or_else(|| no_such_user(user))?;
    let mut before = rules_of(access.directory(), user);
    before.retain(|rule| Permission::namespace_of(rule) == namespace);
    let is_new = before.is_empty();
    let by = super::caller(broker);
    access.replace_rules(&by, before, now).await.map_err(of_access)?;
    let mut all = all(access.directory(), user)?;
    all.retain(|one| one.namespace == namespace);
    Ok((all, is_new))
}

async fn set(
    State(broker): State<Slot<Broker>>,
    Path(user): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Wanted = body::json(request).await?;
    let broker = broker.get()?;
    known_namespace(&broker, &wanted.namespace)?;
    let pattern = |pattern: &Option<String>| pattern.as_deref().map(Into::into);
    let permission = Permission {
        define: pattern(&wanted.define),
        send: pattern(&wanted.send),
        receive: pattern(&wanted.receive),
    };
    let now = permission.rules(&user, &wanted.namespace);
    let (shown, is_new) = replace(&broker, &user, &wanted.namespace, now).await?;
    Ok(answer(made(is_new), &shown.first()))
}

fn made(is_new: bool) -> StatusCode {
    if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    }
}

async fn remove(
    State(broker): State<Slot<Broker>>,
    Path(user): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let namespace = query.get("namespace").unwrap_or(Namespace::DEFAULT);
    let mut before = all(broker.access().directory(), &user)?;
    before.retain(|one| one.namespace == namespace);
    let gone = before.pop().ok_or_else(|| no_permission(&user, namespace))?;
    replace(&broker, &user, namespace, Vec::new()).await?;
    Ok(answer(StatusCode::OK, &gone))
}

fn no_permission(user: &str, on: &str) -> Problem {
    let why = format!("the user {user:?} has no permission of this kind on {on:?}");
    Problem::new(Code::NoSuchPermission, why)
}

fn shown_keys(permission: TopicPermission) -> KeysStatus {
    KeysStatus {
        namespace: permission.namespace.into(),
        exchange: permission.exchange.into(),
        publish: permission.write.into(),
        bind: permission.read.into(),
    }
}

fn keys_of(broker: &Broker, user: &str) -> Result<Vec<TopicPermission>, Problem> {
    let directory = broker.access().directory();
    directory.user(user).ok_or_else(|| no_such_user(user))?;
    let mut all = directory.topic_permissions();
    all.retain(|one| *one.user == *user);
    Ok(all)
}

async fn list_keys(
    State(broker): State<Slot<Broker>>,
    Path(user): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let all = keys_of(&*broker.get()?, &user)?;
    let all = all.into_iter().map(shown_keys).collect();
    Ok(answer(StatusCode::OK, &KEYS.page(&query, all)?))
}

async fn set_keys(
    State(broker): State<Slot<Broker>>,
    Path(user): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: KeysStatus = body::json(request).await?;
    let broker = broker.get()?;
    known_namespace(&broker, &wanted.namespace)?;
    let permission = TopicPermission {
        user: user.into(),
        namespace: wanted.namespace.as_str().into(),
        exchange: wanted.exchange.as_str().into(),
        write: wanted.publish.as_str().into(),
        read: wanted.bind.as_str().into(),
    };
    let by = super::caller(&broker);
    let put = broker.access().put_topic_permission(&by, permission).await;
    Ok(answer(made(put.map_err(of_access)?), &wanted))
}

async fn remove_keys(
    State(broker): State<Slot<Broker>>,
    Path(user): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let namespace = query.get("namespace").unwrap_or(Namespace::DEFAULT);
    let exchange = query.wanted("exchange")?;
    let is_meant = |one: &TopicPermission| {
        *one.user == *user && *one.namespace == *namespace && *one.exchange == *exchange
    };
    let found = keys_of(&broker, &user)?.into_iter().find(is_meant);
    let gone = found.ok_or_else(|| no_permission(&user, exchange))?;
    let by = super::caller(&broker);
    let deleted = broker.access().delete_topic_permissions(&by, is_meant).await;
    deleted.map_err(of_access)?;
    Ok(answer(StatusCode::OK, &shown_keys(gone)))
}
