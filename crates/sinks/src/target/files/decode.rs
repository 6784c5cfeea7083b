//! Rows of a file, read back: the inverse of `encode`.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::GzDecoder;
use ruzstd::decoding::StreamingDecoder;

use super::encode::Encoder;
use super::parquet_rows::{self, BATCH};
use crate::cells;
use crate::columns::{Column, Kind};
use crate::definition::{Compression, Format};
use crate::document::Document;
use crate::rows::Rows;

impl Encoder {
    /// Reads the rows of a file of these columns, in parts. `each` is called after a part, and may clear the
    /// rows. A column that the file lacks is null.
    pub(super) fn read(
        &self,
        bytes: Vec<u8>,
        mut each: impl FnMut(&mut Rows) -> Result<(), String>,
    ) -> Result<Rows, String> {
        let mut rows = Rows::new(self.columns.len());
        if self.format == Format::Parquet {
            parquet_rows::read(&self.columns, bytes, &mut rows, each)?;
            return Ok(rows);
        }
        let text = self.plain(bytes)?;
        match self.format {
            Format::Ndjson | Format::Parquet => {
                for line in text.lines() {
                    let document = Document::parse(line)?;
                    rows.push(0, |row| {
                        for column in &self.columns {
                            let json = document.get(&column.name).unwrap_or("null");
                            cells::write(row, column.kind, json)?;
                        }
                        Ok::<_, String>(())
                    })?;
                    if rows.len().is_multiple_of(BATCH) {
                        each(&mut rows)?;
                    }
                }
            }
            Format::Csv => self.csv_rows(&text, &mut rows, &mut each)?,
        }
        each(&mut rows)?;
        Ok(rows)
    }

    /// Adds the rows of a text of CSV: by its header, or else by the places of the columns. A column of the
    /// file that the sink does not have is passed over.
    fn csv_rows(
        &self,
        mut text: &str,
        rows: &mut Rows,
        each: &mut impl FnMut(&mut Rows) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut places: Vec<Option<usize>> = (0..self.columns.len()).map(Some).collect();
        let mut width = self.columns.len();
        if self.header {
            let names = csv_line(&mut text).unwrap_or_default();
            width = names.len();
            let place_of = |column: &Column| {
                names
                    .iter()
                    .position(|name| name.as_deref() == Some(&*column.name))
            };
            places = self.columns.iter().map(place_of).collect();
            if places.iter().all(Option::is_none) {
                return Err("its first line names no column of the sink".to_owned());
            }
        }
        while let Some(fields) = csv_line(&mut text) {
            if fields.len() != width {
                let found = fields.len();
                let hint = if self.header {
                    ""
                } else {
                    ", and no header names them"
                };
                return Err(format!("a line has {found} fields, and not {width}{hint}"));
            }
            rows.push(0, |row| {
                for (place, column) in places.iter().zip(&self.columns) {
                    let field = place.and_then(|place| fields.get(place).cloned().flatten());
                    cells::write(row, column.kind, &json_of(column.kind, field))?;
                }
                Ok::<_, String>(())
            })?;
            if rows.len().is_multiple_of(BATCH) {
                each(rows)?;
            }
        }
        Ok(())
    }

    fn plain(&self, bytes: Vec<u8>) -> Result<String, String> {
        let mut text = String::new();
        let read = match self.compression {
            Compression::None => return String::from_utf8(bytes).map_err(|why| why.to_string()),
            Compression::Gzip => GzDecoder::new(&*bytes).read_to_string(&mut text),
            Compression::Zstd => {
                let mut decoder = StreamingDecoder::new(&*bytes).map_err(|why| why.to_string())?;
                decoder.read_to_string(&mut text)
            }
        };
        read.map_err(|why| why.to_string())?;
        Ok(text)
    }
}

