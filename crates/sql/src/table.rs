//! A source as a virtual table of SQLite. Only read; a scan begins with each filter, and ends with its
//! cursor.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{CStr, c_int};
use std::fmt::Write as _;
use std::marker::PhantomData;
use std::sync::Arc;

use rusqlite::types::Value;
use rusqlite::vtab::{
    Context, CreateVTab, Filters, IndexConstraintOp, IndexInfo, Module, VTab, VTabConnection, VTabCursor,
    VTabKind, sqlite3_vtab, sqlite3_vtab_cursor,
};
use rusqlite::{Connection, Error, Result};
use stafett_model::Lock;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::source::{Asked, Compares, Row, Source};

pub(crate) const MODULE_NAME: &CStr = c"stafett";
/// Pieces of rows that wait for the question.
const AHEAD: usize = 2;
/// Cost of a scan, in rows.
const SCAN_COST: f64 = 1000.0;

/// Sources by the names of their tables, and the surroundings of scans.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) sources: Lock<HashMap<String, Arc<Source>>>,
    pub(crate) handle: Handle,
    pub(crate) deadline: Instant,
}

/// Makes the tables of a registry known to a connection.
pub(crate) fn register(connection: &Connection, registry: Arc<Registry>) -> Result<()> {
    const MODULE: Module<'_, Table> = Module::read_only_module();
    connection.create_module(MODULE_NAME, &MODULE, Some(registry))
}

#[repr(C)]
struct Table {
    /// First, as SQLite's interface has it.
    base: sqlite3_vtab,
    source: Arc<Source>,
    registry: Arc<Registry>,
}

#[expect(
    unsafe_code,
    reason = "the trait asks for the layout: `repr(C)`, and the base first"
)]
unsafe impl<'vtab> VTab<'vtab> for Table {
    type Aux = Arc<Registry>;
    type Cursor = Cursor<'vtab>;

    fn connect(
        _: &mut VTabConnection,
        registry: Option<&Self::Aux>,
        _: &[u8],
        _: &[u8],
        name: &[u8],
        _: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        let missing = || Error::ModuleError("there is no such source".to_owned());
        let registry = registry.ok_or_else(missing)?;
        let name = String::from_utf8_lossy(name).into_owned();
        let source = registry.sources.lock().get(&name).cloned();
        let source = source.ok_or_else(missing)?;
        let declaration = Cow::Owned(source.declaration());
        let table = Self {
            base: sqlite3_vtab::default(),
            source,
            registry: Arc::clone(registry),
        };
        Ok((declaration, table))
    }

    /// Passes comparisons with whole numbers on, which a scan may use.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a scan is of use to five operators"
    )]
    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let mut terms = Vec::new();
        for (place, constraint) in info.constraints().enumerate() {
            let compares = match constraint.operator() {
                IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ => '=',
                IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GE => 'g',
                IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GT => '>',
                IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LE => 'l',
                IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LT => '<',
                _ => continue,
            };
            let column = usize::try_from(constraint.column()).unwrap_or(usize::MAX);
            if constraint.is_usable() && self.source.narrows(column) {
                terms.push((place, column, compares));
            }
        }
        let mut words = format!("{:x}", info.col_used());
        for (number, (place, column, compares)) in (1..).zip(&terms) {
            info.constraint_usage(*place).set_argv_index(number);
            // Writing to a text does not fail.
            let _ = write!(words, " {column}{compares}");
        }
        info.set_idx_str(&words);
        let rows = self.source.rows() >> terms.len().min(16);
        info.set_estimated_rows(rows);
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        info.set_estimated_cost(SCAN_COST + rows as f64);
        Ok(true)
    }

    fn open(&'vtab mut self) -> Result<Cursor<'vtab>> {
        Ok(Cursor {
            base: sqlite3_vtab_cursor::default(),
            source: Arc::clone(&self.source),
            registry: Arc::clone(&self.registry),
            scan: None,
            piece: Vec::new().into_iter(),
            row: None,
            number: 0,
            table: PhantomData,
        })
    }
}

impl CreateVTab<'_> for Table {
    const KIND: VTabKind = VTabKind::Default;
}

