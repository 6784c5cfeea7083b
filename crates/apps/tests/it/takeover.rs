//! Workers that fall silent, come back too late, and hand over.

use std::time::Duration;

use stafett_apps::machine::{EventKind, WorkerError};
use stafett_apps::{AppError, NewCommit, TaskId};

use crate::world::{Worker, World, definition, put, result};

fn first(next: u64) -> NewCommit {
    NewCommit {
        seq: 1,
        next: vec![Some(next)],
        entries: vec![put("sum", "3")],
        emit: vec![result("out", "3")],
        ..NewCommit::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_workers_task_goes_to_another_with_its_state_and_its_commits_are_refused() {
    let world = World::new();
    world.topic("in", 1).await;
    world.topic("out", 1).await;
    world
        .send("in", &[("a", "1", 1), ("a", "2", 2), ("a", "3", 3)])
        .await;
    let app = world.declare("app", definition(&["in"])).await;
    let task = TaskId::whole(0);
    let zombie = Worker::join(&app, "zombie").has(&app, 1).await;
    zombie.fetch(&app, task).await.unwrap();
    zombie.commit(&app, task, first(2)).await.unwrap();
    let other = Worker::join(&app, "other");
    let waiting = tokio::time::Instant::now();
    let other = other.has(&app, 1).await;
    let took = waiting.elapsed();
    assert!(
        took >= Duration::from_secs(9) && took < Duration::from_secs(11),
        "{took:?}"
    );
    assert!(matches!(other.told[0], EventKind::Claimed { epoch: 2, .. }));
    assert_eq!(other.get(&app, task, "sum").await.as_deref(), Some("3"));
    let late = NewCommit {
        seq: 2,
        next: vec![Some(3)],
        emit: vec![result("out", "6, by the zombie")],
        ..NewCommit::default()
    };
    let refused = zombie.commit(&app, task, late.clone()).await.unwrap_err();
    assert_eq!(refused, AppError::Worker(WorkerError::NoSuchWorker));
    // Also if it joins again and goes on under its old claim.
    let back = Worker::join(&app, "zombie");
    let zombie = Worker {
        session: back.session,
        ..zombie
    };
    let refused = zombie.commit(&app, task, late).await.unwrap_err();
    assert!(
        matches!(refused, AppError::Worker(WorkerError::LostClaim { epoch: 2, .. })),
        "{refused:?}"
    );
    let fetched = other.fetch(&app, task).await.unwrap();
    assert_eq!(fetched.records.len(), 1, "it goes on where the other was");
    let next = NewCommit {
        seq: 2,
        next: vec![Some(3)],
        emit: vec![result("out", "6")],
        ..NewCommit::default()
    };
    other.commit(&app, task, next).await.unwrap();
    assert_eq!(world.values("out", 0).await, ["3", "6"]);
}

#[tokio::test]
async fn the_journal_refuses_a_commit_under_an_epoch_that_another_has_followed() {
    let world = World::new();
    world.topic("in", 1).await;
    world.topic("out", 1).await;
    world.send("in", &[("a", "1", 1), ("a", "2", 2)]).await;
    let app = world.declare("app", definition(&["in"])).await;
    let task = TaskId::whole(0);
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    worker.fetch(&app, task).await.unwrap();
    // A later owner, of which this process knows nothing.
    let log = app.stored().tasks[&task].log;
    let owner = stafett_journal::OwnerEpoch(7);
    let claim = stafett_journal::Frame::Claim { log, owner };
    let append = stafett_journal::Append::state([claim], stafett_journal::StateWait::Synced);
    world.catalog.append(vec![append]).await;
    let refused = worker.commit(&app, task, first(2)).await.unwrap_err();
    assert!(
        matches!(refused, AppError::Worker(WorkerError::LostClaim { .. })),
        "{refused:?}"
    );
    assert!(world.values("out", 0).await.is_empty(), "nothing of it is stored");
}

/// The machine learns of the later owner by the refusal, and goes on behind it.
#[tokio::test(start_paused = true)]
async fn a_claim_that_the_journal_has_ended_is_followed_by_another_at_once() {
    let world = World::new();
    world.topic("in", 1).await;
    world.topic("out", 1).await;
    world.send("in", &[("a", "1", 1), ("a", "2", 2)]).await;
    let app = world.declare("app", definition(&["in"])).await;
    let task = TaskId::whole(0);
    let mut worker = Worker::join(&app, "w").has(&app, 1).await;
    worker.fetch(&app, task).await.unwrap();
    let log = app.stored().tasks[&task].log;
    let owner = stafett_journal::OwnerEpoch(7);
    let claim = stafett_journal::Frame::Claim { log, owner };
    let append = stafett_journal::Append::state([claim], stafett_journal::StateWait::Synced);
    world.catalog.append(vec![append]).await;
    worker.commit(&app, task, first(2)).await.unwrap_err();
    while worker.claims.get(&task) != Some(&8) {
        let told = worker.told.len();
        worker.poll(&app).await;
        assert!(worker.told.len() > told, "nothing comes: {:?}", worker.told);
    }
    worker.fetch(&app, task).await.unwrap();
    worker.commit(&app, task, first(2)).await.unwrap();
    assert_eq!(world.values("out", 0).await, ["3"]);
}

#[tokio::test]
async fn a_task_is_handed_over_between_two_commits() {
    let world = World::new();
    world.topic("in", 2).await;
    let app = world.declare("app", definition(&["in"])).await;
    let one = Worker::join(&app, "one").has(&app, 2).await;
    let two = Worker::join(&app, "two");
    let mut one = one;
    while !matches!(one.told.last(), Some(EventKind::Revoke { .. })) {
        one.poll(&app).await;
    }
    let Some(EventKind::Revoke { task, epoch, .. }) = one.told.last().cloned() else {
        unreachable!("it was told");
    };
    let last = NewCommit {
        seq: 1,
        entries: vec![put("a", "last words")],
        ..NewCommit::default()
    };
    one.commit(&app, task, last).await.unwrap();
    app.release(one.session(), stafett_apps::Claim { task, epoch })
        .await
        .unwrap();
    let two = two.has(&app, 1).await;
    assert_eq!(two.get(&app, task, "a").await.as_deref(), Some("last words"));
    let after = NewCommit {
        seq: 2,
        ..NewCommit::default()
    };
    let refused = one.commit(&app, task, after.clone()).await.unwrap_err();
    assert!(
        matches!(refused, AppError::Worker(WorkerError::LostClaim { .. })),
        "{refused:?}"
    );
    two.commit(&app, task, after).await.unwrap();
}
