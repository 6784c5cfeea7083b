//! Fields of a table of PostgreSQL, added to records by key, through a cache.
//!
//! A step never waits for the database. A key that the cache does not know is noted, and its record stays
//! where it is until [`Query::fetch`] has asked for all keys that are noted.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stafett_expr::{Expression, Fault, Value};
use stafett_model::Lock;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::{Client, Statement};
use tracing::warn;

use crate::computed::{Source, View};
use crate::document::{Document, write_line};
use crate::lookup::{Missing, TableCounts};
use crate::pace::Waits;
use crate::secret::Secret;
use crate::status::{State, Status};
use crate::target::postgres::{connect, quoted, stopped};
use crate::target::{Place, TargetError};
use crate::transform::Verdict;
use crate::writer::STOPPED;

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
/// Time for an answer.
const ANSWER: Duration = Duration::from_secs(30);
const SESSION: &str = "SET TimeZone = 'UTC'; SET default_transaction_read_only = on; \
                       SET statement_timeout = '30s'; SET client_min_messages = 'error'";

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

/// JSON texts of the fields that are added, in their order; `None` if the table has no such row.
type Row = Option<Arc<[Box<str>]>>;

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

fn bytes_of(key: &str, row: &Row) -> usize {
    let values = row.iter().flat_map(|row| row.iter());
    ENTRY_BYTES
        + key.len()
        + values
            .map(|json| size_of::<Box<str>>() + json.len())
            .sum::<usize>()
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

/// A connection, and its question.
#[derive(Debug)]
struct Connected {
    client: Client,
    statement: Statement,
    kind: KeyKind,
    /// Ends with this.
    _task: JoinSet<()>,
}

/// Type of the column with the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyKind {
    Text,
    Whole,
    Uuid,
}

impl KeyKind {
    fn of(name: &str) -> Option<Self> {
        match name {
            "text" | "character varying" => Some(Self::Text),
            "smallint" | "integer" | "bigint" => Some(Self::Whole),
            "uuid" => Some(Self::Uuid),
            _ => None,
        }
    }

