//! The right of every route. A route without a line here is refused to all but those who may do everything,
//! and a test over the document of the API names it.

use axum::http::Method;
use stafett_access::{Action, Caller, Kind, Resource};
use stafett_broker::Broker;
use stafett_http::query::decoded;
use stafett_http::{Code, Problem, Query};
use stafett_model::Namespace;

use crate::caller::queue_name;

/// Right that a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing: also before a login.
    Nothing,
    /// A login. The handler checks rights on names in bodies and queries.
    Login,
    /// An action on the cluster.
    Cluster(Action),
    /// An action on the thing that the first name of the path names.
    Named(Action, Kind),
    /// An action on the queue of the client that the path names, or to be this client.
    Client(Action),
    /// One of these actions on some live topic. Messages and queries name the topics.
    Live(&'static [Action]),
}

/// Returns the right of a route. `None` if it has no line.
pub(crate) fn needs(method: &Method, template: &str) -> Option<Needs> {
    use Action::{Alter, Create, Delete, Describe, Operate, Read, Write};
    let (reads, puts) = (
        *method == Method::GET || *method == Method::HEAD,
        *method == Method::PUT,
    );
    let rest = match template {
        "/" | "/live/try" => return Some(Needs::Nothing),
        _ if template.starts_with("/health") => return Some(Needs::Nothing),
        _ if template.starts_with("/metrics") => return Some(Needs::Cluster(Describe)),
        _ if template == "/live" || template.starts_with("/live/") => return of_live(template),
        _ => template.strip_prefix("/v1")?,
    };
    let content = if reads { Read } else { Write };
    let operated = if reads { Describe } else { Operate };
    let managed = if reads { Describe } else { Alter };
    Some(match rest {
        "" | "/openapi.json" | "/problems/{code}" | "/login" => Needs::Nothing,
        "/audit"
        | "/logout"
        | "/whoami"
        | "/ws"
        | "/watch"
        | "/messages"
        | "/receive"
        | "/pending"
        | "/bindings/{binding}" => Needs::Login,
        // Their bodies and queries name the things.
        "/bindings" | "/queues" if !reads => Needs::Login,
        "/quotas" | "/limits" => Needs::Cluster(if reads {
            Action::DescribeSettings
        } else {
            Action::AlterSettings
        }),
        // Each thing of an import has the right of its own route.
        "/definitions" => Needs::Cluster(Operate),
        "/policies" | "/policies/{policy}" | "/rules" | "/tokens" | "/tokens/{id}" | "/users"
        | "/users/{user}" => Needs::Cluster(managed),
        "/clients/{client}/call" => Needs::Client(Write),
        "/clients/{client}" if reads => Needs::Client(Describe),
        "/clients/{client}" => Needs::Client(if puts { Create } else { Delete }),
        "/apps" => Needs::Cluster(Describe),
        // An app reads and writes the topics that its definition names: who defines it may do that with all.
        "/apps/{app}" if puts || *method == Method::PATCH => Needs::Cluster(Operate),
        _ if rest.starts_with("/users/{user}/") => Needs::Cluster(managed),
        "/bindings" | "/channels" | "/clients" | "/consumers" | "/connections" | "/events"
        | "/events/stream" | "/exchanges" | "/groups" | "/metrics/history" | "/metrics/names"
        | "/namespaces" | "/nodes" | "/overview" | "/queues" | "/search" | "/topics" | "/transactions" => {
            Needs::Cluster(Describe)
        }
        "/connections/{id}" | "/consumers/{id}" | "/operations" | "/operations/{id}" => {
            Needs::Cluster(operated)
        }
        // A sink reaches stores outside, with the secrets of the broker's environment.
        _ if rest.starts_with("/sinks") => Needs::Cluster(match *method {
            _ if reads => Describe,
            Method::POST => Operate,
            _ => Alter,
        }),
        "/live/publish" => Needs::Live(&[Write]),
        _ if is_of_node(rest) => Needs::Cluster(operated),
        _ => {
            let (action, kind) = of_named(method, rest, content)?;
            Needs::Named(action, kind)
        }
    })
}

fn of_live(template: &str) -> Option<Needs> {
    use Action::{Describe, Read, Write};
    Some(Needs::Live(match template {
        "/live" => &[Read, Write],
        "/live/publish" => &[Write],
        "/live/events" => &[Read],
        "/live/presence" | "/live/subscriptions" => &[Describe],
        _ => return None,
    }))
}

/// Returns true for routes of the node, its parts and its cluster.
fn is_of_node(rest: &str) -> bool {
    let parts = ["/live/", "/node", "/cluster", "/journal"];
    rest == "/live" || parts.iter().any(|part| rest.starts_with(part))
}

