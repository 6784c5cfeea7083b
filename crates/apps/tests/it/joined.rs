//! Slices that are joined and cut again: attempts of each, and entries that no part has.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stafett_apps::{App, AppError, Failed, NewCommit, NewFailure, NewTimerFailure, TaskId};
use stafett_journal::Append;
use stafett_model::{BatchBuilder, Codec, Offset, Record};
use stafett_topics::{RecordItem, RecordTail, Visibility};

use crate::world::{ALL, Worker, World, definition, delete, put};

const WHOLE: TaskId = TaskId::whole(0);

fn halves() -> [TaskId; 2] {
    ["0.0", "0.1"].map(|name| name.parse().unwrap())
}

/// Returns keys of a task.
fn keys_of(task: TaskId) -> impl Iterator<Item = String> {
    let keys = (0_u32..).map(|key| key.to_string());
    keys.filter(move |key| task.slice().has(Some(key.as_bytes())))
}

fn key_of(task: TaskId) -> String {
    keys_of(task).next().unwrap()
}

/// Takes events until the worker has these tasks.
async fn has(worker: &mut Worker, app: &App, tasks: &[TaskId]) {
    while !worker.claims.keys().eq(tasks) {
        worker.poll(app).await;
    }
}

async fn next_seq(app: &App, task: TaskId) -> u64 {
    app.position(task).await.unwrap().seq + 1
}

async fn fail(worker: &Worker, app: &Arc<App>, task: TaskId, offset: u64) -> Failed {
    let failure = NewFailure {
        seq: next_seq(app, task).await,
        input: 0,
        offset,
        error: "bad".into(),
        retry: true,
    };
    let failed = app.fail(worker.session(), worker.claim(task), failure);
    failed.await.unwrap()
}

/// Waits for records. Returns their offsets.
async fn come(worker: &Worker, app: &App, task: TaskId) -> Vec<u64> {
    let wait = tokio::time::sleep(Duration::from_secs(30));
    let fetched = app.fetch(worker.session(), worker.claim(task), &[], ALL, wait);
    let fetched = fetched.await.unwrap();
    fetched.records.iter().map(|it| it.record.offset.0).collect()
}

/// An app with records of both halves in turn, and a topic for dead letters.
async fn world() -> (World, Arc<App>) {
    let world = World::new();
    world.topic("in", 1).await;
    world.topic("dead", 1).await;
    let [one, other] = halves().map(key_of);
    let records = [
        (&*one, "0", 1),
        (&*other, "1", 2),
        (&*one, "2", 3),
        (&*other, "3", 4),
    ];
    world.send("in", &records).await;
    let mut definition = definition(&["in"]);
    definition.attempts_max = 3;
    definition.dead_letter = Some("dead".into());
    let app = world.declare("app", definition).await;
    (world, app)
}

#[tokio::test(start_paused = true)]
async fn attempts_at_records_of_two_slices_stay_when_they_are_joined() {
    let (world, app) = world().await;
    let mut worker = Worker::join(&app, "w").has(&app, 1).await;
    world.apps.split("app", WHOLE, 2).await.unwrap();
    has(&mut worker, &app, &halves()).await;
    for (task, offset) in halves().into_iter().zip([0, 1]) {
        assert_eq!(come(&worker, &app, task).await[0], offset);
        assert_eq!(fail(&worker, &app, task, offset).await.attempts, 1);
    }
    world.apps.merge("app", WHOLE).await.unwrap();
    // They are read back the same.
    let world = world.killed();
    let app = world.apps.named("app").unwrap();
    let mut worker = Worker::join(&app, "w").has(&app, 1).await;
    assert_eq!(come(&worker, &app, WHOLE).await[0], 0);
    assert_eq!(fail(&worker, &app, WHOLE, 0).await.attempts, 2);
    assert_eq!(come(&worker, &app, WHOLE).await[0], 0);
    let last = fail(&worker, &app, WHOLE, 0).await;
    assert_eq!((last.attempts, last.dead_letter.is_some()), (3, true));
    assert_eq!(come(&worker, &app, WHOLE).await[0], 1);
    assert_eq!(fail(&worker, &app, WHOLE, 1).await.attempts, 2);
    world.apps.split("app", WHOLE, 2).await.unwrap();
    has(&mut worker, &app, &halves()).await;
    assert_eq!(come(&worker, &app, halves()[1]).await[0], 1);
    let last = fail(&worker, &app, halves()[1], 1).await;
    assert_eq!((last.attempts, last.dead_letter.is_some()), (3, true));
    assert_eq!(world.values("dead", 0).await, ["0", "1"]);
}

