//! Large commits and sealed segments as objects: rows that leave the database, garbage, and late puts of a
//! former owner.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use stafett_cluster::fake::{FakeDatabase, FakeNode};
use stafett_cluster::{
    Body, Candidate, Database, DatabaseError, FolderObjects, Link, Look, Objects, ObjectsError, Part, Row,
    SharedStorage, agreement, check_store,
};
use stafett_journal::disk::storage::Storage;
use stafett_journal::{Append, DiskJournal, Frame, Journal, Metrics, Settings};
use stafett_model::{Durability, Offset};

use crate::conformance::bench::small_segments;
use crate::node::{claim, open_with, storage_with, with_objects};
use crate::support::{batch, control, create, put, read_all};

/// A node with its storage in the hands of the test.
struct Node {
    fake: Arc<FakeNode>,
    storage: Arc<SharedStorage>,
    journal: DiskJournal,
}

fn node(database: &FakeDatabase, settings: &Settings, inline_bytes_max: usize) -> Node {
    let fake = database.node();
    let shared: Arc<dyn Database> = Arc::<FakeNode>::clone(&fake);
    let objects: Arc<dyn Objects> = Arc::<FakeNode>::clone(&fake);
    let claim = claim(&shared);
    let storage = storage_with(&shared, claim, with_objects(objects, inline_bytes_max)).unwrap();
    let storage = Arc::new(storage);
    let opened = Arc::<SharedStorage>::clone(&storage);
    let journal = DiskJournal::open_on(opened, settings.clone(), Metrics::new()).unwrap();
    Node {
        fake,
        storage,
        journal,
    }
}

/// Returns a text of some 10 KB.
fn text(number: u64) -> String {
    format!("{number:05}").repeat(2000)
}

/// Bytes of segments that the database has.
fn row_bytes(database: &FakeDatabase) -> u64 {
    let rows = database.rows();
    rows.values().map(|row| row.body.len() as u64).sum()
}

#[test]
fn sealed_segments_leave_the_database() {
    let database = FakeDatabase::default();
    let settings = small_segments();
    let owner = node(&database, &settings, 64 << 10);
    let log = create(&owner.journal, Durability::Sync);
    let mut expected = Vec::new();
    for number in 0..60 {
        put(&owner.journal, log, batch(&[&text(number)]));
        expected.push((number, text(number)));
    }
    assert!(row_bytes(&database) > (8 * 64) << 10, "small commits are inline");
    let sealed = owner.storage.seal().unwrap();
    assert!(sealed >= 8, "{sealed} segments");
    let left = row_bytes(&database);
    assert!(left <= (2 * 64) << 10, "{left} bytes are left");
    assert_eq!(owner.storage.seal().unwrap(), 0, "they are sealed once");
    assert_eq!(read_all(&owner.journal, log, 1 << 20).unwrap(), expected);
    std::mem::forget(owner);
    let next = node(&database, &settings, 64 << 10);
    assert_eq!(read_all(&next.journal, log, 1 << 20).unwrap(), expected);
    next.storage.seal().unwrap();
    assert_eq!(read_all(&next.journal, log, 1 << 20).unwrap(), expected);
    let agreed = agreement(&*next.fake, &*next.fake).unwrap();
    assert_eq!((agreed.missing, agreed.unknown), (0, 0), "{agreed:?}");
}

#[test]
fn what_is_deleted_leaves_both() {
    let database = FakeDatabase::default();
    let owner = node(&database, &small_segments(), 0);
    let log = create(&owner.journal, Durability::Sync);
    for number in 0..60 {
        put(&owner.journal, log, batch(&[&text(number)]));
    }
    owner.storage.seal().unwrap();
    let before = agreement(&*owner.fake, &*owner.fake).unwrap();
    let before_end = Frame::Truncate {
        log,
        before: Offset(55),
    };
    control(&owner.journal, [before_end]);
    owner.journal.checkpoint();
    // The thread that rewrites takes its time.
    let mut left = before.clone();
    while left.bytes + left.garbage_bytes > before.bytes / 2 {
        std::thread::yield_now();
        owner.storage.delete_garbage().unwrap();
        owner.storage.seal().unwrap();
        left = agreement(&*owner.fake, &*owner.fake).unwrap();
    }
    assert_eq!(left.missing, 0, "{left:?}");
}

