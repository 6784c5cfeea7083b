//! A database and an object store in memory, with faults that a test controls.
//!
//! A commit can be taken apart as PostgreSQL does it: its conditions are seen in a snapshot at its beginning,
//! and the key is checked when it lands ([`FakeNode::begin`], [`FakeDatabase::land`]).

mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use stafett_model::Lock;

use crate::database::{
    BLOCK_BYTES, Body, ChangedFile, Database, DatabaseError, Kept, Link, Nonce, Owner, Publication,
    Reference, Row, append_part, copy_part,
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
    garbage: BTreeMap<String, u64>,
    objects: BTreeMap<String, Vec<u8>>,
    /// Names of all objects there ever were.
    names: BTreeSet<String>,
    /// Puts whose answers were lost and that come later.
    late: Vec<(String, Vec<u8>)>,
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
                return Err(DatabaseError::Refused("the node is dead".to_owned()));
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
            Effect::Death => DatabaseError::Refused("the node is dead".to_owned()),
        })
    }

    fn of_epoch(&self, epoch: u64, change: impl FnOnce(&mut Tables)) -> Result<bool, DatabaseError> {
        self.call(|tables| {
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
        self.call(|tables| tables.owner)
    }

    fn claim(&self, seen: u64, node: Nonce) -> Result<bool, DatabaseError> {
        self.of_epoch(seen, |tables| {
            tables.owner = Owner {
                epoch: seen + 1,
                node: Some(node),
                beat: tables.owner.beat + 1,
            };
        })
    }

    fn beat(&self, epoch: u64) -> Result<bool, DatabaseError> {
        self.of_epoch(epoch, |tables| tables.owner.beat += 1)
    }

    fn release(&self, epoch: u64) -> Result<(), DatabaseError> {
        self.of_epoch(epoch, |tables| tables.owner.node = None).map(drop)
    }

    fn newest(&self) -> Result<Link, DatabaseError> {
        self.call(|tables| {
            let last = tables.rows.last_key_value();
            last.map_or_else(Link::default, |(seq, row)| Link {
                seq: *seq,
                nonce: row.nonce,
            })
        })
    }

    fn commit(&self, row: &Row<'_>) -> Result<bool, DatabaseError> {
        self.call(|tables| {
            let pending = tables.begin(row);
            tables.land(&pending)
        })
    }

    fn nonce_at(&self, seq: u64) -> Result<Option<Nonce>, DatabaseError> {
        self.call(|tables| tables.rows.get(&seq).map(|row| row.nonce))
    }

    fn publish(&self, epoch: u64, publication: &Publication) -> Result<bool, DatabaseError> {
        self.of_epoch(epoch, |tables| {
            for name in &publication.removed {
                tables.remove(name, &[]);
            }
            for file in &publication.changed {
                tables.put(file);
            }
        })
    }

    fn list(&self) -> Result<Vec<(String, u64, Kept)>, DatabaseError> {
        self.call(|tables| {
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
        self.call(|tables| match kept {
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
        self.call(|tables| match kept {
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
        self.call(|tables| {
            let mut found: Vec<_> = tables.references();
            found.retain(|reference| reference.object.as_str() > behind);
            found.sort_by(|one, other| one.object.cmp(&other.object));
            found.truncate(PAGE);
            found
        })
    }

    fn garbage(&self, _: Duration) -> Result<Vec<String>, DatabaseError> {
        self.call(|tables| tables.garbage.keys().cloned().collect())
    }

    fn store(&self) -> Result<Option<String>, DatabaseError> {
        self.call(|tables| tables.store.clone())
    }

    fn set_store(&self, seen: Option<&str>, number: &str) -> Result<bool, DatabaseError> {
        self.call(|tables| {
            let is_seen = tables.store.as_deref() == seen;
            if is_seen {
                tables.store = Some(number.to_owned());
            }
            is_seen
        })
    }

    fn forget_garbage(&self, objects: &[String]) -> Result<(), DatabaseError> {
        self.call(|tables| tables.garbage.retain(|object, _| !objects.contains(object)))
    }
}

impl Tables {
    fn use_name(&mut self, name: &str) {
        assert!(self.names.insert(name.to_owned()), "{name} was used");
    }

    fn references(&self) -> Vec<Reference> {
        let of = |part: &Part| Reference {
            object: part.object.clone(),
            bytes: part.bytes.into(),
            is_garbage: false,
        };
        let rows = self.rows.values().filter_map(|row| row.object.as_ref()).map(of);
        let parts = self.parts.values().flat_map(|(_, parts)| parts).map(of);
        let garbage = self.garbage.iter().map(|(object, bytes)| Reference {
            object: object.clone(),
            bytes: *bytes,
            is_garbage: true,
        });
        rows.chain(parts).chain(garbage).collect()
    }

    fn begin(&self, row: &Row<'_>) -> Pending {
        let before = row.link.seq.checked_sub(1).and_then(|seq| self.rows.get(&seq));
        Pending {
            seq: row.link.seq,
            row: StoredRow {
                epoch: row.epoch,
                nonce: row.link.nonce,
                name: row.name.map(str::to_owned),
                at: row.at,
                body: match row.body {
                    Body::Inline(body) => body.to_vec(),
                    Body::Object(_) => Vec::new(),
                },
                object: match row.body {
                    Body::Inline(_) => None,
                    Body::Object(part) => Some(part.clone()),
                },
            },
            holds: self.owner.epoch == row.epoch && before.is_some_and(|before| before.nonce == row.previous),
        }
    }

    fn land(&mut self, pending: &Pending) -> bool {
        if !pending.holds || self.rows.contains_key(&pending.seq) {
            return false;
        }
        // The objects of some tests are elsewhere.
        if let Some(part) = pending.row.object.as_ref().filter(|_| !self.names.is_empty()) {
            assert!(self.objects.contains_key(&part.object), "put before it is named");
        }
        self.rows.insert(pending.seq, pending.row.clone());
        true
    }

    /// Removes everything of a name; its objects are garbage but for those that are kept.
    fn remove(&mut self, name: &str, kept: &[Part]) {
        let newest = self.rows.last_key_value().map(|(seq, _)| *seq);
        let mut gone: Vec<Part> = Vec::new();
        self.rows.retain(|seq, row| {
            let stays = row.name.as_deref() != Some(name) || Some(*seq) == newest;
            if !stays {
                gone.extend(row.object.clone());
            }
            stays
        });
        self.files.remove(name);
        gone.extend(
            self.parts
                .remove(name)
                .map(|(_, parts)| parts)
                .unwrap_or_default(),
        );
        for part in gone {
            if !kept.iter().any(|it| it.object == part.object) {
                self.garbage.insert(part.object, part.bytes.into());
            }
        }
    }

    fn put(&mut self, file: &ChangedFile) {
        if let Some(parts) = &file.parts {
            self.remove(&file.name, parts);
            self.parts.insert(file.name.clone(), (file.bytes, parts.clone()));
            return;
        }
        let (bytes, blocks) = self.files.entry(file.name.clone()).or_default();
        if file.is_new {
            blocks.clear();
        }
        *bytes = file.bytes;
        blocks.extend(file.blocks.iter().cloned());
        let end = file.bytes.div_ceil(BLOCK_BYTES as u64);
        blocks.retain(|number, _| u64::from(*number) < end);
    }
}
