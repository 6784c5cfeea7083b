//! Damage in the log of a task stops this task by its name, and never resets it.

use std::sync::Arc;

use stafett_apps::{App, AppError, NewCommit, Reset, ResetTo, Start, TaskId};
use stafett_journal::Journal;
use stafett_journal::simulated::SimulatedDisk;

use crate::power::{open, run};
use crate::world::{Worker, World, definition, put};

const TASKS: [TaskId; 2] = [TaskId::whole(0), TaskId::whole(1)];
/// Value of an entry of task 0, which is found on the disk by it.
const PRECIOUS: &str = "a precious value";

fn commit(seq: u64, key: &str, value: &str) -> NewCommit {
    NewCommit {
        seq,
        entries: vec![put(key, value)],
        ..NewCommit::default()
    }
}

async fn play(world: &World) {
    world.topic("in", 2).await;
    let app = world.declare("app", definition(&["in"])).await;
    let worker = Worker::join(&app, "w").has(&app, 2).await;
    let [damaged, whole] = TASKS;
    worker
        .commit(&app, damaged, commit(1, "a", PRECIOUS))
        .await
        .unwrap();
    worker.commit(&app, whole, commit(1, "b", "other")).await.unwrap();
    for seq in 2..20 {
        worker
            .commit(&app, damaged, commit(seq, "c", "later"))
            .await
            .unwrap();
    }
    world.apps.finish().await;
}

/// Flips a bit of the value wherever it is on the disk.
fn damage(disk: &SimulatedDisk) {
    let mut flips = 0;
    for name in disk.names() {
        let contents = disk.contents(&name).unwrap();
        let found = contents
            .windows(PRECIOUS.len())
            .enumerate()
            .filter(|(_, bytes)| *bytes == PRECIOUS.as_bytes());
        for (at, _) in found {
            assert!(disk.flip_bit(&name, 8 * at as u64));
            flips += 1;
        }
    }
    assert!(flips > 0);
}

async fn check(world: &World) {
    let app: Arc<App> = world.apps.named("app").unwrap();
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    let [damaged, whole] = TASKS;
    assert!(
        worker.claims.contains_key(&whole),
        "it is not claimed: {:?}",
        worker.claims
    );
    for key in ["a", "c"] {
        let refused = app.get(damaged, "t", &[key.into()]).await;
        assert!(
            matches!(&refused, Err(AppError::Unreadable { task, why }) if *task == damaged && why.contains("damaged")),
            "{refused:?}"
        );
    }
    let shown = app.unreadable(damaged);
    assert!(shown.is_some_and(|why| why.contains("damaged")) && app.unreadable(whole).is_none());
    assert_eq!(worker.get(&app, whole, "b").await.as_deref(), Some("other"));
    let seq = app.position(whole).await.unwrap().seq + 1;
    worker
        .commit(&app, whole, commit(seq, "d", "goes on"))
        .await
        .unwrap();
    world.apps.finish().await;
}

#[test]
fn damage_in_the_log_of_a_task_stops_it_by_name_and_leaves_the_others() {
    let disk = SimulatedDisk::new();
    run(async {
        let journal = open(&disk, 1).unwrap();
        play(&World::on(&(journal as Arc<dyn Journal>))).await;
    });
    disk.kill();
    damage(&disk);
    // The same again after another start.
    for _ in 0..2 {
        run(async {
            let journal = open(&disk, 1).unwrap();
            check(&World::on(&(journal as Arc<dyn Journal>))).await;
        });
        disk.kill();
    }
    run(async {
        let journal = open(&disk, 1).unwrap();
        begin_anew(&World::on(&(journal as Arc<dyn Journal>))).await;
    });
}

/// A reset that drops the state is the way out.
async fn begin_anew(world: &World) {
    let app: Arc<App> = world.apps.named("app").unwrap();
    let [damaged, _] = TASKS;
    world.apps.pause("app", true).await.unwrap();
    let reset = Reset {
        to: ResetTo::Place(Start::Earliest),
        task: Some(damaged),
        drops_state: true,
    };
    world.apps.reset("app", reset).await.unwrap();
    world.apps.pause("app", false).await.unwrap();
    let worker = Worker::join(&app, "w").has(&app, 2).await;
    assert_eq!(app.unreadable(damaged), None);
    assert_eq!(worker.get(&app, damaged, "a").await, None);
    worker
        .commit(&app, damaged, commit(1, "a", "anew"))
        .await
        .unwrap();
    world.apps.finish().await;
}
