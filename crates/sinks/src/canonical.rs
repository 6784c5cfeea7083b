//! A row as a canonical text, which PostgreSQL and this program write alike, and the hash of it.
//!
//! ```text
//! cell = "-" | CHARACTERS ":" TEXT      null, and any other value
//! hash = the first 15 hexadecimal digits of MD5 over all cells: nothing rests on its strength
//! ```
//!
//! Texts of times are microseconds since 1970, of dates days, of doubles their bits, of bytes hexadecimal.
//! PostgreSQL's side is in its target.

use std::fmt::Write as _;

use md5::{Digest, Md5};

use crate::cells::civil;
use crate::columns::{Column, Kind};
use crate::rows::{Cell, Rows};

/// Hexadecimal digits of a hash: 60 bits.
pub(crate) const DIGITS: usize = 15;

/// Writes a cell of the canonical text.
pub(crate) fn write_canonical(out: &mut String, rows: &Rows, cell: Cell) {
    let owned;
    let text = match cell {
        Cell::Null => {
            out.push('-');
            return;
        }
        Cell::Text(piece) | Cell::Numeric(piece) | Cell::Json(piece) => rows.text(piece),
        Cell::Boolean(it) => {
            if it {
                "true"
            } else {
                "false"
            }
        }
        Cell::Integer(it) | Cell::Instant(it) | Cell::Local(it) => {
            owned = it.to_string();
            &owned
        }
        Cell::Date(it) => {
            owned = it.to_string();
            &owned
        }
        Cell::Double(it) => {
            owned = format!("{:016x}", it.to_bits());
            &owned
        }
        Cell::Uuid(piece) => {
            owned = uuid::Uuid::from_slice(rows.piece(piece))
                .unwrap_or_default()
                .to_string();
            &owned
        }
        Cell::Bytes(piece) => {
            owned = hexadecimal(rows.piece(piece));
            &owned
        }
    };
    // Writing to a text does not fail.
    let _ = write!(out, "{}:{text}", text.chars().count());
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the hash of a canonical text.
pub(crate) fn hash(text: &str) -> u64 {
    let digits = hexadecimal(&Md5::digest(text.as_bytes()));
    let digits = digits.get(..DIGITS).unwrap_or_default();
    u64::from_str_radix(digits, 16).unwrap_or(0)
}

/// Returns the cells of a canonical text, as people read them.
pub(crate) fn shown(canonical: &str, columns: &[Column]) -> Vec<Option<String>> {
    let mut rest = canonical;
    let mut cells = Vec::with_capacity(columns.len());
    for column in columns {
        if let Some(behind) = rest.strip_prefix('-') {
            cells.push(None);
            rest = behind;
            continue;
        }
        let (length, behind) = rest.split_once(':').unwrap_or_default();
        let length = length.parse().unwrap_or(0);
        let end = behind
            .char_indices()
            .nth(length)
            .map_or(behind.len(), |(end, _)| end);
        let (text, behind) = behind.split_at_checked(end).unwrap_or_default();
        cells.push(Some(readable(text, column.kind)));
        rest = behind;
    }
    cells
}

fn readable(text: &str, kind: Kind) -> String {
    let plain = || text.to_owned();
    let time = || text.parse().ok().map(civil);
    match kind {
        Kind::Timestamptz => time().map_or_else(plain, |at| format!("{at}Z")),
        Kind::Timestamp => time().map_or_else(plain, |at| at.to_string()),
        Kind::Double => {
            let bits = u64::from_str_radix(text, 16);
            bits.map_or_else(|_| plain(), |bits| f64::from_bits(bits).to_string())
        }
        Kind::Date => {
            let days = text.parse::<i32>().ok();
            let span = days.and_then(|days| jiff::Span::new().try_days(days).ok());
            let date = span.and_then(|span| jiff::civil::Date::constant(1970, 1, 1).checked_add(span).ok());
            date.map_or_else(plain, |date| date.to_string())
        }
        Kind::Text
        | Kind::Boolean
        | Kind::Bigint
        | Kind::Numeric { .. }
        | Kind::Uuid
        | Kind::Bytea
        | Kind::Jsonb => plain(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::Origin;

    #[test]
    fn a_canonical_text_keeps_cells_apart_and_is_read_again() {
        let kinds = ["text", "text", "timestamptz", "double", "date", "boolean"];
        let column = |(place, kind): (usize, &&str)| {
            Column::new(&format!("c{place}"), Kind::parse(kind).unwrap(), Origin::Rest)
        };
        let columns: Vec<_> = kinds.iter().enumerate().map(column).collect();
        let mut rows = Rows::new(6);
        let mut push = |one: &str, other: Option<&str>| {
            rows.push(0, |row| {
                let text = row.piece(one.as_bytes());
                row.push(Cell::Text(text));
                let cell = match other {
                    Some(other) => Cell::Text(row.piece(other.as_bytes())),
                    None => Cell::Null,
                };
                row.push(cell);
                row.push(Cell::Instant(-1));
                row.push(Cell::Double(1.5));
                row.push(Cell::Date(-1));
                row.push(Cell::Boolean(true));
                Ok::<_, String>(())
            })
            .unwrap();
        };
        push("é-1:x", Some(""));
        push("é-1:", Some("x"));
        push("-", None);
        push("", Some("-"));
        let mut texts = Vec::new();
        for (_, cells) in rows.all().iter() {
            let mut text = String::new();
            for cell in cells {
                write_canonical(&mut text, &rows, *cell);
            }
            texts.push(text);
        }
        assert_eq!(texts[0], "5:é-1:x0:2:-116:3ff80000000000002:-14:true");
        let cells = shown(&texts[0], &columns);
        let cells: Vec<_> = cells
            .iter()
            .map(|cell| cell.as_deref().unwrap_or("null"))
            .collect();
        assert_eq!(
            cells,
            [
                "é-1:x",
                "",
                "1969-12-31T23:59:59.999999Z",
                "1.5",
                "1969-12-31",
                "true"
            ]
        );
        assert_eq!(shown(&texts[2], &columns)[..2], [Some("-".to_owned()), None]);
        let mut hashes: Vec<_> = texts.iter().map(|text| hash(text)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 4);
        assert!(hashes.iter().all(|hash| *hash < 1 << 60));
    }
}
