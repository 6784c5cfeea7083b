//! Agreement of a database and its object store: all objects with a reference are there, and no others.
//!
//! Both list their names in one order, a page at a time.

use std::cmp::Ordering;
use std::collections::VecDeque;

use crate::belonging::is_mark;
use crate::database::{Database, DatabaseError, Reference};
use crate::objects::Objects;

/// Names of missing objects that are told.
const NAMED_MAX: usize = 100;

/// Counts of objects of a cell.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Agreement {
    /// Objects that are referred to and there.
    pub objects: u64,
    pub bytes: u64,
    /// Objects that are referred to and not there, or of another length: data is lost.
    pub missing: u64,
    /// Names of the first of them.
    pub missing_names: Vec<String>,
    /// Objects that nothing refers to any more, until they are old enough to be deleted.
    pub garbage: u64,
    pub garbage_bytes: u64,
    /// Objects that the database does not know: on their way, or left behind by a node that ended.
    pub unknown: u64,
    pub unknown_bytes: u64,
}

/// A name that one of both has.
#[derive(Debug)]
pub(crate) enum Found {
    Both { reference: Reference, bytes: u64 },
    OnlyReferred(Reference),
    OnlyStored { object: String, bytes: u64 },
}

/// Compares database and object store of a cell. Beside a living owner, objects on their way are unknown.
pub fn agreement(database: &dyn Database, objects: &dyn Objects) -> Result<Agreement, DatabaseError> {
    let mut counts = Agreement::default();
    let mut suspects = Vec::new();
    compare(database, objects, &mut |found| {
        match found {
            Found::Both { reference, bytes } if reference.is_garbage => {
                counts.garbage += 1;
                counts.garbage_bytes += bytes;
            }
            Found::Both { reference, bytes } if reference.bytes == bytes => {
                counts.objects += 1;
                counts.bytes += bytes;
            }
            // Garbage that is deleted and not forgotten yet.
            Found::OnlyReferred(reference) if reference.is_garbage => {}
            Found::Both { reference, .. } | Found::OnlyReferred(reference) => suspects.push(reference),
            Found::OnlyStored { bytes, .. } => {
                counts.unknown += 1;
                counts.unknown_bytes += bytes;
            }
        }
        Ok(())
    })?;
    for suspect in suspects {
        // It may have come, or gone, between the two looks.
        let body = objects.get(&suspect.object)?;
        if body.is_some_and(|body| body.len() as u64 == suspect.bytes) {
            counts.objects += 1;
            counts.bytes += suspect.bytes;
        } else if is_referred_to(database, &suspect.object)? {
            counts.missing += 1;
            if counts.missing_names.len() < NAMED_MAX {
                counts.missing_names.push(suspect.object);
            }
        }
    }
    Ok(counts)
}

pub(crate) fn is_referred_to(database: &dyn Database, object: &str) -> Result<bool, DatabaseError> {
    Ok(reference(database, object)?.is_some_and(|it| !it.is_garbage))
}

/// Returns the reference to an object in the database.
pub(crate) fn reference(database: &dyn Database, object: &str) -> Result<Option<Reference>, DatabaseError> {
    // The name without its last letter is right before it, and before few others.
    let mut letters = object.chars();
    letters.next_back();
    let mut behind = letters.as_str().to_owned();
    loop {
        let page = database.references(&behind)?;
        let Some(last) = page.last() else { return Ok(None) };
        if let Some(found) = page.iter().find(|it| it.object == object) {
            return Ok(Some(found.clone()));
        }
        if last.object.as_str() > object {
            return Ok(None);
        }
        behind.clone_from(&last.object);
    }
}

/// Visits all names that database or object store have, in their order.
pub(crate) fn compare(
    database: &dyn Database,
    objects: &dyn Objects,
    visit: &mut dyn FnMut(Found) -> Result<(), DatabaseError>,
) -> Result<(), DatabaseError> {
    let mut stored = Pages::new(
        |behind| objects.list(behind).map_err(DatabaseError::from),
        |(name, _): &(String, u64)| name.clone(),
    );
    let mut referred = Pages::new(
        |behind| database.references(behind),
        |reference: &Reference| reference.object.clone(),
    );
    loop {
        let order = match (stored.first()?, referred.first()?) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((name, _)), Some(reference)) => name.cmp(&reference.object),
        };
        let of_store = if order == Ordering::Greater {
            None
        } else {
            stored.next()
        };
        let of_database = if order == Ordering::Less {
            None
        } else {
            referred.next()
        };
        visit(match (of_store, of_database) {
            (Some((_, bytes)), Some(reference)) => Found::Both { reference, bytes },
            (Some((object, _)), None) if is_mark(&object) => continue,
            (Some((object, bytes)), None) => Found::OnlyStored { object, bytes },
            (None, Some(reference)) => Found::OnlyReferred(reference),
            (None, None) => return Ok(()),
        })?;
    }
}

/// A list that is read a page at a time.
struct Pages<T, L, N> {
    list: L,
    name: N,
    page: VecDeque<T>,
    behind: String,
    has_ended: bool,
}

impl<T, L, N> Pages<T, L, N>
where
    L: FnMut(&str) -> Result<Vec<T>, DatabaseError>,
    N: Fn(&T) -> String,
{
    fn new(list: L, name: N) -> Self {
        Self {
            list,
            name,
            page: VecDeque::new(),
            behind: String::new(),
            has_ended: false,
        }
    }

    fn first(&mut self) -> Result<Option<&T>, DatabaseError> {
        if self.page.is_empty() && !self.has_ended {
            self.page = (self.list)(&self.behind)?.into();
            let mut last = std::mem::take(&mut self.behind);
            for item in &self.page {
                let name = (self.name)(item);
                if name <= last {
                    return Err(DatabaseError::Unreachable(format!(
                        "a list of objects is not in the order of names: {name} is behind {last}"
                    )));
                }
                last = name;
            }
            self.behind = last;
            self.has_ended = self.page.is_empty();
        }
        Ok(self.page.front())
    }

    fn next(&mut self) -> Option<T> {
        self.page.pop_front()
    }
}
