//! Odd names, queries and bodies: each is refused with a code, or taken as it is.

use axum::http::StatusCode;
use axum::http::header::ALLOW;
use serde_json::json;

use super::World;

#[tokio::test]
async fn odd_names_are_names_or_refused() {
    let world = World::new().await;
    for (name, shown) in [
        ("a%2Fb", "a/b"),
        ("%20", " "),
        ("..%2F..", "../.."),
        ("%00", "\0"),
        ("%E2%82%AC", "€"),
        ("a+b", "a+b"),
        ("%25zz", "%zz"),
    ] {
        let path = format!("/v1/namespaces/{name}");
        let made = world.ask(&format!("PUT {path}")).await;
        assert_eq!(
            (made.0, &made.1["name"]),
            (StatusCode::CREATED, &json!(shown)),
            "{name}"
        );
        assert_eq!(world.ask(&format!("GET {path}")).await.1["name"], shown);
        let deleted = world.ask(&format!("DELETE {path}")).await;
        assert_eq!((deleted.0, &deleted.1["name"]), (StatusCode::OK, &json!(shown)));
    }
    let long = "a".repeat(256);
    for (request, status, code) in [
        ("PUT /v1/namespaces/%ff", 400, "bad_request"),
        ("PUT /v1/namespaces/%C3", 400, "bad_request"),
        (&*format!("PUT /v1/namespaces/{long}"), 400, "bad_request"),
        (&*format!("GET /v1/namespaces/{long}"), 404, "no_such_namespace"),
        ("GET /v1/queues/%ff", 400, "bad_request"),
        ("GET /v1/queues/a%2Fmessages", 404, "no_such_queue"),
        ("GET /v1/problems/%00", 404, "no_such_code"),
        ("GET /v1/operations/-1", 404, "no_such_operation"),
        (
            "DELETE /v1/operations/18446744073709551616",
            404,
            "no_such_operation",
        ),
        ("GET /v1/transactions/%F0%9F%92%A9", 404, "no_such_transaction"),
    ] {
        let (found, why) = world.ask(request).await;
        assert_eq!(
            (found.as_u16(), &why["code"]),
            (status, &json!(code)),
            "{request}"
        );
    }
}

