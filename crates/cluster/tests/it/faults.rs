//! Faults at each call of the database or the object store: answers that are lost, and nodes that die.

use std::sync::Arc;

use stafett_cluster::fake::{Effect, FakeDatabase, FakeNode, Fault};
use stafett_cluster::{Database, Objects, agreement};
use stafett_journal::{Append, DiskJournal, Journal, Metrics, Outcome, Settings};
use stafett_model::{Durability, LogId};

use crate::node::{Kept, claim, open_with, quick, storage_with, with_objects};
use crate::support::{Seen, batch, control, read_all, rewriting};

const APPENDS: u64 = 40;
/// Bytes from which segments are merged.
const MERGED_BYTES: u64 = 100 << 10;

/// What clients of a node know at its end.
#[derive(Debug, Default)]
struct Known {
    log: Option<LogId>,
    acknowledged: Vec<Seen>,
    unknown: usize,
}

fn settings() -> Settings {
    rewriting(MERGED_BYTES)
}

/// Settings of a node's storage.
fn storage_settings(node: &Arc<FakeNode>, place: Place) -> stafett_cluster::Settings {
    let objects: Arc<dyn Objects> = Arc::<FakeNode>::clone(node);
    match place {
        Place::Database => quick(),
        Place::Objects => with_objects(objects, 0),
        Place::Both => with_objects(objects, 8 << 10),
    }
}

/// Where commits and files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Database,
    Objects,
    Both,
}

fn value(number: u64) -> String {
    // Segments fill up.
    format!("{number:07}").repeat(1000)
}

/// Opens a journal, and appends, checkpoints and rewrites until an outcome is unknown.
fn run(node: &Arc<FakeNode>, place: Place) -> Known {
    let database: Arc<dyn Database> = Arc::<FakeNode>::clone(node);
    let mut known = Known::default();
    let mut candidate =
        stafett_cluster::Candidate::new(Arc::clone(&database), [1; 16], crate::node::NO_LEASE);
    let claimed = (0..10).find_map(|_| match candidate.look(|| std::time::Duration::ZERO) {
        Ok(stafett_cluster::Look::Claimed(claim)) => Some(claim),
        Ok(stafett_cluster::Look::Owned) | Err(_) => None,
    });
    let Some(claim) = claimed else { return known };
    let Ok(storage) = storage_with(&database, claim, storage_settings(node, place)) else {
        return known;
    };
    let storage = Arc::new(Kept(Arc::new(storage)));
    let Ok(journal) = DiskJournal::open_on(storage, settings(), Metrics::new()) else {
        return known;
    };
    work(&journal, &mut known);
    known
}

fn work(journal: &DiskJournal, known: &mut Known) {
    let log = journal.allocate(2);
    let other = LogId(log.0 + 1);
    let spec = stafett_journal::LogSpec {
        durability: Durability::Sync,
        ..stafett_journal::LogSpec::default()
    };
    let create = stafett_journal::Frame::CreateLogs {
        first: log,
        count: 2,
        spec,
    };
    let create = Append::state([create], stafett_journal::StateWait::Synced);
    if !matches!(outcome(journal, create), Outcome::Committed(_)) {
        return;
    }
    known.log = Some(log);
    for number in 0..APPENDS {
        // A batch of another log comes between: such segments are sorted.
        drop(journal.append(vec![Append::batch(other, batch(&["between"]))]));
        match outcome(journal, Append::batch(log, batch(&[&value(number)]))) {
            Outcome::Committed(placed) => {
                known.acknowledged.push((placed[0].base.0, value(number)));
            }
            Outcome::Unknown => {
                known.unknown += 1;
                return;
            }
            Outcome::Refused(refusal) => {
                assert!(journal.failure().is_some(), "refused: {refusal:?}");
                return;
            }
        }
        if number % 16 == 15 {
            journal.checkpoint();
            journal.rewrite();
        }
    }
}

/// Appends, does the work of the threads, and returns the outcome.
fn outcome(journal: &DiskJournal, append: Append) -> Outcome {
    let ticket = journal.append(vec![append]);
    journal.pump();
    ticket.wait().remove(0)
}

