//! Rows as the body of a request. The same rows are always the same bytes.

use std::io::Write;

use crate::columns::Column;
use crate::convert::write_json;
use crate::definition::BodyForm;
use crate::document::write_string;
use crate::target::Part;

/// Returns body and content type.
pub(super) fn of(form: BodyForm, sink: &str, columns: &[Column], part: &Part<'_>) -> (Vec<u8>, &'static str) {
    let mut out = Vec::with_capacity(part.rows.len() * 128 + 2);
    let rows = part.rows.rows;
    match form {
        BodyForm::Ndjson => {
            for (_, cells) in part.rows.iter() {
                write_json(&mut out, columns, rows, cells);
                out.push(b'\n');
            }
            (out, "application/x-ndjson")
        }
        BodyForm::Json => {
            list(&mut out, part, |out, _, cells| {
                write_json(out, columns, rows, cells)
            });
            (out, "application/json")
        }
        BodyForm::CloudEvents => {
            list(&mut out, part, |out, offset, cells| {
                let place = part.place;
                out.extend_from_slice(b"{\"specversion\":\"1.0\",\"id\":");
                write_string(out, &format!("{place}@{offset}"));
                out.extend_from_slice(b",\"source\":");
                write_string(out, &format!("/sinks/{sink}"));
                out.extend_from_slice(b",\"type\":");
                write_string(out, &place.topic);
                // Writing to a vector does not fail.
                let _ = write!(out, ",\"datacontenttype\":\"application/json\",\"data\":");
                write_json(out, columns, rows, cells);
                out.push(b'}');
            });
            (out, "application/cloudevents-batch+json")
        }
    }
}

/// Writes a list with an item for each row.
fn list(out: &mut Vec<u8>, part: &Part<'_>, item: impl Fn(&mut Vec<u8>, u64, &[crate::rows::Cell])) {
    out.push(b'[');
    for (place, (offset, cells)) in part.rows.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        item(out, offset, cells);
    }
    out.push(b']');
}
