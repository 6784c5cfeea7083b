//! `/v1/users/{user}/may`: the decision about an action, which is not performed.

use std::net::IpAddr;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_access::{Action, Caller, Kind, Resource};
use stafett_broker::Broker;
use stafett_http::api::get;
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot};
use stafett_model::Namespace;

use super::routes::no_such_user;
use crate::{Routes, answer};

/// A decision of the rules as they are now.
#[derive(Debug, Serialize, JsonSchema)]
struct Decision {
    may: bool,
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes.route(
        get(
            "/v1/users/{user}/may",
            "Tells whether a user may do something, by its tags and all rules. Nothing is done.",
        )
        .query(&[
            Parameter::text("action", "One action, such as `read`."),
            Parameter::text("on", "Kind of the thing, such as `topic`."),
            Parameter::text("name", "Name of the thing; empty for the cluster."),
            Parameter::text(
                "namespace",
                "Namespace of a queue or an exchange; the default if it is absent.",
            ),
            Parameter::text("host", "Address of the client; this machine if it is absent."),
        ])
        .answers::<Decision>(200)
        .refuses(&[Code::NotServing, Code::NoSuchUser]),
        decide,
    )
}

async fn decide(
    State(broker): State<Slot<Broker>>,
    Path(user): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let directory = broker.access().directory();
    let bad = |field: &'static str, why: &str| Problem::bad_request(why).with("field", field);
    let action = query.wanted("action")?;
    let mut actions = Action::ALL.into_iter();
    let action = actions
        .find(|known| known.word() == action)
        .ok_or_else(|| bad("action", "action is one action of rules"))?;
    let kind = Kind::of_word(query.wanted("on")?);
    let kind = kind.ok_or_else(|| bad("on", "on is one kind of things of rules"))?;
    let host: IpAddr = query
        .get("host")
        .unwrap_or("127.0.0.1")
        .parse()
        .map_err(|_| bad("host", "host is an address"))?;
    directory.user(&user).ok_or_else(|| no_such_user(&user))?;
    let name = query.get("name").unwrap_or_default();
    let namespace = query.get("namespace").unwrap_or(Namespace::DEFAULT);
    let resource = match kind {
        Kind::Queue => Resource::queue(namespace, name),
        Kind::Exchange => Resource::exchange(namespace, name),
        Kind::Cluster => Resource::CLUSTER,
        Kind::Topic
        | Kind::Group
        | Kind::TransactionalId
        | Kind::App
        | Kind::Sink
        | Kind::LiveTopic
        | Kind::Namespace
        | Kind::User
        | Kind::Token => Resource::new(kind, name),
    };
    let may = Caller::user(directory, &user, host).may(action, &resource);
    Ok(answer(StatusCode::OK, &Decision { may }))
}
