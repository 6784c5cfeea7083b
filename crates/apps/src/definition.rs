//! Definition of an app, and its stored form: key name.
//!
//! ```text
//! version 3 · flags u8 (1 record clock, 2 stop at a gap, 4 manual rebalancing, 8 paused, 16 not splittable)
//! balance u8 · guarantee u8 · durability text (empty: the broker's) · from text (empty: earliest)
//! worker timeout, revoke, grace, idle u64, in ms · state bytes u64
//! attempts u32 · dead letters text (empty: none)
//! topics u32 · (name, id u128)* · tables u32 · (name, format u8 (128: not keyed), ttl u64, 0 for none)*
//! tasks u32 · (name, log u64, starts u32 · u64*)*
//! pins u32 · (task, worker, absent u8)* · drains u32 · (worker, step i64 in ms)*
//! unfinished logs u32 · u64*
//! filter text (empty: none)
//! ```
//!
//! `starts` are the offsets at which a task begins, per input; none for the earliest. Version 1 ends
//! behind the tasks, version 2 before the filter.

use std::collections::BTreeMap;

use stafett_model::codec::{get, get_text, put_text};
use stafett_model::{Durability, LogId};
use stafett_topics::TopicId;

use crate::filter::Filter;
use crate::machine::{Absent, Balance, Marks};
use crate::task::TaskId;

const VERSION: u8 = 3;
/// Bit of a table's format.
const NOT_KEYED: u8 = 128;
/// Limit on the names of apps, workers and tables, in bytes.
pub const NAME_BYTES_MAX: usize = 249;
pub(crate) const TABLES_MAX: usize = 1000;
pub(crate) const TOPICS_MAX: usize = 16;

/// Definition as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Names of the input topics.
    pub topics: Vec<Box<str>>,
    /// Place at which tasks begin, as it was asked for; empty for the earliest.
    pub from: Box<str>,
    /// Records for which it is not true are passed over.
    pub filter: Option<Filter>,
    pub guarantee: Guarantee,
    /// Level of commits; the broker's if it is absent.
    pub durability: Option<Durability>,
    pub balance: Balance,
    /// True if held tasks move only on request.
    pub manual_rebalance: bool,
    pub worker_timeout_ms: u64,
    pub revoke_ms: u64,
    pub time: TimeRules,
    pub tables: BTreeMap<Box<str>, Table>,
    /// Limit on the state of a task.
    pub state_bytes_max: u64,
    /// True if a task stops where retention has overtaken it.
    pub stops_at_gap: bool,
    /// Attempts at a record that fails.
    pub attempts_max: u32,
    /// Topic of the records that failed for the last time; without one their task stops.
    pub dead_letter: Option<Box<str>>,
    /// False if tasks stay whole partitions.
    pub splittable: bool,
}

/// Order of results and position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Guarantee {
    #[default]
    ExactlyOnce,
    AtLeastOnce,
    /// Positions are stored before records are delivered.
    AtMostOnce,
}

/// Time of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRules {
    /// True if records give the time; else the broker's clock does.
    pub of_records: bool,
    /// Time by which records may be out of order.
    pub grace_ms: u64,
    /// Time without records after which the clock goes on.
    pub idle_ms: u64,
}

/// A table of an app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    pub format: Format,
    pub ttl_ms: Option<u64>,
    /// False if entries belong to the task as a whole, and cannot be divided by their keys.
    pub keyed: bool,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            format: Format::default(),
            ttl_ms: None,
            keyed: true,
        }
    }
}

/// Form of a table's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    #[default]
    Json,
    Bytes,
}

/// An app as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredApp {
    pub definition: Definition,
    /// Ids of the input topics.
    pub topics: Vec<TopicId>,
    pub tasks: BTreeMap<TaskId, StoredTask>,
    pub paused: bool,
    pub marks: Marks,
    /// Logs of a split or a merge that is not finished.
    pub unfinished: Vec<LogId>,
}

