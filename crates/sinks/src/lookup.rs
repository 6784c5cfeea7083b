//! Fields of a table in memory, added to records by key. Pure; `tables` reads the table and keeps it current.
//!
//! A row has the fields that the step adds, and no others. The memory of a table is counted with each row,
//! and bounded.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stafett_expr::{Expression, Fault, Value};
use stafett_model::SharedLock;

use crate::computed::{Source, View};
use crate::document::{Document, write_line};

/// Memory of a row beside its key and its values.
const ROW_BYTES: usize = 96;
/// Memory of a value beside its text.
const VALUE_BYTES: usize = 16;

/// A step that looks records up.
#[derive(Debug, Clone)]
pub struct Lookup {
    /// Topic of the table. The last record of a key is its row.
    pub topic: String,
    pub key: Expression,
    /// Fields of the row, which the record gets under the same names.
    pub add: Vec<String>,
    pub missing: Missing,
    pub bytes_max: usize,
    /// Empty in a definition.
    pub(crate) table: Arc<Table>,
}

/// Reaction to a key without a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// The fields are null.
    Null,
    Poison,
}

impl PartialEq for Lookup {
    fn eq(&self, other: &Self) -> bool {
        let terms = |it: &Self| {
            (
                it.topic.clone(),
                it.key.clone(),
                it.add.clone(),
                it.missing,
                it.bytes_max,
            )
        };
        terms(self) == terms(other)
    }
}

impl Eq for Lookup {}

/// A table with more rows than its bound has room for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "table_too_large: the table of the topic {topic} takes more than {bytes_max} bytes; bytes_max of its step is the bound"
)]
pub struct TableTooLarge {
    pub topic: String,
    pub bytes_max: usize,
}

/// JSON texts of the fields that are added, in their order.
type Row = Arc<[Box<str>]>;

#[derive(Debug, Default)]
struct Rows {
    by_key: HashMap<Box<[u8]>, Row>,
    bytes: usize,
}

/// Rows by key.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: SharedLock<Rows>,
    found: AtomicU64,
    missing: AtomicU64,
}

/// Size and use of tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableCounts {
    pub rows: u64,
    pub bytes: u64,
    /// Records that were looked up and had a row, and those without one.
    pub found: u64,
    pub missing: u64,
}

impl Table {
    pub(crate) fn counts(&self) -> TableCounts {
        let rows = self.rows.read();
        TableCounts {
            rows: rows.by_key.len() as u64,
            bytes: rows.bytes as u64,
            found: self.found.load(Ordering::Relaxed),
            missing: self.missing.load(Ordering::Relaxed),
        }
    }

    fn get(&self, key: &[u8]) -> Option<Row> {
        let row = self.rows.read().by_key.get(key).cloned();
        let counter = if row.is_some() { &self.found } else { &self.missing };
        counter.fetch_add(1, Ordering::Relaxed);
        row
    }
}

impl Lookup {
    /// Takes a record of the table's topic. One without a value removes its row, and so does one that is no
    /// JSON object: the row before it is no longer the last.
    pub fn take(&self, key: &[u8], value: Option<&[u8]>) -> Result<(), TableTooLarge> {
        let row = value.and_then(|value| self.row(value));
        let mut rows = self.table.rows.write();
        if let Some(before) = rows.by_key.remove(key) {
            rows.bytes -= row_bytes(key, &before);
        }
        let Some(row) = row else {
            return Ok(());
        };
        let bytes = rows.bytes + row_bytes(key, &row);
        if bytes > self.bytes_max {
            return Err(TableTooLarge {
                topic: self.topic.clone(),
                bytes_max: self.bytes_max,
            });
        }
        rows.bytes = bytes;
        rows.by_key.insert(key.into(), row);
        Ok(())
    }

    fn row(&self, value: &[u8]) -> Option<Row> {
        let document = Document::parse(std::str::from_utf8(value).ok()?).ok()?;
        let text = |name: &String| {
            let mut line = Vec::new();
            write_line(&mut line, document.get(name).unwrap_or("null"));
            String::from_utf8(line).unwrap_or_default().into_boxed_str()
        };
        Some(self.add.iter().map(text).collect())
    }