/// Returns the right on the thing that the path names.
fn of_named(method: &Method, rest: &str, content: Action) -> Option<(Action, Kind)> {
    use Action::{Alter, AlterSettings, Create, Delete, Describe, Read, Write};
    let (reads, puts) = (content == Read, *method == Method::PUT);
    let definition = match *method {
        _ if reads => Describe,
        Method::PUT => Create,
        Method::PATCH => AlterSettings,
        _ => Delete,
    };
    Some(match rest {
        "/exchanges/{exchange}" => (definition, Kind::Exchange),
        "/exchanges/{exchange}/publish" => (Write, Kind::Exchange),
        "/exchanges/{exchange}/route" => (Describe, Kind::Exchange),
        "/groups/{group}" => (definition, Kind::Group),
        "/groups/{group}/offsets" => (if puts { Read } else { Delete }, Kind::Group),
        "/groups/{group}/members" | "/groups/{group}/reset" => (Read, Kind::Group),
        _ if rest.starts_with("/groups/{group}/members/") => (Read, Kind::Group),
        "/namespaces/{namespace}" => (definition, Kind::Namespace),
        "/queues/{queue}" => (definition, Kind::Queue),
        "/queues/{queue}/bindings" | "/queues/{queue}/consumers" => (Describe, Kind::Queue),
        "/queues/{queue}/messages" => (content, Kind::Queue),
        "/queues/{queue}/pause" | "/queues/{queue}/resume" => (Alter, Kind::Queue),
        "/queues/{queue}/discard"
        | "/queues/{queue}/events"
        | "/queues/{queue}/messages/{id}"
        | "/queues/{queue}/move"
        | "/queues/{queue}/purge"
        | "/queues/{queue}/receive"
        | "/queues/{queue}/settle" => (Read, Kind::Queue),
        "/topics/{topic}" => (definition, Kind::Topic),
        "/topics/{topic}/groups" | "/topics/{topic}/partitions" | "/topics/{topic}/producers" => {
            (Describe, Kind::Topic)
        }
        "/topics/{topic}/copy"
        | "/topics/{topic}/events"
        | "/topics/{topic}/partitions/{partition}/records" => (Read, Kind::Topic),
        "/topics/{topic}/records" => (content, Kind::Topic),
        "/topics/{topic}/truncate" => (Delete, Kind::Topic),
        "/transactions/{id}" => (Describe, Kind::TransactionalId),
        "/apps/{app}" => (definition, Kind::App),
        _ if rest.starts_with("/apps/{app}/state/") => (Read, Kind::App),
        "/apps/{app}/work" => (Write, Kind::App),
        _ if rest.starts_with("/apps/{app}/workers/") && !rest.ends_with("/drain") => (Write, Kind::App),
        _ if rest.starts_with("/apps/{app}/") => (Alter, Kind::App),
        _ => return None,
    })
}

/// Checks the right of a route for a path that is of it.
pub(crate) fn check_path(
    caller: &Caller,
    method: &Method,
    template: &str,
    path: &str,
    query: Option<&str>,
) -> Result<(), Problem> {
    let needs = needs(method, template);
    // A page at the root path is for everyone; live topics there are as below /live.
    if needs == Some(Needs::Nothing) || *method == Method::OPTIONS {
        return Ok(());
    }
    if !caller.is_valid() {
        let why = "log in: by Authorization (Basic or Bearer), or by POST /v1/login";
        return Err(Problem::new(Code::Unauthenticated, why));
    }
    let name = name(template, path);
    let namespace = namespace(query);
    let (action, resource) = match needs {
        Some(Needs::Nothing | Needs::Login) => return Ok(()),
        Some(Needs::Cluster(action)) => (action, Resource::CLUSTER),
        Some(Needs::Named(action, kind)) => (action, named(kind, &namespace, &name)),
        Some(Needs::Client(_)) if is_own_client(caller, &name, &namespace) => return Ok(()),
        Some(Needs::Client(action)) => {
            let queue = queue_name(&name);
            return allow(caller, action, &Resource::queue(&namespace, &queue));
        }
        Some(Needs::Live(actions)) => return check_live(caller, actions),
        None => {
            let why = "no right is declared for this route";
            return Err(Problem::new(Code::Forbidden, why));
        }
    };
    allow(caller, action, &resource)
}

/// Refuses a caller that has none of the rights on any live topic.
fn check_live(caller: &Caller, actions: &[Action]) -> Result<(), Problem> {
    let mut actions_left = actions.iter();
    let some = Kind::LiveTopic.into();
    if actions_left.any(|action| caller.may_any(*action, some)) {
        return Ok(());
    }
    let action = actions.first().copied().unwrap_or(Action::Read);
    allow(caller, action, &Resource::new(Kind::LiveTopic, ""))
}

