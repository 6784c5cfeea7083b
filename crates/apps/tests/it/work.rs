//! Records, state, timers and commits of one worker.

use bytes::Bytes;
use stafett_apps::machine::JoinSpec;
use stafett_apps::{AppError, Claim, NewCommit, Session, Start, TaskId};
use stafett_model::Offset;

use crate::world::{Worker, World, definition, delete, put, result};

const TASK: TaskId = TaskId::whole(0);
const SPEC: JoinSpec = JoinSpec {
    weight: 1,
    tasks_max: None,
    deliver: true,
    eager: false,
};

fn keys(fetched: &stafett_apps::Fetched) -> Vec<String> {
    let key =
        |it: &stafett_apps::Delivered| String::from_utf8(it.record.key.clone().unwrap().to_vec()).unwrap();
    fetched.records.iter().map(key).collect()
}

#[tokio::test]
async fn a_commit_stores_position_state_and_results_together() {
    let world = World::new();
    world.topic("in", 1).await;
    world.topic("out", 1).await;
    world
        .send("in", &[("a", "1", 1), ("b", "2", 2), ("a", "3", 3)])
        .await;
    let app = world.declare("sum", definition(&["in"])).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let fetched = worker.fetch(&app, TASK).await.unwrap();
    assert_eq!(
        (keys(&fetched), &fetched.next),
        (vec!["a".into(), "b".into(), "a".into()], &vec![3])
    );
    let commit = NewCommit {
        seq: 1,
        next: vec![Some(3)],
        entries: vec![put("a", "4"), put("b", "2")],
        emit: vec![result("out", "a=4"), result("out", "b=2")],
        ..NewCommit::default()
    };
    let committed = worker.commit(&app, TASK, commit.clone()).await.unwrap();
    assert_eq!((committed.emitted[0].base, committed.emitted[0].count), (0, 2));
    assert_eq!(worker.get(&app, TASK, "a").await.as_deref(), Some("4"));
    let again = worker.commit(&app, TASK, commit.clone()).await.unwrap();
    assert!(again.repeated, "a lost answer is harmless");
    assert_eq!(world.values("out", 0).await, ["a=4", "b=2"]);
    assert!(worker.fetch(&app, TASK).await.unwrap().records.is_empty());

    let world = world.killed();
    let app = world.apps.named("sum").unwrap();
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    assert_eq!(worker.claims[&TASK], 2, "epochs are stored");
    let view = app.claim_view(worker.session(), worker.claim(TASK)).unwrap();
    assert_eq!(
        (view.position.seq, &view.position.next, view.totals.entries),
        (1, &vec![3], 2)
    );
    assert_eq!(worker.get(&app, TASK, "a").await.as_deref(), Some("4"));
    let deleted = NewCommit {
        seq: 2,
        entries: vec![delete("a"), delete("none")],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, deleted).await.unwrap();
    assert_eq!(worker.get(&app, TASK, "a").await, None);
    let (scan, seq) = app.scan(TASK, "t", b"", None, 10).await.unwrap();
    assert_eq!(
        (scan.entries.len(), &scan.entries[0].key[..], seq),
        (1, &b"b"[..], 2)
    );
}

#[tokio::test]
async fn a_later_session_goes_on_behind_a_commit_of_the_earlier_one_that_was_under_way() {
    for turns in 0..12 {
        let world = World::new();
        world.topic("in", 1).await;
        world.send("in", &[("a", "1", 1)]).await;
        let app = world.declare("sum", definition(&["in"])).await;
        let worker = Worker::join(&app, "w").has(&app, 1).await;
        worker.fetch(&app, TASK).await.unwrap();
        let commit = NewCommit {
            seq: 1,
            next: vec![Some(1)],
            ..NewCommit::default()
        };
        let under_way = app.commit(worker.session(), worker.claim(TASK), commit);
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        let joined = app.join("w", SPEC).unwrap();
        app.settled(&joined).await;
        let session = Session::new("w", joined.session);
        let (task, epoch) = joined.resumed[0];
        let view = app.claim_view(session, Claim { task, epoch }).unwrap();
        let is_stored = under_way.await.is_ok();
        assert_eq!(view.position.seq, u64::from(is_stored), "after {turns} turns");
    }
}

