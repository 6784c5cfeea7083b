//! Take-overs of cells with objects: segments that are fetched several at a time, and objects that are lost.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use stafett_cluster::fake::{FakeDatabase, FakeNode};
use stafett_cluster::{Candidate, Database, Look, Objects, ObjectsError, Settings, SharedStorage};
use stafett_journal::disk::storage::Storage;
use stafett_journal::{DiskJournal, Journal, Metrics};
use stafett_model::{Durability, LogId};

use crate::node::{NO_LEASE, storage_with, with_objects};
use crate::support::{Seen, batch, placed, read, rewriting, seen};

/// Records that fill a segment each.
const RECORDS: u64 = 12;

/// Guard against a hanging test.
const LIMIT: Duration = Duration::from_mins(1);

struct Node {
    storage: Arc<SharedStorage>,
    journal: DiskJournal,
}

/// Opens the journal as a node does, with everything but small files in objects.
fn open(
    database: &FakeDatabase,
    objects: impl FnOnce(Arc<FakeNode>) -> Arc<dyn Objects>,
) -> Result<Node, String> {
    let fake = database.node();
    let shared: Arc<dyn Database> = Arc::<FakeNode>::clone(&fake);
    let settings = Settings {
        cache_bytes: 64 << 20,
        ..with_objects(objects(fake), 4 << 10)
    };
    let candidate = Candidate::new(Arc::clone(&shared), [3; 16], NO_LEASE);
    let mut candidate = candidate.with_store(settings.objects.clone());
    // The first look sees the former owner.
    let mut looks = (0..2).map(|_| candidate.look(|| Duration::ZERO).unwrap());
    let claim = looks.find_map(|look| match look {
        Look::Claimed(claim) => Some(claim),
        Look::Owned => None,
    });
    let claim = claim.unwrap();
    let storage = Arc::new(storage_with(&shared, claim, settings).unwrap());
    storage.fetch_begins().unwrap();
    let opened: Arc<dyn Storage> = Arc::<SharedStorage>::clone(&storage);
    let journal = DiskJournal::open_on(opened, rewriting(1 << 20), Metrics::new());
    let journal = journal.map_err(|error| error.to_string())?;
    Ok(Node { storage, journal })
}

fn plain(fake: Arc<FakeNode>) -> Arc<dyn Objects> {
    fake
}

fn value(number: u64) -> String {
    format!("{number:07}").repeat(8000)
}

fn append(node: &Node, log: LogId, value: &str) -> u64 {
    let ticket = node
        .journal
        .append(vec![stafett_journal::Append::batch(log, batch(&[value]))]);
    node.journal.pump();
    placed(ticket.wait().remove(0)).base.0
}

/// Has a node write two logs in turn, a segment for each record, and move the segments into objects.
fn written(database: &FakeDatabase, has_checkpoint: bool) -> [LogId; 2] {
    let node = open(database, plain).unwrap();
    let logs = {
        let create = || {
            let log = node.journal.allocate(1);
            let spec = stafett_journal::LogSpec {
                durability: Durability::Sync,
                ..stafett_journal::LogSpec::default()
            };
            let frame = stafett_journal::Frame::CreateLogs {
                first: log,
                count: 1,
                spec,
            };
            let wait = stafett_journal::StateWait::Synced;
            let ticket = node
                .journal
                .append(vec![stafett_journal::Append::state([frame], wait)]);
            node.journal.pump();
            drop(ticket.wait());
            log
        };
        [create(), create()]
    };
    for number in 0..RECORDS {
        append(&node, logs[usize::try_from(number % 2).unwrap()], &value(number));
    }
    if has_checkpoint {
        node.journal.checkpoint();
        node.journal.pump();
    }
    assert!(node.storage.seal().unwrap() >= 8);
    node.storage.delete_garbage().unwrap();
    if !has_checkpoint {
        std::mem::forget(node);
    }
    logs
}

/// Returns the records of a log that can be read, and the number of reads that were errors.
fn readable(node: &Node, log: LogId) -> (Vec<Seen>, usize) {
    let bounds = node.journal.bounds(log).unwrap();
    let (mut found, mut errors) = (Vec::new(), 0);
    let mut offset = bounds.start.0;
    while offset < bounds.end.0 {
        match read(&node.journal, log, offset, 1) {
            Ok(run) if run.next.0 > offset => {
                found.extend(seen(&run));
                offset = run.next.0;
            }
            Ok(_) => break,
            Err(_) => {
                errors += 1;
                offset += 1;
            }
        }
    }
    (found, errors)
}

/// Returns the name of the object with the bytes of a record.
fn object_of(database: &FakeDatabase, number: u64) -> String {
    // Large records are in chunks.
    let value = &value(number).into_bytes()[..700];
    let objects = database.objects();
    let mut with = objects
        .iter()
        .filter(|(_, body)| body.windows(value.len()).any(|bytes| bytes == value));
    with.next().unwrap().0.clone()
}

/// A store whose reads wait until several are under way.
#[derive(Debug)]
struct Together {
    objects: Arc<FakeNode>,
    /// Reads under way, and the most of them.
    reads: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Objects for Together {
    fn prepare(&self) -> Result<(), ObjectsError> {
        Ok(())
    }

    fn put(&self, name: &str, body: &[u8]) -> Result<(), ObjectsError> {
        Objects::put(&*self.objects, name, body)
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, ObjectsError> {
        if !name.starts_with("store/") {
            let mut reads = self.reads.lock().unwrap();
            reads.0 += 1;
            reads.1 = reads.1.max(reads.0);
            self.changed.notify_all();
            let waited = self.changed.wait_timeout_while(reads, LIMIT, |reads| reads.1 < 4);
            waited.unwrap().0.0 -= 1;
        }
        self.objects.get(name)
    }

    fn delete(&self, name: &str) -> Result<(), ObjectsError> {
        self.objects.delete(name)
    }

    fn list(&self, behind: &str) -> Result<Vec<(String, u64)>, ObjectsError> {
        Objects::list(&*self.objects, behind)
    }
}

#[test]
fn a_take_over_reads_the_begins_of_segments_together() {
    let database = FakeDatabase::default();
    let logs = written(&database, true);
    let began = std::time::Instant::now();
    let node = open(&database, |objects| {
        Arc::new(Together {
            objects,
            reads: Mutex::default(),
            changed: Condvar::new(),
        })
    })
    .unwrap();
    assert!(began.elapsed() < LIMIT, "reads came one after the other");
    let (found, errors) = readable(&node, logs[0]);
    assert_eq!((found.len() as u64, errors), (RECORDS / 2, 0));
}

#[test]
fn a_lost_object_keeps_the_cell_shut_until_it_is_back() {
    for lost in [4, RECORDS - 1] {
        let database = FakeDatabase::default();
        let logs = written(&database, false);
        let name = object_of(&database, lost);
        let body = database.objects()[&name].clone();
        database.tamper(&name, None);
        let error = open(&database, plain).map(drop).unwrap_err();
        assert!(error.contains("missing"), "{error}");
        database.tamper(&name, Some(body));
        let node = open(&database, plain).unwrap();
        for log in logs {
            let (found, errors) = readable(&node, log);
            assert_eq!((found.len() as u64, errors), (RECORDS / 2, 0));
        }
    }
}