/// Users are clients of their own names: in the namespace `/`, and in those that they may enter.
fn is_own_client(caller: &Caller, name: &str, namespace: &str) -> bool {
    let may_enter = || caller.may(Action::Read, &Resource::namespace(namespace));
    caller.name() == Some(name) && (namespace == Namespace::DEFAULT || may_enter())
}

/// Checks the right on the queue that a route's topic shows.
pub(crate) fn check_shown_queue(
    broker: &Broker,
    caller: &Caller,
    method: &Method,
    template: &str,
    path: &str,
) -> Result<(), Problem> {
    let Some(Needs::Named(action, Kind::Topic)) = needs(method, template) else {
        return Ok(());
    };
    check_queue_shown_as(broker, caller, action, &name(template, path))
}

/// Checks an action on a thing; on a topic that shows a queue, also on that queue.
pub(super) fn check_thing(
    broker: &Broker,
    caller: &Caller,
    action: Action,
    resource: &Resource<'_>,
) -> Result<(), Problem> {
    let checked = caller.check(action, resource);
    checked.map_err(|_| forbidden(action, resource))?;
    if resource.kind == Kind::Topic && !caller.is_unrestricted() {
        check_queue_shown_as(broker, caller, action, resource.name)?;
    }
    Ok(())
}

fn check_queue_shown_as(
    broker: &Broker,
    caller: &Caller,
    action: Action,
    topic: &str,
) -> Result<(), Problem> {
    let Some(queue) = broker.messaging().queues().shown_as(topic) else {
        return Ok(());
    };
    let resource = Resource::queue(queue.namespace.as_str(), &queue.name);
    let checked = caller.check(action, &resource);
    checked.map_err(|_| forbidden(action, &resource))
}

fn allow(caller: &Caller, action: Action, resource: &Resource<'_>) -> Result<(), Problem> {
    if caller.check(action, resource).is_ok() {
        return Ok(());
    }
    let missing = missing(resource.kind);
    match missing {
        // A hidden thing looks as if it were not there.
        Some(code) if action != Action::Create && !caller.may(Action::Describe, resource) => {
            let why = format!("there is no {resource}, or it may not be seen");
            Err(Problem::new(code, why))
        }
        Some(_) | None => Err(forbidden(action, resource)),
    }
}

/// Returns the refusal of an action.
pub(crate) fn forbidden(action: Action, resource: &Resource<'_>) -> Problem {
    let why = format!(
        "no rule permits to {} {resource}",
        action.word().replace('_', " ")
    );
    let on = format!("{}:{}", resource.kind.word(), resource.name);
    Problem::new(Code::Forbidden, why)
        .with("needs", action.word())
        .with("on", on)
}

fn missing(kind: Kind) -> Option<Code> {
    match kind {
        Kind::Topic => Some(Code::NoSuchTopic),
        Kind::Group => Some(Code::NoSuchGroup),
        Kind::Queue => Some(Code::NoSuchQueue),
        Kind::Exchange => Some(Code::NoSuchExchange),
        Kind::TransactionalId => Some(Code::NoSuchTransaction),
        Kind::Namespace => Some(Code::NoSuchNamespace),
        Kind::App => Some(Code::NoSuchApp),
        Kind::Sink | Kind::LiveTopic | Kind::Cluster | Kind::User | Kind::Token => None,
    }
}

fn named<'a>(kind: Kind, namespace: &'a str, name: &'a str) -> Resource<'a> {
    match kind {
        Kind::Queue => Resource::queue(namespace, name),
        Kind::Exchange => Resource::exchange(namespace, name),
        Kind::Topic
        | Kind::Group
        | Kind::TransactionalId
        | Kind::App
        | Kind::Sink
        | Kind::LiveTopic
        | Kind::Namespace
        | Kind::Cluster
        | Kind::User
        | Kind::Token => Resource::new(kind, name),
    }
}

/// Returns the first name in a path.
fn name(template: &str, path: &str) -> String {
    let mut pairs = template.split('/').zip(path.split('/'));
    let found = pairs.find(|(known, _)| known.starts_with('{'));
    found.and_then(|(_, name)| decoded(name)).unwrap_or_default()
}

fn namespace(query: Option<&str>) -> String {
    let query = Query::lenient(query, &["namespace"]);
    let given = query
        .ok()
        .and_then(|query| query.get("namespace").map(str::to_owned));
    given.unwrap_or_else(|| Namespace::DEFAULT.to_owned())
}

#[cfg(test)]
mod tests;
