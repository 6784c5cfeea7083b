//! Rows of a Parquet file, read back: some of its columns, a batch of rows at a time.

use bytes::Bytes;
use parquet::basic::{LogicalType, TimeUnit, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{
    BoolType, ByteArrayType, DataType, DoubleType, FixedLenByteArrayType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use crate::cells;
use crate::columns::{Column, Kind};
use crate::rows::{Cell, Cells, Piece, Rows};

/// Rows of a batch, at most.
pub(super) const BATCH: usize = 8192;
/// Bytes of a decimal of 38 digits, the most that a column has.
const DECIMAL_BYTES_MAX: i32 = 16;

/// Appends these columns of a file to the rows, batch by batch. `each` is called after a batch, and may clear
/// them. A column that the file lacks is null.
pub(super) fn read(
    columns: &[Column],
    bytes: Vec<u8>,
    rows: &mut Rows,
    mut each: impl FnMut(&mut Rows) -> Result<(), String>,
) -> Result<(), String> {
    let file = SerializedFileReader::new(Bytes::from(bytes)).map_err(text)?;
    for number in 0..file.num_row_groups() {
        let group = file.get_row_group(number).map_err(text)?;
        let parts = columns.iter().map(|column| Part::open(&*group, column));
        let mut parts = parts.collect::<Result<Vec<_>, _>>()?;
        let all = group.metadata().num_rows();
        let mut left = usize::try_from(all).map_err(|_| format!("a row group of {all} rows"))?;
        while left > 0 {
            let count = left.min(BATCH);
            left -= count;
            for part in &mut parts {
                part.fill(count)?;
            }
            for _ in 0..count {
                rows.push(0, |row| {
                    for part in &mut parts {
                        let cell = part.next(row);
                        row.push(cell);
                    }
                    Ok::<_, String>(())
                })?;
            }
            each(rows)?;
        }
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
fn text(why: ParquetError) -> String {
    why.to_string()
}

/// A column of a row group.
enum Part {
    Missing,
    Boolean(Values<BoolType>),
    /// Numbers and times, as cells of one kind.
    Long(Values<Int64Type>, fn(i64) -> Cell),
    Days(Values<Int32Type>),
    Double(Values<DoubleType>),
    Bytes(Values<ByteArrayType>, fn(Piece) -> Cell),
    /// Decimals of up to 18 digits, and of more.
    Short(Values<Int64Type>, u16),
    Decimal(Values<FixedLenByteArrayType>, u16),
    Uuid(Values<FixedLenByteArrayType>),
}

impl Part {
    /// An error if the file has another type under the column's name.
    fn open(group: &dyn RowGroupReader, column: &Column) -> Result<Self, String> {
        let schema = group.metadata().schema_descr();
        let place = (0..schema.num_columns()).find(|at| schema.column(*at).name() == column.name);
        let Some(place) = place else {
            return Ok(Self::Missing);
        };
        let descriptor = schema.column(place);
        let other = || format!("{}: no {} in the file", column.name, column.kind);
        let is_flat = descriptor.max_rep_level() == 0 && descriptor.max_def_level() <= 1;
        if !is_flat || !is_of(column.kind, &descriptor) {
            return Err(other());
        }
        let is_optional = descriptor.max_def_level() > 0;
        let scale = match descriptor.logical_type_ref() {
            Some(LogicalType::Decimal(decimal)) => u16::try_from(decimal.scale).ok(),
            Some(_) | None => None,
        };
        Ok(match group.get_column_reader(place).map_err(text)? {
            ColumnReader::BoolColumnReader(reader) => Self::Boolean(Values::new(reader, is_optional)),
            ColumnReader::Int32ColumnReader(reader) => Self::Days(Values::new(reader, is_optional)),
            ColumnReader::DoubleColumnReader(reader) => Self::Double(Values::new(reader, is_optional)),
            ColumnReader::Int64ColumnReader(reader) => {
                let values = Values::new(reader, is_optional);
                if let Some(scale) = scale {
                    Self::Short(values, scale)
                } else if column.kind == Kind::Timestamptz {
                    Self::Long(values, Cell::Instant)
                } else if column.kind == Kind::Timestamp {
                    Self::Long(values, Cell::Local)
                } else {
                    Self::Long(values, Cell::Integer)
                }
            }
            ColumnReader::ByteArrayColumnReader(reader) => {
                let values = Values::new(reader, is_optional);
                if column.kind == Kind::Text {
                    Self::Bytes(values, Cell::Text)
                } else if column.kind == Kind::Jsonb {
                    Self::Bytes(values, Cell::Json)
                } else {
                    Self::Bytes(values, Cell::Bytes)
                }
            }
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                let values = Values::new(reader, is_optional);
                match scale {
                    Some(scale) => Self::Decimal(values, scale),
                    None => Self::Uuid(values),
                }
            }
            ColumnReader::Int96ColumnReader(_) | ColumnReader::FloatColumnReader(_) => return Err(other()),
        })
    }

    /// Reads the values of the next rows.
    fn fill(&mut self, rows: usize) -> Result<(), String> {
        match self {
            Self::Missing => Ok(()),
            Self::Boolean(values) => values.fill(rows),
            Self::Long(values, _) | Self::Short(values, _) => values.fill(rows),
            Self::Days(values) => values.fill(rows),
            Self::Double(values) => values.fill(rows),
            Self::Bytes(values, _) => values.fill(rows),
            Self::Decimal(values, _) | Self::Uuid(values) => values.fill(rows),
        }
    }

    /// Returns the cell of the next row.
    fn next(&mut self, row: &mut Cells<'_>) -> Cell {
        let cell = match self {
            Self::Missing => None,
            Self::Boolean(values) => values.next().map(|it| Cell::Boolean(*it)),
            Self::Days(values) => values.next().map(|it| Cell::Date(*it)),
            Self::Double(values) => values.next().map(|it| Cell::Double(*it)),
            Self::Long(values, make) => values.next().map(|it| make(*it)),
            Self::Bytes(values, make) => values.next().map(|it| make(row.piece(it.data()))),
            Self::Short(values, scale) => values.next().map(|it| decimal(row, (*it).into(), *scale)),
            Self::Decimal(values, scale) => values.next().map(|it| decimal(row, units(it.data()), *scale)),
            Self::Uuid(values) => values.next().map(|it| Cell::Uuid(row.piece(it.data()))),
        };
        cell.unwrap_or(Cell::Null)
    }
}

/// True if a column of the file is of a kind, whatever the digits of a decimal.
fn is_of(kind: Kind, found: &ColumnDescriptor) -> bool {
    let logical = found.logical_type_ref();
    let time = |is_utc: bool| logical == Some(&LogicalType::timestamp(is_utc, TimeUnit::MICROS));
    let physical = found.physical_type();
    match kind {
        Kind::Text => physical == Physical::BYTE_ARRAY && logical == Some(&LogicalType::String),
        Kind::Jsonb => physical == Physical::BYTE_ARRAY && logical == Some(&LogicalType::Json),
        Kind::Bytea => physical == Physical::BYTE_ARRAY && logical.is_none(),
        Kind::Boolean => physical == Physical::BOOLEAN,
        Kind::Bigint => physical == Physical::INT64 && logical.is_none(),
        Kind::Double => physical == Physical::DOUBLE,
        Kind::Timestamptz => physical == Physical::INT64 && time(true),
        Kind::Timestamp => physical == Physical::INT64 && time(false),
        Kind::Date => physical == Physical::INT32 && logical == Some(&LogicalType::Date),
        Kind::Uuid => physical == Physical::FIXED_LEN_BYTE_ARRAY && logical == Some(&LogicalType::Uuid),
        Kind::Numeric { .. } => {
            let is_short = physical == Physical::INT64;
            let is_long =
                physical == Physical::FIXED_LEN_BYTE_ARRAY && found.type_length() <= DECIMAL_BYTES_MAX;
            (is_short || is_long) && matches!(logical, Some(LogicalType::Decimal(_)))
        }
    }
}

/// Returns a whole number of big-endian bytes.
fn units(bytes: &[u8]) -> i128 {
    let is_negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    let start = if is_negative { -1_i128 } else { 0 };
    bytes
        .iter()
        .fold(start, |units, byte| (units << 8) | i128::from(*byte))
}

fn decimal(row: &mut Cells<'_>, units: i128, scale: u16) -> Cell {
    let text = cells::decimal(&cells::unscaled(units, scale), 1000, scale);
    Cell::Numeric(row.piece(text.unwrap_or_default().as_bytes()))
}

/// Values of the rows of a batch.
struct Values<T: DataType> {
    reader: ColumnReaderImpl<T>,
    is_optional: bool,
    /// For each row 1 if it has a value; empty unless the column is optional.
    levels: Vec<i16>,
    found: Vec<T::T>,
    /// Places of the next row, and of the next value.
    row: usize,
    value: usize,
}

impl<T: DataType> Values<T> {
    fn new(reader: ColumnReaderImpl<T>, is_optional: bool) -> Self {
        Self {
            reader,
            is_optional,
            levels: Vec::new(),
            found: Vec::new(),
            row: 0,
            value: 0,
        }
    }

    /// An error if the column has fewer rows than its group.
    fn fill(&mut self, rows: usize) -> Result<(), String> {
        self.levels.clear();
        self.found.clear();
        (self.row, self.value) = (0, 0);
        let levels = self.is_optional.then_some(&mut self.levels);
        let read = self.reader.read_records(rows, levels, None, &mut self.found);
        let (count, ..) = read.map_err(text)?;
        if count != rows {
            return Err(format!("a column has {count} rows where its group has {rows}"));
        }
        Ok(())
    }

    fn next(&mut self) -> Option<&T::T> {
        let level = self.levels.get(self.row);
        self.row += 1;
        if level == Some(&0) {
            return None;
        }
        self.value += 1;
        self.found.get(self.value - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::data_type::FixedLenByteArray;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;
    use crate::definition::Definition;

    fn file_with(bytes: i32, digits: i32) -> Vec<u8> {
        let schema =
            format!("message m {{ optional fixed_len_byte_array({bytes}) d (DECIMAL({digits},2)); }}");
        let schema = Arc::new(parse_message_type(&schema).unwrap());
        let mut out = Vec::new();
        let mut file =
            SerializedFileWriter::new(&mut out, schema, Arc::new(WriterProperties::default())).unwrap();
        let mut group = file.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let value = vec![0xff; usize::try_from(bytes).unwrap()];
        let values = [FixedLenByteArray::from(value)];
        let writer = column.typed::<FixedLenByteArrayType>();
        assert_eq!(writer.write_batch(&values, Some(&[1]), None).unwrap(), 1);
        column.close().unwrap();
        group.close().unwrap();
        file.close().unwrap();
        out
    }

    #[test]
    fn decimals_of_more_digits_than_a_column_has_are_refused() {
        let sink = "[sink.s]\nfrom = \"t\"\nto = \"files\"\npath = \"/none\"\nformat = \"parquet\"\n\
                    [sink.s.columns]\nd = { type = \"numeric(38,2)\" }";
        let columns = Definition::parse(sink).unwrap().remove(0).columns;
        let mut rows = Rows::new(1);
        read(&columns, file_with(16, 38), &mut rows, |_| Ok(())).unwrap();
        let (_, cells) = rows.all().iter().next().unwrap();
        assert_eq!(crate::convert::plain(&rows, *cells.first().unwrap()), "-0.01");
        let refused = read(&columns, file_with(20, 46), &mut rows, |_| Ok(())).unwrap_err();
        assert_eq!(refused, "d: no numeric(38,2) in the file");
    }
}
