//! A JSON value as the cell of a column. A value that does not fit is refused, never changed or left out; but
//! for digits of a time behind its microseconds.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::civil::{Date, DateTime, Time};
use jiff::fmt::temporal::Pieces;
use jiff::{SignedDuration, Span, Timestamp};

use crate::columns::Kind;
use crate::document::cited;
use crate::rows::{Cell, Cells};

/// Characters of `2026-11-28`; other forms of a date have fewer, or a sign in front.
const DATE_CHARS: usize = 10;
const DAY_MICROS: i64 = 86_400_000_000;
/// The end of the year 9999.
const LAST_MICROS: i64 = 253_402_300_799_999_999;
const DATE_OF_EPOCH: Date = Date::constant(1970, 1, 1);

/// Writes a value, as JSON text, as the cell of a column's kind. The error says which value does not fit.
pub(crate) fn write(row: &mut Cells<'_>, kind: Kind, json: &str) -> Result<(), String> {
    let cell = cell(row, kind, json).ok_or_else(|| format!("{} is no {kind}", cited(json)))?;
    row.push(cell);
    Ok(())
}

fn cell(row: &mut Cells<'_>, kind: Kind, json: &str) -> Option<Cell> {
    if json == "null" {
        return Some(Cell::Null);
    }
    Some(match kind {
        Kind::Text => {
            // Stores have no text with a zero byte, and the value would change without it.
            let text = string(json).filter(|text| !text.contains('\0'))?;
            Cell::Text(row.piece(text.as_bytes()))
        }
        Kind::Boolean => Cell::Boolean(json.parse().ok()?),
        Kind::Bigint => Cell::Integer(number(json)?.parse().ok()?),
        Kind::Double => Cell::Double(number(json)?.parse().ok().filter(|it: &f64| it.is_finite())?),
        Kind::Numeric { precision, scale } => {
            let text = decimal(number(json)?, precision, scale)?;
            Cell::Numeric(row.piece(text.as_bytes()))
        }
        Kind::Timestamptz => Cell::Instant(instant(&string(json)?)?),
        Kind::Timestamp => Cell::Local(local(&string(json)?)?),
        Kind::Date => {
            let text = string(json)?;
            // A date with a time behind it would lose the time.
            let date: Date = text
                .parse()
                .ok()
                .filter(|_| text.len() <= 13 && !text.contains('T'))?;
            Cell::Date(date.since(DATE_OF_EPOCH).ok()?.get_days())
        }
        Kind::Uuid => {
            let id = uuid::Uuid::try_parse(&string(json)?).ok()?;
            Cell::Uuid(row.piece(id.as_bytes()))
        }
        Kind::Bytea => {
            let bytes = STANDARD.decode(string(json)?.as_bytes()).ok()?;
            Cell::Bytes(row.piece(&bytes))
        }
        Kind::Jsonb => Cell::Json(row.written(|buffer| crate::document::write_line(buffer, json))),
    })
}

/// Reads local date and time. A text with a zone is no local time.
fn local(text: &str) -> Option<i64> {
    // A zone is told behind the date, by one of these; most texts have none, and errors are slow to make.
    let behind = text.get(DATE_CHARS..).unwrap_or(text);
    let has_offset = |pieces: Pieces<'_>| pieces.to_numeric_offset().is_some();
    let has_zone = || behind.contains(['+', '-', '\u{2212}']) && Pieces::parse(text).is_ok_and(has_offset);
    if text.ends_with(['Z', 'z']) || has_zone() {
        return None;
    }
    micros_of(text.parse().ok()?)
}

/// Reads a time with its offset, as microseconds since 1970. Further digits are cut, also before 1970.
pub(crate) fn instant(text: &str) -> Option<i64> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return i64::try_from(at.as_nanosecond().div_euclid(1000)).ok();
    }
    // The last two days of the year 9999 are beyond a time stamp, and mean "for ever" in many stores.
    let pieces = Pieces::parse(text).ok()?;
    let (date, offset) = (pieces.date(), pieces.to_numeric_offset()?);
    let is_last = date.year() == 9999 && date.month() == 12;
    let micros = micros_of(date.to_datetime(pieces.time().filter(|_| is_last)?))?;
    let micros = micros - i64::from(offset.seconds()) * 1_000_000;
    (micros <= LAST_MICROS).then_some(micros)
}

fn micros_of(at: DateTime) -> Option<i64> {
    let since = at.date().since(DATE_OF_EPOCH).ok()?;
    let nanos = at.time().duration_since(Time::midnight()).as_nanos();
    let micros = i64::try_from(nanos / 1000).ok()?;
    Some(i64::from(since.get_days()) * DAY_MICROS + micros)
}

/// Returns date and time, in UTC, of microseconds since 1970; the last ones that there are, at most.
pub(crate) fn civil(micros: i64) -> DateTime {
    let days = Span::new().try_days(micros.div_euclid(DAY_MICROS)).ok();
    let date = days.and_then(|days| DATE_OF_EPOCH.checked_add(days).ok());
    let nanos = micros.rem_euclid(DAY_MICROS) * 1000;
    let time = Time::midnight().wrapping_add(SignedDuration::from_nanos(nanos));
    date.map_or(DateTime::MAX, |date| date.to_datetime(time))
}

