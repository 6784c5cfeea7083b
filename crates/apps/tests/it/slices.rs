//! Places and times of tasks that have nothing of their own to read, and of tasks over two topics.

use std::sync::Arc;

use bytes::Bytes;
use stafett_apps::{App, AppError, FetchLimits, Fetched, Guarantee, NewCommit, TaskId};
use stafett_model::Offset;

use crate::world::{ALL, Worker, World, definition};

const TASK: TaskId = TaskId::whole(0);

/// A task that was split, the worker of both halves, and a key of each.
struct Halves {
    world: World,
    app: Arc<App>,
    worker: Worker,
    task: TaskId,
    own: String,
    other: String,
}

impl Halves {
    async fn with_idle_ms(idle_ms: u64) -> Self {
        let world = World::new();
        world.topic("in", 1).await;
        let mut wanted = definition(&["in"]);
        wanted.time.idle_ms = idle_ms;
        let app = world.declare("app", wanted).await;
        let mut worker = Worker::join(&app, "w").has(&app, 1).await;
        world.apps.split("app", TASK, 2).await.unwrap();
        worker.claims.clear();
        let worker = worker.has(&app, 2).await;
        let task: TaskId = "0.0".parse().unwrap();
        let key = |is_own| {
            let mut keys = (0..).map(|number: u32| format!("k{number}"));
            keys.find(|key| task.slice().has(Some(key.as_bytes())) == is_own)
                .unwrap()
        };
        let (own, other) = (key(true), key(false));
        Self {
            world,
            app,
            worker,
            task,
            own,
            other,
        }
    }

    async fn fetch(&self) -> Fetched {
        self.worker.fetch(&self.app, self.task).await.unwrap()
    }

    async fn set_timer(&self, due: i64) {
        let set = NewCommit {
            seq: 1,
            timers: vec![(Bytes::from(self.own.clone()), Bytes::new(), Some(due))],
            ..NewCommit::default()
        };
        self.worker.commit(&self.app, self.task, set).await.unwrap();
    }
}

#[tokio::test]
async fn a_slice_comes_past_more_records_of_others_than_one_read_has() {
    let halves = Halves::with_idle_ms(1000).await;
    let large = "x".repeat(900 << 10);
    for _ in 0..40 {
        halves.world.send("in", &[(&halves.other, &large, 1)]).await;
    }
    halves.world.send("in", &[(&halves.own, "mine", 2)]).await;
    let mut fetches = 0;
    while halves.fetch().await.records.is_empty() {
        fetches += 1;
        assert!(fetches < 10, "it begins at the same place again");
    }
    let whole = halves.app.fetch(
        halves.worker.session(),
        halves.worker.claim(halves.task),
        &[],
        ALL,
        std::future::pending(),
    );
    assert_eq!(whole.await.unwrap().records.len(), 1);
}

#[tokio::test]
async fn the_place_of_a_slice_goes_on_without_records_of_its_own_and_survives_a_kill() {
    let halves = Halves::with_idle_ms(1000).await;
    halves
        .world
        .send("in", &[(&halves.other, "1", 1), (&halves.other, "2", 2)])
        .await;
    assert!(halves.fetch().await.records.is_empty());
    let known = halves.app.known(halves.task).unwrap().position;
    assert_eq!(
        (known.seq, &known.next[..], &known.safe[..]),
        (0, &[2][..], &[2][..])
    );
    let again = halves.world.killed();
    let app = again.apps.named("app").unwrap();
    assert_eq!(app.position(halves.task).await.unwrap().next, [2]);
    // Records that were passed over may expire.
    let log = again.catalog.topics().named("in").unwrap().log(0).unwrap();
    again.catalog.truncate(&[(log, Offset(2))]).await;
    again.send("in", &[(&halves.own, "3", 3)]).await;
    let worker = Worker::join(&app, "w").has(&app, 2).await;
    assert_eq!(worker.fetch(&app, halves.task).await.unwrap().records.len(), 1);
}

#[tokio::test]
async fn records_of_other_slices_bring_timers_due() {
    let halves = Halves::with_idle_ms(u64::MAX).await;
    halves.set_timer(1000).await;
    halves.world.send("in", &[(&halves.other, "1", 5000)]).await;
    assert_eq!(halves.fetch().await.due.len(), 1);
}

