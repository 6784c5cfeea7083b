//! Rows as the bytes of a file: NDJSON or CSV, compressed, or Parquet. The same rows are the same bytes.

use std::io::{self, Write};

use flate2::GzBuilder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::parquet;
use crate::columns::Column;
use crate::convert::{write_json, write_plain};
use crate::definition::{Compression, FilesSpec, Format};
use crate::rows::{Cell, Rows, Slice};
use crate::target::TargetError;

#[derive(Debug)]
pub(super) struct Encoder {
    pub(super) columns: Vec<Column>,
    pub(super) format: Format,
    pub(super) compression: Compression,
    pub(super) header: bool,
}

impl Encoder {
    pub(super) fn new(spec: &FilesSpec, columns: &[Column]) -> Self {
        Self {
            columns: columns.to_vec(),
            format: spec.format,
            compression: spec.compression,
            header: spec.header,
        }
    }

    pub(super) fn extension(&self) -> &'static str {
        match (self.format, self.compression) {
            (Format::Ndjson, Compression::None) => "ndjson",
            (Format::Ndjson, Compression::Gzip) => "ndjson.gz",
            (Format::Ndjson, Compression::Zstd) => "ndjson.zst",
            (Format::Csv, Compression::None) => "csv",
            (Format::Csv, Compression::Gzip) => "csv.gz",
            (Format::Csv, Compression::Zstd) => "csv.zst",
            (Format::Parquet, Compression::None | Compression::Gzip | Compression::Zstd) => "parquet",
        }
    }

    pub(super) fn encode(&self, slice: &Slice<'_>) -> Result<Vec<u8>, TargetError> {
        let mut text = Vec::with_capacity(slice.len() * 64);
        match self.format {
            Format::Ndjson => {
                for (_, cells) in slice.iter() {
                    write_json(&mut text, &self.columns, slice.rows, cells);
                    text.push(b'\n');
                }
            }
            Format::Csv => {
                if self.header {
                    let names = self.columns.iter().map(|column| column.name.as_bytes());
                    write_line(&mut text, names);
                }
                let mut plain = Vec::new();
                for (_, cells) in slice.iter() {
                    csv_row(&mut text, &mut plain, slice.rows, cells);
                }
            }
            Format::Parquet => {
                let is_compressed = self.compression != Compression::None;
                let ids: Vec<i32> = (1..).take(self.columns.len()).collect();
                let file = parquet::encode(&self.columns, &ids, slice, is_compressed);
                return file.map_err(|why| TargetError::Stop(format!("Parquet: {why}")));
            }
        }
        self.compressed(text)
            .map_err(|why| TargetError::Stop(format!("compression failed: {why}")))
    }

    fn compressed(&self, text: Vec<u8>) -> io::Result<Vec<u8>> {
        match self.compression {
            Compression::None => Ok(text),
            Compression::Gzip => {
                // Without a time in its header.
                let room = Vec::with_capacity(text.len() / 4);
                let mut writer = GzBuilder::new().mtime(0).write(room, flate2::Compression::fast());
                writer.write_all(&text)?;
                writer.finish()
            }
            Compression::Zstd => Ok(compress_to_vec(&*text, CompressionLevel::Fastest)),
        }
    }
}

/// Writes a row. A null is an empty field, and an empty text is `""`.
fn csv_row(out: &mut Vec<u8>, plain: &mut Vec<u8>, rows: &Rows, cells: &[Cell]) {
    for (place, cell) in cells.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        if let Cell::Text(piece) | Cell::Json(piece) = cell {
            write_field(out, rows.piece(*piece));
        } else if *cell != Cell::Null {
            plain.clear();
            write_plain(plain, rows, *cell);
            write_field(out, plain);
        }
    }
    out.push(b'\n');
}

fn write_line<'a>(out: &mut Vec<u8>, fields: impl Iterator<Item = &'a [u8]>) {
    for (place, field) in fields.enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write_field(out, field);
    }
    out.push(b'\n');
}

/// Writes a field as in RFC 4180, in quotes where they are needed.
fn write_field(out: &mut Vec<u8>, field: &[u8]) {
    let needs_quotes = field.is_empty() || field.iter().any(|byte| b",\"\r\n".contains(byte));
    if !needs_quotes {
        out.extend_from_slice(field);
        return;
    }
    out.push(b'"');
    for byte in field {
        if *byte == b'"' {
            out.push(b'"');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_csv_are_quoted_where_they_have_to_be() {
        let mut out = Vec::new();
        let fields: [&[u8]; 5] = [b"a", b"", b"b,c", b"d\"e", b"f\ng"];
        write_line(&mut out, fields.into_iter());
        assert_eq!(out, b"a,\"\",\"b,c\",\"d\"\"e\",\"f\ng\"\n");
    }
}
