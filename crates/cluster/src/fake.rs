//! A database and an object store in memory, with faults that a test controls.
//!
//! A commit can be taken apart as PostgreSQL does it: its conditions are seen in a snapshot at its beginning,
//! and the key is checked when it lands ([`FakeNode::begin`], [`FakeDatabase::land`]).

mod objects;
mod tables;
mod weather;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use stafett_model::Lock;

use self::objects::Lists;
use self::weather::dead;
pub use self::weather::{Call, Fate, Weather};
use crate::database::{
    BLOCK_BYTES, Database, DatabaseError, Kept, Link, Nonce, Owner, Publication, Reference, Row, append_part,
    copy_part,
};
use crate::objects::Part;

/// Names of a page of a list: few, so that tests see several.
const PAGE: usize = 3;

/// The database of one cell, and its objects. Clones are the same one.
#[derive(Debug, Clone)]
pub struct FakeDatabase(Arc<Lock<Tables>>);

#[derive(Debug, Default)]
struct Tables {
    owner: Owner,
    store: Option<String>,
    rows: BTreeMap<u64, StoredRow>,
    files: BTreeMap<String, (u64, BTreeMap<u32, Vec<u8>>)>,
    /// Files in parts, with their lengths.
    parts: BTreeMap<String, (u64, Vec<Part>)>,
    /// Sizes of objects, and since when nothing refers to them.
    garbage: BTreeMap<String, (u64, Duration)>,
    objects: BTreeMap<String, Vec<u8>>,
    /// Objects that are lost for a while, or for good.
    lost: BTreeSet<String>,
    lists: Lists,
    now: Duration,
    /// Names of all objects there ever were.
    names: BTreeSet<String>,
    /// Puts whose answers were lost and that come later.
    late: Vec<(String, Vec<u8>)>,
    /// Commits that land later.
    late_commits: Vec<Pending>,
    /// Nonces of all rows there ever were.
    nonces: BTreeMap<u64, Nonce>,
    /// Places of rows that were removed, and of which a copy landed late.
    copies: BTreeSet<u64>,
    violations: Vec<String>,
}

/// A row as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRow {
    pub epoch: u64,
    pub nonce: Nonce,
    pub name: Option<String>,
    pub at: u64,
    /// Empty if an object has the bytes.
    pub body: Vec<u8>,
    pub object: Option<Part>,
}

impl StoredRow {
    fn bytes(&self) -> u64 {
        self.object
            .as_ref()
            .map_or(self.body.len() as u64, |part| part.bytes.into())
    }
}

/// A commit under way: whether its conditions held at its beginning.
#[derive(Debug, Clone)]
pub struct Pending {
    seq: u64,
    row: StoredRow,
    holds: bool,
}

/// A fault at a call of a node, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub call: u64,
    pub is_done: bool,
    pub effect: Effect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// There is no answer to this call.
    NoAnswer,
    /// The node dies in it: no later call reaches the database.
    Death,
    /// There is no answer to this call and all later ones.
    Silence,
}

/// The database as one node sees it.
#[derive(Debug)]
pub struct FakeNode {
    database: FakeDatabase,
    calls: Lock<Calls>,
    weather: Option<Arc<dyn Weather>>,
}

#[derive(Debug, Default)]
struct Calls {
    made: u64,
    fault: Option<Fault>,
    is_dead: bool,
    is_silent: bool,
}

impl Default for FakeDatabase {
    fn default() -> Self {
        let mut tables = Tables::default();
        let first = StoredRow {
            epoch: 0,
            nonce: Nonce::default(),
            name: None,
            at: 0,
            body: Vec::new(),
            object: None,
        };
        tables.rows.insert(0, first);
        Self(Arc::new(Lock::new(tables)))
    }
}

impl FakeDatabase {
    /// Returns the database as a new node sees it.
    pub fn node(&self) -> Arc<FakeNode> {
        self.node_with(None)
    }

    pub fn node_with(&self, fault: Option<Fault>) -> Arc<FakeNode> {
        Arc::new(FakeNode {
            database: self.clone(),
            calls: Lock::new(Calls {
                fault,
                ..Calls::default()
            }),
            weather: None,
        })
    }

