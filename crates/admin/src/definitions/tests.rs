//! Imports that other requests overtake.

use std::net::{IpAddr, Ipv4Addr};

use axum::body;
use axum::http::Method;
use serde_json::json;

use super::import::Import;
use super::outcome::Imported;
use super::*;
use crate::caller::{Caller as Client, OnlyIfAbsent};
use crate::tests::World;
use crate::ws::routed::request_of;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3));

fn routes_of(world: &World) -> Routes {
    let router = routes_without_guards(world);
    Routes {
        router,
        budget: None,
        draining: Draining::default(),
    }
}

fn routes_without_guards(world: &World) -> Router {
    let routes = crate::routes().into_router();
    crate::guard(world.backend.broker.clone(), routes).with_state(world.backend.clone())
}

/// Reads a document for a caller without a login.
async fn begun(world: &World, document: &Value) -> Import {
    let asked = Asked {
        broker: Arc::clone(&world.broker),
        routes: routes_of(world),
        by: world.broker.access().anonymous(PEER),
        namespace: None,
        kinds: KINDS.iter().collect(),
    };
    let request = Request::new(body::Body::from(document.to_string()));
    let document = stafett_http::body::read(request, DOCUMENT).await.unwrap();
    Import::of(document, asked, false, false).unwrap()
}

async fn ended(import: Import) -> Value {
    let imported: Imported = import.run(&Progress::default()).await;
    json!(imported)
}

/// Returns a document with an administrator, and more behind it.
async fn with_administrator(name: &str) -> Value {
    let source = World::new().await;
    let user = json!({ "tags": ["superuser"], "password": "long and secret" }).to_string();
    source.send(&format!("PUT /v1/users/{name}"), &user).await;
    let users = source.broker.access().directory().users();
    let verifiers = access::verifiers::VerifiersShown::of(&users[0].verifiers);
    json!({
        "form": FORM,
        "queues": [{ "name": "q" }],
        "users": [{ "name": name, "tags": ["superuser"], "verifiers": verifiers }, { "name": "plain" }],
        "rules": [{ "who": "user:plain", "actions": ["read"], "on": ["topic"], "prefix": "l" }],
    })
}

#[tokio::test]
async fn an_import_without_a_login_has_no_rights_behind_the_administrator_of_another() {
    let world = World::new().await;
    let import = begun(&world, &with_administrator("other").await).await;
    let root = r#"{"tags": ["superuser"], "password": "long and secret"}"#;
    assert_eq!(world.send("PUT /v1/users/root", root).await.0, 201);
    let imported = ended(import).await;
    assert_eq!(imported["made"], 0, "{imported}");
    assert_eq!(imported["refused"], 4, "{imported}");
    assert_eq!(world.broker.access().directory().user_count(), 1);
}

#[tokio::test]
async fn an_import_without_a_login_goes_on_behind_its_own_administrator() {
    let world = World::new().await;
    let import = begun(&world, &with_administrator("root").await).await;
    let imported = ended(import).await;
    assert_eq!(imported["made"], 4, "{imported}");
    assert!(!world.broker.access().directory().is_open());
}

#[tokio::test]
async fn a_thing_that_was_made_meanwhile_is_not_replaced() {
    let world = World::new().await;
    let paths = [
        (
            "/v1/namespaces/n",
            r#"{"description": "a"}"#,
            r#"{"description": "b"}"#,
        ),
        ("/v1/queues/q", "{}", "{}"),
        (
            "/v1/policies/p",
            r#"{"pattern": "a", "settings": {"ttl_ms": 1}}"#,
            r#"{"pattern": "b", "settings": {"ttl_ms": 1}}"#,
        ),
        (
            "/v1/limits",
            r#"{"namespace": "n", "queues": 1}"#,
            r#"{"namespace": "n", "queues": 2}"#,
        ),
        (
            "/v1/quotas",
            r#"{"user": "*", "requests_per_second": 100000.0}"#,
            r#"{"user": "*", "requests_per_second": 200000.0}"#,
        ),
        ("/v1/users/ann", r#"{"tags": ["a"]}"#, r#"{"tags": ["b"]}"#),
        (
            "/v1/sinks/s",
            r#"{"from": "log", "to": "files"}"#,
            r#"{"from": "log", "to": "files", "columns": {}}"#,
        ),
    ];
    world.send("PUT /v1/topics/log", "{}").await;
    let routes = routes_of(&world);
    for (path, first, second) in paths {
        let by = world.broker.access().anonymous(PEER);
        let ask = async |body: &str| {
            let mut request = request_of(Method::PUT, path, &Client(None), body.to_owned()).unwrap();
            request.extensions_mut().insert(OnlyIfAbsent);
            routes.clone().ask(request, Arc::clone(&by)).await
        };
        let made = ask(first).await;
        assert!(made.is_ok(), "{path}: {made:?}");
        let refused = ask(second).await.unwrap_err();
        let refused: Value = serde_json::from_slice(&refused).unwrap();
        assert_eq!(refused["code"], "exists_differently", "{path}: {refused}");
    }
}

#[tokio::test]
async fn a_stopped_import_counts_the_things_that_it_did_not_reach() {
    let world = World::new().await;
    let import = begun(&world, &with_administrator("root").await).await;
    let progress = Progress::stopping();
    let imported = json!(import.run(&progress).await);
    assert_eq!(imported["stopped"], true, "{imported}");
    assert_eq!(imported["not_reached"], 4, "{imported}");
}
