//! Fields of a table in memory, added to records by key. Pure; `tables` reads the table and keeps it current.
//!
//! A row has the fields that the step adds, and no others. The memory of a table is counted with each row,
//! and bounded.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use stafett_expr::{Expression, Fault, PlacedRecord, Value};
use stafett_model::{Lock, SharedLock};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::computed::View;
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
    /// Id and partitions of the topic as this process has read it first.
    pub(crate) layout: Arc<OnceLock<(Uuid, usize)>>,
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

/// Reason why a table cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableRefused {
    #[error(
        "table_too_large: the table of the topic {topic} takes more than {bytes_max} bytes; bytes_max of its step is the bound"
    )]
    TooLarge { topic: String, bytes_max: usize },
    /// Its last record is not known: partitions have no common order.
    #[error(
        "table_key_moved: a key of the topic {topic} of a table is in the partitions {first} and {second}; make the topic again, with its rows"
    )]
    KeyMoved { topic: String, first: u32, second: u32 },
    /// Keys have other partitions from then on.
    #[error(
        "table_partitions_changed: the topic {0} of a table has another number of partitions; make the topic again, with its rows"
    )]
    Partitions(String),
}

/// JSON texts of the fields that are added, in their order.
type Row = Arc<[Box<str>]>;

/// The last record of a key.
#[derive(Debug)]
struct Last {
    partition: u32,
    /// `None` if it has removed the row.
    row: Option<Row>,
}

#[derive(Debug, Default)]
struct Rows {
    by_key: HashMap<Box<[u8]>, Last>,
    bytes: usize,
    /// True while partitions are read one after the other: a removal may come before an older row.
    keeps_removals: bool,
}

/// Rows by key.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: SharedLock<Rows>,
    found: AtomicU64,
    missing: AtomicU64,
    /// True once it is not followed any more.
    is_closed: AtomicBool,
    /// Offsets behind the last records that were taken, by partition.
    reached: Lock<BTreeMap<u32, u64>>,
    moves: Notify,
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
        self.rows.read().by_key.get(key).and_then(|last| last.row.clone())
    }

    fn count(&self, is_found: bool) {
        let counter = if is_found { &self.found } else { &self.missing };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the use of a table that is not whole, or not current any more.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.moves.notify_waiters();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Keeps removals from here on, until [`Self::forget_removals`].
    pub(crate) fn keep_removals(&self) {
        self.rows.write().keeps_removals = true;
    }

    pub(crate) fn forget_removals(&self) {
        let mut rows = self.rows.write();
        let Rows {
            by_key,
            bytes,
            keeps_removals,
        } = &mut *rows;
        *keeps_removals = false;
        by_key.retain(|key, last| {
            let stays = last.row.is_some();
            if !stays {
                *bytes -= bytes_of(key, None);
            }
            stays
        });
    }

    /// Notes that a partition is read up to an offset.
    pub(crate) fn reach(&self, partition: u32, next: u64) {
        self.reached.lock().insert(partition, next);
        self.moves.notify_waiters();
    }

    /// Waits until a partition is read up to an offset, or the table is closed.
    pub(crate) async fn wait_for(&self, partition: u32, end: u64) {
        loop {
            let moves = self.moves.notified();
            let reached = self.reached.lock().get(&partition).copied();
            if self.is_closed() || reached.is_some_and(|next| next >= end) {
                return;
            }
            moves.await;
        }
    }
}

