//! Groups and their commits.

use axum::http::StatusCode;
use serde_json::{Value, json};
use stafett_groups::consumer::{Heartbeat, Partitions};

use super::topics::{append, refused};
use super::{ManualWorld, World};

async fn world() -> World {
    let world = World::new().await;
    world.send("PUT /v1/topics/t", r#"{"partitions": 2}"#).await;
    world.ask("PUT /v1/topics/u").await;
    append(&world, "t", 0, &["a", "b", "c", "d"]).await;
    append(&world, "t", 1, &["e", "f"]).await;
    world
}

const OFFSETS: &str = r#"{"offsets": [{"topic": "t", "partition": 0, "offset": 1, "metadata": "here"},
                                      {"topic": "t", "partition": 1, "offset": 2}]}"#;

#[tokio::test]
async fn commits_are_set_listed_and_shown_with_their_lag() {
    let world = world().await;
    let set = world.send("PUT /v1/groups/billing/offsets", OFFSETS).await;
    assert_eq!(set, (StatusCode::OK, json!({"commits": 2})));
    let other = r#"{"offsets": [{"topic": "u", "partition": 0, "offset": 0}]}"#;
    world.send("PUT /v1/groups/audit/offsets", other).await;
    let (_, listed) = world.ask("GET /v1/groups?sort=-lag").await;
    let expected = json!({"name": "billing", "kind": "classic", "state": "empty", "members": 0, "topics": ["t"],
                          "partitions": 2, "lag": 3});
    assert_eq!((&listed["items"][0], &listed["matched"]), (&expected, &json!(2)));
    for (query, count) in [
        ("topic=u", 1),
        ("kind=assigned", 0),
        ("state=empty&q=BILL", 1),
        ("state=stable", 0),
    ] {
        let (_, listed) = world.ask(&format!("GET /v1/groups?{query}")).await;
        assert_eq!(listed["matched"], count, "{query}");
    }
    let (_, of_topic) = world.ask("GET /v1/topics/t/groups").await;
    assert_eq!(
        (&of_topic["items"][0]["name"], &of_topic["matched"]),
        (&json!("billing"), &json!(1))
    );
    let (status, shown) = world.ask("GET /v1/groups/billing").await;
    assert_eq!((status, &shown["lag"]), (StatusCode::OK, &json!(3)));
    let mut commit = shown["commits"][0].clone();
    assert!(commit["at"].take().is_string());
    assert_eq!(
        commit,
        json!({"topic": "t", "partition": 0, "committed": 1, "end": 4, "lag": 3, "metadata": "here", "at": null})
    );
    let (_, none) = world.ask("GET /v1/groups/billing?topic=u").await;
    assert_eq!(
        (&none["commits"], &none["commits_total"]),
        (&json!([]), &json!(0))
    );
}