#[test]
fn a_missing_or_changed_object_is_an_error_and_counted() {
    let database = FakeDatabase::default();
    let settings = small_segments();
    let owner = node(&database, &settings, 0);
    let log = create(&owner.journal, Durability::Sync);
    for number in 0..60 {
        put(&owner.journal, log, batch(&[&text(number)]));
    }
    owner.storage.seal().unwrap();
    owner.journal.checkpoint();
    owner.storage.delete_garbage().unwrap();
    drop(owner);
    let objects = database.objects();
    let (first, body) = objects.first_key_value().unwrap();
    let next = node(&database, &settings, 0);
    let count = || agreement(&*next.fake, &*next.fake).unwrap();
    assert_eq!(count().missing, 0);
    for changed in [None, Some(body[1..].to_vec())] {
        database.tamper(first, changed);
        let agreed = count();
        assert_eq!((agreed.missing, &agreed.missing_names), (1, &vec![first.clone()]));
    }
    // Other bytes of the same length.
    database.tamper(first, Some(vec![0; body.len()]));
    assert_eq!(count().missing, 0, "it looks at lengths only");
    assert!(read_all(&next.journal, log, 1 << 20).is_err());
}

#[test]
fn what_a_former_owner_left_is_collected() {
    let database = FakeDatabase::default();
    let settings = small_segments();
    let former = node(&database, &settings, 0);
    let log = create(&former.journal, Durability::Sync);
    put(&former.journal, log, batch(&["a"]));
    let owner = node(&database, &settings, 0);
    // It puts, and its commit is refused.
    let late = former.journal.append(vec![Append::batch(log, batch(&["late"]))]);
    drop(late.wait());
    assert!(former.journal.failure().is_some());
    let unknown = || agreement(&*owner.fake, &*owner.fake).unwrap().unknown;
    assert_eq!(unknown(), 1);
    let shared: Arc<dyn Database> = database.node();
    let patient = stafett_cluster::Settings {
        garbage_after: Duration::from_hours(1),
        ..with_objects(Arc::<FakeNode>::clone(&owner.fake), 0)
    };
    let later = stafett_cluster::Claim {
        epoch: 9,
        fence: Link::default(),
    };
    let young = storage_with(&shared, later, patient).unwrap();
    assert_eq!(young.sweep().unwrap(), 0, "a first look deletes nothing");
    assert_eq!(unknown(), 1);
    assert_eq!(owner.storage.sweep().unwrap(), 1);
    assert_eq!(unknown(), 0);
    put(&owner.journal, log, batch(&["b"]));
    assert_eq!(owner.storage.sweep().unwrap(), 0, "its own count");
    let expected = vec![(0, "a".to_owned()), (1, "b".to_owned())];
    assert_eq!(read_all(&owner.journal, log, 1000).unwrap(), expected);
}

#[test]
fn a_node_with_another_store_does_not_claim() {
    let database = FakeDatabase::default();
    let shared: Arc<dyn Database> = database.node();
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str| -> Arc<dyn Objects> { Arc::new(FolderObjects::new(folder.path().join(name))) };
    let look = |objects: Option<Arc<dyn Objects>>| {
        let candidate = Candidate::new(Arc::clone(&shared), [3; 16], Duration::ZERO).with_store(objects);
        let mut candidate = candidate;
        candidate.look(|| Duration::ZERO)
    };
    assert!(matches!(look(None), Ok(Look::Claimed(_))), "there are no objects");
    let shared_folder = of("share");
    assert!(matches!(
        look(Some(Arc::clone(&shared_folder))),
        Ok(Look::Claimed(_))
    ));
    assert!(
        matches!(look(Some(of("local"))), Err(DatabaseError::Unreachable(_))),
        "no share is mounted"
    );
    assert!(!folder.path().join("local").exists(), "it is not made");
    std::fs::create_dir(folder.path().join("local")).unwrap();
    assert!(matches!(look(Some(of("local"))), Err(DatabaseError::Refused(_))));
    assert!(matches!(look(None), Err(DatabaseError::Refused(_))));
    assert!(matches!(look(Some(shared_folder)), Ok(Look::Claimed(_))));
    // Another cluster's database, which is empty.
    let other = FakeDatabase::default().node();
    let refused = check_store(&*other, Some(&of("share")));
    assert!(matches!(refused, Err(DatabaseError::Refused(_))), "{refused:?}");
    let marks = agreement(&*database.node(), &*of("share")).unwrap();
    assert_eq!(marks.unknown, 0, "a mark is no garbage");
}