#[tokio::test]
async fn a_slice_without_records_of_its_own_is_idle_at_the_end() {
    let halves = Halves::with_idle_ms(0).await;
    halves.set_timer(1000).await;
    halves.world.send("in", &[(&halves.other, "1", 1)]).await;
    let mut due = 0;
    for _ in 0..5 {
        due += halves.fetch().await.due.len();
    }
    assert!(due > 0, "the clock goes on once nothing waits");
}

#[tokio::test]
async fn a_topic_that_waits_holds_task_time_back() {
    let world = World::new();
    world.topic("a", 1).await;
    world.topic("b", 1).await;
    world.send("a", &[("k", "1", 5000)]).await;
    world.send("b", &[("k", "2", 100), ("k", "3", 200)]).await;
    let mut wanted = definition(&["a", "b"]);
    wanted.time.idle_ms = u64::MAX;
    let app = world.declare("app", wanted).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let claim = worker.claim(TASK);
    let fetch = |from: Vec<Option<u64>>| {
        let (app, worker) = (&app, &worker);
        async move {
            let wait = std::future::ready(());
            app.fetch(worker.session(), claim, &from, ALL, wait)
                .await
                .unwrap()
        }
    };
    let first = fetch(vec![]).await;
    assert_eq!((first.input, first.time), (0, i64::MIN));
    let second = fetch(first.next.iter().copied().map(Some).collect()).await;
    let late = second.records.iter().filter(|it| it.late).count();
    assert_eq!((second.input, second.time, late), (1, 200, 0));
    let done = NewCommit {
        seq: 1,
        next: second.next.iter().copied().map(Some).collect(),
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, done).await.unwrap();
    // Another claim knows as much.
    let world = world.killed();
    world.send("a", &[("k", "4", 9000)]).await;
    let app = world.apps.named("app").unwrap();
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let fetched = worker.fetch(&app, TASK).await.unwrap();
    assert_eq!((fetched.records.len(), fetched.time), (1, 200));
}

#[tokio::test]
async fn an_accepted_gap_stays_behind() {
    for guarantee in [Guarantee::ExactlyOnce, Guarantee::AtMostOnce] {
        let world = World::new();
        world.topic("in", 1).await;
        let records: Vec<_> = (0..4).map(|at| ("a", "x", at)).collect();
        world.send("in", &records).await;
        let mut wanted = definition(&["in"]);
        wanted.guarantee = guarantee;
        let app = world.declare("app", wanted).await;
        let worker = Worker::join(&app, "w").has(&app, 1).await;
        let limits = FetchLimits { records: 1, ..ALL };
        let (session, claim) = (worker.session(), worker.claim(TASK));
        let wait = std::future::ready(());
        app.fetch(session, claim, &[], limits, wait).await.unwrap();
        let one = NewCommit {
            seq: 1,
            next: vec![Some(1)],
            ..NewCommit::default()
        };
        worker.commit(&app, TASK, one).await.unwrap();
        let log = world.catalog.topics().named("in").unwrap().log(0).unwrap();
        world.catalog.truncate(&[(log, Offset(3))]).await;
        let stopped = worker.fetch(&app, TASK).await.unwrap_err();
        assert!(
            matches!(stopped, AppError::Gap { from: 1, to: 3, .. }),
            "{stopped:?}"
        );
        app.accept_gap(TASK).unwrap();
        if guarantee == Guarantee::ExactlyOnce {
            let nothing = NewCommit {
                seq: 2,
                ..NewCommit::default()
            };
            worker.commit(&app, TASK, nothing).await.unwrap();
        }
        let fetched = worker.fetch(&app, TASK).await.unwrap();
        assert_eq!((fetched.records.len(), fetched.next), (1, vec![4]));
    }
}