#[tokio::test]
async fn commits_move_within_the_bounds_of_their_partitions() {
    let world = world().await;
    world.send("PUT /v1/groups/g/offsets", OFFSETS).await;
    let cut = r#"{"before": [{"partition": 0, "offset": 1}]}"#;
    world.send("POST /v1/topics/t/truncate", cut).await;
    let moved = |one: i64, other: i64| {
        let row = |partition, before, after| json!({"topic": "t", "partition": partition, "before": before, "after": after});
        json!({"moved": [row(0, 1, one), row(1, 2, other)]})
    };
    for (to, one, other) in [
        (r#""to": "earliest""#, 1, 0),
        (r#""to": "latest""#, 4, 2),
        (r#""to": "-1""#, 3, 1),
        (r#""to": 3"#, 3, 2),
        (r#""to": "0""#, 1, 0),
        (r#""to": 9007199254740993"#, 4, 2),
        (r#""to": "1970-01-01T00:00:00Z""#, 1, 0),
        (r#""to": "2999-01-01T00:00:00Z""#, 4, 2),
        (r#""by": -1"#, 1, 1),
        (r#""by": 9223372036854775807"#, 4, 2),
        (r#""by": -9223372036854775808"#, 1, 0),
    ] {
        for topic in ["", r#""topic": "t", "#] {
            let body = format!("{{{topic}{to}, \"dry_run\": true}}");
            let (status, plan) = world.send("POST /v1/groups/g/reset", &body).await;
            assert_eq!((status, plan), (StatusCode::OK, moved(one, other)), "{body}");
        }
    }
    let body = r#"{"topic": "t", "partitions": [1], "to": "earliest"}"#;
    let (_, plan) = world.send("POST /v1/groups/g/reset", body).await;
    assert_eq!(
        plan["moved"],
        json!([{"topic": "t", "partition": 1, "before": 2, "after": 0}])
    );
    let (_, shown) = world.ask("GET /v1/groups/g").await;
    let committed = |at: usize| shown["commits"][at]["committed"].clone();
    assert_eq!([committed(0), committed(1)], [json!(1), json!(0)]);
    let body = r#"{"topic": "t", "to": "latest"}"#;
    let (_, plan) = world.send("POST /v1/groups/new/reset", body).await;
    assert_eq!(plan["moved"][0]["before"], Value::Null);
    assert_eq!(world.ask("GET /v1/groups/new").await.1["lag"], 0);
}

#[tokio::test]
async fn commits_are_forgotten_and_groups_deleted() {
    let world = world().await;
    world.send("PUT /v1/groups/g/offsets", OFFSETS).await;
    let other = r#"{"offsets": [{"topic": "u", "partition": 0, "offset": 7}]}"#;
    world.send("PUT /v1/groups/g/offsets", other).await;
    let forgotten = world.ask("DELETE /v1/groups/g/offsets?topic=t").await;
    assert_eq!(forgotten, (StatusCode::OK, json!({"commits": 2})));
    let (_, shown) = world.ask("GET /v1/groups/g").await;
    assert_eq!(
        (&shown["commits_total"], &shown["commits"][0]["lag"]),
        (&json!(1), &json!(0))
    );
    let (_, why) = world.ask("DELETE /v1/groups/g?if_epoch=7").await;
    assert_eq!((&why["code"], &why["epoch"]), (&json!("changed"), &json!(0)));
    let deleted = world.ask("DELETE /v1/groups/g?if_epoch=0").await;
    assert_eq!(deleted, (StatusCode::OK, json!({"name": "g"})));
    assert_eq!(world.ask("GET /v1/groups/g").await.1["code"], "no_such_group");
}

#[tokio::test]
async fn a_group_with_members_keeps_its_commits() {
    let world = world().await;
    world.send("PUT /v1/groups/g/offsets", OFFSETS).await;
    let joined = world.broker.groups().consumer_heartbeat(
        "g",
        Heartbeat {
            member: "m-1".into(),
            epoch: 0,
            client_id: "billing-1".into(),
            host: "/10.0.0.7".into(),
            names: Some(vec!["t".into()]),
            owned: Some(Partitions::default()),
            rebalance_timeout_ms: Some(1000),
            ..Heartbeat::default()
        },
    );
    joined.unwrap().durable().await.unwrap();
    let (_, shown) = world.ask("GET /v1/groups/g").await;
    assert_eq!(
        (&shown["kind"], &shown["assignor"], &shown["members_total"]),
        (&json!("assigned"), &json!("uniform"), &json!(1))
    );
    let expected = json!({"member": "m-1", "client": "billing-1", "host": "10.0.0.7", "instance": null,
                          "assigned": [{"topic": "t", "partitions": [0, 1]}]});
    assert_eq!(shown["members"][0], expected);
    refused(
        &world,
        &[
            ("PUT /v1/groups/g/offsets", OFFSETS, 409, "in_use"),
            ("POST /v1/groups/g/reset", r#"{"to": "earliest"}"#, 409, "in_use"),
            (
                "POST /v1/groups/g/reset",
                r#"{"to": "earliest", "dry_run": true}"#,
                409,
                "in_use",
            ),
            ("DELETE /v1/groups/g/offsets", "", 409, "in_use"),
            ("DELETE /v1/groups/g", "", 409, "in_use"),
        ],
    )
    .await;
    assert_eq!(world.ask("GET /v1/groups/g").await.1["commits_total"], 2);

    let (status, ended) = world.ask("DELETE /v1/groups/g/members/m-1").await;
    assert_eq!((status, ended), (StatusCode::OK, expected));
    assert_eq!(world.ask("GET /v1/groups/g").await.1["members_total"], 0);
    let none = &[
        ("DELETE /v1/groups/g/members/m-1", "", 404, "no_such_member"),
        ("DELETE /v1/groups/none/members/m-1", "", 404, "no_such_group"),
    ];
    refused(&world, none).await;
    let (status, _) = world.ask("DELETE /v1/groups/g").await;
    assert_eq!(status, StatusCode::OK, "its commits are no longer in use");
}

#[tokio::test]
async fn odd_requests_about_groups_are_refused_with_a_code() {
    let world = world().await;
    world.send("PUT /v1/groups/g/offsets", OFFSETS).await;
    let long_name = format!("PUT /v1/groups/{}/offsets", "x".repeat(40_000));
    let metadata = "x".repeat(10_000);
    let long_text = json!({"offsets": [{"topic": "t", "partition": 0, "offset": 1, "metadata": metadata}]});
    let latest = r#"{"to": "latest"}"#;
    refused(
        &world,
        &[
            ("GET /v1/groups/none", "", 404, "no_such_group"),
            ("GET /v1/groups/%ff", "", 400, "bad_request"),
            ("GET /v1/groups?kind=old", "", 400, "bad_request"),
            ("GET /v1/groups?state=dead", "", 400, "bad_request"),
            ("GET /v1/groups?topic=none", "", 404, "no_such_topic"),
            ("GET /v1/topics/none/groups", "", 404, "no_such_topic"),
            ("DELETE /v1/groups/none", "", 404, "no_such_group"),
            ("DELETE /v1/groups/none?if_epoch=1", "", 404, "no_such_group"),
            ("DELETE /v1/groups/none/offsets", "", 404, "no_such_group"),
            ("DELETE /v1/groups/g/offsets?topic=none", "", 404, "no_such_topic"),
            ("POST /v1/groups/none/reset", latest, 404, "no_such_group"),
            ("POST /v1/groups/g/reset?if_epoch=1", latest, 409, "changed"),
            ("PUT /v1/groups/%00/offsets", OFFSETS, 400, "bad_request"),
            ("PUT /v1/groups/%20/offsets", OFFSETS, 400, "bad_request"),
            (&long_name, OFFSETS, 400, "bad_request"),
            (
                "PUT /v1/groups/g/offsets",
                &long_text.to_string(),
                400,
                "bad_request",
            ),
        ],
    )
    .await;
}

/// Commits of an odd topic, partition and offset, as JSON.
const ODD_COMMITS: &[(&str, &str, &str, u16, &str)] = &[
    (r#""none""#, "0", "1", 404, "no_such_topic"),
    (r#""t""#, "2", "1", 404, "no_such_partition"),
    (r#""t""#, "0", "-1", 400, "bad_request"),
    (r#""t""#, "0", "1.5", 400, "bad_request"),
    (r#""t""#, "0", "9007199254740992", 422, "out_of_range"),
    ("7", "0", "1", 400, "bad_request"),
    (r#""t""#, "0", "1}", 400, "bad_json"),
];

const ODD_RESETS: &[(&str, u16, &str)] = &[
    ("", 400, "bad_request"),
    (r#"{"to": "soon"}"#, 400, "bad_request"),
    (r#"{"to": "latest", "by": 1}"#, 400, "bad_request"),
    (r#"{"to": "latest", "partitions": [0]}"#, 400, "bad_request"),
    (
        r#"{"to": "latest", "topic": "t", "partitions": [2]}"#,
        404,
        "no_such_partition",
    ),
    (r#"{"to": "latest", "topic": "none"}"#, 404, "no_such_topic"),
    (r#"{"to": "latest", "shift": 1}"#, 400, "unknown_field"),
    (r#"{"by": 9223372036854775808}"#, 400, "bad_request"),
];

#[tokio::test]
async fn odd_commits_and_resets_are_refused_with_a_code() {
    let world = world().await;
    world.send("PUT /v1/groups/g/offsets", OFFSETS).await;
    let put = "PUT /v1/groups/g/offsets";
    for (topic, partition, offset, status, code) in ODD_COMMITS {
        let fields = format!(r#""topic": {topic}, "partition": {partition}, "offset": {offset}"#);
        let body = format!(r#"{{"offsets": [{{{fields}}}]}}"#);
        refused(&world, &[(put, &body, *status, code)]).await;
    }
    refused(
        &world,
        &[
            (put, r#"{"offsets": {}}"#, 400, "bad_request"),
            (put, r#"{"offsets": [["t", 0, 1, null]]}"#, 400, "bad_request"),
            (put, "", 400, "bad_request"),
        ],
    )
    .await;
    for (body, status, code) in ODD_RESETS {
        refused(&world, &[("POST /v1/groups/g/reset", body, *status, code)]).await;
    }
}

#[tokio::test]
async fn commits_on_a_full_disk_are_refused_and_not_seen() {
    let ManualWorld { world, journal } = ManualWorld::new().await;
    world.send("PUT /v1/topics/t", r#"{"partitions": 2}"#).await;
    world.send("PUT /v1/groups/g/offsets", OFFSETS).await;
    journal.set_used_up(true);
    refused(
        &world,
        &[
            ("POST /v1/groups/g/reset", r#"{"to": "latest"}"#, 507, "disk_full"),
            ("DELETE /v1/groups/g", "", 507, "disk_full"),
            ("DELETE /v1/groups/g/offsets", "", 507, "disk_full"),
        ],
    )
    .await;
    let (_, shown) = world.ask("GET /v1/groups/g").await;
    assert_eq!(shown["commits"][0]["committed"], 1);
}
