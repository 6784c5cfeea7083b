//! The object store in memory. It may lose objects for a while, and its lists may be late.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Call, FakeDatabase, FakeNode, PAGE, Tables};
use crate::database::DatabaseError;
use crate::objects::{Objects, ObjectsError};

/// Difference of lists from the objects that there are.
#[derive(Debug, Default)]
pub(super) struct Lists {
    are_late: bool,
    /// Objects that no list has yet.
    new: BTreeSet<String>,
    /// Objects that were deleted, and are in lists with their sizes.
    deleted: BTreeMap<String, u64>,
}

impl FakeDatabase {
    /// Has lists lack what changes from now on, until they catch up.
    pub fn list_late(&self) {
        self.0.lock().lists.are_late = true;
    }

    /// Makes lists complete: for all later ones too if `for_good`, else up to now.
    pub fn catch_up(&self, for_good: bool) {
        let lists = &mut self.0.lock().lists;
        let are_late = lists.are_late && !for_good;
        *lists = Lists {
            are_late,
            ..Lists::default()
        };
    }

    /// Loses an object whose bytes count, by its place among those. Returns its name; `None` if there is none.
    pub fn lose(&self, index: usize) -> Option<String> {
        let mut tables = self.0.lock();
        let needed: BTreeSet<&String> = tables.objects.keys().filter(|name| tables.needs(name)).collect();
        let name = needed
            .iter()
            .nth(index.checked_rem(needed.len())?)
            .copied()?
            .clone();
        tables.lost.insert(name.clone());
        Some(name)
    }

    /// Has all lost objects back. Returns their number.
    pub fn bring_back(&self) -> usize {
        std::mem::take(&mut self.0.lock().lost).len()
    }

    /// Returns the number of lost objects whose bytes count.
    pub fn lost(&self) -> usize {
        let tables = self.0.lock();
        tables.lost.iter().filter(|name| tables.needs(name)).count()
    }

    /// Returns the time of the database.
    pub fn now(&self) -> Duration {
        self.0.lock().now
    }

    pub fn advance(&self, time: Duration) {
        self.0.lock().now += time;
    }
}

impl FakeNode {
    fn object_call<R>(&self, call: Call, work: impl FnOnce(&mut Tables) -> R) -> Result<R, ObjectsError> {
        let fate = self.fate(call);
        self.call_as(fate, work).map_err(|error| match error {
            DatabaseError::Unreachable(why) => ObjectsError::Unreachable(why),
            DatabaseError::Refused(why) => ObjectsError::Refused(why),
        })
    }
}

impl Objects for FakeNode {
    fn prepare(&self) -> Result<(), ObjectsError> {
        Ok(())
    }

    fn put(&self, name: &str, body: &[u8]) -> Result<(), ObjectsError> {
        let put = self.object_call(Call::Put, |tables| {
            tables.use_name(name);
            tables.objects.insert(name.to_owned(), body.to_vec());
            if tables.lists.are_late {
                tables.lists.new.insert(name.to_owned());
            }
        });
        let mut tables = self.database.0.lock();
        if put.is_err() && !tables.objects.contains_key(name) {
            tables.late.push((name.to_owned(), body.to_vec()));
        }
        put
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, ObjectsError> {
        self.object_call(Call::Other, |tables| {
            let is_lost = tables.lost.contains(name);
            tables.objects.get(name).filter(|_| !is_lost).cloned()
        })
    }

    fn delete(&self, name: &str) -> Result<(), ObjectsError> {
        self.object_call(Call::Delete, |tables| {
            if tables.needs(name) {
                tables.violate(format!("{name} is deleted, and needed"));
            }
            let body = tables.objects.remove(name);
            tables.lost.remove(name);
            let is_listed = !tables.lists.new.remove(name);
            if let Some(body) = body.filter(|_| tables.lists.are_late && is_listed) {
                tables.lists.deleted.insert(name.to_owned(), body.len() as u64);
            }
        })
    }

    fn list(&self, behind: &str) -> Result<Vec<(String, u64)>, ObjectsError> {
        self.object_call(Call::Other, |tables| {
            let is_listed =
                |name: &&String| !tables.lost.contains(*name) && !tables.lists.new.contains(*name);
            let objects = tables.objects.iter().filter(|(name, _)| is_listed(name));
            let objects = objects.map(|(name, body)| (name.clone(), body.len() as u64));
            let mut listed: BTreeMap<String, u64> = objects.collect();
            let deleted = &tables.lists.deleted;
            listed.extend(deleted.iter().map(|(name, bytes)| (name.clone(), *bytes)));
            let behind = listed.into_iter().filter(|(name, _)| name.as_str() > behind);
            behind.take(PAGE).collect()
        })
    }
}