/// Returns the text of a JSON string.
pub(crate) fn string(json: &str) -> Option<std::borrow::Cow<'_, str>> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str::<String>(json).ok().map(Into::into)
    } else {
        Some(inner.into())
    }
}

/// Returns the text of a JSON number.
fn number(json: &str) -> Option<&str> {
    json.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        .then_some(json)
}

/// Returns a number in plain digits, if it has at most `precision` of them, and `scale` behind the point.
/// Digits are never rounded away.
pub(crate) fn decimal(number: &str, precision: u16, scale: u16) -> Option<String> {
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (number, 0),
    };
    if exponent.unsigned_abs() > 2000 || mantissa.len() > 4000 {
        return None;
    }
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let point = i32::try_from(whole.len()).ok()? + exponent;
    let (whole, fraction) = if let Ok(before) = usize::try_from(point) {
        let padded = format!("{digits:0<before$}");
        let (whole, fraction) = padded.split_at_checked(before)?;
        (whole.to_owned(), fraction.to_owned())
    } else {
        let zeros = usize::try_from(-point).ok()?;
        (String::new(), format!("{}{digits}", "0".repeat(zeros)))
    };
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    if fraction.len() > usize::from(scale) || whole.len() > usize::from(precision - scale) {
        return None;
    }
    let is_zero = whole.is_empty() && fraction.is_empty();
    let sign = if is_zero { "" } else { sign };
    let whole = if whole.is_empty() { "0" } else { whole };
    Some(if fraction.is_empty() {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{fraction}")
    })
}

/// Returns a number of at most `whole` digits before its point in units of its last decimal. Digits are never
/// rounded away.
pub(crate) fn scaled(json: &str, whole: u16, scale: u16) -> Option<i128> {
    if !json.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
        return None;
    }
    short(json, whole, scale).or_else(|| long(json, whole, scale))
}

fn long(json: &str, whole: u16, scale: u16) -> Option<i128> {
    let plain = decimal(json, whole + scale, scale)?;
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    let width = usize::from(scale);
    format!("{whole}{fraction:0<width$}").parse().ok()
}

/// Returns a number of plain digits within the bounds in units of its last decimal: most are such ones.
fn short(json: &str, whole: u16, scale: u16) -> Option<i128> {
    let digits = json.strip_prefix('-').unwrap_or(json);
    let (before, behind) = digits.split_once('.').unwrap_or((digits, ""));
    let missing = usize::from(scale).checked_sub(behind.len())?;
    if before.is_empty() || before.len() > usize::from(whole).min(18) || scale > 18 {
        return None;
    }
    let number = |text: &str| {
        text.bytes().try_fold(0_u64, |units, byte| {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            Some(units * 10 + digit)
        })
    };
    let ten = |places: usize| 10_i128.pow(u32::try_from(places).unwrap_or(u32::MAX));
    let behind_units = i128::from(number(behind)?) * ten(missing);
    let units = i128::from(number(before)?) * ten(usize::from(scale)) + behind_units;
    Some(if digits.len() < json.len() { -units } else { units })
}

