//! A record as a row.

use std::borrow::Cow;
use std::collections::HashMap;

use smallvec::{SmallVec, smallvec};
use stafett_expr::PlacedRecord;
use stafett_model::StoredRecord;

use crate::cells;
use crate::columns::{Column, Kind, Origin};
use crate::document::{Document, cited, write_line, write_object, write_string};
use crate::headers;
use crate::query::Query;
use crate::rollup::{Groups, Rollup};
use crate::rows::{Cell, Cells, Rows};
use crate::target::{Place, TargetError};
use crate::transform::{Step, Verdict};

/// Fields of a record for which no memory is allocated.
const FIELDS: usize = 16;
/// Records that are looked at ahead of time, at most.
const AHEAD: usize = 1000;

/// Fields that no column takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUnknown {
    /// Into the column with `rest`; dropped without one.
    Rest,
    Drop,
    /// Poison.
    Refuse,
}

/// Result of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Converted {
    Row,
    /// A condition left the record out. `has_failed` if it was neither true nor false.
    Dropped {
        has_failed: bool,
    },
    /// Nothing is added: it waits for the row of a database.
    Waits,
}

/// Reason why a record is poison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// `not_json`, `transform`, `type`, `null` or `unknown_field`; those of targets are their own.
    pub class: &'static str,
    pub text: String,
}

/// Way from records to rows.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is found once, and asked for every record"
)]
pub struct Converter {
    columns: Vec<Column>,
    steps: Vec<Step>,
    on_unknown: OnUnknown,
    /// Columns by the top-level field that they take as a whole.
    by_field: HashMap<String, usize, ahash::RandomState>,
    /// Column of the field at each place of the record before.
    hints: Vec<Option<usize>>,
    /// True if values are not read at all.
    is_raw: bool,
    is_whole: bool,
    has_rest: bool,
    /// True if a field goes into several columns.
    has_twins: bool,
    /// True if the record before waits for the row of a database.
    is_waiting: bool,
}

impl Converter {
    pub fn new(columns: Vec<Column>, steps: Vec<Step>, on_unknown: OnUnknown) -> Self {
        let top = |(place, column): (usize, &Column)| match &column.origin {
            Origin::Path(path) => match path.as_slice() {
                [field] => Some((field.clone(), place)),
                _ => None,
            },
            Origin::Rest
            | Origin::Whole
            | Origin::Value
            | Origin::Key
            | Origin::Headers
            | Origin::Timestamp
            | Origin::Topic
            | Origin::Partition
            | Origin::Offset => None,
        };
        let tops = || columns.iter().enumerate().filter_map(top);
        let by_field: HashMap<_, _, _> = tops().collect();
        let has_twins = tops().count() > by_field.len();
        let has = |origin: &Origin| columns.iter().any(|column| column.origin == *origin);
        let has_paths = columns
            .iter()
            .any(|column| matches!(column.origin, Origin::Path(_)));
        let is_raw = has(&Origin::Value) && !has_paths && steps.is_empty();
        let (is_whole, has_rest) = (has(&Origin::Whole) && !has_paths, has(&Origin::Rest));
        Self {
            columns,
            steps,
            on_unknown,
            by_field,
            hints: Vec::new(),
            is_raw,
            is_whole,
            has_rest,
            has_twins,
            is_waiting: false,
        }
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// True once a table of its look-ups is not whole, or not current.
    pub(crate) fn is_closed(&self) -> bool {
        let mut lookups = self.steps.iter().filter_map(Step::lookup);
        lookups.any(|lookup| lookup.table.is_closed())
    }

    /// Adds the row of a record.
    pub fn convert(
        &mut self,
        place: &Place,
        record: &StoredRecord,
        rows: &mut Rows,
    ) -> Result<Converted, Reason> {
        self.is_waiting = false;
        if self.is_raw {
            self.push_whole(place, record, None, rows)?;
            return Ok(Converted::Row);
        }
        let document = match self.changed(place, record, Step::apply) {
            Ok(document) => document,
            Err(without) => return self.left_out(without),
        };
        if self.is_whole {
            self.push_whole(place, record, Some(&document), rows)?;
        } else {
            self.push_columns(place, record, &document, rows)?;
        }
        Ok(Converted::Row)
    }

    /// True if the record that was converted last waits for the row of a database.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Returns the steps that ask databases.
    pub(crate) fn queries(&self) -> Vec<Query> {
        self.steps.iter().filter_map(Step::query).cloned().collect()
    }

    /// Notes the keys for which records will wait.
    pub(crate) fn look_ahead<'r>(&self, place: &Place, records: impl Iterator<Item = &'r StoredRecord>) {
        for record in records.take(AHEAD) {
            // Its result is found again when it is converted.
            let _ = self.changed(place, record, Step::look);
        }
    }

