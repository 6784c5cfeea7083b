//! Topics that are deleted under an app, and made again.

use std::sync::Arc;

use stafett_apps::{App, AppError, Definition, LostTopic, NewCommit, TaskId};
use stafett_topics::Topic;

use crate::world::{ALL, Worker, World, definition, put};

const TASK: TaskId = TaskId::whole(0);

async fn delete(world: &World, name: &str) {
    let topic = world.catalog.topics().named(name).unwrap();
    world.catalog.delete(topic.id, |_: &Topic| {}).await.unwrap();
}

/// An app whose worker has done two of three records, and whose topic is deleted then.
async fn bereft(definition: Definition) -> (World, Arc<App>, Worker) {
    let world = World::new();
    world.topic("in", 1).await;
    world
        .send("in", &[("a", "1", 1), ("b", "2", 2), ("c", "3", 3)])
        .await;
    let app = world.declare("app", definition).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    worker.fetch(&app, TASK).await.unwrap();
    let commit = NewCommit {
        seq: 1,
        next: vec![Some(2)],
        entries: vec![put("sum", "3")],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, commit).await.unwrap();
    delete(&world, "in").await;
    (world, app, worker)
}

fn lost(name: &str, is_made_again: bool) -> Vec<LostTopic> {
    let name = name.into();
    vec![LostTopic { name, is_made_again }]
}

#[tokio::test]
async fn an_app_rests_until_it_is_accepted_that_its_topic_was_made_again() {
    let (world, app, worker) = bereft(definition(&["in"])).await;
    assert_eq!(
        worker.fetch(&app, TASK).await.unwrap_err(),
        AppError::NoSuchTopic("in".into())
    );
    assert_eq!(app.lost_topics(), lost("in", false));
    assert!(app.accept_topics().await.unwrap().is_empty(), "there is none yet");
    world.topic("in", 1).await;
    world.send("in", &[("d", "4", 4), ("e", "5", 5)]).await;
    assert_eq!(
        worker.fetch(&app, TASK).await.unwrap_err(),
        AppError::TopicMadeAgain("in".into())
    );
    assert_eq!(app.lost_topics(), lost("in", true));
    assert_eq!(app.ends(TASK, &[2]), (vec![None], 2), "all of its records wait");

    // The same after a start, and the state is read whatever became of the topic.
    let world = world.killed();
    let app = world.apps.named("app").unwrap();
    assert_eq!(app.lost_topics(), lost("in", true));
    let mut worker = Worker::join(&app, "w").has(&app, 1).await;
    assert_eq!(worker.get(&app, TASK, "sum").await.as_deref(), Some("3"));
    let epoch = worker.claim(TASK).epoch;
    assert_eq!(*app.accept_topics().await.unwrap(), ["in".into()]);
    assert!(app.lost_topics().is_empty());
    while worker.claims.get(&TASK).is_none_or(|now| *now == epoch) {
        worker.poll(&app).await;
    }
    let fetched = worker.fetch(&app, TASK).await.unwrap();
    assert_eq!((fetched.records.len(), fetched.next), (2, vec![2]));
    assert_eq!(worker.get(&app, TASK, "sum").await.as_deref(), Some("3"));
    let commit = NewCommit {
        seq: 3,
        next: vec![Some(2)],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, commit).await.unwrap();
    let world = world.killed();
    let app = world.apps.named("app").unwrap();
    assert!(app.lost_topics().is_empty());
    assert_eq!(app.position(TASK).await.unwrap().next, [2]);
}

#[tokio::test]
async fn an_app_that_skips_gaps_goes_on_with_the_new_topic_by_itself() {
    let mut definition = definition(&["in"]);
    definition.stops_at_gap = false;
    let (world, app, mut worker) = bereft(definition).await;
    world.topic("in", 1).await;
    world.send("in", &[("d", "4", 4)]).await;
    let refused = worker.fetch(&app, TASK).await.unwrap_err();
    assert!(
        matches!(refused, AppError::Worker(_)),
        "the claim ends: {refused:?}"
    );
    worker.claims.clear();
    let worker = worker.has(&app, 1).await;
    let fetched = worker.fetch(&app, TASK).await.unwrap();
    assert_eq!(fetched.records.len(), 1);
}

#[tokio::test]
async fn a_new_topic_with_other_partitions_is_refused() {
    let (world, app, _) = bereft(definition(&["in"])).await;
    world.topic("in", 3).await;
    let refused = app.accept_topics().await.unwrap_err();
    let expected = AppError::NotCopartitioned {
        one: "in".into(),
        partitions: 3,
        other: "app".into(),
        others: 1,
    };
    assert_eq!(refused, expected);
    assert_eq!(app.lost_topics(), lost("in", true), "nothing has changed");
    assert_eq!(app.position(TASK).await.unwrap().next, [2]);
}

#[tokio::test]
async fn places_in_other_topics_stay() {
    let world = World::new();
    for name in ["gone", "kept"] {
        world.topic(name, 1).await;
        world.send(name, &[("a", "1", 1), ("b", "2", 2)]).await;
    }
    let app = world.declare("app", definition(&["gone", "kept"])).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let (mut from, claim) = (Vec::new(), worker.claim(TASK));
    while from != [Some(2), Some(2)] {
        let wait = std::future::ready(());
        let fetched = app
            .fetch(worker.session(), claim, &from, ALL, wait)
            .await
            .unwrap();
        from = fetched.next.into_iter().map(Some).collect();
    }
    let commit = NewCommit {
        seq: 1,
        next: vec![Some(2), Some(2)],
        safe: vec![Some(0), Some(1)],
        done: vec![
            ("a".into(), vec![Some(0), None]),
            ("b".into(), vec![Some(1), Some(1)]),
        ],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, commit).await.unwrap();
    delete(&world, "gone").await;
    world.topic("gone", 1).await;
    world.send("gone", &[("b", "3", 3)]).await;
    app.accept_topics().await.unwrap();
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let view = app.claim_view(worker.session(), worker.claim(TASK)).unwrap();
    assert_eq!((view.position.next, view.position.safe), (vec![0, 2], vec![0, 1]));
    assert_eq!(view.done, [("b".into(), Box::from([0, 2]))]);
    // Of the kept topic nothing comes again, as its key is finished; of the new one all does.
    let fetched = worker.fetch(&app, TASK).await.unwrap();
    let offsets: Vec<_> = fetched.records.iter().map(|it| it.record.offset.0).collect();
    assert_eq!((fetched.input, offsets), (0, vec![0]));
}