/// Returns a field of CSV as JSON.
fn json_of(kind: Kind, field: Option<Cow<'_, str>>) -> String {
    let Some(text) = field else {
        return "null".to_owned();
    };
    match kind {
        Kind::Boolean | Kind::Bigint | Kind::Double | Kind::Numeric { .. } | Kind::Jsonb => text.into_owned(),
        Kind::Text | Kind::Timestamptz | Kind::Timestamp | Kind::Date | Kind::Uuid | Kind::Bytea => {
            serde_json::to_string(&*text).unwrap_or_default()
        }
    }
}

/// Takes the fields of a line of CSV. An empty field without quotes is `None`.
fn csv_line<'a>(rest: &mut &'a str) -> Option<Vec<Option<Cow<'a, str>>>> {
    if rest.is_empty() {
        return None;
    }
    let mut fields = Vec::new();
    loop {
        let (field, behind) = csv_field(rest);
        fields.push(field);
        *rest = behind;
        if let Some(behind) = rest.strip_prefix(',') {
            *rest = behind;
        } else {
            *rest = rest.strip_prefix('\n').unwrap_or_default();
            return Some(fields);
        }
    }
}

/// Returns a field, and the text behind it.
fn csv_field(text: &str) -> (Option<Cow<'_, str>>, &str) {
    let Some(mut inner) = text.strip_prefix('"') else {
        let end = text.find([',', '\n']).unwrap_or(text.len());
        let (field, behind) = text.split_at_checked(end).unwrap_or((text, ""));
        return ((!field.is_empty()).then_some(Cow::Borrowed(field)), behind);
    };
    let mut field = String::new();
    while let Some((part, behind)) = inner.split_once('"') {
        field.push_str(part);
        match behind.strip_prefix('"') {
            Some(more) => {
                field.push('"');
                inner = more;
            }
            None => return (Some(Cow::Owned(field)), behind),
        }
    }
    (Some(Cow::Owned(field)), "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{Definition, TargetSpec};
    use crate::rows::Cell;

    const COLUMNS: &str = "[sink.a.columns]\n\
        t = { type = \"text\" }\nb = { type = \"boolean\" }\ni = { type = \"bigint\" }\nd = { type = \"double\" }\n\
        n = { type = \"numeric(10,3)\" }\nl = { type = \"numeric(30,4)\" }\nz = { type = \"timestamptz\" }\n\
        w = { type = \"timestamp\" }\ny = { type = \"date\" }\nu = { type = \"uuid\" }\nx = { type = \"bytea\" }\n\
        j = { type = \"jsonb\" }\n";

    fn encoder(fields: &str, columns: &str) -> Encoder {
        let text = format!(
            "[sink.a]\nfrom = \"t\"\nto = \"files\"\npath = \"/none\"\n{fields}\n[sink.a.columns]\n{columns}"
        );
        let sink = Definition::parse(&text).unwrap().remove(0);
        let TargetSpec::Files(spec) = &sink.target else {
            panic!("files");
        };
        Encoder::new(spec, &sink.columns)
    }

    fn decoded(encoder: &Encoder, bytes: Vec<u8>) -> Result<Rows, String> {
        encoder.read(bytes, |_| Ok(()))
    }

    fn shown(rows: &Rows) -> Vec<Vec<String>> {
        let text = |cell: &Cell| {
            if *cell == Cell::Null {
                "null".to_owned()
            } else {
                crate::convert::plain(rows, *cell).into_owned()
            }
        };
        (0..rows.len())
            .map(|row| rows.row(row).iter().map(text).collect())
            .collect()
    }

    #[test]
    fn an_older_file_is_read_by_its_names_after_the_columns_have_changed() {
        let (a, b, c, d) = (
            "a = { type = \"text\" }\n",
            "b = { type = \"text\" }\n",
            "c = { type = \"bigint\" }\n",
            "d = { type = \"text\" }\n",
        );
        for format in ["csv", "ndjson", "parquet"] {
            let fields = format!("format = \"{format}\"");
            let old = encoder(&fields, &format!("{a}{b}{c}"));
            let mut rows = Rows::new(3);
            rows.push(0, |row| {
                for (column, json) in old.columns.iter().zip(["\"A\"", "\"B\"", "3"]) {
                    cells::write(row, column.kind, json)?;
                }
                Ok::<_, String>(())
            })
            .unwrap();
            let bytes = old.encode(&rows.all()).unwrap();
            for (columns, expected) in [
                (format!("{c}{a}{b}"), vec!["3", "A", "B"]),
                (format!("{b}{c}"), vec!["B", "3"]),
                (format!("{d}{b}{a}"), vec!["null", "B", "A"]),
            ] {
                let read = decoded(&encoder(&fields, &columns), bytes.clone()).unwrap();
                assert_eq!(shown(&read), [expected], "{format}: {columns}");
            }
            if format == "csv" {
                let other = decoded(&encoder(&fields, d), bytes).unwrap_err();
                assert!(other.contains("names no column of the sink"), "{other}");
            }
        }
        // Without a header there are no names: another number of columns is noticed at least.
        let bare = "format = \"csv\"\nheader = false";
        let read = decoded(&encoder(bare, &format!("{a}{b}")), b"x,y\n".to_vec()).unwrap();
        assert_eq!(shown(&read), [["x", "y"]]);
        let why = decoded(&encoder(bare, a), b"x,y\n".to_vec()).unwrap_err();
        assert!(why.contains("a line has 2 fields, and not 1"), "{why}");
    }

    #[test]
    fn a_file_has_the_rows_that_were_written() {
        let full = r#"{"t":"a\"b,c\nd\u00e9","b":true,"i":-7,"d":-1.5e300,"n":-12.5,"l":-123456789012345678901234.5,
            "z":"1969-12-31T23:59:59.999999Z","w":"2026-11-22T10:20:00.000001","y":"1969-12-31",
            "u":"67e55044-10b1-426f-9247-bb680e5fe0c8","x":"AAE=","j":{"k":[1,"\""]}}"#;
        let empty = r#"{"t":"","b":false,"i":0,"d":-0.0,"n":0,"l":1,"z":null,"x":""}"#;
        for (format, compression) in [
            ("ndjson", "none"),
            ("ndjson", "gzip"),
            ("ndjson", "zstd"),
            ("csv", "none"),
            ("csv", "gzip"),
            ("parquet", "zstd"),
            ("parquet", "none"),
        ] {
            let text = format!(
                "[sink.a]\nfrom = \"t\"\nto = \"files\"\npath = \"/none\"\nformat = \"{format}\"\n\
                 compression = \"{compression}\"\n{COLUMNS}"
            );
            let sink = Definition::parse(&text).unwrap().remove(0);
            let TargetSpec::Files(spec) = &sink.target else {
                panic!("files");
            };
            let mut rows = Rows::new(sink.columns.len());
            for json in [full, empty, "{}"] {
                let document = Document::parse(json).unwrap();
                rows.push(0, |row| {
                    for column in &sink.columns {
                        let json = document.get(&column.name).unwrap_or("null");
                        cells::write(row, column.kind, json)?;
                    }
                    Ok::<_, String>(())
                })
                .unwrap();
            }
            let encoder = Encoder::new(spec, &sink.columns);
            let read = decoded(&encoder, encoder.encode(&rows.all()).unwrap()).unwrap();
            assert_eq!(read.len(), 3, "{format}");
            for row in 0..3 {
                let shown = |rows: &Rows| {
                    let mut all = Vec::new();
                    for cell in rows.row(row) {
                        let mut text = Vec::new();
                        crate::convert::write_plain(&mut text, rows, *cell);
                        all.push((*cell == Cell::Null, String::from_utf8(text).unwrap()));
                    }
                    all
                };
                assert_eq!(shown(&read), shown(&rows), "{format} {compression}");
            }
        }
    }
}
