//! Rows as a Parquet file: a column for each declared one, row groups of bounded size, pages in zstd.
//!
//! | type | in the file |
//! |---|---|
//! | `text`, `jsonb` | bytes, marked as text and as JSON |
//! | `boolean`, `bigint`, `double`, `bytea` | the same |
//! | `numeric(p,s)` | a decimal, in 8 bytes up to 18 digits, in 16 bytes up to 38 |
//! | `timestamptz`, `timestamp` | microseconds, with and without UTC |
//! | `date` | days |
//! | `uuid` | 16 bytes |
//!
//! Columns have field ids, in a file of a folder from 1 on. A column is optional unless `null = false`.
//! The same rows are always the same bytes.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArray, FixedLenByteArrayType,
    Int32Type, Int64Type,
};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{ColumnPath, Type};

use crate::columns::{Column, Kind};
use crate::rows::{Cell, Piece, Rows, Slice};

/// Digits of a decimal that has its place in 8 bytes.
const SHORT_DIGITS: u16 = 18;
/// Digits of any decimal.
pub(crate) const DIGITS_MAX: u16 = 38;
const LONG_BYTES: i32 = 16;
/// Rows of a row group, at most.
const GROUP_ROWS: usize = 1 << 20;
const LEVEL: i32 = 1;

/// Returns the bytes of a file. `ids` are the field ids of the columns.
pub(crate) fn encode(
    columns: &[Column],
    ids: &[i32],
    slice: &Slice<'_>,
    is_compressed: bool,
) -> Result<Vec<u8>> {
    let properties = Arc::new(properties(columns, is_compressed)?);
    let room = Vec::with_capacity(slice.len() * 32);
    let mut file = SerializedFileWriter::new(room, Arc::new(schema(columns, ids)?), properties)?;
    let text = Bytes::copy_from_slice(slice.rows.buffer());
    let mut from = slice.range.start;
    while from < slice.range.end {
        let rows = from..slice.range.end.min(from + GROUP_ROWS);
        from = rows.end;
        let mut group = file.next_row_group()?;
        for (at, column) in columns.iter().enumerate() {
            let Some(mut writer) = group.next_column()? else {
                return Err(ParquetError::General("a column is missing".to_owned()));
            };
            let values = Values {
                rows: slice.rows,
                range: rows.clone(),
                text: &text,
                at,
                column,
            };
            values.write(&mut writer)?;
            writer.close()?;
        }
        group.close()?;
    }
    file.into_inner()
}

fn properties(columns: &[Column], is_compressed: bool) -> Result<WriterProperties> {
    let compression = if is_compressed {
        Compression::ZSTD(ZstdLevel::try_new(LEVEL)?)
    } else {
        Compression::UNCOMPRESSED
    };
    let mut properties = WriterProperties::builder()
        .set_created_by("stafett".to_owned())
        .set_compression(compression)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(Some(GROUP_ROWS));
    for column in columns {
        // Values that are all different: a dictionary would be built, and given up.
        if matches!(column.kind, Kind::Jsonb | Kind::Bytea | Kind::Uuid) {
            let path = ColumnPath::new(vec![column.name.clone()]);
            properties = properties.set_column_dictionary_enabled(path, false);
        }
    }
    Ok(properties.build())
}

fn schema(columns: &[Column], ids: &[i32]) -> Result<Type> {
    let fields = ids
        .iter()
        .zip(columns)
        .map(|(id, column)| field(*id, column).map(Arc::new));
    let fields = fields.collect::<Result<Vec<_>>>()?;
    Type::group_type_builder("schema").with_fields(fields).build()
}

fn field(id: i32, column: &Column) -> Result<Type> {
    let time = |is_utc| Some(LogicalType::timestamp(is_utc, TimeUnit::MICROS));
    let (physical, logical) = match column.kind {
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Jsonb => (Physical::BYTE_ARRAY, Some(LogicalType::Json)),
        Kind::Bytea => (Physical::BYTE_ARRAY, None),
        Kind::Boolean => (Physical::BOOLEAN, None),
        Kind::Bigint => (Physical::INT64, None),
        Kind::Double => (Physical::DOUBLE, None),
        Kind::Numeric { precision, scale } => {
            let logical = LogicalType::decimal(scale.into(), precision.into());
            let is_short = precision <= SHORT_DIGITS;
            let physical = if is_short {
                Physical::INT64
            } else {
                Physical::FIXED_LEN_BYTE_ARRAY
            };
            (physical, Some(logical))
        }
        Kind::Timestamptz => (Physical::INT64, time(true)),
        Kind::Timestamp => (Physical::INT64, time(false)),
        Kind::Date => (Physical::INT32, Some(LogicalType::Date)),
        Kind::Uuid => (Physical::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Uuid)),
    };
    let mut field = Type::primitive_type_builder(&column.name, physical)
        .with_repetition(if column.nullable {
            Repetition::OPTIONAL
        } else {
            Repetition::REQUIRED
        })
        .with_logical_type(logical)
        .with_id(Some(id));
    if physical == Physical::FIXED_LEN_BYTE_ARRAY {
        field = field.with_length(LONG_BYTES);
    }
    if let Kind::Numeric { precision, scale } = column.kind {
        field = field.with_precision(precision.into()).with_scale(scale.into());
    }
    field.build()
}