/// A store that ignores the name behind which it lists.
#[derive(Debug)]
struct Forgetful(Arc<FakeNode>);

impl Objects for Forgetful {
    fn prepare(&self) -> Result<(), ObjectsError> {
        Ok(())
    }

    fn put(&self, name: &str, body: &[u8]) -> Result<(), ObjectsError> {
        Objects::put(&*self.0, name, body)
    }

    fn get(&self, _: &str) -> Result<Option<Vec<u8>>, ObjectsError> {
        Err(ObjectsError::Refused("it is in an archive".to_owned()))
    }

    fn delete(&self, name: &str) -> Result<(), ObjectsError> {
        self.0.delete(name)
    }

    fn list(&self, _: &str) -> Result<Vec<(String, u64)>, ObjectsError> {
        Objects::list(&*self.0, "")
    }
}

#[test]
fn a_store_that_lists_wrongly_loses_nothing_and_one_that_refuses_a_read_keeps_the_owner() {
    let database = FakeDatabase::default();
    let settings = small_segments();
    let former = node(&database, &settings, 0);
    let log = create(&former.journal, Durability::Sync);
    for number in 0..3 {
        put(&former.journal, log, batch(&[&text(number)]));
    }
    drop(former);
    let fake = database.node();
    let shared: Arc<dyn Database> = Arc::<FakeNode>::clone(&fake);
    let store = with_objects(Arc::new(Forgetful(fake)), 64 << 10);
    let storage = Arc::new(storage_with(&shared, claim(&shared), store).unwrap());
    let before = database.objects();
    assert!(storage.sweep().is_err(), "a page begins anew");
    assert_eq!(database.objects(), before);
    let (name, ..) = shared
        .list()
        .unwrap()
        .into_iter()
        .find(|(name, ..)| name.starts_with("arrival"))
        .unwrap();
    let file = Storage::open(&*storage, &name).unwrap();
    assert!(file.read_at(&mut [0; 8], 0).is_err());
    Storage::sync_names(&*storage).expect("the owner goes on");
}

/// An object store whose puts wait until the test lets them go on.
#[derive(Debug)]
struct Gate {
    objects: Arc<FakeNode>,
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    /// Puts with this text in their bytes are held back. The journal's own go on.
    held: Option<&'static str>,
    waiting: Vec<String>,
    released: Vec<String>,
}

impl Gate {
    fn state(&self) -> std::sync::MutexGuard<'_, GateState> {
        self.state.lock().unwrap()
    }

    /// Waits until this number of puts is held back, and returns the name of the last one.
    fn wait_for(&self, count: usize) -> String {
        let busy = |state: &mut GateState| state.waiting.len() < count;
        let state = self.changed.wait_while(self.state(), busy).unwrap();
        state.waiting.last().unwrap().clone()
    }

    fn release(&self, name: &str) {
        self.state().released.push(name.to_owned());
        self.changed.notify_all();
    }
}

impl Objects for Gate {
    fn prepare(&self) -> Result<(), ObjectsError> {
        Ok(())
    }

