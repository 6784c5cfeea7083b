//! Scripts: each names commands in their order and the events of workers.

use proptest::prelude::*;

use super::*;

const SPEC: JoinSpec = JoinSpec {
    weight: 1,
    tasks_max: None,
    deliver: true,
    eager: false,
};

/// A machine with a clock, whose claims are stored at once.
struct World {
    machine: Machine,
    now_ms: i64,
    sessions: BTreeMap<String, u64>,
    read: BTreeMap<String, u64>,
    /// Latest epoch under which each task was held.
    epochs: BTreeMap<TaskId, u64>,
}

impl World {
    fn new(tasks: u32, balance: Balance) -> Self {
        let rules = Rules {
            balance,
            auto: true,
            worker_timeout_ms: 10_000,
            revoke_ms: 30_000,
            workers_max: 100,
        };
        Self {
            machine: Machine::new(rules, (0..tasks).map(|it| (TaskId::whole(it), 0))),
            now_ms: 0,
            sessions: BTreeMap::new(),
            read: BTreeMap::new(),
            epochs: BTreeMap::new(),
        }
    }

    fn step<T>(&mut self, change: impl FnOnce(&mut Machine, i64, &mut Vec<Effect>) -> T) -> T {
        let mut effects = Vec::new();
        let result = change(&mut self.machine, self.now_ms, &mut effects);
        while !effects.is_empty() {
            if let Effect::Claim { task, epoch, .. } = effects.remove(0) {
                let before = self.epochs.insert(task, epoch);
                assert!(before.is_none_or(|before| before < epoch), "epochs grow");
                self.machine
                    .on_claimed(task, epoch, true, self.now_ms, &mut effects);
            }
        }
        result
    }

    fn join(&mut self, name: &str) -> Joined {
        self.join_as(name, SPEC)
    }

    fn join_as(&mut self, name: &str, spec: JoinSpec) -> Joined {
        let joined = self
            .step(|machine, now, effects| machine.join(name, spec, now, effects))
            .unwrap();
        self.sessions.insert(name.to_owned(), joined.session);
        self.read.insert(name.to_owned(), 0);
        joined
    }

    /// Returns the new events of a worker, in words.
    fn told(&mut self, name: &str) -> Vec<String> {
        let after = self.read.get(name).copied().unwrap_or(0);
        let events = self.machine.events(name, after, usize::MAX);
        if let Some(last) = events.last() {
            self.read.insert(name.to_owned(), last.number);
        }
        let word = |event: Event| match event.kind {
            EventKind::Claimed {
                task, epoch, reason, ..
            } => format!("claimed {task} {epoch} {}", reason.word()),
            EventKind::Prepare { task, epoch, from } => format!("prepare {task} {epoch} {from}"),
            EventKind::Revoke { task, epoch, .. } => format!("revoke {task} {epoch}"),
            EventKind::Lost { task, epoch, reason } => format!("lost {task} {epoch} {reason}"),
        };
        events.into_iter().map(word).collect()
    }

    fn counts(&self) -> Vec<u32> {
        self.machine.workers().iter().map(|worker| worker.tasks).collect()
    }

    fn epoch(&self, task: u32) -> u64 {
        self.machine.task(TaskId::whole(task)).unwrap().epoch
    }

    /// Gives back whatever is to be given back.
    fn release_all(&mut self) {
        let revoked: Vec<_> = self
            .machine
            .tasks()
            .filter(|task| task.state == "revoking")
            .collect();
        for view in revoked {
            let worker = view.worker.unwrap();
            self.step(|machine, now, effects| machine.release(&worker, view.task, view.epoch, now, effects))
                .unwrap();
        }
    }

    fn pass(&mut self, ms: i64) {
        self.now_ms += ms;
        self.step(Machine::on_time);
    }

    fn beat(&mut self, name: &str) {
        let session = self.sessions.get(name).copied().unwrap();
        let now_ms = self.now_ms;
        self.machine.beat(name, session, now_ms).unwrap();
    }
}

