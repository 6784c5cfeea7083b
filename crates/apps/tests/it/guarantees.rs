//! Results and entries after a crash of a worker, by the guarantee of the app.

use std::sync::Arc;

use stafett_apps::{App, AppError, Emitted, Guarantee, NewCommit, TaskId};
use stafett_model::Message;

use crate::world::{Worker, World, definition, put, result};

const TASK: TaskId = TaskId::whole(0);

async fn world(guarantee: Guarantee) -> (World, Arc<App>) {
    let world = World::new();
    world.topic("in", 1).await;
    world.topic("out", 1).await;
    world.send("in", &[("a", "1", 1), ("b", "2", 2)]).await;
    let mut definition = definition(&["in"]);
    definition.guarantee = guarantee;
    let app = world.declare("app", definition).await;
    (world, app)
}

async fn emit(worker: &Worker, app: &Arc<App>, value: &str) -> Result<Vec<Emitted>, AppError> {
    let results = vec![result("out", value)];
    app.emit(worker.session(), worker.claim(TASK), results, Vec::new())
        .await
}

/// A commit of the second record, with its result and its entry.
fn second() -> NewCommit {
    NewCommit {
        seq: 1,
        next: vec![Some(2)],
        entries: vec![put("b", "2")],
        emit: vec![result("out", "2")],
        ..NewCommit::default()
    }
}

fn offsets(fetched: &stafett_apps::Fetched) -> Vec<u64> {
    fetched.records.iter().map(|it| it.record.offset.0).collect()
}

#[tokio::test]
async fn exactly_once_nothing_is_emitted_outside_of_a_commit() {
    let (world, app) = world(Guarantee::ExactlyOnce).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    worker.fetch(&app, TASK).await.unwrap();
    let refused = emit(&worker, &app, "1").await;
    assert!(
        matches!(
            refused,
            Err(AppError::Bad {
                field: "guarantee",
                ..
            })
        ),
        "{refused:?}"
    );
    // The worker dies with its work: the next one does it again, and each result is there once.
    let world = world.killed();
    let app = world.apps.named("app").unwrap();
    let worker = Worker::join(&app, "x").has(&app, 1).await;
    assert_eq!(offsets(&worker.fetch(&app, TASK).await.unwrap()), [0, 1]);
    worker.commit(&app, TASK, second()).await.unwrap();
    assert!(worker.commit(&app, TASK, second()).await.unwrap().repeated);
    assert_eq!(world.values("out", 0).await, ["2"]);
}

#[tokio::test]
async fn at_least_once_results_that_were_not_committed_come_again() {
    let (world, app) = world(Guarantee::AtLeastOnce).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    worker.fetch(&app, TASK).await.unwrap();
    let stored = emit(&worker, &app, "1").await.unwrap();
    assert_eq!((stored[0].base, stored[0].count), (0, 1));
    assert_eq!(world.values("out", 0).await, ["1"], "it is there at once");
    assert_eq!(app.position(TASK).await.unwrap().seq, 0, "it is no commit");
    let world = world.killed();
    assert_eq!(world.values("out", 0).await, ["1"]);
    let app = world.apps.named("app").unwrap();
    let worker = Worker::join(&app, "x").has(&app, 1).await;
    assert_eq!(offsets(&worker.fetch(&app, TASK).await.unwrap()), [0, 1]);
    emit(&worker, &app, "1").await.unwrap();
    // Results within the commit are there once, as its entries are.
    worker.commit(&app, TASK, second()).await.unwrap();
    assert!(worker.commit(&app, TASK, second()).await.unwrap().repeated);
    assert_eq!(world.values("out", 0).await, ["1", "1", "2"]);
    assert!(worker.fetch(&app, TASK).await.unwrap().records.is_empty());
}

