//! Timers that fail, and very many that are due at once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stafett_apps::{
    App, AppError, Definition, Failed, FetchLimits, Fetched, NewCommit, NewTimerFailure, TaskId,
};

use crate::world::{ALL, Worker, World, definition, put};

const TASK: TaskId = TaskId::whole(0);

fn timer(key: &str, due: Option<i64>) -> (Bytes, Bytes, Option<i64>) {
    (key.to_owned().into(), Bytes::from_static(b"n"), due)
}

fn due(fetched: &Fetched) -> Vec<&str> {
    let keys = fetched.due.iter().map(|timer| &timer.key[..]);
    keys.map(|key| std::str::from_utf8(key).unwrap()).collect()
}

async fn fail(worker: &Worker, app: &Arc<App>, seq: u64, key: &str, retry: bool) -> Result<Failed, AppError> {
    let failure = NewTimerFailure {
        seq,
        key: key.to_owned().into(),
        name: Bytes::from_static(b"n"),
        error: format!("bad, try {seq}").into(),
        retry,
    };
    app.fail_timer(worker.session(), worker.claim(TASK), failure)
        .await
}

/// An app with timers of `a` and `b`, which the first record has brought due, and a record behind it.
async fn world(dead_letter: Option<&str>) -> (World, Arc<App>, Worker) {
    let world = World::new();
    world.topic("in", 1).await;
    world.topic("dead", 1).await;
    world.send("in", &[("a", "1", 1000), ("a", "2", 1001)]).await;
    let mut definition = definition(&["in"]);
    definition.attempts_max = 2;
    definition.time.idle_ms = u64::MAX;
    definition.dead_letter = dead_letter.map(Into::into);
    let app = world.declare("app", definition).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    worker.fetch(&app, TASK).await.unwrap();
    let set = NewCommit {
        seq: 1,
        next: vec![Some(1)],
        timers: vec![timer("a", Some(500)), timer("b", Some(600))],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, set).await.unwrap();
    (world, app, worker)
}

/// Waits until something comes.
async fn comes(worker: &Worker, app: &App) -> Fetched {
    let wait = tokio::time::sleep(Duration::from_secs(30));
    let fetched = app.fetch(worker.session(), worker.claim(TASK), &[], ALL, wait);
    fetched.await.unwrap()
}