#[tokio::test(start_paused = true)]
async fn attempts_at_timers_of_two_slices_stay_when_they_are_joined() {
    let (world, app) = world().await;
    let mut worker = Worker::join(&app, "w").has(&app, 1).await;
    let timers = halves().map(|task| (Bytes::from(key_of(task)), Bytes::new(), Some(1)));
    let set = NewCommit {
        seq: 1,
        timers: timers.to_vec(),
        ..NewCommit::default()
    };
    worker.commit(&app, WHOLE, set).await.unwrap();
    let fail = async |worker: &Worker, task: TaskId, half: TaskId| {
        let failure = NewTimerFailure {
            seq: next_seq(&app, task).await,
            key: key_of(half).into(),
            name: Bytes::new(),
            error: "bad".into(),
            retry: true,
        };
        let failed = app.fail_timer(worker.session(), worker.claim(task), failure);
        failed.await.unwrap().attempts
    };
    world.apps.split("app", WHOLE, 2).await.unwrap();
    has(&mut worker, &app, &halves()).await;
    for half in halves() {
        assert_eq!(fail(&worker, half, half).await, 1);
    }
    world.apps.merge("app", WHOLE).await.unwrap();
    has(&mut worker, &app, &[WHOLE]).await;
    for half in halves() {
        assert_eq!(fail(&worker, WHOLE, half).await, 2);
    }
}

/// The record before it was passed on by a slice that is ahead, and does not come.
#[tokio::test(start_paused = true)]
async fn a_record_behind_one_that_a_slice_ahead_has_finished_can_fail() {
    let world = World::new();
    world.topic("in", 1).await;
    let [one, other] = halves().map(key_of);
    world.send("in", &[(&*other, "0", 1), (&*one, "1", 2)]).await;
    let app = world.declare("app", definition(&["in"])).await;
    let mut worker = Worker::join(&app, "w").has(&app, 1).await;
    world.apps.split("app", WHOLE, 2).await.unwrap();
    has(&mut worker, &app, &halves()).await;
    assert_eq!(come(&worker, &app, halves()[1]).await, [0]);
    let done = NewCommit {
        seq: 1,
        next: vec![Some(1)],
        safe: vec![Some(0)],
        done: vec![(other.into(), vec![Some(0)])],
        ..NewCommit::default()
    };
    worker.commit(&app, halves()[1], done).await.unwrap();
    world.apps.merge("app", WHOLE).await.unwrap();
    has(&mut worker, &app, &[WHOLE]).await;
    assert_eq!(come(&worker, &app, WHOLE).await, [1]);
    assert_eq!(fail(&worker, &app, WHOLE, 1).await.attempts, 1);
}

#[tokio::test(start_paused = true)]
async fn a_slice_that_is_ahead_in_one_topic_finishes_records_of_the_other_one() {
    let world = World::new();
    let [one, other] = halves().map(key_of);
    for topic in ["in", "more"] {
        world.topic(topic, 1).await;
    }
    world.send("in", &[(&*one, "0", 1), (&*other, "1", 2)]).await;
    let app = world.declare("app", definition(&["in", "more"])).await;
    let mut worker = Worker::join(&app, "w").has(&app, 1).await;
    world.apps.split("app", WHOLE, 2).await.unwrap();
    has(&mut worker, &app, &halves()).await;
    assert_eq!(come(&worker, &app, halves()[1]).await, [1]);
    let ahead = NewCommit {
        seq: 1,
        next: vec![Some(2), None],
        ..NewCommit::default()
    };
    worker.commit(&app, halves()[1], ahead).await.unwrap();
    world.apps.merge("app", WHOLE).await.unwrap();
    has(&mut worker, &app, &[WHOLE]).await;
    world.send("more", &[(&*other, "0", 3), (&*one, "1", 4)]).await;
    // The record of the first topic stays to be done.
    assert_eq!(come(&worker, &app, WHOLE).await, [0]);
    let from = [Some(2), Some(0)];
    let wait = tokio::time::sleep(Duration::from_secs(30));
    let fetched = app.fetch(worker.session(), worker.claim(WHOLE), &from, ALL, wait);
    assert_eq!(fetched.await.unwrap().input, 1);
    let done = NewCommit {
        seq: next_seq(&app, WHOLE).await,
        next: vec![None, Some(1)],
        safe: vec![None, Some(0)],
        done: vec![(other.into(), vec![None, Some(0)])],
        ..NewCommit::default()
    };
    worker.commit(&app, WHOLE, done).await.unwrap();
    app.leave(worker.session()).unwrap();
    let later = Worker::join(&app, "later").has(&app, 1).await;
    assert_eq!(come(&later, &app, WHOLE).await, [0]);
    let wait = tokio::time::sleep(Duration::from_secs(30));
    let fetched = app.fetch(later.session(), later.claim(WHOLE), &from, ALL, wait);
    let fetched = fetched.await.unwrap();
    let come: Vec<_> = fetched.records.iter().map(|it| it.record.offset.0).collect();
    assert_eq!((fetched.input, &*come), (1, &[1][..]), "the first one was done");
}

