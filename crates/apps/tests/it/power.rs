//! The power fails, or the broker is killed, at every change of the disk.

use std::sync::Arc;
use std::time::Duration;

use stafett_apps::machine::JoinSpec;
use stafett_apps::{App, AppError, Claim, NewCommit, Session, Start, TaskId};
use stafett_journal::simulated::{Effect, Fault, SimulatedDisk};
use stafett_journal::{DiskJournal, Journal, Metrics, Settings};
use stafett_topics::{NewTopic, TopicSettings};

use crate::world::{ALL, World, definition, put, result};

const COMMITS: u64 = 5;
const EACH: u64 = 3;
const TASK: TaskId = TaskId::whole(0);

pub(crate) fn open(disk: &SimulatedDisk, boot: u8) -> Option<Arc<DiskJournal>> {
    let settings = Settings {
        segment_bytes: 64 << 10,
        disk_free_bytes_min: 0,
        boot: [boot; 16],
        ..Settings::default()
    };
    DiskJournal::open_on(disk.storage(), settings, Metrics::new())
        .ok()
        .map(Arc::new)
}

/// Joins as a worker and waits for the task. `None` if the journal has failed.
async fn claim(app: &Arc<App>, journal: &dyn Journal) -> Option<(u64, Claim)> {
    let spec = JoinSpec {
        weight: 1,
        tasks_max: None,
        deliver: true,
        eager: false,
    };
    let number = app.join("w", spec).ok()?.session;
    let session = Session::new("w", number);
    loop {
        let wait = tokio::time::sleep(Duration::from_millis(20));
        let events = app.poll(session, 0, 10, wait).await.ok()?;
        if !events.is_empty() {
            let epoch = app.with_machine(|machine| machine.task(TASK))?.epoch;
            return Some((number, Claim { task: TASK, epoch }));
        }
        journal.failure().is_none().then_some(())?;
    }
}

/// Sums the records, a few in a commit. Returns the number of acknowledged commits.
async fn play(journal: Arc<DiskJournal>) -> u64 {
    let world = World::on(&(Arc::clone(&journal) as Arc<dyn Journal>));
    let acknowledged = work(&world, &*journal)
        .await
        .unwrap_or_else(|acknowledged| acknowledged);
    world.apps.finish().await;
    acknowledged
}

async fn work(world: &World, journal: &dyn Journal) -> Result<u64, u64> {
    for name in ["in", "out"] {
        let new = NewTopic {
            name: name.into(),
            partitions: Some(1),
            settings: TopicSettings::default(),
        };
        world
            .catalog
            .create(vec![new])
            .await
            .remove(0)
            .map_err(|_| 0_u64)?;
    }
    let values: Vec<String> = (0..COMMITS * EACH).map(|value| value.to_string()).collect();
    let records: Vec<_> = values.iter().map(|value| ("k", &**value, 1)).collect();
    world.try_send("in", &records).await.ok_or(0_u64)?;
    let declared = world
        .apps
        .declare("app", definition(&["in"]), Start::Earliest)
        .await;
    let (app, _) = declared.map_err(|_| 0_u64)?;
    let (number, claim) = claim(&app, journal).await.ok_or(0_u64)?;
    let session = Session::new("w", number);
    let fetched = app
        .fetch(session, claim, &[], ALL, std::future::ready(()))
        .await
        .map_err(|_| 0_u64)?;
    assert_eq!(fetched.records.len() as u64, COMMITS * EACH);
    for seq in 1..=COMMITS {
        let stored: Result<_, AppError> = app.commit(session, claim, commit(seq)).await;
        stored.map_err(|_| seq - 1)?;
    }
    Ok(COMMITS)
}

fn sum(commits: u64) -> String {
    (0..commits * EACH).sum::<u64>().to_string()
}

fn commit(seq: u64) -> NewCommit {
    NewCommit {
        seq,
        next: vec![Some(seq * EACH)],
        entries: vec![put("sum", &sum(seq)), put(&seq.to_string(), "x")],
        emit: vec![result("out", &sum(seq))],
        ..NewCommit::default()
    }
}

/// Checks that position, state and results are those of the same commit, and that none is lost.
async fn check(disk: &SimulatedDisk, boot: u8, acknowledged: u64) {
    let journal = open(disk, boot).expect("it opens again");
    let world = World::on(&(Arc::clone(&journal) as Arc<dyn Journal>));
    let Ok(app) = world.apps.named("app") else {
        assert_eq!(acknowledged, 0, "the app is gone");
        return;
    };
    let (number, claim) = claim(&app, &*journal).await.expect("the disk is sound again");
    let session = Session::new("w", number);
    let view = app.claim_view(session, claim).unwrap();
    let seq = view.position.seq;
    assert!((acknowledged..=COMMITS).contains(&seq), "{seq} of {acknowledged}");
    assert_eq!(view.position.next, [seq * EACH]);
    let expected: Vec<String> = (1..=seq).map(sum).collect();
    assert_eq!(world.values("out", 0).await, expected);
    let (values, _) = app.get(TASK, "t", &["sum".into()]).await.unwrap();
    let stored = values[0].as_ref().map(|entry| entry.value.to_vec());
    assert_eq!(stored, (seq > 0).then(|| sum(seq).into_bytes()));
    let entries = if seq > 0 {
        usize::try_from(seq).unwrap() + 1
    } else {
        0
    };
    assert_eq!(view.totals.entries, entries);
    // It goes on from there.
    if seq < COMMITS {
        app.fetch(session, claim, &[], ALL, std::future::ready(()))
            .await
            .unwrap();
        app.commit(session, claim, commit(seq + 1)).await.unwrap();
    }
    world.apps.finish().await;
}

pub(crate) fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(work);
}

#[test]
fn whatever_a_kill_or_a_loss_of_power_leaves_is_whole() {
    let whole = SimulatedDisk::new();
    run(async {
        assert_eq!(play(open(&whole, 1).unwrap()).await, COMMITS);
    });
    let changes = whole.changes();
    assert!(changes > 20, "{changes} changes");
    for change in 1..=changes {
        for effect in [Effect::PowerLoss, Effect::Kill { seed: change }] {
            let disk = SimulatedDisk::new();
            disk.set_fault(Some(Fault { change, effect }));
            run(async {
                let acknowledged = match open(&disk, 1) {
                    Some(journal) => play(journal).await,
                    None => 0,
                };
                let boot = if effect == Effect::PowerLoss {
                    disk.lose_power(change);
                    2
                } else {
                    disk.kill();
                    1
                };
                check(&disk, boot, acknowledged).await;
            });
        }
    }
}
