//! Former owners that go on: their commits insert nothing once a fence is in place, however their statements
//! and those of the new owner interleave.

use std::io::IoSlice;
use std::sync::Arc;

use stafett_cluster::fake::{FakeDatabase, FakeNode, Pending};
use stafett_cluster::{Body, Database, Link, Row};
use stafett_journal::disk::storage::Storage;
use stafett_journal::{Append, Journal, Outcome};
use stafett_model::Durability;

use crate::conformance::bench::usual;
use crate::node::{claim, open, storage};
use crate::support::{append, batch, create, put, read_all};

#[test]
fn the_appends_of_a_former_owner_have_no_outcome_and_are_not_there() {
    let database = FakeDatabase::default();
    let (one, other): (Arc<dyn Database>, Arc<dyn Database>) = (database.node(), database.node());
    let former = open(&one, &usual());
    let log = create(&former, Durability::Sync);
    put(&former, log, batch(&["a"]));
    let owner = open(&other, &usual());
    assert!(former.failure().is_none(), "it has not noticed yet");
    let late = append(&former, Append::batch(log, batch(&["late"])));
    assert_eq!(late, Outcome::Unknown);
    assert!(former.failure().is_some(), "it has noticed");
    put(&owner, log, batch(&["b"]));
    let expected = vec![(0, "a".to_owned()), (1, "b".to_owned())];
    assert_eq!(read_all(&owner, log, 1000).unwrap(), expected);
    // Writes of the former owner at its end change nothing either.
    former.close();
    drop(former);
    drop(owner);
    let third: Arc<dyn Database> = database.node();
    assert_eq!(read_all(&open(&third, &usual()), log, 1000).unwrap(), expected);
}

/// A former owner reads files of an earlier one, before and after its successor removes them.
pub fn removed_files_are_no_zeros(node: &dyn Fn() -> Arc<dyn Database>) {
    let early = ["arrival-0000000001.seg", "sorted-0000000002.seg"];
    let late = ["arrival-0000000003.seg", "sorted-0000000004.seg"];
    let names = [early, late].concat();
    let earlier = node();
    let written = storage(&earlier, claim(&earlier)).unwrap();
    for name in &names {
        let file = written.create(name).unwrap();
        file.write_at(&mut [IoSlice::new(b"content")], 0).unwrap();
        file.sync().unwrap();
    }
    let former = node();
    let read = storage(&former, claim(&former)).unwrap();
    let files = early.map(|name| read.open(name).unwrap());
    let late = late.map(|name| read.open(name).unwrap());
    let mut buffer = [0; 7];
    for file in files {
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 7);
        assert_eq!(&buffer, b"content");
    }
    let successor = node();
    let owned = storage(&successor, claim(&successor)).unwrap();
    for name in &names {
        owned.remove(name).unwrap();
    }
    owned.sync_names().unwrap();
    assert_eq!(owned.list().unwrap(), Vec::<String>::new());
    for file in late {
        assert!(file.read_at(&mut buffer, 0).is_err(), "{buffer:?}");
    }
}

#[test]
fn what_a_successor_removed_cannot_be_read() {
    let database = FakeDatabase::default();
    removed_files_are_no_zeros(&|| database.node());
}

/// A node in the middle of its statements.
#[derive(Clone)]
struct Former {
    last: Link,
    next: Option<Link>,
    /// Statements on their way: the first, and a copy on another connection after a time-out.
    under_way: Vec<Pending>,
    acknowledged: Vec<u64>,
    begun: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The former owner begins its next statement, or sends the one under way again.
    Begin,
    Again,
    /// A statement lands.
    Land(usize),
    /// The new owner's next step: claim, newest, fence, commit, commit.
    New,
}

/// Steps of one interleaving, run from the beginning.
fn replay(steps: &[Step]) -> Vec<Step> {
    let database = FakeDatabase::default();
    let node = database.node();
    assert!(node.claim(0, [1; 16]).unwrap());
    let mut former = Former {
        last: Link::default(),
        next: None,
        under_way: Vec::new(),
        acknowledged: Vec::new(),
        begun: 0,
    };
    let mut new = New::default();
    for step in steps {
        match step {
            Step::Begin => former.begin(&node),
            Step::Again => former.send(&node),
            Step::Land(index) => former.land(&database, *index),
            Step::New => new.step(&database),
        }
        new.check(&database, &former);
    }
    let mut next = Vec::new();
    if former.next.is_none() && former.begun < 3 {
        next.push(Step::Begin);
    }
    if former.next.is_some() && former.under_way.len() == 1 {
        next.push(Step::Again);
    }
    next.extend((0..former.under_way.len()).map(Step::Land));
    if !new.is_done() {
        next.push(Step::New);
    }
    next
}