    fn put(&self, name: &str, body: &[u8]) -> Result<(), ObjectsError> {
        let mut state = self.state();
        let has = |text: &str| body.windows(text.len()).any(|bytes| bytes == text.as_bytes());
        if state.held.is_some_and(has) {
            state.waiting.push(name.to_owned());
            self.changed.notify_all();
            let busy = |state: &mut GateState| !state.released.iter().any(|it| it == name);
            state = self.changed.wait_while(state, busy).unwrap();
        }
        drop(state);
        Objects::put(&*self.objects, name, body)
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, ObjectsError> {
        self.objects.get(name)
    }

    fn delete(&self, name: &str) -> Result<(), ObjectsError> {
        self.objects.delete(name)
    }

    fn list(&self, behind: &str) -> Result<Vec<(String, u64)>, ObjectsError> {
        Objects::list(&*self.objects, behind)
    }
}

fn gate(database: &FakeDatabase) -> (Arc<dyn Database>, Arc<Gate>) {
    let fake = database.node();
    let gate = Gate {
        objects: Arc::clone(&fake),
        state: Mutex::default(),
        changed: Condvar::new(),
    };
    (fake, Arc::new(gate))
}

/// Returns which of the objects have rows, in the order of these.
fn committed(database: &FakeDatabase, names: &[String]) -> Vec<String> {
    let rows = database.rows();
    let objects = rows.values().filter_map(|row| row.object.as_ref());
    let ours = objects.filter(|part| names.contains(&part.object));
    ours.map(|part| part.object.clone()).collect()
}

#[test]
fn a_slow_put_has_another_beside_it() {
    let database = FakeDatabase::default();
    let (shared, gate) = gate(&database);
    let objects: Arc<dyn Objects> = Arc::<Gate>::clone(&gate);
    let settings = stafett_cluster::Settings {
        slow_put_after: Duration::ZERO,
        ..with_objects(objects, 0)
    };
    let journal = open_with(&shared, &small_segments(), settings);
    let log = create(&journal, Durability::Sync);
    gate.state().held = Some("held back");
    let ticket = journal.append(vec![Append::batch(log, batch(&["held back"]))]);
    let second = gate.wait_for(2);
    let first = gate.state().waiting[0].clone();
    gate.release(&second);
    ticket.wait();
    let names = [first.clone(), second.clone()];
    assert_eq!(committed(&database, &names), [second]);
    // The put comes late, and no commit refers to its object.
    gate.release(&first);
    assert_eq!(
        read_all(&journal, log, 1000).unwrap(),
        [(0, "held back".to_owned())]
    );
}

#[test]
fn puts_run_at_a_time_and_commits_are_in_order() {
    let database = FakeDatabase::default();
    let (shared, gate) = gate(&database);
    let objects: Arc<dyn Objects> = Arc::<Gate>::clone(&gate);
    let journal = open_with(&shared, &small_segments(), with_objects(objects, 0));
    let log = create(&journal, Durability::Sync);
    gate.state().held = Some("held back");
    let mut tickets = Vec::new();
    let mut names = Vec::new();
    for number in 0..3 {
        let append = Append::batch(log, batch(&[&format!("held back {number}")]));
        tickets.push(journal.append(vec![append]));
        names.push(gate.wait_for(number + 1));
    }
    gate.release(&names[2]);
    gate.release(&names[1]);
    assert!(committed(&database, &names).is_empty(), "none before the first");
    gate.release(&names[0]);
    for ticket in tickets {
        ticket.wait();
    }
    assert_eq!(committed(&database, &names), names);
}

/// A former owner's next steps, and its last row.
struct Former {
    last: Link,
    puts: u64,
    /// Objects that are put, and the statements that refer to them.
    put: Vec<Part>,
    under_way: Vec<(stafett_cluster::fake::Pending, Link)>,
    acknowledged: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The former owner puts an object, begins a statement that refers to it, and has it land.
    Put,
    Begin,
    Land,
    /// The new owner claims, fences, lists a page of the store, compares it and deletes.
    New,
}

/// The node that takes over and sweeps.
#[derive(Default)]
struct New {
    steps: u32,
    newest: Link,
    is_fenced: bool,
    listed: Vec<String>,
    unreferenced: Vec<String>,
}

fn object_name(number: u64) -> String {
    format!("{:016x}-{:032x}/{number:010}", 1, 7)
}

impl Former {
    fn step(&mut self, step: Step, database: &FakeDatabase) {
        let node = database.node();
        match step {
            Step::Put => {
                let object = object_name(self.puts);
                Objects::put(&*node, &object, b"x").unwrap();
                self.put.push(Part {
                    at: self.puts,
                    bytes: 1,
                    object,
                    checksum: 0,
                });
                self.puts += 1;
            }
            Step::Begin => {
                let part = self.put[0].clone();
                let seq = self.last.seq + 1;
                let mut nonce = [7; 16];
                nonce[0] = u8::try_from(seq).unwrap();
                let link = Link { seq, nonce };
                let pending = node.begin(&Row {
                    epoch: 1,
                    link,
                    previous: self.last.nonce,
                    name: Some("arrival-0000000001.seg"),
                    at: part.at,
                    body: Body::Object(&part),
                });
                self.under_way.push((pending, link));
            }
            Step::Land => {
                let (pending, link) = self.under_way.remove(0);
                if database.land(&pending) {
                    self.last = link;
                    self.acknowledged.push(self.put.remove(0));
                } else {
                    self.puts = u64::MAX;
                }
            }
            Step::New => unreachable!(),
        }
    }

