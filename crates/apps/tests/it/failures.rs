//! Records that fail, dead letters, resets, and changed settings.

use stafett_apps::{
    App, AppError, Claim, Definition, Failed, NewCommit, NewFailure, Reset, ResetTo, Start, TaskId,
};
use std::sync::Arc;

use crate::world::{ALL, Worker, World, definition, put};

const TASK: TaskId = TaskId::whole(0);

async fn fail(
    worker: &Worker,
    app: &Arc<App>,
    seq: u64,
    offset: u64,
    retry: bool,
) -> Result<Failed, AppError> {
    let failure = NewFailure {
        seq,
        input: 0,
        offset,
        error: format!("bad, try {seq}").into(),
        retry,
    };
    app.fail(worker.session(), worker.claim(TASK), failure).await
}

async fn world(dead_letter: Option<&str>) -> (World, Arc<App>) {
    let world = World::new();
    world.topic("in", 1).await;
    world.topic("dead", 1).await;
    world
        .send("in", &[("a", "1", 1), ("b", "2", 2), ("c", "3", 3)])
        .await;
    let mut definition = definition(&["in"]);
    definition.attempts_max = 2;
    definition.dead_letter = dead_letter.map(Into::into);
    let app = world.declare("app", definition).await;
    (world, app)
}

fn offsets(fetched: &stafett_apps::Fetched) -> Vec<u64> {
    fetched.records.iter().map(|it| it.record.offset.0).collect()
}

#[tokio::test]
async fn a_failing_record_is_tried_again_and_ends_in_the_dead_letters() {
    let (world, app) = world(Some("dead")).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    assert_eq!(offsets(&worker.fetch(&app, TASK).await.unwrap()), [0, 1, 2]);
    let refused = fail(&worker, &app, 1, 1, true).await;
    assert!(
        matches!(
            refused,
            Err(AppError::BadOffset {
                field: "offset",
                from: 0,
                ..
            })
        ),
        "offset 0 is not done: {refused:?}"
    );
    let done = NewCommit {
        seq: 1,
        next: vec![Some(1)],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, done).await.unwrap();
    let failed = fail(&worker, &app, 2, 1, true).await.unwrap();
    assert_eq!((failed.attempts, failed.dead_letter.clone()), (1, None));
    let again = fail(&worker, &app, 2, 1, true).await.unwrap();
    assert_eq!(
        again,
        Failed {
            repeated: true,
            ..failed
        },
        "a lost answer counts once"
    );
    assert!(
        offsets(&worker.fetch(&app, TASK).await.unwrap()).is_empty(),
        "it waits"
    );

    // The broker is killed: the attempt is known to the next worker.
    let world = world.killed();
    let app = world.apps.named("app").unwrap();
    let worker = Worker::join(&app, "x").has(&app, 1).await;
    let wait = tokio::time::sleep(std::time::Duration::from_secs(30));
    let fetched = app.fetch(worker.session(), worker.claim(TASK), &[], ALL, wait);
    assert_eq!(offsets(&fetched.await.unwrap()), [1, 2]);
    let failed = fail(&worker, &app, 3, 1, true).await.unwrap();
    assert_eq!(
        (failed.attempts, failed.dead_letter.as_deref()),
        (2, Some("dead"))
    );
    let again = fail(&worker, &app, 3, 1, true).await.unwrap();
    assert_eq!(
        (again.repeated, again.dead_letter.as_deref()),
        (true, Some("dead"))
    );
    assert_eq!(world.values("dead", 0).await, ["2"]);
    assert_eq!(offsets(&worker.fetch(&app, TASK).await.unwrap()), [2]);

    // Without another attempt it goes there at once.
    let failed = fail(&worker, &app, 4, 2, false).await.unwrap();
    assert_eq!((failed.attempts, failed.dead_letter.is_some()), (1, true));
    assert_eq!(world.values("dead", 0).await, ["2", "3"]);
    assert_eq!(app.position(TASK).await.unwrap().next, [3]);
}