/// Stores an entry under any key, as earlier versions did.
async fn store_stray(world: &World, app: &App, task: TaskId, key: &str) {
    let log = app.stored().tasks[&task].log;
    let mut tail = RecordTail::new(log, Offset(0), 1 << 20, Visibility::Stored);
    let mut position = None;
    loop {
        while let Some(RecordItem::Record(record)) = tail.item() {
            if record.key.as_deref() == Some(b"p") {
                position = record.value;
            }
        }
        if tail.read(&world.catalog).await.is_err() {
            break;
        }
    }
    let entry = [b"s", &0_u16.to_le_bytes()[..], key.as_bytes()].concat();
    let value = [&i64::MAX.to_le_bytes()[..], b"stray"].concat();
    let mut batch = BatchBuilder::new(Codec::None);
    for (key, value) in [(b"p".to_vec(), position.unwrap().to_vec()), (entry, value)] {
        let record = Record {
            key: Some(&key),
            value: Some(&value),
            timestamp: 1,
            ..Record::default()
        };
        batch.push(&record).unwrap();
    }
    let append = Append::batch(log, batch.finish().unwrap());
    world.catalog.append(vec![append]).await;
}

#[tokio::test]
async fn entries_of_another_slice_are_not_lost_in_a_cut() {
    let (world, app) = world().await;
    let mut worker = Worker::join(&app, "w").has(&app, 1).await;
    world.apps.split("app", WHOLE, 2).await.unwrap();
    has(&mut worker, &app, &halves()).await;
    let [one, other] = halves();
    for task in [one, other] {
        let own = NewCommit {
            seq: 1,
            entries: vec![put(&key_of(task), "own")],
            ..NewCommit::default()
        };
        worker.commit(&app, task, own).await.unwrap();
    }
    // The second of them has no entry of its own.
    let strays: Vec<String> = keys_of(other).take(2).collect();
    for key in &strays {
        store_stray(&world, &app, one, key).await;
    }
    let world = world.killed();
    let app = world.apps.named("app").unwrap();
    let worker = Worker::join(&app, "w").has(&app, 2).await;
    let stray = |key: &String| AppError::Stray {
        task: one,
        key: key.as_str().into(),
    };
    assert_eq!(world.apps.split("app", one, 2).await, Err(stray(&strays[0])));
    assert_eq!(world.apps.merge("app", WHOLE).await, Err(stray(&strays[0])));
    assert!(app.stored().unfinished.is_empty(), "nothing is left of it");
    let gone = NewCommit {
        seq: 2,
        entries: vec![delete(&strays[0])],
        ..NewCommit::default()
    };
    worker.commit(&app, one, gone).await.unwrap();
    assert_eq!(world.apps.split("app", one, 2).await, Err(stray(&strays[1])));
    world.apps.merge("app", WHOLE).await.unwrap();
    let values = [(&strays[0], "own"), (&strays[1], "stray")];
    for (key, value) in values {
        assert_eq!(worker.get(&app, WHOLE, key).await.as_deref(), Some(value));
    }
}
