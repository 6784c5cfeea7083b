//! Fields of a table of PostgreSQL, added to records by key, through a cache.
//!
//! A step never waits for the database. A key that the cache does not know is noted, and its record stays
//! where it is until [`Query::fetch`] has asked for all keys that are noted. `database` asks.

mod database;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stafett_expr::{Expression, Fault, PlacedRecord, Value};
use stafett_model::Lock;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::computed::View;
use crate::document::Document;
use crate::lookup::{Missing, TableCounts};
use crate::pace::Waits;
use crate::secret::Secret;
use crate::status::{State, Status};
use crate::target::{Place, TargetError};
use crate::transform::Verdict;
use crate::writer::STOPPED;
use database::Connected;

/// Keys of one question, at most.
const KEYS_MAX: usize = 500;
/// JSON texts of a row, at most: the answer to one question has its place in half of a cache.
const ROW_BYTES_MAX: usize = 32 << 10;
/// Memory of a cache.
const CACHE_BYTES: usize = 64 << 20;
/// Memory of an entry beside its key and its values.
const ENTRY_BYTES: usize = 112;
/// Part of the time of a cache for which an absent row stays absent.
const ABSENT: u32 = 10;
/// Least time for which a row counts, beside that of its answer.
const SLACK: Duration = Duration::from_secs(1);

/// A step that looks records up in a database.
#[derive(Debug, Clone)]
pub struct Query {
    pub url: Secret,
    /// PEM file of trusted authorities. `None` is those of the system.
    pub ca: Option<String>,
    pub schema: String,
    pub table: String,
    /// Column of the table that has the keys.
    pub column: String,
    pub key: Expression,
    /// Columns of the row, which the record gets as fields of the same names.
    pub add: Vec<String>,
    pub missing: Missing,
    /// Time for which a row counts as it was read.
    pub cache_ms: u64,
    /// Empty in a definition.
    pub(crate) cache: Arc<Cache>,
}

impl PartialEq for Query {
    fn eq(&self, other: &Self) -> bool {
        let names = |it: &Self| (it.schema.clone(), it.table.clone(), it.column.clone());
        let terms = |it: &Self| (it.key.clone(), it.add.clone(), it.missing, it.cache_ms);
        self.url == other.url
            && self.ca == other.ca
            && names(self) == names(other)
            && terms(self) == terms(other)
    }
}

impl Eq for Query {}

/// Row of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Row {
    /// JSON texts of the fields that are added, in their order.
    Found(Arc<[Box<str>]>),
    Absent,
    /// The database has it, and cannot give it out as text.
    Unreadable(Arc<str>),
}

#[derive(Debug, Clone)]
struct Entry {
    row: Row,
    until: Instant,
}

/// Entries in two generations: those that were used since the older one was begun, and the others.
#[derive(Debug, Default)]
struct Entries {
    young: HashMap<Box<str>, Entry>,
    young_bytes: usize,
    old: HashMap<Box<str>, Entry>,
    old_bytes: usize,
}

impl Entries {
    /// Returns a row that still counts.
    fn get(&mut self, key: &str, now: Instant) -> Option<Row> {
        if let Some(entry) = self.young.get(key) {
            return (entry.until > now).then(|| entry.row.clone());
        }
        let (key, entry) = self.old.remove_entry(key)?;
        self.old_bytes -= bytes_of(&key, &entry.row);
        let found = (entry.until > now).then(|| entry.row.clone());
        if found.is_some() {
            self.insert(key, entry);
        }
        found
    }

    /// Adds an entry. The older generation goes once the younger one has half of the memory.
    fn insert(&mut self, key: Box<str>, entry: Entry) {
        let bytes = bytes_of(&key, &entry.row);
        if self.young_bytes + bytes > CACHE_BYTES / 2 {
            self.old = std::mem::take(&mut self.young);
            self.old_bytes = std::mem::take(&mut self.young_bytes);
        }
        let before = self.young.get(&key).map(|before| bytes_of(&key, &before.row));
        self.young_bytes += bytes;
        self.young_bytes -= before.unwrap_or(0);
        self.young.insert(key, entry);
    }
}

/// Returns the time for which a row counts. A record may need the row of another table meanwhile: an answer
/// counts twice the time of one.
fn lifetime(row: &Row, cache: Duration, took: Duration) -> Duration {
    let time = if matches!(row, Row::Found(_)) {
        cache
    } else {
        cache / ABSENT
    };
    time.max(took * 2 + SLACK)
}

fn bytes_of(key: &str, row: &Row) -> usize {
    let bytes = match row {
        Row::Found(values) => values.iter().map(|json| size_of::<Box<str>>() + json.len()).sum(),
        Row::Absent => 0,
        Row::Unreadable(why) => why.len(),
    };
    ENTRY_BYTES + key.len() + bytes
}