    /// Asks databases for all rows for which records wait. They are the next ones of `records`.
    pub(crate) async fn fetch<'r>(
        &self,
        place: &Place,
        records: impl Iterator<Item = &'r StoredRecord>,
    ) -> Result<(), TargetError> {
        self.look_ahead(place, records);
        for query in self.queries() {
            query.fetch().await?;
        }
        Ok(())
    }

    /// Notes the result of a record without fields.
    fn left_out(&mut self, without: Result<Converted, Reason>) -> Result<Converted, Reason> {
        self.is_waiting = without == Ok(Converted::Waits);
        without
    }

    /// Returns the fields of a record behind all steps, or its result without them.
    fn changed<'r>(
        &self,
        place: &Place,
        record: &'r StoredRecord,
        apply: impl Fn(&Step, &mut Document<'_>, PlacedRecord<'_>) -> Result<Verdict, String>,
    ) -> Result<Document<'r>, Result<Converted, Reason>> {
        let value = record.value.as_deref().unwrap_or(b"null");
        let not_json = |text| -> Result<Converted, Reason> {
            Err(Reason {
                class: "not_json",
                text,
            })
        };
        let text = std::str::from_utf8(value);
        let text = text.map_err(|why| not_json(format!("not UTF-8 behind byte {}", why.valid_up_to())))?;
        let mut document = Document::parse(text).map_err(not_json)?;
        for (number, step) in self.steps.iter().enumerate() {
            match apply(step, &mut document, place.holding(record)) {
                Ok(Verdict::Keep) => {}
                Ok(Verdict::Drop { has_failed }) => return Err(Ok(Converted::Dropped { has_failed })),
                Ok(Verdict::Wait) => return Err(Ok(Converted::Waits)),
                Err(text) => {
                    return Err(Err(Reason {
                        class: "transform",
                        text: format!("step {}: {text}", number + 1),
                    }));
                }
            }
        }
        Ok(document)
    }

    /// Adds a record to its groups.
    pub fn fold(
        &mut self,
        rollup: &Rollup,
        place: &Place,
        record: &StoredRecord,
        groups: &mut Groups,
    ) -> Result<Converted, Reason> {
        self.is_waiting = false;
        let document = match self.changed(place, record, Step::apply) {
            Ok(document) => document,
            Err(without) => return self.left_out(without),
        };
        groups.add(rollup, &document)?;
        Ok(Converted::Row)
    }

    /// Adds the value as it is, behind the columns of the record.
    fn push_whole(
        &self,
        place: &Place,
        record: &StoredRecord,
        document: Option<&Document<'_>>,
        rows: &mut Rows,
    ) -> Result<(), Reason> {
        rows.push(record.offset.0, |row| {
            for column in &self.columns {
                let cell = of_record(row, column, place, record, document).unwrap_or(Cell::Null);
                row.push(cell);
            }
            Ok(())
        })
    }

    fn push_columns(
        &mut self,
        place: &Place,
        record: &StoredRecord,
        document: &Document<'_>,
        rows: &mut Rows,
    ) -> Result<(), Reason> {
        let mut found: SmallVec<[Option<&str>; FIELDS]> = smallvec![None; self.columns.len()];
        let mut unknown: SmallVec<[(&str, &str); FIELDS]> = SmallVec::new();
        self.hints.resize(document.fields.len(), None);
        for (field, hint) in document.fields.iter().zip(&mut self.hints) {
            if !hint.is_some_and(|column| takes(&self.columns, column, &field.name)) {
                *hint = self.by_field.get(&*field.name).copied();
            }
            match hint.and_then(|column| found.get_mut(column)) {
                Some(slot) => *slot = Some(&field.json),
                None => unknown.push((&*field.name, &*field.json)),
            }
        }
        if self.on_unknown == OnUnknown::Refuse
            && let Some((name, _)) = unknown.first()
        {
            return Err(Reason {
                class: "unknown_field",
                text: format!("no column takes the field {:?}", cited(name)),
            });
        }
        let keeps_rest = self.has_rest && self.on_unknown != OnUnknown::Drop;
        rows.push(record.offset.0, |row| {
            for (column, found) in self.columns.iter().zip(found) {
                let nested;
                let json = match (&column.origin, found) {
                    (_, Some(json)) => Some(json),
                    (Origin::Path(path), None) if path.len() > 1 || self.has_twins => {
                        nested = document.at(path);
                        nested.as_deref()
                    }
                    (Origin::Rest, None) => {
                        if unknown.is_empty() || !keeps_rest {
                            row.push(Cell::Null);
                        } else {
                            let piece = row.written(|out| write_object(out, unknown.iter().copied()));
                            row.push(Cell::Json(piece));
                        }
                        continue;
                    }
                    _ => None,
                };
                match of_record(row, column, place, record, Some(document)) {
                    Some(cell) => row.push(cell),
                    None => push_cell(row, column, json)?,
                }
            }
            Ok(())
        })
    }
}