/// Log of a task, and the offsets at which it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTask {
    pub log: LogId,
    pub starts: Vec<u64>,
}

impl Default for Definition {
    fn default() -> Self {
        Self {
            topics: Vec::new(),
            from: Box::default(),
            filter: None,
            guarantee: Guarantee::default(),
            durability: None,
            balance: Balance::default(),
            manual_rebalance: false,
            worker_timeout_ms: 10_000,
            revoke_ms: 30_000,
            time: TimeRules {
                of_records: true,
                grace_ms: 5_000,
                idle_ms: 1_000,
            },
            tables: BTreeMap::new(),
            state_bytes_max: 256 << 20,
            stops_at_gap: true,
            attempts_max: 5,
            dead_letter: None,
            splittable: true,
        }
    }
}

impl Definition {
    /// Returns the number of a table: its place among the names.
    pub fn table(&self, name: &str) -> Option<(u16, Table)> {
        let at = self.tables.keys().position(|known| **known == *name)?;
        Some((u16::try_from(at).ok()?, *self.tables.get(name)?))
    }

    /// Returns the name of an input; empty if there is none.
    pub fn topic(&self, input: usize) -> Box<str> {
        self.topics.get(input).cloned().unwrap_or_default()
    }

    /// Returns the first field that differs in another definition.
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        let checks = [
            ("topics", self.topics != other.topics),
            ("guarantee", self.guarantee != other.guarantee),
            ("tables", self.tables != other.tables),
            ("from", self.from != other.from),
            ("filter", self.filter != other.filter),
            ("durability", self.durability != other.durability),
            ("balance", self.balance != other.balance),
            ("rebalance", self.manual_rebalance != other.manual_rebalance),
            (
                "worker_timeout_ms",
                self.worker_timeout_ms != other.worker_timeout_ms,
            ),
            ("revoke_ms", self.revoke_ms != other.revoke_ms),
            ("time", self.time != other.time),
            ("state_bytes_max", self.state_bytes_max != other.state_bytes_max),
            ("on_gap", self.stops_at_gap != other.stops_at_gap),
            ("attempts_max", self.attempts_max != other.attempts_max),
            ("dead_letter", self.dead_letter != other.dead_letter),
            ("splittable", self.splittable != other.splittable),
        ];
        checks
            .into_iter()
            .find_map(|(field, differs)| differs.then_some(field))
    }
}

fn put_marks(marks: &Marks, out: &mut Vec<u8>) {
    put_count(marks.pins.len(), out);
    for (task, (worker, absent)) in &marks.pins {
        put_text(&task.to_string(), out);
        put_text(worker, out);
        out.push(*absent as u8);
    }
    put_count(marks.drains.len(), out);
    for (worker, step_ms) in &marks.drains {
        put_text(worker, out);
        out.extend_from_slice(&step_ms.to_le_bytes());
    }
}

fn get_marks(rest: &mut &[u8]) -> Option<Marks> {
    let mut marks = Marks::default();
    for _ in 0..get_count(rest)? {
        let (task, worker) = (get_text(rest)?.parse().ok()?, get_text(rest)?.into());
        let [absent] = get(rest)?;
        let absent = *[Absent::Wait, Absent::Balance, Absent::Refuse].get(usize::from(absent))?;
        marks.pins.insert(task, (worker, absent));
    }
    for _ in 0..get_count(rest)? {
        let worker = get_text(rest)?.into();
        marks.drains.insert(worker, i64::from_le_bytes(get(rest)?));
    }
    Some(marks)
}

