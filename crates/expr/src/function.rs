//! Functions, by name and by the number of their arguments.

use std::borrow::Cow;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::error::Fault;
use crate::time::{Local, Part, zone};
use crate::value::{Value, has_field, items, seconds};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Contains,
    StartsWith,
    EndsWith,
    Lower,
    Upper,
    Trim,
    Size,
    Int,
    Double,
    Text,
    Time,
    Duration,
    Part(Part),
    Local(Local),
}

/// Name, number of arguments with the one before the dot, at least and at most, and whether it may stand
/// alone and behind a dot.
type Row = (&'static str, Function, usize, usize, bool, bool);

const FUNCTIONS: &[Row] = &[
    ("contains", Function::Contains, 2, 2, false, true),
    ("startsWith", Function::StartsWith, 2, 2, false, true),
    ("endsWith", Function::EndsWith, 2, 2, false, true),
    ("lowerAscii", Function::Lower, 1, 1, false, true),
    ("upperAscii", Function::Upper, 1, 1, false, true),
    ("trim", Function::Trim, 1, 1, false, true),
    ("size", Function::Size, 1, 1, true, true),
    ("int", Function::Int, 1, 1, true, false),
    ("double", Function::Double, 1, 1, true, false),
    ("string", Function::Text, 1, 1, true, false),
    ("timestamp", Function::Time, 1, 1, true, false),
    ("duration", Function::Duration, 1, 1, true, false),
    ("getFullYear", Function::Part(Part::Year), 1, 2, false, true),
    ("getMonth", Function::Part(Part::Month), 1, 2, false, true),
    (
        "getDayOfMonth",
        Function::Part(Part::DayOfMonth),
        1,
        2,
        false,
        true,
    ),
    ("getDate", Function::Part(Part::Date), 1, 2, false, true),
    ("getDayOfWeek", Function::Part(Part::DayOfWeek), 1, 2, false, true),
    ("getDayOfYear", Function::Part(Part::DayOfYear), 1, 2, false, true),
    ("getHours", Function::Part(Part::Hours), 1, 2, false, true),
    ("getMinutes", Function::Part(Part::Minutes), 1, 2, false, true),
    ("getSeconds", Function::Part(Part::Seconds), 1, 2, false, true),
    (
        "getMilliseconds",
        Function::Part(Part::Milliseconds),
        1,
        2,
        false,
        true,
    ),
    ("local", Function::Local(Local::Time), 2, 2, true, false),
    ("day", Function::Local(Local::Day), 2, 2, true, false),
    ("week", Function::Local(Local::Week), 2, 2, true, false),
    ("month", Function::Local(Local::Month), 2, 2, true, false),
];

/// Macros of CEL that are loops.
const LOOPS: &[&str] = &["all", "exists", "exists_one", "map", "filter"];

impl Function {
    /// Refuses the loops of CEL.
    pub(crate) fn check_name(name: &str) -> Result<(), String> {
        if LOOPS.contains(&name) {
            return Err(format!("{name} is a loop, and there are none"));
        }
        Ok(())
    }

    /// Returns a function by name, or a sentence about the mistake. `count` includes the argument before the
    /// dot.
    pub(crate) fn find(name: &str, count: usize, is_method: bool) -> Result<Self, String> {
        let row = FUNCTIONS.iter().find(|(known, _, _, _, alone, behind)| {
            *known == name && if is_method { *behind } else { *alone }
        });
        let Some((_, function, least, most, _, _)) = row else {
            return Err(format!("there is no function {name}"));
        };
        if (*least..=*most).contains(&count) {
            return Ok(*function);
        }
        let taken = count.saturating_sub(usize::from(is_method));
        Err(format!("{name} does not take {taken} arguments"))
    }

    fn name(self) -> &'static str {
        let row = FUNCTIONS.iter().find(|(_, known, ..)| *known == self);
        row.map_or("", |(name, ..)| name)
    }

    /// Returns the result for the first argument and the second, if there is one.
    pub(crate) fn call<'r>(self, first: Value<'r>, second: Option<Value<'r>>) -> Result<Value<'r>, Fault> {
        let refused = |first: &Value<'_>| Fault::Type {
            of: self.name(),
            left: first.kind(),
        };
        Ok(match self {
            Self::Contains | Self::StartsWith | Self::EndsWith => {
                let (Value::Text(text), Some(Value::Text(part))) = (&first, &second) else {
                    return Err(Fault::Types {
                        of: self.name(),
                        left: first.kind(),
                        right: second.map_or("nothing", |second| second.kind()),
                    });
                };
                Value::Bool(match self {
                    Self::StartsWith => text.starts_with(&**part),
                    Self::EndsWith => text.ends_with(&**part),
                    _ => memchr::memmem::find(text.as_bytes(), part.as_bytes()).is_some(),
                })
            }
            Self::Lower | Self::Upper | Self::Trim => {
                let Value::Text(text) = &first else {
                    return Err(refused(&first));
                };
                Value::Text(Cow::Owned(match self {
                    Self::Lower => text.to_ascii_lowercase(),
                    Self::Upper => text.to_ascii_uppercase(),
                    _ => text.trim().to_owned(),
                }))
            }
            Self::Size => size(&first).ok_or_else(|| refused(&first))?,
            Self::Int => int(&first).ok_or_else(|| refused(&first))??,
            Self::Double => double(&first).ok_or_else(|| refused(&first))??,
            Self::Text => text(first).map_err(|first| refused(&first))?,
            Self::Time => time(&first).ok_or_else(|| refused(&first))??,
            Self::Duration => match &first {
                Value::Text(text) => {
                    let read = text.parse::<SignedDuration>();
                    Value::Duration(read.map_err(|_| Fault::Text("duration, such as 90s or 1h30m"))?)
                }
                Value::Duration(_) => first,
                other => return Err(refused(other)),
            },
            Self::Part(part) => Value::Int(part.of(self.civil(&first, second.as_ref())?)),
            Self::Local(local) => Value::Text(Cow::Owned(local.of(self.civil(&first, second.as_ref())?))),
        })
    }

    /// Returns a time as a calendar and a clock of a zone show it.
    fn civil(self, first: &Value<'_>, second: Option<&Value<'_>>) -> Result<jiff::civil::DateTime, Fault> {
        let Value::Time(time) = first else {
            return Err(Fault::Type {
                of: self.name(),
                left: first.kind(),
            });
        };
        let zone = match second {
            None => TimeZone::UTC,
            Some(Value::Text(name)) => zone(name)?,
            Some(other) => {
                return Err(Fault::Types {
                    of: self.name(),
                    left: "a time",
                    right: other.kind(),
                });
            }
        };
        Ok(zone.to_datetime(*time))
    }
}

