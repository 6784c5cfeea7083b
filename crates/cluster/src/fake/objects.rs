//! The object store in memory.

use super::{Call, FakeNode, PAGE, Tables};
use crate::database::DatabaseError;
use crate::objects::{Objects, ObjectsError};

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
        });
        let mut tables = self.database.0.lock();
        if put.is_err() && !tables.objects.contains_key(name) {
            tables.late.push((name.to_owned(), body.to_vec()));
        }
        put
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, ObjectsError> {
        self.object_call(Call::Other, |tables| tables.objects.get(name).cloned())
    }

    fn delete(&self, name: &str) -> Result<(), ObjectsError> {
        self.object_call(Call::Delete, |tables| {
            if tables.needs(name) {
                tables.violate(format!("{name} is deleted, and needed"));
            }
            tables.objects.remove(name);
        })
    }

    fn list(&self, behind: &str) -> Result<Vec<(String, u64)>, ObjectsError> {
        self.object_call(Call::Other, |tables| {
            let objects = tables.objects.iter();
            let behind = objects.filter(|(name, _)| name.as_str() > behind);
            let named = behind.map(|(name, body)| (name.clone(), body.len() as u64));
            named.take(PAGE).collect()
        })
    }
}