/// Checks that a new owner has everything that was acknowledged, and nothing that was not sent.
fn check(database: &FakeDatabase, known: &Known, place: Place, what: &str) {
    // Delayed calls arrive now.
    database.land_puts();
    let node = database.node();
    let shared: Arc<dyn Database> = Arc::<FakeNode>::clone(&node);
    let journal = open_with(&shared, &settings(), storage_settings(&node, place));
    assert!(!journal.report().is_damaged(), "{what}: {:?}", journal.report());
    let Some(log) = known.log else { return };
    let found = read_all(&journal, log, 1 << 20).unwrap();
    let acknowledged = known.acknowledged.len();
    assert!(
        found.len() >= acknowledged,
        "{what}: {} of {acknowledged}",
        found.len()
    );
    assert_eq!(found[..acknowledged], known.acknowledged, "{what}");
    assert!(
        found.len() <= acknowledged + known.unknown,
        "{what}: more than was sent"
    );
    control(&journal, []);
    drop(journal);
    let agreed = agreement(&*node, &*node).unwrap();
    assert_eq!(agreed.missing, 0, "{what}: {agreed:?}");
    // A third owner collects the garbage of both.
    drop(open_with(&shared, &settings(), storage_settings(&node, place)));
    let agreed = agreement(&*node, &*node).unwrap();
    assert_eq!((agreed.missing, agreed.garbage), (0, 0), "{what}: {agreed:?}");
    assert!(agreed.unknown <= 1, "{what}: {agreed:?}");
    assert_eq!(database.violations(), Vec::<String>::new(), "{what}");
    assert_eq!(agreed.objects > 0, place != Place::Database, "{what}: {agreed:?}");
}

#[test]
fn lost_answers_at_every_call_lose_and_double_nothing() {
    each_call(Effect::NoAnswer, Place::Database, goes_on);
}

#[test]
fn lost_answers_at_every_call_lose_and_double_nothing_in_objects() {
    each_call(Effect::NoAnswer, Place::Objects, goes_on);
}

#[test]
fn lost_answers_at_every_call_lose_and_double_nothing_in_both() {
    each_call(Effect::NoAnswer, Place::Both, goes_on);
}

fn goes_on(known: &Known, what: &str) {
    assert_eq!(known.acknowledged.len() as u64, APPENDS, "{what}: it goes on");
}

#[test]
fn a_death_at_every_call_loses_nothing_acknowledged() {
    each_call(Effect::Death, Place::Database, |_, _| {});
}

#[test]
fn a_death_at_every_call_loses_nothing_acknowledged_in_objects() {
    each_call(Effect::Death, Place::Objects, |_, _| {});
}

#[test]
fn a_death_at_every_call_loses_nothing_acknowledged_in_both() {
    each_call(Effect::Death, Place::Both, |_, _| {});
}

fn each_call(effect: Effect, place: Place, check_known: fn(&Known, &str)) {
    let calls = {
        let database = FakeDatabase::default();
        let node = database.node();
        let known = run(&node, place);
        assert_eq!(known.acknowledged.len() as u64, APPENDS);
        check(&database, &known, place, "no fault");
        node.calls()
    };
    assert!(calls > 3 * APPENDS / 2, "{calls} calls");
    for call in 1..=calls {
        for is_done in [false, true] {
            let fault = Fault {
                call,
                is_done,
                effect,
            };
            let database = FakeDatabase::default();
            let node = database.node_with(Some(fault));
            let known = run(&node, place);
            let what = format!("{fault:?}");
            check_known(&known, &what);
            check(&database, &known, place, &what);
        }
    }
}

#[test]
fn a_node_that_takes_over_reads_what_the_former_rewrote() {
    let database = FakeDatabase::default();
    let node: Arc<dyn Database> = database.node();
    let known = run(&database.node(), Place::Database);
    let names: Vec<_> = node.list().unwrap().into_iter().map(|(name, ..)| name).collect();
    assert!(names.iter().any(|name| name.starts_with("sorted-")), "{names:?}");
    let _ = claim(&node);
    assert!(!names.contains(&"arrival-0000000001.seg".to_owned()), "{names:?}");
    check(&database, &known, Place::Database, "rewritten");
}