#[tokio::test]
async fn a_failing_timer_is_tried_again_and_ends_in_the_dead_letters() {
    let (world, app, worker) = world(Some("dead")).await;
    let fetched = worker.fetch(&app, TASK).await.unwrap();
    assert_eq!((due(&fetched), fetched.records.len()), (vec!["a", "b"], 1));
    let refused = fail(&worker, &app, 2, "c", true).await;
    assert!(
        matches!(refused, Err(AppError::Bad { field: "timer", .. })),
        "{refused:?}"
    );
    let failed = fail(&worker, &app, 2, "a", true).await.unwrap();
    assert_eq!((failed.attempts, failed.dead_letter.clone()), (1, None));
    let again = fail(&worker, &app, 2, "a", true).await.unwrap();
    assert_eq!(
        again,
        Failed {
            repeated: true,
            ..failed
        },
        "a lost answer counts once"
    );
    let waits = worker.fetch(&app, TASK).await.unwrap();
    assert!(
        waits.due.is_empty() && waits.records.is_empty(),
        "nothing passes it: {waits:?}"
    );

    // The broker is killed: the attempt is known to the next worker.
    let world = world.killed();
    let app = world.apps.named("app").unwrap();
    let worker = Worker::join(&app, "x").has(&app, 1).await;
    let fetched = comes(&worker, &app).await;
    assert_eq!((due(&fetched), fetched.records.len()), (vec!["a", "b"], 1));
    let failed = fail(&worker, &app, 3, "a", true).await.unwrap();
    assert_eq!(
        (failed.attempts, failed.dead_letter.as_deref()),
        (2, Some("dead"))
    );
    let again = fail(&worker, &app, 3, "a", true).await.unwrap();
    assert_eq!(
        (again.repeated, again.dead_letter.as_deref()),
        (true, Some("dead"))
    );
    let headers = world.headers("dead", 0).await;
    let of = |name: &str| {
        let found = headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let told =
        ["app", "task", "timer", "due", "attempts", "error"].map(|name| of(&format!("stafett-{name}")));
    assert_eq!(told, ["app", "0", "n", "500", "2", "bad, try 3"]);
    let fetched = worker.fetch(&app, TASK).await.unwrap();
    assert_eq!((due(&fetched), fetched.records.len()), (vec!["b"], 1));
    // Without another attempt it goes there at once.
    let failed = fail(&worker, &app, 4, "b", false).await.unwrap();
    assert_eq!((failed.attempts, failed.dead_letter.is_some()), (1, true));
    assert!(worker.fetch(&app, TASK).await.unwrap().due.is_empty());
    assert!(app.failure(TASK).is_none());
}

#[tokio::test]
async fn without_a_topic_for_it_the_task_stops_at_the_timer_until_there_is_one() {
    let (world, app, worker) = world(None).await;
    worker.fetch(&app, TASK).await.unwrap();
    fail(&worker, &app, 2, "a", false).await.unwrap();
    let stopped = worker.fetch(&app, TASK).await;
    assert!(
        matches!(
            stopped,
            Err(AppError::TimerFailed {
                due: 500,
                attempts: 1,
                ..
            })
        ),
        "{stopped:?}"
    );
    let (_, shown) = app.failure(TASK).unwrap();
    assert_eq!(shown.timer.unwrap().key, "a");
    let to = |it: &mut Definition| it.dead_letter = Some("dead".into());
    world.apps.change("app", to).await.unwrap();
    assert_eq!(due(&worker.fetch(&app, TASK).await.unwrap()), ["a", "b"]);
    let failed = fail(&worker, &app, 3, "a", true).await.unwrap();
    assert_eq!(failed.dead_letter.as_deref(), Some("dead"));
}

#[tokio::test]
async fn a_timer_that_is_set_anew_has_all_its_attempts() {
    let (_world, app, worker) = world(Some("dead")).await;
    worker.fetch(&app, TASK).await.unwrap();
    fail(&worker, &app, 2, "a", true).await.unwrap();
    let anew = NewCommit {
        seq: 3,
        timers: vec![timer("a", Some(501))],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, anew).await.unwrap();
    assert!(app.failure(TASK).is_none());
    assert_eq!(due(&worker.fetch(&app, TASK).await.unwrap()), ["a", "b"]);
    assert_eq!(fail(&worker, &app, 4, "a", true).await.unwrap().attempts, 1);
}

#[tokio::test]
async fn attempts_at_a_timer_go_with_its_key_into_a_slice() {
    let (world, app, worker) = world(Some("dead")).await;
    worker.fetch(&app, TASK).await.unwrap();
    fail(&worker, &app, 2, "a", true).await.unwrap();
    let cut = world.apps.split("app", TASK, 2).await.unwrap();
    let mut found = 0;
    for task in cut.tasks {
        app.position(task).await.unwrap();
        if let Some((_, failure)) = app.failure(task) {
            assert!(task.slice().has(Some(b"a")) && failure.attempts == 1);
            found += 1;
        }
    }
    assert_eq!(found, 1);
}

/// A million timers at one moment: they come a thousand at a time, and one more is refused.
#[tokio::test]
async fn a_million_timers_at_one_moment_come_in_pieces() {
    const EACH: usize = 200_000;
    const ALL_OF_THEM: usize = 1_000_000;
    let world = World::new();
    world.topic("in", 1).await;
    let mut wanted = definition(&["in"]);
    wanted.worker_timeout_ms = 3_600_000;
    wanted.time.of_records = false;
    let app = world.declare("app", wanted).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let timers = |from: usize, count: usize| NewCommit {
        seq: (from / EACH) as u64 + 1,
        timers: (from..from + count)
            .map(|at| timer(&at.to_string(), Some(1)))
            .collect(),
        ..NewCommit::default()
    };
    for from in (0..ALL_OF_THEM).step_by(EACH) {
        worker.commit(&app, TASK, timers(from, EACH)).await.unwrap();
    }
    let refused = worker.commit(&app, TASK, timers(ALL_OF_THEM, 1)).await;
    assert!(
        matches!(refused, Err(AppError::TooLarge { what: "timers", .. })),
        "{refused:?}"
    );
    let mut seq = (ALL_OF_THEM / EACH) as u64;
    for _ in 0..3 {
        let fetched = worker.fetch(&app, TASK).await.unwrap();
        assert_eq!(fetched.due.len(), 1000);
        seq += 1;
        let cleared = fetched.due.into_iter().map(|timer| (timer.key, timer.name, None));
        let commit = NewCommit {
            seq,
            entries: vec![put("count", &seq.to_string())],
            timers: cleared.collect(),
            ..NewCommit::default()
        };
        worker.commit(&app, TASK, commit).await.unwrap();
    }
    let totals = app.known(TASK).unwrap().totals.unwrap();
    assert_eq!(totals.timers, ALL_OF_THEM - 3000);
    // At the limit, timers that are there may be set anew.
    let again = NewCommit {
        seq: seq + 1,
        ..timers(ALL_OF_THEM - 10, 10)
    };
    worker.commit(&app, TASK, again).await.unwrap();
}

/// It does not come again with a commit of what came before it, which its worker made while it had it in hand.
#[tokio::test]
async fn a_timer_that_comes_ahead_of_commits_comes_once() {
    let world = World::new();
    world.topic("in", 1).await;
    let records = [("k", "0", 1000), ("k", "1", 1001), ("k", "2", 2000)];
    world.send("in", &records).await;
    let mut definition = definition(&["in"]);
    definition.time.idle_ms = u64::MAX;
    let app = world.declare("app", definition).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    // Places and timers of a delivery.
    let fetch = async |from: &[Option<u64>]| {
        let limits = FetchLimits { records: 1, ..ALL };
        let now = std::future::ready(());
        let fetched = app.fetch(worker.session(), worker.claim(TASK), from, limits, now);
        let fetched = fetched.await.unwrap();
        (fetched.next[0], fetched.due.len())
    };
    let commit = async |seq, next, timers: Vec<_>| {
        let commit = NewCommit {
            seq,
            next: vec![Some(next)],
            timers,
            ..NewCommit::default()
        };
        worker.commit(&app, TASK, commit).await.unwrap();
    };
    assert_eq!(fetch(&[]).await, (1, 0));
    commit(1, 1, vec![timer("a", Some(1500))]).await;
    assert_eq!(fetch(&[]).await, (2, 0));
    assert_eq!(fetch(&[Some(2)]).await, (3, 0));
    assert_eq!(fetch(&[Some(3)]).await, (3, 1));
    commit(2, 2, Vec::new()).await;
    assert_eq!(fetch(&[Some(3)]).await, (3, 0));
    // One that a commit does not clear comes again to a worker that begins anew.
    commit(3, 3, Vec::new()).await;
    assert_eq!(fetch(&[Some(3)]).await, (3, 0));
    assert_eq!(fetch(&[]).await, (3, 1));
    commit(4, 3, vec![timer("a", None)]).await;
    assert_eq!(fetch(&[]).await, (3, 0));
    // And to one that has passed it by.
    commit(5, 3, vec![timer("a", Some(1600))]).await;
    assert_eq!(fetch(&[]).await, (3, 1));
    world.send("in", &[("k", "3", 2001)]).await;
    assert_eq!(fetch(&[Some(3)]).await, (4, 0));
    commit(6, 4, Vec::new()).await;
    assert_eq!(fetch(&[Some(4)]).await, (4, 1));
}

/// More timers are due than one delivery has: no record comes before them.
#[tokio::test]
async fn records_wait_for_all_timers_that_are_due() {
    let world = World::new();
    world.topic("in", 1).await;
    let records = [("k", "0", 1000), ("k", "1", 1600), ("k", "2", 2000)];
    world.send("in", &records).await;
    let mut definition = definition(&["in"]);
    definition.time.idle_ms = u64::MAX;
    let app = world.declare("app", definition).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    worker.fetch(&app, TASK).await.unwrap();
    let commit = async |seq, next, timers| {
        let commit = NewCommit {
            seq,
            next: vec![Some(next)],
            timers,
            ..NewCommit::default()
        };
        worker.commit(&app, TASK, commit).await.unwrap();
    };
    let timers = (0..1500).map(|at| timer(&at.to_string(), Some(1500)));
    commit(1, 1, timers.collect()).await;
    let fetched = worker.fetch(&app, TASK).await.unwrap();
    assert_eq!((fetched.due.len(), fetched.next), (0, vec![2]));
    commit(2, 2, Vec::new()).await;
    let fetched = worker.fetch(&app, TASK).await.unwrap();
    assert_eq!((fetched.due.len(), fetched.records.len()), (1000, 0));
    let (from, now) = ([Some(2)], std::future::ready(()));
    let fetched = app.fetch(worker.session(), worker.claim(TASK), &from, ALL, now);
    let fetched = fetched.await.unwrap();
    assert_eq!((fetched.due.len(), fetched.records.len()), (500, 1));
}