#[tokio::test]
async fn odd_queries_and_bodies_are_refused_with_the_field() {
    let world = World::new().await;
    world.queue("/", "q").await;
    for (request, body, code) in [
        ("GET /v1?x=1", "", "unknown_field"),
        ("GET /v1/queues?count=-1", "", "bad_request"),
        (
            "GET /v1/queues?count=99999999999999999999999999",
            "",
            "bad_request",
        ),
        ("GET /v1/queues?count=1&count=2", "", "bad_request"),
        ("GET /v1/queues?count=1%", "", "bad_request"),
        ("GET /v1/queues?%ff=1", "", "bad_request"),
        ("GET /v1/queues?sort=", "", "bad_request"),
        ("GET /v1/queues?ready=maybe", "", "bad_request"),
        ("GET /v1/queues/q/messages?priority=256", "", "bad_request"),
        ("GET /v1/queues?columns=name,name", "", "unknown_field"),
        ("GET /v1/queues?columns=", "", "unknown_field"),
        ("POST /v1/queues/q/purge?wait=61s", "", "bad_request"),
        ("POST /v1/queues/q/purge?wait=1d", "", "bad_request"),
        ("POST /v1/queues/q/purge?force=true", "", "unknown_field"),
        ("DELETE /v1/queues/q?if_empty=1", "", "bad_request"),
        ("POST /v1/queues/q/move", "[]", "bad_request"),
        ("POST /v1/queues/q/move", "null", "bad_request"),
        ("POST /v1/queues/q/move", "\u{feff}{}", "bad_json"),
        ("POST /v1/queues/q/move", r#"{"to": {"queue": "q"}"#, "bad_json"),
        ("POST /v1/queues/q/move", r#"{"to": {"queue": 7}}"#, "bad_request"),
        (
            "POST /v1/queues/q/move",
            r#"{"to": {"queue": "r"}, "count": -1}"#,
            "bad_request",
        ),
        (
            "POST /v1/queues/q/move",
            r#"{"to": {"queue": "r"}, "count": 1e400}"#,
            "bad_json",
        ),
        (
            "POST /v1/queues/q/move",
            r#"{"to": {"queue": "a"}, "to": {"queue": "b"}}"#,
            "bad_request",
        ),
        (
            "POST /v1/queues/q/move",
            r#"{"to": {"queue": "r", "exchange": "x"}}"#,
            "bad_request",
        ),
        (
            "POST /v1/queues/q/move",
            r#"{"to": {"queue": "r", "topic": "x"}}"#,
            "unknown_field",
        ),
        (
            "PUT /v1/node/log-level",
            r#"{"level": "info", "for_s": 0}"#,
            "bad_request",
        ),
        ("POST /v1/node/shutdown", r#"{"drain_s": 601}"#, "bad_request"),
        ("POST /v1/node/shutdown", r#"{"drain": 1}"#, "unknown_field"),
    ] {
        let (status, why) = world.send(request, body).await;
        let found = (status.as_u16(), &why["code"]);
        assert_eq!(found, (400, &json!(code)), "{request} {body}: {why}");
    }
}

#[tokio::test]
async fn a_refusal_names_the_unknown_field_and_those_that_are_known() {
    let world = World::new().await;
    let deep = "[".repeat(10_000);
    let (status, why) = world.send("POST /v1/queues/q/move", &deep).await;
    assert_eq!((status.as_u16(), &why["code"]), (400, &json!("bad_request")));
    let (_, why) = world.ask("GET /v1/queues?cuont=1").await;
    assert_eq!(why["field"], "cuont");
    assert!(why["expected"].as_array().unwrap().contains(&json!("count")));
    let (_, why) = world
        .send("POST /v1/queues/q/move", r#"{"to": {"queue": "r"}, "cuont": 1}"#)
        .await;
    assert_eq!(
        (&why["field"], &why["expected"]),
        (&json!("cuont"), &json!(["to", "count", "ids", "query"]))
    );
}

#[tokio::test]
async fn other_methods_are_refused_with_those_that_are_possible() {
    let world = World::new().await;
    for (request, allow) in [
        ("POST /v1/queues/q", "DELETE,GET,HEAD,PUT,PATCH"),
        ("PUT /v1", "GET,HEAD"),
        ("GET /v1/node/shutdown", "POST"),
        ("OPTIONS /v1/queues", "GET,HEAD,DELETE"),
    ] {
        let response = world.response(request, "").await;
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{request}");
        assert_eq!(response.headers()[ALLOW], allow, "{request}");
        let (_, why) = super::read(response).await;
        assert_eq!(why["code"], "method_not_allowed", "{request}");
    }
    let response = world.response("HEAD /v1/queues", "").await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_namespace_shows_its_contents_before_it_goes() {
    let world = World::new().await;
    world.ask("PUT /v1/namespaces/shop").await;
    world.queue("shop", "orders").await;
    let (status, counts) = world.ask("DELETE /v1/namespaces/shop?dry_run=true").await;
    assert_eq!(
        (status, &counts["queues"], &counts["messages"]),
        (StatusCode::OK, &json!(1), &json!(0))
    );
    assert_eq!(world.ask("GET /v1/namespaces/shop").await.0, StatusCode::OK);
    let (_, deleted) = world.ask("DELETE /v1/namespaces/shop").await;
    assert_eq!(deleted, counts);
    let (_, operations) = world.ask("GET /v1/operations").await;
    assert_eq!(operations["matched"], 1);
    let operation = &operations["items"][0];
    assert_eq!(operation["what"], "delete_namespace");
    assert_eq!(operation["on"], json!({ "namespace": "shop" }));
    assert_eq!(
        (&operation["state"], &operation["result"]),
        (&json!("done"), &counts)
    );
    let id = operation["id"].as_str().unwrap();
    let (_, shown) = world.ask(&format!("DELETE /v1/operations/{id}")).await;
    assert_eq!(&shown, operation, "an end stays as it is");
}