    /// Adds the fields of the row to a record.
    pub(crate) fn apply(&self, document: &mut Document<'_>, source: Source<'_>) -> Result<(), String> {
        let row = {
            let view = View {
                document: &*document,
                source,
            };
            match self.key.evaluate(&view) {
                Ok(Value::Text(text)) => self.table.get(text.as_bytes()),
                Ok(Value::Bytes(bytes)) => self.table.get(&bytes),
                Ok(Value::Int(number)) => self.table.get(number.to_string().as_bytes()),
                Ok(Value::Null) | Err(Fault::Missing(_)) => {
                    self.table.missing.fetch_add(1, Ordering::Relaxed);
                    None
                }
                Ok(other) => {
                    return Err(format!(
                        "the key of a look-up is a text or a whole number, not {}",
                        other.kind()
                    ));
                }
                Err(why) => return Err(format!("the key of a look-up: {why}")),
            }
        };
        match (row, self.missing) {
            (Some(row), _) => {
                for (name, json) in self.add.iter().zip(&*row) {
                    document.set(name, String::from(&**json));
                }
            }
            (None, Missing::Null) => {
                for name in &self.add {
                    document.set(name, "null".to_owned());
                }
            }
            (None, Missing::Poison) => return Err(format!("{} has no row of that key", self.topic)),
        }
        Ok(())
    }
}

fn row_bytes(key: &[u8], row: &[Box<str>]) -> usize {
    let values = row.iter().map(|json| json.len() + VALUE_BYTES);
    ROW_BYTES + key.len() + values.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::computed::tests::place_and_record;

    fn lookup(key: &str, missing: Missing, bytes_max: usize) -> Lookup {
        Lookup {
            topic: "apps".to_owned(),
            key: Expression::compile(key, crate::computed::VARIABLES).unwrap(),
            add: vec!["country".to_owned(), "zone".to_owned()],
            missing,
            bytes_max,
            table: Arc::default(),
        }
    }

    fn done(step: &Lookup, json: &str) -> Result<String, String> {
        let (place, record) = place_and_record();
        let source = Source {
            place: &place,
            record: &record,
        };
        let mut document = Document::parse(json).unwrap();
        step.apply(&mut document, source)?;
        let mut out = Vec::new();
        document.write(&mut out);
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn fields_of_the_row_are_added_by_key_and_the_last_record_of_a_key_counts() {
        let step = lookup("value.app", Missing::Null, 1 << 20);
        step.take(b"a", Some(br#"{"country":"NO","other":1}"#)).unwrap();
        step.take(b"a", Some(b"{\"country\": {\"x\":\n1},\n\"zone\":\"UTC\"}"))
            .unwrap();
        step.take(b"7", Some(br#"{"country":"SE"}"#)).unwrap();
        for (record, expected) in [
            (
                r#"{"app":"a","zone":1}"#,
                r#"{"app":"a","country":{"x": 1},"zone":"UTC"}"#,
            ),
            (r#"{"app":7}"#, r#"{"app":7,"country":"SE","zone":null}"#),
            (r#"{"app":"b"}"#, r#"{"app":"b","country":null,"zone":null}"#),
            (r#"{"app":null}"#, r#"{"app":null,"country":null,"zone":null}"#),
            (r"{}", r#"{"country":null,"zone":null}"#),
        ] {
            assert_eq!(done(&step, record).unwrap(), expected);
        }
        let why = done(&step, r#"{"app":[1]}"#).unwrap_err();
        assert!(
            why.starts_with("the key of a look-up is a text or a whole number, not "),
            "{why}"
        );
        let counts = step.table.counts();
        assert_eq!((counts.rows, counts.found, counts.missing), (2, 2, 3));
        step.take(b"a", None).unwrap();
        step.take(b"7", Some(b"nonsense")).unwrap();
        let counts = step.table.counts();
        assert_eq!((counts.rows, counts.bytes), (0, 0));
        let strict = lookup("key", Missing::Poison, 1 << 20);
        assert_eq!(done(&strict, "{}").unwrap_err(), "apps has no row of that key");
        strict.take(b"k1", Some(b"{}")).unwrap();
        assert_eq!(done(&strict, "{}").unwrap(), r#"{"country":null,"zone":null}"#);
    }

    #[test]
    fn a_table_has_a_bound_that_counts_what_is_there() {
        let step = lookup("value.app", Missing::Null, 1000);
        let value = format!("{{\"zone\":\"{}\"}}", "x".repeat(600));
        for _ in 0..100 {
            step.take(b"a", Some(value.as_bytes())).unwrap();
        }
        let why = step.take(b"b", Some(value.as_bytes())).unwrap_err();
        assert!(
            why.to_string()
                .starts_with("table_too_large: the table of the topic apps"),
            "{why}"
        );
        step.take(b"a", None).unwrap();
        step.take(b"b", Some(value.as_bytes())).unwrap();
    }
}