fn size(value: &Value<'_>) -> Option<Value<'static>> {
    let size = match value {
        Value::Text(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(items) => items.len(),
        Value::Json(json) if json.starts_with('[') => items(value)?.len(),
        Value::Json(_) => has_field(value, "")?.1,
        Value::Null
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Double(_)
        | Value::Time(_)
        | Value::Duration(_) => return None,
    };
    Some(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}

fn int(value: &Value<'_>) -> Option<Result<Value<'static>, Fault>> {
    Some(match value {
        Value::Int(number) => Ok(Value::Int(*number)),
        Value::Double(number) => {
            let whole = number.trunc();
            #[expect(clippy::cast_possible_truncation, reason = "it is within the range of i64")]
            if whole > -9_223_372_036_854_775_808.0 && whole < 9_223_372_036_854_775_808.0 {
                Ok(Value::Int(whole as i64))
            } else {
                Err(Fault::Overflow)
            }
        }
        Value::Text(text) => text
            .parse()
            .map(Value::Int)
            .map_err(|_| Fault::Text("whole number")),
        Value::Time(time) => Ok(Value::Int(time.as_second())),
        _ => return None,
    })
}

fn double(value: &Value<'_>) -> Option<Result<Value<'static>, Fault>> {
    Some(match value {
        Value::Int(number) => Ok(Value::Double(*number as f64)),
        Value::Double(number) => Ok(Value::Double(*number)),
        Value::Text(text) => text.parse().map(Value::Double).map_err(|_| Fault::Text("number")),
        _ => return None,
    })
}

fn text(value: Value<'_>) -> Result<Value<'_>, Value<'_>> {
    let text = match value {
        Value::Text(_) => return Ok(value),
        Value::Bool(it) => it.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Double(number) => number.to_string(),
        Value::Time(time) => time.to_string(),
        Value::Duration(duration) => seconds(duration),
        Value::Bytes(ref bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return Err(value),
        },
        Value::Null | Value::List(_) | Value::Json(_) => return Err(value),
    };
    Ok(Value::Text(Cow::Owned(text)))
}

fn time(value: &Value<'_>) -> Option<Result<Value<'static>, Fault>> {
    Some(match value {
        Value::Time(time) => Ok(Value::Time(*time)),
        Value::Int(seconds) => Timestamp::from_second(*seconds)
            .map(Value::Time)
            .map_err(|_| Fault::Overflow),
        Value::Text(text) => {
            let read = text.parse::<Timestamp>();
            read.map(Value::Time)
                .map_err(|_| Fault::Text("time, such as 2026-11-22T16:00:00Z"))
        }
        _ => return None,
    })
}