    /// Returns the database as a new node sees it whose calls take a course that a test chooses.
    pub fn node_in(&self, weather: Arc<dyn Weather>) -> Arc<FakeNode> {
        Arc::new(FakeNode {
            database: self.clone(),
            calls: Lock::default(),
            weather: Some(weather),
        })
    }

    /// Ends a commit. True if the row was inserted.
    pub fn land(&self, pending: &Pending) -> bool {
        self.0.lock().land(pending)
    }

    /// Returns the objects by name.
    pub fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        self.0.lock().objects.clone()
    }

    /// Changes an object behind everyone's back; `None` removes it.
    pub fn tamper(&self, object: &str, body: Option<Vec<u8>>) {
        let mut tables = self.0.lock();
        match body {
            Some(body) => tables.objects.insert(object.to_owned(), body),
            None => tables.objects.remove(object),
        };
    }

    /// Has puts come whose answers were lost.
    pub fn land_puts(&self) {
        let mut tables = self.0.lock();
        let late = std::mem::take(&mut tables.late);
        tables.objects.extend(late);
    }

    /// Returns all rows by their place.
    pub fn rows(&self) -> BTreeMap<u64, StoredRow> {
        self.0.lock().rows.clone()
    }
}

impl FakeNode {
    /// Returns the number of calls.
    pub fn calls(&self) -> u64 {
        self.calls.lock().made
    }

    /// Begins a commit: its conditions are seen now.
    pub fn begin(&self, row: &Row<'_>) -> Pending {
        self.database.0.lock().begin(row)
    }

    /// Does a call, unless a fault keeps it from the database, and its answer from the node.
    fn call<R>(&self, work: impl FnOnce(&mut Tables) -> R) -> Result<R, DatabaseError> {
        let fault = {
            let mut calls = self.calls.lock();
            if calls.is_silent {
                return Err(DatabaseError::Unreachable("no answer".to_owned()));
            }
            if calls.is_dead {
                return Err(dead());
            }
            calls.made += 1;
            let fault = calls.fault.filter(|fault| fault.call == calls.made);
            calls.is_dead = fault.is_some_and(|fault| fault.effect == Effect::Death);
            calls.is_silent = fault.is_some_and(|fault| fault.effect == Effect::Silence);
            fault
        };
        let Some(fault) = fault else {
            return Ok(work(&mut self.database.0.lock()));
        };
        if fault.is_done {
            work(&mut self.database.0.lock());
        }
        Err(match fault.effect {
            Effect::NoAnswer | Effect::Silence => DatabaseError::Unreachable("no answer".to_owned()),
            Effect::Death => dead(),
        })
    }

    /// Does a call that is neither of an owner nor of its objects.
    fn look<R>(&self, work: impl FnOnce(&mut Tables) -> R) -> Result<R, DatabaseError> {
        let fate = self.fate(Call::Other);
        self.call_as(fate, work)
    }

    fn of_epoch(
        &self,
        call: Call,
        epoch: u64,
        change: impl FnOnce(&mut Tables),
    ) -> Result<bool, DatabaseError> {
        let fate = self.fate(call);
        self.call_as(fate, |tables| {
            let is_owner = tables.owner.epoch == epoch;
            if is_owner {
                change(tables);
            }
            is_owner
        })
    }
}

impl Database for FakeNode {
    fn owner(&self) -> Result<Owner, DatabaseError> {
        self.look(|tables| tables.owner)
    }

    fn claim(&self, seen: u64, node: Nonce) -> Result<bool, DatabaseError> {
        self.of_epoch(Call::Claim, seen, |tables| {
            tables.owner = Owner {
                epoch: seen + 1,
                node: Some(node),
                beat: tables.owner.beat + 1,
            };
        })
    }

    fn beat(&self, epoch: u64) -> Result<bool, DatabaseError> {
        self.of_epoch(Call::Other, epoch, |tables| tables.owner.beat += 1)
    }

    fn release(&self, epoch: u64) -> Result<(), DatabaseError> {
        self.of_epoch(Call::Other, epoch, |tables| tables.owner.node = None)
            .map(drop)
    }

    fn newest(&self) -> Result<Link, DatabaseError> {
        self.look(|tables| {
            let last = tables.rows.last_key_value();
            last.map_or_else(Link::default, |(seq, row)| Link {
                seq: *seq,
                nonce: row.nonce,
            })
        })
    }