/// Returns the text of a number in units of its last decimal.
pub(crate) fn unscaled(value: i128, scale: u16) -> String {
    let (sign, digits) = (if value < 0 { "-" } else { "" }, value.unsigned_abs().to_string());
    let width = usize::from(scale) + 1;
    let padded = format!("{digits:0>width$}");
    let (whole, fraction) = padded.split_at(padded.len() - usize::from(scale));
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{whole}{point}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Rows;

    fn shown(kind: &str, json: &str) -> Result<String, String> {
        let kind = Kind::parse(kind).unwrap();
        let mut rows = Rows::new(1);
        rows.push(0, |row| write(row, kind, json))?;
        let [cell] = *rows.row(0) else { panic!("one cell") };
        Ok(match cell {
            Cell::Numeric(piece) | Cell::Text(piece) | Cell::Json(piece) => rows.text(piece).to_owned(),
            Cell::Bytes(piece) | Cell::Uuid(piece) => format!("{:?}", rows.piece(piece)),
            Cell::Null => "null".to_owned(),
            Cell::Boolean(it) => it.to_string(),
            Cell::Double(it) => it.to_string(),
            Cell::Integer(it) | Cell::Instant(it) | Cell::Local(it) => it.to_string(),
            Cell::Date(it) => it.to_string(),
        })
    }

    #[test]
    fn values_that_fit() {
        for (kind, json, expected) in [
            ("text", r#""a\u00e9\n""#, "aé\n"),
            ("text", "null", "null"),
            ("boolean", "true", "true"),
            ("bigint", "-9223372036854775808", "-9223372036854775808"),
            ("double", "1e-3", "0.001"),
            ("numeric(5,2)", "123.450", "123.45"),
            ("numeric(5,2)", "-1.5e2", "-150"),
            ("numeric(4,4)", "1e-4", "0.0001"),
            ("numeric(5,2)", "-0.00", "0"),
            ("timestamptz", r#""1969-12-31T23:59:59+00:00""#, "-1000000"),
            (
                "timestamptz",
                r#""2026-11-22T10:20:00+01:00""#,
                "1795339200000000",
            ),
            ("timestamp", r#""1970-01-02T00:00:00.5""#, "86400500000"),
            ("timestamptz", r#""1969-12-31T23:59:59.9999995Z""#, "-1"),
            (
                "timestamp",
                r#""1960-05-05T10:00:00.1234567""#,
                "-304783199876544",
            ),
            ("timestamptz", r#""9999-12-31T23:59:59Z""#, "253402300799000000"),
            (
                "timestamptz",
                r#""9999-12-31T23:59:59+01:00""#,
                "253402297199000000",
            ),
            (
                "timestamp",
                r#""9999-12-31T23:59:59.999999""#,
                "253402300799999999",
            ),
            ("timestamp", r#""1970-01-02 00:00:00""#, "86400000000"),
            ("date", r#""1969-12-31""#, "-1"),
            ("bytea", r#""AAE=""#, "[0, 1]"),
            ("jsonb", "{\"a\":\n[1]}", "{\"a\": [1]}"),
        ] {
            assert_eq!(shown(kind, json).as_deref(), Ok(expected), "{kind} {json}");
        }
    }

    #[test]
    fn values_that_do_not_fit_are_refused() {
        for (kind, json) in [
            ("text", "3"),
            ("text", r#""a\u0000""#),
            ("boolean", "1"),
            ("bigint", "9223372036854775808"),
            ("bigint", "1.0"),
            ("bigint", r#""1""#),
            ("double", "1e999"),
            ("double", "true"),
            ("numeric(5,2)", "1234"),
            ("numeric(5,2)", "0.001"),
            ("numeric(5,2)", "1e9999999999"),
            ("timestamptz", r#""2026-11-22T10:20:00""#),
            ("timestamptz", "1795342800"),
            ("timestamp", r#""2026-11-22T10:20:00Z""#),
            ("timestamp", r#""2026-11-22T10:20:00+01:00""#),
            ("timestamp", r#""2026-11-22T10-01[-01:00]""#),
            ("timestamp", r#""9999-12-31T23:59:59+01:00""#),
            ("timestamptz", r#""9999-12-31T23:59:59-01:00""#),
            ("timestamp", r#""20261122T102000-01""#),
            ("timestamp", r#""+002026-11-22T10:20:00+01:00""#),
            ("date", r#""2026-02-30""#),
            ("date", r#""2026-11-22T10:20:00""#),
            ("uuid", r#""x""#),
            ("bytea", r#""?""#),
        ] {
            assert!(shown(kind, json).is_err(), "{kind} {json}");
        }
        assert_eq!(shown("bigint", "[1]"), Err("[1] is no bigint".to_owned()));
    }

    #[test]
    fn a_number_of_plain_digits_has_the_units_of_any_other() {
        for json in [
            "0",
            "-",
            "-0",
            "7",
            "-7.5",
            "7.50",
            "0.001",
            "-0.001",
            "999999999999999",
            "1000000000000000",
            "1.234",
            "1e2",
            "1.5e-1",
            "12.340",
            "-999999999999999.99",
        ] {
            for scale in [0, 1, 2, 9, 15] {
                let long = long(json, 15, scale);
                assert_eq!(scaled(json, 15, scale), long, "{json} {scale}");
                assert!(
                    short(json, 15, scale).is_none_or(|units| Some(units) == long),
                    "{json} {scale}"
                );
            }
        }
        assert_eq!(short("-12.34", 15, 3), Some(-12_340));
    }

    #[test]
    fn a_decimal_is_made_of_digits() {
        for text in [
            "12ab",
            "1,5",
            "1,\"admin\":1",
            "",
            "-",
            ".",
            "--1",
            "+1",
            "1.2.3",
            "1e",
            " 1",
            "1\u{0661}",
        ] {
            assert_eq!(decimal(text, 30, 2), None, "{text}");
        }
        assert_eq!(decimal(".5", 30, 2).as_deref(), Some("0.5"));
    }

    #[test]
    fn numbers_keep_all_their_digits() {
        for (json, scale, units, text) in [
            ("1.5", 2, 150, "1.50"),
            ("-0.05", 2, -5, "-0.05"),
            ("12e2", 0, 1200, "1200"),
            ("0", 3, 0, "0.000"),
            ("999999999999999", 0, 999_999_999_999_999, "999999999999999"),
        ] {
            assert_eq!(scaled(json, 15, scale), Some(units), "{json}");
            assert_eq!(unscaled(units, scale), text);
        }
        assert_eq!(
            (scaled("1.5", 15, 0), scaled("true", 15, 0), scaled("1e19", 15, 0)),
            (None, None, None)
        );
    }
}
