//! Random commits, kills of the broker, take-overs and zombies, against a map.

use std::collections::BTreeMap;

use proptest::prelude::*;
use stafett_apps::{NewCommit, TaskId};

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

async fn run(keys: &[u8], steps: &[Step]) {
    let task = TaskId::whole(0);
    let mut world = World::new();
    world.topic("in", 1).await;
    world.topic("out", 1).await;
    let names: Vec<String> = keys.iter().map(u8::to_string).collect();
    let records: Vec<_> = names.iter().map(|key| (&**key, "x", 1)).collect();
    world.send("in", &records).await;
    let mut app = world.declare("app", definition(&["in"])).await;
    let mut worker = Worker::join(&app, "w0").has(&app, 1).await;
    let mut zombie: Option<Worker> = None;
    let (mut seq, mut position, mut workers) = (0, 0_usize, 0);
    let mut counts: BTreeMap<u8, u32> = BTreeMap::new();
    let mut results = Vec::new();
    for step in steps {
        match step {
            Step::Work { records, answer } => {
                let fetched = worker.fetch(&app, task).await.unwrap();
                assert_eq!(fetched.records.len(), keys.len() - position);
                let end = (position + records).min(keys.len());
                let mut entries = BTreeMap::new();
                let mut emit = Vec::new();
                for key in &keys[position..end] {
                    let count = counts.entry(*key).or_default();
                    *count += 1;
                    // The state as it is stored, but for this commit's own changes.
                    let name = key.to_string();
                    // Each third record ends its key.
                    let ends = *count % 3 == 0;
                    let entry = if ends {
                        delete(&name)
                    } else {
                        put(&name, &count.to_string())
                    };
                    entries.insert(*key, entry);
                    if ends {
                        emit.push(result("out", &format!("{key} {count}")));
                        results.push(format!("{key} {count}"));
                    }
                }
                seq += 1;
                let commit = NewCommit {
                    seq,
                    next: vec![Some(end as u64)],
                    entries: entries.into_values().collect(),
                    emit,
                    ..NewCommit::default()
                };
                position = end;
                worker.commit(&app, task, commit.clone()).await.unwrap();
                if *answer == 0 {
                    assert!(worker.commit(&app, task, commit).await.unwrap().repeated);
                }
            }
            Step::Zombie => {
                if let Some(zombie) = &zombie {
                    let late = NewCommit {
                        seq: seq + 1,
                        entries: vec![put("zombie", "was here")],
                        emit: vec![result("out", "zombie")],
                        ..NewCommit::default()
                    };
                    zombie.commit(&app, task, late).await.unwrap_err();
                }
            }
            Step::Replace => {
                app.leave(worker.session()).unwrap();
                workers += 1;
                let next = Worker::join(&app, &format!("w{workers}")).has(&app, 1).await;
                zombie = Some(std::mem::replace(&mut worker, next));
            }
            Step::Kill => {
                world = world.killed();
                app = world.apps.named("app").unwrap();
                workers += 1;
                let next = Worker::join(&app, &format!("w{workers}")).has(&app, 1).await;
                zombie = Some(std::mem::replace(&mut worker, next));
            }
        }
        let view = app.claim_view(worker.session(), worker.claim(task)).unwrap();
        assert_eq!((view.position.seq, view.position.next[0]), (seq, position as u64));
        let kept: BTreeMap<String, String> = counts
            .iter()
            .filter(|(_, count)| **count % 3 != 0)
            .map(|(key, count)| (key.to_string(), count.to_string()))
            .collect();
        let (scan, _) = app.scan(task, "t", b"", None, 100).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let found: BTreeMap<_, _> = scan
            .entries
            .iter()
            .map(|entry| (text(&entry.key), text(&entry.value)))
            .collect();
        assert_eq!(found, kept);
        assert_eq!(scan.entries.len(), view.totals.entries);
        for key in 0..5_u8 {
            let name = key.to_string();
            assert_eq!(worker.get(&app, task, &name).await, kept.get(&name).cloned());
        }
        assert_eq!(world.values("out", 0).await, results);
    }
}
