//! Commits of several tasks at once.

use std::sync::Arc;

use stafett_apps::machine::WorkerError;
use stafett_apps::{App, AppError, Claim, Emitted, NewCommit, TaskId};

use crate::world::{Worker, World, definition, put, result};

const ONE: TaskId = TaskId::whole(0);
const OTHER: TaskId = TaskId::whole(1);

async fn world() -> (World, Arc<App>, Worker) {
    let world = World::new();
    world.topic("in", 2).await;
    world.topic("out", 1).await;
    let app = world.declare("app", definition(&["in"])).await;
    let worker = Worker::join(&app, "w").has(&app, 2).await;
    (world, app, worker)
}

fn commit(seq: u64, value: &str) -> NewCommit {
    NewCommit {
        seq,
        entries: vec![put("k", value)],
        emit: vec![result("out", value)],
        ..NewCommit::default()
    }
}

#[tokio::test]
async fn commits_of_several_tasks_are_stored_together() {
    let (world, app, worker) = world().await;
    let (one, other) = (worker.claim(ONE), worker.claim(OTHER));
    let commits = vec![(other, commit(1, "b")), (one, commit(1, "a"))];
    let stored = app
        .commit_together(worker.session(), commits.clone())
        .await
        .unwrap();
    let place = |base| Emitted {
        topic: "out".into(),
        partition: 0,
        base,
        count: 1,
    };
    let places: Vec<_> = stored.iter().flat_map(|it| it.emitted.clone()).collect();
    assert_eq!(places, [place(0), place(1)]);
    assert_eq!(
        world.values("out", 0).await,
        ["b", "a"],
        "in the order of the request"
    );
    let again = app.commit_together(worker.session(), commits).await.unwrap();
    assert!(again.iter().all(|it| it.repeated && it.seq == 1));

    let world = world.killed();
    let app = world.apps.named("app").unwrap();
    let worker = Worker::join(&app, "w").has(&app, 2).await;
    assert_eq!(worker.get(&app, ONE, "k").await.as_deref(), Some("a"));
    assert_eq!(worker.get(&app, OTHER, "k").await.as_deref(), Some("b"));
    assert_eq!(world.values("out", 0).await, ["b", "a"]);
}

#[tokio::test]
async fn nothing_is_stored_if_one_of_them_is_refused() {
    let (world, app, worker) = world().await;
    let (one, other) = (worker.claim(ONE), worker.claim(OTHER));
    let refused = async |commits: Vec<(Claim, NewCommit)>| {
        let refused = app.commit_together(worker.session(), commits).await;
        refused.unwrap_err()
    };
    let first = (one, commit(1, "a"));
    let lost = Claim { epoch: 7, ..other };
    let why = refused(vec![first.clone(), (lost, commit(1, "b"))]).await;
    assert!(
        matches!(why, AppError::Worker(WorkerError::LostClaim { .. })),
        "{why:?}"
    );
    let why = refused(vec![first.clone(), (other, commit(2, "b"))]).await;
    assert!(matches!(why, AppError::OutOfOrder { expected: 1, .. }), "{why:?}");
    for commits in [Vec::new(), vec![first.clone(), first.clone()]] {
        let why = refused(commits).await;
        assert!(matches!(why, AppError::Bad { field: "tasks", .. }), "{why:?}");
    }
    assert!(world.values("out", 0).await.is_empty());
    // One that was stored alone is no part of another request.
    worker.commit(&app, ONE, commit(1, "a")).await.unwrap();
    let why = refused(vec![first, (other, commit(1, "b"))]).await;
    assert!(
        matches!(
            why,
            AppError::OutOfOrder {
                task: ONE,
                expected: 2,
                given: 1
            }
        ),
        "{why:?}"
    );
    assert_eq!(world.values("out", 0).await, ["a"]);
    // A later owner of one log refuses all.
    let log = app.stored().tasks[&OTHER].log;
    let owner = stafett_journal::OwnerEpoch(9);
    let frame = stafett_journal::Frame::Claim { log, owner };
    let append = stafett_journal::Append::state([frame], stafett_journal::StateWait::Synced);
    world.catalog.append(vec![append]).await;
    let why = refused(vec![(one, commit(2, "a2")), (other, commit(1, "b"))]).await;
    assert!(
        matches!(&why, AppError::Worker(WorkerError::LostClaim { task: OTHER, .. })),
        "{why:?}"
    );
    assert_eq!(world.values("out", 0).await, ["a"]);
    worker.commit(&app, ONE, commit(2, "a2")).await.unwrap();
}
