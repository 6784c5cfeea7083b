//! A stored record, as an expression sees it.

use std::borrow::Cow;

use stafett_model::StoredRecord;

use crate::{Found, NoJson, Paths, Record, Value, Variable};

/// Work of a look at one header: each of a record is read for it.
const HEADER_WORK: usize = 16;

/// A stored record and its place.
#[derive(Debug, Clone, Copy)]
pub struct PlacedRecord<'a> {
    pub topic: &'a str,
    pub partition: u32,
    pub record: &'a StoredRecord,
}

impl PlacedRecord<'_> {
    /// The variables of expressions over it.
    pub const VARIABLES: &'static [Variable] = &[
        Variable::Value,
        Variable::Headers,
        Variable::Key,
        Variable::Topic,
        Variable::Partition,
        Variable::Offset,
        Variable::Timestamp,
    ];
}

impl Record for PlacedRecord<'_> {
    fn variable(&self, variable: Variable) -> Value<'_> {
        let record = self.record;
        match variable {
            Variable::Key => record.key.as_deref().map_or(Value::Null, Value::of_bytes),
            Variable::Topic => Value::Text(Cow::Borrowed(self.topic)),
            Variable::Partition => Value::Int(self.partition.into()),
            Variable::Offset => Value::Int(i64::try_from(record.offset.0).unwrap_or(i64::MAX)),
            Variable::Timestamp => Value::of_millis(record.timestamp),
            Variable::Value
            | Variable::Headers
            | Variable::Exchange
            | Variable::RoutingKey
            | Variable::Priority => Value::Null,
        }
    }

    fn header(&self, name: &str) -> Option<Value<'_>> {
        let found = self.record.headers.last(name.as_bytes())?;
        Some(found.map_or(Value::Null, Value::of_bytes))
    }

    fn header_work(&self) -> usize {
        self.record.headers.len() * HEADER_WORK
    }

    fn read<'r>(&'r self, paths: &Paths, found: &mut Found<'r>) -> Result<(), NoJson> {
        let value = self.record.value.as_deref().ok_or(NoJson)?;
        paths.read(std::str::from_utf8(value).map_err(|_| NoJson)?, found)
    }
}