    fn next(&self) -> Option<Step> {
        if !self.under_way.is_empty() {
            return Some(Step::Land);
        }
        if self.puts == u64::MAX {
            return None;
        }
        (!self.put.is_empty()).then_some(Step::Begin)
    }
}

impl New {
    fn step(&mut self, database: &FakeDatabase) {
        let node = database.node();
        self.steps += 1;
        if self.steps == 1 {
            assert!(node.claim(1, [2; 16]).unwrap());
        } else if self.steps == 2 {
            self.newest = node.newest().unwrap();
        } else if !self.is_fenced {
            let link = Link {
                seq: self.newest.seq + 1,
                nonce: [100; 16],
            };
            let row = Row {
                epoch: 2,
                link,
                previous: self.newest.nonce,
                name: None,
                at: 0,
                body: Body::Inline(&[]),
            };
            self.is_fenced = node.commit(&row).unwrap();
            if !self.is_fenced {
                self.newest = node.newest().unwrap();
            }
        } else if self.listed.is_empty() {
            self.listed = Objects::list(&*node, "")
                .unwrap()
                .into_iter()
                .map(|(name, _)| name)
                .collect();
        } else if self.unreferenced.is_empty() {
            let known = node.references("").unwrap();
            let is_known = |name: &String| known.iter().any(|it| it.object == *name);
            self.unreferenced = self.listed.drain(..).filter(|name| !is_known(name)).collect();
        } else if let Some(name) = self.unreferenced.pop() {
            node.delete(&name).unwrap();
        }
    }
}

/// Runs the steps, and returns those that can follow.
fn replay(steps: &[Step]) -> Vec<Step> {
    let database = FakeDatabase::default();
    assert!(database.node().claim(0, [1; 16]).unwrap());
    let mut former = Former {
        last: Link::default(),
        puts: 0,
        put: Vec::new(),
        under_way: Vec::new(),
        acknowledged: Vec::new(),
    };
    let mut new = New::default();
    for step in steps {
        match step {
            Step::New => new.step(&database),
            Step::Put | Step::Begin | Step::Land => former.step(*step, &database),
        }
        assert_eq!(database.violations(), Vec::<String>::new(), "{steps:?}");
        let objects = database.objects();
        for part in &former.acknowledged {
            assert!(
                objects.contains_key(&part.object),
                "acknowledged and gone: {steps:?}"
            );
        }
    }
    let mut next: Vec<Step> = former.next().into_iter().collect();
    if former.puts < 3 {
        next.push(Step::Put);
    }
    next.push(Step::New);
    next
}

#[test]
fn no_interleaving_deletes_an_object_that_counts() {
    const STEPS: usize = 11;
    let mut open = vec![Vec::new()];
    let mut ended = 0;
    while let Some(steps) = open.pop() {
        if steps.len() == STEPS {
            ended += 1;
            continue;
        }
        for step in replay(&steps) {
            let mut more = steps.clone();
            more.push(step);
            open.push(more);
        }
    }
    assert!(ended > 1000, "{ended} interleavings");
}