fn takes(columns: &[Column], column: usize, field: &str) -> bool {
    let origin = columns.get(column).map(|column| &column.origin);
    matches!(origin, Some(Origin::Path(path)) if matches!(path.as_slice(), [only] if only == field))
}

fn push_cell(row: &mut Cells<'_>, column: &Column, json: Option<&str>) -> Result<(), Reason> {
    let json = json.filter(|json| *json != "null");
    let json = json.or(column.default.as_deref()).unwrap_or("null");
    if json == "null" && !column.nullable {
        return Err(Reason {
            class: "null",
            text: format!("column {} has no value", column.name),
        });
    }
    cells::write(row, column.kind, json).map_err(|why| Reason {
        class: "type",
        text: format!("column {}: {why}", column.name),
    })
}

/// Returns the cell of a column that comes from the record as a whole. `None` for one of the value's fields.
fn of_record(
    row: &mut Cells<'_>,
    column: &Column,
    place: &Place,
    record: &StoredRecord,
    document: Option<&Document<'_>>,
) -> Option<Cell> {
    let bytes = |row: &mut Cells<'_>, bytes: Option<&bytes::Bytes>| {
        bytes.map_or(Cell::Null, |bytes| Cell::Bytes(row.piece(bytes)))
    };
    Some(match column.origin {
        Origin::Topic => Cell::Text(row.piece(place.topic.as_bytes())),
        Origin::Partition => Cell::Integer(i64::from(place.partition)),
        Origin::Offset => Cell::Integer(i64::try_from(record.offset.0).unwrap_or(i64::MAX)),
        Origin::Whole => {
            let document = document?;
            Cell::Json(row.written(|buffer| document.write(buffer)))
        }
        Origin::Value => bytes(row, record.value.as_ref()),
        Origin::Key => bytes(row, record.key.as_ref()),
        Origin::Headers if record.headers.is_empty() => Cell::Null,
        Origin::Headers => Cell::Bytes(row.written(|buffer| headers::write(buffer, record.headers.iter()))),
        Origin::Timestamp => Cell::Integer(record.timestamp),
        Origin::Path(_) | Origin::Rest => return None,
    })
}

