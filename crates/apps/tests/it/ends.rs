//! Ends of apps, topics and workers while something is under way.

use std::time::Duration;

use stafett_apps::machine::{JoinSpec, Machine};
use stafett_apps::{AppError, NewCommit, Session, TaskId};
use stafett_model::Message;
use stafett_topics::Topic;

use crate::world::{ALL, Worker, World, definition, put};

const TASK: TaskId = TaskId::whole(0);
/// Guard against a hanging test, in simulated time.
const LIMIT: Duration = Duration::from_hours(1);
/// Less than the time for which a worker may be silent.
const SOON: Duration = Duration::from_secs(1);
/// A worker that reads by itself.
const READER: JoinSpec = JoinSpec {
    weight: 1,
    tasks_max: None,
    deliver: false,
    eager: false,
};

#[tokio::test(start_paused = true)]
async fn a_poll_ends_when_its_app_is_deleted() {
    let world = World::new();
    world.topic("in", 1).await;
    let app = world.declare("app", definition(&["in"])).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let polling = app.poll(worker.session(), worker.after, 10, std::future::pending());
    let polling = tokio::time::timeout(SOON, polling);
    let (polled, deleted) = tokio::join!(polling, world.apps.delete("app", true));
    deleted.unwrap();
    assert_eq!(polled.unwrap(), Err(AppError::NoSuchApp));
}

#[tokio::test(start_paused = true)]
async fn a_fetch_names_the_topic_that_went_meanwhile() {
    let world = World::new();
    for topic in ["a", "b"] {
        world.topic(topic, 1).await;
    }
    let app = world.declare("app", definition(&["a", "b"])).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let wait = tokio::time::sleep(LIMIT);
    let fetching = app.fetch(worker.session(), worker.claim(TASK), &[], ALL, wait);
    let deleting = async {
        let topic = world.catalog.topics().named("b").unwrap();
        world.catalog.delete(topic.id, |_: &Topic| {}).await.unwrap();
    };
    let (fetched, ()) = tokio::join!(fetching, deleting);
    assert_eq!(fetched.unwrap_err(), AppError::NoSuchTopic("b".into()));
}

/// A task without a worker takes no memory, once nothing of it is under way.
#[tokio::test(start_paused = true)]
async fn a_commit_that_outlives_the_last_worker_is_answered() {
    let world = World::new();
    world.topic("in", 1).await;
    let go = world.stores_later();
    let app = world.declare("app", definition(&["in"])).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let commit = NewCommit {
        seq: 1,
        entries: vec![put("a", "1")],
        messages: vec![("queue".into(), Message::default())],
        ..NewCommit::default()
    };
    let storing = app.commit(worker.session(), worker.claim(TASK), commit);
    tokio::time::sleep(LIMIT).await;
    assert!(app.with_machine(Machine::workers).is_empty());
    go.notify_one();
    assert_eq!(storing.await.unwrap().seq, 1);
    assert_eq!(app.known(TASK).unwrap().position.seq, 1);
    assert_eq!(worker.get(&app, TASK, "a").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn a_worker_that_reads_by_itself_has_whole_partitions() {
    let world = World::new();
    world.topic("in", 1).await;
    let app = world.declare("app", definition(&["in"])).await;
    let _worker = Worker::join(&app, "w").has(&app, 1).await;
    let reader = app.join("reader", READER).unwrap();
    let refused = world.apps.split("app", TASK, 2).await;
    assert_eq!(refused, Err(AppError::NotSplittable), "it may get a slice");
    app.leave(Session::new("reader", reader.session)).unwrap();
    world.apps.split("app", TASK, 2).await.unwrap();
    let refused = app.join("reader", READER);
    assert!(
        matches!(refused, Err(AppError::Bad { field: "deliver", .. })),
        "{refused:?}"
    );
}

/// The cut waits for a commit that is being stored.
#[tokio::test(start_paused = true)]
async fn no_worker_that_reads_by_itself_joins_while_a_task_is_being_cut() {
    let world = World::new();
    world.topic("in", 1).await;
    let go = world.stores_later();
    let app = world.declare("app", definition(&["in"])).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let commit = NewCommit {
        seq: 1,
        messages: vec![("queue".into(), Message::default())],
        ..NewCommit::default()
    };
    let storing = app.commit(worker.session(), worker.claim(TASK), commit);
    let cutting = world.apps.split("app", TASK, 2);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(app.stored().tasks.len(), 1);
    app.join("reader", READER).unwrap_err();
    go.notify_one();
    storing.await.unwrap();
    assert_eq!(cutting.await.unwrap().tasks.len(), 2);
    world.apps.merge("app", TASK).await.unwrap();
    app.join("reader", READER).unwrap();
    let refused = world.apps.split("app", TASK, 2).await;
    assert_eq!(refused, Err(AppError::NotSplittable));
}