#[test]
fn the_first_worker_gets_all_and_a_second_one_its_half() {
    let mut world = World::new(3, Balance::Count);
    assert_eq!(world.join("a").target, 3);
    assert_eq!(
        world.told("a"),
        ["claimed 0 1 start", "claimed 1 1 start", "claimed 2 1 start"]
    );
    assert_eq!(world.join("b").target, 1);
    assert_eq!(world.told("a"), ["revoke 2 1"]);
    assert_eq!(world.told("b"), [""; 0]);
    world
        .step(|machine, now, effects| machine.release("a", TaskId::whole(2), 1, now, effects))
        .unwrap();
    assert_eq!(world.told("b"), ["claimed 2 2 balance"]);
}

const EAGER: JoinSpec = JoinSpec { eager: true, ..SPEC };

#[test]
fn a_worker_that_reads_ahead_is_told_before_the_holder_is() {
    let mut world = World::new(2, Balance::Count);
    world.join("a");
    world.told("a");
    world.join_as("b", EAGER);
    let task = TaskId::whole(1);
    assert_eq!(
        (world.told("a"), world.told("b")),
        (vec![], vec!["prepare 1 1 a".to_owned()])
    );
    assert_eq!(world.machine.check_claim("a", task, 1), Ok(()), "it goes on");
    assert_eq!(world.machine.check_read("b", task, 1), Ok(()));
    assert!(world.machine.check_read("b", TaskId::whole(0), 1).is_err());
    world.step(Machine::balance);
    assert!(world.told("b").is_empty(), "it is told once");
    world
        .step(|machine, now, effects| machine.prepared("b", task, now, effects))
        .unwrap();
    assert_eq!(world.told("a"), ["revoke 1 1"]);
    assert!(world.machine.check_read("b", task, 1).is_err());
    world.release_all();
    assert_eq!(world.told("b"), ["claimed 1 2 balance"]);
    let again = world.step(|machine, now, effects| machine.prepared("b", task, now, effects));
    assert!(matches!(again, Err(WorkerError::LostClaim { epoch: 2, .. })));
}

#[test]
fn a_move_that_is_not_prepared_in_time_begins_and_one_whose_worker_leaves_does_not() {
    let mut world = World::new(1, Balance::Manual);
    world.join("a");
    let task = TaskId::whole(0);
    world
        .step(|machine, _, effects| machine.claim("a", &[task], effects))
        .unwrap();
    world.told("a");
    for round in 0..2 {
        world.join_as("b", EAGER);
        world
            .step(|machine, now, effects| machine.pin(task, "b", Absent::Wait, now, effects))
            .unwrap();
        assert_eq!(world.told("b"), ["prepare 0 1 a"]);
        assert!(world.told("a").is_empty());
        if round == 0 {
            world.step(|machine, now, effects| machine.leave("b", now, effects));
            world
                .step(|machine, now, effects| machine.unpin(task, now, effects))
                .unwrap();
        }
    }
    for _ in 0..6 {
        world.now_ms += 5_000;
        world.beat("a");
        world.beat("b");
        world.step(Machine::on_time);
    }
    assert_eq!(world.told("a"), ["revoke 0 1"]);
}

#[test]
fn a_drained_worker_hands_over_to_workers_that_read_ahead() {
    let mut world = World::new(4, Balance::Count);
    world.join("a");
    world.join_as("b", EAGER);
    for task in [2, 3] {
        world
            .step(|machine, now, effects| machine.prepared("b", TaskId::whole(task), now, effects))
            .unwrap();
    }
    world.release_all();
    world.told("a");
    world.told("b");
    world
        .step(|machine, now, effects| machine.drain("a", 0, now, effects))
        .unwrap();
    assert_eq!(world.told("b"), ["prepare 0 1 a", "prepare 1 1 a"]);
    // The one that was to have them is gone: a third gets them.
    world.join("c");
    world.step(|machine, now, effects| machine.leave("b", now, effects));
    world.step(Machine::on_time);
    world.release_all();
    let mut told = world.told("c");
    told.sort();
    assert_eq!(told.len(), 4, "{told:?}");
}