#[tokio::test]
async fn at_least_once_a_worker_that_has_lost_its_task_emits_nothing() {
    let (world, app) = world(Guarantee::AtLeastOnce).await;
    let zombie = Worker::join(&app, "w").has(&app, 1).await;
    zombie.fetch(&app, TASK).await.unwrap();
    app.leave(zombie.session()).unwrap();
    let worker = Worker::join(&app, "x").has(&app, 1).await;
    let refused = emit(&zombie, &app, "zombie").await;
    assert!(matches!(refused, Err(AppError::Worker(_))), "{refused:?}");
    // Nor does one of whose end the machine has not heard: the journal knows.
    let log = app.stored().tasks[&TASK].log;
    let owner = stafett_journal::OwnerEpoch(worker.claim(TASK).epoch + 1);
    let claim = stafett_journal::Frame::Claim { log, owner };
    let append = stafett_journal::Append::state([claim], stafett_journal::StateWait::Synced);
    drop(world.catalog.append(vec![append]).await);
    let refused = emit(&worker, &app, "fenced").await;
    assert!(matches!(refused, Err(AppError::Worker(_))), "{refused:?}");
    assert!(world.values("out", 0).await.is_empty());
}

#[tokio::test]
async fn at_most_once_nothing_that_was_delivered_comes_again() {
    let (world, app) = world(Guarantee::AtMostOnce).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    assert_eq!(offsets(&worker.fetch(&app, TASK).await.unwrap()), [0, 1]);
    let refused = emit(&worker, &app, "1").await;
    assert!(matches!(refused, Err(AppError::Bad { .. })), "{refused:?}");
    let world = world.killed();
    let app = world.apps.named("app").unwrap();
    let worker = Worker::join(&app, "x").has(&app, 1).await;
    assert!(worker.fetch(&app, TASK).await.unwrap().records.is_empty());
    world.send("in", &[("c", "3", 3)]).await;
    assert_eq!(offsets(&worker.fetch(&app, TASK).await.unwrap()), [2]);
}

#[tokio::test]
async fn at_most_once_no_timer_that_was_delivered_comes_again() {
    let world = World::new();
    world.topic("in", 1).await;
    world.send("in", &[("a", "1", 1000), ("a", "2", 2000)]).await;
    let mut definition = definition(&["in"]);
    definition.guarantee = Guarantee::AtMostOnce;
    definition.time.idle_ms = u64::MAX;
    let app = world.declare("app", definition).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    assert_eq!(worker.fetch(&app, TASK).await.unwrap().records.len(), 2);
    let timer = |due| ("a".into(), "n".into(), Some(due));
    let set = NewCommit {
        seq: 1,
        timers: vec![timer(1500), ("a".into(), "later".into(), Some(9000))],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, set).await.unwrap();
    assert_eq!(worker.fetch(&app, TASK).await.unwrap().due.len(), 1);
    let world = world.killed();
    let app = world.apps.named("app").unwrap();
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    assert!(worker.fetch(&app, TASK).await.unwrap().due.is_empty());
    assert_eq!(
        app.known(TASK).unwrap().totals.unwrap().timers,
        1,
        "the other one"
    );
}

/// As of a worker that has fetched again because no answer came.
#[tokio::test]
async fn at_most_once_one_of_two_fetches_has_a_timer() {
    let world = World::new();
    world.topic("in", 1).await;
    world.send("in", &[("a", "1", 1000)]).await;
    let mut definition = definition(&["in"]);
    definition.guarantee = Guarantee::AtMostOnce;
    definition.time.idle_ms = u64::MAX;
    let app = world.declare("app", definition).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    assert_eq!(worker.fetch(&app, TASK).await.unwrap().records.len(), 1);
    let set = NewCommit {
        seq: 1,
        timers: vec![("a".into(), "n".into(), Some(500))],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, set).await.unwrap();
    // Both have read the timer before one of them is stored.
    let go = world.stores_later();
    let commit = NewCommit {
        seq: 2,
        messages: vec![("queue".into(), Message::default())],
        ..NewCommit::default()
    };
    let storing = app.commit(worker.session(), worker.claim(TASK), commit);
    tokio::task::yield_now().await;
    let storing = async {
        go.notify_one();
        storing.await
    };
    let fetch = || worker.fetch(&app, TASK);
    let (one, other, stored) = tokio::join!(fetch(), fetch(), storing);
    stored.unwrap();
    assert_eq!(one.unwrap().due.len() + other.unwrap().due.len(), 1);
}
