//! Rows in the format of `COPY … (FORMAT binary)`.
//!
//! ```text
//! "PGCOPY\n\377\r\n\0" · flags i32 · extension i32
//! per row: fields i16 · per field: length i32 (-1: null), value
//! end: -1 i16
//! ```

use bytes::{BufMut, Bytes, BytesMut};

use crate::columns::Column;
use crate::rows::{Cell, Rows, Slice};

const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// 2000-01-01, where PostgreSQL's times begin.
const EPOCH_MICROS: i64 = 946_684_800_000_000;
const EPOCH_DAYS: i32 = 10_957;

/// The bytes of a COPY, piece by piece.
pub(super) struct Chunks<'a> {
    rows: &'a Rows,
    ahead: std::ops::Range<usize>,
    fields: i16,
    /// True if the row's place in the batch stands behind its columns.
    with_order: bool,
    chunk_bytes: usize,
    is_begun: bool,
    is_ended: bool,
}

impl<'a> Chunks<'a> {
    pub(super) fn new(columns: &[Column], slice: &Slice<'a>, with_order: bool, chunk_bytes: usize) -> Self {
        let fields = columns.len() + usize::from(with_order);
        Self {
            rows: slice.rows,
            ahead: slice.range.clone(),
            fields: i16::try_from(fields).unwrap_or(i16::MAX),
            with_order,
            chunk_bytes,
            is_begun: false,
            is_ended: false,
        }
    }

    pub(super) fn next(&mut self) -> Option<Bytes> {
        if self.is_ended {
            return None;
        }
        let mut out = BytesMut::with_capacity(self.chunk_bytes + self.chunk_bytes / 8);
        if !self.is_begun {
            out.put_slice(HEADER);
            self.is_begun = true;
        }
        while out.len() < self.chunk_bytes {
            let Some(row) = self.ahead.next() else {
                out.put_i16(-1);
                self.is_ended = true;
                break;
            };
            out.put_i16(self.fields);
            for cell in self.rows.row(row) {
                put(&mut out, self.rows, *cell);
            }
            if self.with_order {
                out.put_i32(8);
                out.put_i64(i64::try_from(row).unwrap_or(i64::MAX));
            }
        }
        Some(out.freeze())
    }
}

fn put(out: &mut BytesMut, rows: &Rows, cell: Cell) {
    match cell {
        Cell::Null => out.put_i32(-1),
        Cell::Boolean(it) => {
            out.put_i32(1);
            out.put_u8(it.into());
        }
        Cell::Integer(it) => long(out, it),
        Cell::Double(it) => {
            out.put_i32(8);
            out.put_f64(it);
        }
        Cell::Numeric(piece) => numeric(out, rows.text(piece)),
        Cell::Instant(micros) | Cell::Local(micros) => long(out, micros - EPOCH_MICROS),
        Cell::Date(days) => {
            out.put_i32(4);
            out.put_i32(days - EPOCH_DAYS);
        }
        Cell::Uuid(piece) | Cell::Text(piece) | Cell::Bytes(piece) => {
            let bytes = rows.piece(piece);
            length(out, bytes.len());
            out.put_slice(bytes);
        }
        Cell::Json(piece) => {
            let bytes = rows.piece(piece);
            length(out, bytes.len() + 1);
            // Version of the format of jsonb.
            out.put_u8(1);
            out.put_slice(bytes);
        }
    }
}

fn long(out: &mut BytesMut, number: i64) {
    out.put_i32(8);
    out.put_i64(number);
}

fn length(out: &mut BytesMut, bytes: usize) {
    out.put_i32(i32::try_from(bytes).unwrap_or(i32::MAX));
}

/// Writes a decimal text: count of groups, weight of the first, sign, scale, groups of four digits.
fn numeric(out: &mut BytesMut, text: &str) {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (0x4000_u16, rest),
        None => (0, text),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole = whole.trim_start_matches('0');
    let lead = (4 - whole.len() % 4) % 4;
    let trail = (4 - fraction.len() % 4) % 4;
    let digits = format!("{}{whole}{fraction}{}", "0".repeat(lead), "0".repeat(trail));
    let mut groups: Vec<i16> = digits
        .as_bytes()
        .chunks(4)
        .map(|group| {
            group
                .iter()
                .fold(0, |sum, digit| sum * 10 + i16::from(digit - b'0'))
        })
        .collect();
    let mut weight = i16::try_from((whole.len() + lead) / 4).unwrap_or(i16::MAX) - 1;
    while groups.first() == Some(&0) {
        groups.remove(0);
        weight -= 1;
    }
    while groups.last() == Some(&0) {
        groups.pop();
    }
    if groups.is_empty() {
        weight = 0;
    }
    length(out, 8 + groups.len() * 2);
    out.put_i16(i16::try_from(groups.len()).unwrap_or(i16::MAX));
    out.put_i16(weight);
    out.put_u16(sign);
    out.put_i16(i16::try_from(fraction.len()).unwrap_or(i16::MAX));
    for group in groups {
        out.put_i16(group);
    }
}