#[tokio::test]
async fn a_dead_letter_says_where_it_is_from_and_how_it_failed() {
    let (world, app) = world(Some("dead")).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    worker.fetch(&app, TASK).await.unwrap();
    fail(&worker, &app, 1, 0, false).await.unwrap();
    let headers = world.headers("dead", 0).await;
    let of = |name: &str| {
        let found = headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let told = ["app", "task", "topic", "partition", "offset", "attempts", "error"];
    let told = told.map(|name| of(&format!("stafett-{name}")));
    assert_eq!(told, ["app", "0", "in", "0", "0", "1", "bad, try 1"]);
    assert!(of("stafett-attempt").ends_with(" w: bad, try 1"));
}

#[tokio::test]
async fn without_a_topic_for_it_the_task_stops_until_there_is_one() {
    let (world, app) = world(None).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    worker.fetch(&app, TASK).await.unwrap();
    fail(&worker, &app, 1, 0, false).await.unwrap();
    let stopped = worker.fetch(&app, TASK).await;
    assert!(
        matches!(
            stopped,
            Err(AppError::Failed {
                offset: 0,
                attempts: 1,
                ..
            })
        ),
        "{stopped:?}"
    );
    let to = |topic: &'static str| move |it: &mut Definition| it.dead_letter = Some(topic.into());
    let refused = world.apps.change("app", to("none")).await;
    assert!(matches!(refused, Err(AppError::NoSuchTopic(_))), "{refused:?}");
    world.apps.change("app", to("dead")).await.unwrap();
    assert_eq!(offsets(&worker.fetch(&app, TASK).await.unwrap()), [0, 1, 2]);
    fail(&worker, &app, 2, 0, true).await.unwrap();
    assert_eq!(world.values("dead", 0).await, ["1"]);
    let stored = world.killed().apps.named("app").unwrap().stored();
    assert_eq!(stored.definition.dead_letter.as_deref(), Some("dead"));
}

#[tokio::test]
async fn a_commit_behind_a_failing_record_forgets_its_attempts() {
    let (_world, app) = world(Some("dead")).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    worker.fetch(&app, TASK).await.unwrap();
    fail(&worker, &app, 1, 0, true).await.unwrap();
    let done = NewCommit {
        seq: 2,
        next: vec![Some(3)],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, done).await.unwrap();
    assert!(app.failure(TASK).is_none());
}

/// An app whose worker has done everything and stored an entry.
async fn done() -> (World, Arc<App>, Worker, NewCommit) {
    let (world, app) = world(None).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    worker.fetch(&app, TASK).await.unwrap();
    let done = NewCommit {
        seq: 1,
        next: vec![Some(3)],
        entries: vec![put("a", "1")],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, done.clone()).await.unwrap();
    (world, app, worker, done)
}

async fn claims_again(worker: &mut Worker, app: &App, old: Claim) {
    while worker.claims.get(&TASK).is_none_or(|epoch| *epoch == old.epoch) {
        worker.poll(app).await;
    }
}

#[tokio::test]
async fn a_reset_sets_positions_and_keeps_the_state() {
    let (world, app, mut worker, done) = done().await;
    let reset = Reset {
        to: ResetTo::Place(Start::Time(2)),
        task: None,
        drops_state: false,
    };
    let refused = world.apps.reset("app", reset.clone()).await;
    assert!(matches!(refused, Err(AppError::NotPaused)), "{refused:?}");
    world.apps.pause("app", true).await.unwrap();
    let plan = world.apps.planned_reset("app", &reset).await.unwrap();
    assert_eq!((&plan[0].from, &plan[0].to), (&vec![3], &vec![1]));
    assert_eq!(
        app.position(TASK).await.unwrap().next,
        [3],
        "a plan changes nothing"
    );
    assert_eq!(world.apps.reset("app", reset.clone()).await.unwrap(), plan);
    let old = worker.claim(TASK);
    claims_again(&mut worker, &app, old).await;
    let beyond = Reset {
        to: ResetTo::Offsets(vec![Some(4)]),
        ..reset
    };
    let beyond = world.apps.reset("app", beyond).await;
    assert!(
        matches!(beyond, Err(AppError::BadOffset { to: 3, .. })),
        "{beyond:?}"
    );
    world.apps.pause("app", false).await.unwrap();
    let stale = app
        .commit(worker.session(), old, NewCommit { seq: 2, ..done })
        .await;
    assert!(stale.is_err(), "{stale:?}");
    assert_eq!(offsets(&worker.fetch(&app, TASK).await.unwrap()), [1, 2]);
    assert_eq!(worker.get(&app, TASK, "a").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn a_reset_that_drops_the_state_survives_a_kill() {
    let (world, app, mut worker, _) = done().await;
    world.apps.pause("app", true).await.unwrap();
    let old = worker.claim(TASK);
    let reset = Reset {
        to: ResetTo::Place(Start::Earliest),
        task: Some(TASK),
        drops_state: true,
    };
    world.apps.reset("app", reset).await.unwrap();
    claims_again(&mut worker, &app, old).await;
    world.apps.pause("app", false).await.unwrap();
    assert_eq!(offsets(&worker.fetch(&app, TASK).await.unwrap()), [0, 1, 2]);
    assert_eq!(worker.get(&app, TASK, "a").await, None);
    let world = world.killed();
    let app = world.apps.named("app").unwrap();
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    assert_eq!(worker.get(&app, TASK, "a").await, None, "the new log is stored");
    assert_eq!(offsets(&worker.fetch(&app, TASK).await.unwrap()), [0, 1, 2]);
}

/// A reset forgets more finished keys than one append holds.
#[tokio::test]
async fn a_reset_forgets_very_many_finished_keys() {
    const KEYS: usize = 400_000;
    let (world, app) = world(None).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    worker.fetch(&app, TASK).await.unwrap();
    for seq in 1..=4 {
        let key = |at: usize| format!("a key of some length, number {seq} {at}").into();
        let done = NewCommit {
            seq,
            next: vec![Some(3)],
            safe: vec![Some(0)],
            done: (0..KEYS / 4).map(|at| (key(at), vec![Some(2)])).collect(),
            ..NewCommit::default()
        };
        worker.commit(&app, TASK, done).await.unwrap();
    }
    let last = NewCommit {
        seq: 5,
        safe: vec![Some(0)],
        done: vec![("a".into(), vec![Some(2)])],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, last).await.unwrap();
    assert_eq!(app.known(TASK).unwrap().totals.unwrap().done, KEYS + 1);
    world.apps.pause("app", true).await.unwrap();
    let reset = Reset {
        to: ResetTo::Place(Start::Earliest),
        task: None,
        drops_state: false,
    };
    world.apps.reset("app", reset).await.unwrap();
    world.apps.pause("app", false).await.unwrap();
    assert_eq!(app.known(TASK).unwrap().totals.unwrap().done, 0);
    let world = world.killed();
    let app = world.apps.named("app").unwrap();
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    assert_eq!(app.known(TASK).unwrap().totals.unwrap().done, 0);
    assert_eq!(offsets(&worker.fetch(&app, TASK).await.unwrap()), [0, 1, 2]);
}