#[test]
fn thirteen_tasks_over_five_workers_are_3_3_3_2_2() {
    let mut world = World::new(13, Balance::Count);
    for name in ["a", "b", "c", "d", "e"] {
        world.join(name);
        world.release_all();
    }
    let mut counts = world.counts();
    counts.sort_unstable();
    assert_eq!(counts, [2, 2, 3, 3, 3]);
}

#[test]
fn a_silent_worker_loses_its_tasks_and_its_commits_are_refused() {
    let mut world = World::new(2, Balance::Count);
    world.join("a");
    world.join("b");
    world.release_all();
    world.told("b");
    let task = TaskId::whole(0);
    let held = world.machine.task(task).unwrap();
    assert_eq!(
        (held.worker.as_deref(), world.machine.deadline_ms()),
        (Some("a"), Some(10_000))
    );
    world.now_ms = 9_000;
    world.beat("b");
    world.pass(1_000);
    assert_eq!(world.told("b"), ["claimed 0 2 takeover"]);
    let lost = world.machine.check_claim("a", task, held.epoch).unwrap_err();
    let expected = WorkerError::LostClaim {
        task,
        epoch: 2,
        holder: Some("b".into()),
    };
    assert_eq!(lost, expected);
    assert_eq!(world.machine.beat("a", 1, 10_000), Err(WorkerError::NoSuchWorker));
    assert!(world.machine.check_claim("b", task, 1).is_err(), "an old epoch");
    assert_eq!(world.machine.check_claim("b", task, 2), Ok(()));
}

#[test]
fn a_second_session_keeps_the_claims_and_ends_the_first() {
    let mut world = World::new(2, Balance::Count);
    let first = world.join("a");
    let second = world.join("a");
    assert_eq!(second.resumed, [(TaskId::whole(0), 1), (TaskId::whole(1), 1)]);
    assert_eq!(
        world.machine.beat("a", first.session, 1),
        Err(WorkerError::TakenOver)
    );
    assert_eq!(world.machine.beat("a", second.session, 1), Ok(()));
    assert_eq!(world.told("a"), [""; 0], "resumed claims are in the answer");
}

#[test]
fn a_task_that_is_not_released_in_time_is_taken() {
    let mut world = World::new(2, Balance::Count);
    world.join("a");
    world.told("a");
    world.join("b");
    for _ in 0..3 {
        world.pass(9_999);
        world.beat("a");
        world.beat("b");
    }
    world.pass(2);
    assert_eq!(world.told("b"), [""; 0], "one ms is left");
    world.pass(1);
    assert_eq!(world.told("a"), ["revoke 1 1", "lost 1 1 overdue"]);
    assert_eq!(world.told("b"), ["claimed 1 2 balance"]);
}

#[test]
fn a_drain_hands_over_one_task_a_step() {
    let mut world = World::new(4, Balance::Count);
    world.join("a");
    world.join("b");
    world.release_all();
    world.told("a");
    world
        .step(|machine, now, effects| machine.drain("a", 4_000, now, effects))
        .unwrap();
    assert_eq!(world.told("a"), ["revoke 0 1"]);
    world.release_all();
    assert!(!world.machine.is_drained("a"));
    world.pass(2_000);
    world.release_all();
    assert!(world.machine.is_drained("a"));
    assert_eq!(world.counts(), [0, 4]);
    let refused = world.step(|machine, _, effects| machine.claim("a", &[TaskId::whole(0)], effects));
    assert_eq!(refused, Err(WorkerError::Draining));
    world
        .step(|machine, now, effects| machine.cancel_drain("a", now, effects))
        .unwrap();
    world.release_all();
    assert_eq!(world.counts(), [2, 2]);
    let none = world.step(|machine, now, effects| machine.drain("c", 0, now, effects));
    assert_eq!(none, Err(DrainError));
}