    fn commit(&self, row: &Row<'_>) -> Result<bool, DatabaseError> {
        self.commit_in(|tables| tables.begin(row))
    }

    fn nonce_at(&self, seq: u64) -> Result<Option<Nonce>, DatabaseError> {
        self.look(|tables| tables.rows.get(&seq).map(|row| row.nonce))
    }

    fn publish(&self, epoch: u64, publication: &Publication) -> Result<bool, DatabaseError> {
        self.of_epoch(Call::Publish, epoch, |tables| {
            for name in &publication.removed {
                tables.remove(name, &[]);
            }
            for file in &publication.changed {
                tables.put(file);
            }
        })
    }

    fn list(&self) -> Result<Vec<(String, u64, Kept)>, DatabaseError> {
        self.look(|tables| {
            let files = tables.files.iter();
            let files = files.map(|(name, (bytes, _))| (name.clone(), *bytes, Kept::Blocks));
            let parts = tables.parts.iter();
            let parts = parts.map(|(name, (bytes, _))| (name.clone(), *bytes, Kept::Parts));
            // The rest of a removed segment does not begin at 0.
            let mut segments: BTreeMap<String, u64> = BTreeMap::new();
            for row in tables.rows.values() {
                if let Some(name) = &row.name
                    && (row.at == 0 || segments.contains_key(name))
                {
                    let end = segments.entry(name.clone()).or_default();
                    *end = (*end).max(row.at + row.bytes());
                }
            }
            let segments = segments.into_iter();
            files
                .chain(parts)
                .chain(segments.map(|(name, bytes)| (name, bytes, Kept::Rows)))
                .collect()
        })
    }

    fn read(&self, name: &str, kept: Kept, from: u64, bytes: usize) -> Result<Vec<u8>, DatabaseError> {
        self.look(|tables| match kept {
            Kept::Parts => Vec::new(),
            Kept::Rows => {
                let mut read = Vec::new();
                for row in tables.rows.values() {
                    if row.name.as_deref() == Some(name) {
                        append_part(&mut read, from, bytes, row.at, &row.body);
                    }
                }
                read
            }
            Kept::Blocks => {
                let Some((_, blocks)) = tables.files.get(name) else {
                    return Vec::new();
                };
                let mut read = vec![0; bytes];
                for (number, block) in blocks {
                    copy_part(&mut read, from, u64::from(*number) * BLOCK_BYTES as u64, block);
                }
                read
            }
        })
    }

    fn parts(&self, name: &str, kept: Kept) -> Result<Vec<Part>, DatabaseError> {
        self.look(|tables| match kept {
            Kept::Blocks => Vec::new(),
            Kept::Parts => tables
                .parts
                .get(name)
                .map_or_else(Vec::new, |(_, parts)| parts.clone()),
            Kept::Rows => {
                let rows = tables.rows.values();
                let rows = rows.filter(|row| row.name.as_deref() == Some(name));
                rows.filter_map(|row| row.object.clone()).collect()
            }
        })
    }

    fn references(&self, behind: &str) -> Result<Vec<Reference>, DatabaseError> {
        self.look(|tables| {
            let mut found: Vec<_> = tables.references();
            found.retain(|reference| reference.object.as_str() > behind);
            found.sort_by(|one, other| one.object.cmp(&other.object));
            found.truncate(PAGE);
            found
        })
    }

    fn garbage(&self, age: Duration) -> Result<Vec<String>, DatabaseError> {
        self.look(|tables| {
            let garbage = tables.garbage.iter();
            let old = garbage.filter(|(_, (_, since))| tables.now.saturating_sub(*since) >= age);
            old.map(|(object, _)| object.clone()).collect()
        })
    }

    fn store(&self) -> Result<Option<String>, DatabaseError> {
        self.look(|tables| tables.store.clone())
    }

    fn set_store(&self, seen: Option<&str>, number: &str) -> Result<bool, DatabaseError> {
        self.look(|tables| {
            let is_seen = tables.store.as_deref() == seen;
            if is_seen {
                tables.store = Some(number.to_owned());
            }
            is_seen
        })
    }

    fn forget_garbage(&self, objects: &[String]) -> Result<(), DatabaseError> {
        self.look(|tables| tables.garbage.retain(|object, _| !objects.contains(object)))
    }
}
