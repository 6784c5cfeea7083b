//! Filters of apps: records that are passed over.

use std::sync::Arc;

use stafett_apps::{App, AppError, Definition, Filter, NewCommit, NewFailure, TaskId};

use crate::world::{Worker, World, definition};

const TASK: TaskId = TaskId::whole(0);

fn filtered(filter: &str) -> Definition {
    let mut wanted = definition(&["in"]);
    wanted.filter = Some(Filter::compile(filter).unwrap());
    wanted
}

async fn world() -> World {
    let world = World::new();
    world.topic("in", 1).await;
    let records = [
        ("a", r#"{"n":1}"#, 1),
        ("b", r#"{"n":2}"#, 2),
        ("c", "no JSON", 3),
        ("d", r#"{"n":4}"#, 4),
        ("e", r#"{"n":1}"#, 5),
    ];
    world.send("in", &records).await;
    world
}

fn offsets(fetched: &stafett_apps::Fetched) -> Vec<u64> {
    fetched.records.iter().map(|it| it.record.offset.0).collect()
}

async fn change(world: &World, filter: Option<&str>) {
    let filter = filter.map(|source| Filter::compile(source).unwrap());
    let changed = world.apps.change("app", |it| it.filter = filter).await;
    changed.unwrap();
}

/// Fetches until something comes, or the task is refused.
async fn fetched(worker: &Worker, app: &Arc<App>) -> Result<Vec<u64>, AppError> {
    loop {
        let fetched = worker.fetch(app, TASK).await?;
        if !fetched.records.is_empty() {
            return Ok(offsets(&fetched));
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}

#[tokio::test]
async fn records_that_a_filter_refuses_are_passed_over_and_move_the_time_of_the_task() {
    let world = world().await;
    let app = world
        .declare("app", filtered("value.n >= 2 && topic == 'in'"))
        .await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let fetched = worker.fetch(&app, TASK).await.unwrap();
    assert_eq!((offsets(&fetched), &fetched.next), (vec![1, 3], &vec![5]));
    assert_eq!(fetched.time, 5, "the time is a fact of the place");
    let commit = NewCommit {
        seq: 1,
        next: vec![Some(5)],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, commit).await.unwrap();

    let world = world.killed();
    let app = world.apps.named("app").unwrap();
    let known = app.stored().definition.filter.clone();
    assert_eq!(known, filtered("value.n >= 2 && topic == 'in'").filter);
    world
        .send("in", &[("f", r#"{"n":1}"#, 6), ("g", r#"{"n":7}"#, 7)])
        .await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    assert_eq!(offsets(&worker.fetch(&app, TASK).await.unwrap()), [6]);
}

#[tokio::test(start_paused = true)]
async fn a_place_behind_refused_records_is_stored_without_a_commit() {
    let world = world().await;
    let app = world.declare("app", filtered("value.n > 9")).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    while app.position(TASK).await.unwrap().next != [5] {
        assert!(worker.fetch(&app, TASK).await.unwrap().records.is_empty());
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_filter_holds_for_what_was_not_passed_over_yet() {
    let world = world().await;
    let app = world.declare("app", filtered("value.n == 2")).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    assert_eq!(fetched(&worker, &app).await.unwrap(), [1]);
    change(&world, Some("value.n == 4")).await;
    assert_eq!(fetched(&worker, &app).await.unwrap(), [3]);
    change(&world, None).await;
    assert_eq!(fetched(&worker, &app).await.unwrap(), [3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_stopped_at_a_record_goes_on_once_a_filter_refuses_it() {
    let world = world().await;
    let app = world.declare("app", definition(&["in"])).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    assert_eq!(fetched(&worker, &app).await.unwrap(), [0, 1, 2, 3, 4]);
    let failure = NewFailure {
        seq: 1,
        input: 0,
        offset: 0,
        error: "bad".into(),
        retry: false,
    };
    let failed = app.fail(worker.session(), worker.claim(TASK), failure).await;
    failed.unwrap();
    let stopped = fetched(&worker, &app).await;
    assert!(
        matches!(stopped, Err(AppError::Failed { offset: 0, .. })),
        "{stopped:?}"
    );
    change(&world, Some("key != 'a'")).await;
    assert_eq!(fetched(&worker, &app).await.unwrap(), [1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_death_is_blamed_on_a_record_that_was_delivered() {
    let world = world().await;
    world.topic("dead", 1).await;
    let mut wanted = filtered("value.n == 4");
    wanted.attempts_max = 1;
    wanted.dead_letter = Some("dead".into());
    let app = world.declare("app", wanted).await;
    for number in 0..3 {
        let worker = Worker::join(&app, &format!("w{number}")).has(&app, 1).await;
        assert_eq!(fetched(&worker, &app).await.unwrap(), [3]);
    }
    let _survivor = Worker::join(&app, "w3").has(&app, 1).await;
    assert_eq!(world.values("dead", 0).await, [r#"{"n":4}"#]);
}