impl Former {
    fn begin(&mut self, node: &FakeNode) {
        self.begun += 1;
        let seq = self.last.seq + 1;
        let mut nonce = [7; 16];
        nonce[0] = u8::try_from(seq).unwrap();
        self.next = Some(Link { seq, nonce });
        self.send(node);
    }

    fn send(&mut self, node: &FakeNode) {
        let Some(link) = self.next else { return };
        self.under_way.push(node.begin(&Row {
            epoch: 1,
            link,
            previous: self.last.nonce,
            name: Some("arrival-0000000001.seg"),
            at: link.seq,
            body: Body::Inline(b"x"),
        }));
    }

    /// A statement lands; the answer is heard if it is about the row that the node waits for.
    fn land(&mut self, database: &FakeDatabase, index: usize) {
        let pending = self.under_way.remove(index);
        database.land(&pending);
        let Some(link) = self.next else { return };
        let is_stored = database
            .rows()
            .get(&link.seq)
            .is_some_and(|row| row.nonce == link.nonce);
        if is_stored {
            self.acknowledged.push(link.seq);
            self.last = link;
            self.next = None;
        } else if self.under_way.is_empty() {
            // Fenced: it ends.
            self.begun = u64::MAX;
            self.next = None;
        }
    }
}

/// The node that takes over.
#[derive(Default)]
struct New {
    steps: u32,
    newest: Link,
    /// Its rows; the first is the fence.
    rows: Vec<Link>,
}

impl New {
    fn is_done(&self) -> bool {
        self.rows.len() == 3
    }

    fn step(&mut self, database: &FakeDatabase) {
        let node = database.node();
        self.steps += 1;
        if self.steps == 1 {
            assert!(node.claim(1, [2; 16]).unwrap());
            return;
        }
        if self.steps == 2 {
            self.newest = node.newest().unwrap();
            return;
        }
        let before = self.rows.last().copied().unwrap_or(self.newest);
        let link = Link {
            seq: before.seq + 1,
            nonce: [100 + u8::try_from(self.steps).unwrap(); 16],
        };
        let inserted = node
            .commit(&Row {
                epoch: 2,
                link,
                previous: before.nonce,
                name: None,
                at: 0,
                body: Body::Inline(&[]),
            })
            .unwrap();
        if inserted {
            self.rows.push(link);
        } else {
            assert!(self.rows.is_empty(), "behind its fence nothing is in its way");
            // A row of the former owner was first.
            self.newest = node.newest().unwrap();
        }
    }

    fn check(&self, database: &FakeDatabase, former: &Former) {
        assert_eq!(database.violations(), Vec::<String>::new());
        let rows = database.rows();
        let Some(fence) = self.rows.first() else { return };
        for (seq, row) in &rows {
            assert_eq!(
                row.epoch == 2,
                *seq >= fence.seq,
                "only its rows are behind the fence"
            );
        }
        for seq in &former.acknowledged {
            assert!(*seq < fence.seq, "acknowledged and behind the fence");
            assert_eq!(rows[seq].epoch, 1, "acknowledged and gone");
        }
    }
}

#[test]
fn no_interleaving_lets_two_owners_commit() {
    const STEPS_MAX: usize = 13;
    let mut open = vec![Vec::new()];
    let mut ended = 0;
    while let Some(steps) = open.pop() {
        let next = replay(&steps);
        if next.is_empty() || steps.len() == STEPS_MAX {
            ended += 1;
            continue;
        }
        for step in next {
            let mut more = steps.clone();
            more.push(step);
            open.push(more);
        }
    }
    assert!(ended > 1000, "{ended} interleavings");
}

#[test]
fn owners_follow_each_other_without_loss() {
    let database = FakeDatabase::default();
    let mut expected = Vec::new();
    let mut log = None;
    for number in 0..20 {
        let node: Arc<dyn Database> = database.node();
        let journal = open(&node, &usual());
        let log = *log.get_or_insert_with(|| create(&journal, Durability::Sync));
        let text = number.to_string();
        put(&journal, log, batch(&[&text]));
        expected.push((number, text));
        assert_eq!(read_all(&journal, log, 1000).unwrap(), expected);
        // Each second owner dies without a word.
        if number % 2 == 0 {
            std::mem::forget(journal);
        }
    }
}
