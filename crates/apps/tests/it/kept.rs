//! Lag, counts, and state that survives a restart.

use std::time::Duration;

use prometheus_client::registry::Registry;
use stafett_apps::machine::Absent;
use stafett_apps::{App, AppError, NewCommit, Table, TaskId};

use crate::world::{Worker, World, definition, delete, put};

const TASK: TaskId = TaskId::whole(0);

fn metrics(world: &World) -> String {
    let mut registry = Registry::default();
    world.apps.register_metrics(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text
}

fn timer(key: &str, due: i64) -> (bytes::Bytes, bytes::Bytes, Option<i64>) {
    (key.to_owned().into(), bytes::Bytes::new(), Some(due))
}

/// Waits until a value of the app is as wanted.
async fn until(app: &App, is_so: impl Fn(&App) -> bool) {
    for _ in 0..1000 {
        if is_so(app) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(is_so(app), "it does not become so");
}

#[tokio::test]
async fn the_lag_of_a_task_is_known_before_a_worker_has_it() {
    let world = World::new();
    world.topic("in", 2).await;
    world
        .send(
            "in",
            &[("a", "1", 1), ("b", "2", 2), ("c", "3", 3), ("d", "4", 4)],
        )
        .await;
    let app = world.declare("app", definition(&["in"])).await;
    let worker = Worker::join(&app, "w").has(&app, 2).await;
    let mut done = 0;
    for partition in [0, 1] {
        let task = TaskId::whole(partition);
        let fetched = worker.fetch(&app, task).await.unwrap();
        if partition == 0 {
            done = fetched.next[0];
            let commit = NewCommit {
                seq: 1,
                next: vec![Some(done)],
                entries: vec![put("a", "1")],
                ..NewCommit::default()
            };
            worker.commit(&app, task, commit).await.unwrap();
        }
    }
    assert!(done > 0 && done < 4);

    let world = world.killed();
    let app = world.apps.named("app").unwrap();
    app.know_positions().await;
    let known = app.known(TASK).unwrap();
    assert_eq!(
        (known.position.seq, known.position.next, known.totals),
        (1, vec![done], None)
    );
    assert_eq!(app.known(TaskId::whole(1)).unwrap().position.next, [0]);
    let text = metrics(&world);
    let lag = format!("apps_lag_records{{app=\"app\"}} {}.0", 4 - done);
    assert!(text.contains(&lag), "{text}");
    // Without a worker, state leaves the memory, and its counts stay.
    let worker = Worker::join(&app, "w").has(&app, 2).await;
    app.leave(worker.session()).unwrap();
    tokio::time::pause();
    until(&app, |app| {
        app.with_machine(|machine| machine.deadline_ms().is_none())
    })
    .await;
    assert_eq!(app.known(TASK).unwrap().totals.unwrap().entries, 1);
}

/// Returns the value of a metric as a whole number, 0 if it is not shown.
fn value(text: &str, name: &str, labels: &str) -> String {
    let line = format!("apps_{name}{{app=\"app\"{labels}}} ");
    let mut found = text.lines().filter_map(|it| it.strip_prefix(&line));
    let value: f64 = found.next().map_or(0.0, |value| value.parse().unwrap());
    format!("{value:.0}")
}

#[tokio::test(start_paused = true)]
async fn metrics_tell_of_a_take_over() {
    let world = World::new();
    world.topic("in", 1).await;
    let app = world.declare("app", definition(&["in"])).await;
    let first = app.wall_ms() - 60_000;
    let records = ["1", "2", "3"].map(|value| ("a", value, first));
    world.send("in", &records).await;
    let zombie = Worker::join(&app, "zombie").has(&app, 1).await;
    zombie.fetch(&app, TASK).await.unwrap();
    let commit = |seq, next| NewCommit {
        seq,
        next: vec![Some(next)],
        entries: vec![put("a", "1")],
        ..NewCommit::default()
    };
    zombie.commit(&app, TASK, commit(1, 1)).await.unwrap();
    zombie.commit(&app, TASK, commit(1, 1)).await.unwrap();
    zombie.commit(&app, TASK, commit(9, 1)).await.unwrap_err();
    let other = Worker::join(&app, "other").has(&app, 1).await;
    other.fetch(&app, TASK).await.unwrap();
    let text = metrics(&world);
    let of = |name: &str, labels: &str| value(&text, name, labels);
    for (name, labels, wanted) in [
        ("takeover_seconds_count", "", "1"),
        ("claims_moved_total", ",reason=\"start\"", "1"),
        ("claims_moved_total", ",reason=\"takeover\"", "1"),
        ("records_delivered_total", "", "5"),
        ("records_again_total", "", "2"),
        ("lag_records", "", "2"),
        // One is the broker's, which notes the death.
        ("commits_total", ",result=\"stored\"", "2"),
        ("commits_total", ",result=\"repeated\"", "1"),
        ("commits_total", ",result=\"refused\"", "1"),
        ("tasks", ",state=\"held\"", "1"),
        ("workers", "", "1"),
        ("state_entries", "", "1"),
    ] {
        assert_eq!(of(name, labels), wanted, "{name}{labels} in {text}");
    }
    // From the last sign of life; the time-out is ten seconds.
    assert_eq!(of("takeover_seconds_sum", ""), "10", "{text}");
    assert_eq!(of("lag_seconds", ""), "70", "{text}");
    assert_ne!(of("state_bytes", ""), "0");
}

#[tokio::test]
async fn timers_and_larger_entries_count_as_state() {
    let world = World::new();
    world.topic("in", 1).await;
    let mut definition = definition(&["in"]);
    definition.state_bytes_max = 1000;
    let app = world.declare("app", definition).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let timers = |count: usize| NewCommit {
        seq: 1,
        timers: (0..count).map(|at| timer(&format!("key {at}"), 5)).collect(),
        ..NewCommit::default()
    };
    let refused = worker.commit(&app, TASK, timers(1000)).await.unwrap_err();
    assert!(
        matches!(refused, AppError::TooLarge { max: 1000, .. }),
        "{refused:?}"
    );
    worker.commit(&app, TASK, timers(50)).await.unwrap();
    let totals = app.known(TASK).unwrap().totals.unwrap();
    assert!(totals.timers == 50 && totals.bytes > 500, "{totals:?}");
    let entry = |seq, bytes: usize| NewCommit {
        seq,
        entries: vec![put("a", &"x".repeat(bytes))],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, entry(2, 10)).await.unwrap();
    let refused = worker.commit(&app, TASK, entry(3, 900)).await.unwrap_err();
    assert!(
        matches!(refused, AppError::TooLarge { .. }),
        "an entry that grows: {refused:?}"
    );
    let cleared = NewCommit {
        timers: timers(50)
            .timers
            .into_iter()
            .map(|(key, name, _)| (key, name, None))
            .collect(),
        ..entry(3, 900)
    };
    worker.commit(&app, TASK, cleared).await.unwrap();
    let text = metrics(&world);
    assert!(text.contains("apps_timers{app=\"app\"} 0"), "{text}");
    let totals = app.known(TASK).unwrap().totals.unwrap();
    assert!(
        text.contains(&format!("apps_state_bytes{{app=\"app\"}} {}.0", totals.bytes)),
        "{text}"
    );

    let again = world.killed().apps.named("app").unwrap();
    Worker::join(&again, "w").has(&again, 1).await;
    assert_eq!(
        again.known(TASK).unwrap().totals,
        Some(totals),
        "it is read back the same"
    );
}

#[tokio::test(start_paused = true)]
async fn expired_entries_leave_the_log_and_the_counts() {
    let world = World::new();
    world.topic("in", 1).await;
    let mut definition = definition(&["in"]);
    definition.worker_timeout_ms = 3_600_000;
    let table = Table {
        ttl_ms: Some(60_000),
        ..Table::default()
    };
    definition.tables.insert("t".into(), table);
    let app = world.declare("app", definition).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let forever = |key: &str| stafett_apps::NewEntry {
        ttl_ms: Some(u64::MAX),
        ..put(key, "x")
    };
    let commit = |seq, entries| NewCommit {
        seq,
        entries,
        ..NewCommit::default()
    };
    let first = (0..100)
        .map(|key| put(&key.to_string(), "x"))
        .chain([forever("stays")]);
    worker
        .commit(&app, TASK, commit(1, first.collect()))
        .await
        .unwrap();
    tokio::time::advance(Duration::from_secs(30)).await;
    worker
        .commit(&app, TASK, commit(2, vec![put("7", "renewed"), delete("8")]))
        .await
        .unwrap();
    let entries = |app: &App| app.known(TASK).unwrap().totals.unwrap().entries;
    assert_eq!(entries(&app), 100);
    until(&app, |app| entries(app) == 2).await;
    assert_eq!(worker.get(&app, TASK, "7").await.as_deref(), Some("renewed"));
    let view = app.claim_view(worker.session(), worker.claim(TASK)).unwrap();
    assert_eq!(view.position.seq, 2, "it is no commit of the worker");
    until(&app, |app| entries(app) == 1).await;
    let expired = "apps_expired_total{app=\"app\"} 99";
    until(&app, |_| metrics(&world).contains(expired)).await;
    worker.commit(&app, TASK, commit(3, Vec::new())).await.unwrap();

    let again = world.killed().apps.named("app").unwrap();
    Worker::join(&again, "w").has(&again, 1).await;
    assert_eq!(entries(&again), 1, "also on disk");
}

#[tokio::test(start_paused = true)]
async fn pins_and_drains_are_there_after_a_restart() {
    let world = World::new();
    world.topic("in", 4).await;
    let app = world.declare("app", definition(&["in"])).await;
    let one = Worker::join(&app, "one").has(&app, 4).await;
    app.mark(|machine, now, effects| machine.pin(TASK, "two", Absent::Wait, now, effects))
        .await
        .unwrap();
    app.mark(|machine, now, effects| machine.drain("one", 1000, now, effects))
        .await
        .unwrap();
    drop(one);

    let world = world.killed();
    let app = world.apps.named("app").unwrap();
    let mut one = Worker::join(&app, "one");
    let two = Worker::join(&app, "two").has(&app, 4).await;
    assert!(two.claims.contains_key(&TASK));
    assert_eq!(
        app.with_machine(stafett_apps::machine::Machine::marks).pins.len(),
        1
    );
    one.beat(&app);
    assert!(
        one.claims.is_empty() && one.told.is_empty(),
        "it is still drained"
    );
    // It leaves, and comes back without the drain, also after a restart.
    app.leave(one.session()).unwrap();
    until(&app, |app| app.stored().marks.drains.is_empty()).await;
    one = Worker::join(&app, "one");
    app.mark(|machine, now, effects| machine.drain("one", 1000, now, effects))
        .await
        .unwrap();
    let world = world.killed();
    let app = world.apps.named("app").unwrap();
    assert_eq!(app.stored().marks.drains.len(), 1);
    // One whose worker does not come back ends.
    until(&app, |app| app.stored().marks.drains.is_empty()).await;
    drop(one);
    Worker::join(&app, "one").has(&app, 3).await;
}
