//! Output format of records.

use std::io::{self, Write};
use std::str;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use stafett_model::{Headers, StoredRecord};

use crate::client::{escapes, human};

/// A parsed format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Pieces(Vec<Piece>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Text(Vec<u8>),
    Key,
    Value,
    Headers,
    Topic,
    Partition,
    Offset,
    Timestamp,
    Date,
    KeyBytes,
    ValueBytes,
}

/// Parses a format with placeholders.
pub(super) fn read(text: &str) -> Result<Format, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('%') {
        push_text(&mut pieces, &escapes::read(before)?);
        let mut letters = behind.chars();
        match letters.next() {
            Some('k') => pieces.push(Piece::Key),
            Some('v' | 's') => pieces.push(Piece::Value),
            Some('h') => pieces.push(Piece::Headers),
            Some('t') => pieces.push(Piece::Topic),
            Some('p') => pieces.push(Piece::Partition),
            Some('o') => pieces.push(Piece::Offset),
            Some('T') => pieces.push(Piece::Timestamp),
            Some('D') => pieces.push(Piece::Date),
            Some('K') => pieces.push(Piece::KeyBytes),
            Some('S') => pieces.push(Piece::ValueBytes),
            Some('%') => push_text(&mut pieces, b"%"),
            other => {
                let other = other.map_or_else(|| "its end".to_owned(), |letter| format!("%{letter}"));
                return Err(format!(
                    "expected one of %k %v %h %t %p %o %T %D %K %S %%, not {other}"
                ));
            }
        }
        rest = letters.as_str();
    }
    push_text(&mut pieces, &escapes::read(rest)?);
    Ok(Format::Pieces(pieces))
}

fn push_text(pieces: &mut Vec<Piece>, text: &[u8]) {
    if let Some(Piece::Text(last)) = pieces.last_mut() {
        last.extend_from_slice(text);
    } else if !text.is_empty() {
        pieces.push(Piece::Text(text.to_vec()));
    }
}

impl Format {
    pub(super) fn json() -> Self {
        Self::Json
    }

    /// Writes a record.
    pub(super) fn write(
        &self,
        out: &mut impl Write,
        topic: &str,
        partition: i32,
        record: &StoredRecord,
        null: &[u8],
    ) -> io::Result<()> {
        let Self::Pieces(pieces) = self else {
            return write_json(out, topic, partition, record);
        };
        for piece in pieces {
            match piece {
                Piece::Text(text) => out.write_all(text)?,
                Piece::Key => out.write_all(record.key.as_deref().unwrap_or(null))?,
                Piece::Value => out.write_all(record.value.as_deref().unwrap_or(null))?,
                Piece::Headers => write_headers(out, &record.headers, null)?,
                Piece::Topic => out.write_all(topic.as_bytes())?,
                Piece::Partition => write!(out, "{partition}")?,
                Piece::Offset => write!(out, "{}", record.offset.0)?,
                Piece::Timestamp => write!(out, "{}", record.timestamp)?,
                Piece::Date => out.write_all(human::time(record.timestamp).as_bytes())?,
                Piece::KeyBytes => write!(out, "{}", bytes(record.key.as_deref()))?,
                Piece::ValueBytes => write!(out, "{}", bytes(record.value.as_deref()))?,
            }
        }
        Ok(())
    }
}

/// Returns the number of bytes; -1 for null.
fn bytes(part: Option<&[u8]>) -> i64 {
    part.map_or(-1, |part| i64::try_from(part.len()).unwrap_or(i64::MAX))
}

fn write_headers(out: &mut impl Write, headers: &Headers, null: &[u8]) -> io::Result<()> {
    for (place, (key, value)) in headers.iter().enumerate() {
        if place > 0 {
            out.write_all(b",")?;
        }
        out.write_all(key)?;
        out.write_all(b"=")?;
        out.write_all(value.unwrap_or(null))?;
    }
    Ok(())
}

fn write_json(out: &mut impl Write, topic: &str, partition: i32, record: &StoredRecord) -> io::Result<()> {
    out.write_all(b"{\"topic\":")?;
    serde_json::to_writer(&mut *out, topic)?;
    write!(
        out,
        ",\"partition\":{partition},\"offset\":{},\"timestamp\":{}",
        record.offset.0, record.timestamp
    )?;
    out.write_all(b",")?;
    write_content(out, "key", record.key.as_deref())?;
    out.write_all(b",")?;
    write_content(out, "value", record.value.as_deref())?;
    out.write_all(b",\"headers\":[")?;
    for (place, (key, value)) in record.headers.iter().enumerate() {
        out.write_all(if place > 0 { b",{" } else { b"{" })?;
        write_content(out, "key", Some(key))?;
        out.write_all(b",")?;
        write_content(out, "value", value)?;
        out.write_all(b"}")?;
    }
    out.write_all(b"]}\n")
}

/// Writes `"NAME":"text"`, or `"NAME_base64":"…"` for bytes that are not UTF-8.
fn write_content(out: &mut impl Write, name: &str, content: Option<&[u8]>) -> io::Result<()> {
    match content.map(|bytes| (str::from_utf8(bytes), bytes)) {
        None => write!(out, "\"{name}\":null"),
        Some((Ok(text), _)) => {
            write!(out, "\"{name}\":")?;
            Ok(serde_json::to_writer(out, text)?)
        }
        Some((Err(_), bytes)) => write!(out, "\"{name}_base64\":\"{}\"", STANDARD.encode(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use stafett_model::{BatchBuilder, Codec, Record, records};

    use super::*;

    fn printed(format: &Format, key: Option<&[u8]>, value: Option<&[u8]>) -> String {
        let mut builder = BatchBuilder::new(Codec::None);
        let headers: [(&[u8], Option<&[u8]>); 2] = [(b"a", Some(b"1")), (b"n", None)];
        builder
            .push(&Record {
                key,
                value,
                headers: &headers,
                timestamp: 5,
            })
            .unwrap();
        let batch = builder.finish().unwrap();
        let record = records(&batch, 1000).unwrap().next().unwrap().unwrap();
        let mut out = Vec::new();
        format.write(&mut out, "t", 3, &record, b"NULL").unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn placeholders_are_filled() {
        let format = read(r"%t:%p:%o %T %D %K/%S %h %k\t%v%%%s\n").unwrap();
        assert_eq!(
            printed(&format, None, Some(b"v")),
            "t:3:0 5 1970-01-01T00:00:00.005Z -1/1 a=1,n=NULL NULL\tv%v\n"
        );
        assert!(read("%q").unwrap_err().ends_with("not %q"));
        assert!(read("100%").unwrap_err().ends_with("not its end"));
    }

    #[test]
    fn json_says_what_is_not_text() {
        assert_eq!(
            printed(&Format::Json, Some(b"\"k\n"), Some(&[0xff, 0])),
            "{\"topic\":\"t\",\"partition\":3,\"offset\":0,\"timestamp\":5,\"key\":\"\\\"k\\n\",\
             \"value_base64\":\"/wA=\",\"headers\":[{\"key\":\"a\",\"value\":\"1\"},{\"key\":\"n\",\"value\":null}]}\n"
        );
    }
}