fn get_tables(rest: &mut &[u8]) -> Option<BTreeMap<Box<str>, Table>> {
    let mut tables = BTreeMap::new();
    for _ in 0..get_count(rest)? {
        let name = get_text(rest)?.into();
        let [format] = get(rest)?;
        let keyed = format & NOT_KEYED == 0;
        let format = *[Format::Json, Format::Bytes].get(usize::from(format & !NOT_KEYED))?;
        let ttl_ms = Some(u64::from_le_bytes(get(rest)?)).filter(|ttl| *ttl > 0);
        tables.insert(
            name,
            Table {
                format,
                ttl_ms,
                keyed,
            },
        );
    }
    Some(tables)
}

fn get_tasks(rest: &mut &[u8]) -> Option<BTreeMap<TaskId, StoredTask>> {
    let mut tasks = BTreeMap::new();
    for _ in 0..get_count(rest)? {
        let id = get_text(rest)?.parse().ok()?;
        let log = LogId(u64::from_le_bytes(get(rest)?));
        let mut starts = Vec::new();
        for _ in 0..get_count(rest)? {
            starts.push(u64::from_le_bytes(get(rest)?));
        }
        tasks.insert(id, StoredTask { log, starts });
    }
    Some(tasks)
}

/// A filter that cannot be read.
struct NoFilter;

fn get_filter(version: u8, rest: &mut &[u8]) -> Result<Option<Filter>, NoFilter> {
    if version < 3 {
        return Ok(None);
    }
    let source = get_text(rest).ok_or(NoFilter)?;
    let filter = (!source.is_empty()).then(|| Filter::compile(source));
    filter.transpose().map_err(|_| NoFilter)
}

fn get_count(rest: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(get(rest)?))
}

