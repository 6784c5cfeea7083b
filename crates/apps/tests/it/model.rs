//! Random commits, kills of the broker, take-overs and zombies, against a map.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use stafett_apps::{App, NewCommit, TaskId};

use crate::world::{Worker, World, definition, delete, put, result};

#[derive(Debug, Clone)]
enum Step {
    /// Takes some records and commits; the number says how the answer fares: 0 is lost and asked for again.
    Work { records: usize, answer: u8 },
    /// A commit of the worker that had the task before.
    Zombie,
    /// The worker ends, and another takes over.
    Replace,
    /// The broker is killed.
    Kill,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..6_usize, 0..4_u8).prop_map(|(records, answer)| Step::Work { records, answer }),
        2 => Just(Step::Zombie),
        2 => Just(Step::Replace),
        1 => Just(Step::Kill),
    ];
    prop::collection::vec(step, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// The state of a key is the fold of its records up to the position, and each result is there once.
    #[test]
    fn state_and_results_are_the_fold_of_the_records(
        keys in prop::collection::vec(0..5_u8, 60),
        steps in steps(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(run(&keys, &steps));
    }
}

const TASK: TaskId = TaskId::whole(0);

/// The world, and its expected content.
struct Model<'a> {
    keys: &'a [u8],
    world: World,
    app: Arc<App>,
    worker: Worker,
    zombie: Option<Worker>,
    workers: usize,
    seq: u64,
    position: usize,
    counts: BTreeMap<u8, u32>,
    results: Vec<String>,
}

async fn run(keys: &[u8], steps: &[Step]) {
    let world = World::new();
    world.topic("in", 1).await;
    world.topic("out", 1).await;
    let names: Vec<String> = keys.iter().map(u8::to_string).collect();
    let records: Vec<_> = names.iter().map(|key| (&**key, "x", 1)).collect();
    world.send("in", &records).await;
    let app = world.declare("app", definition(&["in"])).await;
    let worker = Worker::join(&app, "w0").has(&app, 1).await;
    let mut model = Model {
        keys,
        world,
        app,
        worker,
        zombie: None,
        workers: 0,
        seq: 0,
        position: 0,
        counts: BTreeMap::new(),
        results: Vec::new(),
    };
    for step in steps {
        match step {
            Step::Work { records, answer } => model.work(*records, *answer == 0).await,
            Step::Zombie => model.commit_late().await,
            Step::Replace => {
                model.app.leave(model.worker.session()).unwrap();
                model.take_over().await;
            }
            Step::Kill => {
                model.world = model.world.killed();
                model.app = model.world.apps.named("app").unwrap();
                model.take_over().await;
            }
        }
        model.check().await;
    }
}

impl Model<'_> {
    /// Takes some records and commits. A lost answer is asked for again.
    async fn work(&mut self, records: usize, answer_is_lost: bool) {
        let fetched = self.worker.fetch(&self.app, TASK).await.unwrap();
        assert_eq!(fetched.records.len(), self.keys.len() - self.position);
        let end = (self.position + records).min(self.keys.len());
        let mut entries = BTreeMap::new();
        let mut emit = Vec::new();
        for key in &self.keys[self.position..end] {
            let count = self.counts.entry(*key).or_default();
            *count += 1;
            let name = key.to_string();
            // Each third record ends its key.
            let ends = count.is_multiple_of(3);
            let entry = if ends {
                delete(&name)
            } else {
                put(&name, &count.to_string())
            };
            entries.insert(*key, entry);
            if ends {
                emit.push(result("out", &format!("{key} {count}")));
                self.results.push(format!("{key} {count}"));
            }
        }
        self.seq += 1;
        self.position = end;
        let commit = NewCommit {
            seq: self.seq,
            next: vec![Some(end as u64)],
            entries: entries.into_values().collect(),
            emit,
            ..NewCommit::default()
        };
        self.worker.commit(&self.app, TASK, commit.clone()).await.unwrap();
        if answer_is_lost {
            let again = self.worker.commit(&self.app, TASK, commit).await.unwrap();
            assert!(again.repeated);
        }
    }

    /// The worker that had the task before goes on, and is refused.
    async fn commit_late(&self) {
        let Some(zombie) = &self.zombie else { return };
        let late = NewCommit {
            seq: self.seq + 1,
            entries: vec![put("zombie", "was here")],
            emit: vec![result("out", "zombie")],
            ..NewCommit::default()
        };
        zombie.commit(&self.app, TASK, late).await.unwrap_err();
    }

    async fn take_over(&mut self) {
        self.workers += 1;
        let name = format!("w{}", self.workers);
        let next = Worker::join(&self.app, &name).has(&self.app, 1).await;
        self.zombie = Some(std::mem::replace(&mut self.worker, next));
    }

    async fn check(&self) {
        let claim = self.worker.claim(TASK);
        let view = self.app.claim_view(self.worker.session(), claim).unwrap();
        let position = (view.position.seq, view.position.next[0]);
        assert_eq!(position, (self.seq, self.position as u64));
        let kept: BTreeMap<String, String> = self
            .counts
            .iter()
            .filter(|(_, count)| !count.is_multiple_of(3))
            .map(|(key, count)| (key.to_string(), count.to_string()))
            .collect();
        let (scan, _) = self.app.scan(TASK, "t", b"", None, 100).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let entries = scan.entries.iter();
        let found: BTreeMap<_, _> = entries
            .map(|entry| (text(&entry.key), text(&entry.value)))
            .collect();
        assert_eq!(found, kept);
        assert_eq!(scan.entries.len(), view.totals.entries);
        for key in 0..5_u8 {
            let name = key.to_string();
            let value = self.worker.get(&self.app, TASK, &name).await;
            assert_eq!(value, kept.get(&name).cloned());
        }
        assert_eq!(self.world.values("out", 0).await, self.results);
    }
}