/// Rows by key, as the database had them.
#[derive(Debug)]
pub(crate) struct Cache {
    entries: Lock<Entries>,
    /// Keys for which records wait.
    wanted: Lock<BTreeSet<String>>,
    /// One question at a time: rows come once, whatever the number of partitions that want them.
    turn: Semaphore,
    /// The connection, between two questions.
    connection: Lock<Option<Connected>>,
    found: AtomicU64,
    missing: AtomicU64,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            entries: Lock::default(),
            wanted: Lock::default(),
            turn: Semaphore::new(1),
            connection: Lock::default(),
            found: AtomicU64::default(),
            missing: AtomicU64::default(),
        }
    }
}

impl Cache {
    pub(crate) fn counts(&self) -> TableCounts {
        let entries = self.entries.lock();
        TableCounts {
            rows: (entries.young.len() + entries.old.len()) as u64,
            bytes: (entries.young_bytes + entries.old_bytes) as u64,
            found: self.found.load(Ordering::Relaxed),
            missing: self.missing.load(Ordering::Relaxed),
        }
    }

    /// Returns a row, or notes that it is wanted.
    fn get(&self, key: &str) -> Option<Row> {
        let found = self.entries.lock().get(key, Instant::now());
        if found.is_none() {
            let mut wanted = self.wanted.lock();
            if wanted.len() < KEYS_MAX {
                wanted.insert(key.to_owned());
            }
        }
        found
    }

    /// Takes the keys of one question that are wanted and not known yet. After failures there may be more.
    fn take_wanted(&self) -> Vec<String> {
        let mut wanted = self.wanted.lock();
        let mut entries = self.entries.lock();
        let now = Instant::now();
        let mut keys = Vec::new();
        while keys.len() < KEYS_MAX
            && let Some(key) = wanted.pop_first()
        {
            if entries.get(&key, now).is_none() {
                keys.push(key);
            }
        }
        keys
    }
}