fn put_count(count: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

impl StoredApp {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let it = &self.definition;
        let flags = u8::from(it.time.of_records)
            | u8::from(it.stops_at_gap) << 1
            | u8::from(it.manual_rebalance) << 2
            | u8::from(self.paused) << 3
            | u8::from(!it.splittable) << 4;
        let mut out = vec![VERSION, flags, it.balance as u8, it.guarantee as u8];
        let durability = it.durability.map(|level| level.to_string());
        put_text(durability.as_deref().unwrap_or_default(), &mut out);
        put_text(&it.from, &mut out);
        let numbers = [
            it.worker_timeout_ms,
            it.revoke_ms,
            it.time.grace_ms,
            it.time.idle_ms,
            it.state_bytes_max,
        ];
        out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        out.extend_from_slice(&it.attempts_max.to_le_bytes());
        put_text(it.dead_letter.as_deref().unwrap_or_default(), &mut out);
        put_count(it.topics.len(), &mut out);
        for (name, id) in it.topics.iter().zip(&self.topics) {
            put_text(name, &mut out);
            out.extend_from_slice(&id.0.to_le_bytes());
        }
        put_count(it.tables.len(), &mut out);
        for (name, table) in &it.tables {
            put_text(name, &mut out);
            out.push(table.format as u8 | if table.keyed { 0 } else { NOT_KEYED });
            out.extend_from_slice(&table.ttl_ms.unwrap_or(0).to_le_bytes());
        }
        put_count(self.tasks.len(), &mut out);
        for (id, task) in &self.tasks {
            put_text(&id.to_string(), &mut out);
            out.extend_from_slice(&task.log.0.to_le_bytes());
            put_count(task.starts.len(), &mut out);
            out.extend(task.starts.iter().flat_map(|start| start.to_le_bytes()));
        }
        put_marks(&self.marks, &mut out);
        put_count(self.unfinished.len(), &mut out);
        out.extend(self.unfinished.iter().flat_map(|log| log.0.to_le_bytes()));
        put_text(it.filter.as_ref().map_or("", Filter::source), &mut out);
        out
    }

    pub(crate) fn decode(mut rest: &[u8]) -> Option<Self> {
        let rest = &mut rest;
        let [version, flags, balance, guarantee] = get(rest)?;
        if !(1..=VERSION).contains(&version) {
            return None;
        }
        let balance =
            *[Balance::Count, Balance::Weight, Balance::Load, Balance::Manual].get(usize::from(balance))?;
        let guarantee = *[
            Guarantee::ExactlyOnce,
            Guarantee::AtLeastOnce,
            Guarantee::AtMostOnce,
        ]
        .get(usize::from(guarantee))?;
        let durability = match get_text(rest)? {
            "" => None,
            text => Some(text.parse().ok()?),
        };
        let from = get_text(rest)?.into();
        let mut number = || Some(u64::from_le_bytes(get(rest)?));
        let (worker_timeout_ms, revoke_ms) = (number()?, number()?);
        let (grace_ms, idle_ms, state_bytes_max) = (number()?, number()?, number()?);
        let attempts_max = u32::from_le_bytes(get(rest)?);
        let dead_letter = Some(get_text(rest)?).filter(|name| !name.is_empty());
        let dead_letter = dead_letter.map(Into::into);
        let (mut names, mut topics) = (Vec::new(), Vec::new());
        for _ in 0..get_count(rest)? {
            names.push(get_text(rest)?.into());
            topics.push(TopicId(u128::from_le_bytes(get(rest)?)));
        }
        let (tables, tasks) = (get_tables(rest)?, get_tasks(rest)?);
        let (mut marks, mut unfinished) = (Marks::default(), Vec::new());
        if version > 1 {
            marks = get_marks(rest)?;
            for _ in 0..get_count(rest)? {
                unfinished.push(LogId(u64::from_le_bytes(get(rest)?)));
            }
        }
        let filter = get_filter(version, rest).ok()?;
        let definition = Definition {
            topics: names,
            from,
            filter,
            guarantee,
            durability,
            balance,
            manual_rebalance: flags & 4 != 0,
            worker_timeout_ms,
            revoke_ms,
            time: TimeRules {
                of_records: flags & 1 != 0,
                grace_ms,
                idle_ms,
            },
            tables,
            state_bytes_max,
            stops_at_gap: flags & 2 != 0,
            attempts_max,
            dead_letter,
            splittable: flags & 16 == 0,
        };
        rest.is_empty().then_some(Self {
            definition,
            topics,
            tasks,
            paused: flags & 8 != 0,
            marks,
            unfinished,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_is_read_back_and_a_cut_one_refused() {
        let table = Table {
            format: Format::Bytes,
            ttl_ms: Some(5),
            keyed: false,
        };
        let definition = Definition {
            topics: vec!["a".into(), "b".into()],
            from: "latest".into(),
            filter: Some(Filter::compile("value.n > 1").unwrap()),
            guarantee: Guarantee::AtMostOnce,
            splittable: false,
            durability: Some(Durability::Os),
            balance: Balance::Load,
            manual_rebalance: true,
            attempts_max: 3,
            dead_letter: Some("dead".into()),
            tables: BTreeMap::from([("open".into(), table), ("shut".into(), Table::default())]),
            ..Definition::default()
        };
        let whole = TaskId::whole(7);
        let task = StoredTask {
            log: LogId(9),
            starts: vec![1, 2],
        };
        let app = StoredApp {
            topics: vec![TopicId(1), TopicId(2)],
            tasks: whole
                .halves()
                .unwrap()
                .into_iter()
                .map(|half| (half, task.clone()))
                .collect(),
            paused: true,
            marks: Marks {
                pins: BTreeMap::from([(whole, ("w".into(), Absent::Balance))]),
                drains: BTreeMap::from([("v".into(), 7)]),
            },
            unfinished: vec![LogId(3), LogId(4)],
            definition,
        };
        let bytes = app.encode();
        assert_eq!(StoredApp::decode(&bytes), Some(app.clone()));
        for end in 0..bytes.len() {
            assert_eq!(StoredApp::decode(&bytes[..end]), None);
        }
        assert_eq!(app.definition.table("shut"), Some((1, Table::default())));
        assert_eq!(app.definition.difference(&Definition::default()), Some("topics"));
    }
}