/// Returns a default, given as a text of TOML, as JSON that fits its column.
pub(crate) fn default_fits(kind: Kind, json: &str) -> Result<(), String> {
    let mut rows = Rows::new(1);
    rows.push(0, |row| cells::write(row, kind, json))
}

/// Writes a row as one line of JSON, with a field per column.
pub fn write_json(out: &mut Vec<u8>, columns: &[Column], rows: &Rows, cells: &[Cell]) {
    if let ([column], [Cell::Json(piece)]) = (columns, cells)
        && column.origin == Origin::Whole
    {
        out.extend_from_slice(rows.piece(*piece));
        return;
    }
    out.push(b'{');
    for (place, (column, cell)) in columns.iter().zip(cells).enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write_string(
            out,
            if column.origin == Origin::Whole {
                "value"
            } else {
                &column.name
            },
        );
        out.push(b':');
        write_json_cell(out, rows, *cell);
    }
    out.push(b'}');
}

/// Writes a cell as a JSON value.
pub(crate) fn write_json_cell(out: &mut Vec<u8>, rows: &Rows, cell: Cell) {
    match cell {
        Cell::Null => out.extend_from_slice(b"null"),
        Cell::Json(piece) => write_line(out, rows.text(piece)),
        Cell::Boolean(_) | Cell::Integer(_) | Cell::Double(_) | Cell::Numeric(_) => {
            write_plain(out, rows, cell);
        }
        Cell::Text(_)
        | Cell::Instant(_)
        | Cell::Local(_)
        | Cell::Date(_)
        | Cell::Uuid(_)
        | Cell::Bytes(_) => {
            write_string(out, &plain(rows, cell));
        }
    }
}

/// Writes a cell as text: numbers in digits, times as in RFC 3339, bytes in base64. Null is nothing.
pub(crate) fn write_plain(out: &mut Vec<u8>, rows: &Rows, cell: Cell) {
    use std::io::Write;
    // Writing to a vector does not fail.
    let _ = match cell {
        Cell::Integer(it) => write!(out, "{it}"),
        Cell::Double(it) => write!(out, "{it}"),
        Cell::Null
        | Cell::Boolean(_)
        | Cell::Numeric(_)
        | Cell::Text(_)
        | Cell::Json(_)
        | Cell::Instant(_)
        | Cell::Local(_)
        | Cell::Date(_)
        | Cell::Uuid(_)
        | Cell::Bytes(_) => out.write_all(plain(rows, cell).as_bytes()),
    };
}

/// Returns a cell as text: numbers in digits, times as in RFC 3339, bytes in base64. Null is empty.
pub fn plain(rows: &Rows, cell: Cell) -> Cow<'_, str> {
    use base64::Engine;
    match cell {
        Cell::Null => "".into(),
        Cell::Boolean(it) => it.to_string().into(),
        Cell::Integer(it) => it.to_string().into(),
        Cell::Double(it) => it.to_string().into(),
        Cell::Numeric(piece) | Cell::Text(piece) | Cell::Json(piece) => rows.text(piece).into(),
        Cell::Instant(micros) => format!("{}Z", cells::civil(micros)).into(),
        Cell::Local(micros) => cells::civil(micros).to_string().into(),
        Cell::Date(days) => {
            let epoch = jiff::civil::Date::constant(1970, 1, 1);
            let span = jiff::Span::new().try_days(days).unwrap_or_default();
            epoch.checked_add(span).unwrap_or(epoch).to_string().into()
        }
        Cell::Uuid(piece) => {
            let id = uuid::Uuid::from_slice(rows.piece(piece)).unwrap_or_default();
            id.to_string().into()
        }
        Cell::Bytes(piece) => base64::engine::general_purpose::STANDARD
            .encode(rows.piece(piece))
            .into(),
    }
}