#[repr(C)]
struct Cursor<'vtab> {
    /// First, as SQLite's interface has it.
    base: sqlite3_vtab_cursor,
    source: Arc<Source>,
    registry: Arc<Registry>,
    scan: Option<Scan>,
    piece: std::vec::IntoIter<Row>,
    row: Option<Row>,
    number: i64,
    table: PhantomData<&'vtab Table>,
}

/// Rows on their way.
struct Scan {
    rows: Receiver<std::result::Result<Vec<Row>, String>>,
    /// Ends with this.
    _task: JoinSet<()>,
}

/// Reads the comparisons that `best_index` has chosen.
fn asked(words: &str, numbers: &[Value]) -> Asked {
    let mut words = words.split(' ');
    let columns = words.next().and_then(|word| u64::from_str_radix(word, 16).ok());
    let mut terms = Vec::new();
    for (word, number) in words.zip(numbers) {
        // Another value than a whole number narrows nothing; SQLite compares it by itself.
        let Value::Integer(number) = number else {
            continue;
        };
        let Some((column, compares)) = word.split_at_checked(word.len().saturating_sub(1)) else {
            continue;
        };
        let compares = match compares {
            "=" => Compares::Equal,
            "g" => Compares::AtLeast,
            ">" => Compares::Above,
            "l" => Compares::AtMost,
            _ => Compares::Below,
        };
        if let Ok(column) = column.parse() {
            terms.push((column, compares, *number));
        }
    }
    Asked {
        columns: columns.unwrap_or(u64::MAX),
        terms,
    }
}

#[expect(
    unsafe_code,
    reason = "the trait asks for the layout: `repr(C)`, and the base first"
)]
unsafe impl VTabCursor for Cursor<'_> {
    fn filter(&mut self, _: c_int, words: Option<&str>, arguments: &Filters<'_>) -> Result<()> {
        let mut numbers = Vec::with_capacity(arguments.len());
        for place in 0..arguments.len() {
            numbers.push(arguments.get::<Value>(place)?);
        }
        let asked = asked(words.unwrap_or_default(), &numbers);
        let (sender, rows) = channel(AHEAD);
        let source = Arc::clone(&self.source);
        let mut task = JoinSet::new();
        task.spawn_on(
            async move { source.scan(&asked, sender).await },
            &self.registry.handle,
        );
        self.scan = Some(Scan { rows, _task: task });
        self.piece = Vec::new().into_iter();
        self.number = 0;
        self.next()
    }

    fn next(&mut self) -> Result<()> {
        self.number += 1;
        loop {
            self.row = self.piece.next();
            let Some(scan) = self.scan.as_mut().filter(|_| self.row.is_none()) else {
                return Ok(());
            };
            let Registry { handle, deadline, .. } = &*self.registry;
            // The timer belongs to the runtime.
            let received = handle.block_on(async { timeout_at(*deadline, scan.rows.recv()).await });
            match received {
                Ok(Some(Ok(piece))) => self.piece = piece.into_iter(),
                Ok(Some(Err(why))) => return Err(Error::ModuleError(why)),
                Ok(None) => self.scan = None,
                // The question is interrupted at its next step.
                Err(_) => return Err(Error::ModuleError(crate::question::TOO_LONG.to_owned())),
            }
        }
    }

    fn eof(&self) -> bool {
        self.row.is_none()
    }

    fn column(&self, context: &mut Context, place: c_int) -> Result<()> {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        let value = self.row.as_ref().and_then(|row| row.get(place));
        match value {
            Some(value) => context.set_result(value),
            None => context.set_result(Value::Null),
        }
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_with_whole_numbers_narrow_a_scan() {
        let numbers = [Value::Integer(3), Value::Text("x".to_owned()), Value::Integer(-7)];
        let found = asked("1f 0= 1g 2<", &numbers);
        assert_eq!(found.columns, 0x1f);
        assert_eq!(found.terms, [(0, Compares::Equal, 3), (2, Compares::Below, -7)]);
        assert_eq!(asked("", &[]).columns, u64::MAX);
    }
}
