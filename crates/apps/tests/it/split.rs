//! Tasks split and merged while they go on; and apps that do nothing twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use stafett_apps::machine::{EventKind, Reason, WorkerError};
use stafett_apps::{App, AppError, Guarantee, NewCommit, NewEntry, Table, TaskId};

use crate::world::{Worker, World, definition, put, result};

const TASK: TaskId = TaskId::whole(0);

fn task(name: &str) -> TaskId {
    name.parse().unwrap()
}

/// Takes up to `max` records of a task, and counts them by key. Returns the number of records.
async fn count(worker: &Worker, app: &Arc<App>, task: TaskId, max: usize) -> usize {
    let fetched = worker.fetch(app, task).await.unwrap();
    let taken = fetched.records.len().min(max);
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for record in &fetched.records[..taken] {
        let key = String::from_utf8(record.record.key.clone().unwrap().to_vec()).unwrap();
        *sums.entry(key).or_default() += 1;
    }
    let view = app.claim_view(worker.session(), worker.claim(task)).unwrap();
    let mut commit = NewCommit {
        seq: view.position.seq + 1,
        ..NewCommit::default()
    };
    let place = match fetched.records.get(taken) {
        Some(next) => next.record.offset.0,
        None => fetched.next[0],
    };
    commit.next.push(Some(place));
    for (key, new) in sums {
        let before = worker.get(app, task, &key).await;
        let sum = before.map_or(0, |sum| sum.parse().unwrap()) + new;
        commit.emit.push(result("out", &format!("{key} {sum}")));
        commit
            .timers
            .push((key.clone().into(), bytes::Bytes::new(), Some(i64::MAX)));
        commit.entries.push(put(&key, &sum.to_string()));
    }
    worker.commit(app, task, commit).await.unwrap();
    taken
}

/// Takes events until the worker has exactly these tasks.
async fn has(worker: &mut Worker, app: &App, tasks: &[&str]) {
    let wanted: Vec<TaskId> = tasks.iter().map(|name| task(name)).collect();
    while !worker.claims.keys().eq(&wanted) {
        worker.poll(app).await;
    }
}

async fn sums(app: &App) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    for task in app.stored().tasks.keys() {
        let (scan, _) = app.scan(*task, "t", b"", None, 1000).await.unwrap();
        for entry in scan.entries {
            assert!(task.slice().has(Some(&entry.key)));
            let before = all.insert(text(&entry.key), text(&entry.value));
            assert_eq!(before, None, "a key is in one task");
        }
    }
    all
}

/// Returns a key of another slice.
fn foreign(task: TaskId) -> String {
    let mut keys = (0_u32..).map(|key| key.to_string());
    keys.find(|key| !task.slice().has(Some(key.as_bytes()))).unwrap()
}

