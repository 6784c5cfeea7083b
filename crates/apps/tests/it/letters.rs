//! Dead letters whose topic is gone, or takes no large ones.

use std::sync::Arc;

use stafett_apps::{App, AppError, Failed, NewFailure, TaskId};
use stafett_topics::{NewTopic, Topic, TopicSettings};

use crate::world::{Worker, World, definition};

const TASK: TaskId = TaskId::whole(0);
const ATTEMPTS: u32 = 4;

/// An app with a record, whose dead letters may have `bytes_max`, and its worker.
async fn world(value: &str, bytes_max: u32) -> (World, Arc<App>, Worker) {
    let world = World::new();
    world.topic("in", 1).await;
    world.send("in", &[("k", value, 1)]).await;
    let settings = TopicSettings {
        message_bytes_max: Some(bytes_max),
        ..TopicSettings::default()
    };
    let dead = NewTopic {
        name: "dead".into(),
        partitions: Some(1),
        settings,
    };
    world.catalog.create(vec![dead]).await.remove(0).unwrap();
    let mut definition = definition(&["in"]);
    definition.attempts_max = ATTEMPTS;
    definition.dead_letter = Some("dead".into());
    let app = world.declare("app", definition).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    worker.fetch(&app, TASK).await.unwrap();
    (world, app, worker)
}

async fn fail(worker: &Worker, app: &Arc<App>, seq: u64, retry: bool) -> Failed {
    let failure = NewFailure {
        seq,
        input: 0,
        offset: 0,
        error: "e".repeat(1000).into(),
        retry,
    };
    let failed = app.fail(worker.session(), worker.claim(TASK), failure);
    failed.await.unwrap()
}

#[tokio::test]
async fn a_task_stops_while_its_topic_of_dead_letters_is_gone() {
    let (world, app, worker) = world("1", 1 << 20).await;
    let dead = world.catalog.topics().named("dead").unwrap();
    world.catalog.delete(dead.id, |_: &Topic| {}).await.unwrap();
    let failed = fail(&worker, &app, 1, false).await;
    assert_eq!((failed.attempts, failed.dead_letter), (1, None));
    let stopped = worker.fetch(&app, TASK).await;
    assert!(
        matches!(stopped, Err(AppError::Failed { offset: 0, .. })),
        "{stopped:?}"
    );
    world.topic("dead", 1).await;
    assert_eq!(worker.fetch(&app, TASK).await.unwrap().records.len(), 1);
    let failed = fail(&worker, &app, 2, false).await;
    assert_eq!(failed.dead_letter.as_deref(), Some("dead"));
    assert_eq!(world.values("dead", 0).await, ["1"]);
}

#[tokio::test]
async fn a_letter_that_is_too_large_comes_without_its_history_or_its_value() {
    for (value_bytes, history, left_out) in [
        (10, ATTEMPTS as usize, None),
        (2000, 0, None),
        (5000, 0, Some("value of 5000 bytes and headers")),
    ] {
        let (world, app, worker) = world(&"v".repeat(value_bytes), 6000).await;
        for seq in 1..=u64::from(ATTEMPTS) {
            let failed = fail(&worker, &app, seq, true).await;
            assert_eq!(failed.dead_letter.is_some(), seq == u64::from(ATTEMPTS));
        }
        let headers = world.headers("dead", 0).await;
        let named = |name: &str| headers.iter().filter(|(known, _)| known == name).count();
        assert_eq!((named("stafett-attempt"), named("stafett-error")), (history, 1));
        let found = headers.iter().find(|(name, _)| name == "stafett-left-out");
        assert_eq!(found.map(|(_, value)| &**value), left_out);
        assert_eq!(app.position(TASK).await.unwrap().next, [1]);
    }
}
