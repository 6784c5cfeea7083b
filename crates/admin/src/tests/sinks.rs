//! Sinks that the broker keeps, with a desk that reads one kind of definition.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::StatusCode;
use stafett_http::{Code, Problem};

use super::World;
use crate::node::Commanded;
use crate::sinks::{SinkDesk, SinkPosition, SinkReplay, SinkState, SinkTerms};

/// A desk that knows definitions with `from` and `to`, and has no runner.
#[derive(Debug)]
pub(super) struct TestDesk;

impl SinkDesk for TestDesk {
    fn read(&self, name: &str, definition: &str) -> Result<SinkTerms, String> {
        let value: serde_json::Value = serde_json::from_str(definition).map_err(|why| why.to_string())?;
        let from = value["from"].as_str().ok_or("sink.from is missing")?;
        Ok(SinkTerms {
            tables: Vec::new(),
            from: vec![from.to_owned()],
            is_own: true,
            to: "files",
            topic: None,
            promise: "exactly once".to_owned(),
            app: format!("sink.{name}"),
            dead: format!("{name}.dead"),
            has_positions: value["to"] != "webhook",
        })
    }

    fn states(&self) -> BTreeMap<String, SinkState> {
        BTreeMap::new()
    }

    fn silence(&self) -> Option<Duration> {
        None
    }

    fn positions(&self, _: &str) -> Commanded<Vec<SinkPosition>> {
        Box::pin(async { Err(Problem::new(Code::NoRunner, "there is no runner")) })
    }

    fn replay(&self, _: &str, _: SinkReplay) -> Commanded<Vec<SinkPosition>> {
        self.positions("")
    }

    fn accept_gap(&self, _: &str) -> Commanded<Vec<SinkPosition>> {
        self.positions("")
    }
}

#[tokio::test]
async fn a_sink_is_defined_shown_paused_and_deleted() {
    let world = World::new().await;
    let definition = r#"{"from":"log","to":"files","columns":{"z":{},"a":{}}}"#;
    let (status, refused) = world.send("PUT /v1/sinks/s", definition).await;
    assert_eq!(
        (status, &refused["code"]),
        (StatusCode::NOT_FOUND, &"no_such_topic".into())
    );
    let (status, made) = world.send("PUT /v1/topics/log", r#"{"partitions":1}"#).await;
    assert!(status.is_success(), "{made}");
    let (status, refused) = world.send("PUT /v1/sinks/s", "{}").await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{refused}");
    assert_eq!(refused["detail"], "sink.from is missing");
    let (status, tried) = world.send("PUT /v1/sinks/s?dry_run=true", definition).await;
    assert_eq!((status, &tried["changed"]), (StatusCode::OK, &true.into()));
    assert_eq!(world.send("GET /v1/sinks/s", "").await.0, StatusCode::NOT_FOUND);
    assert_eq!(
        world.send("PUT /v1/sinks/s", definition).await.0,
        StatusCode::CREATED
    );
    let (status, again) = world.send("PUT /v1/sinks/s", definition).await;
    assert_eq!((status, &again["changed"]), (StatusCode::OK, &false.into()));
    // Fields stay in their order: that of columns is theirs in the target.
    let stored = world.broker.sinks().named("s").unwrap();
    assert_eq!(&*stored.definition, definition);
    let (_, shown) = world.send("GET /v1/sinks/s", "").await;
    assert_eq!(
        (&shown["state"], &shown["to"]),
        (&"waiting".into(), &"files".into())
    );
    assert_eq!(world.send("POST /v1/sinks/s/pause", "").await.0, StatusCode::OK);
    let (_, listed) = world.send("GET /v1/sinks", "").await;
    assert_eq!(listed["items"][0]["state"], "paused");
    assert_eq!(world.send("POST /v1/sinks/s/resume", "").await.0, StatusCode::OK);
    let (status, refused) = world.send("GET /v1/sinks/s/positions", "").await;
    assert_eq!(
        (status, &refused["code"]),
        (StatusCode::CONFLICT, &"no_runner".into())
    );
    assert_eq!(world.send("DELETE /v1/sinks/s", "").await.0, StatusCode::OK);
    assert_eq!(
        world.send("DELETE /v1/sinks/s", "").await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn replays_from_no_place_are_refused_before_a_runner_is_asked() {
    let world = World::new().await;
    let (status, made) = world.send("PUT /v1/topics/log", r#"{"partitions":1}"#).await;
    assert!(status.is_success(), "{made}");
    let definition = r#"{"from":"log","to":"files","columns":{"z":{}}}"#;
    assert_eq!(
        world.send("PUT /v1/sinks/s", definition).await.0,
        StatusCode::CREATED
    );
    let (status, refused) = world.send("POST /v1/sinks/s/replay", "{}").await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
    for (wanted, why) in [
        (r#"{"from":"yesterday"}"#, "not earliest, latest or a time"),
        (
            r#"{"positions":[{"topic":"other","partition":0,"next":0}]}"#,
            "no topic of the sink",
        ),
        (
            r#"{"positions":[{"topic":"log","partition":1,"next":0}]}"#,
            "no partition 1",
        ),
        (
            r#"{"positions":[{"topic":"log","partition":0,"next":1}]}"#,
            "behind the end",
        ),
        (
            r#"{"positions":[{"topic":"log","partition":0,"next":0},{"topic":"log","partition":0,"next":0}]}"#,
            "twice",
        ),
    ] {
        let (status, refused) = world.send("POST /v1/sinks/s/replay", wanted).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
        assert!(refused["detail"].as_str().unwrap().contains(why), "{refused}");
    }
    for sound in [
        r#"{"from":"2026-11-22T16:00:00Z"}"#,
        r#"{"positions":[{"topic":"log","partition":0,"next":0}]}"#,
    ] {
        let (status, answer) = world.send("POST /v1/sinks/s/replay", sound).await;
        assert_eq!(
            (status, &answer["code"]),
            (StatusCode::CONFLICT, &"no_runner".into()),
            "{answer}"
        );
    }
    let hook = r#"{"from":"log","to":"webhook"}"#;
    assert_eq!(
        world.send("PUT /v1/sinks/hook", hook).await.0,
        StatusCode::CREATED
    );
    let (status, refused) = world
        .send("POST /v1/sinks/hook/replay", r#"{"from":"earliest"}"#)
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
}
