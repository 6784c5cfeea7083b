//! Expiry of entries while the clock is set.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use stafett_apps::{App, NewCommit, Table, TaskId};
use stafett_journal::{Journal, MemoryJournal};
use stafett_store::Clock;

use crate::world::{Worker, World, definition, put};

const TASK: TaskId = TaskId::whole(0);
const HOUR_MS: i64 = 3_600_000;
const SECOND: Duration = Duration::from_secs(1);
/// Lifetime of entries.
const TTL: Duration = Duration::from_mins(1);

/// The system's clock of this test.
static WALL_MS: AtomicI64 = AtomicI64::new(1_764_000_000_000);

fn wall_ms() -> i64 {
    WALL_MS.load(Ordering::Relaxed)
}

/// The clock is set an hour forward or back, and the broker notices.
fn set(clock: &Clock, by_ms: i64) {
    WALL_MS.fetch_add(by_ms, Ordering::Relaxed);
    assert!(clock.follow());
}

fn entries(app: &App) -> usize {
    app.known(TASK).unwrap().totals.unwrap().entries
}

/// Waits until no entry is counted.
async fn swept(app: &App) {
    for _ in 0..100 {
        if entries(app) == 0 {
            return;
        }
        tokio::time::sleep(SECOND).await;
    }
    assert_eq!(entries(app), 0);
}

#[tokio::test(start_paused = true)]
async fn an_entry_lives_its_time_though_the_clock_is_set() {
    let clock = Arc::new(Clock::start_on(wall_ms));
    let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new());
    let world = World::by_clock(&journal, &clock);
    world.topic("in", 1).await;
    let mut definition = definition(&["in"]);
    definition.worker_timeout_ms = 3_600_000;
    let table = Table {
        ttl_ms: Some(60_000),
        ..Table::default()
    };
    definition.tables.insert("t".into(), table);
    let app = world.declare("app", definition).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    for (seq, step_ms) in [(1, HOUR_MS), (2, -HOUR_MS)] {
        let commit = NewCommit {
            seq,
            entries: vec![put("a", "1")],
            ..NewCommit::default()
        };
        worker.commit(&app, TASK, commit).await.unwrap();
        tokio::time::advance(SECOND).await;
        set(&clock, step_ms);
        assert_eq!(
            worker.get(&app, TASK, "a").await.as_deref(),
            Some("1"),
            "{step_ms}"
        );
        tokio::time::advance(58 * SECOND).await;
        assert_eq!(
            worker.get(&app, TASK, "a").await.as_deref(),
            Some("1"),
            "{step_ms}"
        );
        tokio::time::advance(2 * SECOND).await;
        assert_eq!(worker.get(&app, TASK, "a").await, None, "{step_ms}");
        let (scan, _) = app.scan(TASK, "t", b"", None, 10).await.unwrap();
        assert!(scan.entries.is_empty());
        swept(&app).await;
    }
}

/// Its age goes with it when its task is cut.
#[tokio::test(start_paused = true)]
async fn an_entry_of_a_task_that_is_cut_keeps_its_age() {
    let world = World::new();
    world.topic("in", 1).await;
    let mut definition = definition(&["in"]);
    let table = Table {
        ttl_ms: Some(60_000),
        ..Table::default()
    };
    definition.tables.insert("t".into(), table);
    let app = world.declare("app", definition).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let commit = NewCommit {
        seq: 1,
        entries: vec![put("a", "1")],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, commit).await.unwrap();
    tokio::time::advance(TTL / 2).await;
    let cut = world.apps.split("app", TASK, 2).await.unwrap();
    let mut tasks = cut.tasks.into_iter();
    let task = tasks.find(|task| task.slice().has(Some(b"a"))).unwrap();
    let keys = ["a".into()];
    let is_there = async || app.get(task, "t", &keys).await.unwrap().0[0].is_some();
    assert!(is_there().await);
    tokio::time::advance(TTL / 2).await;
    assert!(!is_there().await);
}

/// Its task is read anew after the clock was set back by hours: the entry leaves in time all the same.
#[tokio::test(start_paused = true)]
async fn an_entry_of_a_task_that_is_read_anew_leaves_in_time_though_the_clock_was_set_back() {
    static SET_BACK_MS: AtomicI64 = AtomicI64::new(1_764_000_000_000);
    let clock = Arc::new(Clock::start_on(|| SET_BACK_MS.load(Ordering::Relaxed)));
    let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new());
    let world = World::by_clock(&journal, &clock);
    world.topic("in", 1).await;
    let mut definition = definition(&["in"]);
    definition.worker_timeout_ms = 3_600_000;
    let table = Table {
        ttl_ms: Some(60_000),
        ..Table::default()
    };
    definition.tables.insert("t".into(), table);
    let app = world.declare("app", definition).await;
    let mut worker = Worker::join(&app, "w").has(&app, 1).await;
    let commit = NewCommit {
        seq: 1,
        entries: vec![put("a", "1")],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, commit).await.unwrap();
    tokio::time::advance(SECOND).await;
    SET_BACK_MS.fetch_sub(3 * HOUR_MS, Ordering::Relaxed);
    assert!(clock.follow());
    let cut = world.apps.split("app", TASK, 2).await.unwrap();
    while !cut.tasks.iter().all(|task| worker.claims.contains_key(task)) {
        worker.poll(&app).await;
    }
    let entries = || -> usize {
        let known = cut.tasks.iter().filter_map(|task| app.known(*task));
        known
            .filter_map(|known| known.totals)
            .map(|totals| totals.entries)
            .sum()
    };
    assert_eq!(entries(), 1);
    tokio::time::sleep(2 * TTL).await;
    assert_eq!(entries(), 0);
}
