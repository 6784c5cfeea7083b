//! The journal's routes, over a journal on disk.

use std::sync::Arc;

use axum::http::StatusCode;
use serde_json::json;
use stafett_journal::{DiskJournal, Metrics, Settings};
use tempfile::TempDir;

use super::World;
use crate::JournalDesk;

async fn world(folder: &TempDir) -> World {
    let mut world = World::new().await;
    let journal = DiskJournal::open(&folder.path().join("data"), Settings::default(), Metrics::new());
    let backups = folder.path().join("backups");
    world.backend.journal = JournalDesk::new(Some(backups), "sync".to_owned());
    world.backend.journal.journal.open(Arc::new(journal.unwrap()));
    world
}

#[tokio::test]
async fn a_journal_is_shown_backed_up_and_scrubbed() {
    let folder = TempDir::new().unwrap();
    let world = world(&folder).await;
    let (status, shown) = world.ask("GET /v1/journal").await;
    assert_eq!((status, &shown["state"]), (StatusCode::OK, &json!("ok")));
    assert_eq!(
        (&shown["epoch"], &shown["durability"]),
        (&json!(1), &json!("sync"))
    );
    assert_eq!(
        (&shown["scrub"], &shown["last_backup"]),
        (&json!(null), &json!(null))
    );
    assert!(shown["space"]["free_bytes"].is_u64() && shown["checkpoint_at"].is_string());
    let (status, backup) = world
        .send("POST /v1/journal/backups", r#"{"target": "2026-11-22"}"#)
        .await;
    assert_eq!(status, StatusCode::OK, "{backup}");
    let path = folder.path().join("backups").join("2026-11-22");
    assert!(path.join("checkpoint.redb").exists());
    assert_eq!(backup["target"], path.display().to_string());
    let (status, again) = world
        .send("POST /v1/journal/backups", r#"{"target": "2026-11-22"}"#)
        .await;
    assert_eq!(
        (status, &again["code"]),
        (StatusCode::CONFLICT, &json!("backup_failed"))
    );
    let (_, backups) = world.ask("GET /v1/journal/backups").await;
    assert_eq!(backups["items"], json!([backup]), "only those that were made");
    let (status, segments) = world.ask("GET /v1/journal/segments").await;
    assert_eq!(status, StatusCode::OK);
    let segment = &segments["items"][0];
    assert_eq!(
        (&segment["kind"], &segment["first_log"]),
        (&json!("arrival"), &json!(null))
    );
    let (_, chosen) = world.ask("GET /v1/journal/segments?prefix=sorted").await;
    assert_eq!(chosen["matched"], 0);
    let (status, scrub) = world.ask("POST /v1/journal/scrub").await;
    assert_eq!((status, &scrub["damaged"]), (StatusCode::OK, &json!(0)));
    let (_, shown) = world.ask("GET /v1/journal").await;
    assert_eq!((&shown["scrub"], &shown["last_backup"]), (&scrub, &backup));
    assert!(shown["sync"]["p99_ms"].is_f64(), "{shown}");
    assert_eq!(shown["append"].as_object().unwrap().len(), 2);
}

#[tokio::test]
async fn odd_targets_are_refused_and_nothing_is_asked_of_a_journal_that_is_not_open() {
    let folder = TempDir::new().unwrap();
    let world = world(&folder).await;
    for (body, status, code) in [
        ("", 400, "bad_request"),
        (r#"{"target": ""}"#, 400, "bad_request"),
        (r#"{"target": "../x"}"#, 400, "bad_request"),
        (r#"{"target": "a\u0000"}"#, 400, "bad_request"),
        (r#"{"target": "/tmp/x"}"#, 403, "forbidden"),
        (r#"{"target": ["x"]}"#, 400, "bad_request"),
        (r#"{"target": "x", "to": "y"}"#, 400, "unknown_field"),
    ] {
        let (found, why) = world.send("POST /v1/journal/backups", body).await;
        assert_eq!((found.as_u16(), &why["code"]), (status, &json!(code)), "{body}");
    }
    let closed = World::new().await;
    for request in [
        "GET /v1/journal",
        "GET /v1/journal/segments",
        "POST /v1/journal/scrub",
    ] {
        let (status, why) = closed.ask(request).await;
        assert_eq!(
            (status.as_u16(), &why["code"]),
            (503, &json!("not_serving")),
            "{request}"
        );
    }
}
