//! Which object store belongs to a cell: the database has the store's number, and the store an object of that
//! name. So a share that is not mounted, or another prefix, is no place of the cell's objects.

use std::fmt::Write;
use std::sync::Arc;

use crate::agreement::is_referred_to;
use crate::database::{Database, DatabaseError, nonce};
use crate::objects::Objects;

/// Begin of names of objects that are marks, and never garbage.
const MARKS: &str = "store/";
/// Begin of a number whose mark is not put yet.
const PENDING: &str = "pending ";
/// Attempts beside other nodes that begin at the same time.
const ATTEMPTS: usize = 5;

/// Returns true if an object is a mark.
pub(crate) fn is_mark(name: &str) -> bool {
    name.starts_with(MARKS)
}

fn refused(why: &str) -> DatabaseError {
    DatabaseError::Refused(format!("cluster.objects: {why}"))
}

/// Returns an error unless a node's object store is that of the cell. A cell without one is given it.
pub fn check_store(database: &dyn Database, objects: Option<&Arc<dyn Objects>>) -> Result<(), DatabaseError> {
    for _ in 0..ATTEMPTS {
        let number = database.store()?;
        let Some(objects) = objects else {
            if number.is_some() || !database.references("")?.is_empty() {
                return Err(refused("the cell has objects, and this node has no such setting"));
            }
            return Ok(());
        };
        let known = number.as_deref().filter(|text| !text.starts_with(PENDING));
        if let Some(number) = known {
            return match objects.get(&format!("{MARKS}{number}"))? {
                Some(_) => Ok(()),
                None => Err(refused(
                    "this is not the place of the cell's objects: another folder or prefix, or a share that is not \
                     mounted",
                )),
            };
        }
        if give(database, &**objects, number.as_deref())? {
            return Ok(());
        }
    }
    Err(DatabaseError::Unreachable(
        "other nodes choose the object store".to_owned(),
    ))
}

/// Gives a cell its store. False if another node changed the number meanwhile.
fn give(database: &dyn Database, objects: &dyn Objects, seen: Option<&str>) -> Result<bool, DatabaseError> {
    let first = database.references("")?.into_iter().find(|it| !it.is_garbage);
    if let Some(first) = first {
        // Of a version without marks.
        if objects.get(&first.object)?.is_none() && is_referred_to(database, &first.object)? {
            return Err(refused("the cell's objects are not there"));
        }
    } else if seen.is_none() && is_in_use(objects) {
        if database.store()?.is_some() {
            return Ok(false);
        }
        return Err(refused("there are objects of another cluster"));
    }
    let mut number = String::new();
    for byte in nonce() {
        let _ = write!(number, "{byte:02x}");
    }
    let pending = format!("{PENDING}{number}");
    if !database.set_store(seen, &pending)? {
        return Ok(false);
    }
    objects.prepare()?;
    objects.put(&format!("{MARKS}{number}"), &[])?;
    database.set_store(Some(&pending), &number)
}

/// Returns true if there are objects. A folder that is not there yet has none.
fn is_in_use(objects: &dyn Objects) -> bool {
    objects.list("").is_ok_and(|page| !page.is_empty())
}