#[tokio::test]
async fn commits_out_of_order_or_beyond_what_was_delivered_are_refused() {
    let world = World::new();
    world.topic("in", 1).await;
    world.send("in", &[("a", "1", 1), ("b", "2", 2)]).await;
    let app = world.declare("app", definition(&["in"])).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let at = |seq, next| NewCommit {
        seq,
        next: vec![Some(next)],
        ..NewCommit::default()
    };
    let beyond = worker.commit(&app, TASK, at(1, 1)).await.unwrap_err();
    assert!(
        matches!(beyond, AppError::BadOffset { from: 0, to: 0, .. }),
        "{beyond:?}"
    );
    worker.fetch(&app, TASK).await.unwrap();
    for seq in [0, 2] {
        let refused = worker.commit(&app, TASK, at(seq, 1)).await.unwrap_err();
        assert!(
            matches!(refused, AppError::OutOfOrder { expected: 1, .. }),
            "{refused:?}"
        );
    }
    worker.commit(&app, TASK, at(1, 1)).await.unwrap();
    for next in [0, 3] {
        let refused = worker.commit(&app, TASK, at(2, next)).await.unwrap_err();
        assert!(
            matches!(refused, AppError::BadOffset { from: 1, to: 2, .. }),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn of_a_commit_with_a_mistake_nothing_is_stored() {
    let world = World::new();
    world.topic("in", 1).await;
    world.send("in", &[("a", "1", 1), ("b", "2", 2)]).await;
    let app = world.declare("app", definition(&["in"])).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    worker.fetch(&app, TASK).await.unwrap();
    let at = |seq, next| NewCommit {
        seq,
        next: vec![Some(next)],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, at(1, 1)).await.unwrap();
    let bad = |change: fn(&mut NewCommit)| {
        let mut commit = at(2, 2);
        change(&mut commit);
        worker.commit(&app, TASK, commit)
    };
    let refused = bad(|it| it.entries = vec![put("a", "1"), delete("a")])
        .await
        .unwrap_err();
    assert!(
        matches!(refused, AppError::Bad { field: "put", .. }),
        "{refused:?}"
    );
    let refused = bad(|it| {
        it.entries = vec![stafett_apps::NewEntry {
            table: "no".into(),
            ..put("a", "1")
        }];
    })
    .await;
    assert_eq!(refused.unwrap_err(), AppError::NoSuchTable("no".into()));
    let refused = bad(|it| it.emit = vec![result("nowhere", "1")]).await;
    assert_eq!(refused.unwrap_err(), AppError::NoSuchTopic("nowhere".into()));
    let refused = bad(|it| it.entries = vec![put(&"k".repeat(32 << 10 | 1), "1")]).await;
    assert!(
        matches!(refused, Err(AppError::TooLarge { what: "a key", .. })),
        "{refused:?}"
    );
    let refused = bad(|it| it.done = vec![("a".into(), vec![Some(2)])]).await;
    assert!(
        matches!(
            refused,
            Err(AppError::BadOffset {
                field: "done",
                to: 1,
                ..
            })
        ),
        "{refused:?}"
    );
    // Nothing of all that was stored.
    worker.commit(&app, TASK, at(2, 2)).await.unwrap();
    let view = app.claim_view(worker.session(), worker.claim(TASK)).unwrap();
    assert_eq!((view.position.next, view.totals.entries), (vec![2], 0));
}

/// Figure 4.3 of the paper: fragments 1 to 8 of sessions s1 to s4.
#[tokio::test]
async fn finished_sessions_are_left_out_after_a_restart() {
    let world = World::new();
    world.topic("in", 1).await;
    let fragments = ["-", "s2", "s1", "s1", "s3", "s2", "s4", "s3", "s2"];
    let records: Vec<_> = fragments.iter().map(|key| (*key, "x", 1)).collect();
    world.send("in", &records).await;
    let app = world.declare("assemble", definition(&["in"])).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    worker.fetch(&app, TASK).await.unwrap();
    let commit = |seq, last: u64, safe, key: &'static str| NewCommit {
        seq,
        next: vec![Some(last + 1)],
        safe: vec![Some(safe)],
        done: vec![(Bytes::from_static(key.as_bytes()), vec![Some(last)])],
        ..NewCommit::default()
    };
    let done = || {
        let view = app.claim_view(worker.session(), worker.claim(TASK)).unwrap();
        let mut done: Vec<_> = view.done.into_iter().map(|(key, _)| key).collect();
        done.sort();
        (view.position.safe[0], done)
    };
    worker.commit(&app, TASK, commit(1, 3, 1, "s1")).await.unwrap();
    assert_eq!(done(), (1, vec!["s1".into()]));
    worker.commit(&app, TASK, commit(2, 7, 1, "s3")).await.unwrap();
    assert_eq!(done(), (1, vec!["s1".into(), "s3".into()]), "s2 is open");
    let world = world.killed();
    let app = world.apps.named("assemble").unwrap();
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let fetched = worker.fetch(&app, TASK).await.unwrap();
    let again: Vec<_> = fetched.records.iter().map(|it| it.record.offset.0).collect();
    assert_eq!(
        (again, fetched.passed.ignored),
        (vec![1, 5, 6, 8], 4),
        "s2 and s4 alone are rebuilt"
    );
    worker.commit(&app, TASK, commit(3, 8, 6, "s2")).await.unwrap();
    let view = app.claim_view(worker.session(), worker.claim(TASK)).unwrap();
    let mut done: Vec<_> = view.done.into_iter().map(|(key, _)| key).collect();
    done.sort();
    assert_eq!((view.position.safe[0], done), (6, vec!["s2".into(), "s3".into()]));
}

#[tokio::test]
async fn timers_come_when_the_records_reach_them_and_survive_a_kill() {
    let world = World::new();
    world.topic("in", 1).await;
    world
        .send(
            "in",
            &[
                ("a", "1", 100),
                ("a", "2", 200),
                ("a", "3", 5000),
                ("a", "4", 6000),
            ],
        )
        .await;
    let mut wanted = definition(&["in"]);
    wanted.time.idle_ms = u64::MAX;
    let app = world.declare("app", wanted).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    worker.fetch(&app, TASK).await.unwrap();
    let timer = |key: &'static str, due| (Bytes::from(key), Bytes::new(), due);
    let set = NewCommit {
        seq: 1,
        next: vec![Some(1)],
        timers: vec![
            timer("late", Some(9000)),
            timer("a", Some(900)),
            timer("a", Some(1000)),
            timer("b", None),
        ],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, set).await.unwrap();
    let world = world.killed();
    let app = world.apps.named("app").unwrap();
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let first = worker.fetch(&app, TASK).await.unwrap();
    assert_eq!(
        (first.records.len(), first.next[0]),
        (2, 3),
        "the delivery ends where the timer falls due"
    );
    let claim = worker.claim(TASK);
    let further = [Some(3)];
    let wait = std::future::ready(());
    let second = app
        .fetch(worker.session(), claim, &further, crate::world::ALL, wait)
        .await
        .unwrap();
    let due: Vec<_> = second
        .due
        .iter()
        .map(|timer| (&timer.key[..], timer.due))
        .collect();
    assert_eq!((due, second.records.len()), (vec![(&b"a"[..], 1000)], 1));
    // It was not cleared, so it comes again after the commit.
    let done = NewCommit {
        seq: 2,
        next: vec![Some(3)],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, done).await.unwrap();
    assert_eq!(worker.fetch(&app, TASK).await.unwrap().due.len(), 1);
    let cleared = NewCommit {
        seq: 3,
        timers: vec![timer("a", None)],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, cleared).await.unwrap();
    assert!(worker.fetch(&app, TASK).await.unwrap().due.is_empty());
}

#[tokio::test]
async fn a_gap_stops_the_task_until_it_is_accepted() {
    let world = World::new();
    world.topic("in", 1).await;
    world
        .send(
            "in",
            &[("a", "1", 1), ("a", "2", 2), ("a", "3", 3), ("a", "4", 4)],
        )
        .await;
    let app = world.declare("app", definition(&["in"])).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    worker.fetch(&app, TASK).await.unwrap();
    let one = NewCommit {
        seq: 1,
        next: vec![Some(1)],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, one).await.unwrap();
    let log = world.catalog.topics().named("in").unwrap().log(0).unwrap();
    world.catalog.truncate(&[(log, Offset(3))]).await;
    for _ in 0..2 {
        let stopped = worker.fetch(&app, TASK).await.unwrap_err();
        assert!(
            matches!(stopped, AppError::Gap { from: 1, to: 3, .. }),
            "{stopped:?}"
        );
    }
    assert_eq!(app.accept_gap(TASK).unwrap().map(|gap| gap.to), Some(3));
    let fetched = worker.fetch(&app, TASK).await.unwrap();
    assert_eq!((fetched.records.len(), fetched.next[0]), (1, 4));
}

#[tokio::test]
async fn declarations_are_checked_and_deletion_waits_for_workers() {
    let world = World::new();
    world.topic("in", 2).await;
    world.topic("other", 3).await;
    let declare = |definition| world.apps.declare("app", definition, Start::Latest);
    let refused = declare(definition(&["in", "other"])).await.unwrap_err();
    assert!(
        matches!(
            refused,
            AppError::NotCopartitioned {
                partitions: 2,
                others: 3,
                ..
            }
        ),
        "{refused:?}"
    );
    assert_eq!(
        declare(definition(&["no"])).await.unwrap_err(),
        AppError::NoSuchTopic("no".into())
    );
    world.send("in", &[("a", "1", 1)]).await;
    assert!(declare(definition(&["in"])).await.unwrap().1);
    assert!(!declare(definition(&["in"])).await.unwrap().1);
    let mut other = definition(&["in"]);
    other.revoke_ms = 1;
    assert_eq!(
        declare(other).await.unwrap_err(),
        AppError::ExistsDifferently("revoke_ms")
    );
    let app = world.apps.named("app").unwrap();
    let worker = Worker::join(&app, "w").has(&app, 2).await;
    for task in worker.claims.keys() {
        assert!(
            worker.fetch(&app, *task).await.unwrap().records.is_empty(),
            "it begins at the end"
        );
    }
    assert_eq!(world.apps.delete("app", false).await, Err(AppError::InUse));
    world.apps.pause("app", true).await.unwrap();
    assert_eq!(worker.fetch(&app, TASK).await.unwrap_err(), AppError::Paused);
    assert_eq!(world.apps.delete("app", true).await, Ok(()));
    let late = worker
        .commit(
            &app,
            TASK,
            NewCommit {
                seq: 1,
                ..NewCommit::default()
            },
        )
        .await;
    assert_eq!(late.unwrap_err(), AppError::NoSuchApp);
    assert!(world.killed().apps.all().is_empty());
}
