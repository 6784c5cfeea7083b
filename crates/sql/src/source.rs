//! Topics and files of sinks, as rows of values.

use std::ffi::CString;
use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rusqlite::types::Value;
use serde_json::Map;
use stafett_kafka_client::{Client, ErrorCode};
use stafett_model::StoredRecord;
use stafett_sinks::Definition;
use stafett_sinks::columns::{Column, Kind};
use stafett_sinks::convert::plain;
use stafett_sinks::rows::{Cell, Rows};
use stafett_sinks::scan::{self, FileRows, Part};
use tokio::sync::mpsc::{Sender, channel};

/// Digits that a floating-point number keeps.
const DIGITS_EXACT: usize = 15;
/// Columns of a topic, in their order.
const OF_TOPIC: [(&str, &str); 7] = [
    ("partition", "INTEGER"),
    ("offset", "INTEGER"),
    ("timestamp", "INTEGER"),
    ("time", "TEXT"),
    ("key", ""),
    ("value", ""),
    ("headers", "TEXT"),
];
/// Pieces that wait for the question.
const AHEAD: usize = 2;

/// Rows of a file that are sent at a time.
const PIECE_ROWS: usize = 1000;

/// Values in the order of the columns. A column that is not asked for is null.
pub(crate) type Row = Vec<Value>;

/// A table.
#[derive(Debug)]
pub struct Source(Kept);

#[derive(Debug)]
enum Kept {
    Topic { client: Client, parts: Vec<Part> },
    Files(Box<Definition>),
}

/// A comparison of a column with a whole number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compares {
    Equal,
    AtLeast,
    Above,
    AtMost,
    Below,
}

/// Rows that are asked for. More may be given: the question checks each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// A bit for each column.
    pub(crate) columns: u64,
    /// By the place of the column.
    pub(crate) terms: Vec<(usize, Compares, i64)>,
}

impl Asked {
    fn has(&self, column: usize) -> bool {
        // SQLite has one bit for all columns from the 64th on.
        self.columns & (1 << column.min(63)) != 0
    }
}

impl Source {
    /// Finds a topic. `None` if there is none of the name. Its table has the records that it has now.
    pub async fn of_topic(client: &Client, topic: &str) -> anyhow::Result<Option<Self>> {
        match scan::parts(client, topic).await {
            Ok(parts) => {
                let client = client.clone();
                Ok(Some(Self(Kept::Topic { client, parts })))
            }
            Err(why) if why.code() == Some(ErrorCode::UnknownTopicOrPartition) => Ok(None),
            Err(why) => Err(why.into()),
        }
    }

    /// The files of a sink.
    pub fn of_files(sink: &Definition) -> anyhow::Result<Self> {
        scan::columns(sink).map_err(anyhow::Error::msg)?;
        Ok(Self(Kept::Files(Box::new(sink.clone()))))
    }

    /// Returns the statement that declares the columns.
    pub(crate) fn declaration(&self) -> CString {
        let mut columns = String::new();
        let mut add = |name: &str, kind: &str| {
            let separator = if columns.is_empty() { "" } else { ", " };
            let _ = write!(columns, "{separator}\"{}\" {kind}", name.replace('"', "\"\""));
        };
        match &self.0 {
            Kept::Topic { .. } => OF_TOPIC.iter().for_each(|(name, kind)| add(name, kind)),
            Kept::Files(sink) => sink
                .columns
                .iter()
                .for_each(|column| add(&column.name, affinity(column))),
        }
        // Names have no zero byte: TOML and Kafka's protocol have texts.
        CString::new(format!("CREATE TABLE x({columns})")).unwrap_or_default()
    }

    /// Returns the number of rows, about.
    pub(crate) fn rows(&self) -> i64 {
        match &self.0 {
            Kept::Topic { parts, .. } => {
                let records = parts
                    .iter()
                    .map(|part| part.offsets.end.saturating_sub(part.offsets.start));
                i64::try_from(records.sum::<u64>()).unwrap_or(i64::MAX)
            }
            Kept::Files(_) => 1_000_000,
        }
    }

    /// True if comparisons of a column are of use to [`Self::scan`].
    pub(crate) fn narrows(&self, column: usize) -> bool {
        matches!(self.0, Kept::Topic { .. }) && column < 3
    }

    /// Sends rows until all are sent, or the receiver is gone.
    pub(crate) async fn scan(&self, asked: &Asked, rows: Sender<Result<Vec<Row>, String>>) {
        let ended = match &self.0 {
            Kept::Topic { client, parts } => scan_topic(client, parts, asked, &rows).await,
            Kept::Files(sink) => scan_files(sink, asked, &rows).await,
        };
        if let Err(why) = ended {
            // The question has ended if nothing takes it.
            let _ = rows.send(Err(why)).await;
        }
    }
}

async fn scan_topic(
    client: &Client,
    parts: &[Part],
    asked: &Asked,
    rows: &Sender<Result<Vec<Row>, String>>,
) -> Result<(), String> {
    for part in parts {
        let Some(part) = narrowed(client, part, asked).await? else {
            continue;
        };
        let partition = i64::from(part.place.partition);
        let (pieces, received) = channel(AHEAD);
        let reading = async {
            let pieces = pieces;
            scan::records(client, &part, &pieces).await
        };
        let turning = async {
            let mut received = received;
            while let Some(records) = received.recv().await {
                let found = records
                    .iter()
                    .map(|record| of_record(partition, record, asked))
                    .collect();
                if rows.send(Ok(found)).await.is_err() {
                    return false;
                }
            }
            true
        };
        // Without a receiver of its records, reading ends at its next piece.
        let (read, is_asked) = tokio::join!(reading, turning);
        read?;
        if !is_asked {
            return Ok(());
        }
    }
    Ok(())
}

