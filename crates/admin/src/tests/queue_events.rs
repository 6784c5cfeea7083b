//! A queue as it works: its counts and new messages; and masked parts of messages.

use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::HOST;
use serde_json::{Value, json};
use stafett_http::{Access, Draining};
use tower::ServiceExt;

use super::{World, read};

/// Lines of JSON of a stream, one by one.
struct Lines {
    body: BodyDataStream,
    text: String,
}

impl Lines {
    async fn of(world: &World, path: &str, draining: &Draining) -> Self {
        let request = Request::get(path)
            .header(HOST, "localhost")
            .header("accept", "application/x-ndjson")
            .extension(draining.clone());
        let response = crate::router(world.backend.clone(), Access::default())
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        Self {
            body: response.into_body().into_data_stream(),
            text: String::new(),
        }
    }

    /// Returns the next line that has this field.
    async fn next(&mut self, field: &str) -> Value {
        loop {
            while let Some((line, rest)) = self.text.split_once('\n') {
                let line: Value = serde_json::from_str(line).unwrap_or_default();
                self.text = rest.to_owned();
                if let Some(found) = line.get(field) {
                    return found.clone();
                }
            }
            let piece = std::future::poll_fn(|cx| {
                futures_core::Stream::poll_next(std::pin::Pin::new(&mut self.body), cx)
            });
            let piece = piece.await.unwrap().unwrap();
            self.text.push_str(std::str::from_utf8(&piece).unwrap());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn counts_and_new_messages_of_a_queue_are_sent_and_nothing_is_taken() {
    let world = World::new().await;
    world.queue("/", "q").await;
    world.publish("q", b"before", 0, None).await;
    let draining = Draining::default();
    let mut lines = Lines::of(&world, "/v1/queues/q/events", &draining).await;
    let counts = json!({ "ready": 1, "in_flight": 0, "consumers": 0 });
    assert_eq!(lines.next("counts").await, counts);
    let mut of_ann = Lines::of(&world, "/v1/queues/q/events?sender=ann", &draining).await;
    world.publish("q", b"one", 0, None).await;
    world.publish("q", b"two", 0, Some("ann")).await;
    for content in ["one", "two"] {
        let message = lines.next("message").await;
        assert_eq!(
            (&message["content"], &message["state"]),
            (&json!(content), &json!("ready"))
        );
    }
    assert_eq!(of_ann.next("message").await["content"], "two");
    assert_eq!(lines.next("counts").await["ready"], 3);
    world.ask("DELETE /v1/queues/q").await;
    assert_eq!(lines.next("end").await["code"], "no_such_queue");
    world.queue("/", "r").await;
    let mut lines = Lines::of(&world, "/v1/queues/r/events", &draining).await;
    draining.0.cancel();
    assert_eq!(lines.next("end").await["code"], "not_serving");
    let (status, _) = world.ask("GET /v1/queues/absent/events").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

/// `root:long and secret`, and `eve:password of eve`.
const ROOT: (&str, &str) = ("authorization", "Basic cm9vdDpsb25nIGFuZCBzZWNyZXQ=");
const EVE: (&str, &str) = ("authorization", "Basic ZXZlOnBhc3N3b3JkIG9mIGV2ZQ==");

#[tokio::test]
async fn named_fields_and_headers_are_masked_for_those_who_look_and_may_not_operate() {
    let world = World::new().await;
    world.queue("/", "q").await;
    let message = r#"{"to": {"queues": ["q"]}, "content": {"secret": 1, "n": 2}, "headers": {"Secret": "x", "y": "z"}}"#;
    assert_eq!(
        world.send("POST /v1/messages", message).await.0,
        StatusCode::CREATED
    );
    let root = r#"{"password": "long and secret", "tags": ["superuser"]}"#;
    assert!(world.send("PUT /v1/users/root", root).await.0.is_success());
    for (request, body) in [
        ("PUT /v1/users/eve", r#"{"password": "password of eve"}"#),
        (
            "POST /v1/rules",
            r#"{"who": "user:eve", "actions": ["read", "describe"], "on": ["queue"], "prefix": ""}"#,
        ),
    ] {
        let (status, said) = read(world.response_to(request, &[ROOT], body).await).await;
        assert!(status.is_success(), "{request}: {said}");
    }
    let shown = async |request: &str, login: (&str, &str)| {
        let (_, found) = read(world.response_to(request, &[login], "").await).await;
        let message = found.get("messages").map_or(&found, |messages| &messages[0]);
        json!([message["content"], message["headers"]])
    };
    let whole = json!([{ "secret": 1, "n": 2 }, { "Secret": "x", "y": "z" }]);
    let masked = json!([{ "secret": "•••", "n": 2 }, { "Secret": "•••", "y": "z" }]);
    let look = "GET /v1/queues/q/messages";
    assert_eq!(shown(look, ROOT).await, whole);
    assert_eq!(shown(look, EVE).await, masked);
    let (_, found) = read(world.response_to(look, &[ROOT], "").await).await;
    let one = format!("{look}/{}", found["messages"][0]["id"].as_str().unwrap());
    assert_eq!(shown(&one, EVE).await, masked);
    let lease = "POST /v1/queues/q/receive?ack=lease:30s";
    assert_eq!(shown(lease, EVE).await, whole, "receiving shows all");
    assert_eq!(shown(&format!("{look}?state=in_flight"), EVE).await, masked);
}
