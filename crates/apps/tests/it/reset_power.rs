//! The power fails, or the broker is killed, at every change of the disk by a reset that keeps the state.

use std::sync::Arc;

use stafett_apps::{NewCommit, Reset, ResetTo, Start, TaskId};
use stafett_journal::Journal;
use stafett_journal::simulated::{Effect, Fault, SimulatedDisk};

use crate::power::{open, run};
use crate::world::{Worker, World, definition, put};

const TASK: TaskId = TaskId::whole(0);
const KEYS: [&str; 3] = ["a", "b", "c"];

fn world(disk: &SimulatedDisk, boot: u8) -> Option<World> {
    Some(World::on(&(open(disk, boot)? as Arc<dyn Journal>)))
}

/// A paused app that has done three records, whose keys are finished.
async fn prepare(world: &World) {
    world.topic("in", 1).await;
    world.send("in", &KEYS.map(|key| (key, "x", 1))).await;
    let app = world.declare("app", definition(&["in"])).await;
    let worker = Worker::join(&app, "w").has(&app, 1).await;
    worker.fetch(&app, TASK).await.unwrap();
    let done = NewCommit {
        seq: 1,
        next: vec![Some(3)],
        safe: vec![Some(0)],
        done: KEYS.map(|key| (key.into(), vec![Some(2)])).into(),
        entries: vec![put("kept", "1")],
        ..NewCommit::default()
    };
    worker.commit(&app, TASK, done).await.unwrap();
    app.leave(worker.session()).unwrap();
    world.apps.pause("app", true).await.unwrap();
}

async fn reset(world: &World) {
    let reset = Reset {
        to: ResetTo::Place(Start::Earliest),
        task: None,
        drops_state: false,
    };
    // It may not come to its end.
    drop(world.apps.reset("app", reset).await);
    world.apps.finish().await;
}

/// Either nothing of the reset has happened, or all of it: with a part of the finished keys, sessions would
/// come out twice, or never.
async fn check(disk: &SimulatedDisk, boot: u8) -> bool {
    let world = world(disk, boot).expect("it opens again");
    let app = world.apps.named("app").unwrap();
    let position = app.position(TASK).await.unwrap();
    let totals = app.known(TASK).unwrap().totals.unwrap();
    let is_reset = position.next == [0];
    let expected = if is_reset { (0, 0) } else { (3, KEYS.len()) };
    assert_eq!((position.next[0], totals.done), expected);
    assert_eq!(totals.entries, 1);
    world.apps.finish().await;
    is_reset
}

#[test]
fn a_reset_that_a_kill_or_a_loss_of_power_ends_has_happened_or_has_not() {
    let before = SimulatedDisk::new();
    run(async {
        let world = world(&before, 1).unwrap();
        prepare(&world).await;
        world.apps.finish().await;
    });
    before.kill();
    let whole = before.fork();
    run(async { reset(&world(&whole, 1).unwrap()).await });
    let changes = whole.changes();
    let mut outcomes = [0, 0];
    for change in before.changes() + 1..=changes {
        for effect in [Effect::PowerLoss, Effect::Kill { seed: change }] {
            let disk = before.fork();
            disk.set_fault(Some(Fault { change, effect }));
            run(async {
                if let Some(world) = world(&disk, 1) {
                    reset(&world).await;
                }
            });
            let boot = if effect == Effect::PowerLoss {
                disk.lose_power(change);
                2
            } else {
                disk.kill();
                1
            };
            run(async { outcomes[usize::from(check(&disk, boot).await)] += 1 });
        }
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "{outcomes:?}");
}