    /// Returns the type of the keys in a question.
    fn word(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Whole => "bigint",
            Self::Uuid => "uuid",
        }
    }

    /// Returns a key as the database shows it. `None` if no row can have it.
    fn normal(self, key: &str) -> Option<String> {
        match self {
            Self::Text => (!key.contains('\0')).then(|| key.to_owned()),
            Self::Whole => key.parse::<i64>().ok().map(|number| number.to_string()),
            Self::Uuid => uuid::Uuid::try_parse(key).ok().map(|id| id.to_string()),
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
        source: Source<'_>,
        counts: bool,
    ) -> Result<Verdict, String> {
        let row = match self.key_of(document, source)? {
            None => None,
            Some(key) => match self.cache.get(&key) {
                Some(row) => row,
                None => return Ok(Verdict::Wait),
            },
        };
        if counts {
            let counter = if row.is_some() {
                &self.cache.found
            } else {
                &self.cache.missing
            };
            counter.fetch_add(1, Ordering::Relaxed);
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
            (None, Missing::Poison) => return Err(format!("{} has no row of that key", self.table)),
        }
        Ok(Verdict::Keep)
    }

    /// Returns the key of a record. `None` without one.
    fn key_of(&self, document: &Document<'_>, source: Source<'_>) -> Result<Option<String>, String> {
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
        let asked = timeout(ANSWER, self.ask(&mut connection, &keys)).await;
        let silent = || TargetError::Retry(format!("no answer for {} s", ANSWER.as_secs()));
        let (kind, rows) = match asked.unwrap_or_else(|_| Err(silent())) {
            Ok(found) => found,
            Err(why) => {
                // The connection ends here.
                self.cache.wanted.lock().extend(keys);
                return Err(why);
            }
        };
        *self.cache.connection.lock() = connection;
        let now = Instant::now();
        let time = Duration::from_millis(self.cache_ms);
        let mut entries = self.cache.entries.lock();
        for key in keys {
            // Two keys may be those of one row.
            let row: Row = kind.normal(&key).and_then(|normal| rows.get(&normal).cloned());
            // A record may need the row of another table meanwhile: an answer counts twice the time of one.
            let time = if row.is_some() { time } else { time / ABSENT };
            let until = now + time.max(asked_at.elapsed() * 2 + SLACK);
            entries.insert(key.into_boxed_str(), Entry { row, until });
        }
        Ok(())
    }

    async fn ask(
        &self,
        connection: &mut Option<Connected>,
        keys: &[String],
    ) -> Result<(KeyKind, HashMap<String, Arc<[Box<str>]>>), TargetError> {
        if connection.as_ref().is_none_or(|it| it.client.is_closed()) {
            *connection = Some(self.connect().await?);
        }
        let gone = || TargetError::Retry("the connection ended".to_owned());
        let connected = connection.as_ref().ok_or_else(gone)?;
        let kind = connected.kind;
        let normal: Vec<String> = keys.iter().filter_map(|key| kind.normal(key)).collect();
        let answer = connected.client.query(&connected.statement, &[&normal]).await;
        let mut rows = HashMap::new();
        for row in answer.map_err(|why| stopped(&why))? {
            let key: String = row.get(0);
            let mut values = Vec::with_capacity(self.add.len());
            for place in 1..=self.add.len() {
                let json: Option<String> = row.get(place);
                let mut line = Vec::new();
                write_line(&mut line, json.as_deref().unwrap_or("null"));
                values.push(String::from_utf8(line).unwrap_or_default().into_boxed_str());
            }
            let bytes: usize = values.iter().map(|json| json.len()).sum();
            if bytes > ROW_BYTES_MAX {
                let why =
                    format!("the fields of a row have {bytes} bytes, and at most {ROW_BYTES_MAX} are kept");
                return Err(TargetError::Stop(why));
            }
            if rows.insert(key, values.into()).is_some() {
                let why = format!(
                    "several rows have the same {}: keys have to be unique",
                    self.column
                );
                return Err(TargetError::Stop(why));
            }
        }
        Ok((kind, rows))
    }

    async fn connect(&self) -> Result<Connected, TargetError> {
        let (client, task) = connect(&self.url, self.ca.as_deref()).await?;
        client.batch_execute(SESSION).await.map_err(|why| stopped(&why))?;
        let table = format!("{}.{}", quoted(&self.schema), quoted(&self.table));
        let kinds = "SELECT format_type(atttypid, NULL) FROM pg_attribute \
                     WHERE attrelid = $1::text::regclass AND attname = $2 AND attnum > 0 AND NOT attisdropped";
        let kind = client.query_opt(kinds, &[&table, &self.column]).await;
        let kind = kind.map_err(|why| stopped(&why))?;
        let kind: String = kind
            .ok_or_else(|| TargetError::Stop(format!("there is no column {}", self.column)))?
            .get(0);
        let kind = KeyKind::of(&kind).ok_or_else(|| {
            let column = &self.column;
            TargetError::Stop(format!(
                "the column {column} is {kind}, and keys are text, whole numbers or uuid"
            ))
        })?;
        let column = quoted(&self.column);
        let added = self
            .add
            .iter()
            .map(|name| format!(", to_json({})::text", quoted(name)));
        let question = format!(
            "SELECT {column}::text{} FROM {table} WHERE {column} = ANY ($1::text[]::{}[])",
            added.collect::<String>(),
            kind.word()
        );
        let statement = client.prepare(&question).await.map_err(|why| stopped(&why))?;
        Ok(Connected {
            client,
            statement,
            kind,
            _task: task,
        })
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
        let row: Arc<[Box<str>]> = vec![Box::from(text)].into();
        Entry {
            row: Some(row),
            until,
        }
    }

    fn text(row: Option<Row>) -> Option<String> {
        Some(String::from(&*row??.first()?.clone()))
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
    fn keys_are_those_of_the_column() {
        for (name, key, expected) in [
            ("text", "a'b", Some("a'b")),
            ("text", "a\0", None),
            ("character varying", "7", Some("7")),
            ("integer", "007", Some("7")),
            ("bigint", "7.0", None),
            ("smallint", "99999999999999999999", None),
            (
                "uuid",
                "67E55044-10B1-426F-9247-BB680E5FE0C8",
                Some("67e55044-10b1-426f-9247-bb680e5fe0c8"),
            ),
            ("uuid", "x", None),
        ] {
            let kind = KeyKind::of(name).unwrap();
            assert_eq!(kind.normal(key).as_deref(), expected, "{name} {key}");
        }
        assert_eq!(KeyKind::of("jsonb"), None);
    }
}