impl Query {
    /// Adds the fields of the row to a record, if the row is known. `counts` says that the record gets its
    /// row by that.
    pub(crate) fn apply(
        &self,
        document: &mut Document<'_>,
        source: PlacedRecord<'_>,
        counts: bool,
    ) -> Result<Verdict, String> {
        let row = match self.key_of(document, source)? {
            None => Row::Absent,
            Some(key) => match self.cache.get(&key) {
                Some(row) => row,
                None => return Ok(Verdict::Wait),
            },
        };
        if counts {
            let counter = if matches!(row, Row::Found(_)) {
                &self.cache.found
            } else {
                &self.cache.missing
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
        match (row, self.missing) {
            (Row::Found(row), _) => {
                for (name, json) in self.add.iter().zip(&*row) {
                    document.set(name, String::from(&**json));
                }
            }
            (Row::Absent, Missing::Null) => {
                for name in &self.add {
                    document.set(name, "null".to_owned());
                }
            }
            (Row::Absent, Missing::Poison) => {
                return Err(format!("{} has no row of that key", self.table));
            }
            (Row::Unreadable(why), _) => return Err(format!("the row of {}: {why}", self.table)),
        }
        Ok(Verdict::Keep)
    }

    /// Returns the key of a record. `None` without one.
    fn key_of(&self, document: &Document<'_>, source: PlacedRecord<'_>) -> Result<Option<String>, String> {
        let view = View { document, source };
        match self.key.evaluate(&view) {
            Ok(Value::Text(text)) => Ok(Some(text.into_owned())),
            Ok(Value::Int(number)) => Ok(Some(number.to_string())),
            Ok(Value::Bytes(_) | Value::Null) | Err(Fault::Missing(_)) => Ok(None),
            Ok(other) => Err(format!(
                "the key of a look-up is a text or a whole number, not {}",
                other.kind()
            )),
            Err(why) => Err(format!("the key of a look-up: {why}")),
        }
    }

    /// Asks the database once for the keys that are wanted.
    pub(crate) async fn fetch(&self) -> Result<(), TargetError> {
        let turn = self.cache.turn.acquire().await;
        let _turn = turn.map_err(|why| TargetError::Retry(why.to_string()))?;
        let keys = self.cache.take_wanted();
        if keys.is_empty() {
            return Ok(());
        }
        let mut connection = self.cache.connection.lock().take();
        let asked_at = Instant::now();
        let rows = match self.ask(&mut connection, &keys).await {
            Ok(found) => found,
            Err(why) => {
                // The connection ends here.
                self.cache.wanted.lock().extend(keys);
                return Err(why);
            }
        };
        *self.cache.connection.lock() = connection;
        let took = asked_at.elapsed();
        let mut entries = self.cache.entries.lock();
        for (key, row) in rows {
            let until = asked_at + took + lifetime(&row, Duration::from_millis(self.cache_ms), took);
            entries.insert(key.into_boxed_str(), Entry { row, until });
        }
        Ok(())
    }
}

/// Asks a database until it has answered.
pub(crate) async fn asked(query: &Query, place: &Place, status: &Status) {
    let mut waits = Waits::default();
    while let Err(why) = query.fetch().await {
        let (state, wait) = match &why {
            TargetError::Retry(_) => {
                let wait = waits.next_ms(rand::random());
                (State::Retrying, Duration::from_millis(wait))
            }
            TargetError::Stop(_)
            | TargetError::Poison { .. }
            | TargetError::Fenced(_)
            | TargetError::MadeAgain(_) => (State::Stopped, STOPPED),
        };
        let why = format!("the look-up in {}: {why}", query.table);
        if status.trouble(place, state, &why) {
            warn!(%place, state = state.word(), "{why}");
        }
        sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str, until: Instant) -> Entry {
        let row = Row::Found(vec![Box::from(text)].into());
        Entry { row, until }
    }

    fn text(row: Option<Row>) -> Option<String> {
        let Some(Row::Found(values)) = row else {
            return None;
        };
        Some(values.first()?.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_counts_for_its_time_and_an_absent_key_is_wanted_once() {
        let cache = Cache::default();
        let until = Instant::now() + Duration::from_secs(1);
        cache.entries.lock().insert("a".into(), entry("1", until));
        assert_eq!(text(cache.get("a")).as_deref(), Some("1"));
        assert!(cache.get("b").is_none() && cache.get("b").is_none());
        assert_eq!(cache.take_wanted(), ["b"]);
        assert!(cache.take_wanted().is_empty());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(cache.get("a").is_none());
        assert_eq!(cache.take_wanted(), ["a"]);
        cache.get("a");
        cache
            .entries
            .lock()
            .insert("a".into(), entry("2", until + Duration::from_secs(1)));
        assert!(
            cache.take_wanted().is_empty(),
            "another partition has asked for it"
        );
    }

    #[test]
    fn a_cache_has_a_bound_and_keeps_what_is_used() {
        let mut entries = Entries::default();
        let now = Instant::now();
        let until = now + Duration::from_hours(1);
        let value = "x".repeat(ROW_BYTES_MAX);
        entries.insert("used".into(), entry("1", until));
        for number in 0..4 * CACHE_BYTES / ROW_BYTES_MAX {
            assert!(entries.get("used", now).is_some(), "{number}");
            entries.insert(number.to_string().into(), entry(&value, until));
            let bytes = entries.young_bytes + entries.old_bytes;
            assert!(bytes <= CACHE_BYTES, "{bytes}");
        }
        assert!(entries.get("0", now).is_none());
        let all = entries.young.iter().chain(&entries.old);
        let sum: usize = all.map(|(key, entry)| bytes_of(key, &entry.row)).sum();
        assert_eq!(sum, entries.young_bytes + entries.old_bytes);
        entries.insert("used".into(), entry("22", until));
        entries.insert("used".into(), entry("1", until));
        let all = entries.young.iter().chain(&entries.old);
        let sum: usize = all.map(|(key, entry)| bytes_of(key, &entry.row)).sum();
        assert_eq!(sum, entries.young_bytes + entries.old_bytes);
    }

    #[test]
    fn keys_that_are_wanted_after_an_outage_are_asked_for_in_bounded_questions() {
        let cache = Cache::default();
        let keys = |from: usize| (from..from + KEYS_MAX).map(|key| format!("{key:05}"));
        // Two questions have failed, and records want more meanwhile.
        cache.wanted.lock().extend(keys(0).chain(keys(KEYS_MAX)));
        for key in keys(2 * KEYS_MAX) {
            assert!(cache.get(&key).is_none());
        }
        assert_eq!(cache.wanted.lock().len(), 2 * KEYS_MAX, "no more are noted");
        let known = Instant::now() + Duration::from_hours(1);
        cache.entries.lock().insert("00007".into(), entry("7", known));
        let first = cache.take_wanted();
        assert_eq!(first.len(), KEYS_MAX);
        assert!(!first.contains(&"00007".to_owned()));
        assert_eq!(cache.take_wanted().len(), KEYS_MAX - 1);
        assert!(cache.take_wanted().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_counts_while_the_row_of_another_table_is_asked_for() {
        let (cache, second) = (Duration::from_secs(1), Duration::from_secs(1));
        let found = entry("1", Instant::now()).row;
        for took in [Duration::ZERO, second, 25 * second] {
            for row in [&found, &Row::Absent] {
                let entries = &mut Entries::default();
                let until = Instant::now() + lifetime(row, cache, took);
                let row = row.clone();
                entries.insert("a".into(), Entry { row, until });
                // The other answer takes as long.
                tokio::time::advance(took).await;
                assert!(entries.get("a", Instant::now()).is_some(), "{took:?}");
            }
        }
        assert_eq!(lifetime(&found, 20 * second, second), 20 * second);
        assert_eq!(lifetime(&Row::Absent, 50 * second, second), 5 * second);
    }
}
