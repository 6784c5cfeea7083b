//! The power fails, or the broker is killed, at every change of the disk while tasks are split and merged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use stafett_apps::machine::JoinSpec;
use stafett_apps::{App, Claim, FetchLimits, NewCommit, Session, Start, TaskId};
use stafett_journal::simulated::{Effect, Fault, SimulatedDisk};
use stafett_journal::{DiskJournal, Journal};
use stafett_topics::{NewTopic, TopicSettings};

use crate::power::{open, run};
use crate::world::{World, definition, put, result};

const KEYS: usize = 6;
const RECORDS: usize = 18;
const WHOLE: TaskId = TaskId::whole(0);

fn task(name: &str) -> TaskId {
    name.parse().unwrap()
}

fn key(record: usize) -> String {
    format!("k{}", record % KEYS)
}

/// A worker that has all tasks of the app.
struct Only<'a> {
    world: &'a World,
    app: Arc<App>,
    number: u64,
}

impl<'a> Only<'a> {
    /// `None` if the journal has failed.
    fn join(world: &'a World) -> Option<Self> {
        let spec = JoinSpec {
            weight: 1,
            tasks_max: None,
            deliver: true,
            eager: false,
        };
        let app = world.apps.named("app").ok()?;
        let number = app.join("w", spec).ok()?.session;
        Some(Self { world, app, number })
    }

    fn session(&self) -> Session<'_> {
        Session::new("w", self.number)
    }

    /// Waits for the claim of a task.
    async fn claim(&self, task: TaskId, journal: &dyn Journal) -> Option<Claim> {
        loop {
            let known = self.app.with_machine(|machine| machine.task(task))?;
            let claim = Claim {
                task,
                epoch: known.epoch,
            };
            if self.app.check(self.session(), claim).is_ok() {
                return Some(claim);
            }
            journal.failure().is_none().then_some(())?;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Counts up to `max` records of a task by key, and commits. Returns their number.
    async fn count(&self, task: TaskId, max: usize, journal: &dyn Journal) -> Option<usize> {
        let claim = self.claim(task, journal).await?;
        let limits = FetchLimits {
            records: max,
            bytes: 1 << 20,
        };
        let fetched = self
            .app
            .fetch(self.session(), claim, &[], limits, std::future::ready(()))
            .await
            .ok()?;
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        let mut commit = NewCommit {
            seq: self.app.position(task).await.ok()?.seq + 1,
            next: fetched.next.iter().copied().map(Some).collect(),
            ..NewCommit::default()
        };
        for it in &fetched.records {
            let key = String::from_utf8(it.record.key.clone()?.to_vec()).unwrap();
            let (known, _) = self.app.get(task, "t", &[key.clone().into()]).await.ok()?;
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let before = known[0]
                .as_ref()
                .map_or(0, |entry| text(&entry.value).parse().unwrap());
            let count = counts.entry(key.clone()).or_insert(before);
            *count += 1;
            commit.emit.push(result("out", &format!("{key} {count}")));
        }
        commit
            .entries
            .extend(counts.iter().map(|(key, count)| put(key, &count.to_string())));
        self.app.commit(self.session(), claim, commit).await.ok()?;
        Some(fetched.records.len())
    }

    /// Checks that state, results and positions are of the same commits. Returns the number of records done.
    async fn check(&self) -> usize {
        let mut results = self.world.values("out", 0).await;
        results.sort_unstable();
        let mut wanted = Vec::new();
        let mut done = 0;
        for (task, stored) in &self.app.stored().tasks {
            assert!(
                self.world.catalog.bounds(stored.log).is_some(),
                "{task} has its log"
            );
            let position = self.app.position(*task).await.unwrap();
            let (scan, _) = self.app.scan(*task, "t", b"", None, 100).await.unwrap();
            let mut counts: BTreeMap<String, u64> = BTreeMap::new();
            for record in 0..RECORDS {
                let key = key(record);
                let is_in = task.slice().has(Some(key.as_bytes()));
                if is_in && (record as u64) < position.next_for(0, Some(key.as_bytes())) {
                    let count = counts.entry(key.clone()).or_default();
                    *count += 1;
                    wanted.push(format!("{key} {count}"));
                    done += 1;
                }
            }
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let found = scan.entries.iter();
            let found: BTreeMap<_, u64> = found
                .map(|entry| (text(&entry.key), text(&entry.value).parse().unwrap()))
                .collect();
            assert_eq!(found, counts, "task {task}");
        }
        wanted.sort_unstable();
        assert_eq!(results, wanted);
        done
    }
}

/// Works, splits and merges. Returns the number of records in acknowledged commits.
async fn play(journal: Arc<DiskJournal>) -> usize {
    let world = World::on(&(Arc::clone(&journal) as Arc<dyn Journal>));
    let mut done = 0;
    let _ended = work(&world, &*journal, &mut done).await;
    world.apps.finish().await;
    done
}

async fn work(world: &World, journal: &dyn Journal, done: &mut usize) -> Option<()> {
    for name in ["in", "out"] {
        let new = NewTopic {
            name: name.into(),
            partitions: Some(1),
            settings: TopicSettings::default(),
        };
        world.catalog.create(vec![new]).await.remove(0).ok()?;
    }
    let keys: Vec<String> = (0..RECORDS).map(key).collect();
    let records: Vec<_> = keys.iter().map(|key| (&**key, "x", 1)).collect();
    world.try_send("in", &records).await?;
    let declared = world.apps.declare("app", definition(&["in"]), Start::Earliest);
    declared.await.ok()?;
    let only = Only::join(world)?;
    let apps = &world.apps;
    *done += only.count(WHOLE, 5, journal).await?;
    apps.split("app", WHOLE, 2).await.ok()?;
    *done += only.count(task("0.1"), 3, journal).await?;
    apps.split("app", task("0.0"), 2).await.ok()?;
    *done += only.count(task("0.00"), 1, journal).await?;
    apps.merge("app", task("0.0")).await.ok()?;
    *done += only.count(task("0.0"), 2, journal).await?;
    apps.merge("app", WHOLE).await.ok()?;
    *done += only.count(WHOLE, 3, journal).await?;
    Some(())
}

/// Checks the stored state, and processes the rest.
async fn check(disk: &SimulatedDisk, boot: u8, acknowledged: usize) {
    let journal = open(disk, boot).expect("it opens again");
    let world = World::on(&(Arc::clone(&journal) as Arc<dyn Journal>));
    world.apps.finish_splits().await.expect("the disk is sound again");
    let Some(only) = Only::join(&world) else {
        assert_eq!(acknowledged, 0, "the app is gone");
        return;
    };
    assert!(only.app.stored().unfinished.is_empty());
    let tasks = only.app.stored();
    let tasks: Vec<TaskId> = tasks.tasks.keys().copied().collect();
    // Without the topic of the results, nothing was done.
    if world.catalog.topics().named("out").is_some() {
        let mut done = only.check().await;
        assert!(done >= acknowledged, "{done} of {acknowledged}");
        for task in tasks {
            done += only.count(task, RECORDS, &*journal).await.unwrap();
        }
        assert_eq!((done, only.check().await), (RECORDS, RECORDS));
    }
    world.apps.finish().await;
}

#[test]
fn a_split_or_a_merge_that_a_kill_or_a_loss_of_power_ends_has_happened_or_has_not() {
    let whole = SimulatedDisk::new();
    run(async {
        assert!(play(open(&whole, 1).unwrap()).await > 10);
    });
    let changes = whole.changes();
    assert!(changes > 50, "{changes} changes");
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