/// Returns the records of a part that may be asked for. `None` if there are none.
async fn narrowed(client: &Client, part: &Part, asked: &Asked) -> Result<Option<Part>, String> {
    let mut part = part.clone();
    let partition = i64::from(part.place.partition);
    for (column, compares, number) in &asked.terms {
        let (low, high) = match compares {
            Compares::Equal => (*number, number.saturating_add(1)),
            Compares::AtLeast => (*number, i64::MAX),
            Compares::Above => (number.saturating_add(1), i64::MAX),
            Compares::AtMost => (i64::MIN, number.saturating_add(1)),
            Compares::Below => (i64::MIN, *number),
        };
        let offset = |number: i64| u64::try_from(number).unwrap_or(0);
        match column {
            0 if partition < low || partition >= high => return Ok(None),
            1 => {
                part.offsets.start = part.offsets.start.max(offset(low));
                if high < i64::MAX {
                    part.offsets.end = part.offsets.end.min(offset(high));
                }
            }
            2 if low > 0 => {
                let first = scan::first_since(client, &part.place, low).await;
                let first = first.map_err(|why| why.to_string())?;
                part.offsets.start = part.offsets.start.max(first);
            }
            _ => {}
        }
    }
    Ok((!part.offsets.is_empty()).then_some(part))
}

fn of_record(partition: i64, record: &StoredRecord, asked: &Asked) -> Row {
    let value = |column: usize| {
        if !asked.has(column) {
            return Value::Null;
        }
        match column {
            0 => Value::Integer(partition),
            1 => Value::Integer(i64::try_from(record.offset.0).unwrap_or(i64::MAX)),
            2 => Value::Integer(record.timestamp),
            3 => Timestamp::from_millisecond(record.timestamp)
                .map_or(Value::Null, |time| Value::Text(time.to_string())),
            4 => of_bytes(record.key.as_deref()),
            5 => of_bytes(record.value.as_deref()),
            _ => Value::Text(headers(record)),
        }
    };
    (0..OF_TOPIC.len()).map(value).collect()
}

/// Returns bytes as text if they are some.
fn of_bytes(bytes: Option<&[u8]>) -> Value {
    match bytes {
        None => Value::Null,
        Some(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::Text(text.to_owned()),
            Err(_) => Value::Blob(bytes.to_vec()),
        },
    }
}

/// Returns headers as a JSON object. Of those with one name the last counts.
fn headers(record: &StoredRecord) -> String {
    let mut object = Map::new();
    for (name, value) in record.headers.iter() {
        let value = match value.map(std::str::from_utf8) {
            None => serde_json::Value::Null,
            Some(Ok(text)) => text.into(),
            Some(Err(_)) => STANDARD.encode(value.unwrap_or_default()).into(),
        };
        object.insert(String::from_utf8_lossy(name).into_owned(), value);
    }
    serde_json::Value::Object(object).to_string()
}

async fn scan_files(
    sink: &Definition,
    asked: &Asked,
    rows: &Sender<Result<Vec<Row>, String>>,
) -> Result<(), String> {
    let mut files = FileRows::open(sink).await?;
    // The next file is read once all rows of this one are taken.
    while let Some(found) = files.next().await? {
        for from in (0..found.len()).step_by(PIECE_ROWS) {
            let range = from..found.len().min(from + PIECE_ROWS);
            let piece = range.map(|row| of_cells(&found, found.row(row), asked)).collect();
            if rows.send(Ok(piece)).await.is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn of_cells(rows: &Rows, cells: &[Cell], asked: &Asked) -> Row {
    let value = |(place, cell): (usize, &Cell)| {
        if !asked.has(place) {
            return Value::Null;
        }
        let text = |piece| Value::Text(rows.text(piece).to_owned());
        match *cell {
            Cell::Null => Value::Null,
            Cell::Boolean(it) => Value::Integer(it.into()),
            Cell::Integer(it) => Value::Integer(it),
            Cell::Double(it) => Value::Real(it),
            Cell::Bytes(piece) => Value::Blob(rows.piece(piece).to_vec()),
            Cell::Text(piece) | Cell::Json(piece) => text(piece),
            Cell::Numeric(piece) => decimal(rows.text(piece)),
            Cell::Instant(_) | Cell::Local(_) | Cell::Date(_) | Cell::Uuid(_) => {
                Value::Text(plain(rows, *cell).into_owned())
            }
        }
    };
    cells.iter().enumerate().map(value).collect()
}

/// Returns a decimal as a number, where that is exact: SQLite sorts texts behind all numbers.
fn decimal(text: &str) -> Value {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    if let Ok(number) = text.parse() {
        Value::Integer(number)
    } else if digits <= DIGITS_EXACT {
        text.parse()
            .map_or_else(|_| Value::Text(text.to_owned()), Value::Real)
    } else {
        Value::Text(text.to_owned())
    }
}

/// Returns the type that SQLite takes for a column. A decimal is compared as a number.
fn affinity(column: &Column) -> &'static str {
    match column.kind {
        Kind::Boolean | Kind::Bigint => "INTEGER",
        Kind::Double => "REAL",
        Kind::Numeric { .. } => "NUMERIC",
        Kind::Bytea => "BLOB",
        Kind::Text | Kind::Timestamptz | Kind::Timestamp | Kind::Date | Kind::Uuid | Kind::Jsonb => "TEXT",
    }
}