#[test]
fn a_drain_takes_a_task_whose_claim_was_not_stored_when_it_began() {
    let mut world = World::new(1, Balance::Count);
    let effects = &mut Vec::new();
    world.machine.join("a", SPEC, 0, effects).unwrap();
    world.machine.drain("a", 0, 0, effects).unwrap();
    world.machine.on_time(1, effects);
    world.machine.on_claimed(TaskId::whole(0), 1, true, 2, effects);
    assert_eq!(world.told("a"), ["claimed 0 1 start", "revoke 0 1"]);
}

#[test]
fn a_pin_moves_a_task_and_waits_or_not() {
    let mut world = World::new(2, Balance::Count);
    world.join("a");
    world.told("a");
    let task = TaskId::whole(0);
    let pin = |world: &mut World, worker: &str, absent| {
        world.step(|machine, now, effects| machine.pin(task, worker, absent, now, effects))
    };
    assert_eq!(
        pin(&mut world, "c", Absent::Refuse),
        Err(AssignError::NoSuchWorker)
    );
    assert_eq!(pin(&mut world, "c", Absent::Balance), Ok(()));
    assert_eq!(world.told("a"), [""; 0], "c is not there");
    assert_eq!(pin(&mut world, "c", Absent::Wait), Ok(()));
    assert_eq!(world.told("a"), ["revoke 0 1"]);
    world.release_all();
    assert_eq!(world.counts(), [1], "nobody else gets it");
    world.join("c");
    world.release_all();
    assert_eq!(world.told("c")[0], "claimed 0 2 assigned");
    let unpinned = world.step(|machine, now, effects| machine.unpin(task, now, effects));
    assert_eq!(unpinned, Ok(true));
}

#[test]
fn by_hand_workers_claim_what_they_want() {
    let mut world = World::new(3, Balance::Manual);
    world.join("a");
    world.join("b");
    assert_eq!(world.counts(), [0, 0]);
    let two = [TaskId::whole(0), TaskId::whole(2)];
    assert_eq!(
        world.step(|machine, _, effects| machine.claim("a", &two, effects)),
        Ok(())
    );
    let taken = world.step(|machine, _, effects| machine.claim("b", &two[1..], effects));
    assert!(
        matches!(taken, Err(WorkerError::Taken { epoch: 1, .. })),
        "{taken:?}"
    );
    assert_eq!(world.machine.free_tasks("b", 5), [TaskId::whole(1)]);
    let none = world.step(|machine, _, effects| machine.claim("b", &[TaskId::whole(9)], effects));
    assert_eq!(none, Err(WorkerError::NoSuchTask(TaskId::whole(9))));
    world.step(|machine, now, effects| machine.leave("a", now, effects));
    assert_eq!(world.counts(), [0], "by hand nothing is given");
}

#[test]
fn by_load_one_task_moves_every_ten_seconds() {
    let mut world = World::new(4, Balance::Load);
    world.join("a");
    world.join("b");
    world.release_all();
    assert_eq!(world.counts(), [2, 2]);
    world
        .machine
        .report_load("a", &[(TaskId::whole(0), 500), (TaskId::whole(1), 400)]);
    world
        .machine
        .report_load("b", &[(TaskId::whole(2), 10), (TaskId::whole(3), 10)]);
    world.told("a");
    world.pass(9_000);
    world.beat("a");
    world.beat("b");
    world.pass(1_000);
    world.release_all();
    assert_eq!(world.counts(), [1, 3]);
    assert_eq!(world.told("a"), ["revoke 1 1"]);
    world.pass(1_000);
    assert_eq!(
        world.counts(),
        [1, 3],
        "it stays, although the numbers differ by two"
    );
}