impl Lookup {
    /// Takes a record of the table's topic. One without a value removes its row, and so does one that is no
    /// JSON object: the row before it is no longer the last. An error closes the table as it is.
    pub fn take(&self, partition: u32, key: &[u8], value: Option<&[u8]>) -> Result<(), TableRefused> {
        let row = value.and_then(|value| self.row(value));
        let mut rows = self.table.rows.write();
        let before = rows.by_key.get(key);
        if let Some(before) = before.filter(|before| before.partition != partition) {
            self.table.close();
            return Err(TableRefused::KeyMoved {
                topic: self.topic.clone(),
                first: before.partition,
                second: partition,
            });
        }
        let left = rows.bytes - before.map_or(0, |before| bytes_of(key, before.row.as_ref()));
        if row.is_none() && !rows.keeps_removals {
            rows.by_key.remove(key);
            rows.bytes = left;
            return Ok(());
        }
        let bytes = left + bytes_of(key, row.as_ref());
        if bytes > self.bytes_max {
            self.table.close();
            return Err(TableRefused::TooLarge {
                topic: self.topic.clone(),
                bytes_max: self.bytes_max,
            });
        }
        rows.bytes = bytes;
        rows.by_key.insert(key.into(), Last { partition, row });
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

    /// Adds the fields of the row to a record. `counts` says that the record gets its row by that.
    pub(crate) fn apply(
        &self,
        document: &mut Document<'_>,
        source: PlacedRecord<'_>,
        counts: bool,
    ) -> Result<(), String> {
        let row = {
            let view = View {
                document: &*document,
                source,
            };
            match self.key.evaluate(&view) {
                Ok(Value::Text(text)) => self.table.get(text.as_bytes()),
                Ok(Value::Bytes(bytes)) => self.table.get(&bytes),
                Ok(Value::Int(number)) => self.table.get(number.to_string().as_bytes()),
                Ok(Value::Null) | Err(Fault::Missing(_)) => None,
                Ok(other) => {
                    return Err(format!(
                        "the key of a look-up is a text or a whole number, not {}",
                        other.kind()
                    ));
                }
                Err(why) => return Err(format!("the key of a look-up: {why}")),
            }
        };
        if counts {
            self.table.count(row.is_some());
        }
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

fn bytes_of(key: &[u8], row: Option<&Row>) -> usize {
    let values = row.into_iter().flat_map(|row| &**row);
    ROW_BYTES + key.len() + values.map(|json| json.len() + VALUE_BYTES).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::computed::tests::place_and_record;

    fn lookup(key: &str, missing: Missing, bytes_max: usize) -> Lookup {
        Lookup {
            topic: "apps".to_owned(),
            key: Expression::compile(key, PlacedRecord::VARIABLES).unwrap(),
            add: vec!["country".to_owned(), "zone".to_owned()],
            missing,
            bytes_max,
            table: Arc::default(),
            layout: Arc::default(),
        }
    }

    fn done(step: &Lookup, json: &str) -> Result<String, String> {
        let (place, record) = place_and_record();
        let source = place.holding(&record);
        let mut document = Document::parse(json).unwrap();
        step.apply(&mut document, source, true)?;
        let mut out = Vec::new();
        document.write(&mut out);
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn fields_of_the_row_are_added_by_key_and_the_last_record_of_a_key_counts() {
        let step = lookup("value.app", Missing::Null, 1 << 20);
        step.take(0, b"a", Some(br#"{"country":"NO","other":1}"#))
            .unwrap();
        step.take(0, b"a", Some(b"{\"country\": {\"x\":\n1},\n\"zone\":\"UTC\"}"))
            .unwrap();
        step.take(0, b"7", Some(br#"{"country":"SE"}"#)).unwrap();
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
        step.take(0, b"a", None).unwrap();
        step.take(0, b"7", Some(b"nonsense")).unwrap();
        let counts = step.table.counts();
        assert_eq!((counts.rows, counts.bytes), (0, 0));
        let strict = lookup("key", Missing::Poison, 1 << 20);
        assert_eq!(done(&strict, "{}").unwrap_err(), "apps has no row of that key");
        strict.take(0, b"k1", Some(b"{}")).unwrap();
        assert_eq!(done(&strict, "{}").unwrap(), r#"{"country":null,"zone":null}"#);
    }

    #[test]
    fn a_table_has_a_bound_that_counts_what_is_there() {
        let step = lookup("value.app", Missing::Null, 1000);
        let value = format!("{{\"zone\":\"{}\"}}", "x".repeat(600));
        for _ in 0..100 {
            step.take(0, b"a", Some(value.as_bytes())).unwrap();
        }
        let why = step.take(0, b"b", Some(value.as_bytes())).unwrap_err();
        assert!(
            why.to_string()
                .starts_with("table_too_large: the table of the topic apps"),
            "{why}"
        );
        step.take(0, b"a", None).unwrap();
        step.take(0, b"b", Some(value.as_bytes())).unwrap();
    }

    #[test]
    fn a_row_that_has_no_room_closes_the_table_and_leaves_the_one_before() {
        let step = lookup("value.app", Missing::Null, 300);
        step.take(0, b"a", Some(br#"{"country":"NO"}"#)).unwrap();
        assert!(!step.table.is_closed());
        let large = format!("{{\"country\":\"{}\"}}", "x".repeat(600));
        step.take(0, b"a", Some(large.as_bytes())).unwrap_err();
        assert!(step.table.is_closed());
        let found = done(&step, r#"{"app":"a"}"#).unwrap();
        assert_eq!(found, r#"{"app":"a","country":"NO","zone":null}"#);
    }

    #[test]
    fn a_key_in_two_partitions_is_refused_also_if_its_row_is_removed() {
        let row: Option<&[u8]> = Some(br#"{"country":"NO"}"#);
        for (first, second) in [(row, row), (row, None), (None, row)] {
            let step = lookup("value.app", Missing::Null, 1 << 20);
            step.table.keep_removals();
            step.take(1, b"a", first).unwrap();
            step.take(1, b"b", None).unwrap();
            let why = step.take(0, b"a", second).unwrap_err().to_string();
            assert!(why.starts_with("table_key_moved: "), "{why}");
            assert!(step.table.is_closed());
        }
        let step = lookup("value.app", Missing::Null, 1 << 20);
        step.table.keep_removals();
        step.take(1, b"a", None).unwrap();
        step.table.forget_removals();
        let counts = step.table.counts();
        assert_eq!((counts.rows, counts.bytes), (0, 0));
        step.take(0, b"a", row).unwrap();
    }

    #[tokio::test]
    async fn a_wait_for_an_offset_ends_once_it_is_reached_or_the_table_is_closed() {
        let table = Arc::new(Table::default());
        table.reach(0, 4);
        table.wait_for(0, 4).await;
        let moves = async {
            tokio::task::yield_now().await;
            table.reach(0, 5);
        };
        tokio::join!(table.wait_for(0, 5), moves);
        tokio::join!(table.wait_for(0, 6), async { table.close() });
    }
}