/// Entries and timers under keys of another slice are refused.
async fn refuse_strays(worker: &Worker, app: &Arc<App>, task: TaskId) {
    let commit = NewCommit {
        seq: app.position(task).await.unwrap().seq + 1,
        ..NewCommit::default()
    };
    let key = foreign(task);
    let entry = NewCommit {
        entries: vec![put(&key, "1")],
        ..commit.clone()
    };
    let timer = NewCommit {
        timers: vec![(key.into(), bytes::Bytes::new(), Some(1))],
        ..commit
    };
    for (stray, wanted) in [(entry, "put"), (timer, "timers")] {
        let refused = worker.commit(app, task, stray).await;
        assert!(
            matches!(refused, Err(AppError::Bad { field, .. }) if field == wanted),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn slices_go_on_with_their_keys_and_come_together_at_different_places() {
    let world = World::new();
    world.topic("in", 1).await;
    world.topic("out", 1).await;
    let names: Vec<String> = (0..20).map(|key| format!("k{}", key % 10)).collect();
    let records: Vec<_> = names.iter().map(|key| (&**key, "x", 1)).collect();
    world.send("in", &records).await;
    let app = world.declare("app", definition(&["in"])).await;
    let mut worker = Worker::join(&app, "w").has(&app, 1).await;
    assert_eq!(count(&worker, &app, TASK, 10).await, 10);
    let old = worker.claim(TASK);
    let cut = world.apps.split("app", TASK, 4).await.unwrap();
    assert_eq!((cut.tasks.len(), cut.at), (4, vec![10]));
    has(&mut worker, &app, &["0.00", "0.01", "0.10", "0.11"]).await;
    let split = worker.told.iter().filter(
        |told| matches!(told, EventKind::Claimed { reason: Reason::Split, epoch, .. } if *epoch > old.epoch),
    );
    assert_eq!(split.count(), 4);
    let late = app
        .commit(
            worker.session(),
            old,
            NewCommit {
                seq: 2,
                ..NewCommit::default()
            },
        )
        .await;
    assert!(
        matches!(late, Err(AppError::Worker(WorkerError::LostClaim { .. }))),
        "{late:?}"
    );
    let (ahead, behind) = (task("0.00"), task("0.11"));
    refuse_strays(&worker, &app, ahead).await;
    let mut done = count(&worker, &app, ahead, 100).await;
    done += count(&worker, &app, behind, 1).await;
    assert!(matches!(
        world.apps.merge("app", ahead).await,
        Err(AppError::Bad { .. })
    ));
    let cut = world.apps.merge("app", TASK).await.unwrap();
    assert_eq!((cut.tasks, cut.at), (vec![TASK], vec![10]));
    has(&mut worker, &app, &["0"]).await;
    let world = world.killed();
    let app = world.apps.named("app").unwrap();
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    while done < 10 {
        done += count(&worker, &app, TASK, 3).await;
    }
    assert_eq!((done, count(&worker, &app, TASK, 100).await), (10, 0));
    let wanted = (0..10).map(|key| (format!("k{key}"), "2".to_owned()));
    assert_eq!(sums(&app).await, wanted.collect());
    let known = app.known(TASK).unwrap();
    assert_eq!(
        (known.totals.unwrap().timers, known.position.ahead),
        (10, Vec::new())
    );
    let mut results = world.values("out", 0).await;
    results.sort();
    let wanted = (0..10).flat_map(|key| [format!("k{key} 1"), format!("k{key} 2")]);
    assert_eq!(results, wanted.collect::<Vec<_>>());
}

#[tokio::test]
async fn splits_that_cannot_be_are_refused_and_leave_the_task() {
    let world = World::new();
    world.topic("in", 1).await;
    let mut definition = definition(&["in"]);
    let whole = Table {
        keyed: false,
        ..Table::default()
    };
    definition.tables.insert("whole".into(), whole);
    let app = world.declare("app", definition).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let entry = NewEntry {
        table: "whole".into(),
        ..put("all", "1")
    };
    let commit = |seq, entries| NewCommit {
        seq,
        entries,
        ..NewCommit::default()
    };
    worker
        .commit(&app, TASK, commit(1, vec![entry.clone()]))
        .await
        .unwrap();
    let split = |task, into| world.apps.split("app", task, into);
    assert_eq!(split(TASK, 2).await, Err(AppError::NotKeyed(TASK)));
    assert!(app.stored().unfinished.is_empty(), "nothing is left of it");
    assert_eq!(split(TASK, 2048).await, Err(AppError::TooFine(TASK)));
    assert!(matches!(
        split(TASK, 3).await,
        Err(AppError::Bad { field: "into", .. })
    ));
    let none = task("1");
    assert_eq!(split(none, 2).await, Err(AppError::NoSuchTask(none)));
    assert_eq!(
        world.apps.merge("app", none).await,
        Err(AppError::NoSuchTask(none))
    );
    let gone = NewEntry { value: None, ..entry };
    worker.commit(&app, TASK, commit(2, vec![gone])).await.unwrap();
    split(TASK, 2).await.unwrap();

    world
        .declare("whole", {
            let mut it = crate::world::definition(&["in"]);
            it.splittable = false;
            it
        })
        .await;
    assert_eq!(
        world.apps.split("whole", TASK, 2).await,
        Err(AppError::NotSplittable)
    );
}

#[tokio::test]
async fn logs_of_a_split_that_a_crash_ended_are_deleted() {
    let world = World::new();
    world.topic("in", 1).await;
    let app = world.declare("app", definition(&["in"])).await;
    let first = app.stored().tasks[&TASK].log;
    world.apps.split("app", TASK, 2).await.unwrap();
    assert!(
        world.catalog.bounds(first).is_none(),
        "the log of the old task is deleted"
    );
    let world = world.killed();
    let app = world.apps.named("app").unwrap();
    world.apps.finish_splits().await.unwrap();
    assert_eq!(app.stored().tasks.len(), 2);
    for task in app.stored().tasks.values() {
        assert!(world.catalog.bounds(task.log).is_some());
    }
}

#[tokio::test]
async fn at_most_once_nothing_is_delivered_twice() {
    let world = World::new();
    world.topic("in", 1).await;
    world.send("in", &[("a", "1", 1), ("b", "2", 2)]).await;
    let mut definition = definition(&["in"]);
    definition.guarantee = Guarantee::AtMostOnce;
    let app = world.declare("app", definition).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    assert_eq!(worker.fetch(&app, TASK).await.unwrap().records.len(), 2);
    assert!(
        worker.fetch(&app, TASK).await.unwrap().records.is_empty(),
        "also if the answer was lost"
    );
    let commit = NewCommit {
        seq: 1,
        entries: vec![put("a", "1")],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, commit.clone()).await.unwrap();
    assert!(worker.commit(&app, TASK, commit).await.unwrap().repeated);
    world.send("in", &[("c", "3", 3)]).await;
    let world = world.killed();
    let app = world.apps.named("app").unwrap();
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let fetched = worker.fetch(&app, TASK).await.unwrap();
    assert_eq!((fetched.records.len(), fetched.next), (1, vec![3]));
    assert_eq!(worker.get(&app, TASK, "a").await.as_deref(), Some("1"));
}

/// A slice that is ahead is cut once more, and the parts come together at different places.
#[tokio::test]
async fn a_part_of_a_slice_that_was_ahead_keeps_what_it_did_since() {
    let keys: Vec<u8> = (0..80).map(|at| at % 12).collect();
    let work = |task, records| Step::Work { task, records };
    for part in 0..4 {
        let steps = [
            Step::Split { task: 0, into: 2 },
            work(1, 15),
            Step::Merge { task: 0, up: 1 },
            Step::Split { task: 0, into: 4 },
            work(part, 19),
            work(part, 19),
            Step::Merge { task: 0, up: 2 },
            work(0, 30),
            Step::Split { task: 0, into: 2 },
            work(1, 10),
            Step::Merge { task: 0, up: 1 },
        ];
        play(&keys, &steps).await;
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// A task takes some records and commits.
    Work {
        task: usize,
        records: usize,
    },
    Split {
        task: usize,
        into: u32,
    },
    /// The parent of a task, or of its parent, is merged.
    Merge {
        task: usize,
        up: usize,
    },
    Kill,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (any::<usize>(), 1..20_usize).prop_map(|(task, records)| Step::Work { task, records }),
        2 => (any::<usize>(), 1..3_u32).prop_map(|(task, bits)| Step::Split { task, into: 1 << bits }),
        2 => (any::<usize>(), 1..3_usize).prop_map(|(task, up)| Step::Merge { task, up }),
        1 => Just(Step::Kill),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// However tasks are cut, each record is counted once.
    #[test]
    fn each_record_counts_once(keys in prop::collection::vec(0..12_u8, 80), steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(play(&keys, &steps));
    }
}

async fn play(keys: &[u8], steps: &[Step]) {
    let mut world = World::new();
    world.topic("in", 1).await;
    world.topic("out", 1).await;
    let names: Vec<String> = keys.iter().map(u8::to_string).collect();
    let records: Vec<_> = names.iter().map(|key| (&**key, "x", 1)).collect();
    world.send("in", &records).await;
    let mut app = world.declare("app", definition(&["in"])).await;
    let mut worker = Worker::join(&app, "w");
    let mut done = 0;
    for step in steps {
        let tasks: Vec<TaskId> = app.stored().tasks.keys().copied().collect();
        let names: Vec<String> = tasks.iter().map(ToString::to_string).collect();
        has(
            &mut worker,
            &app,
            &names.iter().map(|name| &**name).collect::<Vec<_>>(),
        )
        .await;
        let at = |at: usize| tasks[at % tasks.len()];
        match step {
            Step::Work { task, records } => done += count(&worker, &app, at(*task), *records).await,
            Step::Split { task, into } => {
                let split = world.apps.split("app", at(*task), *into).await;
                assert!(
                    matches!(split, Ok(_) | Err(AppError::TooFine(_))),
                    "{:?}",
                    split.err()
                );
            }
            Step::Merge { task, up } => {
                let above = (0..*up).try_fold(at(*task), |task, _| task.parent());
                if let Some(parent) = above {
                    world.apps.merge("app", parent).await.unwrap();
                }
            }
            Step::Kill => {
                world = world.killed();
                app = world.apps.named("app").unwrap();
                worker = Worker::join(&app, "w");
            }
        }
    }
    let count_of = app.stored().tasks.len();
    let worker = worker.has(&app, count_of).await;
    for task in app.stored().tasks.keys() {
        done += count(&worker, &app, *task, usize::MAX).await;
    }
    assert_eq!(done, keys.len());
    let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
    for key in names {
        *wanted.entry(key).or_default() += 1;
    }
    let wanted = wanted.into_iter().map(|(key, count)| (key, count.to_string()));
    assert_eq!(sums(&app).await, wanted.collect());
}
