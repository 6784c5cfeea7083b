//! State is read while tasks are split and merged: no reader sees the moment between.

use std::sync::Arc;

use stafett_apps::machine::WorkerError;
use stafett_apps::{App, AppError, NewCommit, TaskId};
use stafett_journal::Journal;
use stafett_journal::simulated::SimulatedDisk;
use tokio_util::sync::CancellationToken;

use crate::power::{open, run};
use crate::world::{Worker, World, definition, put};

const WHOLE: TaskId = TaskId::whole(0);
const ROUNDS: usize = 20;

/// Reads an entry in all ways until the end. Returns the number of reads that found it.
async fn read(app: Arc<App>, over: CancellationToken) -> usize {
    let slices = || app.stored().tasks.keys().copied().collect::<Vec<_>>();
    let mut found = 0;
    while !over.is_cancelled() {
        let tasks = slices();
        let task = tasks
            .iter()
            .find(|task| task.slice().has(Some(b"k")))
            .copied()
            .unwrap();
        let keys = ["k".into()];
        let got = app
            .get(task, "t", &keys)
            .await
            .map(|(values, _)| values[0].is_some());
        let scanned = app.scan(task, "t", b"", None, 10).await;
        let scanned = scanned.map(|(scan, _)| scan.entries.iter().any(|entry| entry.key == "k"));
        tokio::task::yield_now().await;
        for is_there in [got, scanned] {
            match is_there {
                Ok(is_there) => found += usize::from(is_there),
                Err(why) => assert_eq!(why, AppError::NoSuchTask(task), "it was split or merged"),
            }
        }
    }
    found
}

#[test]
fn a_reader_sees_a_task_or_the_one_that_followed() {
    let disk = SimulatedDisk::new();
    run(async {
        let journal = open(&disk, 1).unwrap();
        let world = World::on(&(Arc::clone(&journal) as Arc<dyn Journal>));
        world.topic("in", 1).await;
        world.send("in", &[("k", "x", 1)]).await;
        let app = world.declare("app", definition(&["in"])).await;
        let worker = Worker::join(&app, "w").has(&app, 1).await;
        let commit = NewCommit {
            seq: 1,
            entries: vec![put("k", "1")],
            ..NewCommit::default()
        };
        worker.commit(&app, WHOLE, commit).await.unwrap();
        let over = CancellationToken::new();
        let readers: Vec<_> = (0..4)
            .map(|_| tokio::spawn(read(Arc::clone(&app), over.clone())))
            .collect();
        for _ in 0..ROUNDS {
            world.apps.split("app", WHOLE, 2).await.unwrap();
            worker.beat(&app);
            world.apps.merge("app", WHOLE).await.unwrap();
        }
        over.cancel();
        for reader in readers {
            assert!(reader.await.unwrap() > 0);
        }
        // A fetch under way hears that its claim is over.
        let worker = Worker::join(&app, "w").has(&app, 1).await;
        let waiting = {
            let (app, worker) = (Arc::clone(&app), worker.clone());
            tokio::spawn(async move { worker.fetch(&app, WHOLE).await })
        };
        let cut = world.apps.split("app", WHOLE, 2);
        let fetched = waiting.await.unwrap();
        assert!(
            matches!(
                fetched,
                Ok(_) | Err(AppError::Worker(WorkerError::LostClaim { .. }))
            ),
            "{fetched:?}"
        );
        cut.await.unwrap();
        world.apps.finish().await;
    });
}