/// A worker that lies moves no more than one task in ten seconds, and no task is lost by it.
#[test]
fn a_worker_that_lies_about_its_load_gets_and_loses_one_task_at_a_time() {
    let mut world = World::new(12, Balance::Load);
    for name in ["honest", "liar", "other"] {
        world.join(name);
        world.release_all();
    }
    let all = (0..12).map(TaskId::whole);
    let (huge, none): (Vec<_>, Vec<_>) = all.map(|task| ((task, 1_000_000_000), (task, 0))).unzip();
    for step in 0..20 {
        let before = world.counts();
        // Of tasks of others it says nothing.
        let lie = if step % 2 == 0 { &huge } else { &none };
        world.machine.report_load("liar", lie);
        world
            .machine
            .report_load("honest", &[(TaskId::whole(0), 500), (TaskId::whole(1), 400)]);
        for name in ["honest", "liar", "other"] {
            world.beat(name);
        }
        world.pass(5_000);
        world.release_all();
        let after = world.counts();
        assert_eq!(after.iter().sum::<u32>(), 12, "{after:?}");
        let gained = before
            .iter()
            .zip(&after)
            .map(|(before, after)| after.saturating_sub(*before));
        assert!(gained.sum::<u32>() <= 1, "{before:?} to {after:?}");
    }
}

#[test]
fn halves_begin_with_the_worker_of_the_whole_and_then_spread() {
    let mut world = World::new(1, Balance::Count);
    world.join("a");
    world.join("b");
    assert_eq!(world.counts(), [1, 0]);
    let whole = TaskId::whole(0);
    let [zero, one] = whole.halves().unwrap();
    world.step(|machine, now, effects| {
        machine.replace(&[whole], &[(zero, 1), (one, 1)], Reason::Split, now, effects);
    });
    let told = world.told("a");
    assert_eq!(told[0], "claimed 0 1 start");
    assert_eq!(told[1], "lost 0 1 split");
    assert!(told.contains(&"claimed 0.0 2 split".to_owned()), "{told:?}");
    world.release_all();
    assert_eq!(world.counts(), [1, 1]);
    assert!(world.machine.check_claim("a", whole, 1).is_err());
}

#[test]
fn a_claim_that_is_not_stored_is_nobodys_and_is_tried_again() {
    let mut world = World::new(1, Balance::Count);
    let mut effects = Vec::new();
    world.machine.join("a", SPEC, 0, &mut effects).unwrap();
    let claim = Effect::Claim {
        task: TaskId::whole(0),
        epoch: 1,
        died: None,
    };
    assert_eq!(effects, [claim]);
    let mut effects = Vec::new();
    world
        .machine
        .on_claimed(TaskId::whole(0), 1, false, 0, &mut effects);
    assert!(effects.is_empty() && world.machine.check_claim("a", TaskId::whole(0), 1).is_err());
    world.step(Machine::on_time);
    assert_eq!(world.told("a"), ["claimed 0 2 start"]);
}

#[test]
fn a_worker_that_fetches_no_events_is_gone() {
    let mut world = World::new(1, Balance::Manual);
    world.join("a");
    for _ in 0..600 {
        let task = [TaskId::whole(0)];
        world
            .step(|machine, _, effects| machine.claim("a", &task, effects))
            .unwrap();
        let epoch = world.epoch(0);
        world.step(|machine, now, effects| machine.lose(TaskId::whole(0), epoch, "test", now, effects));
    }
    world.machine.beat("a", 1, 0).unwrap();
    assert!(world.machine.workers()[0].events_waiting <= 1_004);
    world
        .step(|machine, _, effects| machine.claim("a", &[TaskId::whole(0)], effects))
        .unwrap();
    world.pass(0);
    assert!(world.machine.workers().is_empty());
}