/// Cells of one column in some rows.
struct Values<'a> {
    rows: &'a Rows,
    range: Range<usize>,
    /// The buffer of all rows.
    text: &'a Bytes,
    at: usize,
    column: &'a Column,
}

impl Values<'_> {
    fn write(&self, writer: &mut SerializedColumnWriter<'_>) -> Result<()> {
        match self.column.kind {
            Kind::Text | Kind::Jsonb | Kind::Bytea => self.put::<ByteArrayType>(writer, |cell| {
                if let Cell::Text(piece) | Cell::Json(piece) | Cell::Bytes(piece) = cell {
                    Some(self.bytes(piece))
                } else {
                    None
                }
            }),
            Kind::Boolean => self.put::<BoolType>(writer, |cell| {
                if let Cell::Boolean(it) = cell {
                    Some(it)
                } else {
                    None
                }
            }),
            Kind::Bigint | Kind::Timestamptz | Kind::Timestamp => self.put::<Int64Type>(writer, |cell| {
                if let Cell::Integer(it) | Cell::Instant(it) | Cell::Local(it) = cell {
                    Some(it)
                } else {
                    None
                }
            }),
            Kind::Double => self.put::<DoubleType>(writer, |cell| {
                if let Cell::Double(it) = cell {
                    Some(it)
                } else {
                    None
                }
            }),
            Kind::Date => {
                self.put::<Int32Type>(
                    writer,
                    |cell| {
                        if let Cell::Date(it) = cell { Some(it) } else { None }
                    },
                )
            }
            Kind::Uuid => self.put::<FixedLenByteArrayType>(writer, |cell| {
                if let Cell::Uuid(piece) = cell {
                    Some(self.bytes(piece).into())
                } else {
                    None
                }
            }),
            Kind::Numeric { precision, scale } if precision <= SHORT_DIGITS => {
                self.put::<Int64Type>(writer, |cell| {
                    let number = self.decimal(cell, scale)?;
                    i64::try_from(number).ok()
                })
            }
            Kind::Numeric { scale, .. } => self.put::<FixedLenByteArrayType>(writer, |cell| {
                let number = self.decimal(cell, scale)?;
                Some(FixedLenByteArray::from(number.to_be_bytes().to_vec()))
            }),
        }
    }

    /// Writes a value for each row that `read` has one of.
    fn put<T: DataType>(
        &self,
        writer: &mut SerializedColumnWriter<'_>,
        read: impl Fn(Cell) -> Option<T::T>,
    ) -> Result<()> {
        let mut values = Vec::with_capacity(self.range.len());
        let mut levels = Vec::with_capacity(self.range.len());
        for row in self.range.clone() {
            let cell = self.rows.row(row).get(self.at).copied().unwrap_or(Cell::Null);
            let value = read(cell);
            levels.push(i16::from(value.is_some()));
            values.extend(value);
        }
        let levels = self.column.nullable.then_some(&*levels);
        writer.typed::<T>().write_batch(&values, levels, None)?;
        Ok(())
    }

    fn bytes(&self, piece: Piece) -> ByteArray {
        self.text.slice(piece.range()).into()
    }

    fn decimal(&self, cell: Cell, scale: u16) -> Option<i128> {
        let Cell::Numeric(piece) = cell else {
            return None;
        };
        unscaled(self.rows.text(piece), scale)
    }
}

/// Returns a decimal text as a whole number of its last digits.
pub(crate) fn unscaled(text: &str, scale: u16) -> Option<i128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let zeros = usize::from(scale).checked_sub(fraction.len())?;
    let mut number: i128 = format!("{whole}{fraction}").parse().ok()?;
    for _ in 0..zeros {
        number = number.checked_mul(10)?;
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_whole_numbers_of_their_last_digits() {
        for (text, scale, expected) in [
            ("0", 2, Some(0)),
            ("-0.5", 2, Some(-50)),
            ("123.45", 2, Some(12_345)),
            ("123", 0, Some(123)),
            (
                "99999999999999999999999999999999999999",
                0,
                Some(10_i128.pow(38) - 1),
            ),
            ("1.234", 2, None),
        ] {
            assert_eq!(unscaled(text, scale), expected, "{text}");
        }
    }
}
