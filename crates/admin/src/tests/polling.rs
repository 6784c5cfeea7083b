//! Members of groups over HTTP: they join, poll and commit.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use stafett_groups::consumer::{EPOCH_JOIN, Heartbeat, Partitions};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::World;
use super::topics::{append, refused};
use crate::PollingMembers;

type Answering<'a> = Pin<Box<dyn Future<Output = (StatusCode, Value)> + 'a>>;

async fn world() -> World {
    let world = World::new().await;
    world.send("PUT /v1/topics/t", r#"{"partitions": 2}"#).await;
    append(&world, "t", 0, &["a", "b", "c"]).await;
    append(&world, "t", 1, &["d", "e"]).await;
    world
}

async fn join(world: &World) -> String {
    let (status, joined) = world
        .send("POST /v1/groups/g/members", r#"{"topics": ["t"]}"#)
        .await;
    assert_eq!(status, StatusCode::CREATED, "{joined}");
    assert!(joined["poll_within_ms"].as_u64().unwrap() > 0);
    joined["member"].as_str().unwrap().to_owned()
}

async fn poll(world: &World, member: &str, body: &str) -> Value {
    let request = format!("POST /v1/groups/g/members/{member}/poll");
    let (status, polled) = world.send(&request, body).await;
    assert_eq!(status, StatusCode::OK, "{polled}");
    polled
}

fn values(polled: &Value) -> BTreeSet<String> {
    let records = polled["records"].as_array().unwrap().iter();
    records
        .map(|record| record["value"].as_str().unwrap().to_owned())
        .collect()
}

fn partitions(of: &Value) -> Vec<u64> {
    let topics = of.as_array().unwrap().iter();
    topics
        .flat_map(|topic| topic["partitions"].as_array().unwrap())
        .map(|number| number.as_u64().unwrap())
        .collect()
}

async fn committed(world: &World) -> Vec<(u64, u64)> {
    let (_, shown) = world.ask("GET /v1/groups/g").await;
    let commits = shown["commits"].as_array().unwrap().iter();
    commits
        .map(|row| {
            (
                row["partition"].as_u64().unwrap(),
                row["committed"].as_u64().unwrap(),
            )
        })
        .collect()
}

#[tokio::test]
async fn a_poll_gives_records_and_commits_those_of_the_answer_before() {
    let world = world().await;
    let member = join(&world).await;
    let first = poll(&world, &member, r#"{"count": 4}"#).await;
    assert_eq!(first["records"].as_array().unwrap().len(), 4);
    assert_eq!(
        (&first["records"][0]["topic"], &first["number"]),
        (&json!("t"), &json!(1))
    );
    assert_eq!(partitions(&first["assigned"]), [0, 1]);
    assert_eq!(committed(&world).await, []);
    let second = poll(&world, &member, "{}").await;
    assert_eq!(values(&first).union(&values(&second)).count(), 5);
    assert_eq!(
        committed(&world)
            .await
            .iter()
            .map(|(_, offset)| offset)
            .sum::<u64>(),
        4
    );
    let third = poll(&world, &member, "{}").await;
    assert!(values(&third).is_empty());
    assert_eq!(committed(&world).await, [(0, 3), (1, 2)]);
    let (_, shown) = world.ask("GET /v1/groups/g").await;
    assert_eq!(
        (&shown["kind"], &shown["members"][0]["member"]),
        (&json!("assigned"), &json!(member))
    );
}

#[tokio::test]
async fn an_answer_that_was_lost_comes_again_and_is_not_committed() {
    let world = world().await;
    let member = join(&world).await;
    let lost = poll(&world, &member, r#"{"after": 0, "count": 2}"#).await;
    let again = poll(&world, &member, r#"{"after": 0, "count": 2}"#).await;
    assert_eq!(values(&lost).len(), 2);
    assert_eq!(committed(&world).await, []);
    let once_more = poll(&world, &member, r#"{"after": 0, "count": 2}"#).await;
    assert_eq!(values(&once_more), values(&lost));
    assert_eq!((&again["number"], &once_more["number"]), (&json!(1), &json!(1)));
    assert_eq!(committed(&world).await, []);
    let rest = poll(&world, &member, r#"{"after": 1}"#).await;
    assert_eq!(values(&once_more).union(&values(&rest)).count(), 5);
    let odd = format!("POST /v1/groups/g/members/{member}/poll");
    refused(&world, &[(&odd, r#"{"after": 0}"#, 400, "bad_request")]).await;
}

/// Polls until one partition is read, and the next one waits for its turn.
async fn poll_half<'a>(world: &'a World, request: &'a str) -> (Answering<'a>, Vec<OwnedSemaphorePermit>) {
    let mut turns = Vec::new();
    for _ in 0..16 {
        turns.push(world.backend.reads.turn().await.unwrap());
    }
    let mut polled: Answering<'a> = Box::pin(world.send(request, "{}"));
    let is_idle = Duration::from_secs(1);
    assert!(timeout(is_idle, &mut polled).await.is_err());
    let mut behind = Box::pin(world.backend.reads.turn());
    assert!(timeout(is_idle, &mut behind).await.is_err());
    turns.pop();
    assert!(timeout(is_idle, &mut polled).await.is_err());
    turns.push(behind.await.unwrap());
    (polled, turns)
}

#[tokio::test(start_paused = true)]
async fn a_poll_whose_client_hangs_up_halfway_gives_and_commits_nothing() {
    let world = world().await;
    let member = join(&world).await;
    let request = format!("POST /v1/groups/g/members/{member}/poll");
    drop(poll_half(&world, &request).await);
    let came = poll(&world, &member, r#"{"after": 0}"#).await;
    assert_eq!(values(&came).len(), 5);
    assert_eq!(committed(&world).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_poll_answers_with_what_it_read_before_a_partition_failed() {
    let world = world().await;
    let member = join(&world).await;
    let request = format!("POST /v1/groups/g/members/{member}/poll");
    let (polled, turns) = poll_half(&world, &request).await;
    let (status, polled) = polled.await;
    assert_eq!((status, values(&polled).len()), (StatusCode::OK, 3), "{polled}");
    refused(&world, &[(&request, "{}", 503, "overloaded")]).await;
    drop(turns);
    let rest = poll(&world, &member, r#"{"after": 1}"#).await;
    assert_eq!(values(&polled).union(&values(&rest)).count(), 5);
    assert_eq!(committed(&world).await, [(0, 3)]);
}

#[tokio::test]
async fn an_ended_member_is_told_so_before_its_commits() {
    let world = world().await;
    let offsets = r#"{"offsets": [{"topic": "t", "partition": 0, "offset": 1}]}"#;
    for (path, body) in [("poll", "{}"), ("commit", "{}"), ("commit", offsets)] {
        for has_others in [false, true] {
            let member = join(&world).await;
            assert_eq!(values(&poll(&world, &member, "{}").await).len(), 5);
            end(&world, &member).await;
            let other = if has_others {
                Some(join(&world).await)
            } else {
                None
            };
            let request = format!("POST /v1/groups/g/members/{member}/{path}");
            let ended = (&*request, body, 404, "no_such_member");
            refused(&world, &[ended, ended]).await;
            if let Some(other) = other {
                end(&world, &other).await;
            }
        }
    }
}

async fn end(world: &World, member: &str) {
    let (status, ended) = world.ask(&format!("DELETE /v1/groups/g/members/{member}")).await;
    assert_eq!(status, StatusCode::OK, "{ended}");
}

#[tokio::test]
async fn partitions_go_to_a_second_member_and_come_back_from_where_it_has_committed() {
    let world = world().await;
    let one = join(&world).await;
    let took = poll(&world, &one, r#"{"commit": "none"}"#).await;
    assert_eq!(values(&took).len(), 5);
    let other = join(&world).await;
    let revoked = poll(&world, &one, r#"{"commit": "none"}"#).await;
    let (given, kept) = (partitions(&revoked["revoked"]), partitions(&revoked["assigned"]));
    assert_eq!((given.len(), kept.len()), (1, 1));
    let taken = poll(&world, &other, "{}").await;
    assert_eq!(partitions(&taken["assigned"]), given);
    assert!(!values(&taken).is_empty(), "what was not committed comes again");
    let commit = format!("POST /v1/groups/g/members/{other}/commit");
    let (status, done) = world.send(&commit, "{}").await;
    assert_eq!((status, &done["commits"]), (StatusCode::OK, &json!(1)));
    let stranger = json!({"offsets": [{"topic": "t", "partition": kept[0], "offset": 1}]}).to_string();
    refused(&world, &[(&commit, &stranger, 404, "no_such_partition")]).await;
    let own = json!({"offsets": [{"topic": "t", "partition": given[0], "offset": 1}]}).to_string();
    assert_eq!(world.send(&commit, &own).await.0, StatusCode::OK);
    assert_eq!(committed(&world).await, [(given[0], 1)]);
    let (status, _) = world.ask(&format!("DELETE /v1/groups/g/members/{other}")).await;
    assert_eq!(status, StatusCode::OK);
    let back = poll(&world, &one, r#"{"commit": "none"}"#).await;
    assert_eq!(partitions(&back["assigned"]), [0, 1]);
    let ended = format!("POST /v1/groups/g/members/{other}/poll");
    refused(
        &world,
        &[
            (&ended, "{}", 404, "no_such_member"),
            (&ended, "{}", 404, "no_such_member"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_member_from_before_a_restart_makes_room_for_itself() {
    let world = world().await;
    let member = join(&world).await;
    poll(&world, &member, r#"{"count": 2}"#).await;
    let mut backend = world.backend.clone();
    backend.members = PollingMembers::default();
    let restarted = World {
        broker: Arc::clone(&world.broker),
        backend,
    };
    let request = format!("POST /v1/groups/g/members/{member}/poll");
    for _ in 0..2 {
        refused(&restarted, &[(&request, "{}", 404, "no_such_member")]).await;
    }
    let again = join(&restarted).await;
    let polled = poll(&restarted, &again, "{}").await;
    assert_eq!(partitions(&polled["assigned"]), [0, 1]);
    assert_eq!(values(&polled).len(), 5, "nothing was committed");
    // A client of Kafka with an id of its own is left alone.
    let beat = Heartbeat {
        member: "its-own-id".into(),
        epoch: EPOCH_JOIN,
        client_id: "its".into(),
        rebalance_timeout_ms: Some(60_000),
        names: Some(vec!["t".into()]),
        owned: Some(Partitions::default()),
        ..Heartbeat::default()
    };
    let groups = world.broker.groups();
    let joined = groups.consumer_heartbeat("g", beat).unwrap();
    groups.consumer_stored("g", joined).await.unwrap();
    let request = "POST /v1/groups/g/members/its-own-id/poll";
    refused(&restarted, &[(request, "{}", 404, "no_such_member")]).await;
    let (_, shown) = restarted.ask("GET /v1/groups/g").await;
    assert_eq!(shown["members"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn odd_members_are_refused_with_a_code() {
    let world = world().await;
    let join = "POST /v1/groups/g/members";
    refused(
        &world,
        &[
            (join, "", 400, "bad_request"),
            (join, r#"{"topics": []}"#, 400, "bad_request"),
            (join, r#"{"topics": ["none"]}"#, 404, "no_such_topic"),
            (join, r#"{"topics": ["t"], "from": "soon"}"#, 400, "bad_request"),
            (
                "POST /v1/groups/%20/members",
                r#"{"topics": ["t"]}"#,
                400,
                "bad_request",
            ),
            ("POST /v1/groups/g/members/m/poll", "{}", 404, "no_such_member"),
            ("POST /v1/groups/g/members/m/commit", "{}", 404, "no_such_member"),
            (
                "POST /v1/groups/g/members/m/poll",
                r#"{"commit": "never"}"#,
                400,
                "bad_request",
            ),
        ],
    )
    .await;
}