#[derive(Debug, Clone)]
enum Step {
    Join(u8),
    Leave(u8),
    Silence(u8),
    Release(u8),
    Drain(u8, u16),
    Cancel(u8),
    Pin(u8, u8, bool),
    Unpin(u8),
    Pass(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let worker = 0..6_u8;
    let step = prop_oneof![
        4 => worker.clone().prop_map(Step::Join),
        1 => worker.clone().prop_map(Step::Leave),
        1 => worker.clone().prop_map(Step::Silence),
        4 => any::<u8>().prop_map(Step::Release),
        1 => (worker.clone(), 0..5_000_u16).prop_map(|(worker, over)| Step::Drain(worker, over)),
        1 => worker.clone().prop_map(Step::Cancel),
        1 => (0..13_u8, worker, any::<bool>()).prop_map(|(task, worker, waits)| Step::Pin(task, worker, waits)),
        1 => (0..13_u8).prop_map(Step::Unpin),
        2 => (0..12_000_u16).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    /// Workers come, go, fall silent and dawdle. A task has one holder, epochs only grow, and once all has
    /// come to rest the numbers differ by one at most.
    #[test]
    fn whatever_happens_claims_are_exclusive_and_end_balanced(tasks in 1..14_u32, steps in steps()) {
        let mut world = World::new(tasks, Balance::Count);
        let mut silent = std::collections::BTreeSet::new();
        for step in steps {
            match step {
                Step::Join(worker) => {
                    silent.remove(&worker);
                    world.join(&worker.to_string());
                }
                Step::Leave(worker) => {
                    world.step(|machine, now, effects| machine.leave(&worker.to_string(), now, effects));
                }
                Step::Silence(worker) => drop(silent.insert(worker)),
                Step::Release(at) => {
                    let view = world.machine.tasks().nth(usize::from(at) % tasks as usize).unwrap();
                    if let (Some(worker), "held" | "revoking") = (view.worker, view.state) {
                        let (task, epoch) = (view.task, view.epoch);
                        world.step(|machine, now, effects| machine.release(&worker, task, epoch, now, effects)).unwrap();
                    }
                }
                Step::Drain(worker, over) => {
                    let name = worker.to_string();
                    let _ = world.step(|machine, now, effects| machine.drain(&name, over.into(), now, effects));
                }
                Step::Cancel(worker) => {
                    let name = worker.to_string();
                    let _ = world.step(|machine, now, effects| machine.cancel_drain(&name, now, effects));
                }
                Step::Pin(task, worker, waits) => {
                    let absent = if waits { Absent::Wait } else { Absent::Balance };
                    let (task, name) = (TaskId::whole(task.into()), worker.to_string());
                    let _ = world.step(|machine, now, effects| machine.pin(task, &name, absent, now, effects));
                }
                Step::Unpin(task) => {
                    let task = TaskId::whole(task.into());
                    let _ = world.step(|machine, now, effects| machine.unpin(task, now, effects));
                }
                Step::Pass(ms) => {
                    for worker in (0..6).filter(|worker| !silent.contains(worker)) {
                        if let Some(session) = world.sessions.get(&worker.to_string()).copied() {
                            let _ = world.machine.beat(&worker.to_string(), session, world.now_ms);
                        }
                    }
                    world.pass(ms.into());
                }
            }
        }
        // All pins and drains end, and one worker is there.
        for task in 0..tasks {
            let _ = world.step(|machine, now, effects| machine.unpin(TaskId::whole(task), now, effects));
        }
        world.join("last");
        for name in world.machine.workers().into_iter().map(|worker| worker.name) {
            world.step(|machine, now, effects| machine.cancel_drain(&name, now, effects)).unwrap();
        }
        for _ in 0..20 {
            world.release_all();
        }
        let counts = world.counts();
        prop_assert_eq!(counts.iter().sum::<u32>(), tasks, "every task has a worker");
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        prop_assert!(most - least <= 1, "{:?}", counts);
        prop_assert!(world.machine.planned_moves().is_empty());
    }
}
