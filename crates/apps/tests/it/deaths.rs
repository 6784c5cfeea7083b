//! Workers that die with a record, one after the other.

use std::sync::Arc;
use std::time::Duration;

use stafett_apps::{App, AppError, Fetched, NewCommit, TaskId};

use crate::world::{ALL, Worker, World, definition};

const TASK: TaskId = TaskId::whole(0);
const POISON: u64 = 3;

/// The app allows this many attempts.
async fn world(dead_letter: Option<&str>, attempts_max: u32) -> (World, Arc<App>) {
    let world = World::new();
    world.topic("in", 1).await;
    world.topic("dead", 1).await;
    let values: Vec<String> = (0..8).map(|value| value.to_string()).collect();
    let records: Vec<_> = values.iter().map(|value| ("k", &**value, 1)).collect();
    world.send("in", &records).await;
    let mut definition = definition(&["in"]);
    definition.dead_letter = dead_letter.map(Into::into);
    definition.attempts_max = attempts_max;
    let app = world.declare("app", definition).await;
    (world, app)
}

fn offsets(fetched: &Fetched) -> Vec<u64> {
    fetched.records.iter().map(|it| it.record.offset.0).collect()
}

/// Processes deliveries to the last one, or to the deadly record. Returns the offsets of each delivery.
async fn work(app: &Arc<App>, worker: &Worker) -> Result<Vec<Vec<u64>>, AppError> {
    let mut deliveries = Vec::new();
    loop {
        let fetched = worker.fetch(app, TASK).await?;
        let came = offsets(&fetched);
        if !came.is_empty() {
            deliveries.push(came.clone());
        }
        if came.is_empty() || came.contains(&POISON) {
            return Ok(deliveries);
        }
        let commit = NewCommit {
            seq: app.position(TASK).await?.seq + 1,
            next: fetched.next.into_iter().map(Some).collect(),
            ..NewCommit::default()
        };
        worker.commit(app, TASK, commit).await?;
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_under_which_workers_die_is_found_and_goes_to_the_dead_letters() {
    let (mut world, mut app) = world(Some("dead"), 3).await;
    let mut deliveries = Vec::new();
    for number in 0..6 {
        let worker = Worker::join(&app, &format!("w{number}")).has(&app, 1).await;
        deliveries.push(work(&app, &worker).await.unwrap());
        if number == 3 {
            // Deaths that were counted survive the broker. The death of this worker is not seen.
            world = world.killed();
            app = world.apps.named("app").unwrap();
        }
    }
    let whole = vec![(0..8).collect::<Vec<u64>>()];
    assert_eq!(deliveries[..2], [whole.clone(), whole]);
    let alone: Vec<Vec<u64>> = (0..=POISON).map(|offset| vec![offset]).collect();
    assert_eq!(deliveries[2], alone, "then each comes alone");
    assert_eq!(deliveries[3..], vec![vec![vec![POISON]]; 3], "and this one kills");
    let worker = Worker::join(&app, "last").has(&app, 1).await;
    assert_eq!(app.failure(TASK), None);
    let rest = work(&app, &worker).await.unwrap();
    assert_eq!(rest, [[4], [5], [6], [7]], "records that came with it");
    assert_eq!(world.values("dead", 0).await, ["3"]);
    let headers = world.headers("dead", 0).await;
    let attempts: Vec<_> = headers
        .iter()
        .filter(|(name, _)| name == "stafett-attempt")
        .collect();
    assert_eq!(attempts.len(), 3, "{headers:?}");
    assert!(
        attempts[2].1.ends_with("w5: the worker fell silent with it"),
        "{attempts:?}"
    );
    // Later records come together again.
    world.send("in", &[("k", "8", 1), ("k", "9", 1)]).await;
    assert_eq!(work(&app, &worker).await.unwrap(), [[8, 9]]);
}

#[tokio::test(start_paused = true)]
async fn without_a_topic_for_it_the_task_stops_at_the_record() {
    let (_world, app) = world(None, 3).await;
    for number in 0..5 {
        let worker = Worker::join(&app, &format!("w{number}")).has(&app, 1).await;
        work(&app, &worker).await.unwrap();
    }
    let worker = Worker::join(&app, "last").has(&app, 1).await;
    let refused = worker.fetch(&app, TASK).await.unwrap_err();
    assert!(
        matches!(
            refused,
            AppError::Failed {
                offset: POISON,
                attempts: 3,
                ..
            }
        ),
        "{refused:?}"
    );
}

/// Workers that are killed for other reasons, one soon after the other, look like this.
#[tokio::test(start_paused = true)]
async fn as_many_workers_may_die_as_the_app_allows_attempts() {
    for (attempts_max, deaths) in [(1, 3), (3, 3), (7, 7)] {
        let (world, app) = world(Some("dead"), attempts_max).await;
        for number in 0..deaths {
            assert_eq!(world.values("dead", 0).await, [""; 0], "{attempts_max}, {number}");
            let worker = Worker::join(&app, &format!("w{number}")).has(&app, 1).await;
            assert!(!worker.fetch(&app, TASK).await.unwrap().records.is_empty());
        }
        Worker::join(&app, "last").has(&app, 1).await;
        assert_eq!(world.values("dead", 0).await, ["0"], "{attempts_max}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_death_without_deliveries_blames_no_record() {
    let (_world, app) = world(None, 3).await;
    for number in 0..6 {
        Worker::join(&app, &format!("w{number}")).has(&app, 1).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(app.failure(TASK), None);
    assert_eq!(app.position(TASK).await.unwrap().epoch, 0, "nothing is stored");
}

/// A deadly timer: no record that comes with it is blamed.
#[tokio::test(start_paused = true)]
async fn a_timer_under_which_workers_die_is_found_and_goes_to_the_dead_letters() {
    let (world, app) = world(Some("dead"), 3).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    worker.fetch(&app, TASK).await.unwrap();
    let timer = |key: &str, due| (key.to_owned().into(), "n".into(), due);
    let set = NewCommit {
        seq: 1,
        next: vec![Some(1)],
        timers: vec![timer("a", Some(0)), timer("b", Some(1))],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, set).await.unwrap();
    app.leave(worker.session()).unwrap();
    let keys = |fetched: &Fetched| -> Vec<_> { fetched.due.iter().map(|timer| timer.key.clone()).collect() };
    for number in 0..3 {
        let worker = Worker::join(&app, &format!("w{number}")).has(&app, 1).await;
        let fetched = worker.fetch(&app, TASK).await.unwrap();
        let alone = number == 2;
        let expected = if alone { vec!["a"] } else { vec!["a", "b"] };
        assert_eq!(keys(&fetched), expected, "{number}");
        assert_eq!(fetched.records.is_empty(), alone, "{number}");
    }
    let worker = Worker::join(&app, "last").has(&app, 1).await;
    let fetched = worker.fetch(&app, TASK).await.unwrap();
    assert_eq!(keys(&fetched), ["b"]);
    assert_eq!(
        offsets(&fetched),
        (1..8).collect::<Vec<_>>(),
        "records are as they were"
    );
    let headers = world.headers("dead", 0).await;
    let found = headers.iter().find(|(name, _)| name == "stafett-error");
    assert_eq!(found.unwrap().1, "the worker fell silent with it");
}

/// A timer that records brought, and that came before they were committed: the records are blamed, and come
/// again.
#[tokio::test(start_paused = true)]
async fn a_timer_that_came_ahead_of_commits_holds_nothing_up() {
    let world = World::new();
    world.topic("in", 1).await;
    world.topic("dead", 1).await;
    let records: Vec<_> = (1..9).map(|number| ("k", "x", number * 1_000_000)).collect();
    world.send("in", &records).await;
    let mut definition = definition(&["in"]);
    definition.time.idle_ms = u64::MAX;
    definition.dead_letter = Some("dead".into());
    definition.attempts_max = 3;
    let app = world.declare("app", definition).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    worker.fetch(&app, TASK).await.unwrap();
    let set = NewCommit {
        seq: 1,
        next: vec![Some(1)],
        timers: vec![("t".into(), "n".into(), Some(3_500_000))],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, set).await.unwrap();
    app.leave(worker.session()).unwrap();
    for number in 0..3 {
        let worker = Worker::join(&app, &format!("w{number}")).has(&app, 1).await;
        let mut next = Vec::new();
        let mut came = Vec::new();
        while came.len() < 2 {
            let now = std::future::ready(());
            let fetched = app.fetch(worker.session(), worker.claim(TASK), &next, ALL, now);
            let fetched = fetched.await.unwrap();
            next = fetched.next.iter().copied().map(Some).collect();
            if fetched.records.is_empty() && fetched.due.is_empty() {
                break;
            }
            came.push(fetched);
        }
        assert_eq!(offsets(&came[0])[0], 1, "{number}");
        // Once the record is suspected, it comes alone.
        let timers = came.get(1).map_or(0, |fetched| fetched.due.len());
        assert_eq!(timers, usize::from(number < 2), "{number}");
    }
    let worker = Worker::join(&app, "last").has(&app, 1).await;
    assert_eq!(offsets(&worker.fetch(&app, TASK).await.unwrap())[0], 2);
    let headers = world.headers("dead", 0).await;
    let offset = headers.iter().find(|(name, _)| name == "stafett-offset");
    assert_eq!(offset.unwrap().1, "1");
}

/// Any of the records that were delivered may be the deadly one, also one of another slice.
#[tokio::test(start_paused = true)]
async fn records_of_all_slices_come_alone_while_one_of_them_may_be_deadly() {
    let world = World::new();
    world.topic("in", 1).await;
    let keys: Vec<String> = (0..40).map(|key| key.to_string()).collect();
    let records: Vec<_> = keys.iter().map(|key| (&**key, "x", 1)).collect();
    world.send("in", &records).await;
    let app = world.declare("app", definition(&["in"])).await;
    for number in 0..2 {
        let worker = Worker::join(&app, &format!("w{number}")).has(&app, 1).await;
        assert_eq!(worker.fetch(&app, TASK).await.unwrap().records.len(), 40);
    }
    let mut worker = Worker::join(&app, "last").has(&app, 1).await;
    for _ in 0..2 {
        let cut = world.apps.split("app", TASK, 2).await.unwrap();
        while !cut.tasks.iter().all(|task| worker.claims.contains_key(task)) {
            worker.poll(&app).await;
        }
        for task in cut.tasks {
            assert_eq!(worker.fetch(&app, task).await.unwrap().records.len(), 1, "{task}");
        }
        world.apps.merge("app", TASK).await.unwrap();
        while !worker.claims.contains_key(&TASK) {
            worker.poll(&app).await;
        }
    }
}