/// A fetch that names its place goes on while the broker stores that nothing is left before a later one.
#[tokio::test]
async fn a_fetch_that_names_its_place_outlives_a_place_that_is_stored_meanwhile() {
    let halves = Halves::with_idle_ms(1000).await;
    halves
        .world
        .send("in", &[(&halves.own, "1", 1), (&halves.other, "2", 2)])
        .await;
    assert_eq!(halves.fetch().await.records.len(), 1);
    let commit = |seq, place| NewCommit {
        seq,
        next: vec![Some(place)],
        ..NewCommit::default()
    };
    let commits = |wanted| halves.worker.commit(&halves.app, halves.task, wanted);
    commits(commit(1, 1)).await.unwrap();
    let fetch = async |from| {
        let (session, claim) = (halves.worker.session(), halves.worker.claim(halves.task));
        let wait = std::future::ready(());
        halves.app.fetch(session, claim, &[Some(from)], ALL, wait).await
    };
    assert!(fetch(1).await.unwrap().records.is_empty());
    assert_eq!(halves.app.position(halves.task).await.unwrap().next, [2]);
    halves.world.send("in", &[(&halves.own, "3", 3)]).await;
    assert_eq!(
        fetch(1).await.unwrap().records.len(),
        1,
        "the worker knows its own place"
    );
    commits(commit(2, 1)).await.unwrap();
    assert_eq!(
        halves.app.position(halves.task).await.unwrap().next,
        [2],
        "it stays"
    );
    commits(commit(3, 3)).await.unwrap();
    let back = commits(commit(4, 2)).await.unwrap_err();
    assert!(
        matches!(
            back,
            AppError::BadOffset {
                field: "next",
                from: 3,
                ..
            }
        ),
        "{back:?}"
    );
}

/// Records that were delivered and not committed are not passed with a gap behind them.
#[tokio::test]
async fn an_accepted_gap_takes_no_delivered_record_along() {
    let world = World::new();
    world.topic("in", 1).await;
    let records: Vec<_> = (0..4).map(|at| ("a", "x", at)).collect();
    world.send("in", &records).await;
    let app = world.declare("app", definition(&["in"])).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let log = world.catalog.topics().named("in").unwrap().log(0).unwrap();
    assert_eq!(worker.fetch(&app, TASK).await.unwrap().records.len(), 4);
    let one = NewCommit {
        seq: 1,
        next: vec![Some(1)],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, one).await.unwrap();
    world.catalog.truncate(&[(log, Offset(3))]).await;
    worker.fetch(&app, TASK).await.unwrap_err();
    app.accept_gap(TASK).unwrap();
    let again = worker.fetch(&app, TASK).await.unwrap();
    assert_eq!((again.records.len(), again.records[0].record.offset.0), (1, 3));
    assert_eq!(
        app.position(TASK).await.unwrap().next,
        [1],
        "nothing was committed"
    );
    let timer = NewCommit {
        seq: 2,
        timers: vec![(Bytes::from("a"), Bytes::new(), Some(i64::MAX))],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, timer).await.unwrap();
    assert_eq!(
        worker.fetch(&app, TASK).await.unwrap().records.len(),
        1,
        "no gap again"
    );
}

/// A worker that reads on and commits nothing takes a bounded amount of memory.
#[tokio::test]
async fn a_worker_that_fetches_far_ahead_waits_for_its_commit() {
    const AHEAD_MAX: u64 = 1 << 16;
    let world = World::new();
    world.topic("in", 1).await;
    for first in (0..70_000).step_by(1000) {
        let records: Vec<_> = (first..first + 1000).map(|at| ("k", "x", at)).collect();
        world.send("in", &records).await;
    }
    let app = world.declare("app", definition(&["in"])).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let fetch = async |from: u64| {
        let (from, now) = ([Some(from)], std::future::ready(()));
        let fetched = app.fetch(worker.session(), worker.claim(TASK), &from, ALL, now);
        fetched.await.unwrap()
    };
    let mut next = 0;
    loop {
        let fetched = fetch(next).await;
        if fetched.records.is_empty() {
            break;
        }
        next = fetched.next[0];
    }
    assert_eq!(next, AHEAD_MAX);
    // One that has lost them begins anew.
    let fetched = worker.fetch(&app, TASK).await.unwrap();
    assert_eq!((fetched.records.len(), &fetched.next[..]), (1000, &[1000][..]));
    let commit = NewCommit {
        seq: 1,
        next: vec![Some(1000)],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, commit).await.unwrap();
    assert_eq!(fetch(next).await.records.len(), 1000);
}
