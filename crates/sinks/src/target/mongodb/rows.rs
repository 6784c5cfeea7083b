//! A row as a document.

use super::bson::{Fields, GENERIC, UUID};
use crate::columns::{Column, Origin};
use crate::convert::write_plain;
use crate::rows::{Cell, Rows};

pub(crate) const ID: &str = "_id";

/// Writes a row into a document: its id, then a field for each column. A record that goes over as it came has
/// its fields there. The error names a value that no document takes.
pub(super) fn write(
    fields: &mut Fields<'_>,
    id: &str,
    columns: &[Column],
    rows: &Rows,
    cells: &[Cell],
) -> Result<(), String> {
    fields.text(ID, id);
    for (column, cell) in columns.iter().zip(cells) {
        if column.origin == Origin::Whole
            && let Cell::Json(piece) = cell
        {
            fields.inline(rows.text(*piece), ID)?;
            continue;
        }
        write_cell(fields, &column.name, rows, *cell)
            .map_err(|why| format!("column {}: {why}", column.name))?;
    }
    Ok(())
}

fn write_cell(fields: &mut Fields<'_>, name: &str, rows: &Rows, cell: Cell) -> Result<(), String> {
    match cell {
        Cell::Null => fields.null(name),
        Cell::Boolean(it) => fields.boolean(name, it),
        Cell::Integer(it) => fields.long(name, it),
        Cell::Double(it) => fields.double(name, it),
        Cell::Numeric(piece) => fields.decimal(name, rows.text(piece))?,
        Cell::Instant(micros) => {
            if micros % 1000 != 0 {
                return Err("MongoDB's dates have milliseconds, and the time has more digits".to_owned());
            }
            fields.date(name, micros / 1000);
        }
        // There is no type for these: their text has their order.
        Cell::Local(_) | Cell::Date(_) => {
            let mut text = Vec::new();
            write_plain(&mut text, rows, cell);
            fields.text(name, &String::from_utf8_lossy(&text));
        }
        Cell::Uuid(piece) => fields.binary(name, UUID, rows.piece(piece)),
        Cell::Text(piece) => fields.text(name, rows.text(piece)),
        Cell::Bytes(piece) => fields.binary(name, GENERIC, rows.piece(piece)),
        Cell::Json(piece) => fields.json(name, rows.text(piece))?,
    }
    Ok(())
}
