//! Values of a column in a file of a lake: nulls, and the least and the greatest, as text.

use std::cmp::Ordering;

use crate::cells::civil;
use crate::columns::Kind;
use crate::convert::write_plain;
use crate::rows::{Cell, Rows, Slice};
use crate::target::TargetError;
use crate::target::files::parquet::unscaled;

/// The first day of the year 1, since 1970.
const YEAR_ONE_DAYS: i64 = -719_162;
const DAY_MICROS: i64 = 86_400_000_000;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stats {
    pub(super) nulls: i64,
    /// Least and greatest value; `None` if all are null, and for types whose bounds are not kept.
    pub(super) bounds: Option<(String, String)>,
}

/// Returns PostgreSQL's type that orders the values of a kind, if its bounds are kept.
pub(super) fn type_of(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Boolean => "boolean",
        Kind::Bigint => "bigint",
        Kind::Double => "float8",
        Kind::Numeric { .. } => "numeric",
        Kind::Timestamptz => "timestamptz",
        Kind::Timestamp => "timestamp",
        Kind::Date => "date",
        Kind::Uuid => "uuid",
        Kind::Text | Kind::Bytea | Kind::Jsonb => return None,
    })
}

impl Stats {
    /// Looks at a column of some rows. An error is a date of a year that PostgreSQL does not read: as a
    /// bound, it would stop all writers of the lake.
    pub(super) fn of(slice: &Slice<'_>, at: usize, kind: Kind) -> Result<Self, TargetError> {
        let mut nulls = 0;
        let mut bounds: Option<(Cell, Cell)> = None;
        for (_, cells) in slice.iter() {
            let cell = cells.get(at).copied().unwrap_or(Cell::Null);
            if cell == Cell::Null {
                nulls += 1;
            } else if type_of(kind).is_some() {
                bounds = Some(bounds.map_or((cell, cell), |(least, greatest)| {
                    let is_below = compare(slice.rows, kind, cell, least) == Ordering::Less;
                    let is_above = compare(slice.rows, kind, cell, greatest) == Ordering::Greater;
                    (
                        if is_below { cell } else { least },
                        if is_above { cell } else { greatest },
                    )
                }));
            }
        }
        if bounds.is_some_and(|(least, _)| is_before_year_one(least)) {
            let text = "dates of a lake begin with the year 1".to_owned();
            let class = "date".to_owned();
            return Err(TargetError::Poison { class, text });
        }
        let bounds = bounds.map(|(least, greatest)| (text(slice.rows, least), text(slice.rows, greatest)));
        Ok(Self { nulls, bounds })
    }
}

fn compare(rows: &Rows, kind: Kind, one: Cell, other: Cell) -> Ordering {
    use Cell::{Boolean, Date, Double, Instant, Integer, Local, Numeric, Uuid};
    if let (Integer(one), Integer(other)) | (Instant(one), Instant(other)) | (Local(one), Local(other)) =
        (one, other)
    {
        one.cmp(&other)
    } else if let (Double(one), Double(other)) = (one, other) {
        one.total_cmp(&other)
    } else if let (Boolean(one), Boolean(other)) = (one, other) {
        one.cmp(&other)
    } else if let (Date(one), Date(other)) = (one, other) {
        one.cmp(&other)
    } else if let (Uuid(one), Uuid(other)) = (one, other) {
        rows.piece(one).cmp(rows.piece(other))
    } else if let (Numeric(one), Numeric(other), Kind::Numeric { scale, .. }) = (one, other, kind) {
        unscaled(rows.text(one), scale).cmp(&unscaled(rows.text(other), scale))
    } else {
        Ordering::Equal
    }
}

fn is_before_year_one(cell: Cell) -> bool {
    if let Cell::Date(days) = cell {
        return i64::from(days) < YEAR_ONE_DAYS;
    }
    if let Cell::Instant(micros) | Cell::Local(micros) = cell {
        return micros < YEAR_ONE_DAYS * DAY_MICROS;
    }
    false
}

/// Returns a value as the catalog has it.
fn text(rows: &Rows, cell: Cell) -> String {
    let time = |micros: i64, zone: &str| {
        let at = civil(micros);
        format!("{}{zone}", at.strftime("%Y-%m-%d %H:%M:%S%.6f"))
    };
    if let Cell::Instant(micros) = cell {
        return time(micros, "+00");
    }
    if let Cell::Local(micros) = cell {
        return time(micros, "");
    }
    let mut text = Vec::new();
    write_plain(&mut text, rows, cell);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells;

    #[test]
    fn years_before_the_first_are_poison() {
        for (kind, value, is_taken) in [
            ("date", "\"0000-01-01\"", false),
            ("date", "\"0000-12-31\"", false),
            ("date", "\"0001-01-01\"", true),
            ("timestamp", "\"0000-12-31T23:59:59.999999\"", false),
            ("timestamptz", "\"0001-01-01T00:00:00Z\"", true),
            ("timestamptz", "\"0001-01-01T00:00:00+01:00\"", false),
            ("date", "\"9999-12-31\"", true),
        ] {
            let kind = Kind::parse(kind).unwrap();
            let mut rows = Rows::new(1);
            for value in ["\"2026-11-22T10:20:00Z\"", value] {
                // The first one is not a date to all kinds.
                let _ = rows.push(0, |row| cells::write(row, kind, value));
            }
            assert_eq!(Stats::of(&rows.all(), 0, kind).is_ok(), is_taken, "{value}");
        }
    }

    #[test]
    fn bounds_are_the_least_and_the_greatest_as_the_catalog_has_them() {
        let uuid = |last: &str| format!("\"67e55044-10b1-426f-9247-bb680e5fe0{last}\"");
        for (kind, values, expected) in [
            ("bigint", vec!["7", "-5", "null", "10"], Some(("-5", "10"))),
            ("double", vec!["7.5", "-1e3", "0.25"], Some(("-1000", "7.5"))),
            (
                "numeric(9,2)",
                vec!["9", "10.25", "-3.5"],
                Some(("-3.5", "10.25")),
            ),
            ("boolean", vec!["true", "false"], Some(("false", "true"))),
            (
                "date",
                vec!["\"1969-12-31\"", "null"],
                Some(("1969-12-31", "1969-12-31")),
            ),
            (
                "timestamptz",
                vec!["\"1970-01-01T00:00:00.000001Z\"", "\"2026-11-22T10:20:00+01:00\""],
                Some(("1970-01-01 00:00:00.000001+00", "2026-11-22 09:20:00.000000+00")),
            ),
            ("uuid", vec![&uuid("c8"), &uuid("c7")], None),
            ("text", vec!["\"a\""], None),
            ("bigint", vec!["null"], None),
        ] {
            let nulls = values.iter().filter(|value| **value == "null").count();
            let kind = Kind::parse(kind).unwrap();
            let mut rows = Rows::new(1);
            for value in values {
                rows.push(0, |row| cells::write(row, kind, value)).unwrap();
            }
            let found = Stats::of(&rows.all(), 0, kind).unwrap();
            assert_eq!(found.nulls, i64::try_from(nulls).unwrap());
            let bounds = found
                .bounds
                .as_ref()
                .map(|(least, greatest)| (&**least, &**greatest));
            if kind == Kind::Uuid {
                let (least, greatest) = bounds.unwrap();
                assert!(least.ends_with("c7") && greatest.ends_with("c8"));
            } else {
                assert_eq!(bounds, expected, "{kind}");
            }
        }
    }
}
